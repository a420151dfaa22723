"""What find_waits says of tensors on the CPU, by its rules, against what CUDA says of
the same tensors on a GPU, by sync-debug mode: all operators with which PyTorch tests
itself (op_db), forward and backward.

    python all_operators.py witness FILE    on CUDA: samples, and how often each waits
    python all_operators.py compare FILE    anywhere, with any PyTorch: against that

It needs expecttest, as PyTorch's own tests do. cuda_operators.py does both in one.

The emulated device computes some operators without CUDA's own code: no witness for
these.
"""

import collections
import io
import itertools
import os
import pathlib
import random
import re
import sys
import warnings
from dataclasses import dataclass

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from waiting_steps import warned

from device_lab import find_waits

SAMPLES = 5  # of each operator
DTYPES = torch.float32, torch.int64, torch.bool, torch.complex64
OPERATORS = {operator.formatted_name: operator for operator in op_db}

# What waits by PyTorch's source, where the emulated device cannot tell
BY_SOURCE = {
    "linalg_svd": "checks cuSOLVER's info (BatchLinearAlgebra.cpp)",
    "linalg_eigh": "checks cuSOLVER's info (BatchLinearAlgebra.cpp)",
    "linalg_eig": "MAGMA works on the host, or info is read (BatchLinearAlgebra.cpp)",
    "linalg_lstsq": "checks the rank and info (BatchLinearAlgebra.cpp)",
    "linalg_pinv": "by svd or eigh (LinearAlgebra.cpp)",
    "linalg_matrix_exp": "mexp_impl reads norms (LinearAlgebra.cpp)",
    "histc": "reads the range that is not given (SummaryOps.cu)",
    "isin": "calls _unique (TensorCompare.cpp)",
    "linalg_check_errors": "reads info (BatchLinearAlgebra.cpp)",
}
SPARSE = "find_waits sees no waits of sparse tensors, as it says"
SUBCLASS = "under a mode PyTorch's backward takes a way without a wait"
TWICE = "both of its tensors are read: one line"
# (operator, sort of the difference) → why it is right, or known
REASONS = {
    **dict.fromkeys([("cumprod", "missed"), ("prod", "missed")], SUBCLASS),
    ("linalg_vander", "missed"): SUBCLASS,
    ("masked_cumprod", "count"): SUBCLASS,
    ("masked_fill", "count"): SUBCLASS,
    **dict.fromkeys(
        [("sparse_sampled_addmm", "missed"), ("to_sparse", "missed")], SPARSE
    ),
    ("linspace_tensor_overload", "count"): TWICE,
    ("logspace_tensor_overload", "count"): TWICE,
    ("nn_functional_ctc_loss", "count"): "its lengths are read one by one: one line",
    ("repeat_interleave", "missed"): "with output_size= only the emulated device waits",
    ("signal_windows_kaiser", "count"): TWICE,
    ("unravel_index", "missed"): "what its own Python makes, a mode does not see",
    ("equal", "missed"): "of other shapes only the emulated device waits",
}


@dataclass
class Sample:
    """arguments: their tensors are on the CPU; host: numbers of those among them (as
    tree_flatten counts) that were on the host for CUDA, too; waits: by CUDA; blind: of
    which operators the emulated device cannot tell.
    """

    operator: str
    number: int
    backward: bool
    arguments: list | None = None
    host: tuple = ()
    waits: int = 0
    blind: frozenset = frozenset()

    def __str__(self):
        return f"{self.operator} {self.number}{' backward' * self.backward}"


def forward(operator, arguments):
    first, args, kwargs = arguments
    return operator(first, *args, **kwargs)


def backward(operator, arguments):
    out = tensors(forward(operator, arguments))
    ends = [x for x in out if x.requires_grad]
    leaves = [x for x in tensors(arguments) if x.requires_grad]
    if ends and leaves:
        slopes = [torch.ones_like(x) for x in ends]
        torch.autograd.grad(ends, leaves, slopes, allow_unused=True)


def tensors(tree):
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def made(operator):
    """(number, arguments) of its first samples on CUDA."""
    supported = operator.supported_dtypes("cuda")
    dtype = next((each for each in DTYPES if each in supported), None)
    if dtype is None:  # CUDA has no kernel
        return
    torch.manual_seed(0)
    numpy.random.seed(0)
    random.seed(0)
    trains = operator.supports_autograd and dtype.is_floating_point
    inputs = operator.sample_inputs("cuda", dtype, requires_grad=trains)
    for number, sample in enumerate(itertools.islice(inputs, SAMPLES)):
        yield number, [sample.input, sample.args, sample.kwargs]


class Called(TorchDispatchMode):
    """names: of the operators that are called, also by autograd."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def without_cuda_code():
    """Whether an operator of this name is computed without CUDA's code."""
    if "libemulator" not in os.environ.get("LD_PRELOAD", ""):
        return lambda name: False
    import emulated_cuda

    path = pathlib.Path(emulated_cuda.__file__).parent / "operators" / "lists.h"

    def pattern(name):
        body = re.search(rf"\b{name} =(.*?);\n", path.read_text(), re.DOTALL)[1]
        return re.compile("".join(re.findall(r'"([^"]*)"', body)))

    pure, but, waiting = map(pattern, ("PURE", "NOT_PURE", "WAITING"))

    def blind(name):
        own = but.fullmatch(name) or waiting.fullmatch(name)
        return bool(pure.fullmatch(name)) and not own

    return blind


def witness():
    """(samples, with what CUDA says; {sample: error}, of those that did not run)"""
    samples, errors, blind = [], {}, without_cuda_code()
    for operator in op_db:
        for number, arguments in made(operator):
            trains = any(x.requires_grad for x in tensors(arguments))
            for step in [forward, backward][: 1 + trains]:
                sample = Sample(operator.formatted_name, number, step is backward)
                try:
                    sample.arguments, sample.host = on_the_cpu(arguments)
                    sample.waits = warned(lambda: step(operator, arguments))  # noqa: B023
                    with Called() as called:
                        step(operator, arguments)
                except Exception as error:
                    errors[str(sample)] = first_line(error)
                else:
                    sample.blind = set(filter(blind, called.names))
                    samples.append(sample)
    return samples, errors


def on_the_cpu(arguments):
    """(arguments of which all are on the CPU, numbers of those that were there)"""
    leaves = tree_flatten(arguments)[0]
    if any(str(x) == "cpu" for x in leaves):
        raise ValueError("it asks for the CPU: for find_waits there, the device")
    host = [
        number
        for number, x in enumerate(leaves)
        if isinstance(x, torch.Tensor) and x.device.type == "cpu"
    ]

    def moved(x):
        if isinstance(x, torch.Tensor):
            return x.detach().cpu().requires_grad_(x.requires_grad)
        return "cpu" if str(x).startswith("cuda") else x

    return tree_map(moved, arguments), host


def judged(sample):
    """{operation: how often it waits}, as find_waits says on the CPU."""
    step = backward if sample.backward else forward
    operator = OPERATORS[sample.operator]  # KeyError: another PyTorch has none
    leaves, tree = tree_flatten(sample.arguments)
    arrays = {number: leaves[number].numpy() for number in sample.host}

    def taken():
        for number, array in arrays.items():  # NumPy's are the host's
            leaves[number] = torch.from_numpy(array)
        step(operator, tree_unflatten(leaves, tree))

    operations = collections.Counter()
    for wait in find_waits(taken).waits:
        operations[wait.operation] += wait.times
    return dict(operations)


def compared(samples):
    """(differences: [(sample, sort, what find_waits says)], {sample: error}, samples
    that agree)
    """
    differences, errors, agreeing = [], {}, []
    for sample in samples:
        try:
            operations = judged(sample)
        except Exception as error:
            errors[str(sample)] = first_line(error)
            continue
        sort = compare(sum(operations.values()), sample.waits)
        if sort == "agree":
            agreeing.append(sample)
        else:
            differences.append((sample, sort, operations))
    return differences, errors, agreeing


def compare(count, waits):
    if count == waits:
        return "agree"
    if count and waits:
        return "count"
    return "false alarm" if count else "missed"


def first_line(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def reason(sample, sort, operations):
    """Why find_waits and CUDA differ; None if nobody knows."""
    known = REASONS.get((sample.operator, sort))
    waiting = [each for each in operations if each in BY_SOURCE]
    if known is None and sample.blind and waiting and sort != "missed":
        known = f"{waiting[0]}: {BY_SOURCE[waiting[0]]}"
    return known


def report(differences, errors, agreeing):
    """Print all, by operators; returns the differences that have no reason."""
    groups = collections.defaultdict(list)
    for sample, sort, operations in differences:
        groups[sample.operator, sort].append((sample, operations))
    unexplained = []
    for (operator, sort), group in groups.items():
        sample, operations = group[0]
        why = reason(sample, sort, operations)
        print(f"{sort:12} {len(group):2} × {operator}: {why or 'NO REASON'}")
        print(f"{'':15} {sample}: find_waits {operations or 0}, CUDA {sample.waits}")
        unexplained += [] if why else [f"{sort}: {operator}"]
    for why, names in by_reason(errors).items():
        print(f"not compared {len(names):2}: {names[0]} …: {why}")
    sorts = collections.Counter(sort for _, sort, _ in differences)
    blind = sum(bool(sample.blind) for sample in agreeing)
    print(f"agree {len(agreeing)}, {blind} of them without a witness; {dict(sorts)}")
    print(f"not compared: {len(errors)}; differences without a reason: {unexplained}")
    return unexplained


def by_reason(errors):
    groups = collections.defaultdict(list)
    for name, error in errors.items():
        groups[error].append(name)
    return groups


def main(command, path):
    warnings.simplefilter("ignore")
    if command == "witness":
        samples, errors = witness()
        save(samples, errors, path)
        print(f"{len(samples)} samples; {len(errors)} did not run")
        return 0
    version, samples, errors = load(path)
    print(f"find_waits, torch {torch.__version__}, against CUDA, torch {version}")
    differences, more, agreeing = compared(samples)
    return len(report(differences, errors | more, agreeing)) > 0


def save(samples, errors, path):
    """Each sample by itself, so that another PyTorch can read those that it knows."""
    rows = {}
    for sample in samples:
        file = io.BytesIO()
        try:
            torch.save(sample, file)
            rows[str(sample)] = file.getvalue()
        except TypeError:  # torch.preserve_format and its like
            errors[str(sample)] = "PyTorch saves no torch.memory_format"
    torch.save((str(torch.__version__), rows, errors), path)


def load(path):
    version, rows, errors = torch.load(path, weights_only=False)
    samples = []
    for name, row in rows.items():
        try:
            samples.append(torch.load(io.BytesIO(row), weights_only=False))
        except (ImportError, AttributeError) as error:
            errors[name] = first_line(error)
    return version, samples, errors


if __name__ == "__main__":
    sys.modules["all_operators"] = sys.modules["__main__"]  # so that samples load
    Sample.__module__ = "all_operators"
    sys.exit(main(*sys.argv[1:]))

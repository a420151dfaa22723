"""find_waits: the lines of a training step at which the host waits for the device.
Lesson 04 explains why they cost time.
"""

import collections
import contextlib
import linecache
import numbers
import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.data import dataloader

from ._ledger import OWN, reader_frame
from .errors import LabError, batches_for, file_name

MENDS = {
    "value": "a value is read: keep it on the device, read it every n steps",
    "size": "the size depends on values: torch.where(mask, a, b) keeps it",
    "to the host": "copied to the host: once at the end, or non_blocking and pinned",
    "to the device": "blocking copy: pin it, non_blocking=True; or make it there",
    "asked for": "only a clock needs it",
}
# Operators of aten that wait on CUDA, by their sources (aten/src/ATen/native): those
# that read values of the device's tensors, and of which argument on they do
VALUES = "_local_scalar_dense is_nonzero equal allclose histc linspace logspace"
VALUES += " _linalg_check_errors _linalg_eigh _linalg_svd linalg_eig linalg_lstsq"
VALUES = dict.fromkeys([*VALUES.split(), "linalg_pinv", "linalg_matrix_exp"], 0)
VALUES |= {"normal": 1, "masked_fill": 2, "index_fill": 3}
SIZES = "nonzero masked_select masked_scatter_backward bincount repeat_interleave"
SIZES += " _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive"
INDEXED = "index index_put index_put_ _index_put_impl_ _unsafe_index".split()
NAMES = {"_local_scalar_dense": "item", "_to_copy": "to", "lift_fresh": "tensor"}
# Functions of Python whose work the dispatcher does not see, or not on the CPU
READS = "tolist numpy __array__ __dlpack__ cpu".split()
FROM_PYTHON = "tensor as_tensor asarray new_tensor".split()
# Since 2.15 a number that is assigned is made on the device, and a single index stays
# on a GPU: asTensor and canKeepScalarIndexOnDevice in ATen/TensorIndexing.h
STAYS = torch.__version__ >= (2, 15)
SYNCHRONIZE = [torch.cuda, torch.mps, torch.xpu, torch.accelerator, torch.cpu]
SYNCHRONIZE += [torch.cuda.Event, torch.cuda.Stream]


class Wait(NamedTuple):
    """A line that waits. where: file:line of the innermost code that is no library;
    inside: of the innermost library below it, PyTorch apart, or ""; code: the line;
    operation: what waits there; kind: a key of MENDS; times: in one step.
    """

    where: str
    inside: str
    code: str
    operation: str
    kind: str
    times: float

    def __str__(self):
        often = f" ×{self.times:g}" if self.times != 1 else ""
        place = f"{self.where}, in {self.inside}" if self.inside else self.where
        head = f"{place}  {self.code}"[:88].rstrip()
        return f"{head}\n    {self.operation}{often}: {MENDS[self.kind]}"


class Waits(NamedTuple):
    """What `find_waits` saw. device: where the step worked; "cpu" passed for a GPU."""

    waits: list[Wait]
    device: str

    def __str__(self):
        count = sum(wait.times for wait in self.waits)
        lines = len({wait.where for wait in self.waits})
        said = "no wait seen in a step"
        if self.waits:
            said = f"{count:g} waits in a step, on {lines} line{'s' * (lines > 1)}"
        if self.device == "cpu":
            said += " (on a CPU whose tensors pass for a GPU's)"
        return "\n".join([said, *map(str, self.waits)])


@batches_for("find_waits takes the step once more than steps= says")
def find_waits(step: Callable[[], object], steps: int = 1) -> Waits:
    """The lines of `step()` at which the host waits for the device: values that are
    read, sizes that depend on values, blocking copies, synchronize.

    step: a training step, without arguments. It is really taken: once to warm up (the
        first makes the optimizer's state), then `steps` times
    steps: how many are counted; more than one for what comes only now and then

    On an accelerator the tensors' devices decide, and what counts is what waits on CUDA
    (torch.cuda.set_sync_debug_mode, and synchronize besides). On a CPU its tensors pass
    for tensors on a GPU, but for what a DataLoader or NumPy made and what the step
    makes without device=, until `.to(device)`; `.cpu()` brings to the host,
    `.to("cpu")` counts as no move. Counters of optimizers on the host do not count.
    Compiled functions run eagerly meanwhile, with the waits that compiling avoids. Not
    seen: waits below PyTorch's operators, of sparse tensors, of prod's and cumprod's
    backward, of threads but autograd's, for memory given back. LabError where `step`
    cannot be called; its own errors pass.
    """
    if not callable(step) or isinstance(step, nn.Module):
        raise LabError("find_waits asks a function without arguments: one step")
    if steps < 1:
        raise LabError("find_waits counts at least one step: steps=1")
    seen = _Seen()
    with seen.watching():
        step()
        seen.counts.clear()  # by now it is known on which device the step works
        for _ in range(steps):
            step()
    waits = [
        Wait(*where, operation, kind, count / steps)
        for (where, operation, kind), count in seen.counts.items()
    ]
    return Waits(waits, seen.device or "cpu")


class _Seen:
    """counts: (place, operation, kind) → how often. device: type of the accelerator
    that tensors were on. On a CPU, _on_host marks the tensors of the host. bracket:
    while a tensor on the device is indexed; stays: indices that it does not read then.
    """

    def __init__(self):
        self.counts, self.device = collections.Counter(), None
        self.quiet = self.bracket = 0
        self.stays = []

    @contextlib.contextmanager
    def watching(self):
        following = dataloader._BaseDataLoaderIter.__next__

        def marked(loader):
            with self.silent():
                batch = following(loader)
            self.mark(batch)
            return batch

        with contextlib.ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(self.mark_counters).remove)
            patches = [(dataloader._BaseDataLoaderIter, "__next__", marked)]
            asked = [
                (x, "synchronize", self.asking(x.synchronize)) for x in SYNCHRONIZE
            ]
            for patch in patches + asked:
                stack.enter_context(mock.patch.object(*patch))
            # under a mode the compiler gives up, for ever
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_Functions(self))
            stack.enter_context(_Operators(self))
            yield

    def asking(self, synchronize):
        def asked(*args, **kwargs):
            self.note("synchronize", "asked for")
            return synchronize(*args, **kwargs)

        return asked

    @contextlib.contextmanager
    def silent(self):
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def note(self, operation, kind):
        lazy = (self.device, kind) == ("xla", "to the device")
        if not (self.quiet or lazy):
            self.counts[_place(), operation, kind] += 1

    def mark(self, tree, number=False):
        """These tensors are on the host, if on a CPU; so is the number in x[i] = 0."""
        for x in _tensors(tree):
            if x.device.type == "cpu" or number:
                x._on_host = True
            else:
                self.on_device(x)

    def mark_counters(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            self.mark([value for key, value in group.items() if key != "params"])
        for state in optimizer.state.values():
            if isinstance(state, dict):
                self.mark([state.get("step"), state.get("mu_product")])

    def on_device(self, x):
        kind = x.device.type
        if kind == "lazy":
            raise LabError("not on PyTorch's lazy device: give the step on the CPU")
        if kind not in ("cpu", "meta"):
            self.device = kind
        elif kind == "meta" or self.device:
            return False
        return not hasattr(x, "_on_host")


class _Operators(TorchDispatchMode):
    """What the dispatcher sees, PyTorch's own functions included."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if torch.is_inference_mode_enabled():  # there composed operators come whole
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        kind = self.kind(name, args, kwargs)
        if kind:
            self.seen.note(NAMES.get(name, name.strip("_2")), kind)
        out = func(*args, **kwargs)
        given = _tensors((args, kwargs))
        made = name == "lift_fresh" or (name == "scalar_tensor" and self.seen.bracket)
        made = made and not (self.seen.bracket and STAYS)
        if (made and not kind) or (given and not any(map(self.seen.on_device, given))):
            self.seen.mark(out, number=made and self.seen.bracket)
        if name == "_pack_padded_sequence":  # the batches' sizes
            self.seen.mark(out[1])
        return out

    def kind(self, name, args, kwargs):
        there, given, plain = self.seen.on_device, _tensors(args), name.rstrip("_")
        if name == "_local_scalar_dense" and any(args[0] is x for x in self.seen.stays):
            return None
        if plain in VALUES and any(map(there, _tensors(args[VALUES[plain] :]))):
            # histc reads if it is given no range
            return None if name == "histc" and len(args) > 2 else "value"
        if not given:
            return None
        if name in SIZES.split() and there(given[0]):
            return None if kwargs.get("output_size") else "size"
        if name in INDEXED and there(given[0]):
            return self.indexed(name, args)
        waits = not kwargs.get("non_blocking")
        if name == "_to_copy" and kwargs.get("device") and waits:
            ends = given[0].device.type, torch.device(kwargs["device"]).type
            if ends.count("cpu") == 1 and "meta" not in ends:
                return "to the host" if ends[1] == "cpu" else "to the device"
        if name == "copy_" and waits and not any(args[2:]):
            here, away = map(there, args[:2])
            if here != away:
                return "to the device" if here else "to the host"
        copied = name == "where" and len({*map(there, given)}) == 2
        if name == "lift_fresh" and there(given[0]):
            # of Python's numbers; of a list in brackets
            copied = given[0].dim() if self.seen.bracket else self.seen.device
        return "to the device" if copied else None

    def indexed(self, name, args):
        there = self.seen.on_device
        indices = [x for x in args[1] if isinstance(x, torch.Tensor)]
        masks = [x for x in indices if x.dtype in (torch.bool, torch.uint8)]
        number = "put" in name and args[2].numel() == 1 and not there(args[2])
        if any(map(there, masks)):
            # x[mask] = 0 is masked_fill (canDispatchToMaskedFill)
            fills = number and len(indices) == 1 and not any(args[3:])
            return None if fills else "size"
        return "to the device" if number or not all(map(there, indices)) else None


class _Functions(TorchFunctionMode):
    """What only the call in Python shows: where tensors are made; on a CPU, sent."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name, seen = kwargs or {}, getattr(func, "__name__", ""), self.seen
        given = _tensors((args, kwargs))
        there = [x for x in given if seen.on_device(x)]
        if name in ("__getitem__", "__setitem__") and seen.on_device(args[0]):
            seen.bracket, seen.stays = 1, _staying(seen, *args)
            try:
                return func(*args, **kwargs)
            finally:
                seen.bracket, seen.stays = 0, []
        if name == "__repr__" and there:  # it switches modes off
            seen.note("print", "value")
        if name == "ctc_loss" and there:
            seen.note(name, "to the device")  # its lengths
            with _disable_current_modes():  # under them it refuses those of the host
                return func(*args, **kwargs)
        if name in FROM_PYTHON:
            return self.made(func, name, args, kwargs, there)
        if seen.device or any(x.device.type != "cpu" for x in given):
            return func(*args, **kwargs)
        if name in ("to", "type_as") and given and not seen.on_device(given[0]):
            target = [*args[1:2], kwargs.get("device")]
            if there or any(isinstance(each, (str, torch.device)) for each in target):
                return self.sent(func, args, kwargs)
        if name == "one_hot":  # CUDA does not check the labels
            if there and [*args[1:], *kwargs.values()] in ([], [-1]):
                seen.note(name, "value")
            with seen.silent():
                return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if name in READS and there:
            seen.note(name, "to the host")
            out = out.clone() if name == "cpu" else out
        if name == "cpu" or not (given or kwargs.get("device")):
            seen.mark(out)
        return out

    def made(self, func, name, args, kwargs, there):
        """torch.tensor and its like: from numbers, or from tensors in a list."""
        seen, own = self.seen, name == "new_tensor"
        data, device = args[own:][:1], kwargs.get("device") or (own and there[:1])
        if device == "cpu" and sys._getframe(2).f_code.co_filename.startswith(OWN):
            device = None  # an optimizer's counter
        single = any(map(torch.is_tensor, data))
        for _ in [] if single else there[own:]:
            seen.note(name, "value")
        if device and not (seen.device or (single and there)):
            return self.sent(func, args, kwargs, name)
        return func(*args, **kwargs)

    def sent(self, func, args, kwargs, name="to"):
        """On a CPU: to the device, a copy."""
        if not kwargs.get("non_blocking") and True not in args[2:]:
            self.seen.note(name, "to the device")
        out = func(*args, **kwargs)
        out = out.clone() if any(out is each for each in args) else out
        vars(out).pop("_on_host", None)
        return out


def _staying(seen, target, index, value=None):
    """Indices that a GPU does not read to assign `value`, a number."""
    fits = isinstance(value, numbers.Number)
    if isinstance(value, torch.Tensor):
        one = value.dim() == 0 and value.dtype == target.dtype
        fits = one and seen.on_device(value)
    if not (fits and STAYS):
        return []
    parts = index if isinstance(index, tuple) else (index,)
    whole = (torch.int64, torch.int32)
    return [x for x in _tensors(parts) if x.dim() == 0 and x.dtype in whole]


def _tensors(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _place():
    """(where, inside, code) of the innermost line that is no library's."""
    frame, inside = reader_frame()
    if frame is None:
        return inside or "backward()", "", ""
    path, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(path, line, frame.f_globals).strip()
    return f"{file_name(path)}:{line}", inside, code

"""find_waits: the lines of a training step at which the host waits for the device.
Lesson 04 explains why they cost time.
"""

import collections
import contextlib
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import dataloader

from .errors import LabError

MENDS = {
    "value": "a value is read: keep it on the device, read it every n steps",
    "size": "the size depends on values: torch.where(mask, a, b) keeps it",
    "to the host": "copied to the host: once at the end, or non_blocking and pinned",
    "to the device": "blocking copy: pin it, non_blocking=True; or make it there",
    "asked for": "only a clock needs it",
}
# Operators of aten that wait on CUDA, by their sources (aten/src/ATen/native/cuda)
VALUES = "_local_scalar_dense equal allclose _linalg_check_errors is_nonzero".split()
SIZES = "nonzero masked_select bincount repeat_interleave _unique _unique2".split()
SIZES += "unique_dim unique_consecutive unique_dim_consecutive".split()
INDEXED = "index index_put index_put_ _index_put_impl_ _unsafe_index".split()
NAMES = {"_local_scalar_dense": "item", "_to_copy": "to", "_unique2": "unique"}
# Functions of Python whose work the dispatcher does not see, or not on the CPU
READS = "tolist numpy __array__ __dlpack__ cpu".split()
MAKES = "empty zeros ones full rand randn randint randperm arange linspace eye".split()
FROM_PYTHON = "tensor as_tensor new_tensor".split()
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
    """What `find_waits` saw. device: on which the step worked; on "cpu" its tensors
    passed for tensors on a GPU.
    """

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
    `.to("cpu")` counts as no move. Counters of optimizers on the host do not count. Not
    seen: waits below PyTorch's operators, threads but autograd's, memory given back.
    Compiled functions run eagerly meanwhile. LabError where `step` cannot be called;
    its own errors pass.
    """
    if not callable(step):
        raise LabError("find_waits asks a function without arguments: one step")
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
    that tensors were on. On a CPU, _on_host marks the tensors of the host.
    """

    def __init__(self):
        self.counts, self.device, self.quiet = collections.Counter(), None, 0

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
            for owner in SYNCHRONIZE:
                patches.append((owner, "synchronize", self.asking(owner.synchronize)))
            for patch in patches:
                stack.enter_context(mock.patch.object(*patch))
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
        if not self.quiet:
            self.counts[_place(), operation, kind] += 1

    def mark(self, tree):
        """On a CPU: these tensors are on the host."""
        for x in _tensors(tree):
            if x.device.type == "cpu":
                x._on_host = True

    def mark_counters(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            on_device = group.get("capturable") or group.get("fused")
            for parameter in group["params"]:
                counter = optimizer.state.get(parameter, {}).get("step")
                if torch.is_tensor(counter) and not on_device:
                    counter._on_host = True

    def on_device(self, x):
        kind = x.device.type
        if kind not in ("cpu", "meta"):
            self.device = kind
            return True
        return kind == "cpu" and not self.device and not hasattr(x, "_on_host")


class _Operators(TorchDispatchMode):
    """What the dispatcher sees, PyTorch's own functions included."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        kind = self.kind(name, args, kwargs)
        if kind:
            self.seen.note(NAMES.get(name, name.strip("_")), kind)
        out = func(*args, **kwargs)
        given = _tensors((args, kwargs))
        if given and not any(map(self.seen.on_device, given)):
            self.seen.mark(out)
        return out

    def kind(self, name, args, kwargs):
        there, first = self.seen.on_device, next(iter(_tensors(args)), None)
        if name in VALUES:
            return "value" if any(map(there, _tensors(args))) else None
        if name in SIZES:
            return "size" if there(first) and not kwargs.get("output_size") else None
        if name in INDEXED and there(first):
            return self.indexed(name, args)
        if name == "_to_copy" and kwargs.get("device") and self.seen.device:
            return self.moved(first.device, kwargs["device"], kwargs)
        if name == "copy_" and not kwargs.get("non_blocking"):
            target, source = args[0], args[1]
            here, away = there(target), there(source)
            if here != away and not (len(args) > 2 and args[2]):
                return "to the device" if here else "to the host"
        return None

    def moved(self, source, target, kwargs):
        ends = {source.type, torch.device(target).type}
        if len(ends) == 1 or "cpu" not in ends or kwargs.get("non_blocking"):
            return None
        if source.type != "cpu":
            return "to the host"
        return None if "xla" in ends else "to the device"  # lazy: nobody waits

    def indexed(self, name, args):
        indices = [x for x in args[1] if isinstance(x, torch.Tensor)]
        masks = [x for x in indices if x.dtype in (torch.bool, torch.uint8)]
        if masks:  # x[mask] = number becomes masked_fill (canDispatchToMaskedFill)
            fills = "put" in name and args[2].numel() == 1 and len(indices) == 1
            return None if fills else "size"
        if any(x.device.type == "cpu" and not self.seen.on_device(x) for x in indices):
            return "to the device"
        return None


class _Functions(TorchFunctionMode):
    """What only the call in Python shows: where a tensor is made, and on a CPU where it
    is sent.
    """

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name, seen = kwargs or {}, getattr(func, "__name__", ""), self.seen
        given = _tensors((args, kwargs))
        on_cpu = all(x.device.type == "cpu" for x in given)
        there = [x for x in given if seen.on_device(x)]
        if name in ("__getitem__", "__setitem__") and there[:1] == given[:1] != []:
            # each list among the brackets becomes a tensor, on the host
            for part in args[1] if isinstance(args[1], tuple) else [args[1]]:
                array = isinstance(part, numpy.ndarray) and not seen.device
                if array or isinstance(part, (list, range)):
                    seen.note("index", "to the device")
        if name == "__repr__" and there:  # it switches modes off
            seen.note("print", "value")
        if name in FROM_PYTHON:
            return self.made(func, name, args, kwargs, there)
        if name == "ctc_loss" and on_cpu and not seen.device:
            for _ in filter(seen.on_device, _tensors([*args, *kwargs.values()][2:4])):
                seen.note(name, "to the host")
        if on_cpu and not seen.device:
            if name in READS and there:
                seen.note(name, "to the host")
                out = func(*args, **kwargs)
                if name == "cpu":
                    out = out.clone()
                    seen.mark(out)
                return out
            target = [*args[1:2], kwargs.get("device")]
            named = any(isinstance(each, (str, torch.device)) for each in target)
            if name in ("to", "cuda") and named and not there:
                return self.sent(func, args, kwargs)
            if name == "one_hot":  # CUDA does not check the labels
                if there and [*args[1:], *kwargs.values()] in ([], [-1]):
                    seen.note(name, "value")
                with seen.silent():
                    return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if (name in MAKES and not kwargs.get("device")) or name == "from_numpy":
            if torch.get_default_device().type == "cpu":
                seen.mark(out)
        return out

    def made(self, func, name, args, kwargs, there):
        """torch.tensor and its like: from numbers, or from tensors in a list."""
        seen, single = self.seen, torch.is_tensor(args[0] if args else None)
        with seen.silent():
            out = func(*args, **kwargs)
        if not single:
            for _ in there if name != "new_tensor" else there[1:]:
                seen.note(name, "value")
        device = kwargs.get("device") or (name == "new_tensor" and args[0].device)
        if device == "cpu" and _within_torch():  # an optimizer's counter
            device = None
        if single or (not device and torch.get_default_device().type == "cpu"):
            if not there:
                seen.mark(out)
        elif seen.on_device(out) and out.device.type != "xla":
            seen.note(name, "to the device")
        return out

    def sent(self, func, args, kwargs):
        """x.to(device) of a tensor of the host, on a CPU: a copy."""
        if not kwargs.get("non_blocking") and True not in args[2:]:
            self.seen.note("to", "to the device")
        out = func(*args, **kwargs)
        out = out.clone() if out is args[0] else out
        vars(out).pop("_on_host", None)
        return out


def _tensors(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _within_torch():
    """Whether PyTorch itself makes the call that a mode looks at."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, torch.overrides.__file__):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(TORCH)


LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
STANDARD, TORCH = sysconfig.get_path("stdlib"), os.path.dirname(torch.__file__)


def _place():
    """(where, inside, code) of the innermost line that is no library's."""
    frame, inside = sys._getframe(1), ""
    while frame:
        path, line = frame.f_code.co_filename, frame.f_lineno
        library = path.startswith(LIBRARIES)
        own = path == __file__ or path.startswith((TORCH, "<frozen"))
        if library and not own and not inside:
            folder, name = os.path.split(path)
            inside = f"{os.path.basename(folder)}/{name}:{line}"
        if not (own or library or path.startswith(STANDARD)):
            code = linecache.getline(path, line, frame.f_globals).strip()
            name = "cell" if "ipykernel" in path else os.path.basename(path)
            return f"{name}:{line}", inside, code
        frame = frame.f_back
    return inside or "backward()", "", ""

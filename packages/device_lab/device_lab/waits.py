"""find_waits: the lines of a training step at which the host waits for the device.
Lesson 04 explains why they cost time.
"""

import collections
import contextlib
import linecache
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from ._ledger import reader_frame
from ._wait_rules import Functions, Operators, tensors_in
from .errors import LabError, batches_for, file_name

MENDS = {
    "value": "a value is read: keep it on the device, read it every n steps",
    "size": "the size depends on values: torch.where(mask, a, b) keeps it",
    "to the host": "copied to the host: once at the end, or non_blocking and pinned",
    "to the device": "blocking copy: pin it, non_blocking=True; or make it there",
    "asked for": "only a clock needs it",
}
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
        head = "no wait seen in a step"
        if self.waits:
            head = f"{count:g} waits in a step, on {lines} line{'s' * (lines > 1)}"
        if self.device == "cpu":
            head += " (on a CPU whose tensors pass for a GPU's)"
        return "\n".join([head, *map(str, self.waits)])


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
    watch = _Watch()
    with watch.watching():
        step()
        watch.counts.clear()  # by now it is known on which device the step works
        for _ in range(steps):
            step()
    waits = [
        Wait(*where, operation, kind, count / steps)
        for (where, operation, kind), count in watch.counts.items()
    ]
    return Waits(waits, watch.device or "cpu")


class _Watch:
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
            stack.enter_context(Functions(self))
            stack.enter_context(Operators(self))
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
        for x in tensors_in(tree):
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


def _place():
    """(where, inside, code) of the innermost line that is no library's."""
    frame, inside = reader_frame()
    if frame is None:
        return inside or "backward()", "", ""
    path, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(path, line, frame.f_globals).strip()
    return f"{file_name(path)}:{line}", inside, code

"""find_waits: the lines of a training step at which the host waits for the device."""

import collections
import contextlib
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import dataloader
from torch.utils.weak import WeakTensorKeyDictionary

from ._cures import CAUSES, SCALER, cure
from ._lines import place
from ._results import Result
from ._wait_rules import Functions, Operators, tensors_in, tensors_of
from .errors import LabError, batches_for, trained_once, without_arguments

OWNERS = [torch.cuda, torch.mps, torch.xpu, torch.accelerator, torch.cpu]
OWNERS += [torch.cuda.Event, torch.cuda.Stream]
# Emptying ends in cudaFree: release_cached_blocks in CUDACachingAllocator.cpp
ASKED = {"synchronize": "asked for", "empty_cache": "freed"}
TO_CPU = r"[(\"'=]cpu\b"  # in a line of code
REPORT = "called a synchronizing CUDA operation"  # of torch.cuda.set_sync_debug_mode


@dataclass(frozen=True, repr=False)
class Wait(Result):
    """A line that waits. where: file:line of the innermost code that is no library's;
    code: that line; inside: both of the innermost library below it, PyTorch too, or "".
    operation: what waits there; kind: why, a key of CAUSES; cure: what to do about it;
    times: in one step.
    """

    where: str
    code: str
    inside: str
    operation: str
    kind: str
    cure: str
    times: float

    def __str__(self) -> str:
        lines = [f"{self.where}  {self.code}"[:88].rstrip()]
        if self.inside:
            lines.append(f"    in {self.inside}"[:88].rstrip())
        often = f" ×{self.times:g}" if self.times != 1 else ""
        parts = f"{self.operation}{often}", CAUSES[self.kind], self.cure
        indent = {"initial_indent": "    ", "subsequent_indent": "      "}
        why = textwrap.wrap(": ".join(filter(None, parts)), 88, **indent)
        return "\n".join(lines + why)


@dataclass(frozen=True, repr=False)
class Waits(Result):
    """What `find_waits` saw. device: where the step worked; "cpu" passed for a GPU.
    scaler: where a GradScaler that CUDA does not disable waits besides. assumed: lines
    that move to the device what was made before the step → how often in one; on a CPU
    that counts as no wait, as it may be there already.
    """

    waits: list[Wait]
    device: str
    scaler: list[Wait]
    assumed: dict[str, float]

    def __str__(self) -> str:
        count = sum(wait.times for wait in self.waits)
        lines = len({wait.where for wait in self.waits})
        head = "no wait seen in a step"
        if self.waits:
            waits = "1 wait" if count == 1 else f"{count:g} waits"
            head = f"{waits} in a step, on {lines} line{'s' * (lines > 1)}"
        if self.device == "cpu":
            head += " (on a CPU whose tensors pass for a GPU's)"
        parts = [head, *self.waits]
        if self.scaler:
            parts.append(
                "a GradScaler is disabled without CUDA; enabled, it waits besides:"
            )
        parts += self.scaler
        if self.assumed:
            moved = [
                where if times == 1 else f"{where} ×{times:g}"
                for where, times in self.assumed.items()
            ]
            doubt = f"Taken as on the GPU already: {', '.join(moved)}. If these lie on"
            parts += textwrap.wrap(
                f"{doubt} the host, each copy waits; see left_behind.", 88
            )
        return "\n".join(map(str, parts))


@batches_for("find_waits takes the step once more than steps= says")
def find_waits(step: Callable[[], object], steps: int = 1) -> Waits:
    """The lines of `step()` at which the host waits for the device: values that are
    read, sizes that depend on values, blocking copies, synchronize, empty_cache.

    step: a training step, without arguments. It is really taken: once to warm up, then
        `steps` times
    steps: how many are counted; more than one for what comes only now and then

    On CUDA its own sync-debug mode decides, and rules explain; elsewhere they decide.
    On a CPU its tensors pass for tensors on a GPU, but for what a DataLoader or NumPy
    made and what the step makes without device=, until `.to(device)`; what was made
    before the step is taken as there, and named where it is moved. `.cpu()` brings to
    the host, `.to("cpu")` counts as no move; torch.cuda.synchronize() is counted and
    left out. Compiled functions run eagerly meanwhile, with the waits that compiling
    avoids. Not seen: waits of sparse tensors, torch.distributed, the backward of prod
    and cumprod. LabError where `step` cannot be called; its own errors pass.

        print(find_waits(lambda: step(next(batches)), steps=10))
    """
    if not callable(step) or isinstance(step, nn.Module):
        raise LabError("find_waits asks a function without arguments: one step")
    without_arguments(step)
    if steps < 1:
        raise LabError("find_waits counts at least one step: steps=1")
    watch = _Watch()
    with watch.watching():
        step()
        first, watch.work = watch.work, set()
        watch.counts.clear()  # by now it is known on which device the step works
        watch.scaler.clear()
        watch.assumed.clear()
        with watch.witness() if watch.device == "cuda" else contextlib.nullcontext():
            for _ in range(steps):
                step()
    if first - watch.work:
        raise trained_once("find_waits")
    waits, scaler = (
        [Wait(*key, times=count / steps) for key, count in counts.items()]
        for counts in (watch.counts, watch.scaler)
    )
    assumed = {where: n / steps for where, n in watch.assumed.items()}
    return Waits(waits, watch.device or "cpu", scaler, {} if watch.device else assumed)


class _Watch:
    """counts: what `wait` gives → how often. device: type of the accelerator that
    tensors were on. lies: on a CPU "here" for tensors of the host, "there" for what the
    step moved to the device, or made of such. assumed: lines that move others, how
    often. bracket: while a tensor on the device is indexed, indices that are not read.
    noted: where CUDA reports itself, what rules expect; call, operator: of Python and
    of PyTorch, that is being made. work: whether operators ran, and whether in a
    "backward" pass.
    """

    def __init__(self):
        self.counts, self.scaler = collections.Counter(), collections.Counter()
        self.assumed = collections.Counter()
        self.device = self.noted = self.call = self.operator = self.bracket = None
        self.lies = WeakTensorKeyDictionary()
        self.quiet, self.work = 0, set()

    place = staticmethod(place)

    def wait(self, operation, kind):
        """What a Wait holds, but for `times`."""
        at = self.place()
        return *at[:3], operation, kind, cure(operation, kind, at)

    @contextlib.contextmanager
    def watching(self):
        with contextlib.ExitStack() as stack:
            self.open(stack, stack.enter_context)
            yield

    def open(self, stack, enter):
        """Until the stack ends. enter: how modes of PyTorch begin."""
        following = dataloader._BaseDataLoaderIter.__next__

        def marked(loader):
            with self.silent() if self.noted is None else contextlib.nullcontext():
                batch = following(loader)
            self.mark(tensors_of(batch))
            return batch

        stack.callback(register_optimizer_step_pre_hook(self.mark_counters).remove)
        patches = [(dataloader._BaseDataLoaderIter, "__next__", marked)]
        patches += [
            (owner, name, self.asking(owner, name))
            for owner in OWNERS
            for name in ASKED
            if hasattr(owner, name)
        ]
        if not torch.cuda.is_available():
            patches += [(GradScaler, "step", self.scaling())]
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        if self.may_compile():  # under a mode the compiler gives up, for ever
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        enter(Functions(self))
        enter(Operators(self))

    def may_compile(self):
        return True

    def asking(self, owner, name):
        function = getattr(owner, name)

        def asked(*args, **kwargs):
            self.count(self.wait(name, ASKED[name]))
            if getattr(owner, "is_available", lambda: True)():
                with self.silent():
                    return function(*args, **kwargs)

        return asked

    def scaling(self):
        step = GradScaler.step

        def scaled(scaler, optimizer, *args, **kwargs):
            reads = not getattr(optimizer, "_step_supports_amp_scaling", False)
            if reads and scaler._device == "cuda":
                self.scaler[(*self.place()[:3], "item", "value", SCALER)] += 1
            return step(scaler, optimizer, *args, **kwargs)

        return scaled

    @contextlib.contextmanager
    def silent(self):
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def note(self, operation, kind):
        """A rule says that this waits."""
        lazy = (self.device, kind) == ("xla", "to the device")
        if self.noted is not None:
            self.noted.append(self.wait(operation, kind))
            warnings.filterwarnings("always", REPORT)  # should the step ignore them
        elif not (self.quiet or lazy):
            self.count(self.wait(operation, kind))

    def count(self, wait):
        if wait[-1] is not None:
            self.counts[wait] += 1

    @contextlib.contextmanager
    def witness(self):
        """CUDA's reports count; what rules expected at the same line explains them."""
        self.noted, last = collections.deque(maxlen=1000), None
        mode, show = torch.cuda.get_sync_debug_mode(), warnings.showwarning

        def reported(message, *args, **kwargs):
            nonlocal last
            if not str(message).startswith(REPORT):
                show(message, *args, **kwargs)
            elif not self.quiet:
                last = self.explain(last)
                self.count(last[1])

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")
            warnings.filterwarnings("always", REPORT)
            warnings.showwarning = reported
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(mode)

    def explain(self, last):
        """(call of Python, wait) of what CUDA reports."""
        name = self.call.name if self.call else "a call"
        wait = self.wait(name, "else")
        for noted in reversed(self.noted):
            if noted[0] == wait[0]:
                self.noted.remove(noted)
                return self.call, noted
        if last and self.call is last[0] and wait[0] == last[1][0]:
            return last  # it waits several times
        return self.call, wait

    def assume(self, x):
        """The reader's line moves x, which passes for the device's, to the device."""
        if self.device or self.quiet or x in self.lies or not x.numel():
            return
        at = self.place()
        if not (at.calls or re.search(TO_CPU, at.code)):
            self.assumed[at.where] += 1

    def mark(self, tree, number=False):
        """These tensors are on the host, if on a CPU; so is the number in x[i] = 0."""
        for x in tensors_in(tree):
            if x.device.type == "cpu" or number:
                self.lies[x] = "here"
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
        return self.lies.get(x) != "here"

    def is_there(self, x):
        """What was made before the step is not known to be, but for parameters."""
        return self.lies.get(x) == "there" or isinstance(x, nn.Parameter)

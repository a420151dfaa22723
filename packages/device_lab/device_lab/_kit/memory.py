"""peak: what a step holds on its device, at its highest. rehearse: the same for a CUDA
GPU that is not there, counted on tensors without data.
"""

import contextlib
import dataclasses
import functools
import gc
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from ._ledger import Ledger, size_text, storages
from ._rehearsal import second_step, ways
from ._results import Result
from .devices import pick_device
from .errors import LabError, batches_for, trained_once, without_arguments


@dataclass(frozen=True, repr=False)
class Peak(Result):
    """Bytes of a step on a device. before, highest, after: in tensors (on CUDA: in the
    allocator's blocks). room: what would fit beside it, on a GPU; shared: in a memory
    that is the CPU's, too. grows: what each further step left behind. largest: the
    largest new tensor, and who asked for it.
    """

    device: torch.device
    before: int
    highest: int
    after: int
    room: int | None
    grows: int
    largest: tuple[int, str]
    counted: str
    shared: bool = False

    def __str__(self) -> str:
        more, after = size_text(self.highest - self.before), size_text(self.after)
        lines = [
            f"The step holds {size_text(self.highest)} at its highest ({self.device},"
            f" counted by {self.counted}):",
            f"{size_text(self.before)} before it, {more} more in it, {after} after it.",
            "Further steps leave nothing more behind.",
        ]
        if self.grows:
            lines[-1] = (
                f"Each further step leaves {size_text(self.grows)} behind: something"
                " keeps tensors (a list, a graph)."
            )
        if self.room is not None:
            note = "; CPU and GPU share this memory" if self.shared else ""
            lines += [f"{size_text(max(0, self.room))} more would fit{note}."]
        nbytes, where = self.largest
        if nbytes:
            text = f"Largest new tensor: {size_text(nbytes)}, {where}"
            lines += [textwrap.shorten(text, 88, placeholder=" …")]
        return "\n".join(lines)


@batches_for("peak takes the step up to six times")
def peak(step: Callable[[], object], device: torch.device | str | None = None) -> Peak:
    """What a training step holds on its device, and whether it leaves something behind.

    step: function without arguments; it is really done, up to six times: it trains
    device: where it works; None for `pick_device`

    Two steps warm up: then gradients and the optimizer's state exist. CUDA, XPU:
    torch.accelerator's counters, which do not see the context and what libraries take.
    CPU, MPS: the storages that PyTorch's calls make or use, without what a kernel takes
    and gives back. LabError on XLA.
    """
    if not callable(step) or isinstance(step, nn.Module):
        raise LabError("peak needs a function that does one step: peak(lambda: …)")
    without_arguments(step)
    device = torch.device(device) if device else pick_device()
    if device.type == "xla":
        raise LabError("not on XLA: see torch_xla.core.xla_model.get_memory_info")
    ledger, after, gpu = Ledger(device), [], torch.accelerator
    step()
    step()
    gc.collect()
    counter = device.type not in ("cpu", "mps")
    held = functools.partial(gpu.memory_allocated, device) if counter else ledger.held
    ledger.ready = storages()
    made = held if counter else functools.partial(ledger.held, ready=False)
    with contextlib.nullcontext() if counter else ledger:
        for _ in range(3):
            start, before = len(ledger.phases), held()
            if counter:
                gpu.reset_peak_memory_stats(device)
            step()
            if held() > before:  # cycles that the step left, or a leak
                gc.collect()
            after.append(made())
            end = held()
    if counter:
        highest, start = gpu.max_memory_allocated(device), len(ledger.phases)
        with ledger:
            step()
    if start == len(ledger.phases):
        raise trained_once("peak")
    if not counter:
        highest = ledger.highest(start)[0]
    grows = max(0, min(after[1] - after[0], after[2] - after[1]))
    room, shared = _room(device)
    room = room and room - (highest - end)
    figures = before, highest, end, room, grows
    who = "torch.accelerator" if counter else "PyTorch's calls"
    return Peak(device, *figures, ledger.largest, who, shared)


def _room(device, meminfo="/proc/meminfo"):
    """(bytes that new tensors could get, None where nothing tells; `shared` of Peak)"""
    if device.type == "mps":
        held = torch.mps.current_allocated_memory()
        return torch.mps.recommended_max_memory() - held, True
    kind, gpu = getattr(torch, device.type, None), torch.accelerator
    if not hasattr(kind, "mem_get_info"):
        return None, False
    try:
        free, total = kind.mem_get_info(device)
    except RuntimeError:  # an integrated GPU of Intel
        return None, True
    about, meminfo = kind.get_device_properties(device), pathlib.Path(meminfo)
    shared = bool(torch.version.cuda and about.is_integrated)
    if shared and meminfo.exists():  # CUDA's free is MemFree, without the file cache
        words = meminfo.read_text().split()
        free = min(total, 1024 * int(words[words.index("MemAvailable:") + 1]))
    return free + gpu.memory_reserved(device) - gpu.memory_allocated(device), shared


@dataclass(frozen=True, repr=False)
class Rehearsed(Result):
    """Bytes that a step would hold on a CUDA GPU. peak: at its highest; phase: when
    that is; kinds: whose they are then; before: between two steps; grows: what a
    further step leaves behind; largest: the largest tensor, and who asked for it;
    lower: the peak after one change, the lowest first; untried: why others were not
    tried. recurrent: whether nn.LSTM or its like was made. guessed: lines that read
    an unknown value, which was 0 to them, and whether it may decide a branch or a size.
    """

    peak: int
    phase: str
    kinds: dict[str, int]
    before: int
    grows: int
    largest: tuple[int, str]
    lower: dict[str, int] | None = None
    untried: dict[str, str] = field(default_factory=dict)
    recurrent: bool = False
    guessed: dict[str, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = sorted(self.kinds.items(), key=lambda item: -item[1])
        parts = [f"{kind} {size_text(nbytes)}" for kind, nbytes in kinds]
        lines = [
            f"On a CUDA GPU the step would hold {size_text(self.peak)},"
            f" in {self.phase}:",
            ",\n".join(filter(None, (", ".join(parts[:3]), ", ".join(parts[3:])))),
            *self._notes(),
        ]
        for way, nbytes in (self.lower or {}).items():
            share = f"{nbytes / self.peak:.0%}"
            lines += [f"{size_text(nbytes):>10}, {share:>3}, with {way}"]
        for way, reason in self.untried.items():
            text = f"not tried: {way}, because: {reason}"
            lines += textwrap.wrap(text, 88, subsequent_indent="    ")
        return "\n".join(lines)

    def _notes(self) -> Iterator[str]:
        yield "Rehearsed, not measured; workspaces and context come on top."
        if self.recurrent:
            yield "What cuDNN keeps for recurrent layers is not counted."
        if self.grows:
            yield f"Each further step leaves {size_text(self.grows)} behind."
        deciding = [each for each, decides in self.guessed.items() if decides]
        for each in deciding[:3]:
            yield textwrap.shorten(f"Guessed 0: {each}", 88, placeholder=" …")
        if deciding:
            more = f"And {len(deciding) - 3} more. " if len(deciding) > 3 else ""
            yield f"{more}If not so in training, this figure may not be yours."
        if self.lower == {}:
            yield "None of the changes tried lowered it."


@batches_for("rehearse takes the step twice")
def rehearse(make: Callable[[], Callable[[], object]], lower: bool = True) -> Rehearsed:
    """What a training step would hold on a CUDA GPU: any model's, on any machine.

    make: function without arguments that builds model, optimizer and a batch, on any
        device, and returns a function without arguments that does one step. All of it
        runs on tensors without data. What Python's numbers, NumPy and loaders determine
        is known; other values that Python asks for are 0, and named in `guessed`
    lower: try changes that would lower the peak, too; it takes four times as long

    The second step is counted, by rules of CUDA, for a GPU that is there, else for an
    H100. Not counted: the context, compiled code, the workspaces of cuBLAS (16 MiB, on
    Hopper 64) and cuDNN, what cuDNN keeps for recurrent layers. All tensors count that
    are not a loader's or NumPy's: give a batch, not a data set.

    Half of the batch and fused are estimated from the peak, other changes rehearsed.
    LabError if make() makes no step or parameter, or a step cannot run without data.
    """
    ledger = second_step(make)
    highest, at = ledger.highest(ledger.start)
    figures = ledger.kinds(at), ledger.before, ledger.grows, ledger.largest
    found = Rehearsed(
        highest,
        ledger.phases[at],
        *figures,
        recurrent=ledger.recurrent,
        guessed=ledger.cuda.values.read,
    )
    if not lower:
        return found
    outcomes = dict(ways(make, ledger))
    reasons = {way: each for way, each in outcomes.items() if isinstance(each, str)}
    lowered = sorted(
        (nbytes, way)
        for way, nbytes in outcomes.items()
        if way not in reasons and nbytes < 0.99 * highest
    )
    lower = {way: nbytes for nbytes, way in lowered}
    return dataclasses.replace(found, lower=lower, untried=reasons)

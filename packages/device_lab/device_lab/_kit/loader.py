"""who_waits: who sets the pace of a training loop."""

import copy
import inspect
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import _clocks
from ._results import Result
from .devices import pick_device
from .errors import LabError
from .timing import median_interval, ratio_interval, time_text

NEAR, FAR = 0.9, 2 / 3  # what may be this share of a loop, and surely is this, fills it
SAMPLES, CALLS = 11, 5  # of each part; batches a sample, if there is time


@dataclass(frozen=True, repr=False)
class Part(Result):
    """Seconds a batch: median, and its 95% confidence interval, of n samples."""

    median: float
    low: float
    high: float
    n: int = SAMPLES

    def __str__(self) -> str:
        median, low, high = map(time_text, (self.median, self.low, self.high))
        return f"{median:>7} a batch (95%: {low} to {high})"

    def fills(self, whole: "Part") -> bool | None:
        """Whether it takes as long as `whole`; None where that cannot be told."""
        one, other = ((each.median, each.low, each.high) for each in (self, whole))
        _, low, high = ratio_interval(one, other)
        if high < NEAR:
            return False
        return True if low > FAR else None


@dataclass(frozen=True, repr=False)
class Pace(Result):
    """Who sets the pace of a loop, and the times behind the verdict.

    who: "loader"; "start" (of an epoch's workers); "copy"; "device"; "host" (launches,
    or waits for values); "step" (on the CPU); "both"; "between" (neither alone);
    "undecided". parts: "loop", "loader", "step"; on a device "launch", until `step`
    returns; where a batch has to be moved "step, no copy" and "copy". saved: share of
    the loop's time that a perfect loader would save. start: seconds to an epoch's first
    batch.
    """

    who: str
    verdict: str
    parts: dict[str, Part]
    saved: float
    start: float

    def __str__(self) -> str:
        lines = [f"{name:13} {part}" for name, part in self.parts.items()]
        lines[0] += f", {1 / self.parts['loop'].median:.3g} batches/s"
        lines += [f"A perfect loader would save {self.saved:.0%} of the loop's time."]
        return "\n".join([self.verdict, *lines])


def who_waits(
    loader: Iterable[Any],
    step: Callable[[Any], object],
    device: torch.device | str | None = None,
    seconds: float = 30.0,
) -> Pace:
    """Who sets the pace of `for batch in loader: step(batch)`?

    loader: what gives batches; it is begun again when it ends
    step: all that the loop does with a batch, its move to the device included. It is
        really done, some hundred times if it is quick: it trains
    device: where the step works; None for that of the batch, or of `pick_device`
    seconds: the most that it takes after a first batch and a first step, though each
        part is called once in any case

    Timed are the loop, in the middle of an epoch; the loader alone; the step alone,
    with one batch that is kept; the same with that batch on the device, if the step
    takes it; the copy. What takes 90% of the loop's time sets the pace. Not seen:
    batches unlike the kept one, copies that the loader makes.
    """
    if not callable(step) or not (
        isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    ):
        raise LabError("who_waits(loader, step): give what has batches, and a function")
    workers = getattr(loader, "num_workers", 0)
    # workers that start anew in each epoch are judged apart
    anew = bool(workers) and not getattr(loader, "persistent_workers", False)
    starts: list[float] = []
    source = _endless(loader, starts)
    batch = next(source)
    device = _device(batch, device)
    _first(step, _changed(batch))  # it may compile, and load libraries
    timer = _Timer(device, seconds, starts if anew else [])
    unit = max(1, workers)  # what workers load comes in bursts
    ahead = 2 + workers * (getattr(loader, "prefetch_factor", None) or 0)
    alone = timer.part(lambda: next(source), unit, ahead)
    load = 0.0 if workers else alone.median
    loop = timer.part(lambda: step(next(source)), unit, load=load)
    source.close()
    parts = {"loop": loop, "loader": alone, **_step_parts(batch, step, timer)}
    start = median(starts)
    judged = _judge_start(parts, start, loader) if anew else None
    pinned = all(x.is_pinned() for x in _tensors(batch, on_cpu=True))
    who, verdict = judged or _judge(parts, pinned, device, workers)
    if who == "undecided":
        short = min(part.n for part in parts.values()) < SAMPLES
        more = f"Give it more time: seconds={4 * seconds:g}."
        verdict += more if short else "Measure again, with nothing else running."
    saved = max(0.0, 1 - parts["step"].median / loop.median)
    if not workers:  # then a loader takes no more than its own time
        saved = min(saved, alone.median / loop.median)
    return Pace(who, verdict, parts, saved, start)


class _Timer:
    """Times the parts of a loop: each gets an equal share of the time that is left."""

    def __init__(self, device, seconds, starts):
        _clocks.wait_for(device)
        self.until = time.perf_counter() + seconds
        self.device, self.starts = device, starts
        self.left = 3 if device.type == "cpu" else 6

    def part(self, fn, unit=1, warm=2, load=0.0, launch=False):
        """Samples of `fn`, each of `unit` calls or more; of fewer, the spread shows the
        bursts. Quick ones are called several times before the device is waited for.
        """
        now = time.perf_counter()
        end = now + max(0.0, self.until - now) / self.left
        self.left -= 1
        times, took, calls, size = [], 0.0, 1, unit  # times a sample
        while len(times) < warm + SAMPLES * size:
            begin = time.perf_counter()
            if times and begin + took > end:
                break
            times.append(self._call(fn, calls, load, launch))
            now = time.perf_counter()
            took = now - begin
            many = unit * math.ceil(CALLS / unit)
            quick = max(times) * SAMPLES * many < end - now
            if len(times) == warm and quick and not launch:
                calls, size = many, 1
        times = times[warm if calls > 1 else min(warm, len(times) // 3) :]
        if len(times) < 2 * size:
            size = math.ceil(len(times) / 5)
        starts = range(0, len(times) - size + 1, size)
        means = [mean(times[start : start + size]) for start in starts]
        return Part(median(means), *median_interval(means), len(means))

    def _call(self, fn, calls, load, launch):
        """Seconds a call, without the starts of epochs; of a launch, until it returns.
        In the middle of a loop loading overlaps with the device's work, but c loads, of
        `load` seconds, and steps take c × the longer of both + the shorter.
        """
        before = sum(self.starts)
        returned, done = _clocks.seconds(fn, self.device, calls)
        starts = sum(self.starts) - before
        spent = returned if launch else done - min(load, done - returned) - starts
        return spent / calls


def _endless(loader, starts):
    """Batches, epoch after epoch; `starts` gets the seconds to each first one."""
    count = 0
    while True:
        begin, before = time.perf_counter(), count
        for batch in loader:
            if count == before:
                starts.append(time.perf_counter() - begin)
            count += 1
            yield batch
        if count == before:
            raise LabError(
                f"the loader ended after {count} batches: give one that can begin"
                " again, a DataLoader or a list, no generator"
            )


def _changed(batch, change=lambda x: x):
    """A batch with `change` of its tensors, and of objects that have .to; dicts and
    lists are new, because a step may take them apart.
    """

    def each(x):
        if isinstance(x, torch.Tensor):
            return change(x)
        return change(copy.copy(x)) if hasattr(x, "to") else x

    return tree_map(each, batch)


def _tensors(batch, on_cpu):
    tensors = [x for x in tree_leaves(batch) if isinstance(x, torch.Tensor)]
    return [x for x in tensors if (x.device.type == "cpu") is on_cpu]


def _device(batch, device):
    if device is None:
        there = _tensors(batch, on_cpu=False)
        device = there[0].device if there else pick_device()
    device = torch.device(device)
    try:
        _clocks.wait_for(device)
    except (AssertionError, RuntimeError) as error:
        raise LabError(f"no {device} here: leave device= out ({error})") from error
    return device


def _first(step, batch):
    """The first call. Says so if the step takes no batch."""
    try:
        inspect.signature(step, follow_wrapped=False).bind(batch)
    except ValueError:  # no signature is known
        pass
    except TypeError:
        why = "give the function that takes a batch: who_waits(loader, train_step)"
        raise LabError(why) from None
    step(batch)


def _step_parts(batch, step, timer):
    """Parts without the loader: the step, and the copy of a batch that is elsewhere."""
    device = timer.device
    parts = {"step": timer.part(lambda: step(_changed(batch)))}
    if device.type == "cpu":
        return parts
    there = batch
    if _tensors(batch, on_cpu=True):
        there = _changed(batch, lambda x: x.to(device))
        try:
            step(_changed(there))
        except (RuntimeError, TypeError):  # it wants the batch as the loader gives it
            there = batch
    parts["launch"] = timer.part(lambda: step(_changed(there)), launch=True)
    if there is batch:
        return parts
    parts["step, no copy"] = timer.part(lambda: step(_changed(there)))
    parts["copy"] = timer.part(lambda: _changed(batch, lambda x: x.to(device)))
    return parts


def _judge_start(parts, start, loader):
    """The same if the start of workers in each epoch is what costs most, else None."""
    try:
        each = start / len(loader)
    except TypeError:  # it does not know its length
        return None
    loop, step = parts["loop"].median, parts["step"].median
    if each <= max((1 - NEAR) * loop, loop - step):
        return None
    return "start", (
        f"In each epoch the workers take {time_text(start)} to start,"
        f" {time_text(each)} for each batch:\npersistent_workers=True keeps them."
    )


def _judge(parts, pinned, device, workers):
    """Who, and the verdict in words."""
    loop, loader, step = (parts[name] for name in ("loop", "loader", "step"))
    texts = {name: time_text(part.median) for name, part in parts.items()}
    needs = f"{texts['loader']} a batch; the step needs {texts['step']}"
    loads, steps = loader.fills(loop), step.fills(loop)
    if not workers and loader.high < (1 - NEAR) * loop.low:
        steps = True  # all the rest is the step's, if not with the kept batch
    elif loads is None or steps is None:
        return "undecided", f"Undecided, as times vary: the loader needs {needs}.\n"
    if loads and steps:
        return "both", f"Loader and step need about as long: {needs}."
    if loads:
        more = f"More workers (now {workers}), or less work an item."
        return "loader", f"The loader sets the pace: {needs}.\n{more}"
    if steps:
        return _judge_step(parts, pinned, device, texts)
    if not workers:
        enough = math.ceil(loader.median / step.median)
        how = f"Workers (num_workers={enough} or more) would load while the step works."
        return "between", f"Loader and step take turns: {needs}.\n{how}"
    lost = time_text(loop.median - max(loader.median, step.median))
    lost = f"{lost} of {texts['loop']} a batch are lost between loader and step"
    return "between", f"{lost},\nby the handing over, or cores that they share."


def _judge_step(parts, pinned, device, texts):
    step, pace = parts["step"], f"sets the pace: {texts['step']} a batch"
    if device.type == "cpu":
        return "step", f"The step {pace}."
    there = parts.get("step, no copy", step)
    works, launches = there.fills(step), parts["launch"].fills(there)
    if works is False:
        how = "Fewer bytes (uint8), or a copy from a side stream (a prefetcher)."
        if not pinned and device.type in ("cuda", "xpu"):
            how = (
                "pin_memory=True in the loader, .to(…, non_blocking=True) in the step."
            )
        cost = time_text(step.median - there.median)
        return "copy", f"The copy takes {cost} of {texts['loop']} a batch.\n{how}"
    if works is None or launches is None:
        return (
            "undecided",
            f"The step {pace}; what in it is undecided, as times vary.\n",
        )
    if launches:
        how = "It launches the step, or waits for values in it (.item())."
        return "host", f"The host {pace}.\n{how}"
    return "device", f"The device {pace}."

"""who_waits: what sets the pace of a training loop: its loader, its copies or its step.
Lesson 06 explains the model.
"""

import copy
import functools
import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ._clocks import wait_for
from .devices import launch_graph, pick_device
from .errors import LabError
from .timing import median_interval, time_text

NEAR = 0.9  # what takes this share of a loop's time sets its pace
FAR = 0.6  # below this share it does not, however unsteady the times
ROUNDS = 11  # samples of each part; one that was disturbed does not widen the interval


class Part(NamedTuple):
    """Seconds a batch: median, and its 95% confidence interval."""

    median: float
    low: float
    high: float

    def __str__(self):
        median, low, high = map(time_text, self)
        return f"{median:>7} a batch (95%: {low} to {high})"

    def fills(self, whole: "Part") -> bool:
        """Whether it may be 90% of `whole`; not if its median is far below."""
        near = self.median >= FAR * whole.median
        return near and self.high >= NEAR * whole.low


class Pace(NamedTuple):
    """Who sets the pace of a loop, and the times behind the verdict.

    who: "loader"; "start" (of an epoch's workers); "copy"; "device"; "host" (launches,
    or waits for values); "step" (on the CPU); "both" (loader and step need as long);
    "between" (neither alone). parts: "loop", "loader", "step" (with batches as they
    come); on a device "launch", until `step` returns; where a batch has to be moved
    "step, no copy", "copy", "copy, pinned". saved: share of the loop's time that a
    perfect loader would save. start: seconds to an epoch's first batch.
    """

    who: str
    verdict: str
    parts: dict[str, Part]
    saved: float
    start: float

    def __str__(self):
        lines = [f"{name:13} {part}" for name, part in self.parts.items()]
        lines[0] += f", {1 / self.parts['loop'].median:.3g} batches/s"
        lines += [f"A perfect loader would save {self.saved:.0%} of the loop's time."]
        if any(part.high > 1.5 * part.low for part in list(self.parts.values())[:3]):
            lines += [
                "The times are unsteady: measure again, with nothing else running."
            ]
        return "\n".join([self.verdict, *lines])


def who_waits(
    loader: Iterable,
    step: Callable[[object], object],
    device: torch.device | str | None = None,
    batches: int = 50,
) -> Pace:
    """Who sets the pace of `for batch in loader: step(batch)`?

    loader: what gives batches; it is begun again when it ends
    step: all that the loop does with a batch, its move to the device included. It is
        really done, up to 4 × `batches` times: it trains
    device: where the step works; None for that of the batch, or of `pick_device`
    batches: how many are timed, of each part

    Timed are the loop as it is, in the middle of an epoch; the loader alone; the step
    alone, with one batch that is kept; the same with that batch on the device, if the
    step takes it; the copy. What takes 90% of the loop's time sets the pace. Not seen:
    batches unlike the kept one, copies that the loader makes. LabError for a loader
    that ends and cannot begin again.
    """
    _check(loader, step)
    workers = getattr(loader, "num_workers", 0)
    # workers that start anew in each epoch are judged apart
    anew = workers and not getattr(loader, "persistent_workers", False)
    starts = []
    source = _endless(loader, starts)
    batch = next(source)
    device = _device(batch, device)
    unit = max(1, workers)  # what workers load comes in bursts
    calls = unit * max(1, round(batches / ROUNDS / unit))
    timed = functools.partial(_timed, device, calls, starts if anew else [])
    ahead = 2 + workers * (getattr(loader, "prefetch_factor", None) or 0)
    alone = timed(lambda: next(source), ahead)
    load = 0.0 if workers else alone.median
    loop = timed(lambda: step(next(source)), ahead, load)
    source.close()
    parts = {"loop": loop, "loader": alone, **_step_parts(batch, step, device, timed)}
    epoch = len(loader) if anew and hasattr(loader.dataset, "__len__") else math.inf
    start = sorted(starts)[len(starts) // 2]
    judged = _judge_start(parts, start, epoch)
    who, verdict = judged or _judge(parts, _pinned(batch), device, workers)
    saved = max(0.0, 1 - parts["step"].median / loop.median)
    if not workers:  # then a loader takes no more than its own time
        saved = min(saved, alone.median / loop.median)
    return Pace(who, verdict, parts, saved, start)


def _check(loader, step):
    batched = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    if not batched or not callable(step):
        raise LabError(
            "who_waits(loader, step) asks what gives batches, and a function"
        )


def _timed(device, calls, starts, fn, warm=2, load=0.0, launch=False):
    """Samples of `fn`; of a loop that loads for `load` seconds, as in its middle; of a
    launch, single calls until they return.

    Of a piece of the loop, the first load and the last step overlap with nothing: c
    loads and steps take c × the longer of both + the shorter.
    """
    _seconds(fn, device, warm)
    samples = []
    for _ in range(ROUNDS):
        before = sum(starts)
        returned, done = _seconds(fn, device, 1 if launch else calls)
        spent = done - min(load, done - returned) - sum(starts) + before
        samples.append(returned if launch else spent / calls)
    return Part(sorted(samples)[ROUNDS // 2], *median_interval(samples))


def _seconds(fn, device, calls):
    """Seconds until so many calls have returned, and until the device is done."""
    wait_for(device)
    start = time.perf_counter()
    for _ in range(calls):
        result = fn()  # XLA computes what somebody holds
        if device.type == "xla":
            launch_graph()
        del result
    returned = time.perf_counter() - start
    wait_for(device)
    return returned, time.perf_counter() - start


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
                f"the loader ended after {count} batches: give one that can begin again"
                " (a DataLoader, a list), or ask for fewer batches="
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


def _on_cpu(batch):
    tensors = [x for x in tree_leaves(batch) if isinstance(x, torch.Tensor)]
    return [x for x in tensors if x.device.type == "cpu"]


def _pinned(batch):
    return all(x.is_pinned() for x in _on_cpu(batch))


def _device(batch, device):
    if device is None:
        there = [x.device for x in tree_leaves(batch) if isinstance(x, torch.Tensor)]
        device = next((x for x in there if x.type != "cpu"), pick_device())
    device = torch.device(device)
    try:
        wait_for(device)
    except (AssertionError, RuntimeError) as error:
        raise LabError(f"who_waits cannot wait for {device} here: {error}") from error
    return device


def _step_parts(batch, step, device, timed):
    """Parts without the loader: the step, and the copy of a batch that is elsewhere."""
    parts = {"step": timed(lambda: step(_changed(batch)))}
    if device.type == "cpu":
        return parts
    there = batch
    if _on_cpu(batch):
        there = _changed(batch, lambda x: x.to(device))
        try:
            step(_changed(there))
        except (RuntimeError, TypeError):  # it wants the batch as the loader gives it
            there = batch
    parts["launch"] = timed(lambda: step(_changed(there)), launch=True)
    if there is batch:
        return parts
    parts["step, no copy"] = timed(lambda: step(_changed(there)))
    parts["copy"] = timed(lambda: _changed(batch, lambda x: x.to(device)))
    if device.type in ("cuda", "xpu") and not _pinned(batch):
        locked = _changed(batch, lambda x: x.pin_memory())
        pinned = timed(lambda: _changed(locked, lambda x: x.to(device)))
        parts["copy, pinned"] = pinned
    return parts


def _judge_start(parts, start, epoch):
    """The same if the start of workers in each epoch is what costs most, else None."""
    loop, step = parts["loop"].median, parts["step"].median
    if start / epoch <= max((1 - NEAR) * loop, loop - step):
        return None
    return "start", (
        f"In each epoch the workers take {time_text(start)} to start,"
        f" {time_text(start / epoch)} for each batch:\n"
        "persistent_workers=True keeps them."
    )


def _judge(parts, pinned, device, workers):
    """Who, and the verdict in words."""
    loop, loader, step = (parts[name] for name in ("loop", "loader", "step"))
    there = parts.get("step, no copy", step)
    texts = {name: time_text(part.median) for name, part in parts.items()}
    needs = f"{texts['loader']} a batch; the step needs {texts['step']}"
    if loader.fills(loop) and step.fills(loop):
        return "both", f"Loader and step need about as long: {needs}."
    if loader.fills(loop):
        more = f"More workers (now {workers}), or less work an item."
        return "loader", f"The loader sets the pace: {needs}.\n{more}"
    if not step.fills(loop):
        lost = time_text(loop.median - max(loader.median, step.median))
        if not workers:
            return "between", (
                f"Loader and step take turns: {needs}.\n"
                "Workers (num_workers=) would load while the step works."
            )
        return "between", (
            f"Neither loader nor step alone explains the loop: {lost} of"
            f" {texts['loop']} a batch are lost\nbetween them (no overlap), by the"
            " handing over, or cores that they share."
        )
    if there.high < NEAR * step.low:
        how = "Fewer bytes (uint8), or a copy from a side stream (a prefetcher)."
        if not pinned and device.type in ("cuda", "xpu"):
            how = (
                "pin_memory=True in the loader, .to(…, non_blocking=True) in the step."
            )
        cost = time_text(step.median - there.median)
        return "copy", f"The copy takes {cost} of {texts['loop']} a batch.\n{how}"
    pace = f"sets the pace: {texts['step']} a batch"
    if device.type == "cpu":
        return "step", f"The step {pace}."
    if parts["launch"].fills(there):
        how = "It launches the step, or waits for values in it (.item())."
        return "host", f"The host {pace}.\n{how}"
    return "device", f"The device {pace}."

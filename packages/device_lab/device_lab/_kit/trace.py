"""busy: how much of the time a GPU worked, from what torch.profiler has recorded."""

import collections
import dataclasses
import gzip
import itertools
import json
import math
import os
import pathlib
import tempfile
from typing import Any

import torch

from ._results import Result
from .errors import LabError
from .timing import time_text

Event = dict[str, Any]
# categories of Kineto (libkineto's ActivityType): work of a device, work of the host
DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
HOST_WORK = set(
    "cpu_op user_annotation python_function cuda_runtime cuda_driver xpu_runtime"
    " xpu_driver overhead".split()
)
NOTHING = "(no event: Python, sleep)"


def trace_events(
    trace: torch.profiler.profile | str | os.PathLike[str] | list[Event],
) -> list[Event]:
    """What a profiler has recorded, as `export_chrome_trace` writes it, in order of
    time. Of two that begin together the longer one, which calls the other, is first.
    """
    if isinstance(trace, (str, os.PathLike)):
        trace = _read(trace)
    elif not isinstance(trace, list):
        trace = _exported(trace)
    return sorted(trace, key=lambda e: (e.get("ts", 0), -e.get("dur", 0)))


def _read(path: str | os.PathLike[str]) -> list[Event]:
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        try:
            trace = json.load(file)
        except ValueError:
            trace = None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if isinstance(events, list) and all(isinstance(e, dict) for e in events):
        return events
    raise LabError(f"{path} holds no Chrome trace")


def _exported(prof: torch.profiler.profile) -> list[Event]:
    if not hasattr(prof, "export_chrome_trace"):
        kind = type(prof).__name__
        raise LabError(f"busy asks a profiler, a path or a list, this is {kind}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.json")
        try:
            prof.export_chrome_trace(path.as_posix())
        except (AssertionError, AttributeError):  # it has not started, or not ended
            why = "nothing is recorded yet: ask after the profiler's block"
            raise LabError(why) from None
        except RuntimeError:
            why = "this recording has been exported before: give the path of its file"
            raise LabError(why) from None
        return _read(path)


@dataclasses.dataclass(frozen=True, repr=False)
class Busy(Result):
    """How much of the time a GPU worked, from its first piece of work to its last.

    worked, window: seconds with work, and in all. pieces: kernels, copies, memsets.
    gaps: (begin, length) in seconds since the first piece, the longest first. longest,
    idle: what the host was in during the longest gap, and during all: name → seconds,
    without what that called; several threads may add up to more than the gap.
    """

    share: float
    worked: float
    window: float
    pieces: int
    gaps: list[tuple[float, float]]
    longest: dict[str, float]
    idle: dict[str, float]

    def __str__(self) -> str:
        text = f"The GPU worked {self.share:.1%} of {time_text(self.window)}"
        lines = [f"{text}, in {self.pieces} pieces with {len(self.gaps)} gaps."]
        if self.gaps:
            begin, length = map(time_text, self.gaps[0])
            lines += [f"The longest gap, {length} (at {begin}); the host was in:"]
            lines += _rows(self.longest)
            idle = time_text(self.window - self.worked)
            lines += [f"All gaps, {idle}; the host was in:", *_rows(self.idle)]
        return "\n".join(lines)


def _rows(seconds_of: dict[str, float]) -> list[str]:
    most = list(seconds_of.items())[:3]
    return [f"{time_text(seconds):>9}  {name[:74]}" for name, seconds in most]


def busy(trace: torch.profiler.profile | str | os.PathLike[str] | list[Event]) -> Busy:
    """How much of the time a GPU worked, its gaps, and what the host did in them.

    trace: a profiler after its block, the path of a Chrome trace (.json, .json.gz), or
        its events

    Kernels, copies and memsets of all streams are merged. Of several GPUs the one with
    most work is described. Not seen: the time before its first piece and after its
    last, how much of the GPU a kernel fills, and threads and processes that the
    profiler did not watch. LabError if no GPU's work is recorded.
    """
    work, threads = collections.defaultdict(list), collections.defaultdict(list)
    for e in trace_events(trace):
        start, kind = e.get("ts", 0), e.get("cat")
        end = start + e.get("dur", 0)
        if kind in DEVICE_WORK:
            work[e["pid"]].append((start, end))
        # ProfilerStep spans a whole step, and says nothing about the host
        elif kind in HOST_WORK and not e["name"].startswith("ProfilerStep"):
            threads[e["pid"], e["tid"]].append((start, end, e["name"]))
    if not work:
        raise LabError(
            "no work of a GPU in this trace: record where one works, with its activity"
            " (ProfilerActivity.CUDA or XPU) and no other profiler attached; what the"
            " CPU computes stands in prof.key_averages()"
        )
    merged = max(map(_union, work.values()), key=_length)
    zero, window = merged[0][0], merged[-1][1] - merged[0][0]
    gaps = [(end, start) for (_, end), (start, _) in itertools.pairwise(merged)]
    longest = sorted(gaps, key=lambda gap: gap[0] - gap[1])
    return Busy(
        _length(merged) / window if window else 1.0,
        _length(merged) / 1e6,
        window / 1e6,
        max(map(len, work.values())),
        [((start - zero) / 1e6, (end - start) / 1e6) for start, end in longest],
        _within(threads, longest[:1]),
        _within(threads, gaps),
    )


def _union(spans):
    """[start, end] in order; those that overlap are one."""
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def _length(spans):
    return sum(end - start for start, end in spans)


def _within(threads: Any, gaps: list[Any]) -> dict[str, float]:
    """What the host was in during the gaps, which are in order: name → seconds."""
    seconds, seen = collections.Counter(), []
    for events in threads.values():
        first = 0
        for start, end, name in _innermost(events):
            while first < len(gaps) and gaps[first][1] <= start:
                first += 1
            i = first
            while i < len(gaps) and gaps[i][0] < end:
                span = max(start, gaps[i][0]), min(end, gaps[i][1])
                seconds[name] += (span[1] - span[0]) / 1e6
                seen.append(span)
                i += 1
    seconds[NOTHING] = (_length(gaps) - _length(_union(seen))) / 1e6
    return dict(seconds.most_common())


def _innermost(events):
    """(start, end, name) of where a thread was, without what that called. events: the
    same in order of time, a caller before what it calls.
    """
    stack, now = [], -math.inf
    for start, end, name in [*events, (math.inf, math.inf, "")]:
        while stack and stack[-1][0] <= start:
            until, caller = stack.pop()
            if until > now:
                yield now, until, caller
                now = until
        if stack and start > now:
            yield now, start, stack[-1][1]
        now = max(now, start)
        stack.append((end, name))

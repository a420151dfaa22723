"""Traces: what torch.profiler has recorded, event by event."""

import json
import os
import pathlib
import tempfile

import torch

# Kineto, the library of the profiler, keeps its remarks on what it finds here to itself
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def trace_events(prof: torch.profiler.profile) -> list[dict]:
    """The events that a profiler has recorded, as `export_chrome_trace` writes them, in
    order of time.

    prof: torch.profiler.profile, after its block. Each event is a dict with `name`,
    `ph` (the kind of entry: "X" for one that has a length, "i" for a moment), `ts` (its
    beginning in µs) and `tid` (which thread, or which stream of a GPU); most have `cat`
    (the kind of work), `dur` (the length in µs) and `args`. Of two that begin at the
    same time, the longer one, which calls the other, comes first. RuntimeError where
    the recording has been exported before.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.json")
        prof.export_chrome_trace(path.as_posix())
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0)))

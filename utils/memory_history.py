"""What PyTorch's CUDA allocator did, call by call: the recording behind
pytorch.org/memory_viz.
"""

import contextlib
import sysconfig
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def memory_history() -> Iterator[list[dict]]:
    """Record what the CUDA allocator does in the block; yields a list that is filled
    when the block ends, also by an error, with dicts of

    action: "alloc", "free_completed", "segment_alloc" (asked of the driver),
        "segment_free" (given back), "oom" and others of torch.cuda.memory
    bytes: as requested, before rounding (for segments: of the segment)
    address: 0 for "oom"
    code: the innermost line of Python that belongs to no library, as "function:line"
        (of a cell "<module>:line"), or "" (the backward pass has none)

    Of more than 100,000 the oldest are dropped. Needs a CUDA GPU, and two private
    functions of torch.cuda.memory.
    """
    device = torch.cuda.current_device()
    record = torch.cuda.memory._record_memory_history
    snapshot = torch.cuda.memory._snapshot
    record("all", stacks="python", max_entries=100_000, clear_history=True)
    events = []
    try:
        yield events
    finally:
        traces = snapshot()["device_traces"]
        record(None)
        events += [_entry(trace) for trace in traces[device]]


def _entry(trace):
    stdlib = sysconfig.get_path("stdlib")
    libraries = "site-packages", "dist-packages", "<frozen", stdlib
    own = (
        f"{frame['name']}:{frame['line']}"
        for frame in trace.get("frames", [])
        if not any(part in frame["filename"] for part in libraries)
    )
    # not every action has a size and an address
    return {
        "action": trace["action"],
        "bytes": trace.get("size", 0),
        "address": trace.get("addr", 0),
        "code": next(own, ""),
    }

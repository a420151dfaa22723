"""What PyTorch's CUDA allocator did, call by call: the recording behind
pytorch.org/memory_viz.
"""

import contextlib
import sysconfig
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def memory_history(max_entries: int = 100_000) -> Iterator[list[dict]]:
    """Record what the CUDA allocator does in the block; yields a list that is filled
    when the block ends.

    Each entry is {"action", "bytes", "address", "code"}. action: "alloc",
    "free_completed", "segment_alloc" (asked of the driver), "segment_free" (given
    back), "oom" and others of torch.cuda.memory. bytes: as requested, before rounding
    (for segments: of the segment). address: 0 for "oom". code: the innermost line of
    Python that belongs to no library, as "function:line", or "" (the backward pass has
    none); the function is "<module>" for a cell. max_entries: the oldest are dropped
    beyond it. The block's error, if any, goes on after the list is filled.

    Uses torch.cuda.memory._record_memory_history and ._snapshot, which are private:
    only here. Where a PyTorch has them no longer, the AttributeError names them (in a
    notebook that ends the cell, not the lesson). Needs a CUDA GPU.
    """
    device = torch.cuda.current_device()
    record, snapshot = (
        torch.cuda.memory._record_memory_history,
        torch.cuda.memory._snapshot,
    )
    record("all", stacks="python", max_entries=max_entries, clear_history=True)
    events = []
    try:
        yield events
    finally:
        traces = snapshot()["device_traces"]
        record(None)
        events += [_entry(trace) for trace in traces[device]]


def _entry(trace):
    libraries = (
        "site-packages",
        "dist-packages",
        sysconfig.get_path("stdlib"),
        "<frozen",
    )
    own = [
        f
        for f in trace.get("frames", [])
        if not any(part in f["filename"] for part in libraries)
    ]
    code = f"{own[0]['name']}:{own[0]['line']}" if own else ""
    # an action that is no allocation may have neither
    nbytes, address = trace.get("size", 0), trace.get("addr", 0)
    return {
        "action": trace["action"],
        "bytes": nbytes,
        "address": address,
        "code": code,
    }

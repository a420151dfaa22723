"""What does a step of DDP on several devices cost? Its buckets and its timeline. Units:
bytes, seconds; collectives.py says what a collective takes.

The model errs in both directions, so vary what a prediction assumes and tell the range.
It says too little time where a real job waits for slower devices, hosts and data,
meets congestion, or has links that reach four fifths of their rate; too much where
switches sum (NVLS), or each call gets its best algorithm: a ring over many ranks is
slower than a tree.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from device_lab import LabError
from simulate.timeline import Op, Span, schedule


def buckets(
    sizes: Sequence[float], cap: float | None = None, first: float | None = None
) -> list[list[int]]:
    """DDP's buckets from the second step on: lists of indices of parameters, in the
    order of their reduction.

    sizes: bytes of each parameter's gradient, in order of registration, all of one
    dtype. The last one is taken to be ready first; where gradients get ready in another
    order, give the sizes in the reverse of it. cap, first: bytes, of all buckets and of
    the first; a bucket overshoots, for it takes gradients until it has reached its cap.
    By default 25 MiB and 1 MiB; a cap that is passed holds for the first bucket, too,
    like DDP's `bucket_cap_mb`. In the first step one bucket holds all; with
    find_unused_parameters=True buckets are made once, from the first registered on, and
    the small one comes last.

    Source: compute_bucket_assignment_by_size in
    torch/csrc/distributed/c10d/reducer.cpp, called here as rebuildBuckets calls it, on
    tensors without data. Its Python name is private: only used here.
    """
    if first is None:
        first = 2**20 if cap is None else cap
    cap = 25 * 2**20 if cap is None else cap
    if cap <= 0 or first <= 0 or min(sizes, default=0) < 0:
        raise LabError("buckets need sizes of 0 or more bytes and caps above 0")
    if not sizes:
        return []
    ready = range(len(sizes))[::-1]
    gradients = [
        torch.empty(round(sizes[i]), dtype=torch.uint8, device="meta") for i in ready
    ]
    return dist._compute_bucket_assignment_by_size(
        gradients, [round(first), round(cap)], [], list(ready)
    )[0]


def per_bucket(values: Sequence[float], assignment: list[list[int]]) -> list[float]:
    """The sum of `values`, one a parameter (bytes, seconds), over each bucket of
    `assignment`.
    """
    return [sum(values[i] for i in bucket) for bucket in assignment]


class Step(NamedTuple):
    """One training step. seconds: all of it. communication: sum of all all-reduces.
    exposed: what of it nothing hides. spans: timeline.Span objects, engines "compute"
    and "network".
    """

    seconds: float
    communication: float
    exposed: float
    spans: list[Span]


def ddp_step(
    sizes: Sequence[float],
    forward: float,
    backward: float,
    cost: Callable[[float], float],
    shares: Sequence[float] | None = None,
) -> Step:
    """One step of DDP, whose bucket i is reduced when it is ready and bucket i-1 is
    done, beside the backward pass. The optimizer's time is left out.

    sizes: bytes of each bucket in the order of reduction
    forward, backward: seconds
    cost: function of bytes that gives the seconds of an all-reduce
    shares: of the buckets in the backward pass, in any unit (default: by bytes)

    LabError for what is negative, and for no bucket. Source: Li et al., "PyTorch
    Distributed: Experiences on Accelerating Data Parallel Training" (VLDB 2020).
    """
    shares = sizes if shares is None else shares
    _check_step(sizes, shares, forward, backward)
    ops = [Op("forward", "compute", "compute", forward)]
    for i, share in enumerate(shares):
        seconds = backward * share / sum(shares)
        ops.append(Op(f"backward {i}", "compute", "compute", seconds))
    for i, size in enumerate(sizes):
        after = (f"backward {i}",)
        ops.append(Op(f"all-reduce {i}", "network", "network", cost(size), after))
    spans = schedule(ops)
    computed, reduced = spans[len(sizes)].end, spans[-1].end
    network = [span.op.seconds for span in spans if span.op.engine == "network"]
    return Step(reduced, sum(network), reduced - computed, spans)


def _check_step(sizes, shares, forward, backward):
    negative = min(*shares, *sizes, forward, backward) < 0
    if len(shares) != len(sizes) or negative or not sum(shares):
        raise LabError(
            "a step needs at least one bucket, a share for each, and no negative bytes"
            " or seconds"
        )
    if not forward + backward > 0:
        raise LabError("a step needs a time above 0 for its forward and backward pass")

"""What do several devices cost? DDP's buckets, and how the time of a step grows with
the devices. Units: bytes, seconds; collectives.py says what a collective takes.

The model errs in both directions, so vary what a prediction assumes and tell the range.
It says too little time where a real job waits for slower devices, hosts and data,
meets congestion, or has links that reach four fifths of their rate (in the sizes of
DDP's buckets a real all-reduce over nodes took twice as long and more); too much where
switches sum (NVLS), or each call gets its best algorithm. Lesson 12 has the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from device_lab import LabError
from simulate.collectives import Link, all_reduce, hierarchical
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

    @property
    def efficiency(self) -> float:
        """Speed over that of as many devices, with as many samples each, that never
        communicate.
        """
        return 1 - self.exposed / self.seconds


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


def scaling(
    devices: Iterable[int],
    sizes: Sequence[float],
    forward: float,
    backward: float,
    batch: float,
    *,
    per_node: int,
    inner: Link,
    outer: Link,
    algorithm: str = "ring",
    overlap: bool = True,
    flat: bool = False,
    strong: bool = False,
    cap: float | None = None,
    first: float | None = None,
    shares: Sequence[float] | None = None,
) -> list[Step]:
    """How a step of data-parallel training changes with the number of devices: a Step
    for each of `devices`.

    devices: the numbers, each at most per_node or a multiple of it
    sizes: bytes of each parameter's gradient in order of registration
    forward, backward: seconds for one sample
    batch: samples, of each device (weak scaling) or, with strong=True, of all together
    per_node, inner, outer, algorithm, overlap: see `hierarchical`
    flat: the algorithm goes across all ranks, at the pace of the slower link
    cap, first: see `buckets`
    shares: backward time of each parameter in any unit (default: by bytes)

    LabError for devices that do not fill their nodes or have less than one sample.
    """
    assignment = buckets(sizes, cap, first)
    total = per_bucket(sizes, assignment)
    work = per_bucket(sizes if shares is None else shares, assignment)
    levels = inner, outer, algorithm, overlap, flat
    steps = []
    for n in devices:
        local = _samples(n, per_node, batch, strong)
        seconds = local * forward, local * backward
        cost = partial(_across, devices=n, per_node=per_node, levels=levels)
        steps.append(ddp_step(total, *seconds, cost, work))
    return steps


def _across(size, devices, per_node, levels):
    """Seconds of an all-reduce on so many devices."""
    inner, outer, algorithm, overlap, flat = levels
    if devices <= per_node:
        return all_reduce(size, devices, inner)
    if flat:
        latency = max(inner.latency, outer.latency)
        slower = Link(latency, min(inner.bandwidth, outer.bandwidth))
        return all_reduce(size, devices, slower, algorithm)
    nodes = devices // per_node
    return hierarchical(size, per_node, nodes, inner, outer, algorithm, overlap)


def _samples(devices, per_node, batch, strong):
    """How many samples each device has."""
    uneven = devices > per_node and devices % per_node
    if devices < 1 or per_node < 1 or uneven:
        raise LabError(f"{devices} devices do not fill nodes of {per_node}")
    if not strong:
        return batch
    if batch < devices:
        raise LabError(
            f"a global batch of {batch} is less than one sample for each of {devices}"
            " devices"
        )
    return batch / devices

"""What do several devices cost? Collectives, DDP's buckets, and how the time of a step
grows with the devices.

The rule is alpha-beta: a collective takes a fixed time for each of its steps (alpha,
the latency) and a time for each byte (beta, one over the bandwidth). Units: bytes,
seconds, bytes/s. 1 GB/s is 10^9 bytes/s.

The model errs in both directions, so vary what a prediction assumes and tell the range.
It says too little time where a real job waits for slower devices, hosts and data,
meets congestion, or has links that reach four fifths of their rate (in the sizes of
DDP's buckets a real all-reduce over nodes took twice as long and more); too much where
switches sum (NVLS), or each call gets its best algorithm. Lesson 12 has the rest.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist

from device_lab.errors import LabError
from simulate.timeline import Op, Span, schedule

ALGORITHMS = ("ring", "tree", "halving-doubling")


class Link(NamedTuple):
    """What connects ranks. latency: seconds a step. bandwidth: bytes/s in one
    direction.
    """

    latency: float
    bandwidth: float


def all_reduce(size: float, ranks: int, link: Link, algorithm: str = "ring") -> float:
    """Seconds to sum `size` bytes of each rank and give all ranks the sum; 0 for a
    single rank.

    size: bytes
    ranks: how many take part
    link: of one rank to the next
    algorithm: "ring", 2(p-1) steps and 2(p-1)/p of the bytes over each link (Patarasuk
        and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
        Workstations", 2009); "tree", the double binary tree, 2 log2(p) steps and twice
        the bytes (Sanders, Speck, Träff, "Two-Tree Algorithms for Full Bandwidth
        Broadcast, Reduction and Scan", 2009); "halving-doubling", 2 log2(p) steps and
        2(p-1)/p of the bytes (Thakur, Rabenseifner, Gropp, "Optimization of Collective
        Communication Operations in MPICH", 2005)

    log2 is rounded up. Left out: that a tree of two ranks needs half of the bytes, and
    what a number of ranks that is no power of two costs halving-doubling besides.
    """
    if size < 0 or ranks < 1 or ranks != int(ranks):
        raise LabError(
            "a collective needs bytes and a whole number of ranks, at least one: not"
            f" {size}, {ranks}"
        )
    if link.latency < 0 or link.bandwidth <= 0:
        raise LabError(
            f"a link has a latency of 0 or more and a bandwidth above 0: not {link}"
        )
    if algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise LabError(f"no all-reduce algorithm {algorithm!r}: choose one of {known}")
    if ranks == 1:
        return 0.0
    steps = 2 * (ranks - 1) if algorithm == "ring" else 2 * math.ceil(math.log2(ranks))
    share = 2 if algorithm == "tree" else 2 * (ranks - 1) / ranks
    return steps * link.latency + share * size / link.bandwidth


def all_gather(size: float, ranks: int, link: Link) -> float:
    """Seconds until each rank has all `size` bytes, of which each held 1/p before: a
    ring of p-1 steps.
    """
    # a ring's all-reduce is a reduce-scatter and an all-gather, in this order
    return all_reduce(size, ranks, link) / 2


def reduce_scatter(size: float, ranks: int, link: Link) -> float:
    """Seconds until each rank has 1/p of the sum of `size` bytes: a ring, p-1 steps."""
    return all_reduce(size, ranks, link) / 2


def hierarchical(
    size: float,
    per_node: int,
    nodes: int,
    inner: Link,
    outer: Link,
    algorithm: str = "ring",
    overlap: bool = True,
) -> float:
    """Seconds of an all-reduce in two levels: reduce-scatter in each node, all-reduce
    across nodes, all-gather.

    size: bytes of each rank
    per_node: ranks in a node; each reduces 1/per_node of the bytes across nodes
    nodes: how many
    inner: link of a rank in its node
    outer: link of a node, all its adapters together, which its ranks share
    algorithm: across nodes, as in `all_reduce`; within a node it is a ring
    overlap: the bytes go through in small pieces, one in the node while another is on
        the network: the slower sets the pace, latencies add up. With overlap=False a
        phase begins when all of the one before is over.

    All-reduces of 1 GiB and more that were measured on four nodes of eight GPUs lie
    between the two; of 64 MiB and less they took longer than either.
    """

    def phases(size):
        inside = reduce_scatter(size, per_node, inner)
        inside += all_gather(size, per_node, inner)
        share = Link(outer.latency, outer.bandwidth / per_node)
        return inside, all_reduce(size / per_node, nodes, share, algorithm)

    if not overlap:
        return sum(phases(size))
    inside, across = phases(0)  # latencies alone
    all_inside, all_across = phases(size)
    return inside + across + max(all_inside - inside, all_across - across)


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


class Published(NamedTuple):
    """A measured scaling point. efficiency: throughput a device over that on `base`
    devices. role: "fitted" (numbers of the model were, to this row), "held out"
    (predicted with them, in the tests), or why the model says nothing.
    """

    run: str
    devices: int
    base: int
    efficiency: float
    source: str
    role: str


# Fitted are, for Horovod's cluster of 2017, the latency of a step and the share of the
# line rate that its links reach, to VGG-16; for Goyal's the bandwidth of a node's link,
# which comes out at a quarter of the line rate: it stands for losses that the model
# lacks.
_GOYAL = "Goyal et al., Accurate, Large Minibatch SGD (2017), "
_HOROVOD, _README = "Horovod, docs/benchmarks.rst", "Horovod, README of 2017"
_DLE = "NVIDIA, DeepLearningExamples, ResNet-50 v1.5"
_HOST = "not predicted: data loading and host"
# fmt: off
PUBLISHED = (
    Published("ResNet-50, P100, 50 GbE", 256, 8, 0.90, _GOYAL + "abstract", "fitted"),
    Published("ResNet-50, P100, 50 GbE", 352, 8, 1 / 1.12,
        _GOYAL + "section 5.5: 12 % more time", "held out"),
    Published("VGG-16, Pascal, 25 GbE", 128, 1, 0.79, _README, "fitted"),
    Published("Inception V3, Pascal, 25 GbE", 128, 1, 0.90, _README, "held out"),
    Published("ResNet-101, Pascal, 25 GbE", 128, 1, 0.90, _README, "held out"),
    Published("VGG-16, Pascal, 25 GbE", 512, 1, 0.68, _HOROVOD, "fitted"),
    Published("Inception V3, Pascal, 25 GbE", 512, 1, 0.90, _HOROVOD, "held out"),
    Published("ResNet-101, Pascal, 25 GbE", 512, 1, 0.90, _HOROVOD, "held out"),
    Published("ResNet-50, DGX A100, TF32", 8, 1, 0.966, _DLE, _HOST),
    Published("ResNet-50, DGX A100, AMP", 8, 1, 0.841, _DLE, _HOST),
    Published("ResNet-50, DGX-1, FP32", 8, 1, 0.972, _DLE, _HOST),
    Published("ResNet-50, DGX-1, AMP", 8, 1, 0.867, _DLE, _HOST),
    Published("Llama-2-7B, H100", 2048, 128, 1 - 0.3722,
        "Fernandez et al. (2024)", "not predicted: FSDP"),
    Published("GPT-3, H100", 4608, 96, 42 / 47,
        "Megatron-LM, README", "not predicted: tensor and pipeline parallel"),
    Published("Llama-3-405B, H100", 16384, 8192, 400 / 430,
        "Llama Team (2024), table 4", "not predicted: pipeline"),
)
# fmt: on

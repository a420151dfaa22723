"""What does a collective cost, by the ranks, the bytes and the link?

The rule is alpha-beta: a collective takes a fixed time for each of its steps (alpha,
the latency) and a time for each byte (beta, one over the bandwidth). Units: bytes,
seconds, bytes/s. 1 GB/s is 10^9 bytes/s. Where it errs, data_parallel.py says.
"""

import math
from typing import NamedTuple

from device_lab import LabError

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
        names = ", ".join(ALGORITHMS)
        raise LabError(f"no all-reduce algorithm {algorithm!r}: choose one of {names}")
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

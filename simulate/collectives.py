"""What does a collective cost, by the ranks, the bytes and the link?

The rule is alpha-beta: a collective takes a fixed time for each of its steps (alpha,
the latency) and a time for each byte (beta, one over the bandwidth). Units: bytes,
seconds, bytes/s. 1 GB/s is 10^9 bytes/s. Where it errs, data_parallel.py says.
"""

from typing import NamedTuple

from device_lab import LabError


class Link(NamedTuple):
    """What connects ranks. latency: seconds a step. bandwidth: bytes/s in one
    direction.
    """

    latency: float
    bandwidth: float


def all_reduce(size: float, ranks: int, link: Link) -> float:
    """Seconds to sum `size` bytes of each rank and give all ranks the sum, in a ring; 0
    for a single rank.

    size: bytes
    ranks: how many take part
    link: of one rank to the next

    2(p-1) steps, and 2(p-1)/p of the bytes over each link (Patarasuk and Yuan,
    "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009).
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
    steps = 2 * (ranks - 1)
    return steps * link.latency + steps / ranks * size / link.bandwidth


def all_gather(size: float, ranks: int, link: Link) -> float:
    """Seconds until each rank has all `size` bytes, of which each held 1/p before: a
    ring of p-1 steps.
    """
    # a ring's all-reduce is a reduce-scatter and an all-gather, in this order
    return all_reduce(size, ranks, link) / 2


def reduce_scatter(size: float, ranks: int, link: Link) -> float:
    """Seconds until each rank has 1/p of the sum of `size` bytes: a ring, p-1 steps."""
    return all_reduce(size, ranks, link) / 2

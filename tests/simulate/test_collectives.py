"""Collectives: published cases, and what must hold for all inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.collectives import (
    ALGORITHMS,
    Link,
    all_gather,
    all_reduce,
    hierarchical,
    reduce_scatter,
)

MB, MIB, GIB = 1e6, 2**20, 2**30

# --------------------------------------------------------------------------------------
# Collectives: golden rows


@pytest.mark.parametrize(
    "algorithm, ranks, ms",
    [
        ("ring", 2, "0.510"),
        ("ring", 64, "1.614"),
        ("ring", 1024, "11.229"),
        ("tree", 2, "1.01"),
        ("tree", 1024, "1.10"),
        ("halving-doubling", 8, "0.905"),  # 6 steps of 5 us and 2 · 7/8 of 0.5 ms
        # 20 steps of 5 us and 2 · 1023/1024 of 0.5 ms
        ("halving-doubling", 1024, "1.099"),
    ],
)
def test_100_megabytes_at_5_microseconds_and_200_gigabytes_a_second(
    algorithm, ranks, ms
):
    found = 1e3 * all_reduce(100 * MB, ranks, Link(5e-6, 200e9), algorithm)
    assert f"{found:.{len(ms.split('.')[1])}f}" == ms


@pytest.mark.parametrize("ranks, steps", [(2, 2), (3, 4), (44, 12), (64, 12), (65, 14)])
def test_trees_have_whole_steps(ranks, steps):
    for algorithm in ("tree", "halving-doubling"):
        assert all_reduce(0, ranks, Link(1, 1), algorithm) == steps


def test_two_levels_by_hand():
    """8 GB, 4 nodes of 8: 7/8 s at 8 GB/s twice inside, 2 · 3/4 of 1 GB at 1 of the 8
    GB/s of the node across.
    """
    what = (8e9, 8, 4, Link(0.01, 8e9), Link(0.1, 8e9))
    inside, across = 14 * 0.01, {"ring": 6 * 0.1, "tree": 4 * 0.1}
    ring = hierarchical(*what, overlap=False)
    tree = hierarchical(*what, "tree", overlap=False)
    assert ring == pytest.approx(inside + 14 / 8 + across["ring"] + 1.5)
    assert tree == pytest.approx(inside + 14 / 8 + across["tree"] + 2)
    # what overlaps counts once: with a ring the node is slower, with a tree the network
    assert hierarchical(*what) == pytest.approx(inside + across["ring"] + 14 / 8)
    assert hierarchical(*what, "tree") == pytest.approx(inside + across["tree"] + 2)


# --------------------------------------------------------------------------------------
# Collectives: what must hold for all

many = st.integers(1, 20_000)
byte_counts = st.floats(0, 1e12)
links = st.builds(Link, st.floats(0, 1e-2), st.floats(1e6, 1e12))
algorithms = st.sampled_from(ALGORITHMS)


def at_most(left, right):
    return left <= right * (1 + 1e-9) + 1e-15


@given(byte_counts, byte_counts, many, many, links, st.floats(0, 1e-2), algorithms)
def test_more_of_anything_takes_no_less_time_and_one_rank_has_nothing_to_do(
    size, more, ranks, further, link, slower, algorithm
):
    slow = Link(link.latency + slower, link.bandwidth)
    fast = Link(link.latency, 2 * link.bandwidth)
    cost = all_reduce(size, ranks, link, algorithm)
    assert at_most(cost, all_reduce(size + more, ranks, link, algorithm))
    assert at_most(cost, all_reduce(size, ranks + further, link, algorithm))
    assert at_most(cost, all_reduce(size, ranks, slow, algorithm))
    assert at_most(all_reduce(size, ranks, fast, algorithm), cost)
    assert all_reduce(size, 1, link, algorithm) == 0


@given(byte_counts, st.integers(2, 20_000), links)
def test_a_ring_sends_all_but_its_share_twice_and_halving_doubling_is_never_slower(
    size, ranks, link
):
    ring = 2 * (ranks - 1) * (link.latency + size / ranks / link.bandwidth)
    assert all_reduce(size, ranks, link) == pytest.approx(ring)
    assert all_gather(size, ranks, link) == pytest.approx(ring / 2)
    assert reduce_scatter(size, ranks, link) == pytest.approx(ring / 2)
    halving = all_reduce(size, ranks, link, "halving-doubling")
    assert at_most(halving, ring)
    assert at_most(halving, all_reduce(size, ranks, link, "tree"))


@given(byte_counts, many, links, links, algorithms)
def test_two_levels_of_which_one_is_trivial(size, ranks, inner, outer, algorithm):
    one_node = hierarchical(size, ranks, 1, inner, outer, algorithm)
    assert one_node == pytest.approx(all_reduce(size, ranks, inner))
    one_a_node = hierarchical(size, 1, ranks, inner, outer, algorithm)
    assert one_a_node == pytest.approx(all_reduce(size, ranks, outer, algorithm))


# --------------------------------------------------------------------------------------
# Published all-reduces over nodes: what the two levels are worth. S. Bekman, "Machine
# Learning Engineering Open Book", chapter on the network, "Inter-node speed depends on
# intra-node speed": four nodes of eight, 50 GB/s of network a GPU.

# lesson 12 says where the latencies are from
NVLINK = {"B200": Link(3.4e-6, 900e9), "H200": Link(3.4e-6, 450e9)}
NETWORK = Link(14e-6, 8 * 50e9)
FOUR_NODES = {  # (GPU, bytes): bus bandwidth, GB/s
    ("B200", 1 * MIB): 5.37,
    ("B200", 16 * MIB): 64.43,
    ("B200", 32 * MIB): 91.19,
    ("B200", 64 * MIB): 156.74,
    ("B200", 1 * GIB): 361.99,
    ("B200", 4 * GIB): 377.34,
    ("B200", 16 * GIB): 381.80,
    ("H200", 4 * GIB): 364.87,
}


@pytest.mark.parametrize("gpu, size", FOUR_NODES)
def test_measured_over_four_nodes(gpu, size):
    """Large messages lie between phases that overlap and phases in turn; those of DDP's
    size are slower.
    """
    seconds = 2 * 31 / 32 * size / (1e9 * FOUR_NODES[gpu, size])
    together = hierarchical(size, 8, 4, NVLINK[gpu], NETWORK)
    in_turn = hierarchical(size, 8, 4, NVLINK[gpu], NETWORK, overlap=False)
    if size >= GIB:
        assert together < seconds < in_turn
    else:
        assert 1.5 * in_turn < seconds < 4 * in_turn

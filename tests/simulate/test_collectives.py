"""Collectives: cases by hand, and what must hold for all inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.collectives import Link, all_gather, all_reduce, reduce_scatter


@pytest.mark.parametrize("ranks, ms", [(2, "0.510"), (64, "1.614"), (1024, "11.229")])
def test_100_megabytes_at_5_microseconds_and_200_gigabytes_a_second(ranks, ms):
    assert f"{1e3 * all_reduce(100e6, ranks, Link(5e-6, 200e9)):.3f}" == ms


many = st.integers(1, 20_000)
byte_counts = st.floats(0, 1e12)
links = st.builds(Link, st.floats(0, 1e-2), st.floats(1e6, 1e12))


def at_most(left, right):
    return left <= right * (1 + 1e-9) + 1e-15


@given(byte_counts, byte_counts, many, many, links, st.floats(0, 1e-2))
def test_more_of_anything_takes_no_less_time_and_one_rank_has_nothing_to_do(
    size, more, ranks, further, link, slower
):
    slow = Link(link.latency + slower, link.bandwidth)
    fast = Link(link.latency, 2 * link.bandwidth)
    cost = all_reduce(size, ranks, link)
    assert at_most(cost, all_reduce(size + more, ranks, link))
    assert at_most(cost, all_reduce(size, ranks + further, link))
    assert at_most(cost, all_reduce(size, ranks, slow))
    assert at_most(all_reduce(size, ranks, fast), cost)
    assert all_reduce(size, 1, link) == 0


@given(byte_counts, st.integers(2, 20_000), links)
def test_a_ring_sends_all_but_its_share_twice(size, ranks, link):
    ring = 2 * (ranks - 1) * (link.latency + size / ranks / link.bandwidth)
    assert all_reduce(size, ranks, link) == pytest.approx(ring)
    assert all_gather(size, ranks, link) == pytest.approx(ring / 2)
    assert reduce_scatter(size, ranks, link) == pytest.approx(ring / 2)

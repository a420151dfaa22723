"""Clocks that somebody sets, devices on them, and the matmuls of a block."""

import threading
import time
import timeit

import pytest
import torch

from exercises.doubles.clocks import LAUNCH, Clock, Matmuls, QueueDevice


def test_a_clock_shows_what_is_set_and_counts_its_readings():
    clock = Clock(3.0)
    assert clock() == 3.0 and clock() == 3.0 and clock.readings == 2
    clock.now += 1
    assert clock() == 4.0 and clock.just_read


WAYS = {
    "perf_counter": "time.perf_counter()",
    "ns": "time.perf_counter_ns() / 1e9",
    "monotonic": "time.monotonic()",
    "time": "time.time()",
    "by name": "perf_counter()",
    "timeit": "timeit.default_timer()",
    "late import": "__import__('time').perf_counter()",
}


@pytest.mark.parametrize("way", WAYS)
def test_it_stands_in_place_of_those_of_the_module_time(way):
    names = {"time": time, "timeit": timeit, "perf_counter": time.perf_counter}
    function = eval(f"lambda: {WAYS[way]}", names)
    before, clock = [dict(vars(time)), dict(vars(timeit)), dict(names)], Clock(-5.0)
    with clock.in_place_of_time(function):
        assert function() == -5.0
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(function()))
        thread.start()
        thread.join()
        assert elsewhere[0] > 0 and clock.readings == 1
    assert [vars(time), vars(timeit), names] == before and function() > 0


@pytest.mark.parametrize(
    "seconds",
    [
        lambda work: timeit.timeit(work, number=1),
        lambda work: timeit.repeat(work, "pass", repeat=1, number=1)[0],
        lambda work: timeit.Timer(work).timeit(1),
        lambda work: timeit.Timer(work, "pass", time.monotonic).repeat(1, 1)[0],
    ],
)
def test_timeit_measures_by_it(seconds):
    clock = Clock()
    device = QueueDevice(clock, [0.25])
    with clock.in_place_of_time(seconds):
        got = seconds(lambda: (device.run(), device.wait()))
    assert got == pytest.approx(0.25 + LAUNCH) == device.samples[0]


def test_a_device_returns_at_once_and_works_in_order():
    clock = Clock(0.0)
    device = QueueDevice(clock, [2.0, 1.0, 5.0], busy=3.0)
    clock()
    device.run()
    device.run()
    assert clock.now == 2 * LAUNCH
    device.wait()
    assert clock.now == 3.0 + 2.0 + 1.0  # the launches were hidden
    device.wait()
    clock()
    device.run()
    device.wait()
    assert clock.now == 6.0 + LAUNCH + 5.0
    assert device.samples == [2.0 + LAUNCH, 1.0 + LAUNCH, 5.0 + LAUNCH]
    assert device.timed == [True, False, True] and device.queued == [0, 1]


def test_matmuls_and_matrices_are_noted():
    kinds, made = [], []
    with Matmuls(kinds.append, made.append) as matmuls:
        a, b = torch.ones(2, 3), torch.rand(3, 4, device="meta")
        a.to("meta") @ b
        a @ a.T
        torch.nn.functional.linear(a, a, torch.ones(2))
    assert kinds == ["meta", "cpu", "cpu"] and made == ["cpu", "meta", "cpu"]
    assert made == matmuls.created and matmuls.moves == 1
    threads = torch.get_num_threads()
    assert matmuls.done[0] == (((2, 3), (3, 4)), {"meta"}, threads)
    assert [matmul.shapes for matmul in matmuls.done[1:]] == [((2, 3), (3, 2))] * 2

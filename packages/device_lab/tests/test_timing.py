"""measure and speedup: warm-up, clocks, remarks, turns, settings, and how often a
verdict is right. A GPU in virtual time makes the tests exact.

Tests marked `timed` compare real times: they want a machine that does nothing else.
"""

import gc
import math
import random
import statistics
import time
import types
import weakref

import pytest
import torch
import torch.utils.benchmark

from device_lab import LabError
from device_lab._kit import _clocks, timing
from device_lab._kit._clocks import device_clock
from device_lab._kit.timing import (
    Measurement,
    measure,
    measure_together,
    speedup,
    time_text,
)


class VirtualGPU:
    """A host and a device queue in virtual time: launching costs the host, kernels run
    later, events see them.
    """

    def __init__(self, launch=1e-6, jitter=0.0):
        self.host = self.free = 0.0
        self.launch, self.jitter, self.random = launch, jitter, random.Random(1)
        self.calls = []

    def perf_counter(self):
        self.host += 1e-9
        return self.host

    def kernel(self, seconds, name=""):
        self.calls.append(name)
        self.host += self.launch + self.jitter * self.random.random()
        self.free = max(self.free, self.host) + seconds

    def synchronize(self, device=None):
        self.host = max(self.host, self.free)

    def event(self, enable_timing=False):
        assert enable_timing
        event = types.SimpleNamespace()
        event.record = lambda: setattr(event, "at", max(self.free, self.host))
        event.synchronize = lambda: setattr(self, "host", max(self.host, event.at))
        event.elapsed_time = lambda other: (other.at - event.at) * 1e3
        return event


@pytest.fixture
def gpu(monkeypatch):
    gpu = VirtualGPU()
    monkeypatch.setattr(time, "perf_counter", gpu.perf_counter)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(torch.accelerator, "synchronize", gpu.synchronize)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(_clocks, "DOUBTS", [])  # a program may have added some
    return gpu


def test_warms_up_for_three_calls_and_25_ms_and_keeps_the_first_call_out_of_the_samples(
    gpu,
):
    costs = iter([2.0])
    m = measure(lambda: gpu.kernel(next(costs, 0.1)), "cuda", n=1)
    # the first call, the warm-up, and one sample at the end
    assert len(gpu.calls) - 1 >= 1 + 3
    assert m.first == pytest.approx(2.0, rel=1e-3)
    assert m.samples == pytest.approx([0.1], rel=1e-3)
    start = gpu.host
    measure(lambda: gpu.kernel(1e-4), "cuda", n=1)
    assert gpu.host - start >= 0.025


def test_device_clock_is_linear_and_free_of_host_jitter(gpu):
    gpu.jitter = 1e-4
    for seconds in (2e-3, 4e-3):
        m = measure(lambda seconds=seconds: gpu.kernel(seconds), "cuda", n=20)
        assert m.clock == "device"
        assert m.median == pytest.approx(seconds, rel=0.01)


def test_a_block_is_timed_by_the_device_and_not_by_what_was_asked_before_it(gpu):
    gpu.kernel(1.0)
    with device_clock() as clock:
        gpu.kernel(2e-3)
    gpu.kernel(1.0)
    assert gpu.host < 1e-3  # nobody has waited
    assert clock.seconds() == pytest.approx(2e-3) and 1.002 <= gpu.host < 2


def test_host_clock_waits_before_and_after_each_sample(gpu):
    m = measure(lambda: gpu.kernel(2e-3), "cuda", clock="host", n=10)
    assert m.clock == "host" and "host clock" in str(m)
    # not the microsecond of the launch
    assert m.median == pytest.approx(2e-3, rel=0.01)
    gpu.kernel(1.0)  # already queued: not charged to the function
    cuda = torch.device("cuda")
    _, seconds = _clocks.seconds(lambda: gpu.kernel(2e-3), cuda)
    assert seconds == pytest.approx(2e-3, rel=0.01)


def test_on_a_lazy_device_each_result_is_held_until_its_work_is_launched(monkeypatch):
    """torch_xla computes only what somebody holds: a loop that drops its results would
    time nothing.
    """
    alive, launched = weakref.WeakSet(), []
    monkeypatch.setattr(_clocks, "launch_graph", lambda: launched.append(len(alive)))
    monkeypatch.setattr(_clocks, "wait_for", lambda device: None)

    class Result:
        def __init__(self):
            alive.add(self)

    m = measure(Result, "xla", n=10)
    assert m.clock == "host" and len(launched) >= 10 * m.calls and set(launched) == {1}


def test_what_comes_before_a_sample_is_not_in_it(gpu):
    m = measure(
        lambda: gpu.kernel(1e-5, "ours"),
        "cuda",
        n=10,
        before=lambda: gpu.kernel(1e-3, "before"),
    )
    assert m.median == pytest.approx(1e-5, rel=0.01) and m.calls == 1
    assert gpu.calls[-20:] == ["before", "ours"] * 10


def test_short_kernels_are_timed_many_at_a_time(gpu):
    gpu.launch = 1e-7
    m = measure(lambda: gpu.kernel(2e-6), "cuda", n=10)
    assert m.calls >= 100 and m.median == pytest.approx(2e-6, rel=0.1)
    assert f"{m.calls} calls a sample" in str(m) and not m.remarks


def test_launch_bound_kernels_are_called_so(gpu):
    gpu.launch = 5e-6
    m = measure(lambda: gpu.kernel(2e-6), "cuda", n=10)
    assert m.median == pytest.approx(5e-6, rel=0.1)
    assert "sets the pace" in str(m)


@pytest.mark.parametrize("clock", ["device", "host"])
def test_doubts_of_a_device_and_a_wide_spread_are_remarked(gpu, monkeypatch, clock):
    working = []

    def doubt(device):
        working.append(gpu.free > gpu.host)
        return [f"{device} is hot"]

    monkeypatch.setattr(_clocks, "DOUBTS", [doubt])
    m = measure(lambda: gpu.kernel(2e-3), "cuda", clock=clock, n=10)
    assert m.remarks == ("cuda is hot",) and working == [clock == "device"]
    spread = (1e-2, 2e-2)
    m = measure(
        lambda: gpu.kernel(gpu.random.choice(spread)), "cuda", clock=clock, n=40
    )
    assert "wide spread" in m.remarks[1]


def made_of(samples, clock="host"):
    return Measurement(tuple(samples), clock, 1, 0.0, {})


def test_statistics_of_known_samples():
    m = made_of([5, 1, 4, 2, 3, 9, 8, 7, 6])
    assert (m.n, m.median, m.iqr, m.fastest) == (9, 5, 4, 1)
    # ranks floor((9 - 5.88)/2) = 1 and ceil(1 + (9 + 5.88)/2) = 9
    assert m.interval == (1 + 0, 9)
    # the ranks of Hoefler and Belli for n = 100
    assert made_of(range(1, 101)).interval == (40, 61)
    for word in ("5 s", "IQR 4 s", "95%: 1 s to 9 s", "n 9", "host clock"):
        assert word in str(m)


def test_one_sample_tells_nothing():
    assert made_of([2.0]).interval == (0, math.inf)
    assert "n 1" in str(made_of([2.0]))
    verdict = speedup(made_of([2.0]), made_of([1.0]))
    assert verdict.answer == "undecided" and verdict.rounds == 7
    assert made_of([2.0]).to_dict()["samples"] == [2.0]


@pytest.mark.parametrize("n", [2, 3, 5, 7, 20, 50])
def test_interval_covers_the_median_of_a_skewed_distribution(n):
    draw, median, covered = random.Random(n), math.log(2), 0
    for _ in range(2000):
        low, high = made_of([draw.expovariate(1) for _ in range(n)]).interval
        covered += low <= median <= high
    assert covered / 2000 >= 0.93


def test_speedup_is_a_ratio_of_medians_with_interval_and_both_absolutes():
    draw = random.Random(0)
    slow = made_of([draw.gauss(2e-3, 1e-4) for _ in range(60)])
    fast = made_of([draw.gauss(1e-3, 1e-4) for _ in range(60)])
    s = speedup(slow, fast)
    assert s.times == pytest.approx(slow.median / fast.median)
    assert 1.85 < s.low < s.times < s.high < 2.15
    assert s.high - s.low > 0.1  # about ±1.96 × 1.8%
    assert time_text(slow.median) in str(s) and time_text(fast.median) in str(s)
    assert s.answer == "faster" and speedup(fast, slow).answer == "slower"
    same = speedup(slow, slow)
    assert same.low < 1 < same.high
    assert same.answer == "even" and "no difference larger than 3.2%" in str(same)
    assert repr(same) == str(same) and same.to_dict()["answer"] == "even"
    with pytest.raises(LabError, match="two clocks"):
        speedup(slow, made_of([1.0], "device"))


def steady(draw):
    return draw.gauss(1, 0.05)


def skewed(draw):
    return 1 + draw.expovariate(5)


def unsteady(draw):
    return math.exp(draw.gauss(0, 0.3))


def disturbed(draw):  # one in five takes several times as long
    return draw.gauss(1, 0.03) + (draw.random() < 0.2) * draw.expovariate(0.5)


def of_two_speeds(draw):
    return draw.choice((1, 1.5)) * draw.gauss(1, 0.02)


def drawn(draw, time, times, n):
    before = made_of([times * time(draw) for _ in range(n)])
    return speedup(before, made_of([time(draw) for _ in range(n)]))


@pytest.mark.parametrize("n", [3, 7, 12, 40])
@pytest.mark.parametrize("time", [steady, skewed, unsteady, disturbed, of_two_speeds])
def test_of_two_that_are_alike_few_verdicts_name_a_faster_one(time, n):
    draw = random.Random(n)
    answers = [drawn(draw, time, 1, n).answer for _ in range(600)]
    assert (answers.count("faster") + answers.count("slower")) / 600 <= 0.05


@pytest.mark.parametrize("n", [7, 12, 40])
@pytest.mark.parametrize("time", [steady, skewed, unsteady, disturbed])
def test_of_one_that_is_faster_few_verdicts_say_even_or_slower(time, n):
    draw = random.Random(n)
    answers = [drawn(draw, time, 1.06, n).answer for _ in range(600)]
    assert (answers.count("even") + answers.count("slower")) / 600 <= 0.05


@pytest.mark.parametrize(
    ("time", "times", "n"),
    [
        (steady, 1, 7),
        (steady, 1.1, 7),
        (skewed, 1.1, 7),
        (skewed, 1.3, 7),
        (skewed, 1.1, 20),
        (unsteady, 1.3, 7),
        (unsteady, 0.8, 20),
        (disturbed, 1.05, 20),
    ],
)
def test_the_rounds_that_are_promised_decide_in_most_cases(time, times, n):
    draw, decided = random.Random(0), []
    while len(decided) < 60:
        first = drawn(draw, time, times, n)
        if first.answer == "undecided":
            assert first.rounds > n and f"n={first.rounds:,} would tell" in str(first)
            again = drawn(draw, time, times, min(first.rounds, 3000))
            decided.append(again.answer != "undecided")
    assert sum(decided) >= 0.7 * 60


def test_more_rounds_are_promised_in_the_square_of_the_spread():
    """Twice as wide an interval: four times as many rounds."""
    narrow, wide = (timing._rounds(20, 1.2, 1.2 / h, 1.2 * h) for h in (1.25, 1.25**2))
    assert wide == pytest.approx(4 * narrow, abs=4)


def test_time_text():
    texts = {2.5: "2.5 s", 1.234e-3: "1.23 ms", 2e-6: "2 µs", 3e-8: "30 ns"}
    texts |= {0: "0 ns", 5000: "5,000 s", 0.99999: "1,000 ms"}
    assert {seconds: time_text(seconds) for seconds in texts} == texts


def test_functions_are_interleaved_in_random_order(gpu):
    names = ["a", "b", "c"]
    kernels = {name: (lambda name=name: gpu.kernel(2e-3, name)) for name in names}
    measure_together(kernels, "cuda", n=30)
    rounds = [gpu.calls[-90:][i : i + 3] for i in range(0, 90, 3)]
    assert all(sorted(each) == names for each in rounds)
    assert len({tuple(each) for each in rounds}) > 3


def test_drift_meets_all_functions_alike(gpu):
    def drifting():
        gpu.kernel(2e-3 * (1 + len(gpu.calls) / 200))

    measured = measure_together({"a": drifting, "b": drifting}, "cuda", n=200)
    assert speedup(measured["a"], measured["b"]).times == pytest.approx(1, abs=0.05)
    one, other = measure(drifting, "cuda", n=200), measure(drifting, "cuda", n=200)
    # what happens when they are timed one after the other
    assert speedup(one, other).times < 0.9


def test_settings_say_what_changes_speed(monkeypatch):
    with torch.no_grad():
        m = measure(lambda: None, "cpu", n=7)
    assert m.settings["threads"] == torch.get_num_threads()
    assert m.settings["grad"] is False
    assert {"fp32 matmul", "cudnn.benchmark", "deterministic"} <= set(m.settings)
    # PyTorch 2.8, which Kaggle has for its TPU, knows no fp32_precision
    old = types.SimpleNamespace(allow_tf32=False)
    monkeypatch.setattr(torch.backends.cuda, "matmul", old)
    assert measure(lambda: None, "cpu", n=7).settings["fp32 matmul"] is None


def test_garbage_collection_is_off_while_sampling_and_on_again_after_an_error():
    seen = []

    def fails_late():
        time.sleep(0.01)
        seen.append(gc.isenabled())
        if len(seen) > 12:
            raise ValueError("as announced")

    with pytest.raises(ValueError, match="as announced"):
        measure(fails_late, "cpu", n=50)
    assert seen[0] and not seen[-1] and gc.isenabled()


def work():
    x = torch.randn(300, 300)
    return lambda: [x @ x for _ in range(8)]


@pytest.mark.timed
@pytest.mark.parametrize(
    "fn", [lambda: time.sleep(3e-3), work()], ids=["sleep", "matmul"]
)
def test_agrees_with_torch_utils_benchmark_within_5_percent(fn):
    """At work of a millisecond and more, one thread in both (the Timer's default). Each
    pair is taken at once, now the one first, now the other: a machine that changes its
    speed meets both sides of most pairs alike. Three tries.
    """
    timer = torch.utils.benchmark.Timer("fn()", globals={"fn": fn})

    def ours():
        return measure(fn, "cpu", n=7).median

    def theirs():
        return statistics.median(timer.timeit(1).median for _ in range(7))

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(3):
            ratios = []
            for _ in range(10):
                first, second = ours(), theirs()
                second_again, first_again = theirs(), ours()
                ratios += [first / second, first_again / second_again]
            ratio = statistics.median(ratios)
            if abs(ratio - 1) <= 0.05:
                break
    finally:
        torch.set_num_threads(before)
    assert min(first, second) >= 1e-3
    assert ratio == pytest.approx(1, abs=0.05)


def test_what_cannot_be_timed():
    batches = iter(range(3))
    with pytest.raises(LabError, match="ended too early: measure calls"):
        measure(lambda: next(batches), "cpu", n=7)
    with pytest.raises(LabError, match="needs functions.*: lambda"):
        measure(torch.ones(3).sum(), "cpu")
    with pytest.raises(LabError, match="by name if many"):
        measure_together([print, len], "cpu")

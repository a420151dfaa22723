"""who_waits says who sets the pace, and what it would take to change that. Loops in
virtual time, whose answer is known, make the tests exact.
"""

import collections
import functools
import math
import random
import time
from importlib.util import find_spec

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from device_lab import LabError
from device_lab._kit import _clocks, loader
from device_lab._kit.loader import Part, _judge, who_waits

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def part(milliseconds, spread=0.01):
    seconds = milliseconds / 1e3
    return Part(seconds, seconds * (1 - spread), seconds * (1 + spread))


@pytest.mark.parametrize(
    ("times", "pinned", "device", "workers", "who", "says"),
    [
        ({"loop": 12, "loader": 12, "step": 3}, True, CPU, 2, "loader", "(now 2)"),
        ({"loop": 12, "loader": 3, "step": 12}, True, CPU, 2, "step", "12 ms"),
        ({"loop": 12, "loader": 11.5, "step": 12}, True, CPU, 2, "both", "as long"),
        ({"loop": 9, "loader": 4, "step": 5}, True, CPU, 0, "between", "num_workers="),
        ({"loop": 9, "loader": 6, "step": 3}, True, CPU, 0, "between", "=2 or more"),
        # steps of other batches than the kept one may take longer
        ({"loop": 46, "loader": 0.2, "step": 38}, True, CPU, 0, "step", "38 ms"),
        ({"loop": 9, "loader": 4, "step": 5}, True, CPU, 2, "between", "handing over"),
        (
            {"loop": 9, "loader": 4, "step": 9, "step, no copy": 6, "launch": 1},
            *(False, GPU, 2, "copy", "takes 3 ms of 9 ms a batch.\npin_memory"),
        ),
        (
            {"loop": 9, "loader": 4, "step": 9, "step, no copy": 6, "launch": 1},
            *(True, GPU, 2, "copy", "Fewer bytes"),
        ),
        (
            {"loop": 9, "loader": 4, "step": 9, "step, no copy": 8.9, "launch": 1},
            *(False, GPU, 2, "device", "9 ms"),
        ),
        (
            {"loop": 9, "loader": 4, "step": 9, "step, no copy": 8.9, "launch": 8.5},
            *(True, GPU, 2, "host", ".item()"),
        ),
    ],
)
def test_the_verdict_follows_the_times(times, pinned, device, workers, who, says):
    parts = {name: part(each) for name, each in times.items()}
    answer, verdict = _judge(parts, pinned, device, workers)
    assert answer == who and says in verdict


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_told_apart_is_undecided(workers):
    parts = {"loop": part(10, 0.4), "loader": part(7, 0.4), "step": part(6, 0.4)}
    assert _judge(parts, True, CPU, workers)[0] == "undecided"
    parts = {"loop": part(10), "loader": part(1, 0.8), "step": part(9.9)}
    assert _judge(parts, True, CPU, workers)[0] == "step", "never mind the loader's"


def test_what_in_the_step_cannot_be_told_apart_is_undecided():
    parts = {"loop": part(9), "loader": part(1), "step": part(9), "launch": part(1)}
    parts["step, no copy"] = part(7, 0.4)
    who, verdict = _judge(parts, True, GPU, 2)
    assert who == "undecided" and "step sets the pace: 9 ms" in verdict


class World:
    """A host, a device and loaders in virtual time. noise: the sigma of each time's
    logarithm.
    """

    def __init__(self, noise=0.0, seed=0):
        self.now = self.free = 0.0
        self.noise, self.random, self.steps = noise, random.Random(seed), 0

    def __call__(self, seconds):
        """So many seconds, as they come out this time."""
        return seconds * math.exp(self.random.gauss(0, self.noise))

    def wait_for(self, device):
        self.now = max(self.now, self.free)

    def step(self, host, device=0.0, copy=0.0):
        def step(batch):
            self.steps += 1
            self.now += self(host)
            if batch.device.type == "cpu":
                self.now += self(copy)
            self.free = max(self.now, self.free) + self(device)

        return step


class Batches:
    """What a DataLoader does, in virtual time: each batch takes a worker so long, and
    each worker has up to two ahead. Without workers they are made as they are asked.
    """

    persistent_workers, prefetch_factor = True, 2

    def __init__(self, world, seconds, num_workers=0):
        self.world, self.seconds, self.num_workers = world, seconds, num_workers

    def __iter__(self):
        world, ready = self.world, collections.deque()
        free = [world.now] * self.num_workers
        while True:
            while self.num_workers and len(ready) < 2 * self.num_workers:
                first = min(range(self.num_workers), key=free.__getitem__)
                free[first] = max(free[first], world.now) + world(self.seconds)
                ready.append(free[first])
            if ready:
                world.now = max(world.now, ready.popleft())
            else:
                world.now += world(self.seconds)
            yield torch.ones(1)


@pytest.fixture
def world(monkeypatch):
    def made(*options):
        world = World(*options)
        monkeypatch.setattr(time, "perf_counter", lambda: world.now)
        monkeypatch.setattr(_clocks, "wait_for", world.wait_for)
        return world

    return made


LOOPS = [  # seconds a batch of a worker, workers, of the step, who
    (0.01, 0, 2.0, "step"),
    (2.0, 0, 0.01, "loader"),
    (1.0, 0, 1.0, "between"),
    (1.0, 4, 2.0, "step"),
    (4.0, 4, 0.1, "loader"),
    (0.002, 0, 0.02, "step"),
    (0.02, 0, 0.001, "loader"),
    (0.01, 2, 0.05, "step"),
    (0.1, 8, 0.001, "loader"),
    (0.05, 0, 0.1, "between"),
]


@pytest.mark.parametrize(("load", "workers", "work", "who"), LOOPS)
@pytest.mark.parametrize("seconds", [1, 10, 30, 100])
def test_it_ends_in_time_and_is_right_or_says_that_it_cannot_tell(
    world, load, workers, work, who, seconds
):
    world = world()
    batches = Batches(world, load, workers)
    pace = who_waits(batches, world.step(work), "cpu", seconds=seconds)
    time_of_parts = world.now - load - work  # without the first batch and step
    once = 2 * load + 2 * work  # each part
    assert time_of_parts <= seconds + (load + work if seconds > once else once)
    assert pace.who in (who, "undecided")
    if seconds >= 10 * (load + work):
        assert pace.who == who, str(pace)
    if pace.who == "undecided":
        assert f"seconds={4 * seconds}" in str(pace)


def test_a_step_of_two_seconds_in_the_seconds_that_are_given(world):
    """It took a minute and more for ten batches."""
    world = world(0.05)
    pace = who_waits(Batches(world, 0.1), world.step(2.0), "cpu", seconds=20)
    assert pace.who == "step" and world.now <= 25 and 4 <= world.steps <= 11


def test_a_first_step_that_compiles_for_a_minute_is_not_in_the_time(world):
    world = world()
    step, first = world.step(0.01), [60.0]

    def compiles(batch):
        world.now += first.pop() if first else 0.0
        step(batch)

    pace = who_waits(Batches(world, 0.001), compiles, "cpu", seconds=10)
    assert pace.who == "step" and 60 < world.now <= 70
    assert pace.parts["loop"].n == loader.SAMPLES


@pytest.mark.parametrize(("host", "device", "copy"), [(0.1, 1, 0), (1, 0.1, 0.1)])
def test_a_slow_step_on_a_device_ends_in_time(world, host, device, copy):
    world = world()
    step = world.step(host, device, copy)
    pace = who_waits(Batches(world, 0.05, 2), step, "meta", seconds=30)
    assert world.now <= 30 + 3 * (host + device + copy)
    assert pace.who == ("host" if host == 1 else "device"), str(pace)


def test_of_a_loop_that_overlaps_the_loader_counts_by_what_it_adds(world):
    """Loads of 8 while the device works for 10, after a launch of 1: 10 a batch."""
    world = world()
    step = world.step(0.001, 0.010)
    pace = who_waits(Batches(world, 0.008), step, "meta")
    assert pace.parts["loop"].median == pytest.approx(0.010, rel=0.03)
    assert pace.who == "device", str(pace)
    assert pace.parts["launch"].median == pytest.approx(0.001)


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("seconds", [5, 30])
def test_few_verdicts_are_wrong_where_times_vary(world, noise, seconds):
    wrong, decided, runs = 0, 0, 0
    for seed in range(6):
        for load, workers, work, who in LOOPS:
            loop = world(noise, seed)
            batches = Batches(loop, load, workers)
            pace = who_waits(batches, loop.step(work), "cpu", seconds=seconds)
            runs += 1
            decided += pace.who != "undecided"
            wrong += pace.who not in (who, "undecided")
    assert wrong <= 0.05 * runs
    assert decided >= 0.8 * runs or noise > 0.1 or seconds < 30


def test_without_workers_a_loader_saves_no_more_than_its_own_time():
    def sometimes_slow(batch):  # slow in the loop, not with the batch that is kept
        time.sleep(0.001 if batch[0] == 0 else 0.004)

    pace = who_waits([torch.zeros(1), *[torch.ones(1)] * 99], sometimes_slow, "cpu")
    assert pace.saved == pace.parts["loader"].median / pace.parts["loop"].median


class Items(Dataset):
    def __init__(self, seconds, count=64):
        self.seconds, self.count = seconds, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return torch.full((3,), float(i)), i


def sleeping(seconds):
    return lambda batch: time.sleep(seconds)


@pytest.mark.timed
def test_a_slow_loader_a_slow_step_and_two_that_take_turns():
    slow, quick = (DataLoader(Items(s), batch_size=2) for s in (0.003, 0))
    pace = who_waits(slow, sleeping(0), "cpu")
    assert pace.who == "loader" and pace.saved > 0.8, str(pace)
    pace = who_waits(quick, sleeping(0.006), "cpu")
    assert pace.who == "step" and pace.saved < 0.3, str(pace)
    pace = who_waits(slow, sleeping(0.006), "cpu")
    assert pace.who == "between" and 0.3 < pace.saved < 0.7, str(pace)
    assert max(map(len, str(pace).splitlines())) <= 88


@pytest.mark.timed
def test_workers_load_while_the_step_works_and_cost_their_start_in_each_epoch():
    options = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork"}
    stay = DataLoader(Items(0.004), persistent_workers=True, **options)
    pace = who_waits(stay, sleeping(0.05), "cpu")
    assert pace.who == "step" and pace.parts["loader"].median < 0.01, str(pace)
    start = DataLoader(Items(0, count=4), **options)
    pace = who_waits(start, sleeping(0), "cpu")
    assert pace.who == "start" and "persistent_workers" in pace.verdict, str(pace)


def test_parts_of_a_batch_that_has_to_be_moved():
    there = torch.ones(3, 3, device="meta")
    seen = []

    def step(batch):
        x = batch.pop("x").to("meta")  # takes its dict apart
        seen.append(batch["name"])
        return there @ x

    class Dicts:
        def __iter__(self):
            return ({"x": torch.ones(3, 3), "name": i} for i in range(5))

    pace = who_waits(Dicts(), step, "meta")
    names = ["loop", "loader", "step", "launch", "step, no copy", "copy"]
    assert list(pace.parts) == names
    assert set(seen) == set(range(5)) and set(seen[-30:]) == {0}, "the first is kept"


def test_a_batch_whose_to_changes_itself_is_moved_as_a_copy():
    class Encoding:
        def __init__(self):
            self.ids = torch.ones(3)

        def to(self, device):
            self.ids = self.ids.to(device)
            return self

    batch = Encoding()
    moved = loader._changed(batch, lambda x: x.to("meta"))
    assert moved.ids.is_meta and not batch.ids.is_meta


def test_a_step_that_wants_the_batch_as_it_came():
    pace = who_waits([torch.ones(2)], lambda b: b.numpy() + 1, "meta")
    assert list(pace.parts) == ["loop", "loader", "step", "launch"]


@pytest.mark.xla
@pytest.mark.skipif(not find_spec("torch_xla"), reason="needs torch_xla")
def test_on_xla_each_step_is_launched_and_compiled_once():
    import torch_xla
    import torch_xla.debug.metrics as counters

    device, steps = torch_xla.device(), []
    weight = torch.ones(3, 3, device=device)
    torch_xla.sync()
    before = counters.counter_value("UncachedCompile") or 0

    def step(batch):
        steps.append(1)
        return (batch.to(device) @ weight).sum()

    pace = who_waits([torch.ones(2, 3)] * 4, step, "xla")
    assert list(pace.parts)[-2:] == ["step, no copy", "copy"]
    assert (counters.counter_value("UncachedCompile") or 0) - before <= 2
    launched = counters.counter_value("CachedCompile") or 0
    assert launched >= 0.5 * len(steps)


def test_a_loader_that_ends():
    batches = (torch.ones(2) for _ in range(5))
    with pytest.raises(LabError, match="ended after 5 batches.*no generator"):
        who_waits(batches, lambda batch: None, "cpu")
    with pytest.raises(LabError, match="ended after 0 batches"):
        who_waits([], lambda batch: None, "cpu")
    enough = (torch.ones(2) for _ in range(200))
    assert who_waits(enough, lambda batch: None, "cpu").parts["loop"]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_whose_length_nobody_knows(workers):
    options = {"num_workers": workers, "multiprocessing_context": "fork"}
    batches = DataLoader(Stream(), 4, **(options if workers else {}))
    pace = who_waits(batches, lambda batch: None, "cpu", seconds=5)
    assert pace.who and pace.start > 0


def test_it_prints_as_text():
    pace = who_waits([torch.ones(2)], lambda batch: None, "cpu")
    assert repr(pace) == str(pace) and pace.verdict.splitlines()[0] in str(pace)
    assert pace.to_dict()["parts"]["loop"]["median"] == pace.parts["loop"].median


@pytest.mark.parametrize("given", [(3, print), (print, [1]), ([1], None)])
def test_what_is_no_loader_and_no_step(given):
    with pytest.raises(LabError, match="what has batches, and a function"):
        who_waits(*given)


def test_a_device_that_is_not_there(monkeypatch):
    def no(device):
        raise RuntimeError("Accelerator expected")

    monkeypatch.setattr(_clocks, "wait_for", no)
    with pytest.raises(LabError, match="^no xpu here: leave"):
        who_waits([torch.ones(2)], print, "xpu")


def test_a_step_that_takes_no_batch():
    for step in (lambda: None, lambda model, batch: None):
        with pytest.raises(LabError, match="function that takes a batch"):
            who_waits([torch.ones(2)], step, "cpu")
    for step in (lambda batch: (lambda: None)(batch), lambda batch: batch(), len_of):
        with pytest.raises(TypeError):  # the step's own
            who_waits([torch.ones(2)], step, "cpu")


@functools.wraps(lambda: None)  # whose signature is another's
def len_of(batch):
    return len(3)


def test_the_step_s_own_error_passes():
    with pytest.raises(ZeroDivisionError):
        who_waits([torch.ones(2)], lambda batch: 1 / 0, "cpu")

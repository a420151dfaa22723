"""who_waits says who sets the pace, and what it would take to change that."""

import time
from importlib.util import find_spec
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from device_lab import loader
from device_lab.errors import LabError
from device_lab.loader import Pace, Part, _judge, who_waits

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


def test_what_cannot_be_told_apart_is_said_to_be_as_long():
    parts = {"loop": part(10, 0.4), "loader": part(7, 0.4), "step": part(6, 0.4)}
    assert _judge(parts, True, CPU, 2)[0] == "both"


def test_what_takes_half_of_the_loop_does_not_set_its_pace_however_unsteady():
    parts = {"loop": Part(0.025, 0.019, 0.035), "loader": Part(0.007, 0.005, 0.01)}
    parts["step"] = Part(0.012, 0.011, 0.025)
    assert _judge(parts, True, CPU, 0)[0] == "between"


@pytest.mark.parametrize(("returned", "done", "each"), [(24, 38, 10), (54, 54, 18)])
def test_a_piece_of_the_loop_counts_as_one_in_its_middle(returned, done, each):
    """Three loads of 8, steps of 10 that go on behind: 3 × 10 + 8 s are 10 a batch. A
    step that waits for itself leaves nothing to wait for.
    """
    with mock.patch.object(loader, "_seconds", lambda *_: (returned, done)):
        part = loader._timed(CPU, 3, [], lambda: None, load=8)
        assert part.median == each
        assert loader._timed(CPU, 3, [], None, launch=True).median == returned


def test_unsteady_times_are_said_to_be_so():
    parts = {name: part(10) for name in ("loop", "loader", "step")}
    assert "unsteady" not in str(Pace("both", "", parts, 0.0, 0.0))
    parts["step"] = part(10, 0.3)
    assert "unsteady" in str(Pace("both", "", parts, 0.0, 0.0))


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
    pace = who_waits(slow, sleeping(0), "cpu", batches=22)
    assert pace.who == "loader" and pace.saved > 0.8, str(pace)
    pace = who_waits(quick, sleeping(0.006), "cpu", batches=22)
    assert pace.who == "step" and pace.saved < 0.3, str(pace)
    pace = who_waits(slow, sleeping(0.006), "cpu", batches=22)
    assert pace.who == "between" and 0.3 < pace.saved < 0.7, str(pace)
    assert max(map(len, str(pace).splitlines())) <= 88


@pytest.mark.timed
def test_workers_load_while_the_step_works_and_cost_their_start_in_each_epoch():
    options = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork"}
    stay = DataLoader(Items(0.004), persistent_workers=True, **options)
    pace = who_waits(stay, sleeping(0.05), "cpu", batches=22)
    assert pace.who == "step" and pace.parts["loader"].median < 0.01, str(pace)
    start = DataLoader(Items(0, count=4), **options)
    pace = who_waits(start, sleeping(0), "cpu", batches=22)
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

    pace = who_waits(Dicts(), step, "meta", batches=11)
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
    pace = who_waits([torch.ones(2)], lambda b: b.numpy() + 1, "meta", batches=11)
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

    pace = who_waits([torch.ones(2, 3)] * 4, step, "xla", batches=22)
    assert list(pace.parts)[-2:] == ["step, no copy", "copy"]
    assert (counters.counter_value("UncachedCompile") or 0) - before <= 2
    launched = counters.counter_value("CachedCompile") or 0
    assert launched >= 0.5 * len(steps)


def test_a_loader_that_ends():
    batches = (torch.ones(2) for _ in range(5))
    with pytest.raises(LabError, match="ended after 5 batches.*fewer batches="):
        who_waits(batches, lambda batch: None, "cpu")
    with pytest.raises(LabError, match="ended after 0 batches"):
        who_waits([], lambda batch: None, "cpu")
    enough = (torch.ones(2) for _ in range(50))
    assert who_waits(enough, lambda batch: None, "cpu", batches=11).parts["loop"]


@pytest.mark.parametrize("given", [(3, print), (print, [1]), ([1], None)])
def test_what_is_no_loader_and_no_step(given):
    with pytest.raises(LabError, match="what gives batches, and a function"):
        who_waits(*given)


def test_a_device_that_is_not_there(monkeypatch):
    def no(device):
        raise RuntimeError("Accelerator expected")

    monkeypatch.setattr(loader, "wait_for", no)
    with pytest.raises(LabError, match="cannot wait for cuda here"):
        who_waits([torch.ones(2)], print, "cuda")


def test_the_step_s_own_error_passes():
    with pytest.raises(ZeroDivisionError):
        who_waits([torch.ones(2)], lambda batch: 1 / 0, "cpu")

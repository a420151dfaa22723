"""Of the comparison of train.py with others: when it goes on, and what fails it."""

import itertools
import sys

import pytest

from benchmarks import train_loops
from benchmarks.train_loops import LOOK, Race, verdict


class FakeWay:
    """Takes for a step about as many seconds as its name says; train.py takes one."""

    def __init__(self, name, words):
        self.name = name
        self.seconds = 1.0 if name == "train.py" else float(name)
        self.luck = itertools.cycle([0.98, 1.02] if name == "train.py" else [1.0])

    def take(self, steps):
        return self.seconds * steps * next(self.luck), 0


def rounds_of(peer, most):
    race = Race([], 32, [peer])
    for count in range(1, most + 1):
        race.run_round()
        if not race.goes_on():
            return count
    return most


def test_rounds_go_on_until_the_interval_can_tell(monkeypatch):
    monkeypatch.setattr(train_loops, "Way", FakeWay)
    assert rounds_of("2.0", 400) == LOOK  # train.py is twice as fast
    assert rounds_of("0.5", 400) == LOOK
    assert rounds_of("1.0", 400) == 400


@pytest.mark.parametrize(
    "slower, beyond_doubt, said, status",
    [
        (False, False, "every target is met", 0),
        (True, False, "cannot tell, by the median: slower", 0),
        (True, True, "target missed: slower", 1),
    ],
)
def test_only_what_is_behind_beyond_doubt_fails(
    slower, beyond_doubt, said, status, monkeypatch, capsys
):
    rates = [verdict("slower", slower, beyond_doubt)]
    monkeypatch.setattr(train_loops, "report_rates", lambda *_: rates)
    monkeypatch.setattr(train_loops, "report_starts", lambda *_: [None])
    monkeypatch.setattr(train_loops.torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "argv", ["train_loops"])
    assert train_loops.main() == status
    assert said in capsys.readouterr().out

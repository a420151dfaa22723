"""Which event of an unknown loop ends a step."""

import threading

import pytest

from device_lab._command.steps import Boundaries

KINDS = {"o": "optimizer", "b": "backward", "l": "batch", "c": "call"}


def steps(events):
    """Places, from 0, at which a step ends: each event is kind and line, as in "o1"."""
    boundaries = Boundaries()
    return [
        i
        for i, (kind, line) in enumerate(events)
        if boundaries.ends(KINDS[kind], line, optimizer=line)
    ]


@pytest.mark.parametrize(
    "events, ends",
    [
        ("l1 b1 o1 l1 b1 o1 l1 b1 o1", [5, 8]),
        ("b1 b1 o1 b1 b1 o1 b1 b1 o1", [5, 8]),  # accumulation
        ("b1 o1 b2 o2 b1 o1 b2 o2 b1 o1 b2 o2", [7, 11]),  # two optimizers
        ("o1 o1 o1 o2 o1 o1 o1 o2", [1, 2, 4, 5, 6]),  # a critic more often
        ("b1 " * 10, [7, 8, 9]),  # no optimizer
        ("l1 b1 " * 10, [15, 17, 19]),
        ("l1 " * 6, [3, 4, 5]),  # nothing is trained
        ("c1 " * 18, [15, 16, 17]),  # nothing but calls
        ("c1 c2 c2 " * 9, [23, 25, 26]),  # a token more often than a prompt
        ("c1 " * 18 + "c2 " * 17, [15, 16, 17, 33, 34]),
        ("l1 " * 4 + "l2 b1 o1 l2 b1 o1 l2 b1 o1", [3, 9, 12]),
    ],
)
def test_a_step_ends_where_the_last_optimizer_does(events, ends):
    assert steps(events.split()) == ends


def test_optimizers_that_are_made_anew_are_told_apart_by_their_lines():
    boundaries = Boundaries()
    ends = [boundaries.ends("optimizer", "line 1", id) for id in range(50)]
    assert ends.count("step") > 10


def test_another_loop_takes_over_after_a_while():
    boundaries = Boundaries()
    for _ in range(5):
        boundaries.ends("optimizer", "line 1", 1)
    ends = [boundaries.ends("optimizer", "line 2", 1) for _ in range(300)]
    assert boundaries.anchor[1] == "line 2" and ends.count("step") > 50


def test_of_two_threads_the_one_that_trains_is_watched():
    boundaries, said = Boundaries(), []
    boundaries.ends("optimizer", "line 1", 1)
    boundaries.ends("optimizer", "line 1", 1)
    other = threading.Thread(
        target=lambda: said.append(boundaries.ends("optimizer", "line 1", 1))
    )
    other.start(), other.join()
    assert said == [None] and boundaries.other_threads == {"optimizer": 1}
    assert boundaries.ends("optimizer", "line 1", 1) == "step"

"""tools/lessons/differences.py: a cell on a real device against the same cell on the
emulated one.
"""

import pytest

from course import recordings
from course.provenance import Provenance
from tools.lessons import differences

T4 = {"device": "emulated Tesla T4", "torch": "2.13.0"}
H200 = {"device": "NVIDIA H200", "torch": "2.13.0+cu130"}


def cell(text, machine, value=None, source="s"):
    outputs = [{"text": text}, {"png": "", "alt": "a line"}]
    key = {"source": source, "uses": {}}
    found = {"machine": machine, **key, "outputs": outputs}
    return found if value is None else {**found, "value": value}


@pytest.fixture
def line(monkeypatch):
    """line(ours, theirs, …): what the report says of a cell that printed `theirs` on
    the emulated device.
    """

    def say(ours, theirs, value=None, their_value=None, source="s"):
        real = Provenance("NVIDIA H200", False, "2026-01-02", H200)
        emulated = Provenance(T4["device"], False, "2026-01-01", T4)
        recorded = [(real, cell("not this one", H200))]
        if theirs:
            recorded.append((emulated, cell(theirs, T4, their_value)))
        monkeypatch.setattr(recordings, "find", lambda name, timeless: recorded)
        return differences.line("a_cell", cell(ours, H200, value, source))

    return say


HERE = "on NVIDIA H200 (this run)"
THERE = "on emulated Tesla T4: numbers and memory real, times modeled"
NEWER = "PyTorch 2.11.0+cu130 at 0x7f01, Graph.cpp:147"
OLDER = "PyTorch 2.13.0 at 0x7fee, Graph.cpp:210"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (HERE, THERE),
        (NEWER, OLDER),
        ("off by 1.0001, 2.5e-06 of 3 MiB", "off by 1.0, 2.5001e-06 of 3 MiB"),
    ],
)
def test_what_differs_between_two_machines_anyway_is_left_aside(line, ours, theirs):
    assert line(ours, theirs).startswith("same as emulated: a_cell (but for names of")


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        ("512 bytes", "1024 bytes", "a_cell: after “” 512 (emulated: 1024)"),
        ("one", "one and two", "after “one” nothing (emulated: and two)"),
        ("1.0001 x", "1.0 y z", "a_cell: after “1.0001” x (emulated: y z)"),
        ("1 a 2 b 3 c 4 d", "0 a 0 b 0 c 0 d", "“1 a 2 b” 3 (emulated: 0); 1 more"),
    ],
)
def test_differences_are_shown_with_the_words_before_them(line, ours, theirs, shown):
    said = line(ours, theirs)
    assert said.startswith("differs from the emulated device: a_cell: ")
    assert shown in said


def test_nothing_is_said_of_what_was_not_recorded_and_no_more_of_another_source(line):
    assert line("x", "") is None
    assert line("x", "x", source="changed").startswith("not compared with the emulated")

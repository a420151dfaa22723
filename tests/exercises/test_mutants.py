"""What tests/exercises/mutants.py changes, and the words of its report."""

import pytest

from tests.exercises import mutants
from tests.exercises.answers import Answers
from utils import exercises

SOURCE = """
def sums(rows, limit=3):
    \"\"\"Sums of rows.\"\"\"
    found = []
    for row in rows:
        if len(row) <= limit:
            found.append(max(row[0], row[1]))
    return found
"""


def test_changes_of_a_small_answer():
    found = [mutant.change for mutant in mutants.mutants(SOURCE)]
    assert len(found) == len(set(found)) > 20
    assert {
        "def sums(rows, limit=3): → def sums(rows, limit=4):",
        "def sums(rows, limit=3): → def sums(rows, limit):",
        "if len(row) <= limit: → if len(row) < limit:",
        "if len(row) <= limit: → if len(row) <= rows:",
        "found.append(max(row[0], row[1])) → found.append(min(row[0], row[1]))",
        "found.append(max(row[0], row[1])) → found.append(max(row[0], row[2]))",
        "found = [] → ",
        " → break",
        " → return found",
    } <= set(found)
    # the larger of two numbers is the same whichever comes first
    assert not any("max(row[1], row[0])" in change for change in found)
    assert '"""Sums of rows.""" → ' not in found


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ("for 3 you returned 5e-07 s, expected 5e-07 s: look", True),
        ("for 3 you returned 5.1e-07 s, expected 5e-07 s: look", False),
        ("for 3 you returned True, expected one of 1, 2", False),
        ("make must run once", False),
    ],
)
def test_verdict_that_says_the_same_twice_is_noticed(said, same):
    assert mutants.alike(said) == same


def test_report_lists_what_a_check_lets_pass(monkeypatch):
    def lenient(answer):
        got = exercises.call(answer, 1)
        if got != 1:
            raise exercises.Wrong(f"for 1 you returned {got}, expected 1")

    exercise = exercises.Exercise(
        number="77.1",
        title="What is left",
        name="left",
        stars=1,
        check=lenient,
        hints=[],
        solution="def left(x):\n    return x if x > 0 else 0",
        praise="Good.",
    )
    known = {
        "return x if x > 0 else 0 → return x if True else 0": (
            "There is never less than nothing."
        ),
        "gone → gone": "Nothing does this any longer.",
    }
    monkeypatch.setattr(exercises, "find_exercise", lambda number: exercise)
    monkeypatch.setattr(
        mutants, "all_answers", lambda: {"77.1": Answers([], {}, known)}
    )
    monkeypatch.setattr(exercises, "_remember", lambda number, state: None)
    monkeypatch.setattr(exercises, "SECONDS", 5)
    lines, count = mutants.report("77.1")
    assert lines[0].startswith("77.1 ")
    assert "    accepted: return x if x > 0 else 0 → return x if x >= 0 else 0" in lines
    assert "    listed as equivalent, but refused or no mutant: gone → gone" in lines
    assert count["equivalent"] == count["faults"] == 1 and count["accepted"] > 1
    assert count["refused"] + count["accepted"] + 1 == count["mutants"]
    assert not any("True" in line for line in lines)
    assert not mutants.is_good(count, refused=0.97, equivalent=0.2)

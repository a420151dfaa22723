"""Answers to the exercises, right ones and wrong ones, for the tests of their checks.

Those of a lesson stand in answers/<lesson>.py as a dict named ANSWERS. What differs
little from the solution is written as an edit of it.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path

from course import exercises

SOLUTION = {
    number: exercise.solution for number, exercise in exercises.all_exercises().items()
}


@dataclass(frozen=True)
class Answers:
    """Answers to one exercise, each as source code.

    right: other right answers than the solution, the commonest idiom and an unusual one
    among them.
    wrong: typical wrong answers as {source: fragment of the message they must get}.
    equivalent: changes to the solution (as tests/exercises/mutants.py writes them) that
    leave it right, with the reason.
    """

    right: list
    wrong: dict
    equivalent: dict = field(default_factory=dict)


def edit(source, *changes):
    """`source` after all changes; ValueError where a change does not do what it says.

    changes: pairs (old, new) of texts, made one after the other. The old text occurs
    once, or as often as a third number says.
    """
    for old, new, *times in changes:
        expected = times[0] if times else 1
        if source.count(old) != expected or old == new:
            raise ValueError(
                f"{old!r} occurs {source.count(old)} times, not {expected}, or is not"
                f" changed, in:\n{source}"
            )
        source = source.replace(old, new)
    return source


def all_answers():
    """number → Answers, of all lessons."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[0-9][0-9]_*.py")):
        found |= importlib.import_module(f"{__name__}.{path.stem}").ANSWERS
    return found

"""Exercises: check an answer, give hints, show the solution, keep the score.

Each lesson's exercises stand in notebooks/exercises/<lesson>.py as a list named EXERCISES.
"""

import functools
import importlib.util
import json
from dataclasses import dataclass, field

from utils.devices import COURSE
from utils.messages import LabError, strict

FOLDER = COURSE / "notebooks" / "exercises"
SCORE = COURSE / ".progress.json"
DOTS = ...


class ExerciseError(LabError):
    """An exercise that does not exist."""


class Wrong(Exception):
    """An answer that is not right; the message says which input, what came out, what was expected and why."""


class NotAnswered(Exception):
    """The stub was left as it is."""


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number: "02.1". title: a few words. name: what the answer is called in the lesson. check: function of the
    answer that raises Wrong. hints: up to three, from a nudge to almost the answer. solution: source code that
    defines `name`. praise: the sentence shown when it is right, which goes one step deeper. wrong: typical wrong
    answers as {source: fragment of the message they must get}.
    """

    number: str
    title: str
    name: str
    check: object
    hints: list
    solution: str
    praise: str
    wrong: dict = field(default_factory=dict)


def call(answer, *args, shown=None):
    """Call the reader's function; NotAnswered if it still returns `...`, Wrong if it raises.

    shown: how the message names the input; by default its repr.
    """
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    shown = ", ".join(map(repr, args)) if shown is None else shown
    try:
        result = answer(*args)
    except Exception as error:
        raise Wrong(f"for {shown} your function raised {type(error).__name__}: {error}") from error
    if result is DOTS:
        raise NotAnswered
    return result


@functools.cache
def lesson_exercises(lesson):
    """Exercises of one lesson ("02"), as a dict number → Exercise."""
    found = sorted(FOLDER.glob(f"{lesson}_*.py"))
    if not found:
        return {}
    spec = importlib.util.spec_from_file_location(f"exercises_{lesson}", found[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {exercise.number: exercise for exercise in module.EXERCISES}


def all_exercises():
    """Exercises of all lessons, as a dict number → Exercise."""
    lessons = sorted(path.name[:2] for path in FOLDER.glob("[0-9][0-9]_*.py"))
    return {number: e for lesson in lessons for number, e in lesson_exercises(lesson).items()}


def find(number):
    exercise = lesson_exercises(str(number)[:2]).get(number)
    if exercise is None:
        raise ExerciseError(f"there is no exercise {number!r}; there are {', '.join(all_exercises())}")
    return exercise


# ---------------------------------------------------------------------------------------------------------------
# What the reader calls

_hints_given = {}
_score = None


def check(number, answer):
    """Judge the answer to exercise `number` and print the verdict. Raises nothing for a wrong answer."""
    exercise = find(number)
    try:
        if answer is DOTS:
            raise NotAnswered
        exercise.check(answer)
    except NotAnswered:
        print(f'○ {number} · {exercise.title} · not answered yet. Replace the dots; stuck? hint("{number}")')
    except Wrong as problem:
        _remember(number, "tried")
        print(f'✗ {number} · {exercise.title} · {problem}\n  Stuck? hint("{number}")')
    except Exception as error:  # what the answer is, the check did not foresee: a verdict, not a traceback
        _remember(number, "tried")
        print(f"✗ {number} · {exercise.title} · this cannot be judged ({type(error).__name__}: {error})")
    else:
        _remember(number, "solved")
        print(f"✓ {number} · {exercise.title} · {exercise.praise}")


def hint(number):
    """Print the next hint for exercise `number`."""
    exercise = find(number)
    given = _hints_given.get(number, 0)
    if given == len(exercise.hints):
        print(f'No more hints for {number}. The answer: solution("{number}")')
        return
    _hints_given[number] = given + 1
    print(f"Hint {given + 1} of {len(exercise.hints)}: {exercise.hints[given]}")


def solution(number):
    """Show one right answer to exercise `number` as highlighted code."""
    from IPython.display import Code, display

    display(Code(find(number).solution.strip(), language="python"))


def progress():
    """Print the table of all exercises: ✓ solved, ✗ tried, ○ open."""
    score = _load_score()
    exercises = all_exercises()
    marks = {"solved": "✓", "tried": "✗"}
    for number, exercise in exercises.items():
        print(f"{marks.get(score.get(number), '○')} {number}  {exercise.title}")
    print(f"{sum(score.get(number) == 'solved' for number in exercises)} of {len(exercises)} solved")


def _load_score():
    global _score
    if _score is None:
        _score = {}
        if not strict() and SCORE.exists():
            try:
                _score = json.loads(SCORE.read_text(encoding="utf-8"))
            except ValueError:
                print(f"{SCORE.name} is damaged: your earlier score is lost, a new one starts here.")
    return _score


def _remember(number, state):
    score = _load_score()
    if score.get(number) != "solved":
        score[number] = state
    if strict():
        return  # tests and stored outputs must not depend on anybody's score
    try:
        SCORE.write_text(json.dumps(score, indent=1, sort_keys=True), encoding="utf-8")
    except OSError:
        print("(Your score cannot be written here; it lasts until this kernel stops.)")

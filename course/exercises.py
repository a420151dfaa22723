"""Exercises: check an answer, give hints, show the solution, show the score.

Each lesson's exercises stand in notebooks/exercises/<lesson>.py as a list named
EXERCISES. What only their checks use they import from `exercises.doubles`.
"""

import ctypes
import html
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from course import widgets
from course.answers import NotAnswered, Wrong, plain, unanswered
from course.paths import COURSE
from course.plots import GRAY, GREEN, VERMILION
from course.score import keep_score, load_score
from device_lab import LabError

FOLDER = COURSE / "notebooks" / "exercises"
if str(FOLDER.parent) not in sys.path:
    sys.path.insert(0, str(FOLDER.parent))  # for `import exercises.doubles`
# What a check may take. Those of the course compute for up to four seconds, which were
# more than a minute where sixteen processes shared two cores.
SECONDS = 120


class ExerciseError(LabError):
    """An exercise that does not exist."""


class TimeUp(BaseException):
    """Raised inside an answer that does not end. No Exception, so that `except
    Exception` does not catch it.
    """


# how many an exercise takes a reader, by its stars
MINUTES = {1: 4, 2: 7, 3: 12}


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number: "02.1".
    title: a few words.
    name: what the answer is called in the lesson.
    stars: 1 "use the call", 2 or 3; MINUTES says how long they take.
    check: function of the answer that raises Wrong.
    hints: up to three, from a nudge to almost the answer.
    solution: source code that defines `name`.
    praise: the sentence shown when it is right, which goes one step deeper.
    """

    number: str
    title: str
    name: str
    stars: int
    check: Callable
    hints: list
    solution: str
    praise: str


def lesson_exercises(lesson):
    """Exercises of one lesson ("02") as a dict number → Exercise, with inputs that no
    answer has touched.
    """
    exercises = {}
    for path in FOLDER.glob(f"{lesson}_*.py"):
        spec = importlib.util.spec_from_file_location(
            f"exercises_{path.stem[:2]}", path
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        exercises |= {exercise.number: exercise for exercise in module.EXERCISES}
    return exercises


def all_exercises():
    """Exercises of all lessons, as a dict number → Exercise."""
    return dict(sorted(lesson_exercises("[0-9][0-9]").items()))


def find_exercise(number):
    """The Exercise of this number; ExerciseError where there is none."""
    exercise = lesson_exercises(str(number)[:2]).get(number)
    if exercise is None:
        raise ExerciseError(
            f"there is no exercise {number!r}; there are {', '.join(all_exercises())}"
        )
    return exercise


# --------------------------------------------------------------------------------------
# What the reader calls

_hints_given = {}


def check(number: str, answer) -> None:
    """Judge the answer to exercise `number` ("02.1") and show the verdict: ✓ right, ✗
    not right, ○ still the dots; with buttons for hints and the solution where there are
    widgets.

    A wrong answer raises nothing; ExerciseError where there is no such exercise.
    """
    exercise = find_exercise(number)
    problem = _judge(exercise, answer)
    name, stuck = f"{number} · {exercise.title}", f'tuck? hint("{number}")'
    if problem is None:
        _remember(number, "solved")
        _show(f"✓ {name} · {exercise.praise}")
    elif isinstance(problem, NotAnswered):
        text = f"○ {name} · not answered yet. Replace the dots"
        _show(text, f"; s{stuck}", exercise)
    else:
        _remember(number, "tried")
        # what the answer is, the check did not foresee: a verdict, not a traceback
        if not isinstance(problem, Wrong):
            first = str(problem).partition("\n")[0]
            problem = f"this cannot be judged ({type(problem).__name__}: {first})"
        _show(f"✗ {name} · {problem}", f"\n  S{stuck}", exercise)


def _show(verdict, stuck="", exercise=None):
    """Show a verdict: as text, followed by `stuck`; where there are widgets, beside a
    bar in its color, with buttons below it for an exercise that is not solved.
    """
    if not widgets.on_page():
        return print(f"{verdict}{stuck}")
    from IPython.display import display

    color = {"✓": GREEN, "✗": VERMILION}.get(verdict[0], GRAY)
    data = {"text/plain": verdict, "text/html": _page(verdict, f"6px solid {color}")}
    display(data, raw=True)
    if exercise:
        text = f'Stuck? In a cell of its own: hint("{exercise.number}")'
        widgets.show(_buttons(exercise), {"text/plain": text})


def _page(text, border="none"):
    style = f"border-left: {border}; padding-left: 0.7em; margin: 0"
    style += "; white-space: pre-wrap; word-break: normal"
    return f'<pre style="{style}">{html.escape(text)}</pre>' if text else ""


def _buttons(exercise):
    """A box with a button for the next hint, which those given stay below, and one for
    the solution.
    """
    from ipywidgets import HTML, Button, HBox, VBox

    hints, code = HTML(_page(_given(exercise))), HTML()
    more, solve = Button(description="Hint"), Button(description="Solution")

    def give(button):
        _give(exercise)
        hints.value = _page(_given(exercise))

    def show(button):
        code.value = _page(exercise.solution.strip())

    more.on_click(give)
    solve.on_click(show)
    return VBox([HBox([more, solve]), hints, code])


def _judge(exercise, answer):
    """What the check raised, or None. In a thread, which can be left behind if the
    answer never ends. Twice: an answer must not live from what the first time has left.
    """
    raised = []

    def judge():
        try:
            if unanswered(answer):
                raise NotAnswered
            exercise.check(plain(answer))
            try:
                exercise.check(plain(answer))
            except (Wrong, NotAnswered) as error:
                raise Wrong(
                    f"right at first, but not when it is called again: {error}"
                ) from None
            raised.append(None)
        except BaseException as error:
            raised.append(error)

    _use_up_first_fake_mode()
    thread = threading.Thread(target=judge, daemon=True)
    thread.start()
    try:
        thread.join(SECONDS)
        # the first use of a part of PyTorch: slow on a cold disk, and broken if cut off
        while thread.is_alive() and _imports(thread):
            thread.join(SECONDS)
    finally:  # also if the reader interrupts
        if thread.is_alive():
            _stop(thread)
            thread.join(1)
    if raised and not isinstance(raised[0], TimeUp):
        return raised[0]
    problem = (
        f"your answer is still running after {SECONDS} seconds: does a loop never end,"
        " or does it wait for something that never comes?"
    )
    if thread.is_alive():
        problem += " It goes on in the background: restart the kernel."
    return Wrong(problem)


def _use_up_first_fake_mode():
    """Where a CUDA build finds no GPU, the first FakeTensorMode of a process puts
    something in place of its devices that ends with the thread (seen in 2.11), and the
    next one would crash. So the first is not that of a check.
    """
    if hasattr(torch._C, "_ensureCUDADeviceGuardSet") and not torch.cuda.is_available():
        torch._C._ensureCUDADeviceGuardSet()


def _stop(thread):
    """Raise TimeUp in a thread, at the next line of Python that it runs. What waits
    outside of Python, or catches everything, goes on.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUp)
    )


def _imports(thread):
    """Whether the thread is in the middle of an import."""
    calls = traceback.walk_stack(sys._current_frames().get(thread.ident))
    return any(
        frame.f_code.co_filename.startswith("<frozen importlib") for frame, _ in calls
    )


def hint(number: str) -> None:
    """Print the hints for exercise `number` that were given and the next one, from a
    nudge to almost the answer.
    """
    exercise = find_exercise(number)
    _give(exercise)
    print(_given(exercise))


def _give(exercise):
    _hints_given[exercise.number] = _hints_given.get(exercise.number, 0) + 1


def _given(exercise):
    """The hints that were given, as text."""
    given, hints = _hints_given.get(exercise.number, 0), exercise.hints
    lines = [
        f"Hint {n} of {len(hints)}: {text}" for n, text in enumerate(hints[:given], 1)
    ]
    if given > len(hints):
        answer = f'solution("{exercise.number}")'
        lines.append(f"No more hints for {exercise.number}. The answer: {answer}")
    return "\n".join(lines)


def solution(number: str) -> None:
    """Show one right answer to exercise `number` as highlighted code."""
    from IPython.display import Code, display

    display(Code(find_exercise(number).solution.strip(), language="python"))


def progress(lesson: str | None = None) -> None:
    """Print all exercises, or those of one lesson ("05"): ✓ solved, ✗ tried, ○ open.

    Below it, how many predictions were right, of those whose answer has been revealed.
    """
    exercises = all_exercises() if lesson is None else lesson_exercises(lesson)
    if not exercises:
        raise ExerciseError(
            f'there is no lesson {lesson!r}; write two digits, such as progress("05")'
        )
    score = load_score()
    marks = {"solved": "✓", "tried": "✗"}
    for number, exercise in exercises.items():
        print(
            f"{marks.get(str(score.get(number)), '○')} {number} "
            f" {'★' * exercise.stars:3}  {exercise.title}"
        )
    print(
        f"{sum(score.get(number) == 'solved' for number in exercises)} of"
        f" {len(exercises)} solved"
    )
    guesses = [
        kept
        for name, kept in score.items()
        if name.startswith(f"predict {lesson or ''}")
    ]
    judged = [
        kept["right"] is True
        for kept in guesses
        if isinstance(kept, dict) and "right" in kept
    ]
    if judged:
        print(f"predictions: {sum(judged)} of {len(judged)} right")


def _remember(number, state):
    if load_score().get(number) != "solved" and (lost := keep_score(number, state)):
        print(lost)

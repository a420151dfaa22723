"""Every solution passes its check; every stub and every listed wrong answer does not, with the intended message.

A fixed sample of the mutants as well; `make test-exercises` gives all of them to the checks.
"""

import random
import re
import textwrap
import threading
import time

import nbformat
import numpy as np
import pytest
import torch

from tests import mutants
from tests.conftest import ROOT
from utils import exercises
from utils.exercises import NotAnswered, Wrong

ALL = exercises.all_exercises()


def answer(exercise, source):
    names = {"torch": torch}
    exec(source, names)
    return names[exercise.name]


@pytest.fixture(autouse=True)
def no_score(monkeypatch, tmp_path):
    monkeypatch.setattr(exercises, "SCORE", tmp_path / "score.json")
    monkeypatch.setattr(exercises, "_score", None)
    monkeypatch.delenv("LAB_STRICT", raising=False)


def test_there_are_exercises():
    assert len(ALL) >= 3


@pytest.mark.parametrize("number", ALL)
def test_exercise_is_complete(number):
    exercise = ALL[number]
    assert 1 <= len(exercise.hints) <= 3 and exercise.wrong and exercise.title and exercise.praise.endswith(".")
    assert exercise.stars in (1, 2, 3) and len(set(map(textwrap.dedent, exercise.right))) >= 2
    assert exercise.solution.strip() not in map(str.strip, exercise.right)
    assert all(reason.endswith(".") for reason in exercise.equivalent.values())


@pytest.mark.parametrize("lesson", sorted({number[:2] for number in ALL}))
def test_each_lesson_has_an_exercise_to_use_the_call(lesson):
    assert any(exercise.stars == 1 for exercise in exercises.lesson_exercises(lesson).values())


@pytest.mark.parametrize("number", ALL)
def test_solution_passes(number, capsys):
    exercises.check(number, answer(ALL[number], ALL[number].solution))
    assert capsys.readouterr().out.startswith(f"✓ {number}")


@pytest.mark.parametrize(("number", "source"), [(n, source) for n, e in ALL.items() for source in e.right])
def test_other_right_answer_passes(number, source, capsys):
    exercises.check(number, answer(ALL[number], source))
    out = capsys.readouterr().out
    assert out.startswith(f"✓ {number}"), out


@pytest.mark.parametrize("number", ALL)
def test_sample_of_mutants_is_refused(number, monkeypatch):
    monkeypatch.setattr(exercises, "SECONDS", 5)
    known = ALL[number].equivalent
    for mutant, said in mutants.judged(number, lambda all: random.Random(number).sample(all, min(6, len(all)))):
        assert said[0] in "✗○" or mutant.change in known, f"accepted: {mutant.change}"
        assert not mutants.alike(said), said


@pytest.mark.parametrize(("number", "source"), [(n, source) for n, e in ALL.items() for source in e.wrong])
def test_wrong_answer_gets_its_message(number, source, capsys):
    exercises.check(number, answer(ALL[number], source))
    out = capsys.readouterr().out
    assert out[:2] in ("✗ ", "○ ") and ALL[number].wrong[source] in out, out


JUNK = [None, 5, "x", [], {}, (), [1] * 6, int, torch.ones(2)]
JUNK += [lambda *a, junk=junk: junk for junk in (None, 5, -1.5, "x", [], (None, None), torch.ones(2), True)]


@pytest.mark.parametrize("number", ALL)
def test_whatever_the_answer_check_gives_a_verdict_and_no_error(number, capsys):
    for junk in JUNK:
        exercises.check(number, junk)
        assert capsys.readouterr().out[:2] in ("✗ ", "○ "), junk


def stubs():
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            tags = cell.metadata.get("tags", [])
            if "exercise" in tags and "solved" not in tags:
                yield cell.source


@pytest.mark.parametrize("source", list(stubs()))
def test_stub_is_not_answered_and_raises_nothing(source, capsys):
    names = {"torch": torch, "check": exercises.check}
    exec(source, names)
    assert re.match(r"○ [\d.]+ .*not answered yet", capsys.readouterr().out)


def test_every_exercise_has_its_stub():
    asked = {n for source in stubs() for n in re.findall(r'check\("([\d.]+)"', source)}
    assert set(ALL) - asked == {"00.1"}  # solved in the lesson, to show what a right answer looks like


def test_answer_that_never_ends_gets_a_verdict(capsys, monkeypatch):
    def forever(x):
        while True:
            time.sleep(0.001)

    monkeypatch.setattr(exercises, "SECONDS", 0.2)
    before = threading.active_count()
    exercises.check("00.2", forever)
    assert "✗ 00.2 · Which type of device? · your answer had not ended after 0.2 seconds" in capsys.readouterr().out
    assert threading.active_count() == before


def test_answer_that_cannot_be_stopped_is_left_behind(capsys, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(exercises, "SECONDS", 0.2)
    exercises.check("00.2", lambda x: gate.wait())
    gate.set()
    assert "restart the kernel" in capsys.readouterr().out


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_answer_that_exits_gets_a_verdict(error, capsys):
    def leave(x):
        raise error

    exercises.check("00.2", leave)
    assert capsys.readouterr().out.startswith("✗ 00.2")


def test_answer_that_changes_its_input_spoils_nothing(capsys):
    def reverses(capability, arch_list):
        arch_list.reverse()
        return False

    exercises.check("01.2", reverses)
    exercises.check("01.2", answer(ALL["01.2"], ALL["01.2"].solution))
    assert capsys.readouterr().out.splitlines()[-1].startswith("✓ 01.2")


def test_function_gets_copies_and_numpy_results_become_pythons():
    given = [[1, 2], {"a": {3}}]
    result = exercises.call(lambda x: (x[0].clear(), x[1]["a"].clear(), [np.int64(4), (np.bool_(True),)])[-1], given)
    assert given == [[1, 2], {"a": {3}}]
    assert type(result[0]) is int and result[1][0] is True


@pytest.mark.parametrize(
    ("got", "expected", "texts"),
    [
        (5.04e-7, 5e-7, ("5.04e-07", "5e-07")),
        (0.1 + 0.2, 0.3, ("0.30000000000000004", "0.29999999999999999")),
        (5.0, 5, ("5.0", "5")),
        ([1, 2], (1, 2), ("[1, 2]", "(1, 2)")),
        (torch.ones(1), torch.ones(1, dtype=torch.float64), None),
        (float("nan"), float("nan"), None),
    ],
)
def test_got_and_expected_never_look_alike(got, expected, texts):
    found = exercises.apart(got, expected)
    assert texts is None or found == texts
    assert found[0] != found[1] or got is expected or got != got


def test_unknown_exercise_is_one_line():
    for function in (exercises.hint, exercises.solution, lambda n: exercises.check(n, 1)):
        with pytest.raises(exercises.ExerciseError) as caught:
            function("99.1")
        assert "there is no exercise '99.1'; there are 00.1, " in str(caught.value) and "\n" not in str(caught.value)


def test_hints_come_one_by_one_and_end(capsys, monkeypatch):
    monkeypatch.setattr(exercises, "_hints_given", {})
    for _ in range(len(ALL["00.2"].hints) + 1):
        exercises.hint("00.2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Hint 1 of 3: ") and lines[-1] == 'No more hints for 00.2. The answer: solution("00.2")'


def test_score_is_kept_and_a_damaged_one_is_replaced(capsys, monkeypatch):
    exercises.check("00.2", lambda x: x.device.type)
    monkeypatch.setattr(exercises, "_score", None)
    exercises.progress()
    assert "✓ 00.2" in capsys.readouterr().out
    exercises.SCORE.write_text("{")
    monkeypatch.setattr(exercises, "_score", None)
    exercises.progress()
    out = capsys.readouterr().out
    assert "damaged" in out and "○ 00.2" in out


def test_score_that_cannot_be_written_lasts_for_now(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(exercises, "SCORE", tmp_path / "no such folder" / "score.json")
    exercises.check("00.2", lambda x: x.device.type)
    exercises.progress()
    out = capsys.readouterr().out
    assert "cannot be written" in out and "✓ 00.2" in out


def test_call_turns_errors_and_dots_into_verdicts():
    with pytest.raises(Wrong, match="for 3 your function raised ZeroDivisionError"):
        exercises.call(lambda x: x / 0, 3)
    with pytest.raises(Wrong, match="raised ValueError: one$"):
        exercises.call(lambda x: (_ for _ in ()).throw(ValueError("one\ntwo")), 3)
    with pytest.raises(Wrong, match="^its own words$"):
        exercises.call(lambda x: (_ for _ in ()).throw(Wrong("its own words")), 3)
    with pytest.raises(NotAnswered):
        exercises.call(lambda x: ..., 3)
    with pytest.raises(NotAnswered):
        exercises.call(lambda x: (x, ...), 3)
    with pytest.raises(Wrong, match="expected a function"):
        exercises.call(5, 3)

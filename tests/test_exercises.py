"""Every solution passes its check; every stub and every listed wrong answer does not, with the intended message."""

import re

import nbformat
import pytest
import torch

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


@pytest.mark.parametrize("number", ALL)
def test_solution_passes(number, capsys):
    exercises.check(number, answer(ALL[number], ALL[number].solution))
    assert capsys.readouterr().out.startswith(f"✓ {number}")


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
    with pytest.raises(NotAnswered):
        exercises.call(lambda x: ..., 3)
    with pytest.raises(Wrong, match="expected a function"):
        exercises.call(5, 3)

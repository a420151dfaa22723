"""Every solution passes its check, and so does every right answer of
tests/exercises/answers; every stub and every wrong answer does not, with the intended
message. What else the checks let pass, `make test-exercises` reports.
"""

import copy
import html
import re
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch

from course import exercises, expect, score
from course.answers import NotAnswered, Wrong, call
from tests.conftest import ROOT, errors_of, text_of
from tests.exercises.answers import all_answers, edit

ALL = exercises.all_exercises()
ANSWERS = all_answers()


def answer(exercise, source):
    names = {"torch": torch}
    exec(source, names)
    return names[exercise.name]


@pytest.fixture(autouse=True)
def no_score(monkeypatch, tmp_path):
    monkeypatch.setattr(score, "SCORE", tmp_path / "score.json")
    monkeypatch.setattr(score, "_score", None)
    monkeypatch.delenv("LAB_STRICT", raising=False)
    # a package of the site's builder, which no lesson may expect
    monkeypatch.setitem(sys.modules, "tabulate", None)


def test_every_exercise_has_answers():
    assert list(ANSWERS) == list(ALL)


@pytest.mark.parametrize("number", ALL)
def test_exercise_is_complete(number):
    exercise, answers = ALL[number], ANSWERS[number]
    assert 1 <= len(exercise.hints) <= 3
    assert exercise.title
    assert exercise.praise.endswith(".")
    assert exercise.stars in (1, 2, 3)
    assert len(set(map(textwrap.dedent, answers.right))) >= 2
    assert exercise.solution.strip() not in map(str.strip, answers.right)
    assert answers.wrong
    assert all(reason.endswith(".") for reason in answers.equivalent.values())
    lesson = [other for other in ALL.values() if other.number[:2] == number[:2]]
    assert any(other.stars == 1 for other in lesson)  # one to use the call


@pytest.mark.parametrize("change", [("z", "y"), ("x", "y"), ("x", "x", 2)])
def test_edit_that_does_not_do_what_it_says_is_an_error(change):
    with pytest.raises(ValueError, match="occurs"):
        edit("x + x", change)


def answers():
    """(number, source, signs of the verdict, what it says) of the solutions and of all
    answers.
    """
    for number, exercise in ALL.items():
        for source in [exercise.solution, *ANSWERS[number].right]:
            yield number, source, "✓", ""
        for source, message in ANSWERS[number].wrong.items():
            yield number, source, "✗○", message


@pytest.mark.parametrize(("number", "source", "signs", "message"), list(answers()))
def test_answer_gets_its_verdict(number, source, signs, message, capsys):
    exercises.check(number, answer(ALL[number], source))
    out = capsys.readouterr().out
    assert out[0] in signs and out[1:].startswith(f" {number} ") and message in out, out


NAN = float("nan")
JUNK = [None, 5, "x", [], {}, (), [1] * 6, int, torch.ones(2)]
JUNK += [
    lambda *a, junk=junk: junk
    for junk in (None, 5, -1.5, NAN, "x", [], (None, None), torch.ones(2), True)
]


@pytest.mark.parametrize("junk", JUNK)
def test_whatever_the_answer_is_there_is_a_verdict_and_no_error(junk, capsys):
    exercises.check("01.3", junk)
    assert capsys.readouterr().out[:2] in ("✗ ", "○ ")


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


def forever(x):
    while True:
        pass


def leave(error):
    raise error


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (forever, "never comes?\n"),
        (lambda x: time.sleep(5), "goes on in the background: restart the kernel.\n"),
        (lambda x: leave(SystemExit), "this cannot be judged (SystemExit: )\n"),
        (
            lambda x: leave(KeyboardInterrupt),
            "this cannot be judged (KeyboardInterrupt: )\n",
        ),
    ],
)
def test_answer_that_does_not_come_back_gets_a_verdict(
    function, said, capsys, monkeypatch
):
    monkeypatch.setattr(exercises, "SECONDS", 0.5)
    threads = threading.active_count()
    exercises.check("00.1", function)
    out = capsys.readouterr().out
    assert out.startswith("✗ 00.1 · Which type of device? · ") and said in out
    if function is forever:
        assert "still running after 0.5 seconds: does a loop never end" in out
        assert threading.active_count() == threads  # the loop has ended


def test_answer_that_changes_its_input_spoils_nothing(capsys):
    def reverses(capability, arch_list):
        arch_list.reverse()
        return False

    exercises.check("01.3", reverses)
    exercises.check("01.3", answer(ALL["01.3"], ALL["01.3"].solution))
    assert capsys.readouterr().out.splitlines()[-1].startswith("✓ 01.3")


def test_import_is_not_cut_off(capsys, monkeypatch, tmp_path):
    # what PyTorch does once, in the first check of a process, is no part of it
    exercises.check("00.1", lambda x: x.device.type)
    capsys.readouterr()
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(1.5)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(exercises, "SECONDS", 1)

    def imports(x):
        import slow_to_import  # noqa: F401

        return x.device.type

    exercises.check("00.1", imports)
    assert capsys.readouterr().out.startswith("✓ 00.1")


def test_answer_that_lives_from_the_first_check_is_refused(capsys):
    seen = []

    def remembers(x):
        seen.append(x)
        return x.device.type if len(seen) <= 6 else None

    exercises.check("00.1", remembers)
    assert "right at first, but not when it is called again: for" in (
        capsys.readouterr().out
    )


def fill(x):
    with torch.no_grad():
        x.fill_(7)


CHANGES = [
    (list.reverse, [3, 1]),
    (lambda x: x[0].append(1), [[]]),
    (lambda x: x["a"].clear(), {"a": {3}}),
    (lambda x: x.popitem(), {"a": 1}),
    (lambda x: x.sort(), np.array([3, 1])),
    (fill, torch.ones(2)),
    (fill, torch.ones(2, requires_grad=True)),
    (lambda x: x.requires_grad_(), torch.ones(2)),
    (lambda x: x.sum().backward(), torch.ones(2, requires_grad=True)),
    (lambda x: fill(x[0]["a"]), [{"a": torch.ones(2)}]),
    (lambda x: fill(x.weight), torch.nn.Linear(1, 1)),
    (lambda x: x.eval(), torch.nn.Dropout()),
]


@pytest.mark.parametrize(("change", "value"), CHANGES)
def test_answer_that_changes_what_belongs_to_the_caller_is_refused(change, value):
    def answer(first, second):
        change(second)
        return 5

    text = "^for 1, x your function changed second.*, which belongs to the caller: .*$"
    with pytest.raises(Wrong, match=text):
        call(answer, 1, copy.deepcopy(value), shown="1, x")
    value = copy.deepcopy(value)
    assert call(answer, 1, value, shown="1, x", changes=[value]) == 5
    nothing = lambda first, second: 5  # noqa: E731
    assert call(nothing, 1, copy.deepcopy(value), shown="1, x") == 5


def test_what_cannot_be_read_is_left_alone():
    nan = torch.tensor([float("nan"), -0.0])
    for x in (nan, torch.ones(2, device="meta"), torch.eye(2).to_sparse(), iter("ab")):
        assert call(lambda x: 5, x, shown="x") == 5


def test_function_gets_copies_and_numpy_results_become_pythons():
    given = [[1, 2], {"a": {3}}]
    result = call(
        lambda x: (x[0].clear(), x[1]["a"].clear(), [np.int64(4), (np.bool_(True),)])[
            -1
        ],
        given,
        changes=[given],
    )
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
    found = expect.distinct_texts(got, expected)
    assert texts is None or found == texts
    assert found[0] != found[1] or got is expected or got != got


def test_unknown_exercise_is_one_line():
    for function in (
        exercises.hint,
        exercises.solution,
        lambda n: exercises.check(n, 1),
    ):
        with pytest.raises(exercises.ExerciseError) as caught:
            function("99.1")
        assert "there is no exercise '99.1'; there are 00.1, " in str(
            caught.value
        ) and "\n" not in str(caught.value)


def test_hints_come_one_by_one_stay_and_end(capsys, monkeypatch):
    monkeypatch.setattr(exercises, "_hints_given", {})
    hints = [f"Hint {n} of 3: {h}" for n, h in enumerate(ALL["00.1"].hints, 1)]
    for given in (1, 2, 3):
        exercises.hint("00.1")
        assert capsys.readouterr().out.splitlines() == hints[:given]
    end = 'No more hints for 00.1. The answer: solution("00.1")'
    for _ in range(2):
        exercises.hint("00.1")
        assert capsys.readouterr().out.splitlines() == [*hints, end]


@pytest.fixture
def page(monkeypatch):
    """What `check` displays on a page with widgets, and the boxes among it."""
    monkeypatch.setattr(exercises, "_hints_given", {})
    monkeypatch.setattr(exercises.widgets, "on_page", lambda: True)
    shown, boxes = [], []
    display = "IPython.display.display"
    monkeypatch.setattr(display, lambda data, **options: shown.append(data))
    show = exercises.widgets.show

    def keep(box, data):
        boxes.append(box)
        show(box, data)

    monkeypatch.setattr(exercises.widgets, "show", keep)
    return SimpleNamespace(shown=shown, boxes=boxes)


@pytest.mark.parametrize(
    ("answer", "mark", "color", "parts"),
    [
        (lambda x: x.device.type, "✓", "#009E73", 1),
        (lambda x: "<b>", "✗", "#D55E00", 2),
        (lambda x: ..., "○", "#7F7F7F", 2),
    ],
)
def test_a_page_with_widgets_shows_a_bar(page, capsys, answer, mark, color, parts):
    exercises.check("00.1", answer)
    verdict, *stuck = page.shown
    assert len(page.shown) == parts and capsys.readouterr().out == ""
    assert verdict["text/plain"].startswith(f"{mark} 00.1 · ")
    assert color in verdict["text/html"] and "<b>" not in verdict["text/html"]
    # for who opens the notebook again, without its kernel
    assert all('hint("00.1")' in data["text/plain"] for data in stuck)


def test_buttons_give_hints_and_the_solution(page):
    hints = [f"Hint {n} of 3: {h}" for n, h in enumerate(ALL["00.1"].hints, 1)]
    exercises.check("00.1", lambda x: ...)
    row, given, code = page.boxes[0].children
    more, solve = row.children
    assert (more.description, solve.description) == ("Hint", "Solution")
    assert given.value == code.value == ""
    for n in (1, 2, 3):
        more.click()
        assert f">{html.escape(chr(10).join(hints[:n]))}</pre>" in given.value
    solve.click()
    assert f">{html.escape(ALL['00.1'].solution.strip())}</pre>" in code.value
    exercises.check("00.1", lambda x: 1)
    assert page.boxes[1].children[1].value == given.value  # to be read again


def test_what_is_stored_is_a_line(run):
    source = 'check("00.1", lambda x: ...)'
    (stored,), (shown,) = run(source, strict=True), run(source)
    assert [output.output_type for output in stored.outputs] == ["stream"]
    assert text_of(stored).strip().endswith('Replace the dots; stuck? hint("00.1")')
    assert text_of(shown).startswith("○ 00.1 · ") and not errors_of(shown)
    assert exercises.widgets.VIEW in shown.outputs[1].data


def test_score_is_kept_and_a_damaged_one_is_replaced(capsys, monkeypatch):
    exercises.check("00.1", lambda x: x.device.type)
    monkeypatch.setattr(score, "_score", None)
    exercises.progress()
    assert "✓ 00.1" in capsys.readouterr().out
    score.SCORE.write_text("{")
    monkeypatch.setattr(score, "_score", None)
    exercises.progress()
    out = capsys.readouterr().out
    assert "damaged" in out and "○ 00.1" in out


def test_progress_shows_one_lesson(capsys):
    exercises.check("00.1", lambda x: x.device.type)
    score.keep_score("predict 00.a", {"said": "1", "right": True})
    score.keep_score("predict 05.a", {"said": "1", "right": False})
    capsys.readouterr()
    exercises.progress("00")
    *rows, solved, predictions = capsys.readouterr().out.splitlines()
    assert [row[2:6] for row in rows] == list(exercises.lesson_exercises("00")) and any(
        "✓ 00.1" in row for row in rows
    )
    assert (
        solved == f"1 of {len(rows)} solved"
        and predictions == "predictions: 1 of 1 right"
    )
    exercises.progress()
    out = capsys.readouterr().out
    assert (
        "○ 05.1" in out and f"1 of {len(ALL)} solved\npredictions: 1 of 2 right" in out
    )
    with pytest.raises(
        exercises.ExerciseError, match="there is no lesson '5'; write two digits"
    ):
        exercises.progress("5")


def test_score_that_cannot_be_written_lasts_for_now(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(score, "SCORE", tmp_path / "no such folder" / "score.json")
    exercises.check("00.1", lambda x: x.device.type)
    exercises.progress()
    out = capsys.readouterr().out
    assert "cannot be written" in out and "✓ 00.1" in out


def test_the_first_fake_mode_of_a_process_is_not_that_of_a_check(monkeypatch):
    threads = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    first = "_ensureCUDADeviceGuardSet"
    monkeypatch.setattr(
        torch._C,
        first,
        lambda: threads.append(threading.current_thread()),
        raising=False,
    )
    exercises.check("00.1", lambda x: x.device.type)
    assert threads[0] is threading.main_thread()


def test_call_turns_errors_and_dots_into_verdicts():
    with pytest.raises(Wrong, match="for 3 your function raised ZeroDivisionError"):
        call(lambda x: x / 0, 3)
    with pytest.raises(NotAnswered):
        call(lambda x: ..., 3)
    with pytest.raises(NotAnswered):
        call(lambda x: {x: ...}, 3)
    with pytest.raises(Wrong, match="expected a function"):
        call(5, 3)


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (lambda: expect.number(True, "x = 3"), "you returned True, expected a number"),
        (lambda: expect.real(None, "x = 3"), "you returned None, expected a number"),
        (
            lambda: expect.numbers((1, "a"), 2, "x = 3", "a pair"),
            "you returned (1, 'a'), expected a pair",
        ),
        (
            lambda: expect.equal(1, True, "x = 3", "it is odd"),
            "you returned 1, expected True: it is odd",
        ),
        (
            lambda: expect.close(4, 5.5, "x = 3", lambda: "half is added", unit=" s"),
            "you returned 4 s, expected 5.5 s: half is added",
        ),
        (
            lambda: expect.close(
                2.0, 4, "x = 3", "why", [(2, "that is half")], "it is"
            ),
            "it is 2, expected 4: that is half",
        ),
        (
            lambda: expect.tensor(torch.ones(2), torch.tensor([1, 1]), "x = 3"),
            "you returned torch.float32 of shape (2,), expected torch.int64 of shape"
            " (2,)",
        ),
        (
            lambda: expect.tensor(torch.ones(1), torch.zeros(1), "x = 3", "it is x"),
            "you returned [1.0], expected [0.0]: it is x",
        ),
    ],
)
def test_expectations_say_input_what_came_out_what_was_expected_and_why(
    expectation, said
):
    with pytest.raises(Wrong) as caught:
        expectation()
    assert str(caught.value) == f"for x = 3 {said}"

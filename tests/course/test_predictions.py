"""Predictions: asked with buttons or as a line of text, kept with the score, compared
with the answer.
"""

import html
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import IPython
import ipywidgets  # noqa: F401 (with the real get_ipython)
import pytest

from course import exercises, predictions, score
from course.predictions import predict, reveal
from device_lab import LabError
from tests.conftest import ROOT, errors_of, text_of

RACE = ("05.race", "The sum will be", "4", "0", "an error")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def no_score(monkeypatch, tmp_path):
    monkeypatch.setattr(score, "SCORE", tmp_path / "score.json")
    monkeypatch.setattr(score, "_score", None)
    monkeypatch.delenv("LAB_STRICT", raising=False)
    new_kernel()


def new_kernel():
    predictions._asked.clear()
    predictions._revealed.clear()


@pytest.fixture
def ask(monkeypatch):
    """ask(key, question, *options): predict on a page with widgets; returns what the
    reader can see and do.
    """
    shown = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=True))

    def display(data, **options):
        if isinstance(data, dict):
            print(data["text/plain"])
        else:
            shown.append(data)

    monkeypatch.setattr("IPython.display.display", display)
    # the box itself is displayed there
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")

    def ask(*arguments):
        predict(*arguments)
        question, row, said = shown[-1].children
        buttons = {button.description: button for button in row.children}
        return SimpleNamespace(
            question=question.value,
            buttons=buttons,
            click=lambda name: buttons[name].click(),
            said=lambda: html.unescape(re.sub("<.*?>", "", said.value)),
            rich=lambda: said.value,
            color=lambda: re.search(r"rgb\((.*?)\)", said.value)[1],
        )

    return ask


def kept():
    return json.loads(score.SCORE.read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------


def test_buttons_and_a_guess_that_can_be_changed(ask, capsys):
    box = ask(*RACE)
    assert list(box.buttons) == ["4", "0", "an error"] and box.said() == ""
    assert box.question == "<b>Predict.</b> The sum will be …"
    for option in ("0", "an error", "4"):
        box.click(option)
        assert box.said().strip() == f"You said: {option}"
    assert kept() == {"predict 05.race": {"said": "4"}}
    reveal("05.race", "0")
    assert capsys.readouterr().out == "Not this time. You said 4; it is 0.\n"
    assert box.color() == predictions.COLORS[None]
    box.click("0")  # too late
    assert box.color() == predictions.COLORS[False]
    assert box.said().strip() == "Not this time. You said 4; it is 0."
    assert kept() == {"predict 05.race": {"said": "4", "right": False}}


def test_who_runs_all_first_and_chooses_then_sees_the_comparison_at_once(ask, capsys):
    box = ask(*RACE)
    reveal("05.race", "0")
    assert capsys.readouterr().out == "" and not score.SCORE.exists()
    box.click("0")
    assert box.said().strip() == "✓ You said 0, and 0 it is."
    assert kept() == {"predict 05.race": {"said": "0", "right": True}}
    assert ask(*RACE).said() == "✓ You said 0, and 0 it is."  # the cell run again


def test_the_chosen_button_is_marked_also_when_the_cell_runs_again(ask):
    def marked(box):
        return [
            (name, button.icon)
            for name, button in box.buttons.items()
            if button.button_style
        ]

    box = ask(*RACE)
    assert marked(box) == []
    box.click("4")
    box.click("0")
    assert marked(box) == marked(ask(*RACE)) == [("0", "check")]
    reveal("05.race", "4")
    box.click("4")  # too late
    assert marked(box) == marked(ask(*RACE)) == [("0", "check")]


def test_the_reason_follows_the_verdict_in_lines_of_88_columns(ask, capsys):
    why = "The consumer did not wait: it read the memory before the producer wrote it."
    box = ask(*RACE)
    reveal("05.race", "0", why)
    assert capsys.readouterr().out == f"{why}\n"  # without a guess, too
    box.click("4")
    reveal("05.race", "0", why=why)
    out = capsys.readouterr().out
    assert out.replace("\n", " ") == f"Not this time. You said 4; it is 0. {why} "
    assert [len(line) <= 88 for line in out.splitlines()] == [True, True]


def test_a_guess_outlives_its_kernel_but_not_its_option(ask, capsys):
    ask(*RACE).click("4")
    reveal("05.race", "0")
    new_kernel()
    box = ask(*RACE)
    assert box.said() == "You said: 4"
    box.click("0")
    reveal("05.race", "0")
    assert capsys.readouterr().out.splitlines()[-1] == "✓ You said 0, and 0 it is."
    new_kernel()
    assert ask(*RACE[:2], "four", "zero").said() == ""
    reveal("05.race", "zero")
    assert len(capsys.readouterr().out.splitlines()) == 0


def test_text_is_no_markup(ask):
    box = ask("02.x", "`a < b` & *c*?", "<b>", "&amp;")
    assert box.question == "<b>Predict.</b> <code>a &lt; b</code> &amp; *c*?"
    box.click("<b>")
    assert box.said().strip() == "You said: <b>"
    assert "<b>" not in box.rich()


@pytest.mark.parametrize(
    ("said", "answer", "words"),
    [
        ("an error", "0", "Not this time. You said “an error”; it is 0."),
        ("4", "an error", "Not this time. You said 4; the answer is “an error”."),
        ("an error", "an error", "✓ You said “an error”, and that is right."),
        # none of the options: for a reader no error
        ("4", "-17.5 GB/s", "Not this time. You said 4; it is -17.5 GB/s."),
    ],
)
def test_the_words_of_the_comparison(ask, capsys, said, answer, words):
    ask(*RACE).click(said)
    reveal("05.race", answer)
    assert capsys.readouterr().out == words + "\n"
    assert kept()["predict 05.race"]["right"] is (said == answer)


# --------------------------------------------------------------------------------------


def test_in_a_kernel_a_widget_and_strictly_a_line_that_can_be_stored(run):
    cells = {
        s: run(f"predict{RACE}", "reveal('05.race', '0')", strict=s)
        for s in (False, True)
    }
    for strict, (asked, revealed) in cells.items():
        assert not errors_of(asked) and bool(revealed.outputs) is strict
        (output,) = asked.outputs
        assert text_of(asked) == "Predict. The sum will be … 4 · 0 · an error"
        assert set(output.data) == {
            "text/plain",
            "text/html" if strict else WIDGET_VIEW,
        }
    # what is stored says the answer, as data, too
    (answer,) = cells[True][1].outputs
    assert answer.data == {"text/plain": "The answer: 0."}
    said = {"4": "You said 4; it is 0.", "0": "You said 0, and 0 it is."}
    said["an error"] = "You said “an error”; it is 0."
    revealed = {"key": "05.race", "answer": "0", "said": said}
    assert answer.metadata.device_lab.revealed == revealed
    asked = cells[True][0].outputs[0].metadata.device_lab.asked
    question = {"key": "05.race", "question": "The sum will be …"}
    assert asked == {**question, "options": list(RACE[2:])}
    page = cells[True][0].outputs[0].data["text/html"]
    assert (
        "<b>Predict.</b> The sum will be … <b>4</b> · <b>0</b> · <b>an error</b></div>"
        in page
    )


@pytest.mark.slow
def test_without_a_page_or_without_widgets():
    """Plain Python, IPython in a terminal, a kernel without ipywidgets."""
    code = f"""import sys; from types import SimpleNamespace; import IPython
from course import predictions, widgets
IPython.display.display = lambda data, **options: print(*data, data["text/plain"])
widgets.find_spec = lambda name: None
for shell in None, SimpleNamespace(), SimpleNamespace(kernel=1):
    IPython.get_ipython = lambda: shell
    predictions.predict{RACE}
assert "ipywidgets" not in sys.modules"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    line = "Predict. The sum will be … 4 · 0 · an error\n"
    rich = f"text/plain text/html {line}"
    assert done.stdout == line + rich + rich, done.stderr


# --------------------------------------------------------------------------------------


def test_strictly_a_wrong_reveal_is_an_error_and_no_score_is_touched(
    monkeypatch, capsys
):
    score.SCORE.write_text('{"predict 05.race": {"said": "4"}}')
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(
        LabError, match=r"^reveal\('05.race', '0'\): no predict above asks for it$"
    ):
        reveal("05.race", "0")
    predict(*RACE)
    capsys.readouterr()
    with pytest.raises(
        LabError, match=r"'17'\): the options are \('4', '0', 'an error'\)$"
    ):
        reveal("05.race", "17")
    reveal("05.race", "0", "It reads too early.")
    said = capsys.readouterr().out
    assert said == "The answer: 0. It reads too early.\n" and kept() == {
        "predict 05.race": {"said": "4"}
    }


def test_progress_counts_what_has_been_revealed(ask, capsys):
    # as it was before there were predictions
    score.SCORE.write_text('{"00.1": "solved"}')
    exercises.progress()
    out = capsys.readouterr().out
    assert "✓ 00.1" in out and out.endswith(" solved\n")
    for key, said in [("05.one", "4"), ("05.two", "0"), ("05.open", "0")]:
        ask(key, *RACE[1:]).click(said)
    reveal("05.one", "0")
    reveal("05.two", "0")
    capsys.readouterr()
    exercises.progress()
    out = capsys.readouterr().out
    assert "✓ 00.1" in out and out.endswith(" solved\npredictions: 1 of 2 right\n")


def test_a_score_that_cannot_be_written_lasts_for_now(
    ask, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(score, "SCORE", tmp_path / "no such folder" / "score.json")
    box = ask(*RACE)
    box.click("4")
    assert (
        box.said()
        == "You said: 4 (Your score cannot be written here; it lasts until this kernel"
        " stops.)"
    )
    reveal("05.race", "0")
    exercises.progress()
    out = capsys.readouterr().out
    assert out.startswith("Not this time. You said 4; it is 0.\n") and out.endswith(
        "predictions: 0 of 1 right\n"
    )


def test_two_kernels_keep_one_score(ask):
    ask(*RACE).click("0")
    # by a lesson in another kernel
    score.SCORE.write_text(json.dumps({**kept(), "02.1": "solved"}))
    ask(*RACE).click("4")
    assert kept() == {"02.1": "solved", "predict 05.race": {"said": "4"}}

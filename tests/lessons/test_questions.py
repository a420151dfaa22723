"""What of a lesson answers its questions, and what of that is folded."""

import nbformat
import pytest
from nbformat import v4

from tools import lab
from tools.lessons.notebooks import lessons
from tools.lessons.questions import explanation, find_answers, stray

ASK = 'predict("05.race", "The sum is", "4", "0")'


def text(source):
    return v4.new_markdown_cell(source)


def code(source, *outputs):
    """A code cell that shows these texts."""
    outputs = [v4.new_output("stream", text=output) for output in outputs]
    return v4.new_code_cell(source, outputs=outputs)


HOW_MANY, ASKED = text("**Predict.** How many?"), code(ASK, "asked")
REVEALED, OTHER = (code(f'reveal("05.{key}", "0")', "no") for key in ("race", "other"))
RUNS = [code("f = 1"), code("f", "1"), text("While it runs."), code("x", "0")]
FIGURE = [text("As a figure:"), code("b", "2"), text("Three."), code("c")]
BOTH = [text("Both at once."), code("b", "2"), text("Three."), code("c")]
ANSWERED = {  # cells → {index: key of the question that they answer}
    "up to its reveal and by the text below": (
        [ASKED, *RUNS, REVEALED, text("Zero."), code("g", "later"), OTHER],
        dict.fromkeys([2, 4, 5, 6], "05.race"),
    ),
    "up to the next text": (
        [HOW_MANY, code("a"), code("b", "2"), text("Two."), code("c", "3")],
        {2: "#0", 3: "#0"},
    ),
    "a bet": (
        [text("## 1 · Why?\n\n**Bet.** How many?"), code("b", "2"), text("Two.")],
        {1: "#0", 2: "#0"},
    ),
    "a text that only announces": (
        [HOW_MANY, code("a", "1"), *FIGURE],
        dict.fromkeys([1, 2, 3, 4], "#0"),
    ),
    "a text before anything is shown": (
        [HOW_MANY, code("a"), *BOTH],
        dict.fromkeys([2, 3, 4], "#0"),
    ),
    "a question inside stays open": ([HOW_MANY, ASKED, REVEALED], {2: "#0"}),
    "no code hides nothing": ([HOW_MANY, text("Two."), code("a", "1")], {}),
}


@pytest.mark.parametrize("cells, expected", ANSWERED.values(), ids=ANSWERED)
def test_which_cells_answer(cells, expected):
    assert find_answers(cells) == expected


@pytest.mark.parametrize(
    "new",
    ["## 2 · What now?", "### More", "**05.1** ★ Return it.", "**Predict.** And now?"],
)
def test_what_begins_below_is_no_explanation(new):
    assert list(find_answers([HOW_MANY, code("a", "1"), text(new)])) == [1]
    both = text(f"Two.\n\n{new}\n\nMore.")
    assert explanation([both], 0) == ("Two.", f"{new}\n\nMore.")


def test_a_last_paragraph_stays_open_where_it_leads_to_code():
    answer = text("Two.\n\nNow three of them.")
    assert explanation([answer, code("c")], 0) == ("Two.", "Now three of them.")
    for after in ([], [text("## 2 · Next")]):
        assert explanation([answer, *after], 0) == (answer.source, "")


@pytest.mark.parametrize(
    "asks",
    ["Two. And three?", "Is it `so?` or so?", "**Predict.** Two?\n\n## A\n\nWhy?"],
)
def test_a_question_outside_of_predict_and_bet_is_found(asks):
    assert len(list(stray(asks))) == 1


@pytest.mark.parametrize(
    "fine",
    [
        "## Why?\n\nSo.",
        "**Bet.** Two?\n\nOr three?",
        "**05.1** ★ Which?",
        "See [what?](a.md) and `b?`, “c?”.",
        "- Red? Section 2.",
        "| Why? | so |",
    ],
)
def test_what_may_ask(fine):
    assert list(stray(fine)) == []
    assert list(stray("Two.\n\nAnd three?", asks=True)) == []


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_no_copy_of_a_reader_shows_an_answer_in_words(path):
    """What answers is closed, up to the paragraph that leads on; code shows nothing."""
    whole, copy = nbformat.read(path, as_version=4), lab.for_reader(path)
    for index in find_answers(whole.cells):
        shown = copy.cells[index]
        if shown.cell_type == "code":
            assert shown.outputs == []
            continue
        explains, rest = explanation(whole.cells, index)
        opens, _, below = shown.source.partition("</details>")
        assert opens.startswith("<details><summary>The answer")
        assert below.count("\n\n") <= 1 + rest.count("\n\n")
        assert explains[:20] in opens or "](" in explains[:20]

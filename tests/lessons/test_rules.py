"""The parts of a lesson: every rule notices a lesson that breaks it; minutes, and what
folded cells become.
"""

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.lessons.small_lesson import (
    PATH,
    breaker,
    cell,
    code,
    drop,
    lesson,
    move,
    replace,
    tag,
)
from tools.lessons import minutes, notebooks, parts, rules

LONG = "\n".join(f"x{n} = {n}" for n in range(16))


@pytest.fixture
def broken(tmp_path, monkeypatch):
    return breaker(tmp_path, monkeypatch)


def problems(change):
    """Rules that the small lesson breaks after change(notebook)."""
    nb = lesson(PATH)
    change(nb)
    return list(rules.problems(nb, PATH, notebooks.badges(PATH)))


def both(*changes):
    return lambda nb: [change(nb) for change in changes]


BROKEN = [
    (move("setup", 2), "the second cell is not the set-up cell"),
    (drop("recipe"), "no cell `recipe`"),
    (replace("gpu", "3 · ", "2 · "), "sections are numbered [1, 2, 2, 4]"),
    (replace("sum-text", "2 and 4", "2 and 5"), "there is no section 5"),
    (drop("why-answer"), "predict('99.why') needs one reveal() after it"),
    (replace("ask-why", "99.why", "99.sum"), "predict('99.sum') stands twice"),
    (replace("why-answer", "99.why", "99.sum"), "predict('99.sum') needs one reveal()"),
    (move("why-answer", 3), "predict('99.why') needs one reveal() after it"),
    (
        replace("add", "reveal(", 'claim("a sum", total, at_least=2)\nreveal('),
        "cell add gives the answer to '99.sum' away",
    ),
    (
        replace("why-answer", '"yes"', '"yes", why="It is."'),
        "cell why-answer: fold the cell whose reveal() says why",
    ),
    (replace("draw", "# @title", "#"), "folded cell draw needs a line `# @title …`"),
    (tag("recipe", "fold"), "the folded cell recipe hides what the lesson is about"),
    (tag("ask-why", "fold"), "the folded cell ask-why hides what the lesson is about"),
    (code("recipe", LONG), "cell recipe has 16 lines, more than 15"),
]


@pytest.mark.parametrize("change, message", BROKEN)
def test_rule_notices(change, message):
    assert message in "\n".join(problems(change))


ELSEWHERE = "as section 9 of lesson 02, [section 8](02_tensors_on_devices.ipynb), 8.2"
KEPT = {
    "sections of other lessons": replace(
        "sum-text", "as sections 2", f"{ELSEWHERE}, 2"
    ),
    "a long folded cell": code("draw", f"# @title A\n{LONG}\ndraw = 1"),
    "a folded cell with a condition": both(
        code(
            "gpu-name",
            "# @title Its name\n#| requires: cuda\n#| name: small_name\n1",
        ),
        tag("gpu-name", "fold"),
    ),
    "what reveal() says is computed": replace("why-answer", '"yes"', "str(total)"),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_lesson_that_keeps_the_rules(change):
    assert problems(change) == []


# --------------------------------------------------------------------------------------
# Minutes


MARKED = new_markdown_cell("# `a` **b** | [c](https://d.org) (as f g) h")
MINUTES = {  # cell → minutes
    "marks, and where links lead": (MARKED, 7 / 120),
    "a prediction": (new_markdown_cell("**Predict.** One?"), 1.6 + 2 / 120),
    "three stars": (new_markdown_cell("**99.1** ★★★"), 12 + 2 / 120),
    "code": (new_code_cell("x\n\n" * 12), 1),
    "folded code": (new_code_cell("x\n" * 30, metadata={"tags": ["fold"]}), 0),
    "a question": (new_code_cell('predict("99.a", "A?", "b", "c")'), 1.6 + 1 / 12),
}


@pytest.mark.parametrize("counted, expected", MINUTES.values(), ids=MINUTES)
def test_minutes(counted, expected):
    assert minutes.minutes([counted]) == pytest.approx(expected)


def test_minutes_are_printed_of_a_lesson_and_its_sections(
    tmp_path, monkeypatch, capsys
):
    nb = lesson(PATH)
    replace("sum-text", "It is 2", "word " * 1200)(nb)  # ten minutes
    path = tmp_path / PATH
    nbformat.write(nb, path)
    monkeypatch.setattr(sys, "argv", ["minutes", str(path)])
    minutes.main()
    first, section, *_ = capsys.readouterr().out.splitlines()
    assert first == "99_small: core 28, all 41"
    assert section == "    16  1 · What is a sum?"


# --------------------------------------------------------------------------------------
# Folded cells


def test_fold_becomes_what_each_front_end_understands(broken):
    assert broken(lambda nb: None) == ""
    nb = nbformat.read(broken.path, as_version=4)
    for each in nb.cells:
        each.metadata.pop(parts.OUTPUTS_OF, None)
    assert cell(nb, "explorer").metadata == {}
    marks = {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["fold"],
    }
    for name in ("setup", "machine-diagram", "draw"):
        assert cell(nb, name).metadata == marks

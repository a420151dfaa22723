"""The anatomy of a lesson: every rule notices a lesson that breaks it; minutes, and
what folded cells become.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.lessons.small_lesson import (
    EXERCISES,
    breaker,
    cell,
    code,
    drop,
    lesson,
    move,
    output,
    replace,
    tag,
)
from tools.lessons import notebooks, rules

SILENT = {
    "metadata": {"device_lab": {"state": "unavailable"}},
    "data": {"text/plain": "–"},
}
VISIBLE = ["recipe", "add", "explorer", "gpu-name"]
TEXTS = [
    "recipe-text",
    "sum-text",
    "explorer-text",
    "gpu-text",
    "why-text",
    "exercises",
    "more-exercises",
    "deeper",
]
TEXTS += ["exercise-2-text", "exercise-3-text"]
LONG = "\n".join(f"x{n} = {n}" for n in range(16))


@pytest.fixture
def broken(tmp_path, monkeypatch):
    return breaker(tmp_path, monkeypatch)


def both(*changes):
    return lambda nb: [change(nb) for change in changes]


BROKEN = [
    (
        replace("title", "You will be able to", "Learn to"),
        "no sentence 'You will be able to …'",
    ),
    (replace("title", "**Core:**", "Core:"), "the line of facts lacks Core, Deeper"),
    (
        replace("title", " · **Deeper:** 1 minutes", ""),
        "the line of facts lacks Core, Deeper",
    ),
    (move("setup", 2), "the second cell is not the set-up cell"),
    (move("recipe", 9), "no cell `recipe` among the first nine"),
    (
        replace("recipe-text", "section 1", "below"),
        "no cell `recipe` with a text below it",
    ),
    (replace("deeper", "## Deeper", "### Deeper"), "no heading `## Deeper`"),
    (replace("sum-text", "It is 2", "very " * 7000), "minutes, more than 50"),
    (move("gpu", 27), "core of 2 numbered sections, not three to five"),
    (
        replace("gpu-text", "Its name", "So.\n\n## 3 · Its name"),
        "not the first line of its cell",
    ),
    (replace("gpu", "3 · ", ""), "the section 'What else?' has no number"),
    (replace("gpu", "3 · ", "2 · "), "sections are numbered [1, 2, 2, 4]"),
    (
        replace("machine", "**Bet.**", "Look:"),
        "predict() in the section '2 · What adds?'",
    ),
    (drop("remember"), "'What to remember' is not the last section of the core"),
    (move("exercises", 21), "'What to remember' is not the last section of the core"),
    (
        replace("remember", "- A", "- 1\n" * 6 + "- A"),
        "'What to remember' has 7 points",
    ),
    (
        replace("remember", "You can stop here.", ""),
        "does not say 'You can stop here.'",
    ),
    (
        replace("sum-text", "sections 2 and 4", "Section two"),
        "write 'Section two' with a number",
    ),
    (replace("sum-text", "2 and 4", "2 and 5"), "there is no section 5"),
    (output("display_data", *VISIBLE, **SILENT), "4 visible cells that show nothing"),
    (code("machine-diagram", "# @title Diagram: none\npass"), "no diagram"),
    (
        tag("machine-diagram"),
        "cell machine-diagram: a diagram stands alone in a folded cell",
    ),
    (
        replace("machine-diagram", "plots", "x = 1\nplots"),
        "cell machine-diagram: a diagram stands alone",
    ),
    (move("exercise-1", 20), "no exercise before the last third of the core"),
    (drop("ask-why"), "1 cells with predict(), fewer than two"),
    (replace("ask-why", "99.why", "99.sum"), "predict('99.sum') stands twice"),
    (
        replace("ask-why", "99.why", "98.why"),
        "predict('98.why'): the key does not begin with",
    ),
    (
        replace("ask-why", ', "no"', ""),
        "predict('99.why') has 1 options, not two to four",
    ),
    (drop("why-answer"), "predict('99.why') needs one reveal() after it"),
    (
        code("add", 'total = 2\nreveal("99.why", "no")\nreveal("99.sum", "2")'),
        "needs one reveal()",
    ),
    (move("why-answer", 6), "predict('99.why') needs one reveal() after it"),
    (replace("why-answer", "99.why", "99.how"), "reveal('99.how') has no predict()"),
    (
        replace("why-answer", '"yes"', '"maybe"'),
        "says [\"'maybe'\"], which is no option",
    ),
    (replace("draw", "# @title", "#"), "folded cell draw needs a line `# @title …`"),
    (
        replace("draw", "a line", "a line " * 9),
        "folded cell draw needs a line `# @title …` of at most 60",
    ),
    (tag("draw"), "cell draw has a line `# @title`, but is not folded"),
    (tag("recipe", "fold"), "the folded cell recipe hides what the lesson is about"),
    (tag("exercise-2", "exercise", "fold"), "the folded cell exercise-2 hides what"),
    (tag("ask-why", "fold"), "the folded cell ask-why hides what the lesson is about"),
    (
        code(
            "draw", "# @title A\nwith expect_error(TypeError, ''):\n    draw = 1 + ''"
        ),
        "the folded cell draw hides what",
    ),
    (
        both(
            code("gpu-name", "%%today a/b: fine\n# @title A\n1\n# ---- today\n2"),
            tag("gpu-name", "fold"),
        ),
        "the folded cell gpu-name hides what",
    ),
    (code("recipe", LONG), "cell recipe has 16 lines, more than 15"),
    (both(*map(drop, TEXTS)), "10 visible code cells, but only 7 text cells"),
]


@pytest.mark.parametrize("change, message", BROKEN)
def test_rule_notices(broken, change, message):
    assert message in broken(change)


KEPT = {
    "two of one lesson's sections": replace(
        "sum-text", "sections 2 and 4", "sections 1, 2 and 4"
    ),
    "a section of another lesson": replace(
        "sum-text", "as sections 2", "as section 9 of lesson 02, section 8.2, and 2"
    ),
    "a link to another lesson": replace(
        "sum-text", "as sections 2", "as [section 9](02_tensors_on_devices.ipynb), 2"
    ),
    "three silent cells": output("display_data", *VISIBLE[1:], **SILENT),
    "a silent cell that is folded": output(
        "display_data", *VISIBLE[1:], "draw", **SILENT
    ),
    "words about silence": output(
        "stream", *VISIBLE, name="stdout", text="Nobody has recorded it yet"
    ),
    "a long folded cell": code("draw", f"# @title A\n{LONG}\ndraw = 1"),
    "a folded cell with a condition": both(
        code("gpu-name", "%%requires cuda --name small_name\n# @title Its name\n1"),
        tag("gpu-name", "fold"),
    ),
    "what reveal() says is computed": replace("why-answer", '"yes"', "str(total)"),
}


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_lesson_that_keeps_the_rules(broken, change):
    assert broken(change) == ""


def test_the_lessons_that_are_built_otherwise_are_excused(monkeypatch):
    monkeypatch.setattr(rules, "OLD_FORM", {})
    nb = lesson(Path("99_a.ipynb"))
    drop("recipe")(nb)
    found = [
        "\n".join(rules.problems(nb, Path(f"{number}_a.ipynb"), ""))
        for number in ("00", "16", "99")
    ]
    assert [text.count("no cell `recipe`") for text in found] == [0, 0, 2]


@pytest.mark.parametrize(("number", "few"), [("00", ["0"]), ("99", ["0", "1", "2"])])
def test_a_lesson_has_three_exercises_and_lesson_00_one(monkeypatch, number, few):
    found, path = [], Path(f"{number}_a.ipynb")
    for known in (dict(list(EXERCISES.items())[:n]) for n in range(4)):
        monkeypatch.setattr(notebooks, "lesson_exercises", lambda _, known=known: known)
        text = "\n".join(notebooks._exercises(lesson(path), path))
        found += re.findall(r"^(\d) exercises, not", text)
    assert found == few


OLD = sorted(rules.OLD_FORM)[0]
OLD_BROKEN = [
    (r"\*\*Runs live on:", "Runs on", "lacks **Runs live on:**"),
    (r"\*\*Time:", "Time", "lacks **Time:**"),
    ("## You will learn", "You will learn", "needs one section '## You will learn'"),
    (r"(## You will learn\n\n)(- .*\n?)+", r"\1- one", "'You will learn' has 1 points"),
    (r"\*\*Predict", "Guess", "no **Predict** in the section"),
    (
        "## What to remember",
        "## Remember",
        "'What to remember' is not the last section",
    ),
    (
        "(?m)^## (?!You will|What to)",
        "### ",
        "has 0 sections of its own, not three to six",
    ),
]


@pytest.mark.parametrize("pattern, new, message", OLD_BROKEN)
def test_rule_for_the_old_form_notices(pattern, new, message):
    path = next(path for path in notebooks.lessons() if path.name[:2] == OLD)
    nb = nbformat.read(path, as_version=4)
    assert rules.problems(nb, path, notebooks.badges(path)) == []
    for text in (c for c in nb.cells if c.cell_type == "markdown"):
        text.source = re.sub(pattern, new, text.source)
    assert message in "\n".join(rules.problems(nb, path, notebooks.badges(path)))


def test_a_lesson_with_a_recipe_leaves_the_list_of_the_old_ones():
    nb = new_notebook(cells=[new_code_cell("x = 1", id="recipe")])
    assert any(
        "take it out of OLD_FORM" in text
        for text in rules.problems(nb, Path(f"{OLD}_a.ipynb"), "")
    )


# --------------------------------------------------------------------------------------
# Minutes


def shows(kind):
    return new_code_cell(
        "", outputs=[nbformat.v4.new_output("display_data", {kind: ""})] * 2
    )


FOLDED = new_code_cell("x\n" * 30, metadata={"tags": ["fold"]})
MINUTES = {  # cell → minutes
    "words": (new_markdown_cell("one word " * 75), 1),
    "marks and what stands in brackets": (
        new_markdown_cell("# `a` **b** | [c](https://d.org) (as f g) h"),
        4 / 150,
    ),
    "a prediction": (new_markdown_cell("**Predict.** One?"), 1.3 + 2 / 150),
    "one star": (new_markdown_cell("**99.1** ★"), 3 + 2 / 150),
    "two stars": (new_markdown_cell("**99.1** ★★"), 6 + 2 / 150),
    "three stars": (new_markdown_cell("**99.1** ★★★"), 10 + 2 / 150),
    "stars below": (new_markdown_cell("Stars:\n★★"), 2 / 150),
    "code": (new_code_cell("x\n\n" * 15), 1),
    "folded code": (FOLDED, 0),
    "a question": (new_code_cell('predict("99.a", "A?", "b", "c")'), 1.3 + 1 / 15),
    "pictures": (shows("image/png"), 1.2),
    "a diagram": (shows("image/svg+xml"), 1.2),
    "text": (shows("text/plain"), 0),
}


@pytest.mark.parametrize("counted, expected", MINUTES.values(), ids=MINUTES)
def test_minutes(counted, expected):
    assert rules.minutes([counted]) == pytest.approx(expected)
    assert rules.minutes([FOLDED, counted, FOLDED]) == pytest.approx(expected)


def test_minutes_are_written_into_head_and_headings(broken):
    def longer(nb):
        replace("sum-text", "It is 2", "word " * 1500)(nb)
        replace("why-text", "Yes", "word " * 3000)(nb)
        replace("gpu", "else?", "else? (9 minutes)")(nb)

    assert broken(longer) == ""
    text = broken.path.read_text(encoding="utf-8")
    assert "**Core:** 23 minutes · **Deeper:** 32 minutes" in text
    assert '"## 4 · Why two? (21 minutes)"' in text and '"## 3 · What else?\\n"' in text
    for wrong in ("**Core:** 24", "**Deeper:** 31", "(20 minutes)"):
        number = re.sub(r"\d+", r"\\d+", re.escape(wrong))
        changed = re.sub(number, wrong, text)
        assert changed != text and "not in canonical form" in broken(
            lambda nb: None, write=lambda nb, p: changed
        )  # noqa: B023


def test_an_old_lesson_says_how_long_it_takes():
    nb = new_notebook(
        cells=[
            new_markdown_cell("**Time:** 5 minutes with the exercises " + "word " * 300)
        ]
    )
    rules.write_minutes(nb, Path(f"{OLD}_a.ipynb"))
    assert nb.cells[0].source.startswith("**Time:** 2 minutes with")


# --------------------------------------------------------------------------------------
# Folded cells


def test_fold_becomes_what_each_front_end_understands(broken):
    stray = both(
        tag("explorer", "hide-input"),
        lambda nb: cell(nb, "recipe").metadata.update(cellView="form"),
    )
    assert broken(stray) == ""
    cells = nbformat.read(broken.path, as_version=4).cells
    marked = {
        c.id: c.metadata
        for c in cells
        if c.metadata and "exercise" not in c.metadata.tags
    }
    marks = {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "tags": ["fold", "hide-input"],
    }
    assert marked == dict.fromkeys(["setup", "machine-diagram", "draw"], marks)

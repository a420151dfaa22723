"""The parts of a lesson: every rule notices a lesson that breaks it; minutes, and what
folded cells become.
"""

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
    output,
    replace,
    tag,
)
from tools.lessons import notebooks, parts, rules

VISIBLE = ["recipe", "add", "explorer", "gpu-name"]
LONG = "\n".join(f"x{n} = {n}" for n in range(16))


@pytest.fixture
def broken(tmp_path, monkeypatch):
    return breaker(tmp_path, monkeypatch)


def problems(change):
    """Rules that the small lesson breaks after change(notebook)."""
    nb = lesson(PATH)
    change(nb)
    return rules.problems(nb, PATH, notebooks.badges(PATH))


def both(*changes):
    return lambda nb: [change(nb) for change in changes]


def silent(*cells):
    """Let cells show that they could not run here."""
    metadata = {"device_lab": {"state": "unavailable"}}
    data = {"text/plain": "–"}
    return output("display_data", *cells, metadata=metadata, data=data)


def drop_texts(nb):
    nb.cells = nb.cells[:1] + [c for c in nb.cells if c.cell_type == "code"]


BROKEN = [
    (replace("title", "You will be able to", "Learn to"), "no sentence 'You will be"),
    (replace("title", " · **Deeper:** 12 minutes", ""), "the line of facts lacks Core"),
    (move("setup", 2), "the second cell is not the set-up cell"),
    (move("recipe", 9), "no cell `recipe` among the first nine"),
    (replace("recipe-text", "section 1", "below"), "with a text below it that names"),
    (replace("deeper", "## Deeper", "### Deeper"), "no heading `## Deeper`"),
    (replace("sum-text", "It is 2", "very " * 7000), "minutes, more than 60"),
    (move("gpu", 27), "core of 2 numbered sections, not three to five"),
    (replace("gpu-text", "Its name", "So.\n\n## Its"), "not the first line of its"),
    (replace("gpu", "3 · ", ""), "the section 'What else?' has no number"),
    (replace("gpu", "3 · ", "2 · "), "sections are numbered [1, 2, 2, 4]"),
    (replace("machine", "**Bet.**", "Look:"), "predict() in the section '2 · What"),
    (move("exercises", 21), "'What to remember' is not the last section of the core"),
    (replace("remember", "- A", "- 1\n" * 6 + "- A"), "has 7 points"),
    (
        replace("remember", "You can stop here.", ""),
        "does not say 'You can stop here.'",
    ),
    (replace("sum-text", "sections 2 and 4", "Section two"), "write 'Section two'"),
    (replace("sum-text", "2 and 4", "2 and 5"), "there is no section 5"),
    (silent(*VISIBLE), "4 visible cells that show nothing"),
    (code("machine-diagram", "# @title Diagram: none\npass"), "no diagram"),
    (replace("machine-diagram", "plots", "x = 1\nplots"), "a diagram stands alone"),
    (replace("machine", "`end`", "it"), "names none of its controls, `end`"),
    (
        replace("explorer", "end=3", "end=Slider(description='to (m)')"),
        "names none of its controls, `to (m)`",
    ),
    (drop("explorer-text"), "no text of its section below it answers"),
    (replace("explorer-text", "The", "### The"), "no text of its section below it"),
    (replace("machine", "2 · ", ""), "the explorer stands in no numbered"),
    (move("exercise-1", 20), "no exercise before the last third of the core"),
    (drop("ask-why"), "1 cells with predict(), fewer than two"),
    (replace("ask-why", "99.why", "99.sum"), "predict('99.sum') stands twice"),
    (replace("ask-why", "99.why", "98.why"), "'98.why'): the key does not begin with"),
    (replace("ask-why", ', "no"', ""), "predict('99.why') has 1 options"),
    (drop("why-answer"), "predict('99.why') needs one reveal() after it"),
    (replace("why-answer", "99.why", "99.how"), "reveal('99.how') has no predict()"),
    (replace("why-answer", '"yes"', '"maybe"'), "which is no option"),
    (
        replace("add", "reveal(", 'claim("a sum", total, at_least=2)\nreveal('),
        "cell add: claim() gives the answer to '99.sum' away",
    ),
    (replace("draw", "# @title", "#"), "folded cell draw needs a line `# @title …`"),
    (replace("draw", "a line", "a line " * 9), "`# @title …` of at most 60"),
    (tag("draw"), "cell draw has a line `# @title`, but is not folded"),
    (tag("recipe", "fold"), "the folded cell recipe hides what the lesson is about"),
    (code("recipe", LONG), "cell recipe has 16 lines, more than 15"),
    (drop_texts, "10 visible code cells, but only 1 text cells"),
]


@pytest.mark.parametrize("change, message", BROKEN)
def test_rule_notices(change, message):
    assert message in "\n".join(problems(change))


ELSEWHERE = "as section 9 of lesson 02, [section 8](02_tensors_on_devices.ipynb), 8.2"
KEPT = {
    "a claim above the question": replace("recipe", "x.sum()", "claim('a', True)"),
    "a claim after the answer": replace(
        "explorer", "plots", 'claim("a sum", total, at_least=2)\nplots'
    ),
    "sections of other lessons": replace(
        "sum-text", "as sections 2", f"{ELSEWHERE}, 2"
    ),
    "three silent cells, and a folded one": silent(*VISIBLE[1:], "draw"),
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
    assert parts.minutes([counted]) == pytest.approx(expected)


def longer(nb):
    replace("sum-text", "It is 2", "word " * 1200)(nb)
    replace("why-text", "Yes", "word " * 2400)(nb)


TYPED = {  # what head and heading of a longer lesson say → what lint says
    ("28", "34", " (22 minutes)"): [],
    ("25", "30", " (25 minutes)"): [],
    ("22", "34", " (22 minutes)"): ["Core: says '22 minutes', takes 28 minutes"],
    ("28", "40", " (18 minutes)"): [
        "Deeper: says '40 minutes', takes 34 minutes",
        "the section '4 · Why two? (18 minutes)' says '18 minutes', takes 22 minutes",
    ],
    ("28", "34", ""): ["the section '4 · Why two?' '' is no time; it takes 22 minutes"],
}


@pytest.mark.parametrize("head, found", TYPED.items())
def test_typed_minutes_may_be_15_percent_off(head, found):
    core, deeper, heading = head

    def change(nb):
        longer(nb)
        replace("title", "Core:** 18 m", f"Core:** {core} m")(nb)
        replace("title", "Deeper:** 12 m", f"Deeper:** {deeper} m")(nb)
        replace("why", " (1 minute)", heading)(nb)

    assert problems(change) == found


def test_a_section_of_the_core_says_no_minutes():
    said = problems(replace("gpu", "else?", "else? (2 minutes)"))
    assert said == [
        "the section '3 · What else? (2 minutes)' of the core says its minutes"
    ]


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

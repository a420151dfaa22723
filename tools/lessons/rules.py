"""The rules for the parts of a lesson (docs/contributing/lessons.md describes them):
what a reader would notice.

Each rule is a function of the notebook that yields a line of text for each place where
the lesson breaks it.
"""

import ast
import re
from collections import Counter

from course import grammar
from tools.lessons.parts import (
    calls,
    code_cells,
    core_and_deeper,
    filled,
    folded,
    heading,
    is_row,
    is_stub,
    text_of,
    title_of,
    without_code,
)
from tools.lessons.questions import ASKS, QUESTION, folded_texts, stray

LINES_MOST = 15  # of a visible cell


def problems(nb, path, badges):
    """Which rules for its parts the lesson breaks, as lines of text.

    nb: the notebook
    path: where it stands; its name begins with the lesson's number
    badges: the line that its first cell needs
    """
    if badges not in nb.cells[0].source:
        yield "the first cell needs the badges line (CONTRIBUTING): run `make format`"
    if [cell.id for cell in nb.cells[1:2]] != ["setup"]:
        yield "the second cell is not the set-up cell (id `setup`)"
    if not path.name.startswith("00") and "recipe" not in {c.id for c in nb.cells}:
        yield "no cell `recipe`"
    for rule in RULES:
        yield from rule(nb)


def _folded_cells(nb):
    looked_up = {cell.id for cell in core_and_deeper(nb)[1] if is_row(cell)}
    for cell in filter(folded, code_cells(nb)):
        if cell.id in looked_up:  # its first line says what it is
            continue
        if title_of(cell) is None:
            yield f"folded cell {cell.id} needs a line `# @title …`"
        asks = any(calls(cell, "expect_error", "check", "predict"))
        if asks or cell.id == "recipe" or is_stub(cell) or is_row(cell):
            yield f"the folded cell {cell.id} hides what the lesson is about"


def _visible_cells(nb):
    for cell in code_cells(nb):
        lines = filled(grammar.split(cell.source)[1])
        if lines > LINES_MOST and not folded(cell):
            yield f"cell {cell.id} has {lines} lines, more than {LINES_MOST}"


# What stands around a section of this lesson: "section 4", "sections 4 and 5"; not
# "lesson 02, section 4", "[02 · …](02_…), section 4", "lesson 02's section 4" …
BEFORE = r"(?<!\d\d, )(?<!\), )(?<!\d's )"
# … nor "section 4.2", "section 4 of lesson 02", "[section 4](02_…)".
BEHIND = r"(?!\.\d| of\b|\]\(\d\d_)"
SECTIONS = re.compile(
    rf"{BEFORE}\bsections? (\d+(?:(?:, | and | to |–)\d+)*)\b{BEHIND}", re.I
)


def _sections(nb):
    """Whether sections are numbered in order, and those exist that texts name."""
    matches = [re.match(r"(\d+) · .", heading(cell)) for cell in nb.cells]
    numbers = [int(match[1]) for match in matches if match]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"sections are numbered {numbers}"
    text = without_code(text_of(nb))
    for number in re.findall(r"\d+", " ".join(SECTIONS.findall(text))):
        if int(number) not in numbers:
            yield f"there is no section {number}"


def _predictions(nb):
    """Whether each predict() has one reveal() below it. What a reveal() without a
    question or with another answer does, a run of the lesson tells.
    """
    asked, revealed = Counter(), Counter()
    for cell in code_cells(nb):
        asked.update(ast.unparse(call.args[0]) for call in calls(cell, "predict"))
        for call in calls(cell, "reveal"):
            key = ast.unparse(call.args[0])
            revealed[key] += key in asked
    for key, times in asked.items():
        if times > 1:
            yield f"predict({key}) stands twice"
        if revealed[key] != 1:
            yield f"predict({key}) needs one reveal() after it"


def _given_away(nb):
    """What answers an open predict() on the screen before its experiment has run: the
    bound of a claim, an announced error, the reason that reveal() says.
    """
    open_questions = set()
    for cell in code_cells(nb):
        visible = not folded(cell)
        open_questions |= {ast.unparse(c.args[0]) for c in calls(cell, "predict")}
        if visible and open_questions and any(calls(cell, "claim", "expect_error")):
            asked = ", ".join(sorted(open_questions))
            yield f"cell {cell.id} gives the answer to {asked} away: fold or move it"
        for call in calls(cell, "reveal"):
            open_questions.discard(ast.unparse(call.args[0]))
            if visible and (len(call.args) > 2 or call.keywords):
                yield f"cell {cell.id}: fold the cell whose reveal() says why"


def _questions(nb):
    """What asks is marked as asking, so that its answer is folded; and it has one."""
    answered = {key for key, *_ in folded_texts(nb.cells).values()}
    for index, cell in enumerate(nb.cells):
        if cell.cell_type != "markdown":
            continue
        following = nb.cells[index + 1].source if index + 1 < len(nb.cells) else ""
        for sentence in stray(cell.source, asks=ASKS.search(following)):
            yield f"cell {cell.id} asks outside of Predict and Bet: {sentence}"
        if QUESTION.search(cell.source) and f"#{index}" not in answered:
            yield f"cell {cell.id}: no text below the experiment answers its question"


RULES = (
    _folded_cells,
    _visible_cells,
    _sections,
    _predictions,
    _given_away,
    _questions,
)

"""The rules for the parts of a lesson (docs/contributing/lessons.md describes them).

Each rule is a function of the notebook and the lesson's number ("05") that yields a
line of text for each place where the lesson breaks it.
"""

import ast
import re

from course import grammar
from course.messages import state_of
from tools.lessons import typed
from tools.lessons.parts import (
    calls,
    checks,
    code_cells,
    core_and_deeper,
    filled,
    folded,
    heading,
    is_row,
    is_stub,
    labels_of,
    minutes,
    sections,
    text_of,
    title_of,
    without_code,
)

# minutes, lines of a visible cell, cells, characters
CORE_MOST, LINES_MOST, SILENT_MOST, TITLE_MOST = 60, 15, 3, 60
# Messages about a lesson that is built otherwise: 00 is short, the explorer of 16 is a
# field in which to look something up.
EXCUSED = {"00": "no heading|no cell `recipe`", "16": "the explorer"}


def problems(nb, path, badges):
    """Which rules for its parts the lesson breaks, as lines of text.

    nb: the notebook
    path: where it stands; its name begins with the lesson's number
    badges: the line that its first cell needs
    """
    number = path.name[:2]
    found = []
    if badges not in nb.cells[0].source:
        found.append(
            "the first cell needs the badges line: run `make format`, see CONTRIBUTING"
        )
    for rule in RULES:
        found += rule(nb, number)
    excused = EXCUSED.get(number)
    return [line for line in found if not (excused and re.match(excused, line))]


# --------------------------------------------------------------------------------------
# Cells, whichever they are


def _once(nb, number):
    code = code_cells(nb)
    titles = re.findall("^# ", text_of(nb), re.M)
    if len(titles) != 1 or not nb.cells[0].source.startswith("# "):
        yield "needs exactly one H1, in its first cell"
    if not code or code[0].id != "setup":
        yield "the first code cell is not the set-up cell (id `setup`)"
    if sum("plots.explorer(" in cell.source for cell in code) != 1:
        yield "needs exactly one explorer (plots.explorer)"


def _text_between_code(nb, number):
    code = code_cells(nb)
    seen = sum(not folded(cell) for cell in code)
    texts = len(nb.cells) - len(code)
    if texts < 0.8 * seen:
        yield f"{seen} visible code cells, but only {texts} text cells"


def _folded_cells(nb, number):
    looked_up = {cell.id for cell in core_and_deeper(nb)[1] if is_row(cell)}
    for cell in filter(folded, code_cells(nb)):
        if cell.id in looked_up:  # its first line says what it is
            continue
        title = title_of(cell)
        if title is None or len(title) > TITLE_MOST:
            yield (
                f"folded cell {cell.id} needs a line `# @title …` of at most"
                f" {TITLE_MOST} characters"
            )
        if (
            is_stub(cell)
            or cell.id == "recipe"
            or is_row(cell)
            or any(calls(cell, "expect_error", "check", "predict"))
        ):
            yield f"the folded cell {cell.id} hides what the lesson is about"


def _visible_cells(nb, number):
    for cell in code_cells(nb):
        if folded(cell):
            continue
        lines = filled(grammar.split(cell.source)[1])
        if title_of(cell) is not None:
            yield (
                f"cell {cell.id} has a line `# @title`, but is not folded (tag `fold`)"
            )
        if lines > LINES_MOST:
            yield f"cell {cell.id} has {lines} lines, more than {LINES_MOST}"


# --------------------------------------------------------------------------------------
# Headings and text

UNNUMBERED = {"The recipe", "Exercises", "Your own loop", "What to remember", "Deeper"}
UNNUMBERED |= {"More exercises"}


def _head(nb, number):
    first = nb.cells[0].source
    facts = r"^\*\*Core:\*\* \d+ minutes · "
    if core_and_deeper(nb)[1]:
        facts += r"\*\*Deeper:\*\* \d+ minutes · "
    facts += r"\*\*Runs live on:\*\* .+ · \*\*Before this:\*\* ."
    if "You will be able to " not in first:
        yield "the first cell has no sentence 'You will be able to …'"
    if not re.search(facts, first, re.M):
        yield "the line of facts lacks Core, Deeper, Runs live on or Before this"
    if [cell.id for cell in nb.cells[1:2]] != ["setup"]:
        yield "the second cell is not the set-up cell"


def _minutes(nb, number):
    yield from typed.in_lesson(nb)


def _recipe(nb, number):
    ids = [cell.id for cell in nb.cells]
    if "recipe" not in ids[:9]:
        yield "no cell `recipe` among the first nine"
    below = nb.cells[ids.index("recipe") + 1 :] if "recipe" in ids else []
    if not below or "section " not in below[0].source:
        yield "no cell `recipe` with a text below it that names sections"


def _headings(nb, number):
    titles = [title for title, _ in sections(nb.cells)]
    if not core_and_deeper(nb)[1]:
        yield "no heading `## Deeper`"
    if len(titles) != len(re.findall("^## ", text_of(nb), re.M)):
        yield "a heading ## is not the first line of its cell"
    for title in titles:
        if title not in UNNUMBERED and not re.match(r"\d+ · .", title):
            yield f"the section '{title}' has no number: `## 1 · …`"
    numbers = _section_numbers(nb)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"sections are numbered {numbers}"


def _section_numbers(nb):
    found = [re.match(r"(\d+) · .", heading(cell)) for cell in nb.cells]
    return [int(match[1]) for match in found if match]


def _core(nb, number):
    core, _ = core_and_deeper(nb)
    length = minutes(core)
    if length > CORE_MOST:
        yield f"core of {length:.1f} minutes, more than {CORE_MOST}"
    asking = [(title, part) for title, part in sections(core) if title[:1].isdigit()]
    if not 3 <= len(asking) <= 5:
        yield f"core of {len(asking)} numbered sections, not three to five"
    for title, part in asking:
        text = "\n".join(cell.source for cell in part)
        if not re.search(r"\*\*(Predict|Bet)\.\*\*|^predict\(", text, re.M):
            yield f"no **Predict.**, **Bet.** or predict() in the section '{title}'"
    early = core[: max(1, int(len(core) * 0.7))]
    if not any(checks(cell) for cell in early):
        yield "no exercise before the last third of the core"


def _remember(nb, number):
    core, deeper = core_and_deeper(nb)
    text = ""
    for title, part in sections(core)[-1:]:
        if title == "What to remember":
            text = "\n".join(cell.source for cell in part)
    if not text:
        yield "'What to remember' is not the last section of the core"
    points = len(re.findall(r"^[-*] ", text, re.M))
    if not 1 <= points <= 6:
        yield f"'What to remember' has {points} points, not 1 to 6"
    if deeper and "You can stop here." not in text:
        yield "'What to remember' does not say 'You can stop here.'"


ORDINAL = re.compile(
    r"\bsection (?:one|two|three|four|five|six|seven|eight|nine|ten)\b", re.I
)
# What stands around a section of this lesson: "section 4", "sections 4 and 5"; not
# "lesson 02, section 4", "[02 · …](02_…), section 4", "lesson 02's section 4" …
BEFORE = r"(?<!\d\d, )(?<!\), )(?<!\d's )"
# … nor "section 4.2", "section 4 of lesson 02", "[section 4](02_…)".
BEHIND = r"(?!\.\d| of\b|\]\(\d\d_)"
SECTIONS = re.compile(
    rf"{BEFORE}\bsections? (\d+(?:(?:, | and | to |–)\d+)*)\b{BEHIND}", re.I
)


def _references(nb, number):
    text = text_of(nb)
    for ordinal in ORDINAL.findall(text):
        yield f"write {ordinal!r} with a number"
    named = re.findall(r"\d+", " ".join(SECTIONS.findall(without_code(text))))
    known = _section_numbers(nb)
    for section in named:
        if int(section) not in known:
            yield f"there is no section {section}"


# --------------------------------------------------------------------------------------
# Cells that show nothing, diagrams, explorers, predictions


def _silent_cells(nb, number):
    silent = sum(map(_is_silent, code_cells(nb)))
    if silent > SILENT_MOST:
        yield f"{silent} visible cells that show nothing, more than {SILENT_MOST}"


def _is_silent(cell):
    """Whether a visible cell's stored output says that it could not run."""
    states = set(map(state_of, cell.outputs))
    return not folded(cell) and bool(states & {"unavailable", "waiting"})


def _diagrams(nb, number):
    diagrams = [cell for cell in code_cells(nb) if any(calls(cell, "plots.diagram"))]
    if not diagrams:
        yield "no diagram (plots.diagram)"
    # a title, and the one call
    alone = r"# @title Diagram: .+\n+plots\.diagram\(.+\)"
    for cell in diagrams:
        if not folded(cell) or not re.fullmatch(alone, cell.source):
            yield f"cell {cell.id}: a diagram stands alone in a folded cell"


def _explorer(nb, number):
    """Whether it stands in a numbered section, between a text that names a control and
    one that answers.
    """
    for place, cell in enumerate(nb.cells):
        if cell.cell_type != "code" or not any(calls(cell, "plots.explorer")):
            continue
        titles = [heading(above) for above in nb.cells[:place] if heading(above)]
        if not titles or not titles[-1][0].isdigit():
            yield "the explorer stands in no numbered section"
        texts = [n for n, each in enumerate(nb.cells) if each.cell_type == "markdown"]
        above = max(n for n in texts if n < place)
        labels = labels_of(nb.cells[above + 1 : place + 1])
        if labels and not labels & set(re.findall("`(.+?)`", nb.cells[above].source)):
            yield (
                "the explorer: the text above it names none of its controls,"
                f" {', '.join(f'`{label}`' for label in sorted(labels))}"
            )
        below = [nb.cells[n].source for n in texts if n > place]
        if not below or below[0].startswith("#"):
            yield "the explorer: no text of its section below it answers"


def _predictions(nb, number):
    asking = sum(any(calls(cell, "predict")) for cell in code_cells(nb))
    if asking < 2:
        yield f"{asking} cells with predict(), fewer than two"
    options, revealed = {}, []
    for cell in code_cells(nb):
        for call in calls(cell, "predict"):
            key, _, *offered = map(ast.unparse, call.args)
            if key in options:
                yield f"predict({key}) stands twice"
            if not key[1:].startswith(f"{number}."):
                yield f"predict({key}): the key does not begin with '{number}.'"
            if not 2 <= len(offered) <= 4:
                yield f"predict({key}) has {len(offered)} options, not two to four"
            options[key] = offered
        for call in calls(cell, "reveal"):
            key, *answers = call.args
            key = ast.unparse(key)
            if key not in options:
                yield f"reveal({key}) has no predict() above it"
                continue
            revealed.append(key)
            typed = [
                ast.unparse(each) for each in answers if isinstance(each, ast.Constant)
            ]
            if not set(typed) <= set(options[key]):
                yield f"reveal({key}) says {typed}, which is no option"
    for key in options:
        if revealed.count(key) != 1:
            yield f"predict({key}) needs one reveal() after it"


def _given_away(nb, number):
    """What answers the question of a predict() on the screen before its experiment has
    run: the bound of a claim, an announced error, the reason that reveal() says.
    """
    open_questions = set()
    for cell in code_cells(nb):
        names = "predict", "reveal", "claim", "expect_error"
        found = sorted(
            ((call.lineno, name, call) for name in names for call in calls(cell, name)),
            key=lambda each: each[0],
        )
        visible = not folded(cell)
        revealed_here = [call for _, name, call in found if name == "reveal"]
        open_questions |= {
            ast.unparse(c.args[0]) for _, n, c in found if n == "predict"
        }
        for _, name, _ in found:
            if name in ("claim", "expect_error") and open_questions and visible:
                asked = ", ".join(sorted(open_questions))
                yield (
                    f"cell {cell.id}: {name}() gives the answer to {asked} away: fold"
                    " it, or put it into a cell after the one that reveals"
                )
        for call in revealed_here:
            open_questions.discard(ast.unparse(call.args[0]))
            if visible and (len(call.args) > 2 or call.keywords):
                yield f"cell {cell.id}: fold the cell whose reveal() says why"


RULES = (
    _once,
    _text_between_code,
    _folded_cells,
    _visible_cells,
    _head,
    _minutes,
    _recipe,
    _headings,
    _core,
    _remember,
    _references,
    _silent_cells,
    _diagrams,
    _explorer,
    _predictions,
    _given_away,
)

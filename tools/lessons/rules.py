"""The anatomy of a lesson: how long it takes, and the rules for its parts
(CONTRIBUTING.md describes them).

Minutes are computed: 150 words of text a minute, 15 lines of visible code; 1.3 minutes
a prediction, 1.2 a picture; 3, 6 or 10 an exercise with one, two or three stars. What
stands before the heading `## Deeper` is the core.
"""

import ast
import re

from tools.lessons import formatting
from utils.messages import state_of

# may only become fewer
OLD_FORM = {
    "01",
    "03",
    "04",
    "06",
    "07",
    "09",
    "10",
    "11",
    "12",
    "13",
    "14",
    "15",
    "16",
}
# minutes, lines of a visible cell, cells, characters
CORE_MOST, LINES_MOST, SILENT_MOST, TITLE_MOST = 50, 15, 3, 60
STARS = {1: 3, 2: 6, 3: 10}  # minutes
ORDINAL = re.compile(
    r"\bsection (?:one|two|three|four|five|six|seven|eight|nine|ten)\b", re.I
)
# "section 4", "sections 4 and 5"; not "section 4 of lesson 02", "lesson 02, section 4",
# "[section 4](02_…)".
OTHERS = r"(?<!\d\d, )(?<!\), )(?<!\d's )", r"(?!\.\d| of\b|\]\(\d\d_)"
SECTIONS = re.compile(
    rf"{OTHERS[0]}\bsections? (\d+(?:(?:, | and | to |–)\d+)*)\b{OTHERS[1]}", re.I
)
# what a folded cell must not call: the lesson is about it
OPEN = ("expect_error", "check", "predict")
# Messages about the two lessons that are built otherwise: 00 is short, 16 is for
# looking things up.
EXCUSED = {
    "00": "no heading|no cell `recipe`",
    "16": "core of|no heading|no cell `recipe`|no exercise|no diagram",
}
# Sections of the old form, and how many points they make: at least, at most.
BULLETS = {"You will learn": (3, 5), "Exercises": (0, 99), "What to remember": (1, 6)}
# headings of the new form
UNNUMBERED = {"The recipe", "Exercises", "What to remember", "Deeper", "More exercises"}
FACTS = (
    r"^\*\*Core:\*\* \d+ minutes · {}\*\*Runs live on:\*\* .+ · \*\*Before this:\*\* ."
)


def is_new(path):
    """Whether the lesson at `path` has a core, and the rest of the new anatomy."""
    return path.name[:2] not in OLD_FORM


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def text_of(nb):
    return "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def folded(cell):
    return "fold" in cell.metadata.get("tags", [])


def checks(cell):
    """Numbers of the exercises that a stub, a cell with the tag `exercise`, checks."""
    stub = "exercise" in cell.metadata.get("tags", [])
    return re.findall(r'^check\("([\d.]+)"', cell.source, re.M) if stub else []


def title_of(cell):
    """What the line `# @title …` of a code cell says, or None: its first line, or the
    first below a line with %%.
    """
    return next(
        iter(re.findall(r"\A# ?@title (.*)", formatting.split(cell.source)[1][0])), None
    )


def heading(cell):
    """A cell's heading without its ##, "" if it does not begin with one."""
    return (
        cell.source.split("\n")[0][3:].strip()
        if cell.cell_type == "markdown" and cell.source[:3] == "## "
        else ""
    )


def core_and_deeper(nb):
    """The cells before the heading `## Deeper`, and those from it on."""
    cut = next(
        (n for n, cell in enumerate(nb.cells) if re.match(r"Deeper\b", heading(cell))),
        len(nb.cells),
    )
    return nb.cells[:cut], nb.cells[cut:]


def sections(cells):
    """[(heading, cells)] of the sections of a lesson; what stands above the first is
    left out.
    """
    found = []
    for cell in cells:
        if heading(cell):
            found.append((heading(cell), []))
        if found:
            found[-1][1].append(cell)
    return found


def minutes(cells):
    """How many minutes the cells take a reader."""
    total = 0.0
    for cell in cells:
        if cell.cell_type == "markdown":
            total += len(re.sub(r"\(.*?\)|[#*`|]", " ", cell.source).split()) / 150
            total += 1.3 * ("**Predict.**" in cell.source)
            total += STARS.get(cell.source.split("\n")[0].count("★"), 0)
        else:
            total += 0 if folded(cell) else formatting.filled(cell.source) / 15
            total += 1.3 * ("predict(" in cell.source)
            total += 1.2 * any(
                {"image/png", "image/svg+xml"} & set(out.get("data", {}))
                for out in cell.outputs
            )
    return total


def write_minutes(nb, path):
    """Put what `minutes` finds into the lesson: into its head, and into the headings
    below `## Deeper`.
    """
    core, deeper = core_and_deeper(nb)
    times = {"Core": core, "Deeper": deeper} if is_new(path) else {"Time": nb.cells}
    first = nb.cells[0]
    for name, part in times.items():
        time = f"{round(minutes(part))} minutes"
        first.source = re.sub(
            rf"(\*\*{name}:\*\*) \S+ minutes", rf"\1 {time}", first.source
        )
    for part in (core, deeper):
        for title, (top, *rest) in sections(part):
            if re.match(r"\d+ · ", title):
                number = max(1, round(minutes([top, *rest])))
                plain = re.sub(r" \(\S+ minutes?\)$", "", title)
                time = (
                    f" ({number} minute{'s' * (number > 1)})" if part is deeper else ""
                )
                top.source = top.source.replace(title, plain + time, 1)


def calls(cell, *names):
    """Calls of the functions `names` ("predict", "plots.explorer") in a code cell, as
    nodes of its syntax tree.
    """
    for piece in formatting.split(cell.source)[1]:
        try:
            nodes = list(ast.walk(ast.parse(piece)))
        except SyntaxError:  # a line magic, or what Ruff reports
            nodes = []
        yield from (
            node
            for node in nodes
            if isinstance(node, ast.Call) and ast.unparse(node.func) in names
        )


def silent(cell):
    """Whether a cell is a visible one whose stored output says that it could not run."""
    states = set(map(state_of, cell.outputs))
    return not folded(cell) and bool(states & {"unavailable", "waiting"})


# --------------------------------------------------------------------------------------
# Rules


def problems(nb, path, badges):
    """Which rules of its anatomy the lesson breaks, as lines of text. badges: the line
    that its first cell needs.
    """
    code, text = code_cells(nb), text_of(nb)
    first, new = nb.cells[0].source, is_new(path)
    most = LINES_MOST if new else formatting.LINES_MOST
    seen, texts = sum(not folded(cell) for cell in code), len(nb.cells) - len(code)
    explorers = sum("plots.explorer(" in cell.source for cell in code)
    rules = [
        (
            len(re.findall("^# ", text, re.M)) == 1 and first[:2] == "# ",
            "needs exactly one H1, in its first cell",
        ),
        (
            badges in first,
            "the first cell needs the badges line: run `make format`, see CONTRIBUTING",
        ),
        (
            [cell.id for cell in code[:1]] == ["setup"],
            "the first code cell is not the set-up cell (id `setup`)",
        ),
        (explorers == 1, "needs exactly one explorer (plots.explorer)"),
        (
            texts >= 0.8 * seen,
            f"{seen} visible code cells, but only {texts} text cells",
        ),
    ]
    for cell in code:
        title, lines = title_of(cell), formatting.filled(cell.source)
        about = any(calls(cell, *OPEN)) or "exercise" in cell.metadata.get("tags", [])
        about = about or cell.source.startswith("%%today") or cell.id == "recipe"
        if folded(cell):
            fits = title is not None and len(title) <= TITLE_MOST
            rules.append(
                (
                    fits,
                    (
                        f"folded cell {cell.id} needs a line `# @title …` of at most"
                        f" {TITLE_MOST} characters"
                    ),
                )
            )
            rules.append(
                (not about, f"the folded cell {cell.id} hides what the lesson is about")
            )
        else:
            rules.append(
                (
                    title is None,
                    (
                        f"cell {cell.id} has a line `# @title`, but is not folded (tag"
                        " `fold`)"
                    ),
                )
            )
            rules.append(
                (lines <= most, f"cell {cell.id} has {lines} lines, more than {most}")
            )
    rules += (_new if new else _old)(nb, path, text, first)
    excused = re.compile(EXCUSED.get(path.name[:2], "$."))
    return [
        message for kept, message in rules if not kept and not excused.match(message)
    ]


def _old(nb, path, text, first):
    parts = [
        (part.split("\n", 1)[0].strip(), part)
        for part in re.split(r"^## ", text, flags=re.M)[1:]
    ]
    titles = [title for title, _ in parts]
    own = [(title, part) for title, part in parts if title not in BULLETS]
    yield 3 <= len(own) <= 6, f"has {len(own)} sections of its own, not three to six"
    yield (
        titles[-1:] == ["What to remember"],
        "'What to remember' is not the last section",
    )
    yield (
        not any(cell.id == "recipe" for cell in nb.cells),
        "has a recipe: take it out of OLD_FORM (tools/lessons/rules.py)",
    )
    for fact in ("Runs live on", "Time", "Before this"):
        yield f"**{fact}:**" in first, f"the line of facts lacks **{fact}:**"
    for title, part in own:
        yield "**Predict" in part, f"no **Predict** in the section '{title}'"
    for title, (least, most) in BULLETS.items():
        points = len(re.findall(r"^[-*] ", dict(parts).get(title, ""), re.M))
        yield titles.count(title) == 1, f"needs one section '## {title}'"
        yield (
            least <= points <= most,
            f"'{title}' has {points} points, not {least} to {most}",
        )


def _new(nb, path, text, first):
    core, deeper = core_and_deeper(nb)
    code, length = code_cells(nb), minutes(core)
    titles = [title for title, _ in sections(nb.cells)]
    numbers = [
        int(number) for title in titles for number in re.findall(r"^(\d+) · .", title)
    ]
    asking = [(title, part) for title, part in sections(core) if title[:1].isdigit()]
    remember = next(
        (part for title, part in sections(core)[-1:] if title == "What to remember"), []
    )
    remembered = "\n".join(cell.source for cell in remember)
    points = len(re.findall(r"^[-*] ", remembered, re.M))
    early = core[: max(1, int(len(core) * 0.7))]
    recipe = next((n for n, cell in enumerate(nb.cells) if cell.id == "recipe"), 99)
    below = nb.cells[recipe + 1].source if recipe + 1 < len(nb.cells) else ""
    facts = FACTS.format(r"\*\*Deeper:\*\* \d+ minutes · " if deeper else "")
    yield (
        "You will be able to " in first,
        "the first cell has no sentence 'You will be able to …'",
    )
    yield (
        re.search(facts, first, re.M),
        "the line of facts lacks Core, Deeper, Runs live on or Before this",
    )
    yield (
        [cell.id for cell in nb.cells[1:2]] == ["setup"],
        "the second cell is not the set-up cell",
    )
    yield recipe <= 8, "no cell `recipe` among the first nine"
    yield (
        "section " in below,
        "no cell `recipe` with a text below it that names sections",
    )
    yield deeper, "no heading `## Deeper`"
    yield length <= CORE_MOST, f"core of {length:.1f} minutes, more than {CORE_MOST}"
    yield (
        3 <= len(asking) <= 5,
        f"core of {len(asking)} numbered sections, not three to five",
    )
    yield (
        len(titles) == len(re.findall("^## ", text, re.M)),
        "a heading ## is not the first line of its cell",
    )
    for title in titles:
        yield (
            title in UNNUMBERED or re.match(r"\d+ · .", title),
            f"the section '{title}' has no number: `## 1 · …`",
        )
    yield (
        numbers == list(range(1, len(numbers) + 1)),
        f"sections are numbered {numbers}",
    )
    for title, part in asking:
        asks = any(
            re.search(r"\*\*(Predict|Bet)\.\*\*|^predict\(", cell.source, re.M)
            for cell in part
        )
        yield asks, f"no **Predict.**, **Bet.** or predict() in the section '{title}'"
    yield remember, "'What to remember' is not the last section of the core"
    yield 1 <= points <= 6, f"'What to remember' has {points} points, not 1 to 6"
    yield (
        not deeper or "You can stop here." in remembered,
        "'What to remember' does not say 'You can stop here.'",
    )
    for ordinal in ORDINAL.findall(text):
        yield False, f"write {ordinal!r} with a number"
    for number in re.findall(
        r"\d+",
        " ".join(SECTIONS.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S))),
    ):
        yield int(number) in numbers, f"there is no section {number}"
    nothing = sum(map(silent, code))
    yield (
        nothing <= SILENT_MOST,
        f"{nothing} visible cells that show nothing, more than {SILENT_MOST}",
    )
    diagrams = [cell for cell in code if any(calls(cell, "plots.diagram"))]
    yield diagrams, "no diagram (plots.diagram)"
    for cell in diagrams:
        alone = folded(cell) and re.fullmatch(
            r"# @title Diagram: .+\n+plots\.diagram\(.+\)", cell.source
        )
        yield alone, f"cell {cell.id}: a diagram stands alone in a folded cell"
    yield (
        any(checks(cell) for cell in early),
        "no exercise before the last third of the core",
    )
    predictions = sum(any(calls(cell, "predict")) for cell in code)
    yield predictions >= 2, f"{predictions} cells with predict(), fewer than two"
    yield from _predictions(nb, path.name[:2])


def _predictions(nb, lesson):
    # key: (place, options) of each predict(), and (key, place, answer) of each reveal()
    asked, revealed = {}, []
    for place, cell in enumerate(code_cells(nb)):
        for call in calls(cell, "predict", "reveal"):
            key, *rest = [ast.unparse(argument) for argument in call.args]
            if call.func.id == "reveal":
                revealed.append((key, (place, call.lineno), call.args[1:]))
                continue
            yield key not in asked, f"predict({key}) stands twice"
            yield (
                key[1:].startswith(f"{lesson}."),
                f"predict({key}): the key does not begin with '{lesson}.'",
            )
            yield (
                2 <= len(rest) - 1 <= 4,
                f"predict({key}) has {len(rest) - 1} options, not two to four",
            )
            asked[key] = (place, call.lineno), rest[1:]
    for key, (place, _) in asked.items():
        after = [where > place for other, where, _ in revealed if other == key]
        yield after == [True], f"predict({key}) needs one reveal() after it"
    for key, _, answers in revealed:
        yield key in asked, f"reveal({key}) has no predict()"
        typed = [
            ast.unparse(answer)
            for answer in answers
            if isinstance(answer, ast.Constant)
        ]
        yield (
            set(typed) <= set(asked.get(key, ((), typed))[1]),
            f"reveal({key}) says {typed}, which is no option",
        )

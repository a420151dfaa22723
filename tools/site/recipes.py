"""The page of recipes: of each lesson its recipe, with what each line does. From the
cells whose ids begin with "recipe", and from those that make what they use.
"""

import re

from nbformat import v4

from course import uses
from tools.lessons.parts import folded, title_of
from tools.site.pages import TITLE
from tools.site.read_lessons import md, ticks
from utils.jobs import COLORS

OPENS = "recipe"  # how the ids of these cells begin
SECTION = re.compile(r"^## (\d+) · ", re.M)
# "section 3", "sections 1, 2 and 4"; in a table a last column of numbers
NUMBERS = r"\d+(?:(?:, | and |, and )\d+)*"
NAMED = re.compile(rf"\b([Ss]ections?) ({NUMBERS})")
COLUMN = re.compile(rf"^(\|.*\| )({NUMBERS})( \|)$", re.M)
LESSON = re.compile(r"\]\((\d\d_\w+\.ipynb)")
PAGE = re.compile(r"\]\(\.\./docs/")
CELL = re.compile(r"\]\((#[\w-]+)\)")


def parts(nb):
    """The cells of a lesson's recipe, and those that make what it uses, in the order of
    the lesson; [] where it has none.
    """
    code = uses.code_cells(nb.cells)
    sources = [cell.source for cell in code]
    makers = {
        code[maker].id
        for n, cell in enumerate(code)
        if cell.id.startswith(OPENS)
        for maker in uses.needed(sources, n)
    }
    return [c for c in nb.cells if c.id.startswith(OPENS) or c.id in makers]


def _cell(nb, id):
    return next(cell for cell in nb.cells if cell.id == id)


def alone(nb):
    """A notebook that runs the recipe: the set-up cell, what prepares it, its code."""
    code = [cell for cell in parts(nb) if cell.cell_type == "code"]
    return v4.new_notebook(cells=[_cell(nb, "setup"), *code], metadata=nb.metadata)


def page(notebooks, names):
    """The page, as Markdown. notebooks: {stem: notebook}. names: {stem: name of the
    lesson on the site}.
    """
    listed, whole = [], []
    for stem, nb in notebooks.items():
        if parts(nb):
            verb = re.match(r"# (.+)", nb.cells[0].source)[1]
            listed.append(f"- [{md(names[stem])}](#recipe-{stem[:2]}): {md(verb)}")
            whole.append(recipe(stem, nb, names[stem]))
    return "\n".join(
        [
            "---\ntocdepth: 2\n---\n",
            "# Recipes\n",
            (
                "The lines that each lesson is about, whole: to copy, and to print,"
                " on four pages. Each runs below the set-up cell of its lesson. What a"
                " folded part prepares stands for your own data and model.\n"
            ),
            *listed,
            "",
            *whole,
        ]
    )


def recipe(stem, nb, name):
    """One lesson's part of the page."""
    promise = next(
        line for line in nb.cells[0].source.split("\n") if line.startswith("You will")
    )
    out = [f"(recipe-{stem[:2]})=\n\n## {md(name)}\n", f"*{md(promise)}*\n"]
    for cell in parts(nb):
        if cell.cell_type == "markdown":
            out.append(f"{linked(cell.source, stem, nb)}\n")
        elif folded(cell):
            title = title_of(cell)
            source = TITLE.sub("", cell.source)
            out += [
                f'<details class="code"><summary>{title}</summary>\n',
                f"{block(source)}\n\n</details>\n",
            ]
        elif "show_diff(" in cell.source:  # the recipe is what it prints
            out.append(block(difference(cell), "diff") + "\n")
        else:
            out.append(f"{block(cell.source)}\n")
    out.append(f"[The whole lesson](../notebooks/{stem}.ipynb)\n")
    return "\n".join(out)


def difference(cell):
    """What show_diff printed, without its colors and what stands around a change; not
    what the job printed that the cell starts below it.
    """
    printed = "".join(output.get("text", "") for output in cell.outputs)
    lines = COLORS.sub("", printed).partition("\n$ ")[0].splitlines()
    return "\n".join(line for line in lines if line[:1] != " ")


def block(source, language="lesson"):
    fence = ticks(source, 3)
    return f"{fence}{language}\n{source}\n{fence}"


def linked(text, stem, nb):
    """A text of the lesson, for a page in docs/: its links from there, and each section
    that it names as one.
    """
    cells = {
        number: cell.id
        for cell in nb.cells
        if cell.cell_type == "markdown"
        for number in SECTION.findall(cell.source)
    }

    def link(numbers):
        def to(found):
            if found[0] not in cells:
                return found[0]
            return f"[{found[0]}](../notebooks/{stem}.ipynb#{cells[found[0]]})"

        return re.sub(r"\d+", to, numbers)

    text = CELL.sub(rf"](../notebooks/{stem}.ipynb\1)", text)
    text = LESSON.sub(r"](../notebooks/\1", text)
    text = PAGE.sub("](", text)
    text = NAMED.sub(lambda found: f"{found[1]} {link(found[2])}", text)
    return COLUMN.sub(lambda found: f"{found[1]}{link(found[2])}{found[3]}", text)

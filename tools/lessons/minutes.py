"""How long lessons take a reader: python -m tools.lessons.minutes [FILE…]

Prints the minutes of each lesson, its core and all of it, and of its sections. They are
computed, by what eleven readers took: 120 words of text a minute, 12 lines of visible
code; 1.6 minutes a prediction, 1.5 a picture; an exercise by its stars
(`course.exercises.MINUTES`). No rule compares them with what is written in lessons and
on pages.
"""

import pathlib
import re
import sys

import nbformat

from course import grammar
from course.exercises import MINUTES
from tools.lessons import notebooks, parts
from tools.lessons.questions import QUESTION


def minutes(cells):
    """How many minutes the cells take a reader."""
    return sum(
        _of_text(cell.source) if cell.cell_type == "markdown" else _of_code(cell)
        for cell in cells
    )


def _of_text(source):
    # no words: marks of Markdown, and where links lead
    words = re.sub(r"\]\([^)]*\)|[#*`|]", " ", source).split()
    total = len(words) / 120
    if QUESTION.search(source):
        total += 1.6
    stars = source.split("\n")[0].count("★")
    return total + MINUTES.get(stars, 0)


def _of_code(cell):
    total = 0.0
    if not parts.folded(cell):
        total += parts.filled(grammar.split(cell.source)[1]) / 12
    if "predict(" in cell.source:
        total += 1.6
    forms = {form for output in cell.outputs for form in output.get("data", {})}
    if forms & {"image/png", "image/svg+xml"}:
        total += 1.5
    return total


def main():
    for path in map(pathlib.Path, sys.argv[1:] or notebooks.lessons()):
        nb = nbformat.read(path, as_version=4)
        core, _ = parts.core_and_deeper(nb)
        print(f"{path.stem}: core {minutes(core):.0f}, all {minutes(nb.cells):.0f}")
        for title, cells in parts.sections(nb.cells):
            print(f"{minutes(cells):6.0f}  {title}")


if __name__ == "__main__":
    main()

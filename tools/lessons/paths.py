"""docs/paths.md: the sections and exercises that its steps name exist."""

import functools
import re

import nbformat

from tools.lessons.links import read
from tools.lessons.parts import HEADING

# a lesson in a path, "- [02 · …](…): 19 minutes", and below it sections and exercises
STEP = re.compile(r"^- \[.*?\]\(\.\./notebooks/(.*?)\).*\n((?:  - .*\n)*)", re.M)
EXERCISE = re.compile(r"\d\d\.\d")


@functools.cache
def places(path):
    """Ids of the cells of the lesson at `path` by the headings and exercises that begin
    in them, without the minutes: {"4 · Which lines wait?": "waits", "02.1": …}.
    """
    places = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            names = [title for _, title, _ in HEADING.findall(cell.source)]
            names += re.findall(r"^\*\*(\d\d\.\d)\*\* ★", cell.source, re.M)
            places.update(dict.fromkeys(names, cell.id))
    return places


def problems(root):
    """Sections and exercises that the page names and its lessons lack, as lines."""
    for file, below in STEP.findall(read(root / "docs" / "paths.md")):
        lesson = root / "notebooks" / file
        if not lesson.exists():
            continue  # its link leads nowhere
        for line in below.splitlines():
            name = line.removeprefix("  - ")
            exercises = EXERCISE.findall(name) if name.startswith("exercise") else []
            for part in exercises or [name]:
                if part not in places(lesson):
                    yield f"docs/paths.md: {file} has no section {part!r}"

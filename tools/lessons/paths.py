"""docs/paths.md: the steps of each path, which are lessons or sections and exercises of
them; and how long lessons and paths take, as computed (tools/lessons/parts.py).
"""

import re
from typing import NamedTuple

import nbformat

from course.exercises import lesson_exercises
from tools.lessons import parts
from tools.lessons.links import read

# A lesson in a path: "- [02 · …](…): 19 minutes". Below it sections and exercises; none
# means the core.
STEP = re.compile(
    r"^- \[(\d\d) · .*?\]\(\.\./notebooks/(.*?)\): (.*)\n((?:  - .*\n)*)", re.M
)


class Lesson(NamedTuple):
    """What a path needs to know of a lesson. parts: minutes of sections by heading, of
    exercises by number.
    """

    file: str = ""
    parts: dict = {}
    core: float = 0.0
    all: float = 0.0

    def minutes(self, names):
        """How long these sections and exercises take; without names, the core."""
        if not names:
            return self.core
        return sum(self.parts.get(name, 0.0) for name in names)


NONE = Lesson()


class Step(NamedTuple):
    """A lesson in a path. says: what the page types of its time. names: sections and
    exercises.
    """

    number: str
    file: str
    says: str
    names: list


class Course(NamedTuple):
    lessons: dict  # by number
    paths: dict  # lists of Steps by heading

    def lesson(self, number):
        return self.lessons.get(number, NONE)

    def takes(self, step):
        """Minutes of a step."""
        return self.lesson(step.number).minutes(step.names)


def read_lesson(path):
    """The Lesson in a notebook. Sections (##) have their subsections (###) in them."""
    nb = nbformat.read(path, as_version=4)
    found, current = {}, []  # current: headings of which a piece is a part
    for piece in _pieces(nb):
        top = parts.HEADING.match(piece.source)
        if top and piece.cell_type == "markdown" and len(top[1]) in (2, 3):
            above = current[:1] if top[1] == "###" else []
            current = [*above, top[2]]
        for title in current:
            found[title] = found.get(title, 0.0) + parts.minutes([piece])
    for exercise in lesson_exercises(path.name[:2]).values():
        found[exercise.number] = parts.STARS[exercise.stars]
    core, deeper = map(parts.minutes, parts.core_and_deeper(nb))
    return Lesson(path.name, found, core, core + deeper)


def _pieces(nb):
    """The cells of a notebook; of a text cell the part above each ## or ### and those
    below.
    """
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            for text in re.split(r"^(?=###? )", cell.source, flags=re.M):
                yield nbformat.v4.new_markdown_cell(text)
        else:
            yield cell


def read_course(root):
    lessons = {
        path.name[:2]: read_lesson(path)
        for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    }
    paths = {}
    for part in re.split(r"^###? ", read(root / "docs" / "paths.md"), flags=re.M)[1:]:
        steps = [
            Step(number, file, says, _names(below))
            for number, file, says, below in STEP.findall(part)
        ]
        if steps:
            paths[part.partition("\n")[0]] = steps
    return Course(lessons, paths)


def _names(below):
    """Sections and exercises in the lines below a lesson of a path."""
    names = []
    for line in below.splitlines():
        name = line.removeprefix("  - ")
        if name.startswith("exercise"):
            names += re.findall(r"\d\d\.\d", name)
        else:
            names.append(name)
    return names


def problems(text, course):
    """What is wrong with the steps of docs/paths.md, as lines of text."""
    for line in re.findall(r"^ *- .*", STEP.sub("", text), re.M):
        yield f"neither a lesson nor a section: {line}"
    for heading, steps in course.paths.items():
        for number, file, _, names in steps:
            lesson = course.lesson(number)
            if lesson.file != file:
                yield f"{heading}: there is no lesson {number} in {file}"
            for name in names:
                if name not in lesson.parts:
                    yield f"{heading}: lesson {number} has no section {name!r}"

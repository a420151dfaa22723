"""What docs/teaching.md, the page for teachers, says of lessons and of paths: its
timetables are those of docs/paths.md, and what it names exists.

A timetable stands below a heading that is a path's. Each row with a lesson is the next
step of that path, and says which sections that is, and how many minutes.
"""

import re

import nbformat

from tools.lessons import typed

# A row: "| 0:05 | 02 | 1 2 | 20 | 02.waits | …"
ROW = re.compile(
    r"^\| (home|\d+:\d\d) \| (\d\d) \| ?([^|\n]*?) \| ?([^|\n]*?) \|(.*)", re.M
)
CLOCK = re.compile(r"^\| (\d+):(\d\d) \|", re.M)
PREDICTION = re.compile(r'\bpredict\(\s*"(\d\d\.\w+)"')
EXERCISE = re.compile(r"^\*\*(\d\d\.\d)\*\* ★", re.M)
SECTION = re.compile(r"^## (?:(\d+) · )?", re.M)
# what the page calls predictions and exercises, and its links to those and to sections:
# "[02.waits](../notebooks/02_….ipynb#waits-guess)", "[section 4](…#waits)"
NAME = re.compile(r"(?<![\w.])\d\d\.(?:\d|[a-z]\w*)\b")
LINK = re.compile(r"\[([^]\n]+)\]\(\.\./notebooks/(\d\d)_[^)#\n]*#([^)\n]+)\)")


def places(path):
    """Where the predictions, exercises and sections of a lesson are: "02.waits", "02.1"
    or "section 4" → (id of the cell, the parts that it is in: {"core", "4", itself}).
    """
    found, core, section = {}, {"core"}, set()
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            names = PREDICTION.findall(cell.source)
        else:
            core = set() if cell.source.startswith("## Deeper") else core
            if numbers := SECTION.findall(cell.source):
                section = {*numbers[-1:]} - {""}  # below "## Exercises" none
            names = [f"section {number}" for number in numbers if number]
            names += EXERCISE.findall(cell.source)
        found |= {name: (cell.id, core | section | {name}) for name in names}
    return found


def timetables(text, paths):
    """(name of the path, its steps, the part of the page) for each timetable."""
    for part in re.split(r"^(?=### )", text, flags=re.M):
        name = part.partition("\n")[0].removeprefix("### ")
        if ROW.search(part):
            yield name, paths.get(name, []), part


def short(names):
    """The sections and exercises of a step, by their numbers: ["1", "2", "04.1"]."""
    return [name.partition(" · ")[0] for name in names] or ["core"]


def problems(text, course, folder):
    """What is wrong with the page, as lines of text. folder: of the lessons."""
    known = {
        number: places(folder / lesson.file)
        for number, lesson in course.lessons.items()
    }
    for name in sorted({*NAME.findall(text)}):
        if name not in known.get(name[:2], {}):
            yield f"there is no {name}"
    for label, number, cell in LINK.findall(text):
        if known.get(number, {}).get(label, [None])[0] != cell:
            yield f"{label} of lesson {number} is not in the cell {cell}"
    for name, steps, part in timetables(text, course.paths):
        rows = list(ROW.finditer(part))
        lessons = [row[2] for row in rows], [step.number for step in steps]
        if lessons[0] != lessons[1]:
            yield f"{name}: the path has the lessons {' '.join(lessons[1])}"
            continue
        for row, step in zip(rows, steps, strict=True):
            when, sections, takes = row[1], short(step.names), course.takes(step)
            if row[3].split() != sections:
                yield f"{name}, {when}: this step is {' '.join(sections)}"
            if why := typed.wrong(row[4], takes):
                yield f"{name}, {when}: {why}"
            yield from (f"{name}: {line}" for line in _late(row, part, round(takes)))
            for key in NAME.findall(row[5]) + re.findall(r"section \d+", row[5]):
                _, parts = known.get(step.number, {}).get(key, ("", set()))
                if not parts & {*sections}:
                    yield f"{name}, {when}: {key} is not in this step"


def _late(row, part, takes):
    """A line where a row of a timetable has fewer minutes than its step takes."""
    begin, after = CLOCK.match(row[0]), CLOCK.search(part, row.end())
    if not begin:
        return  # at home
    if not after:
        yield f"nothing follows {row[1]}: say when it ends"
    elif minute(after) - minute(begin) < takes:
        has = minute(after) - minute(begin)
        yield f"{row[1]} has {has} minutes and takes {takes}"


def minute(clock):
    return 60 * int(clock[1]) + int(clock[2])

"""Write how long lessons and paths through them take, and check what README.md, docs/
and lesson 00 say of lessons.

`tools/lessons/notebooks.py write` and `check` call this where they get no FILE (make
format, make lint).
"""

import json
import re
from typing import NamedTuple

import nbformat

from course.exercises import lesson_exercises
from tools.lessons import parts, teaching

# A lesson in a path: "- [02 · …](…): 19 minutes". Below it sections and exercises; none
# means the core.
STEP = re.compile(
    r"^(- \[(\d\d) · .*?\]\(\.\./notebooks/(.*?)\): ).*\n((?:  - .*\n)*)", re.M
)
# Rows of tables, in Markdown or in the JSON of a notebook: what stays, and the last two
# columns, which are computed.
PATH = re.compile(
    r"(\| \[([^]|\n]+)\]\([^)|\n]*#[^)|\n]*\) \|[^|\n]*\|)[^|\n]*\|[^|\n]*\|"
)
LESSON = re.compile(
    r"(\| (\d\d) \| \[[^]|\n]*\]\(notebooks/[^)|\n]*\) \|[^|\n]*\|)[^|\n]*\|[^|\n]*\|"
)
ALL = re.compile(r"(\| \| all [^|\n]*\|[^|\n]*\|)[^|\n]*\|[^|\n]*\|")
# to a file of the course, a heading of it, or one of the same page
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
# A term of the glossary: a heading, its Chinese name, and a line with the number of a
# lesson at its end, " [05]".
TERM = re.compile(r"^### (.*)\n(?:\*(.+)\*\n)?(?:.* \[(\d\d)\]$)?", re.M)
# 锁页内存（固定内存、页锁定内存）: the name to use, then others
CHINESE = re.compile(r"([^（）、]+)(?:（([^（）]+)）)?")
# pages that say how long lessons take
TIMED = (
    "docs/paths.md",
    "README.md",
    "notebooks/00_start_here.ipynb",
    "docs/teaching.md",
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


class Course(NamedTuple):
    """A step is (number of a lesson, its file, names of sections and exercises)."""

    lessons: dict  # by number
    paths: dict  # lists of steps by heading


def read_lesson(path):
    """The Lesson in a notebook. Sections (##) have their subsections (###) in them."""
    nb = nbformat.read(path, as_version=4)
    found, current = {}, []  # current: headings of which a piece is a part
    for piece in _pieces(nb):
        top = re.match(r"(###?) (.*)", piece.source)
        if top and piece.cell_type == "markdown":
            title = re.sub(r" \(\d+ minutes?\)$", "", top[2])
            above = current[:1] if top[1] == "###" else []
            current = [*above, title]
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
            (number, file, _names(below))
            for _, number, file, below in STEP.findall(part)
        ]
        if steps:
            paths[part.partition("\n")[0]] = steps
    return Course(lessons, paths)


def read(path):
    return path.read_text(encoding="utf-8")


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


def hours(minutes):
    """Minutes as hours, to the half: 500 → "8½". Less than three quarters of an hour:
    "10 min".
    """
    if minutes < 45:
        return f"{max(5, 5 * round(minutes / 5))} min"
    whole, half = divmod(round(minutes / 30), 2)
    return f"{whole or ''}{'½' if half else ''}"


def with_times(text, course):
    """`text` of a page with minutes of lessons and hours of paths as they are."""

    def of_step(found):
        names = _names(found[4])
        minutes = round(course.lessons.get(found[2], NONE).minutes(names))
        time = f"{minutes} minute" if minutes == 1 else f"{minutes} minutes"
        return f"{found[1]}{'' if names else 'the core, '}{time}\n{found[4]}"

    def of_path(found):
        if found[2] not in course.paths:
            return found[0]
        steps = course.paths[found[2]]
        numbers = " ".join(dict.fromkeys(number for number, _, _ in steps))
        minutes = sum(
            course.lessons.get(number, NONE).minutes(names)
            for number, _, names in steps
        )
        return f"{found[1]} {numbers} | {hours(minutes)} |"

    def of_lesson(found):
        lesson = course.lessons.get(found[2], NONE)
        return f"{found[1]} {lesson.core:.0f} | {lesson.all:.0f} |"

    def of_all(found):
        core = sum(lesson.core for lesson in course.lessons.values()) / 60
        whole = sum(lesson.all for lesson in course.lessons.values()) / 60
        return f"{found[1]} {core:.0f} hours | {whole:.0f} hours |"

    text = LESSON.sub(of_lesson, ALL.sub(of_all, text))
    text = STEP.sub(of_step, PATH.sub(of_path, text))
    return teaching.with_steps(text, course)


def write(root):
    """Write minutes and hours into the pages that say them. Returns the names of those
    that were wrong.
    """
    course, changed = read_course(root), []
    for name in TIMED:
        before = read(root / name)
        text = with_times(before, course)
        if text != before:
            (root / name).write_text(text, encoding="utf-8", newline="\n")
            changed.append(name)
    return changed


def contributing(root):
    """Paths of the pages for contributors, besides CONTRIBUTING.md."""
    return sorted((root / "docs" / "contributing").glob("*.md"))


def problems(root):
    """What is wrong with the pages about the lessons, as lines of text."""
    course = read_course(root)
    names = [*TIMED, "docs/glossary.md", "docs/zh.md", "CONTRIBUTING.md"]
    names += [path.relative_to(root).as_posix() for path in contributing(root)]
    for name in names:
        yield from (f"{name}: {problem}" for problem in _problems(root / name, course))


def _problems(page, course):
    text, known = read(page), list(course.paths)
    rows = [name for _, name in PATH.findall(text)]
    if page.name != "paths.md":  # elsewhere only the first of them
        known = known[: len(rows)]
    if rows != known:
        yield f"the table of paths names {rows}"
    if with_times(text, course) != text:
        yield "minutes or hours are not those of the lessons: run `make format`"
    if page.name == "paths.md":
        yield from _wrong_steps(text, course)
    if page.name == "teaching.md":
        yield from teaching.problems(text, course, page.parent.parent / "notebooks")
    if page.name == "glossary.md":
        yield from _wrong_terms(text, course.lessons)
    if page.suffix == ".md":  # those of lessons are checked with them
        yield from broken_links(text, page.parent)


def _wrong_steps(text, course):
    for line in re.findall(r"^ *- .*", STEP.sub("", text), re.M):
        yield f"neither a lesson nor a section: {line}"
    for heading, steps in course.paths.items():
        for number, file, names in steps:
            lesson = course.lessons.get(number, NONE)
            if lesson.file != file:
                yield f"{heading}: there is no lesson {number} in {file}"
            for name in names:
                if name not in lesson.parts:
                    yield f"{heading}: lesson {number} has no section {name!r}"


def _wrong_terms(text, lessons):
    terms = TERM.findall(text)
    names = [name.lower() for name, _, _ in terms]
    if names != sorted({*names}):
        yield "the terms are not in alphabetical order, or one stands there twice"
    known = set()
    for name, chinese, number in terms:
        words = chinese_names(chinese)
        if not re.search("[\u4e00-\u9fff]", "".join(words)):
            yield f"{name} has no Chinese name in the form *锁页内存（固定内存）*"
        yield from (f"{word} stands at two terms" for word in words if word in known)
        known.update(words)
        file = lessons.get(number, NONE).file
        if not file or f"\n[{number}]: ../notebooks/{file}\n" not in text:
            problem = (
                "does not end with the number of a lesson, or its link leads nowhere"
            )
            yield f"{name} {problem}"


def chinese_names(line):
    """The names in a line such as 锁页内存（固定内存、页锁定内存）; none where it has
    another form.
    """
    found = CHINESE.fullmatch(line)
    names = [found[1], *(found[2] or "").split("、")] if found else []
    return [name for name in names if name]


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
    )
    return [
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    ]


def broken_links(text, folder):
    """Links in `text` to files that do not exist, to headings of Markdown files that
    have none such, and to cells that a lesson does not have.
    """
    for target, anchor in LINK.findall(text):
        path = folder / target
        if target and not path.exists():
            yield f"the link to {target} leads nowhere"
        elif anchor and (path.suffix == ".md" or not target):
            if anchor not in anchors(read(path) if target else text):
                yield f"there is no heading for the link to {target}#{anchor}"
        elif anchor and path.suffix == ".ipynb":
            if anchor not in {cell["id"] for cell in json.loads(read(path))["cells"]}:
                yield f"there is no cell for the link to {target}#{anchor}"


def with_links(text, folder, address_of):
    """`text`, of a page in `folder`, whose links lead to `address_of(path)`; as they
    are where it gives None.
    """

    def change(found):
        path = (folder / found[1]).resolve()
        to = address_of(path) if found[1] and path.exists() else None
        return found[0].replace(found[1], to, 1) if to else found[0]

    return LINK.sub(change, text)

"""What README.md, docs/ and lesson 00 say of lessons: rules for these pages, and for
those for contributors. `tools/lessons/notebooks.py check` calls this without a FILE.
"""

from tools.lessons import paths, teaching, typed
from tools.lessons.links import broken_links, read

# pages that say how long lessons take
TIMED = (
    "docs/paths.md",
    "README.md",
    "notebooks/00_start_here.ipynb",
    "docs/teaching.md",
)


def contributing(root):
    """Paths of the pages for contributors, besides CONTRIBUTING.md."""
    return sorted((root / "docs" / "contributing").glob("*.md"))


def problems(root):
    """What is wrong with the pages about the lessons, as lines of text."""
    course = paths.read_course(root)
    names = [*TIMED, "docs/glossary.md", "docs/zh.md", "CONTRIBUTING.md"]
    names += [path.relative_to(root).as_posix() for path in contributing(root)]
    for name in names:
        yield from (f"{name}: {problem}" for problem in _problems(root / name, course))


def _problems(page, course):
    text, known = read(page), list(course.paths)
    rows = [name for name, _, _ in typed.PATH.findall(text)]
    if page.name != "paths.md":  # elsewhere only the first of them
        known = known[: len(rows)]
    if rows != known:
        yield f"the table of paths names {rows}"
    yield from typed.on_page(text, course)
    if page.name == "paths.md":
        yield from paths.problems(text, course)
        yield from typed.in_paths(course)
    if page.name == "teaching.md":
        yield from teaching.problems(text, course, page.parent.parent / "notebooks")
    if page.suffix == ".md":  # those of lessons are checked with them
        yield from broken_links(text, page.parent)

"""What README.md, docs/ and lesson 00 say about the lessons: sections exist, times are theirs, links lead somewhere.

`python -m tests.test_docs` writes minutes and hours into these files.
"""

import re
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from tests.conftest import ROOT
from tools import anatomy, notebooks
from utils.exercises import lesson_exercises

README, PATHS, GLOSSARY = ROOT / "README.md", ROOT / "docs" / "paths.md", ROOT / "docs" / "glossary.md"
LESSONS = {path.name[:2]: path for path in notebooks.lessons()}
CORES = "What the core of a lesson is"  # the section of paths.md for lessons without a heading Deeper
ITEM = re.compile(r"^- \[(\d\d) · [^\]]+\]\(\.\./notebooks/([^)]+)\): (the core, )?(\d+) minutes$")
ROW = re.compile(
    r"^\| \[(?P<path>[^\]]+)\]\((?P<link>[^)]*#[^)]+)\) \| .* \| (?P<lessons>[^|]*) \| (?P<hours>[^|]*) \|$"
)
LESSON_ROW = re.compile(
    r"^\| (?P<number>\d\d) \| \[[^\]]+\]\(notebooks/(?P<file>[^)]+)\) \| .* \| (?P<core>[^|]*) \| (?P<all>[^|]*) \|$"
)
CODE = re.compile(r"^```.*?^```", re.M | re.S)


# ---------------------------------------------------------------------------------------------------------------
# Lessons


class Lesson(NamedTuple):
    """What a path needs to know of a lesson. sections: minutes by heading. core: minutes, None without `Deeper`."""

    file: str
    sections: dict
    core: float | None
    minutes: float
    exercises: dict  # minutes by number


def read_lesson(nb, path, exercises=()):
    """The Lesson in a notebook.

    A section ends at the next heading. With numbered sections it is all that stands below its heading, that of its
    subsections included.
    """
    new, found, current = anatomy.is_new(path), {}, []
    for cell in nb.cells:
        if cell.cell_type == "code":
            for title in current:
                found[title] += anatomy.minutes([cell])
            continue
        for text in re.split(r"^(?=#{2,3} )", cell.source, flags=re.M):
            if top := re.match(r"(#{2,3}) (.*)", text):
                title = re.sub(r" \(\d+ minutes?\)$", "", top[2])
                current = [*current[:1], title] if new and top[1] == "###" else [title]
                found.setdefault(title, 0.0)
            for title in current:
                found[title] += anatomy.minutes([nbformat.v4.new_markdown_cell(text)])
    core, deeper = map(anatomy.minutes, anatomy.core_and_deeper(nb))
    times = {exercise.number: anatomy.STARS[exercise.stars] for exercise in exercises}
    return Lesson(path.name, found, core if new else None, core + deeper, times)


def all_lessons():
    read = {number: nbformat.read(path, as_version=4) for number, path in LESSONS.items()}
    return {n: read_lesson(nb, LESSONS[n], lesson_exercises(n).values()) for n, nb in read.items()}


# ---------------------------------------------------------------------------------------------------------------
# docs/paths.md


class Step(NamedTuple):
    """A lesson in a path. sections: headings and numbers of exercises, none if all of the core is meant."""

    number: str
    file: str
    core: bool
    said: int
    sections: list


def steps_of(text):
    """{heading: steps} of the paths, those below its subheadings included, and of the list of cores."""
    found, heading = {}, None
    for line in text.splitlines():
        if top := re.match(r"#{2,3} (.*)", line):
            heading = top[1]
        elif item := ITEM.match(line):
            step = Step(item[1], item[2], bool(item[3]), int(item[4]), [])
            found.setdefault(heading, []).append(step)
        elif exercises := re.match(r"  - exercises? (.*)", line):
            found[heading][-1].sections.extend(exercises[1].split(", "))
        elif section := re.match(r"  - (.*)", line):
            found[heading][-1].sections.append(section[1])
        elif line.startswith("- "):
            raise ValueError(f"neither a lesson nor a section: {line}")
    return found


def minutes_of(step, lessons, cores):
    """Minutes of a step. KeyError for a section or exercise that does not exist."""
    lesson = lessons[step.number]
    if step.core:
        return lesson.core if lesson.core is not None else minutes_of(cores[step.number], lessons, cores)
    return sum(lesson.exercises[name] if name in lesson.exercises else lesson.sections[name] for name in step.sections)


def cores_of(steps):
    return {step.number: step for step in steps.get(CORES, [])}


def hours(minutes):
    """Minutes as hours, to the half: 500 → "8½". Less than three quarters of an hour: "10 min"."""
    if minutes < 45:
        return f"{max(5, 5 * round(minutes / 5))} min"
    halves = round(minutes / 30)
    return f"{halves // 2 or ''}{'½' * (halves % 2)}"


def rows_of(steps, lessons):
    """{path: (its lessons, its hours)} as tables of the paths should say it."""
    cores = cores_of(steps)
    return {
        heading: (
            " ".join(dict.fromkeys(step.number for step in path)),
            hours(sum(minutes_of(step, lessons, cores) for step in path)),
        )
        for heading, path in steps.items()
        if heading != CORES
    }


def path_problems(text, lessons):
    """What is wrong with the paths in `text`, besides minutes."""
    steps = steps_of(text)
    for heading, path in steps.items():
        for step in path:
            lesson = lessons.get(step.number)
            if lesson is None or step.file != lesson.file:
                yield f"{heading}: there is no lesson {step.number} in {step.file}"
                continue
            if step.core == bool(step.sections):
                yield f"{heading}: name the sections of {step.number}, or say 'the core'"
            for section in step.sections:
                if section not in lesson.sections and section not in lesson.exercises:
                    yield f"{heading}: lesson {step.number} has no section {section!r}"
    for number, lesson in lessons.items():
        if (lesson.core is None) != (number in cores_of(steps)):
            yield f"{CORES}: lesson {number} {'is missing' if lesson.core is None else 'marks its core itself'}"
    named = [row["path"] for row in map(ROW.match, text.splitlines()) if row]
    if named != [heading for heading in steps if heading != CORES]:
        yield f"the table names {named}"


def with_times(text, steps, lessons):
    """`text` of a page with the minutes of lessons and the hours of paths as they are.

    That is, in lines such as `- [02 · …](…): 19 minutes` and in the tables of paths and lessons.
    """
    rows, cores, lines = rows_of(steps, lessons), cores_of(steps), text.splitlines()
    path = iter([step for each in steps.values() for step in each])
    totals = [0, 0]
    for place, line in enumerate(lines):
        if ITEM.match(line):
            lines[place] = re.sub(r"\d+ minutes$", f"{round(minutes_of(next(path), lessons, cores))} minutes", line)
        elif (row := ROW.match(line)) and row["path"] in rows:
            lines[place] = _with_last(line, *rows[row["path"]])
        elif (row := LESSON_ROW.match(line)) and row["number"] in lessons:
            number = row["number"]
            core = minutes_of(Step(number, "", True, 0, []), lessons, cores)
            totals = [totals[0] + core, totals[1] + lessons[number].minutes]
            lines[place] = _with_last(line, str(round(core)), str(round(lessons[number].minutes)))
        elif line.startswith("| | all "):
            lines[place] = _with_last(line, *(f"{round(total / 60)} hours" for total in totals))
    return "\n".join(lines) + "\n" * text.endswith("\n")


def _with_last(line, *values):
    """A row of a table with `values` in its last columns."""
    return re.sub(rf"(?:[^|]*\|){{{len(values)}}}$", "".join(f" {value} |" for value in values), line)


# ---------------------------------------------------------------------------------------------------------------
# The glossary, the tables of README.md and lesson 00


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def glossary_problems(text, lessons):
    terms = re.findall(r"^### (.*)\n(.*)\n", text, re.M)
    names = [name for name, _ in terms]
    if names != sorted(names, key=str.lower):
        yield "the terms are not in alphabetical order"
    for name in {name for name in names if anchors(text).count(anchors(f"# {name}")[0]) > 1}:
        yield f"{name} stands there twice"
    targets = dict(re.findall(r"^\[(\d\d)\]: \.\./notebooks/(.*)$", text, re.M))
    for name, said in terms:
        lesson = re.search(r" \[(\d\d)\]$", said)
        if not lesson or lesson[1] not in lessons or targets.get(lesson[1]) != lessons[lesson[1]].file:
            yield f"{name} does not end with the number of a lesson, or its link leads nowhere"
        if len(re.findall(r"[.?!](?= |$)", re.sub(r" \[\d\d\]$", "", said))) != 2:
            yield f"{name} has not two sentences"


def broken_links(text, folder):
    """Links to files that do not exist, and to headings of Markdown files that have none such."""
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        path = folder / target if target else None
        if path and not path.exists():
            yield f"{target} does not exist"
        elif path and path.suffix == ".md" and anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"{target} has no heading for #{anchor}"
        elif path is None and anchor and anchor not in anchors(text):
            yield f"no heading for #{anchor}"


def readme_problems(text, steps, lessons):
    named = {row["number"]: row["file"] for row in map(LESSON_ROW.match, text.splitlines()) if row}
    for number, lesson in lessons.items():
        if named.get(number) != lesson.file:
            yield f"the table of lessons does not name {lesson.file}"
    paths = [row["path"] for row in map(ROW.match, text.splitlines()) if row]
    if paths != list(rows_of(steps, lessons)):
        yield f"the table of paths names {paths}"


# ---------------------------------------------------------------------------------------------------------------
# The pages as they are

PAGES = [README, PATHS, GLOSSARY, ROOT / "CONTRIBUTING.md"]


@pytest.fixture(scope="module")
def lessons():
    return all_lessons()


def text_of(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.fixture(scope="module")
def steps():
    return steps_of(text_of(PATHS))


def test_paths_name_lessons_and_sections_that_exist(lessons):
    assert list(path_problems(text_of(PATHS), lessons)) == []


@pytest.mark.parametrize("path", [PATHS, README, LESSONS["00"]], ids=lambda path: path.name)
def test_times_and_tables_of_paths(path, lessons, steps):
    text = text_of(path)
    assert text == with_times(text, steps, lessons), "run: python -m tests.test_docs"


def test_readme_names_lessons_and_paths(lessons, steps):
    assert list(readme_problems(text_of(README), steps, lessons)) == []


def test_lesson_00_names_the_paths_by_purpose(steps):
    named = [row["path"] for row in map(ROW.match, text_of(LESSONS["00"]).splitlines()) if row]
    assert named == list(steps)[:6] and named[0] == "Everyday"


def test_glossary(lessons):
    assert list(glossary_problems(text_of(GLOSSARY), lessons)) == []


@pytest.mark.parametrize("path", [*PAGES, *LESSONS.values()], ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    assert list(broken_links(text_of(path), path.parent)) == []


# ---------------------------------------------------------------------------------------------------------------
# Each rule notices what it is for


def small(*sources):
    cells = [nbformat.v4.new_markdown_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


WORDS = " ".join(["word"] * 296)  # two minutes, with a heading of four words
NEW = read_lesson(
    small("# Do", f"## 1 · How so?\n\n{WORDS}", f"### And what?\n\n{WORDS}", "## Deeper", "## 2 · Why? (1 minute)"),
    Path("00_start.ipynb"),
)
OLD = read_lesson(small("# Do", f"## How so?\n\n{WORDS} word\n### Why?\nword"), Path("01_older.ipynb"))
SMALL = {"00": NEW._replace(exercises={"00.1": 3}), "01": OLD}

PATHS_PAGE = """# Paths

| path | for whom | lessons | hours |
|---|---|---|---|
| [Short](#short) | all | 00 01 | 10 min |

### Short
- [00 · Start](../notebooks/00_start.ipynb): the core, 4 minutes
- [00 · Start](../notebooks/00_start.ipynb): 3 minutes
  - 2 · Why?
  - exercise 00.1
- [01 · Older](../notebooks/01_older.ipynb): the core, 2 minutes

## What the core of a lesson is
- [01 · Older](../notebooks/01_older.ipynb): 2 minutes
  - How so?
"""
README_PAGE = """| | lesson | question | core | all |
|---|---|---|---|---|
| 00 | [Start](notebooks/00_start.ipynb) | What? | 4 | 4 |
| 01 | [Older](notebooks/01_older.ipynb) | Why? | 2 | 2 |
| | all | | 0 hours | 0 hours |

| [Short](docs/paths.md#short) | all | 00 01 | 10 min |
"""
GLOSSARY_PAGE = """# Glossary

### kernel
A program. It runs, as `x.y` says. [00]

### Matmul
Of 2.5 things. So it matters. [01]

[00]: ../notebooks/00_start.ipynb
[01]: ../notebooks/01_older.ipynb
"""


def test_minutes_of_sections():
    assert round(NEW.sections["1 · How so?"]) == 4 and round(NEW.sections["And what?"]) == 2  # with its subsection
    assert round(OLD.sections["How so?"]) == 2 and round(OLD.sections["Why?"]) == 0  # without
    assert OLD.core is None and round(NEW.core) == 4 and list(NEW.sections)[-1] == "2 · Why?"


def test_small_pages_are_right():
    steps = steps_of(PATHS_PAGE)
    assert list(path_problems(PATHS_PAGE, SMALL)) == list(readme_problems(README_PAGE, steps, SMALL)) == []
    assert with_times(PATHS_PAGE, steps, SMALL) == PATHS_PAGE and with_times(README_PAGE, steps, SMALL) == README_PAGE
    assert list(glossary_problems(GLOSSARY_PAGE, SMALL)) == []


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("  - 2 · Why?", "  - 2 · How?", "lesson 00 has no section '2 · How?'"),
        ("  - How so?", "  - How So?", "lesson 01 has no section 'How So?'"),
        ("exercise 00.1", "exercise 00.2", "lesson 00 has no section '00.2'"),
        ("00_start.ipynb): the", "00_begin.ipynb): the", "no lesson 00 in 00_begin.ipynb"),
        ("exercise 00.1\n- [01", "exercise 00.1\n- [07", "there is no lesson 07"),
        ("): the core, 4 minutes", "): 4 minutes", "name the sections of 00"),
        ("  - 2 · Why?\n  - exercise 00.1\n", "", "name the sections of 00"),
        ("- [01 · Older](../notebooks/01_older.ipynb): 2 minutes\n  - How so?\n", "", "lesson 01 is missing"),
        ("is\n- [01", "is\n- [00 · Start](../notebooks/00_start.ipynb): 4 minutes\n  - Deeper\n- [01", "core itself"),
        ("| [Short](#short) | all | 00 01 | 10 min |\n", "", "the table names []"),
    ],
)
def test_a_broken_path_is_noticed(old, new, message):
    assert old in PATHS_PAGE
    assert message in " ".join(path_problems(PATHS_PAGE.replace(old, new, 1), SMALL))


def test_a_line_that_names_no_lesson_is_noticed():
    with pytest.raises(ValueError, match="neither a lesson nor a section"):
        steps_of("### Short\n- lesson 00: 4 minutes")


@pytest.mark.parametrize(
    "page, old, new",
    [
        (PATHS_PAGE, "the core, 4 minutes", "the core, 5 minutes"),
        (PATHS_PAGE, "the core, 2 minutes", "the core, 12 minutes"),
        (PATHS_PAGE, "ipynb): 3 minutes", "ipynb): 2 minutes"),
        (PATHS_PAGE, "00 01 | 10 min", "00 | 10 min"),
        (README_PAGE, "00 01 | 10 min", "00 01 | 1"),
        (README_PAGE, "What? | 4 | 4", "What? | 4 | 5"),
        (README_PAGE, "Why? | 2 | 2", "Why? | x | x"),
        (README_PAGE, "| all | | 0 hours", "| all | | 1 hours"),
    ],
)
def test_a_wrong_time_is_mended(page, old, new):
    assert old in page
    assert with_times(page.replace(old, new, 1), steps_of(PATHS_PAGE), SMALL) == page


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("| 01 | [Older](notebooks/01_older.ipynb) | Why? | 2 | 2 |\n", "", "does not name 01_older.ipynb"),
        ("01_older", "01_old", "does not name 01_older.ipynb"),
        ("[Short]", "[Long]", "names ['Long']"),
    ],
)
def test_a_gap_in_the_readme_is_noticed(old, new, message):
    assert old in README_PAGE
    assert message in " ".join(readme_problems(README_PAGE.replace(old, new, 1), steps_of(PATHS_PAGE), SMALL))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("### kernel", "### tensor", "alphabetical"),
        ("### Matmul", "### Kernel", "twice"),
        ("It runs, as `x.y` says. [00]", "It runs, as `x.y` says.", "kernel does not end with"),
        ("matters. [01]", "matters. [02]", "Matmul does not end with"),
        ("00_start.ipynb", "00_begin.ipynb", "kernel does not end with"),
        ("A program. It", "A program. That is all. It", "kernel has not two sentences"),
        ("A program. It", "A program: it", "kernel has not two sentences"),
    ],
)
def test_a_broken_glossary_is_noticed(old, new, message):
    assert old in GLOSSARY_PAGE
    assert message in " ".join(glossary_problems(GLOSSARY_PAGE.replace(old, new, 1), SMALL))


@pytest.mark.parametrize(
    "text, message",
    [
        ("[a](glossary.md#kernel) [b](#one-two) [c](https://x.y/#z)\n# One, two", ""),
        ("[a](glossary.md#kernels)", "glossary.md has no heading for #kernels"),
        ("[a](glosary.md#kernel)", "glosary.md does not exist"),
        ("[a](#two)\n# One\n```\n# Two\n```", "no heading for #two"),
    ],
)
def test_a_link_that_leads_nowhere_is_noticed(text, message, tmp_path):
    (tmp_path / "glossary.md").write_text("### kernel\n")
    assert "; ".join(broken_links(text, tmp_path)) == message


def test_hours():
    said = {500: "8½", 60: "1", 50: "1", 46: "1", 44: "45 min", 11: "10 min", 1: "5 min", 170: "3", 200: "3½"}
    assert {minutes: hours(minutes) for minutes in said} == said


def main():
    lessons, steps = all_lessons(), steps_of(text_of(PATHS))
    for path in (PATHS, README):
        path.write_text(with_times(text_of(path), steps, lessons), encoding="utf-8", newline="\n")
    nb = nbformat.read(LESSONS["00"], as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = with_times(cell.source, steps, lessons)
    LESSONS["00"].write_text(notebooks.canonical(nb, LESSONS["00"]), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()

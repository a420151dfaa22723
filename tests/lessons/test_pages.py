"""What tools/lessons/pages.py checks in README.md, docs/ and lesson 00: on a small
course, each fault in turn.
"""

import re

import nbformat
import pytest

from course import exercises
from tests.conftest import ROOT
from tools.lessons import pages, paths, teaching, typed

PATHS, README, START, TEACHING = pages.TIMED
GLOSSARY, GUIDE = "docs/glossary.md", "CONTRIBUTING.md"
CHINESE = "docs/zh.md"
MORE = "docs/contributing/a.md"
SHORT = "| [Short](#short) | all | "
WORDS = " ".join(["word"] * 236)  # two minutes, with a heading of four words
TABLE = """| path | for | lessons | hours |
|---|---|---|---|
| [Short](../docs/paths.md#short) | all | 00 01 | 15 min |"""
CELLS = {
    START: [
        "# Do",
        f"## 1 · How so?\n\n{WORDS}",
        f"### And what?\n\n{WORDS}",
        "## Deeper",
        "## 2 · Why? (1 minute)",
        'predict("00.why", "Because", "x", "y")',
        "**00.1** ★",
        TABLE,
    ],
    "notebooks/01_older.ipynb": [
        "# Do",
        f"## How so?\n\n{WORDS} word",
        "## Deeper\n## Why?",
    ],
}
PAGES = {
    PATHS: """# Paths

| path | for whom | lessons | hours |
|---|---|---|---|
| [Short](#short) | all | 00 01 | 15 min |
| [Long](#long) | nobody | 01 | 5 min |

### Short
#### First
- [00 · Start](../notebooks/00_start_here.ipynb): the core, 4 minutes

#### Then
- [00 · Start](../notebooks/00_start_here.ipynb): 10 minutes
  - 2 · Why?
  - exercise 00.1
- [01 · Older](../notebooks/01_older.ipynb): the core, 2 minutes

### Long
- [01 · Older](../notebooks/01_older.ipynb): 0 minutes
  - Why?
""",
    README: """| | lesson | question | core | all |
|---|---|---|---|---|
| 00 | [Start](notebooks/00_start_here.ipynb) | What? | 4 | 10 |
| 01 | [Older](notebooks/01_older.ipynb) | Why? | 2 | 2 |
| | all | | 0 hours | 0 hours |

| [Short](docs/paths.md#short) | all | 00 01 | 15 min |
| [Long](docs/paths.md#long) | nobody | 01 | 5 min |
""",
    GLOSSARY: """# Glossary

### kernel
*核函数（内核、kernel）*
A program. It runs, as `x.y` says. [00]

### Matmul
*矩阵乘法*
Of 2.5 things. So it matters. [01]

[00]: ../notebooks/00_start_here.ipynb
[01]: ../notebooks/01_older.ipynb
""",
    CHINESE: """# 导读

[a](../notebooks/01_older.ipynb#cell-1) [b](#十问q-a)

## 十问（Q A）
""",
    GUIDE: """[a](docs/glossary.md#kernel) [b](#one-two) [c](http://x/#y)
# One, two
```
# Three
```
""",
    TEACHING: """# For teachers

[00.why](../notebooks/00_start_here.ipynb#cell-5), 2.13.0

### Short

| from | lesson | sections | minutes | vote on | leave out |
|---|---|---|---|---|---|
| home | 00 | core | 4 | | |
| 0:00 | | | | welcome | |
| 0:01 | 00 | 2 00.1 | 10 | 00.why | section 2 |
| 0:12 | 01 | core | 2 | | |
| 0:14 | | | | end | |

[section 1](../notebooks/00_start_here.ipynb#cell-1)
""",
    MORE: "[a](../glossary.md#kernel) [b](../../CONTRIBUTING.md)",
}
EXERCISES = """
from types import SimpleNamespace
EXERCISES = [SimpleNamespace(number="00.1", stars=1)]
"""


def notebook(texts):
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [
        (code if source.startswith("predict") else text)(source, id=f"cell-{n}")
        for n, source in enumerate(texts)
    ]
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells)) + "\n"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The folder of a small course of two lessons whose pages are right, with one
    exercise.
    """
    monkeypatch.setattr(exercises, "FOLDER", tmp_path)
    (tmp_path / "00_start_here.py").write_text(EXERCISES)
    lessons = {name: notebook(texts) for name, texts in CELLS.items()}
    for name, text in {**PAGES, **lessons}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def read(course, page):
    return (course / page).read_text(encoding="utf-8")


def change(course, page, old, new):
    text = read(course, page)
    assert old in text
    (course / page).write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_pages_are_right():
    assert list(pages.problems(ROOT)) == []


def test_each_core_has_two_questions_that_show_what_people_believe():
    course, text = paths.read_course(ROOT), (ROOT / TEACHING).read_text("utf-8")
    rows = re.findall(r'^\| (\d\d) \| ".*" \| \[(.*?)\]\(\S*?/(\d\d)_', text, re.M)
    assert [row[0] for row in rows] == sorted([*course.lessons] * 2)
    for number, name, linked in rows:
        places = teaching.places(ROOT / "notebooks" / course.lessons[number].file)
        assert linked == number and "core" in places[name][1]


def test_contributors_find_what_their_pages_name():
    """Paths such as tools/lab.py, and modules such as tests.exercises.mutants."""
    # not patterns: notebooks/1[34]*.ipynb, notebooks/NN_name.ipynb
    path = re.compile(
        r"(?<![\w./])((?:tools|tests|utils|docs|notebooks|benchmarks|\.github"
        r"|\.devcontainer)/[\w./-]*\w/?)(?![\w[*])"
    )
    module = re.compile(r"-m ((?:tools|tests)[.\w]+)")
    for page in [ROOT / "CONTRIBUTING.md", *pages.contributing(ROOT)]:
        text = page.read_text(encoding="utf-8").replace("../", "")
        named = [name for name in path.findall(text) if "NN" not in name]
        named += [f"{name.replace('.', '/')}.py" for name in module.findall(text)]
        assert named, page.name
        assert [name for name in named if not (ROOT / name).exists()] == [], page.name


def test_the_small_course_is_right(course):
    assert list(pages.problems(course)) == []


FAULTS = [
    (PATHS, "  - 2 · Why?", "  - 2 · How?", "lesson 00 has no section '2 · How?'"),
    (PATHS, "start_here.ipynb): the", "begin.ipynb): the", "no lesson 00 in 00_begin"),
    (PATHS, "  - exercise", "   - exercise", "neither a lesson nor a section:    - ex"),
    (PATHS, f"{SHORT}00 01 | 15 min |\n", "", "the table of paths names ['Long']"),
    (README, "paths.md#short", "paths.md#shorter", "link to docs/paths.md#shorter"),
    (CHINESE, "#cell-1", "#cell-9", "no cell for the link to ../notebooks/01_older"),
    (CHINESE, "#十问q-a", "#十问", "no heading for the link to #十问"),
    (
        GUIDE,
        "#kernel",
        "#kernels",
        "no heading for the link to docs/glossary.md#kernels",
    ),
    (
        GUIDE,
        "docs/glossary",
        "docs/glosary",
        "the link to docs/glosary.md leads nowhere",
    ),
    (MORE, "../../CONT", "../CONT", "the link to ../CONTRIBUTING.md leads nowhere"),
    (TEACHING, "[00.why]", "[00.who]", "there is no 00.who"),
    (TEACHING, "cell-5", "cell-4", "00.why of lesson 00 is not in the cell cell-4"),
    (TEACHING, "[section 1]", "[section 3]", "section 3 of lesson 00 is not in the"),
    (
        TEACHING,
        "| home | 00",
        "| home | 01",
        "Short: the path has the lessons 00 00 01",
    ),
    (TEACHING, "| 0:12 |", "| 0:10 |", "Short: 0:01 has 9 minutes and takes 10"),
    (TEACHING, "| 0:14 | | | | end | |\n", "", "nothing follows 0:12"),
    (TEACHING, "10 | 00.why", "10 | 00.1, section 1", "0:01: section 1 is not in this"),
    (TEACHING, "4 | |", "4 | 00.why |", "Short, home: 00.why is not in this step"),
    (TEACHING, "2 | |", "2 | 00.why |", "Short, 0:12: 00.why is not in this step"),
]


@pytest.mark.parametrize("page, old, new, message", FAULTS)
def test_a_fault_is_noticed(course, page, old, new, message):
    change(course, page, old, new)
    found = [line for line in pages.problems(course) if line.startswith(f"{page}: ")]
    assert message in "\n".join(found)


WRONG_TIMES = [
    (TEACHING, "| home | 00 | core | 4 |", "| home | 00 | | |"),
    (TEACHING, "| home | 00 | core | 4 |", "| home | 00 | core | 6 |"),
    (TEACHING, "| 2 00.1 | 10 |", "| 2 | 7 |"),
    (PATHS, "the core, 4 minutes", "the core, 6 minutes"),
    (PATHS, "the core, 2 minutes", "x"),
    (PATHS, "ipynb): 10 minutes", "ipynb): the core, 10 minutes"),
    (PATHS, "00 01 | 15 min", "00 | 15 min"),
    (PATHS, "00 01 | 15 min", "00 01 | 25 min"),
    (README, "What? | 4 | 10", "What? | 4 | 12"),
    (README, "What? | 4 | 10", "What? | 2 | 10"),
    (README, "| all | | 0 hours", "| all | | 1 hours"),
    (START, "00 01 | 15 min", "00 01 | 1"),
]


@pytest.mark.parametrize("page, old, new", WRONG_TIMES)
def test_a_wrong_time_is_noticed(course, page, old, new):
    change(course, page, old, new)
    found = list(pages.problems(course))
    assert found and all(problem.startswith(f"{page}: ") for problem in found)


def test_a_time_may_be_a_bit_off(course):
    change(course, PATHS, "the core, 4 minutes", "the core, 5 minutes")
    change(course, README, "What? | 4 | 10", "What? | 5 | 11")
    assert list(pages.problems(course)) == []


TIMES = [  # what is typed, minutes that it takes, unit of the column, whether right
    ("8½", 510, "hours", True),
    ("8½", 590, "hours", True),
    ("8½", 605, "hours", False),
    ("½", 50, "hours", True),
    ("½", 61, "hours", False),
    ("16 hours", 960, "hours", True),
    ("10 min", 15, "hours", True),
    ("10 min", 16, "hours", False),
    ("40", 47, "min", True),
    ("40", 48, "min", False),
    ("1 minute", 2, "min", True),
    ("1 minute", 2.6, "min", False),
    ("", 0, "min", False),
    ("soon", 0, "min", False),
]


@pytest.mark.parametrize("says, takes, unit, right", TIMES)
def test_times(says, takes, unit, right):
    assert (typed.wrong(says, takes, unit) is None) is right

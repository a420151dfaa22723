"""What tools/lessons/pages.py checks in README.md and docs/: on a small course, each
fault in turn.
"""

import re

import nbformat
import pytest

from tests.conftest import ROOT
from tools.lessons import pages

PATHS, GLOSSARY, GUIDE = "docs/paths.md", "docs/glossary.md", "CONTRIBUTING.md"
CHINESE, MORE = "docs/zh.md", "docs/contributing/a.md"
CELLS = {
    "notebooks/00_start_here.ipynb": ["# Do", "## 2 · Why? (1 minute)", "**00.1** ★"],
    "notebooks/01_older.ipynb": ["# Do", "## How so?\n\nSo.\n\n### Why?"],
}
PAGES = {
    "README.md": "[Short](docs/paths.md#short)",
    PATHS: """# Paths

### Short
- [00 · Start](../notebooks/00_start_here.ipynb): 10 minutes
  - 2 · Why?
  - exercise 00.1
- [01 · Older](../notebooks/01_older.ipynb): the core, 2 minutes

### Long
- [01 · Older](../notebooks/01_older.ipynb): 0 minutes
  - Why?
""",
    GLOSSARY: "# Glossary\n\n### kernel\n",
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
    MORE: "[a](../glossary.md#kernel) [b](../../CONTRIBUTING.md)",
}


@pytest.fixture
def course(tmp_path):
    """The folder of a small course of two lessons whose pages are right."""
    for name, sources in CELLS.items():
        cells = [
            nbformat.v4.new_markdown_cell(source, id=f"cell-{n}")
            for n, source in enumerate(sources)
        ]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / name)
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_pages_are_right():
    assert list(pages.problems(ROOT)) == []


def test_contributors_find_what_their_pages_name():
    """Paths such as tools/lab.py, and modules such as tests.exercises.mutants."""
    # not patterns: notebooks/1[34]*.ipynb, notebooks/NN_name.ipynb
    path = re.compile(
        r"(?<![\w./-])((?:tools|tests|utils|course|simulate|docs|notebooks|benchmarks"
        r"|packages|\.github|\.devcontainer)/[\w./-]*\w/?)(?![\w[*])"
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
    (PATHS, "  - 2 · Why?", "  - 2 · How?", "ipynb has no section '2 · How?'"),
    (PATHS, "  - Why?", "  - Why not?", "01_older.ipynb has no section 'Why not?'"),
    (PATHS, "exercise 00.1", "exercise 00.2", "ipynb has no section '00.2'"),
    (
        PATHS,
        "start_here.ipynb): 10",
        "begin.ipynb): 10",
        "00_begin.ipynb leads nowhere",
    ),
    ("README.md", "#short", "#shorter", "link to docs/paths.md#shorter"),
    (CHINESE, "#cell-1", "#cell-9", "no cell for the link to ../notebooks/01_older"),
    (CHINESE, "#十问q-a", "#十问", "no heading for the link to #十问"),
    (GUIDE, "#kernel", "#kernels", "no heading for the link to docs/glossary.md#ker"),
    (GUIDE, "docs/glossary", "docs/glosary", "link to docs/glosary.md leads nowhere"),
    (MORE, "../../CONT", "../CONT", "the link to ../CONTRIBUTING.md leads nowhere"),
]


@pytest.mark.parametrize("page, old, new, message", FAULTS)
def test_a_fault_is_noticed(course, page, old, new, message):
    text = (course / page).read_text(encoding="utf-8")
    assert old in text
    (course / page).write_text(text.replace(old, new, 1), encoding="utf-8")
    (problem,) = pages.problems(course)
    assert problem.startswith(f"{page}: ") and message in problem

"""What `make lab` copies for the reader, what it never touches, and where it goes when
the course cannot be written.
"""

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from tests.conftest import ROOT, errors_of, text_of
from tools import lab
from tools.lessons import run

LESSON = "05_of_the_test.ipynb"
TEXT = (
    "See [a](05_of_the_test.ipynb), [b](../docs/glossary.md#kernel),"
    " [c](scripts/train.py), [d](https://x.org/scripts/)"
)
PICTURE = (
    '<img src="diagrams/machine.svg">, [e](exercises/05_x.py#L3), not'
    " (scripts/train.py), [f](scripture.md)"
)


def write(path, *sources):
    """A lesson that has been run, with one folded cell."""
    cells = [nbformat.v4.new_markdown_cell(f"{TEXT}\n{PICTURE}", id="head")]
    output = [nbformat.v4.new_output("stream", text="0\n")]
    marks = {"tags": ["fold"], "jupyter": {"source_hidden": True}, "cellView": "form"}
    for n, source in enumerate(sources):
        cells.append(
            nbformat.v4.new_code_cell(
                source, id=f"cell-{n}", execution_count=n + 1, outputs=output
            )
        )
        cells[-1].metadata = nbformat.from_dict({} if n else marks)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=cells, metadata={"kernelspec": kernel, "colab": {}}
        ),
        path,
    )


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small course in a folder with spaces, and a home folder."""
    folder = tmp_path / "a course"
    for name in ("docs", "utils", "notebooks/scripts"):
        (folder / name).mkdir(parents=True)
    (folder / "docs" / "glossary.md").touch()
    (folder / "utils" / "cells.py").touch()
    (folder / "notebooks" / "scripts" / "train.py").touch()
    write(folder / "notebooks" / LESSON, "x = 0", "print(x)  # …")
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(lab, "ROOT", folder)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    return folder


@pytest.fixture
def copy(course):
    """The reader's copy of the lesson, just made."""
    assert lab.provide_course() == (course, "work")
    lab.copy_lessons(course / "work")
    return course / "work" / LESSON


def again(copy):
    """make lab once more: whether the copy is the same file with the same text as
    before.
    """
    before = copy.read_bytes()
    lab.copy_lessons(copy.parent)
    return copy.read_bytes() == before


def change(path, old, new):
    path.write_text(
        path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8"
    )


def test_a_copy_has_no_outputs_and_keeps_all_else(copy, course):
    old, new = (
        nbformat.read(path, as_version=4)
        for path in (course / "notebooks" / LESSON, copy)
    )
    nbformat.validate(new)
    assert list(copy.parent.iterdir()) == [copy]
    assert re.fullmatch("[0-9a-f]{12}", new.metadata.pop("device_lab").edition)
    assert old.metadata == new.metadata
    for before, after in zip(old.cells[1:], new.cells[1:], strict=True):
        assert (after.execution_count, after.outputs) == (None, [])
        assert (after.id, after.metadata, after.source) == (
            before.id,
            before.metadata,
            before.source,
        )


def test_links_work_from_work(copy):
    text = nbformat.read(copy, as_version=4).cells[0].source
    assert text.splitlines() == [
        TEXT.replace("](scripts/", "](../notebooks/scripts/"),
        PICTURE.replace('"diagrams/', '"../notebooks/diagrams/').replace(
            "](exercises/", "](../notebooks/exercises/"
        ),
    ]


def targets(lesson, folder):
    """The files that a lesson links to or shows, when it lies in this folder; those of
    other lessons by name.
    """
    for cell in lesson["cells"]:
        if cell["cell_type"] == "markdown":
            text = re.sub(r"`[^`\n]*`", "", "".join(cell["source"]))
            for found in re.findall(
                r'\]\(([^)#:\s]+)[^):]*\)|(?:src|href)="([^"#:]+)"', text
            ):
                target = "".join(found)
                yield (
                    target
                    if re.fullmatch(r"\d\d_\w+\.ipynb", target)
                    else os.path.normpath(folder / target)
                )


def test_every_link_of_the_course_leads_to_the_same_from_work():
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        there = list(targets(json.loads(path.read_text(encoding="utf-8")), path.parent))
        assert there == list(targets(lab.for_reader(path), ROOT / "work"))
        assert len(there) > 2


def test_a_newer_edition_replaces_what_nobody_has_used(copy, course, capsys):
    assert again(copy)
    change(course / "notebooks" / LESSON, "x = 0", "x = 1")
    assert not again(copy) and "x = 1" in copy.read_text()
    assert again(copy) and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("print(x)", "print(x + 1)"),
        ('"execution_count": null', '"execution_count": 1'),
        ("See [a]", "My note. See [a]"),
        ('"edition"', '"something_else"'),
        ('"device_lab"', '"something_else"'),
        ('"cells": [', '"cells": ['[:5]),
        ('"source"', '"sources"'),
        ('"metadata"', '"meta"'),
    ],
)
def test_what_the_reader_has_changed_is_never_touched(copy, course, capsys, old, new):
    assert old in copy.read_text(encoding="utf-8")
    change(copy, old, new)
    damaged = old in ('"cells": [', '"source"', '"metadata"')
    assert again(copy)
    line = (
        f"work/{LESSON}: the course has a newer edition. To get it, rename yours and"
        " start again.\n"
    )
    assert capsys.readouterr().out == (line if damaged else "")
    change(course / "notebooks" / LESSON, "x = 0", "x = 1")
    assert again(copy) and capsys.readouterr().out == line
    mine = copy.rename(copy.with_name("05 mine.ipynb"))
    before = mine.read_bytes()
    lab.copy_lessons(copy.parent)
    assert (
        "x = 1" in copy.read_text()
        and mine.read_bytes() == before
        and capsys.readouterr().out == ""
    )


def test_a_reader_who_is_up_to_date_by_hand_hears_nothing(copy, course, capsys):
    change(course / "notebooks" / LESSON, "x = 0", "x = 1")
    change(copy, "x = 0", "x = 1")
    assert again(copy) and capsys.readouterr().out == ""


def test_only_what_is_not_there_is_copied(copy, course):
    write(course / "notebooks" / "06_more.ipynb", "y = 0")
    assert again(copy) and {path.name for path in copy.parent.iterdir()} == {
        LESSON,
        "06_more.ipynb",
    }


# --------------------------------------------------------------------------------------


def test_a_course_that_cannot_be_written_is_copied_home(course, tmp_path, capsys):
    (course / "work").touch()  # no folder can be made there, not even by root
    home = tmp_path / "home" / "device-lab-work"
    # the second time, files are there that the course had when it was older
    for _ in range(2):
        assert lab.provide_course() == (home, "work")
        line = (
            "The course's folder cannot be written: your copies of the lessons are in"
            f" {home / 'work'}\n"
        )
        assert capsys.readouterr().out == line
        lab.copy_lessons(home / "work")
        files = {
            path.relative_to(home).as_posix()
            for path in home.rglob("*")
            if path.is_file()
        }
        assert files == {
            f"work/{LESSON}",
            "docs/glossary.md",
            "utils/cells.py",
            "notebooks/scripts/train.py",
        }
        (home / "utils" / "cells.py").write_text("old")
    assert again(home / "work" / LESSON)
    lab.provide_course()
    assert (home / "utils" / "cells.py").read_text() == ""


def test_nothing_can_be_written_and_the_lessons_still_open(course, tmp_path, capsys):
    (course / "work").touch()
    (tmp_path / "home" / "device-lab-work").touch()
    assert lab.provide_course() == (course, "notebooks")
    assert capsys.readouterr().out.startswith(
        "Neither the course nor your home folder can be written: "
    )


@pytest.mark.parametrize("read_only", [False, True])
def test_a_copied_lesson_finds_the_course(kernel, monkeypatch, tmp_path, read_only):
    """The set-up cell, a diagram or recording, an exercise, its score, a job: from
    work, and from a copy at home.
    """
    folder = tmp_path / "a course"
    ignore = shutil.ignore_patterns(
        "__pycache__", ".ipynb_checkpoints", "0[1-9]_*.ipynb", "1*.ipynb"
    )
    for name in ("docs", "notebooks", "utils"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    if read_only:
        (folder / "work").touch()
    monkeypatch.setattr(lab, "ROOT", folder)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    course, work = lab.provide_course()
    assert (course == folder) is not read_only
    lab.copy_lessons(course / work)
    (path,) = (course / work).glob("00_*.ipynb")
    nb = nbformat.read(path, as_version=4)
    (setup,) = (cell for cell in nb.cells if cell.id == "setup")
    more = [
        "from utils import course; print(course.COURSE)",
        (
            "from utils import launch; run = launch.torchrun('scripts/train_ddp.py',"
            " '--help', processes=1, quiet=True)"
        ),
        "check('00.1', 5); progress(); recordings.published('x')",
    ]
    nb.cells = [setup, *map(nbformat.v4.new_code_cell, more)]
    monkeypatch.setattr(run, "kernel", kernel)
    run.execute(nb, course / work, allow_errors=True)
    assert [errors_of(cell) for cell in nb.cells] == [[]] * 4, [
        text_of(cell) for cell in nb.cells
    ]
    assert (
        text_of(setup) == ""
        and text_of(nb.cells[1]).strip() == str(course)
        and "scripts/train_ddp.py" in text_of(nb.cells[2])
    )
    assert "✗ 00.1" in text_of(nb.cells[3]) and json.loads(
        (course / ".progress.json").read_text()
    ) == {"00.1": "tried"}

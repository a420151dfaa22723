"""What `make lab` copies for the reader, what it never touches, where it goes when the
course or the home folder cannot be written, and that JupyterLab serves it.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from traitlets.config import Configurable, PyFileConfigLoader

from tests.conftest import FOLDERS, ROOT, errors_of, text_of
from tools import lab
from tools.contents import Contents, Sessions
from tools.lessons import run

LESSON = "05_of_the_test.ipynb"
TEXT = (
    "See [a](05_of_the_test.ipynb), [b](../docs/glossary.md#kernel),"
    " [c](scripts/train.py), [d](https://x.org/scripts/)"
)
BADGE = "[![Open in Colab](https://x.org/a.svg)](https://x.org/b) [![K](https://x.org)]"
PAGE = "# Paths\n\n> Of the original.\n\n[05](../notebooks/05_of_the_test.ipynb#x)\n"
PICTURE = (
    '<img src="diagrams/machine.svg">, [e](exercises/05_x.py#L3), not'
    " (scripts/train.py), [f](scripture.md)"
)


def write(path, *sources):
    """A lesson that has been run, with one folded cell."""
    output = [nbformat.v4.new_output("stream", text="0\n")]
    marks = {"tags": ["fold"], "jupyter": {"source_hidden": True}, "cellView": "form"}
    nb = nbformat.v4.new_notebook(metadata={"colab": {}})
    text = f"{BADGE}\n\n{TEXT}\n{PICTURE}"
    nb.cells = [nbformat.v4.new_markdown_cell(text, id="head")]
    for n, source in enumerate(sources, 1):
        cell = nbformat.v4.new_code_cell(source, id=f"cell-{n}", outputs=output)
        cell.execution_count = n
        cell.metadata = nbformat.from_dict(marks if n == 1 else {})
        nb.cells.append(cell)
    nbformat.write(nb, path)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small course in a folder with spaces, and a home folder."""
    folder = tmp_path / "a course"
    for name in ("docs/glossary.md", "course/cells.py", "notebooks/scripts/train.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    (folder / "docs" / "paths.md").write_text(PAGE)
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
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_copy_has_no_outputs_and_keeps_all_else(copy, course):
    old = nbformat.read(course / "notebooks" / LESSON, as_version=4)
    new = nbformat.read(copy, as_version=4)
    nbformat.validate(new)
    names = {path.name for path in copy.parent.iterdir()}
    assert names == {LESSON, *lab.PAGES}
    assert re.fullmatch("[0-9a-f]{12}", new.metadata.pop("device_lab").edition)
    assert {**old.metadata, **lab.kernel_metadata()} == new.metadata
    assert BADGE in old.cells[0].source and new.cells[0].source.startswith("See [a]")
    for before, after in zip(old.cells[1:], new.cells[1:], strict=True):
        assert (after.execution_count, after.outputs) == (None, [])
        for part in ("id", "metadata", "source"):
            assert after[part] == before[part]


# what the reader has a copy of: lessons, two pages
COPIED = re.compile(r"(?:.*/)?(\d\d_\w+\.ipynb|paths\.md|glossary\.md)")


def targets(text, folder, copied=""):
    """The files that a text links to or shows, when it lies in this folder; those that
    the reader has a copy of by name, if they are linked in the folder `copied`.
    """
    # [text](target#anchor), [01]: target, src="target"; no address with a colon
    link = r'\]\(([^)#:\s]+)[^):]*\)|^\[\d\d\]: ([^#:\s]+)$|(?:src|href)="([^"#:]+)"'
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in map("".join, re.findall(link, text, re.M)):
        path = os.path.normpath(folder / target)
        name = COPIED.fullmatch(path)
        if name and copied:
            assert path == str(copied / name[1])
        yield name[1] if name else path


def text_cells(lesson):
    texts = [c["source"] for c in lesson["cells"] if c["cell_type"] == "markdown"]
    return "\n\n".join(map("".join, texts))


@pytest.mark.parametrize("core", [False, True])
def test_every_link_of_the_course_leads_to_the_same_or_its_copy_from_work(core):
    work = ROOT / "work" / "core" if core else ROOT / "work"
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        text = text_cells(json.loads(path.read_text(encoding="utf-8")))
        text = text.partition("\n\n## Deeper")[0] if core else text
        there = list(targets(text, path.parent))
        copy = text_cells(lab.for_reader(path, core))
        assert there == list(targets(copy, work, copied=work)) and len(there) > 2
    for name in lab.PAGES:
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        here = list(targets(lab.page_for_reader(ROOT / "docs" / name), work, work))
        # the note of the original, which the copy lacks, has no link
        assert here == list(targets(text, ROOT / "docs")) and len(here) > 14


def test_links_to_pages_have_the_anchors_of_jupyterlab(course):
    path = course / "docs" / "paths.md"
    path.write_text("[a](#many-gpus), [b](glossary.md#one)\n\n### Many GPUs\n")
    text = "[a](../docs/paths.md#many-gpus) [b](../docs/paths.md) [c](#many-gpus)"
    expected = "[a](paths.md#Many-GPUs) [b](paths.md) [c](#many-gpus)"
    assert lab.into_copies(text) == expected
    copy = lab.page_for_reader(path)
    assert copy.startswith("[a](#Many-GPUs), [b](glossary.md#one)\n")


DEEPER = ["## 1 · Why?", "## Deeper\n\nTwo.", "A", "## 2 · How?", "### B", "## More"]


@pytest.fixture
def deeper(course):
    """The lesson of the small course, with a part below "Deeper"."""
    path = course / "notebooks" / LESSON
    nb = nbformat.read(path, as_version=4)
    nb.cells += map(nbformat.v4.new_markdown_cell, DEEPER)
    nbformat.write(nb, path)
    return path


def test_sections_below_deeper_are_closed(deeper):
    closed = [
        "".join(cell["source"])
        for cell in lab.for_reader(deeper)["cells"]
        if cell["metadata"].get("jp-MarkdownHeadingCollapsed")
    ]
    assert closed == ["## 2 · How?", "## More"]


def test_the_core_ends_above_deeper_beside_the_whole_copy(course, deeper, capsys):
    work = course / "work"
    lab.copy_lessons(lab.provide_course()[0] / "work")
    whole = work / LESSON
    change(whole, "x = 0", "x = 5")
    before = whole.read_bytes()
    lab.copy_lessons(work, core=True)
    assert whole.read_bytes() == before
    assert {path.name for path in work.iterdir()} == {LESSON, *lab.PAGES, "core"}
    assert {path.name for path in (work / "core").iterdir()} == {LESSON, *lab.PAGES}
    old = nbformat.read(deeper, as_version=4).cells
    new = nbformat.read(work / "core" / LESSON, as_version=4)
    nbformat.validate(new)
    assert [cell.id for cell in new.cells] == [cell.id for cell in old[:5]]
    assert [cell.source for cell in new.cells[3:]] == ["## 1 · Why?", lab.REST]
    # where nothing is below "Deeper", nothing is missing
    write(course / "notebooks" / "06_more.ipynb", "y = 0")
    lab.copy_lessons(work, core=True)
    assert lab.REST not in (work / "core" / "06_more.ipynb").read_text()
    assert capsys.readouterr().out == ""


def test_a_core_that_the_reader_has_changed_is_never_touched(course, deeper, capsys):
    work = lab.provide_course()[0] / "work"
    lab.copy_lessons(work, core=True)
    copy = work / "core" / LESSON
    before = copy.read_bytes()
    change(deeper, "### B", "### C")  # is no part of the core
    lab.copy_lessons(work, core=True)
    assert copy.read_bytes() == before
    change(deeper, "x = 0", "x = 1")
    lab.copy_lessons(work, core=True)
    assert "x = 1" in copy.read_text() and capsys.readouterr().out == ""
    change(copy, "x = 1", "x = 7")
    change(deeper, "x = 1", "x = 2")
    lab.copy_lessons(work, core=True)
    assert "x = 7" in copy.read_text() and not (work / LESSON).exists()
    line = f"work/core/{LESSON}: the course has a newer edition."
    assert capsys.readouterr().out.startswith(line)


def test_a_copied_page_opens_copies_and_stays_once_changed(copy, course):
    page = copy.with_name("paths.md")
    text = page.read_text()
    assert text.startswith("# Paths\n\n[05](05_of_the_test.ipynb#x)\n")
    assert again(page)
    change(course / "docs" / "paths.md", "# Paths", "# Ways")
    assert not again(page) and page.read_text().startswith("# Ways\n\n[05](05_")
    change(page, "# Ways", "# My ways")
    change(course / "docs" / "paths.md", "# Ways", "# Roads")
    assert again(page) and page.read_text().startswith("# My ways")


def test_a_newer_edition_replaces_what_nobody_has_used(copy, course, capsys):
    write(course / "notebooks" / "06_more.ipynb", "y = 0")
    assert again(copy) and copy.with_name("06_more.ipynb").exists()
    change(course / "notebooks" / LESSON, "x = 0", "x = 1")
    assert not again(copy) and "x = 1" in copy.read_text()
    assert again(copy) and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("old", "new", "damaged"),
    [
        ("print(x)", "print(x + 1)", False),
        ('"execution_count": null', '"execution_count": 1', False),
        ("See [a]", "My note. See [a]", False),
        ('"edition"', '"something_else"', False),
        ('"cells": [', '"cells', True),
    ],
)
def test_what_the_reader_has_changed_is_never_touched(
    copy, course, capsys, old, new, damaged
):
    change(copy, old, new)
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
    assert "x = 1" in copy.read_text() and mine.read_bytes() == before
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------------------------
# Where the course or the home folder cannot be written


def test_a_course_that_cannot_be_written_is_copied_home(course, tmp_path, capsys):
    (course / "work").touch()  # no folder can be made there, not even by root
    home = tmp_path / "home" / "device-lab-work"
    line = (
        "The course's folder cannot be written: your copies of the lessons are in"
        f" {home / 'work'}\n"
    )
    expected = {f"work/{name}" for name in (LESSON, *lab.PAGES)}
    expected |= {"docs/glossary.md", "docs/paths.md", "course/cells.py"}
    expected.add("notebooks/scripts/train.py")
    # the second time, files are there that the course had when it was older
    for _ in range(2):
        assert lab.provide_course() == (home, "work")
        assert capsys.readouterr().out == line
        lab.copy_lessons(home / "work")
        files = [path for path in home.rglob("*") if path.is_file()]
        assert {path.relative_to(home).as_posix() for path in files} == expected
        assert (home / "course" / "cells.py").read_text() == ""
        (home / "course" / "cells.py").write_text("old")
    assert again(home / "work" / LESSON)


def test_nothing_can_be_written_and_the_lessons_still_open(course, tmp_path, capsys):
    (course / "work").touch()
    (tmp_path / "home" / "device-lab-work").touch()
    assert lab.provide_course() == (course, "notebooks")
    said = capsys.readouterr().out
    assert said.startswith("Neither the course nor your home folder can be written: ")


@pytest.mark.slow
@pytest.mark.parametrize("read_only, core", [(False, False), (True, True)])
def test_a_copied_lesson_finds_the_course(
    kernel, monkeypatch, tmp_path, read_only, core
):
    """The set-up cell, a diagram or recording, an exercise, its score, a job: from
    work, and from a core in a copy at home.
    """
    folder = tmp_path / "a course"
    ignore = shutil.ignore_patterns(
        "__pycache__", ".ipynb_checkpoints", "0[1-9]_*.ipynb", "1*.ipynb"
    )
    for name in ("docs", "notebooks", *FOLDERS):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    if read_only:
        (folder / "work").touch()
    monkeypatch.setattr(lab, "ROOT", folder)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    course, work = lab.provide_course()
    assert (course == folder) is not read_only
    lab.copy_lessons(course / work, core)
    folder = course / work / "core" if core else course / work
    (path,) = folder.glob("00_*.ipynb")
    nb = nbformat.read(path, as_version=4)
    (setup,) = (cell for cell in nb.cells if cell.id == "setup")
    place = "from course import paths; print(paths.COURSE)"
    job = (
        "from utils import launch; run = launch.torchrun('scripts/train_ddp.py',"
        " '--help', processes=1, quiet=True)"
    )
    score = "check('00.1', 5); progress(); recordings.published('x')"
    nb.cells = [setup, *map(nbformat.v4.new_code_cell, [place, job, score])]
    monkeypatch.setattr(run, "kernel", kernel)
    run.execute(nb, folder, allow_errors=True)
    shown = list(map(text_of, nb.cells))
    assert [errors_of(cell) for cell in nb.cells] == [[]] * 4, shown
    assert shown[0].startswith("Ready: PyTorch ") and shown[1].strip() == str(course)
    assert "scripts/train_ddp.py" in shown[2] and "✗ 00.1" in shown[3]
    progress = json.loads((course / ".progress.json").read_text())
    assert progress == {"00.1": "tried"}


def printed(code, home):
    """What `code` prints with this home folder; `lab` is imported."""
    return subprocess.check_output(
        [sys.executable, "-c", f"import lab, os, sys; {code}"],
        cwd=ROOT / "tools",
        env={**os.environ, "HOME": str(home)},
        text=True,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    os.name == "nt", reason="Windows does not find the home folder through HOME"
)
def test_where_neither_home_nor_environment_can_be_written_settings_are_lost(tmp_path):
    (tmp_path / "home").touch()
    code = f"sys.prefix = {str(tmp_path)!r}; lab.provide_home()"
    said = printed(f"{code}; print(os.environ['HOME'])", "/dev/null/none")
    line, home = said.splitlines()
    assert line == f"The home folder cannot be written: settings go to {home}"
    assert str(tmp_path) not in home
    os.rmdir(home)


VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize(
    ("path", "shutting_down", "stay"),
    [(LESSON, False, True), (LESSON, True, False), ("other.ipynb", False, False)],
)
def test_widgets_are_read_while_their_kernel_lives(tmp_path, path, shutting_down, stay):
    async def list_sessions():
        return [{"path": path, "kernel": {"id": "1"}}]

    contents = Contents(root_dir=str(tmp_path))
    contents.parent = Configurable()
    kernel = SimpleNamespace(shutting_down=shutting_down)
    contents.parent.kernel_manager = SimpleNamespace(get_kernel={"1": kernel}.get)
    contents.parent.session_manager = SimpleNamespace(list_sessions=list_sessions)
    write(tmp_path / LESSON, "x")
    nb = nbformat.read(tmp_path / LESSON, as_version=4)
    alone, both = {VIEW: {}}, {VIEW: {}, "text/plain": "x"}
    nb.cells[1].outputs = [
        nbformat.v4.new_output("display_data", data) for data in (alone, both)
    ]
    nbformat.write(nb, tmp_path / LESSON)
    before = (tmp_path / LESSON).read_bytes()
    model = asyncio.run(contents.get(LESSON))
    first, second = model["content"]["cells"][1]["outputs"]
    assert first["data"] == alone  # nothing else to show
    assert second["data"] == (both if stay else {"text/plain": "x"})
    assert (tmp_path / LESSON).read_bytes() == before


def test_a_session_is_gone_before_its_kernel_has_ended():
    """What is opened again meanwhile must not get it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE session (session_id)")
        base.execute("INSERT INTO session VALUES ('1'), ('2')")
        seen = []

        async def get_session(session_id):
            return {"id": session_id, "kernel": {"id": f"kernel {session_id}"}}

        async def shutdown_kernel(kernel_id):
            seen.append((kernel_id, base.execute("SELECT * FROM session").fetchall()))

        manager = SimpleNamespace(shutdown_kernel=shutdown_kernel)
        cursor, sessions = base.cursor(), {"get_session": get_session}
        sessions = SimpleNamespace(cursor=cursor, kernel_manager=manager, **sessions)
        asyncio.run(Sessions.delete_session(sessions, "1"))
    assert seen == [("kernel 1", [("2",)])]


# --------------------------------------------------------------------------------------
# JupyterLab, and what opens the lessons elsewhere


def page_of(log, lab, folder):
    """(port, content) of the page in this folder whose address JupyterLab has printed,
    once it is served.
    """
    page = rf"lab/tree/{folder}/00_start_here\.ipynb"
    address = rf"http://127\.0\.0\.1:(\d+)/{page}\?token=\w+"
    start = time.perf_counter()
    while True:
        assert lab.poll() is None, log.read_text()
        assert time.perf_counter() - start < 60, log.read_text()
        time.sleep(0.05)
        found = re.search(address, log.read_text())
        # the address is printed before anybody listens there
        with contextlib.suppress(OSError):
            if found:
                return int(found[1]), urllib.request.urlopen(
                    found[0], timeout=30
                ).read()


@pytest.mark.slow
@pytest.mark.parametrize("options, folder", [([], "work"), (["--core"], "work/core")])
def test_jupyterlab_serves_a_copy_of_the_first_lesson(
    tmp_path, interruptible, options, folder
):
    """Also where the home folder cannot be written and the port is taken; Ctrl-C ends
    it.
    """
    course, log = tmp_path / "a course", tmp_path / "log"
    shutil.copytree(ROOT / "tools", course / "tools")
    (course / "notebooks").mkdir()
    first = "notebooks/00_start_here.ipynb"
    shutil.copy(ROOT / first, course / first)
    env = {**os.environ, "HOME": "/dev/null/no-home"}
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        env.pop(variable, None)
    with socket.create_server(("127.0.0.1", 0)) as other, log.open("w") as file:
        taken = other.getsockname()[1]
        command = [sys.executable, course / "tools" / "lab.py"]
        command += ["--no-browser", *options, f"--port={taken}"]
        lab = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=file, stderr=file)
        try:
            port, content = page_of(log, lab, folder)
            assert port != taken and b"JupyterLab" in content
        finally:
            lab.send_signal(signal.SIGINT)
            assert lab.wait(timeout=30) == 0
    said = log.read_text()
    assert "Traceback" not in said and "0.0.0.0" not in said
    assert f"The port {taken} is already in use" in said
    assert f"from local directory: {course}\n" in said
    copies = {path.parent for path in course.rglob("work/**/00_start_here.ipynb")}
    assert copies == {course / folder}
    home = Path(sys.prefix) / "home"
    line = f"The home folder cannot be written: settings go to {home}\n"
    # Windows does not find the home folder through HOME
    assert os.name == "nt" or line in said


@pytest.mark.slow
def test_the_lines_that_a_class_gets_make_copies_and_say_that_all_is_there(tmp_path):
    """docs/teaching.md: make lab LAB_ARGS=--version, and what its check prints."""
    page = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"^make lab LAB_ARGS=(.*)$", page, re.M)
    course, first = tmp_path / "a course", "00_start_here.ipynb"
    shutil.copytree(ROOT / "tools", course / "tools")
    (course / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / first, course / "notebooks" / first)
    command = [sys.executable, course / "tools" / "lab.py", *arguments.split()]
    said = subprocess.check_output(command, text=True, timeout=60)
    assert re.search(r"^\d+\.\d+\.\d+$", said, re.M)
    assert (course / "work" / first).exists()
    (code,) = re.findall(r'^\.venv/bin/python -c "(.*)"$', page, re.M)
    check = [sys.executable, "-c", code]
    said = subprocess.check_output(check, cwd=ROOT, text=True, timeout=60)
    line = r"Ready: PyTorch \d\S+, (CPU|CUDA|MPS|XPU)"
    assert re.fullmatch(f"{line}( and torch_xla)?\n", said)
    (pinned,) = re.findall(
        "^torch==(.*)$", (ROOT / "requirements.txt").read_text(), re.M
    )
    assert f"`Ready: PyTorch {pinned}, CPU`" in page


def test_codespaces_copies_the_lessons(course):
    settings = ROOT / ".devcontainer" / "devcontainer.json"
    text = settings.read_text(encoding="utf-8").replace('\\"', '"')
    exec(re.search('python -c "(.*?)"', text)[1], {})
    assert (course / "work" / LESSON).exists()


def test_in_codespaces_jupyterlab_accepts_its_own_address_and_no_other(monkeypatch):
    def config():
        folder = str(ROOT / ".devcontainer")
        return PyFileConfigLoader("jupyter_server_config.py", folder).load_config()

    monkeypatch.delenv("CODESPACE_NAME", raising=False)
    assert "ServerApp" not in config()
    monkeypatch.setenv("CODESPACE_NAME", "any-name")
    monkeypatch.setenv("GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN", "app.github.dev")
    address = "https://any-name-8888.app.github.dev"
    assert config() == {"ServerApp": {"allow_origin": address}}

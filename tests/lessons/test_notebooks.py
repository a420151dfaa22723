"""The rules for lessons: the committed ones keep them, and every rule notices a lesson
that breaks it.
"""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.conftest import ROOT
from tests.lessons.small_lesson import (
    PATH,
    breaker,
    cell,
    code,
    drop,
    lesson,
    output,
    replace,
)
from tools.lessons import notebooks, parts

# Names with a leading underscore that lessons use: what keeps a GPU busy for a known
# time, lesson 03's two rehearsal tools, and the fake GPUs of a row of lesson 16.
# Everything else private stands behind one tested helper in utils; but 08's float8
# matmul, public in newer versions only, the compiler's settings in 10, whose documented
# place is torch._inductor.config, and gloo's flight record in 12.
PRIVATE = dict.fromkeys(
    ["02", "03", "05", "06"],
    {"_sleep", "_subclasses", "_python_dispatch", "_to_copy"},
)
# which attention kernel would run has no public call; the lesson says so
PRIVATE["10"] = {"_fused_sdp_choice"}
# the flight recorder's entries under gloo have no public call; the lesson says so
PRIVATE["12"] = {"_distributed_c10d"}
# TorchTPU 0.2.0 counts its programs in no public call
PRIVATE["13"] = {"_get_cache_stats"}
PRIVATE["16"] = {"_subclasses", "_utils"}  # "_utils": in a row about private names


# a name with one leading underscore that code takes from elsewhere; not os._exit, which
# is documented
PRIVATE_NAME = re.compile(r"(?:(?<!self)\.|\bimport )(_(?!exit\b)[a-z]\w*)")


@pytest.mark.parametrize("path", notebooks.lessons(), ids=lambda path: path.stem)
def test_lessons_rely_on_no_private_name(path):
    nb = nbformat.read(path, as_version=4)
    code = "\n".join(cell.source for cell in parts.code_cells(nb))
    assert {*PRIVATE_NAME.findall(code)} <= PRIVATE.get(path.stem[:2], set())


def test_ruff_reads_conditional_cells():
    """With the settings of the course, and names of the cells above."""
    sources = "x = 1", "#| requires: cuda\n#| result: y\ny = x + z", "print(y)"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nb = nbformat.v4.new_notebook(cells=cells)
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise"]
    done = subprocess.run(
        [*command, "--stdin-filename=notebooks/99_lesson.ipynb", "-"],
        cwd=ROOT,
        input=nbformat.writes(nb),
        capture_output=True,
        text=True,
    )
    (found,) = [line for line in done.stdout.splitlines() if ".ipynb" in line]
    assert "cell 2:3:9: F821 Undefined name `z`" in found


@pytest.fixture
def broken(tmp_path, monkeypatch):
    return breaker(tmp_path, monkeypatch)


def png(data, alt="a picture"):
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return output("display_data", data={"image/png": data}, metadata=metadata)


BROKEN = [
    (replace("title", "[![Open in Colab]", "[![Open]"), "badges line"),
    (lambda nb: setattr(cell(nb, "setup"), "id", "start"), "not the set-up cell"),
    (drop("exercise-2"), "cells with the tag `exercise` check"),
    (replace("exercise-2-text", "★", "*"), "no text cell begins with '**99.2** ★"),
    (replace("gpu-name", "requires: cuda", "requires: gpu"), "unknown word 'gpu'"),
    (replace("gpu-name", "#| result: small_name\n", ""), "cannot be recorded"),
    (replace("add", "total =", "#| takes: long\ntotal ="), "25 s to DO SOMETHING"),
    (replace("remember", "_detection.", "s."), "link to 01_devices.ipynb leads"),
    (lambda nb: setattr(cell(nb, "sum"), "id", "Was_1"), "is no readable slug"),
    (lambda nb: setattr(cell(nb, "sum"), "id", "machine"), "not in canonical form"),
    (replace("add", ".sum()", ".mean()"), 'run `make outputs N=99 CELL="add"`'),
    (lambda nb: cell(nb, "add").metadata.clear(), "since it was changed"),
    (output("stream", name="stderr", text="W"), "prints to stderr"),
    (output("stream", name="stdout", text="at /home/me/x"), "a path of the machine"),
    (output("error", ename="E", evalue="e", traceback=[]), "shows an error"),
    (png("iVBORw0KGgo=", alt=""), "without a text alternative"),
    (png("iVBORw0KGgoA" + "AAAA" * 30_000), "a picture over 60 kB"),
    (png("AAAA" * 200_000), "kB, more than 600"),
    (
        output("stream", "exercise-1", name="stdout", text="○ 99.1 · Old title · not"),
        "cell exercise-1 shows another exercise",
    ),
    (code("recipe", f"x = 1  # {'x' * 90}"), "1 lines of code over 88 columns"),
]


@pytest.mark.parametrize("change, message", BROKEN)
def test_rule_notices(broken, change, message):
    assert message in broken(change)


@pytest.mark.slow
def test_command_fails_where_a_lesson_breaks_a_rule(broken, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["notebooks.py", "check", str(broken.path)])
    for change, status in (
        (replace("sum-text", "2 and 4", "2 and 5"), 1),
        (lambda nb: None, 0),
    ):
        broken(change)
        assert notebooks.main() == status
        assert f"1 lessons checked, {status} problems" in capsys.readouterr().out


def test_canonical_form_keeps_colab_metadata_and_drops_widget_state():
    nb = lesson(PATH)
    nb.metadata.update(
        accelerator="GPU", colab={"provenance": []}, widgets={"state": 1}
    )
    text = notebooks.canonical(nb, PATH)
    found = nbformat.reads(text, as_version=4)
    assert {*found.metadata} == {"accelerator", "colab", "kernelspec", "language_info"}
    assert notebooks.canonical(found, PATH) == text


def test_counts_are_the_numbers_of_the_code_cells():
    nb = lesson(PATH)
    result = nbformat.v4.new_output("execute_result", execution_count=7)
    cell(nb, "recipe").update(execution_count=7, outputs=[result])
    found = nbformat.reads(notebooks.canonical(nb, PATH), as_version=4)
    code = parts.code_cells(found)
    assert [each.execution_count for each in code] == list(range(1, len(code) + 1))
    assert code[1].id == "recipe" and code[1].outputs[0].execution_count == 2


@pytest.mark.parametrize(
    "change",
    [
        replace("recipe", "x.sum()", "x.sum( )  # of all"),
        replace("draw", "# @title Draw", "# @title Show"),
    ],
)
def test_a_comment_a_title_and_form_ask_for_no_run(broken, change):
    assert "has not run" not in broken(change)


def test_random_cell_ids_become_slugs():
    text = nbformat.v4.new_markdown_cell("## Does it copy?", id="0a1b2c3d")
    code = nbformat.v4.new_code_cell("x = 1")
    nb = nbformat.v4.new_notebook(cells=[text, code])
    found = nbformat.reads(notebooks.canonical(nb, PATH), as_version=4)
    assert [cell.id for cell in found.cells] == ["does-it-copy", "x-1"]


def test_text_round_trip_keeps_accelerator_and_ids(tmp_path):
    """jupytext, as CONTRIBUTING says to use it."""
    path = tmp_path / "01_x.ipynb"
    title = nbformat.v4.new_markdown_cell("# T", id="title")
    one = nbformat.v4.new_code_cell("x = 1", id="one")
    one.metadata[parts.OUTPUTS_OF] = "0"
    nb = nbformat.v4.new_notebook(cells=[title, one])
    nb.metadata.update(accelerator="GPU", colab={"provenance": []})
    nbformat.write(nb, path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for arguments in ("--to py:percent 01_x.ipynb", "--to ipynb --update 01_x.py"):
        command = [sys.executable, "-m", "jupytext", "--quiet", *arguments.split()]
        subprocess.run(command, cwd=tmp_path, check=True)
    assert parts.OUTPUTS_OF not in path.with_suffix(".py").read_text("utf-8")
    back = nbformat.read(path, as_version=4)
    assert back.metadata["accelerator"] == "GPU" and "colab" in back.metadata
    assert [c.id for c in back.cells] == ["title", "one"]
    assert back.cells[1].metadata == one.metadata


def test_address_stands_in_one_place():
    """Lessons, README, the start page and CITATION.cff say what pyproject.toml says."""
    slug = notebooks.address().removeprefix("https://github.com/")
    # where the course's name stands in an address of GitHub or Codespaces
    places = re.compile(
        r"(?:github(?:\.com)?|codespaces\.new)/([\w.-]+/pytorch-device-lab)"
    )
    sites = re.compile(r"https://[\w.-]+\.github\.io/pytorch-device-lab")
    pages = [ROOT / name for name in ("README.md", "docs/index.md", "CITATION.cff")]
    for path in [*pages, *notebooks.lessons()]:
        text = path.read_text(encoding="utf-8")
        assert {*places.findall(text)} == {slug}, path.name
        assert {*sites.findall(text)} <= {notebooks.address("Site")}, path.name

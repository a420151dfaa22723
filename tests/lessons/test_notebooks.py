"""The rules for lessons: the committed ones keep them, and every rule notices a lesson
that breaks it.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.conftest import ROOT
from tests.lessons.small_lesson import (
    breaker,
    cell,
    code,
    drop,
    lesson,
    output,
    replace,
)
from tools.lessons import formatting, notebooks
from utils import devices

PATH = Path("99_small.ipynb")


ROW = "%%today a/b: fine\n#: before 2.9: any\n#: because it is so\n{}\n# ---- today\n{}"
LINTED = {  # two cells → where Ruff finds what in them
    "unknown name": (
        "x = 1",
        "%%requires cuda --result y\ny = x + z",
        "cell b, line 2: F821",
    ),
    "name of a cell above": ("%%requires cuda --result y\ny = 1", "print(y)", ""),
    "name of a cell below": ("print(x)", "x = 1", "cell a, line 1: F821"),
    "name of a job": (
        "%%torchrun 2\nx = 1\nprint(x)",
        "print(x)",
        "cell b, line 1: F821",
    ),
    "result of a job": ("%%torchrun 2 --result y\nx = 1\nprint(x)", "print(y)", ""),
    "name that a job lacks": (
        "x = 1",
        "%%torchrun 2\nprint(x)",
        "cell b, line 2: F821",
    ),
    "name of a row": (
        ROW.format("y = net(x)", "y = F.relu(x)"),
        "print(y)",
        "cell b, line 1: F821",
    ),
    "name of a row's other part": (
        "",
        "%%requires cuda\n" + ROW.format("y = x", "z = y"),
        "cell b, line 7: F821",
    ),
    "no Python": ("x = 1", "%%requires cuda\ny = (", "cell b, line 2: invalid-syntax"),
}


@pytest.mark.parametrize("a, b, expected", LINTED.values(), ids=LINTED)
def test_ruff_sees_every_cell(a, b, expected):
    found = list(formatting.findings("99_lesson", {"a": a, "b": b}))
    assert [text[: len(expected)] for text in found] == [expected] * bool(expected)


CALL = "f(" + ", ".join(f"argument_{n}" for n in range(6)) + ")"  # 69 characters
WIDE = f"value_of_the_first_call = {CALL}"  # 95
WIDER = f"{WIDE[:-1]}, {CALL[2:]}"[:120]
FORMATTED = {
    "a conditional cell": (
        "%%requires cuda\n\nx = ( 1,2 )",
        "%%requires cuda\nx = (1, 2)",
    ),
    "a job": (
        "%%torchrun 2\nx=1\ndef f(): pass",
        "%%torchrun 2\nx = 1\n\n\ndef f():\n    pass",
    ),
    "a row": (
        ROW.format("def f(): pass", "import x\ny=1"),
        ROW.format("def f():\n    pass", "import x\n\ny = 1"),
    ),
    "88 columns": (WIDE, WIDE.replace("f(", "f(\n    ").replace("5)", "5\n)")),
    "too many lines": (
        f"{WIDE}\n" + "x = 1\n" * 18,
        (f"{WIDE}\n" + "x = 1\n" * 18).strip(),
    ),
    "an argument a line": (WIDER, WIDER),
    "no Python": ("x=(", "x=("),
}


@pytest.mark.parametrize("before, after", FORMATTED.values(), ids=FORMATTED)
def test_format_of_a_cell(before, after):
    assert formatting.formatted([before]) == [after]
    assert formatting.formatted([after]) == [after]


def test_new_lessons_have_no_wide_lines():
    before = FORMATTED["too many lines"][0]
    (after,) = formatting.formatted([before], may_be_wide=False)
    assert formatting.long_lines(before) == 1 and formatting.long_lines(after) == 0


def test_lines_that_cannot_be_wrapped_are_not_too_wide():
    row = ROW.replace("fine", "f" * 90).replace("any", "a" * 90)
    assert [
        formatting.long_lines(source) for source in (WIDE, row, row.format(WIDE, WIDE))
    ] == [1, 0, 2]


# Names with a leading underscore that lessons use: what keeps a GPU busy for a known
# time, lesson 03's two rehearsal tools, and the fake GPUs of a row of lesson 16.
# Everything else private stands behind one tested helper in utils.
PRIVATE = dict.fromkeys(
    ["02", "03", "04", "05", "06"],
    {"_sleep", "_subclasses", "_python_dispatch", "_to_copy"},
)
PRIVATE["16"] = {"_subclasses"}


def private_names(source):
    """Names with one leading underscore that the code takes from elsewhere: not
    os._exit, which is documented.
    """
    return re.findall(r"(?:(?<!self)\.|\bimport )(_(?!exit\b)[a-z]\w*)", source)


@pytest.mark.parametrize("path", notebooks.lessons(), ids=lambda path: path.stem)
def test_lessons_rely_on_no_private_name(path):
    cells = nbformat.read(path, as_version=4).cells
    used = {
        name
        for cell in cells
        if cell.cell_type == "code"
        for name in private_names(cell.source)
    }
    assert used <= PRIVATE.get(path.stem[:2], set())


def test_private_names_are_found():
    source = (
        "from torch._inductor import config\nfrom torch import _dynamo\nself._a ="
        " x._b.__len__"
    )
    assert private_names(source) == ["_inductor", "_dynamo", "_b"]


@pytest.fixture
def broken(tmp_path, monkeypatch):
    return breaker(tmp_path, monkeypatch)


def png(data, alt="a picture"):
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return output("display_data", data={"image/png": data}, metadata=metadata)


BROKEN = [
    (replace("machine", "## 2", "# 2"), "exactly one H1"),
    (replace("title", "[![Open in Colab]", "[![Open]"), "badges line"),
    (lambda nb: setattr(cell(nb, "setup"), "id", "start"), "not the set-up cell"),
    (drop("explorer"), "needs exactly one explorer"),
    (drop("exercise-2"), "cells with the tag `exercise` check"),
    (replace("exercise-2-text", "★", "*"), "no text cell begins with '**99.2** ★"),
    (replace("gpu-name", "requires cuda", "requires gpu"), "unknown word 'gpu'"),
    (replace("gpu-name", " --result small_name", ""), "cannot be recorded"),
    (replace("sum", "A **sum**", "Simply put, a **sum**"), "empty word 'simply'"),
    (
        replace("remember", "01_device_detection.", "01_devices."),
        "link to 01_devices.ipynb leads",
    ),
    (lambda nb: setattr(cell(nb, "sum"), "id", "Was_1"), "is no readable slug"),
    (lambda nb: setattr(cell(nb, "sum"), "id", "machine"), "not in canonical form"),
    (lambda nb: setattr(cell(nb, "add"), "execution_count", None), "not from one run"),
    (output("stream", name="stderr", text="W"), "prints to stderr"),
    (
        output("stream", name="stdout", text="at /home/me/x"),
        "names a path of the machine",
    ),
    (output("error", ename="E", evalue="e", traceback=[]), "shows an error"),
    (png("iVBORw0KGgo=", alt=""), "without a text alternative"),
    (png("iVBORw0KGgoA" + "AAAA" * 30_000), "a picture over 60 kB"),
    (png("AAAA" * 200_000), "kB, more than 600"),
    (
        code("recipe", "x = unknown"),
        "cell recipe, line 1: F821 Undefined name `unknown`",
    ),
    (
        code("recipe", f"x = 1  # {'x' * 90}"),
        "1 lines of code over 88 columns, not 0 as in",
    ),
]


@pytest.mark.parametrize("change, message", BROKEN)
def test_rule_notices(broken, change, message):
    assert message in broken(change)


def test_other_formatting_is_noticed(broken):
    assert "not in canonical form" in broken(
        lambda nb: None, write=lambda nb, path: nbformat.writes(nb, indent=2)
    )


def test_command_fails_where_a_lesson_breaks_a_rule(broken, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["notebooks.py", "check", str(broken.path)])
    for change, status in (
        (replace("title", "**Core:**", "Core:"), 1),
        (lambda nb: None, 0),
    ):
        broken(change)
        assert notebooks.main() == status
        assert f"1 lessons checked, {status} problems" in capsys.readouterr().out


def test_fewer_wide_lines_of_an_old_lesson_are_noticed(broken, monkeypatch):
    monkeypatch.setitem(formatting.WIDER, "99", 2)
    assert "1 lines of code over 88 columns, not 2 as in" in broken(
        code("recipe", f"x = 1  # {'x' * 90}")
    )


def test_canonical_form_keeps_colab_metadata_and_drops_widget_state():
    nb = lesson(PATH)
    nb.metadata.update(
        {"accelerator": "GPU", "colab": {"provenance": []}, "widgets": {"state": 1}}
    )
    text = notebooks.canonical(nb, PATH)
    metadata = nbformat.reads(text, as_version=4).metadata
    assert (
        metadata["accelerator"] == "GPU"
        and "colab" in metadata
        and "widgets" not in metadata
    )
    assert notebooks.canonical(nbformat.reads(text, as_version=4), PATH) == text


def test_random_cell_ids_become_slugs():
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("## Does it copy?", id="0a1b2c3d"),
            nbformat.v4.new_code_cell("x = 1"),
        ]
    )
    ids = [
        c.id for c in nbformat.reads(notebooks.canonical(nb, PATH), as_version=4).cells
    ]
    assert ids == ["does-it-copy", "x-1"]


def test_text_round_trip_keeps_accelerator_and_ids(tmp_path):
    """jupytext, as CONTRIBUTING says to use it."""
    path = tmp_path / "01_x.ipynb"
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# T", id="title"),
            nbformat.v4.new_code_cell("x = 1", id="one"),
        ]
    )
    nb.metadata.update({"accelerator": "GPU", "colab": {"provenance": []}})
    nbformat.write(nb, path)
    (tmp_path / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    for arguments in (
        ["--to", "py:percent", path.name],
        ["--to", "ipynb", "--update", "01_x.py"],
    ):
        subprocess.run(
            [sys.executable, "-m", "jupytext", "--quiet", *arguments],
            cwd=tmp_path,
            check=True,
        )
    back = nbformat.read(path, as_version=4)
    assert back.metadata["accelerator"] == "GPU" and "colab" in back.metadata
    assert [c.id for c in back.cells] == ["title", "one"]


def test_address_stands_in_one_place():
    """Lessons, README, the start page and CITATION.cff say what pyproject.toml says."""
    slug, site = (
        notebooks.address().removeprefix("https://github.com/"),
        notebooks.address("Site"),
    )
    places = r"(?:github(?:\.com)?|mybinder\.org/v2/gh|codespaces\.new)/([\w.-]+/pytorch-device-lab)"
    for path in [
        ROOT / "README.md",
        ROOT / "docs" / "index.md",
        ROOT / "CITATION.cff",
        *notebooks.lessons(),
    ]:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(places, text)) == {slug}, path.name
        assert set(
            re.findall(r"https://[\w.-]+\.github\.io/pytorch-device-lab", text)
        ) <= {site}, path.name


def test_pick_device_is_the_function_that_lesson_01_builds():
    def statements(source):
        found = [
            node
            for node in ast.walk(ast.parse(source))
            if getattr(node, "name", "") == "pick_device"
        ]
        return [
            ast.unparse(node)
            for node in found[-1].body[ast.get_docstring(found[-1]) is not None :]
        ]

    nb = nbformat.read(ROOT / "notebooks" / "01_device_detection.ipynb", as_version=4)
    built = [
        c.source
        for c in nb.cells
        if c.cell_type == "code" and "def pick_device(" in c.source
    ]
    assert statements(built[-1]) == statements(inspect.getsource(devices.pick_device))

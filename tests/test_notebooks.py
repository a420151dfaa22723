"""The rules for lessons: the committed ones keep them, and every rule notices a lesson that breaks it."""

import ast
import inspect
import re
import subprocess
import sys

import nbformat
import pytest

from tests.conftest import ROOT
from tools import notebooks
from utils import devices

LESSON = ROOT / "notebooks" / "00_start_here.ipynb"


def test_all_lessons_keep_the_rules():
    assert notebooks.lessons()
    assert [(path.name, p) for path in notebooks.lessons() for p in notebooks.problems(path)] == []
    assert notebooks.recording_problems() == []


def test_command_reports_its_count():
    done = subprocess.run([sys.executable, "tools/notebooks.py", "check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and re.search(r"[1-9]\d* lessons checked, 0 problems", done.stdout), done.stdout


def visible(source):
    """A cell as code that ruff reads: a conditional one without its first line, a %%torchrun one as what it leaves."""
    first = source.split("\n", 1)[0]
    if source.removeprefix(first).lstrip("\n").startswith("%%today") or first.startswith("%%today"):
        return ""  # its code runs in processes of its own
    if first.startswith("%%torchrun"):
        found = re.search(r"--result (\w+)", first)
        return f"{found[1]} = None" if found else ""
    return source.removeprefix(first) if first.startswith("%%requires") else source


def lint(sources):
    """What ruff finds in the cells of a lesson, those included that start with %% (it skips them)."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", "--ignore", "F401", "-"]
    code = "\n\n".join(map(visible, sources))
    return subprocess.run(command, input=code, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("path", notebooks.lessons(), ids=lambda path: path.stem)
def test_conditional_cells_use_names_that_exist(path):
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    assert lint(sources) == "All checks passed!"
    scripts = [source.split("\n", 1)[1] for source in sources if source.startswith("%%torchrun")]
    assert [found for script in scripts if (found := lint([script])) != "All checks passed!"] == []


def test_an_unknown_name_in_a_conditional_cell_is_found():
    assert "F821" in lint(["x = 1", "%%requires cuda --result y\ny = x + z"])
    assert lint(["x = 1", "%%requires cuda --result y\ny = x + x"]) == "All checks passed!"


def test_names_of_a_job_of_several_processes_are_its_own():
    job = "%%torchrun 2 --result y\nx = 1\nprint(x)"
    assert lint([job, "print(y)"]) == "All checks passed!"
    assert "F821" in lint([job, "print(x)"])


# Names with a leading underscore that lessons use: what keeps a GPU busy for a known time, lesson 03's two rehearsal
# tools, and the fake GPUs of a row of lesson 16. Everything else private stands behind one tested helper in utils.
# (os._exit is documented.)
PRIVATE = dict.fromkeys(["02", "03", "04", "05", "06"], {"_sleep", "_subclasses", "_python_dispatch", "_to_copy"})
PRIVATE |= {"12": {"_exit"}, "16": {"_subclasses"}}


def private_names(source):
    """Names with one leading underscore that the code takes from elsewhere: attributes of others, imports."""
    code = "\n".join("" if line.startswith(("%", "!")) else line for line in source.splitlines())
    for node in ast.walk(ast.parse(code)):
        names = []
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            names = [node.attr]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        yield from (name for name in names if name.startswith("_") and not name.startswith("__"))


@pytest.mark.parametrize("path", notebooks.lessons(), ids=lambda path: path.stem)
def test_lessons_rely_on_no_private_name(path):
    cells = nbformat.read(path, as_version=4).cells
    used = {name for cell in cells if cell.cell_type == "code" for name in private_names(cell.source)}
    assert used <= PRIVATE.get(path.stem[:2], set())


def test_private_names_are_found():
    assert list(private_names("%%requires cuda\nfrom torch._inductor import config\nself._a = x._b")) == [
        "_inductor",
        "_b",
    ]


@pytest.fixture
def broken(tmp_path):
    """broken(change): problems of lesson 00 after change(notebook), written in canonical form."""

    def problems(change, write=None):
        path = tmp_path / LESSON.name
        nb = nbformat.read(LESSON, as_version=4)
        change(nb)
        path.write_text((write or notebooks.canonical)(nb, path), encoding="utf-8")
        return "\n".join(notebooks.problems(path))

    return problems


def cell(nb, cell_id):
    return next(c for c in nb.cells if c.id == cell_id)


def replace(cell_id, old, new):
    def change(nb):
        target = cell(nb, cell_id)
        assert old in target.source
        target.source = target.source.replace(old, new)

    return change


def drop(cell_id):
    return lambda nb: nb.cells.remove(cell(nb, cell_id))


def add_output(cell_id, output):
    return lambda nb: cell(nb, cell_id).outputs.append(nbformat.from_dict(output))


def png(data, alt="a picture"):
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return {"output_type": "display_data", "data": {"image/png": data}, "metadata": metadata}


BROKEN = {
    "two H1": (replace("what", "## What", "# What"), "exactly one H1"),
    "no facts": (replace("title", "**Runs live on:**", "Runs on"), "lacks **Runs live on:**"),
    "no badges": (replace("title", "[![Open in Colab]", "[![Open]"), "badges line"),
    "no goals": (replace("learn", "## You will learn", "You will learn"), "needs one section '## You will learn'"),
    "too few goals": (lambda nb: setattr(cell(nb, "learn"), "source", "## You will learn\n\n- a"), "has 1 points"),
    "no prediction": (replace("claims", "**Predict.**", "Guess:"), "no **Predict** in the section 'What is a number"),
    "set-up changed": (lambda nb: setattr(cell(nb, "setup"), "id", "start"), "not the set-up cell"),
    "no explorer": (drop("explorer"), "needs exactly one explorer"),
    "exercise gone": (drop("exercise-2"), "the lesson checks exercises"),
    "exercise without its stars": (replace("exercise-2-text", "★", "*"), "no text cell begins with '**00.2** ★"),
    "end not last": (lambda nb: nb.cells.insert(0, nb.cells.pop()), "is not the last section"),
    "few sections": (lambda nb: setattr(nb, "cells", nb.cells[:8]), "not three to six"),
    "long cell": (lambda nb: setattr(cell(nb, "draw"), "source", "x = 1\n" * 21), "has 21 lines, more than 20"),
    "unknown need": (replace("cuda-name", "requires cuda", "requires gpu"), "unknown word 'gpu'"),
    "unnamed need": (replace("cuda-name", " --result gpu_name", ""), "cannot be recorded"),
    "empty word": (replace("what", "A **device**", "Simply put, a **device**"), "empty word 'simply'"),
    "British": (replace("what", "A **device**", "The colour of a **device**"), "British spelling 'colour'"),
    "dead link": (
        replace("remember", "01_device_detection.ipynb", "01_devices.ipynb"),
        "link to 01_devices.ipynb leads",
    ),
    "unreadable id": (lambda nb: setattr(cell(nb, "what"), "id", "Was_1"), "is no readable slug"),
    "same id": (lambda nb: setattr(cell(nb, "what"), "id", "learn"), "is no readable slug"),  # nbformat renames it
    "not run": (lambda nb: setattr(cell(nb, "claim"), "execution_count", None), "not from one run"),
    "warning": (add_output("claim", {"output_type": "stream", "name": "stderr", "text": "W"}), "prints to stderr"),
    "path": (
        add_output("claim", {"output_type": "stream", "name": "stdout", "text": "at /home/me/x"}),
        "names a path of the machine",
    ),
    "error": (
        add_output("claim", {"output_type": "error", "ename": "E", "evalue": "e", "traceback": []}),
        "shows an error",
    ),
    "no alt": (add_output("claim", png("iVBORw0KGgo=", alt="")), "without a text alternative"),
    "big picture": (add_output("claim", png("iVBORw0KGgoA" + "AAAA" * 30_000)), "a picture over 60 kB"),
    "big notebook": (add_output("claim", png("AAAA" * 200_000)), "kB, more than 600"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_rule_notices(broken, name):
    change, message = BROKEN[name]
    assert message in broken(change)


def test_lesson_unchanged_has_no_problems(broken):
    assert broken(lambda nb: None) == ""


def test_other_formatting_is_noticed(broken):
    assert "not in canonical form" in broken(lambda nb: None, write=lambda nb, path: nbformat.writes(nb, indent=2))


def test_canonical_form_keeps_colab_metadata_and_drops_widget_state(tmp_path):
    nb = nbformat.read(LESSON, as_version=4)
    nb.metadata.update({"accelerator": "GPU", "colab": {"provenance": []}, "widgets": {"state": 1}})
    text = notebooks.canonical(nb, LESSON)
    metadata = nbformat.reads(text, as_version=4).metadata
    assert metadata["accelerator"] == "GPU" and "colab" in metadata and "widgets" not in metadata
    assert notebooks.canonical(nbformat.reads(text, as_version=4), LESSON) == text


def test_random_cell_ids_become_slugs():
    nb = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("## Does it copy?", id="0a1b2c3d"), nbformat.v4.new_code_cell("x = 1")]
    )
    ids = [c.id for c in nbformat.reads(notebooks.canonical(nb, LESSON), as_version=4).cells]
    assert ids == ["does-it-copy", "x-1"]


def test_text_round_trip_keeps_accelerator_and_ids(tmp_path):
    """jupytext, as CONTRIBUTING says to use it."""
    path = tmp_path / "01_x.ipynb"
    nb = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# T", id="title"), nbformat.v4.new_code_cell("x = 1", id="one")]
    )
    nb.metadata.update({"accelerator": "GPU", "colab": {"provenance": []}})
    nbformat.write(nb, path)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    for arguments in (["--to", "py:percent", path.name], ["--to", "ipynb", "--update", "01_x.py"]):
        subprocess.run([sys.executable, "-m", "jupytext", "--quiet", *arguments], cwd=tmp_path, check=True)
    back = nbformat.read(path, as_version=4)
    assert back.metadata["accelerator"] == "GPU" and "colab" in back.metadata
    assert [c.id for c in back.cells] == ["title", "one"]


def test_address_stands_in_one_place():
    """Lessons, README and CITATION.cff say what pyproject.toml says."""
    address = notebooks.address()
    slug = address.removeprefix("https://github.com/")
    for path in [ROOT / "README.md", ROOT / "CITATION.cff", *notebooks.lessons()]:
        found = set(re.findall(r"github(?:\.com)?/([\w.-]+/pytorch-device-lab)", path.read_text(encoding="utf-8")))
        assert found == {slug}, path.name


def test_readme_lists_every_lesson_and_no_other():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"^\| (\d\d) \| \[.+?\]\(notebooks/(.+?)\) \|", text, re.M)
    assert [name for _, name in linked] == [path.name for path in notebooks.lessons()]
    assert all(name.startswith(number) for number, name in linked)


def test_pick_device_is_the_function_that_lesson_01_builds():
    def body(source, name):
        (function,) = [
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        statements = function.body
        if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
            statements = statements[1:]
        return [ast.unparse(statement) for statement in statements]

    nb = nbformat.read(ROOT / "notebooks" / "01_device_detection.ipynb", as_version=4)
    sources = [c.source for c in nb.cells if c.cell_type == "code" and "def pick_device(" in c.source]
    assert sources
    assert body(sources[-1], "pick_device") == body(inspect.getsource(devices.pick_device), "pick_device")

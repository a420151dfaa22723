"""What a recording is valid for: what changes the key of a cell, and what does not."""

import json

import nbformat
import pytest

from course import recordings, uses
from tests.conftest import notebook, text_of
from tools.lessons import notebooks, recorder

# the cells of a lesson; the last is recorded
HELPER = '''def rate(size):
    """How fast."""
    return size / seconds(size) * SCALE'''
CONSTANT = "SCALE = 2  # a constant"
ABOVE = "def seconds(size):\n    return size / 3"
OTHER = "other = SCALE + 1"
CELL = """#| requires: cuda
#| result: rates
from utils import measure_together, launch

rates = [rate(size) for size in (1, 2)]
print(f"{rates[0]:>{SCALE}}", "GB/s")"""
LESSON = (ABOVE, CONSTANT, HELPER, OTHER, CELL)


def key(*sources):
    """The key of the last of these cells."""
    return list(uses.keys(notebook(*sources, preamble=False).cells).values())[-1]


def with_change(old, new):
    """The key in the lesson with a text replaced in one of its cells."""
    cells = [source.replace(old, new) for source in LESSON]
    assert sum(cell != source for cell, source in zip(cells, LESSON, strict=True)) == 1
    return key(*cells)


SAME = {
    "comment": ("rates = [", "# all of them\nrates = ["),
    "title": ("#| requires: cuda", "# @title Rates\n#| requires: cuda"),
    "options": ("#| result: rates", "#| result: rates\n#| timeless: true"),
    "time": ("#| result: rates", "#| result: rates\n#| takes: 9 s to measure"),
    "form": (
        "[rate(size) for size in (1, 2)]",
        "[\n    rate( size ) for size in (1,2)\n]",
    ),
    "quotes": ('"GB/s"', "'GB/s'"),
    "comment above": ("  # a constant", ""),
    "docstring of a helper": ('    """How fast."""\n', ""),
    "module of an import": (
        "from utils import measure_together, launch",
        "from device_lab import measure_together\nfrom utils.launch import launch",
    ),
    "unrelated cell above": (OTHER, "other = 17"),
    "cell that is not used": (OTHER, ""),
}
CHANGED = {
    "code": ("(1, 2)", "(1, 3)", "the cell has changed"),
    "kind of a number": ("(1, 2)", "(1, 2.0)", "the cell has changed"),
    "imported name": ("_together", "_alone", "the cell has changed"),
    "helper": ("* SCALE", "+ SCALE", "what the cell uses from above (`rate`) has"),
    "helper of the helper": ("size / 3", "size / 4", "(`seconds`)"),
    "constant": ("SCALE = 2", "SCALE = 3", "(`SCALE`)"),
    "helper that is gone": (ABOVE, "", "(`seconds`)"),
    "helper defined anew": (OTHER, "rate = abs", "(`rate`, `seconds`)"),
}


@pytest.mark.parametrize("change", SAME)
def test_what_the_cell_does_not_do_differently_keeps_its_key(change):
    assert uses.changed(key(*LESSON), with_change(*SAME[change])) == ""


@pytest.mark.parametrize("change", CHANGED)
def test_what_has_changed_is_named(change):
    old, new, message = CHANGED[change]
    assert message in uses.changed(key(*LESSON), with_change(old, new))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("import utils.timing as t", "import device_lab._kit.timing as t", True),
        ("import utils.timing as t", "import utils.timing as u", False),
        ("from torch import amp as a", "from torch.cuda import amp as a", False),
        ("import torch.amp as a", "import torch.cuda.amp as a", False),
        ("from utils import a as b", "from utils import c as b", False),
        ("if a:\n    import b\n    c()", "import b\nif a:\n    c()", True),
        ("%time x = 1", "%time x = 1  ", True),
        ("# @title Files\n!ls -l", "!ls -l", True),
        ("%time x = 1", "%time x = 2", False),
        ("x = await f()", "x = await  f()  # waits", True),
        ("x[1:] = None", "x[:1] = None", False),
        ("f(x=1)", "f(**{'x': 1})", False),
        ("%%torchrun 2\nprint(1)", "%%torchrun 2\nprint(1)  # once", True),
        ("%%torchrun 2\nprint(1)", "%%torchrun 3\nprint(1)", False),
        ("%%today a/b: fine\nx\n# ---- today\ny", "%%today a/b: fine\nx\ny", False),
        ("%%today a/b: fine\nx\n# ---- today\ny", "%%today a/b: warns\nx\ny", False),
    ],
)
def test_two_cells(one, other, same):
    assert (uses.source_key(one) == uses.source_key(other)) is same


@pytest.mark.parametrize(
    ("above", "cell", "used"),
    [
        # what the cell makes itself, or names within a function alone
        (["x = 1"], "x = 2\nprint(x)", ""),
        (["x = 1"], "def f(x):\n    return x", ""),
        (["x = 1"], "[x for x in range(2)]", ""),
        (["x = 1"], "def f():\n    return x\nx = 2\nf()", ""),
        (["def f():\n    x = 1"], "print(x)", ""),
        (["x = 1"], "class A:\n    x = 2\n    y = x", ""),
        # what it reads before it makes it
        (["x = 1"], "x = x + 1", "x"),
        (["x = 1"], "x += 1", "x"),
        (["x = 1"], "for i in x:\n    x = i", "x"),
        (["x = 1"], "[x for y in range(2)]", "x"),
        (["x = 1"], "class A:\n    def f(self):\n        return x", "x"),
        (["x = 1"], "call(lambda y=x: y)", "x"),
        # the last that makes a name counts; a function reads when it is called
        (["x = 1", "x = y = 2", "y = 3"], "print(x)", "x"),
        (["x = a()", "x += b"], "print(x)", "x"),
        (["a = 1", "x = a", "a = 2"], "print(x)", "a x"),
        (["def f():\n    return a", "a = 1"], "f()", "a f"),
        (["def f():\n    return f()"], "f()", "f"),
        # more than one at once, in a block, of a job; an import is no code of a lesson
        (["x, (y, *z) = f()"], "print(z)", "z"),
        (["with f() as g:\n    x = g"], "print(x)", "x"),
        (["try:\n    f()\nexcept E as e:\n    x = e"], "print(x)", "x"),
        (["%%torchrun 2 --result x\nprint(1)"], "print(x)", "x"),
        (["import x", "from y import z as f"], "x.f(f)", ""),
        # programs of their own
        (["x = 1"], "%%torchrun 2\nprint(x)", ""),
        (["x = 1"], "%%today a/b: fine\nx\n# ---- today\nx", ""),
    ],
)
def test_what_a_cell_uses(above, cell, used):
    assert " ".join(key(*above, cell)["uses"]) == used


def test_the_set_up_cell_does_not_count():
    nb = notebook("device = 1", "print(device)", preamble=False)
    nb.cells[0].id = "setup"
    assert uses.keys(nb.cells)["cell-1"]["uses"] == {}


def test_a_key_is_the_same_on_every_python():
    """Computed by CPython 3.10, 3.11, 3.12 and 3.13."""
    assert key(*LESSON) == {
        "source": "1d4f2e3fa7a9d038",
        "uses": {
            "SCALE": "e38b75769a664ed2",
            "rate": "ca7a572cdb53abba",
            "seconds": "c7bb776552a64884",
        },
    }


# --------------------------------------------------------------------------------------
# Who says so


def entry(cells, n):
    """A recording of the n-th of these cells."""
    outputs = [{"text": "hello\n"}]
    machine = {"device": "NVIDIA H200", "torch": "2.11.0"}
    facts = {"requires": "cuda:64", "date": "2026-11-20", "seconds": 1.5}
    keys = list(uses.keys(cells).values())
    return {**facts, **keys[n], "machine": machine, "outputs": outputs}


def test_a_kernel_says_that_a_helper_has_changed_in_the_lesson(run, tmp_path):
    cell = "#| requires: cuda:64\n#| name: speed\nprint(rate(1))"
    lesson = notebook(HELPER, cell, preamble=False)
    recorded = {"speed": entry(lesson.cells, 1)}
    recorder.store(tmp_path / "notebooks" / "recorded", "02_tensors", recorded)
    use = f"""import pathlib
from course import recordings
recordings.COURSE = pathlib.Path({str(tmp_path)!r})
recordings.FOLDER = recordings.COURSE / "notebooks" / "recorded"
"""
    path = tmp_path / "notebooks" / "02_tensors.ipynb"
    said = {}
    for change in ("", "+ 1"):
        lesson.cells[0].source = HELPER + change
        nbformat.write(lesson, path)
        _, said[change], twice = run(use, cell, cell)
        assert "has changed" not in text_of(twice) or change
    path.write_text("{")  # while it is written
    _, unread = run(use, cell)
    assert "hello" in text_of(unread) and "has changed" not in text_of(said[""])
    assert (
        "What the cell uses from above (`rate`) has changed since then; what you see"
        in text_of(said["+ 1"])
    )


def test_lint_says_what_has_changed_and_it_is_no_error(tmp_path, monkeypatch, capsys):
    cell = "#| requires: cuda\n#| result: rates\nrates = rate(1)"
    lesson = notebook(HELPER, cell, preamble=False)
    path = tmp_path / "02_tensors.ipynb"
    monkeypatch.setattr(notebooks, "lessons", lambda: [path])
    monkeypatch.setattr(recordings, "FOLDER", tmp_path / "recorded")
    kept = {"rates": {**entry(lesson.cells, 1), "value": 1}}
    recorder.store(recordings.FOLDER, path.stem, kept)
    (recordings.FOLDER / "published.json").write_text(json.dumps({}))
    lesson.cells[0].source += " + 1"
    nbformat.write(lesson, path)
    assert list(notebooks.recording_problems()) == []
    said = "nvidia-h200/02_tensors.json, rates (what the cell uses from above (`rate`) "
    assert f"to be recorded again: recorded/{said}has changed; no error)" in (
        capsys.readouterr().out
    )

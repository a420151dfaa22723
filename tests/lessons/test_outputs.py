"""Outputs of lessons: of some cells, while the others stay."""

import re
import sys

import nbformat
import pytest

from tests.lessons.small_lesson import cell
from tools.lessons import notebooks, outputs

# each says whether times are judged in it
SAYS = "import os\nprint('NAME', os.environ['LAB_UNTIMED'])"
LESSON = {
    "other": SAYS.replace("NAME", "other"),
    "maker": SAYS.replace("NAME", "maker") + "\nmade = 1",
    "asked": SAYS.replace("NAME", "asked") + "\nmade",
    "below": "1 / 0",
}


@pytest.fixture
def stored(kernel, tmp_path, monkeypatch):
    """The path of a lesson whose cells all show "old"; `kernel` runs it."""
    monkeypatch.setattr(outputs.run, "kernel", kernel)
    nb = nbformat.v4.new_notebook()
    for name, source in LESSON.items():
        shown = nbformat.v4.new_output("stream", text="old\n")
        nb.cells.append(nbformat.v4.new_code_cell(source, id=name, outputs=[shown]))
    path = tmp_path / "99 small.ipynb"
    path.write_text(notebooks.canonical(nb, path), encoding="utf-8")
    return path


def test_outputs_of_some_cells_leave_the_others_as_they_are(stored, monkeypatch):
    before = nbformat.read(stored, as_version=4)
    command = ["outputs.py", str(stored), "--cells", "asked"]
    monkeypatch.setattr(sys, "argv", command)
    assert outputs.main() == 0
    after = nbformat.read(stored, as_version=4)
    assert cell(after, "asked").outputs[0].text == "asked 0\n"
    assert cell(after, "asked").outputs[1].execution_count == 3
    for nb in (before, after):
        nb.cells.remove(cell(nb, "asked"))
    assert after == before
    assert outputs.store(stored, ["maker", "other"])
    after = nbformat.read(stored, as_version=4)
    texts = [each.outputs[0].text for each in after.cells]
    assert texts == ["other 0\n", "maker 0\n", "asked 0\n", "old\n"]


def test_no_time_is_judged_in_cells_that_the_named_ones_do_not_use(stored):
    nb = nbformat.read(stored, as_version=4)
    shown, _ = outputs.execute(nb, stored.parent, {"asked"})
    texts = [shown[name][0].text for name in ("other", "maker", "asked")]
    assert texts == ["other 1\n", "maker 0\n", "asked 0\n"]


def test_a_cell_that_takes_long_without_a_word_is_named(stored, monkeypatch, capsys):
    monkeypatch.setattr(outputs, "LONG", -1)
    nb = nbformat.read(stored, as_version=4)
    cell(nb, "maker").source = "#| takes: 9 s to wait\n" + LESSON["maker"]
    stored.write_text(notebooks.canonical(nb, stored), encoding="utf-8")
    assert outputs.store(stored, ["asked"])
    line = r": \d+ s; over -1 s without `#\| takes:`: other \(0 s\), asked \(0 s\)\n"
    assert re.search(line, capsys.readouterr().out)


def test_outputs_of_a_cell_that_is_not_there(stored, capsys):
    text = stored.read_text(encoding="utf-8")
    assert not outputs.store(stored, ["asked", "exercise-9"])
    assert "99 small.ipynb has no code cell exercise-9" in capsys.readouterr().err
    assert stored.read_text(encoding="utf-8") == text


def test_outputs_of_a_lesson_are_all_of_one_pytorch(stored, capsys):
    nb = nbformat.read(stored, as_version=4)
    shown = nbformat.v4.new_output("stream", text="Ready: PyTorch 2.13.0, CPU\n")
    source = "print('Ready: PyTorch 2.14.1, CPU')"
    setup = nbformat.v4.new_code_cell(source, id="setup", outputs=[shown])
    nb.cells.insert(0, setup)
    stored.write_text(nbformat.writes(nb), encoding="utf-8")
    assert not outputs.store(stored, ["asked"])
    said = "the others are of PyTorch 2.13.0, here is PyTorch 2.14.1"
    assert said in capsys.readouterr().err
    assert nbformat.read(stored, as_version=4) == nb

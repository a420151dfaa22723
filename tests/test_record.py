"""python -m utils.record, on pretended devices: a cell that says "cuda" runs on the CPU and is marked as such."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from tests.conftest import ROOT, notebook
from utils import record as recorder

CUDA = "%%requires cuda --result numbers\nnumbers = [1.5, 2]\nprint('measured')"
FIGURE = (
    "%%requires cuda --name picture\n"
    "fig, ax = plots.figure('A finding', 'no device, a test', xlabel='x', ylabel='y')\nplots.show(fig, 'a line')"
)
OTHERS = ["%%requires mps --result other\nother = 1", "%%requires cuda\nprint('no name')", "plain = 1"]


@pytest.fixture
def record(tmp_path, monkeypatch, capsys):
    """record(*sources): the command on a notebook. Returns (exit status, output, recordings by file name)."""

    def run(*sources, pretend="cuda"):
        path, out = tmp_path / "42_a_lesson.ipynb", tmp_path / "out"
        nbformat.write(notebook(*sources), path)
        monkeypatch.setenv("LAB_PRETEND", pretend)
        monkeypatch.setenv("LAB_STRICT", "")  # so that what the command sets is undone
        status = recorder.main([str(path), "--out", str(out)])
        files = {p.relative_to(out).as_posix(): json.loads(p.read_text("utf-8")) for p in out.glob("*/*.json")}
        return status, "".join(capsys.readouterr()), files

    return run


def test_stores_what_ran_live_and_only_that(record):
    status, _, files = record(CUDA, FIGURE, *OTHERS)
    ((name, content),) = files.items()
    assert status == 0 and name.endswith("42_a_lesson.json") and name.startswith("pretended-cuda-on-")
    assert content["pretended"] is True and set(content["cells"]) == {"numbers", "picture"}
    numbers, picture = content["cells"]["numbers"], content["cells"]["picture"]
    assert numbers["value"] == [1.5, 2] and numbers["outputs"] == [{"text": "measured\n"}]
    assert numbers["machine"]["device"].startswith("pretended cuda on ")
    assert numbers["machine"]["torch"] and numbers["machine"]["python"] and numbers["seconds"] >= 0
    assert "value" not in picture and picture["outputs"][0]["alt"] == "a line A finding."


def test_pretended_results_are_refused_in_the_course(tmp_path):
    before = sorted((ROOT / "notebooks" / "recorded").rglob("*"))
    path = tmp_path / "42_a_lesson.ipynb"
    nbformat.write(notebook(CUDA), path)
    done = subprocess.run(
        [sys.executable, "-m", "utils.record", str(path)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "LAB_PRETEND": "cuda"},
    )  # fmt: skip
    assert done.returncode == 1 and "pretended devices measure nothing" in done.stderr
    assert sorted((ROOT / "notebooks" / "recorded").rglob("*")) == before


def test_nothing_to_record_writes_nothing(record):
    status, output, files = record(OTHERS[0], pretend="")
    assert (status, files) == (0, {}) and "nothing to record on this machine" in output


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("%%requires cuda --result numbers\nnumbers = torch.ones(2)", "cannot be recorded"),
        ("%%requires cuda --result numbers\nnumbers = (1, 2)", "would come back changed"),
        ("%%requires cuda --result numbers\nnumbers = 1 / 0", "division by zero"),
        ("claim('too fast', 2, at_least=3)", "too fast"),
    ],
)
def test_a_failing_lesson_writes_nothing_and_says_why_in_one_line(record, source, message):
    status, output, files = record(CUDA, source)
    assert status == 1 and files == {} and message in output
    assert "Traceback" not in output and len(output.strip().splitlines()) == 1, output


def test_recording_leaves_the_lessons_names_alone(record):
    names = "import json as kept\nrecord, recordings, json = 'a lesson may call', 'its functions', 'like that'"
    after = "assert (record, recordings, json) == ('a lesson may call', 'its functions', 'like that')"
    status, output, files = record(names, CUDA, after)
    assert status == 0 and len(files) == 1, output


def test_what_else_is_printed_does_not_hide_the_value(record):
    noise = "print('late', file=sys.stderr), print('a line of some library')"
    chatty = f"get_ipython().events.register('pre_run_cell', lambda info: ({noise}))"
    status, output, files = record(chatty, CUDA)
    ((_, content),) = files.items()
    assert status == 0 and content["cells"]["numbers"]["value"] == [1.5, 2], output


def test_an_answer_that_cannot_be_read_is_said_in_one_line(record):
    silent = "import utils.record\nutils.record.answer = lambda *_: 'no JSON'"
    status, output, files = record(silent, CUDA)
    assert status == 1 and files == {} and "the kernel did not say what 'numbers' is" in output
    assert len(output.strip().splitlines()) == 1, output


@pytest.mark.parametrize(
    ("state", "live"),
    [
        ("finding", True),
        (None, True),
        ("replayed", False),
        ("emulated", False),
        ("unavailable", False),
        ("waiting", False),
    ],
)
def test_a_cell_with_a_finding_has_run_live(state, live):
    metadata = {"device_lab": {"state": state}} if state else {}
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", metadata=metadata)])
    assert recorder._ran_live(cell) is live

"""tools/evidence.py on pretended devices: one archive, with all that ran and all that failed."""

import json
import zipfile

import nbformat
import pytest

from tests.conftest import notebook
from tools import evidence

CUDA = "%%requires cuda --result numbers\nnumbers = [1.5, 2]\nclaim('it is fast', 2, at_least=1, limit=4)"
OTHER = "%%requires mps --result other\nother = 1"


@pytest.fixture
def visit(tmp_path, monkeypatch, capsys):
    """visit({name: sources}, *options): the command on lessons. Returns (exit status, output, {path: text} inside)."""

    def run(lessons, *options):
        out, paths = tmp_path / "out.zip", []
        for name, sources in lessons.items():
            paths.append(str(tmp_path / f"{name}.ipynb"))
            nbformat.write(notebook(*sources), paths[-1])
        monkeypatch.setenv("LAB_PRETEND", "cuda")
        for name in ("LAB_STRICT", "PYTHONPATH"):
            monkeypatch.setenv(name, "")  # so that what the command sets is undone
        status = evidence.main([*paths, "--out", str(out), *options])
        inside = {}
        if out.exists():
            with zipfile.ZipFile(out) as archive:
                inside = {name: archive.read(name).decode() for name in archive.namelist()}
        return status, "".join(capsys.readouterr()), inside

    return run


def test_one_archive_with_recordings_and_reports(visit):
    status, output, inside = visit({"42_a_lesson": [CUDA, OTHER]})
    (recorded,) = (name for name in inside if name.startswith("notebooks/recorded/pretended-cuda-on-"))
    assert status == 0 and recorded.endswith("/42_a_lesson.json")
    assert json.loads(inside[recorded])["cells"]["numbers"]["value"] == [1.5, 2]
    report = inside["build/evidence/42_a_lesson.txt"]
    assert "cells recorded: 1, failed: 0" in report and "not here: other (mps)" in report
    assert "✓ it is fast: 2 (claimed ≥ 1; limit 4, reached 50%)" in report and "✓ it is fast" in output


def test_a_failure_hides_neither_the_cells_after_it_nor_the_lessons(visit):
    broken = ["claim('too fast', 2, at_least=3)", "1 / 0", CUDA]
    status, output, inside = visit({"41_broken": broken, "42_a_lesson": [CUDA]})
    assert status == 1 and "FAILED" in output
    assert [name.split("/")[1] for name in inside if name.endswith(".json")] == ["evidence", "recorded"]
    (kept,) = (text for name, text in inside.items() if name.startswith("build/evidence/incomplete/"))
    assert json.loads(kept)["cells"]["numbers"]["value"] == [1.5, 2]
    report = inside["build/evidence/41_broken.txt"]
    assert "failed: 2" in report and "ClaimError" in report and "ZeroDivisionError: division by zero" in report
    assert "\x1b" not in report


def test_a_dead_kernel_ends_its_lesson_only(visit):
    status, _, inside = visit({"41_dead": [CUDA, "import os; os._exit(1)", CUDA], "42_a_lesson": [CUDA]})
    assert status == 1 and "cells recorded: 1, failed: 1" in inside["build/evidence/41_dead.txt"]
    assert "cells recorded: 1, failed: 0" in inside["build/evidence/42_a_lesson.txt"]


def test_a_visit_in_parts(visit):
    status, output, inside = visit({"41_one": [CUDA], "42_two": [CUDA]}, "--seconds", "0")
    assert status == 0 and inside == {} and "left for another time" in output and "42_two.ipynb" in output


def test_what_is_missing_is_named_with_the_way_to_bring_it(visit, monkeypatch):
    monkeypatch.setattr(evidence, "NEEDED", {"torch": "torch", "no_such": "nbclient", "nor_this": "accelerate"})
    status, output, inside = visit({"41_one": [CUDA]})
    assert (status, inside) == (2, {}) and "lacks nbclient, accelerate." in output
    fetch, alone = (line for line in output.splitlines() if "pip download" in line)
    assert fetch.endswith(" nbclient") and alone.endswith(" --no-deps accelerate")


def test_what_can_be_recorded_has_a_name_and_needs_a_device():
    nb = notebook(CUDA, OTHER, "%%requires result:numbers\nprint(numbers)", "%%requires cuda\nprint('no name')")
    assert evidence.conditional(nb.cells) == [("cuda", "numbers"), ("mps", "other")]

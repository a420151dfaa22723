"""tools/evidence.py on pretended devices: one archive, with all that ran and all that failed."""

import json
import zipfile

import nbformat
import pytest

from tests.conftest import ROOT, notebook
from tools import evidence

CUDA = "%%requires cuda --result numbers\nnumbers = [1.5, 2]\nclaim('it is fast', 2, at_least=1, limit=4)"
OTHER = "%%requires mps --result other\nother = 1"


@pytest.fixture
def visit(tmp_path, monkeypatch, capsys):
    """visit({name: sources}, *options): the command on lessons. Returns (exit status, output, {path: text} inside)."""

    def run(lessons, *options, pretend="cuda"):
        out, paths = tmp_path / "out.zip", []
        for name, sources in lessons.items():
            paths.append(str(tmp_path / f"{name}.ipynb"))
            nbformat.write(notebook(*sources), paths[-1])
        monkeypatch.setenv("LAB_PRETEND", pretend)
        for name in ("LAB_STRICT", "PYTHONPATH"):
            monkeypatch.setenv(name, "")  # so that what the command sets is undone
        status = evidence.main([*paths, "--out", str(out), *options])
        inside = {}
        if out.exists():
            with zipfile.ZipFile(out) as archive:
                assert len(set(archive.namelist())) == len(archive.namelist())
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


def test_a_kernel_that_does_not_answer_ends_its_lesson_only(visit, monkeypatch):
    import nbclient

    starts, setup = [], nbclient.NotebookClient.setup_kernel

    def first_one_hangs(client, **options):
        starts.append(client)
        if len(starts) == 1:
            raise RuntimeError("Kernel didn't respond in 60 seconds")
        return setup(client, **options)

    monkeypatch.setattr(nbclient.NotebookClient, "setup_kernel", first_one_hangs)
    status, output, inside = visit({"41_silent": [CUDA], "42_a_lesson": [CUDA]})
    assert status == 1 and "FAILED kernel" in output
    report = inside["build/evidence/41_silent.txt"]
    assert "Traceback" in report and "60 seconds" in report
    assert "cells recorded: 1, failed: 0" in inside["build/evidence/42_a_lesson.txt"]


def test_a_lesson_that_cannot_even_be_reported_leaves_its_traceback(visit, monkeypatch):
    real = evidence.claims

    def breaks_once(lesson):
        monkeypatch.setattr(evidence, "claims", real)
        raise KeyError("text")

    monkeypatch.setattr(evidence, "claims", breaks_once)
    status, output, inside = visit({"41_odd": [CUDA], "42_a_lesson": [CUDA]})
    assert status == 1 and "41_odd: FAILED as a whole: KeyError" in output
    assert "Traceback" in inside["build/evidence/41_odd.txt"]
    assert "cells recorded: 1, failed: 0" in inside["build/evidence/42_a_lesson.txt"]


def test_a_second_visit_adds(visit):
    visit({"41_one": ["1 / 0", CUDA]})
    visit({"42_two": [CUDA]})
    status, _, inside = visit({"41_one": [CUDA.replace("1.5", "2.5")]})
    assert status == 0
    recorded = {name.split("/")[-1]: text for name, text in inside.items() if name.startswith("notebooks/recorded/")}
    assert set(recorded) == {"41_one.json", "42_two.json"}
    assert json.loads(recorded["41_one.json"])["cells"]["numbers"]["value"] == [2.5, 2]
    assert "failed: 0" in inside["build/evidence/41_one.txt"] and "failed: 0" in inside["build/evidence/42_two.txt"]


def test_a_lesson_that_runs_again_replaces_only_what_it_left(tmp_path):
    out = tmp_path / "a.zip"
    evidence.add(out, {"one": "1", "two": "2"})
    evidence.add(out, {"two": b"3"})
    with zipfile.ZipFile(out) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"one": b"1", "two": b"3"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_something_else_in_the_place_of_the_archive_is_left_alone(visit, tmp_path):
    (tmp_path / "out.zip").write_text("my diary")
    with pytest.raises(zipfile.BadZipFile):  # from the fixture, which would read it
        visit({"41_one": [CUDA]})
    assert (tmp_path / "out.zip").read_text() == "my diary"


def test_without_a_device_nothing_begins_unless_asked_for(visit):
    status, output, inside = visit({"42_a_lesson": ["1 / 0"]}, pretend="")
    assert (status, inside) == (2, {}) and "neither a GPU nor a TPU" in output and "[OK] CPU: " in output
    status, _, inside = visit({"42_a_lesson": ["1 / 0"]}, "--anyway", pretend="")
    assert status == 1 and "ZeroDivisionError" in inside["build/evidence/42_a_lesson.txt"]


def test_a_process_that_cannot_look_says_why(monkeypatch):
    monkeypatch.setattr(evidence, "LOOK", "import sys; sys.exit('no driver')")
    assert evidence.look(["cuda"]) == ("no driver", set())


def test_lessons_with_most_to_record_here_come_first(tmp_path, monkeypatch, capsys):
    lessons = {"41_other": [OTHER] * 3, "42_none": ["1"], "43_one": [CUDA], "44_two": [CUDA, CUDA]}
    (tmp_path / "notebooks").mkdir()
    for name, sources in lessons.items():
        nbformat.write(notebook(*sources), tmp_path / "notebooks" / f"{name}.ipynb")
    begun = []
    monkeypatch.setattr(evidence, "collect", lambda path, out: begun.append(path.stem) or [])
    monkeypatch.setattr(evidence, "to_bring", lambda: None)
    monkeypatch.setattr(evidence, "look", lambda words: ("a GPU", {"cuda", "accelerator"} & set(words)))
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    for name in ("LAB_STRICT", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
    assert evidence.main(["--out", str(tmp_path / "out.zip")]) == 0
    assert begun == ["44_two", "43_one", "41_other", "42_none"] and "a GPU" in capsys.readouterr().out


def test_a_visit_in_parts(visit):
    status, output, inside = visit({"41_one": [CUDA], "42_two": [CUDA]}, "--seconds", "0")
    assert status == 0 and inside == {} and "left for another time" in output and "42_two.ipynb" in output


def test_what_is_missing_is_named_with_the_way_to_bring_it(visit, monkeypatch):
    needed = {"torch": "torch", "no_such": "ipykernel", "nor_such": "unpinned", "nor_this": "accelerate"}
    monkeypatch.setattr(evidence, "NEEDED", needed)
    status, output, inside = visit({"41_one": [CUDA]})
    assert (status, inside) == (2, {}) and "lacks ipykernel, unpinned, accelerate." in output
    fetch, alone = (line for line in output.splitlines() if "pip download" in line)
    pins = (ROOT / "requirements.txt").read_text().splitlines()
    ipykernel, accelerate = (next(pin for pin in pins if pin.startswith(f"{p}==")) for p in ("ipykernel", "accelerate"))
    assert fetch.endswith(f" {ipykernel} unpinned") and alone.endswith(f" --no-deps {accelerate}")


def test_every_package_has_a_version_that_the_lessons_are_tested_with():
    assert set(evidence.NEEDED.values()) <= set(evidence.pinned())


def test_what_can_be_recorded_has_a_name_and_needs_a_device():
    nb = notebook(CUDA, OTHER, "%%requires result:numbers\nprint(numbers)", "%%requires cuda\nprint('no name')")
    assert evidence.conditional(nb.cells) == [("cuda", "numbers"), ("mps", "other")]

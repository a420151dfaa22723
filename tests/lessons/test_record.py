"""tools/record.py on pretended devices: a cell that says "cuda" runs on the CPU and is
marked as such.
"""

import json
import os
import re
import subprocess
import sys
import zipfile

import nbclient
import nbformat
import pytest

from course import uses
from tests.conftest import ROOT, notebook
from tools import record
from tools.lessons import run

CUDA = (
    "#| requires: cuda\n#| result: numbers\nnumbers = [1.5, 2]\nclaim('it is fast', 2,"
    " at_least=1, limit=4)"
)
FIGURE = (
    "#| requires: cuda\n#| name: picture\nfig, ax = plots.figure('A finding', about='no"
    " device, a test', xlabel='x', ylabel='y')\nplots.show(fig, 'a line')"
)
OTHER = "#| requires: mps\n#| result: other\nother = 1"
PLAIN = [
    "#| requires: cuda\nprint('no name')",
    "#| requires: result:numbers\nnumbers",
    "plain = 1",
]
STALE = "✓ of another run: 1 (claimed ≥ 1)"
WELL = "cells recorded: 1, failed: 0"


@pytest.fixture
def recorder(kernel, tmp_path, monkeypatch, capsys):
    """recorder({name: sources}, *options): the command on lessons. Returns (exit
    status, output, {path: what it left}).

    visit: into an archive, on a machine with a GPU. pretend: devices. alone: each
    lesson in a kernel of its own.
    """
    real, look = run.kernel, record.look

    def go(lessons, *options, visit=False, pretend="cuda", alone=False):
        monkeypatch.setenv("LAB_PRETEND", pretend)
        monkeypatch.setattr(run, "kernel", real if alone else kernel)
        monkeypatch.setattr(
            record, "look", (lambda words: ("a GPU", {"cuda"})) if pretend else look
        )
        out, paths = tmp_path / ("out.zip" if visit else "out"), []
        for name, sources in lessons.items():
            paths.append(str(tmp_path / f"{name}.ipynb"))
            nb = notebook(*sources)
            nb.cells[-1].outputs = [nbformat.v4.new_output("stream", text=STALE)]
            nbformat.write(nb, paths[-1])
        status = record.main(
            [*paths, "--zip" if visit else "--out", str(out), *options]
        )
        left = {
            path.relative_to(out).as_posix(): path.read_text("utf-8")
            for path in out.rglob("*.*")
        }
        if out.is_file():
            with zipfile.ZipFile(out) as archive:
                left = {
                    name: archive.read(name).decode()
                    for name in archive.namelist()
                    if name[-1] != "/"
                }
        return status, "".join(capsys.readouterr()), left

    return go


def recordings(left):
    """(folder, name of the file) → cells, of all recordings."""
    names = [name for name in left if name.endswith(".json")]
    return {
        (n.partition("/pretended-cuda-on-")[0], n.split("/")[-1]): json.loads(left[n])[
            "cells"
        ]
        for n in names
    }


def test_stores_what_ran_live_and_only_that_and_reports(recorder):
    status, output, left = recorder({"42_a_lesson": [CUDA, FIGURE, OTHER, *PLAIN]})
    cells, report = (
        recordings(left)["notebooks/recorded", "42_a_lesson.json"],
        left["build/record/42_a_lesson.txt"],
    )
    assert status == 0 and set(cells) == {"numbers", "picture"} and len(left) == 3
    ran = nbformat.reads(left["build/record/42_a_lesson.ipynb"], as_version=4)
    assert [bool(cell.outputs) for cell in ran.cells][-6:] == 5 * [True] + [False]
    numbers, picture = cells["numbers"], cells["picture"]
    assert (
        numbers["value"] == [1.5, 2] and "it is fast" in numbers["outputs"][0]["text"]
    )
    claim = numbers["outputs"][0]["claim"]
    assert (claim["value"], claim["share"], claim["live"]) == (2, 0.5, True)
    assert (
        numbers["machine"]["device"].startswith("pretended cuda on ")
        and numbers["seconds"] >= 0
    )
    assert numbers["machine"]["torch"] and numbers["machine"]["python"]
    assert (
        "value" not in picture and picture["outputs"][0]["alt"] == "a line A finding."
    )
    # without the line that says LIVE
    assert [len(cell["outputs"]) for cell in (numbers, picture)] == [1, 1]
    assert (
        "cells recorded: 2, failed: 0" in report and "not here: other (mps)" in report
    )
    assert (
        "✓ it is fast: 2 (claimed ≥ 1; limit 4, reached 50%)" in report
        and "✓ it is fast" in output
    )
    status, output, left = recorder({"43_nothing": [OTHER]}, pretend="")
    assert (
        status == 0
        and "43_nothing" in output
        and ("notebooks/recorded", "43_nothing.json") not in recordings(left)
    )


def test_what_other_cells_claimed_of_this_machine_is_kept(recorder):
    judge = (
        "#| requires: result:numbers\nclaim('of the result', numbers[1], at_least=2)"
    )
    both = "claim('of the CPU', True)\nclaim('of a model', True, about='a model')"
    _, _, left = recorder({"42_a_lesson": [CUDA, judge, both]})
    (content,) = [
        json.loads(text) for name, text in left.items() if name.endswith(".json")
    ]
    of_judge, of_both = content["claims"].values()
    (claim,) = of_judge["claims"]
    assert (claim["text"], claim["value"]) == ("of the result", 2)
    assert [claim["text"] for claim in of_both["claims"]] == ["of the CPU"]
    assert of_both["source"] == uses.source_key(both)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "#| requires: cuda\n#| result: numbers\nnumbers = torch.ones(2)",
            "cannot be recorded",
        ),
        (
            "#| requires: cuda\n#| result: numbers\nnumbers = (1, 2)",
            "would come back changed",
        ),
        ("1 / 0", "division by zero"),
        ("claim('too fast', 2, at_least=3)", "too fast"),
        (
            "from course import provenance as p; p.known_here = lambda *_: 'no JSON'",
            "the kernel did not say what 'later' is, but: 'no JSON'",
        ),
    ],
)
def test_a_failure_is_said_in_one_line_and_nothing_of_the_lesson_is_ready_to_send(
    recorder, source, message
):
    status, output, left = recorder(
        {"42_a_lesson": [CUDA, source, CUDA.replace("numbers", "later")]}
    )
    (line,) = [line for line in output.splitlines() if "FAILED" in line]
    assert (
        status == 1
        and message in line
        and "Traceback" not in output
        and "\x1b" not in output
    )
    assert (
        message in left["build/record/42_a_lesson.txt"]
        and "\x1b" not in left["build/record/42_a_lesson.txt"]
    )
    ((folder, _),) = recordings(left)
    assert folder == "build/record/incomplete"


@pytest.mark.parametrize("timeless", [True, False])
def test_the_emulated_device_records_timeless_cells_only(
    recorder, monkeypatch, timeless
):
    monkeypatch.setattr(record, "emulated", lambda: True)
    cell = (
        CUDA.replace("numbers\n", "numbers\n#| timeless: true\n", 1)
        if timeless
        else CUDA
    )
    _, output, left = recorder({"42_a_lesson": [cell]})
    assert (
        f"cells recorded: {timeless:d}, failed: 0" in output
        and len(recordings(left)) == timeless
    )


@pytest.mark.slow
def test_pretended_results_are_refused_in_the_course(tmp_path):
    """The command itself, in a process and with a kernel of its own."""
    before = sorted((ROOT / "notebooks" / "recorded").rglob("*"))
    nbformat.write(notebook(CUDA), tmp_path / "42_a_lesson.ipynb")
    done = subprocess.run(
        [sys.executable, "tools/record.py", str(tmp_path / "42_a_lesson.ipynb")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "LAB_PRETEND": "cuda"},
    )
    (ROOT / "build" / "record" / "42_a_lesson.txt").unlink()
    assert done.returncode == 1 and "pretended devices measure nothing" in done.stdout
    assert sorted((ROOT / "notebooks" / "recorded").rglob("*")) == before


# --------------------------------------------------------------------------------------
# A visit


@pytest.mark.slow
def test_a_kernel_that_dies_and_one_that_does_not_answer_end_their_lessons_only(
    recorder, monkeypatch
):
    setup, starts = nbclient.NotebookClient.setup_kernel, []

    def second_hangs(client, **options):
        starts.append(client)
        if len(starts) == 2:
            raise RuntimeError("Kernel didn't respond in 60 seconds")
        return setup(client, **options)

    monkeypatch.setattr(nbclient.NotebookClient, "setup_kernel", second_hangs)
    dies = [CUDA, "1 / 0", "import os; os._exit(1)", FIGURE]
    status, output, left = recorder(
        {"41_dies": dies, "42_silent": [CUDA], "43_a_lesson": [CUDA]},
        visit=True,
        alone=True,
    )
    assert (
        status == 1
        and "FAILED cell-2" in output
        and "FAILED cell-3" in output
        and "FAILED kernel" in output
    )
    assert "cells recorded: 1, failed: 2" in left["build/record/41_dies.txt"]
    assert (
        "Traceback" in left["build/record/42_silent.txt"]
        and "60 seconds" in left["build/record/42_silent.txt"]
    )
    assert (
        WELL in left["build/record/43_a_lesson.txt"]
        and STALE not in left["build/record/41_dies.txt"]
    )
    assert set(recordings(left)) == {
        ("build/record/incomplete", "41_dies.json"),
        ("notebooks/recorded", "43_a_lesson.json"),
    }


@pytest.mark.slow
def test_a_failure_hides_neither_the_cells_after_it_nor_the_lessons(
    recorder, monkeypatch
):
    real = record.last_lines

    def breaks_once(message):
        monkeypatch.setattr(record, "last_lines", real)
        raise KeyError("text")

    monkeypatch.setattr(record, "last_lines", breaks_once)
    lessons = {
        "40_odd": ["#| requires: nothing\n"],
        "41_broken": ["#| requires:", "2 / 0", CUDA],
        "42_a_lesson": [CUDA],
    }
    status, output, left = recorder(lessons, visit=True)
    assert (
        status == 1
        and "40_odd: FAILED as a whole: KeyError" in output
        and "RequiresError: cannot read" in output
    )
    assert (
        "Traceback" in left["build/record/40_odd.txt"]
        and WELL in left["build/record/42_a_lesson.txt"]
    )
    assert "cells recorded: 1, failed: 2" in left["build/record/41_broken.txt"]
    assert recordings(left)["build/record/incomplete", "41_broken.json"]["numbers"][
        "value"
    ] == [1.5, 2]


def test_a_second_visit_adds_and_replaces(recorder, tmp_path):
    recorder({"41_one": ["1 / 0", CUDA]}, visit=True)
    recorder({"42_two": [CUDA]}, visit=True)
    status, _, left = recorder({"41_one": [CUDA.replace("1.5", "2.5")]}, visit=True)
    good = {lesson: cells for (_, lesson), cells in recordings(left).items()}
    assert status == 0 and {folder for folder, _ in recordings(left)} == {
        "notebooks/recorded"
    }
    assert set(good) == {"41_one.json", "42_two.json"}
    assert good["41_one.json"]["numbers"]["value"] == [2.5, 2]
    assert (
        WELL in left["build/record/41_one.txt"]
        and WELL in left["build/record/42_two.txt"]
    )
    assert [path.name for path in tmp_path.glob("*zip*")] == ["out.zip"]


def test_who_is_stopped_still_has_the_archive_as_it_was(tmp_path, monkeypatch):
    archive = tmp_path / "out.zip"
    archive.write_text("as it was")
    monkeypatch.setattr(zipfile.ZipFile, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        record.pack(ROOT / "tools", archive)
    assert archive.read_text() == "as it was"


def test_something_else_in_the_place_of_the_archive_is_left_alone(tmp_path, capsys):
    (tmp_path / "out.zip").write_text("my diary")
    assert (
        record.main(["--zip", str(tmp_path / "out.zip")]) == 2
        and "is no archive" in capsys.readouterr().err
    )
    assert (tmp_path / "out.zip").read_text() == "my diary"


@pytest.mark.slow
def test_without_a_device_nothing_begins_unless_asked_for(recorder):
    lessons = {"42_a_lesson": ["1 / 0"]}
    status, output, left = recorder(lessons, visit=True, pretend="")
    assert (
        (status, left) == (2, {})
        and "neither a GPU nor a TPU" in output
        and "[OK] CPU: " in output
    )
    status, _, left = recorder(lessons, "--anyway", visit=True, pretend="")
    assert status == 1 and "ZeroDivisionError" in left["build/record/42_a_lesson.txt"]


def test_what_has_most_to_record_here_comes_first_and_what_is_left_is_named(
    tmp_path, monkeypatch, capsys
):
    lessons = {
        "41_other": [OTHER] * 3,
        "42_none": PLAIN,
        "43_one": [CUDA],
        "44_two": [CUDA, CUDA],
    }
    (tmp_path / "notebooks").mkdir()
    for name, sources in lessons.items():
        nbformat.write(notebook(*sources), tmp_path / "notebooks" / f"{name}.ipynb")
    begun = []
    monkeypatch.setattr(
        record,
        "record",
        lambda path, folder, **time_left: begun.append(path.stem) or True,
    )
    monkeypatch.setattr(
        record, "look", lambda words: ("a GPU", {"cuda", "accelerator"} & set(words))
    )
    monkeypatch.setattr(record, "ROOT", tmp_path)
    visit = ["--zip", str(tmp_path / "out.zip")]
    assert record.main(visit) == 0
    assert begun == ["44_two", "43_one"] and "a GPU" in capsys.readouterr().out
    assert record.main([*visit, "--seconds", "0"]) == 0 and len(begun) == 2
    assert re.search(
        "left for another time: .*44_two.ipynb .*43_one.ipynb", capsys.readouterr().out
    )


def test_a_cell_that_takes_too_long_ends_its_lesson_and_what_is_recorded_is_kept(
    recorder, monkeypatch
):
    real = nbclient.NotebookClient.execute_cell

    def hangs(client, cell, *others, **options):
        if "hangs" in cell.source:
            raise nbclient.exceptions.CellTimeoutError.error_from_timeout_and_cell(
                "", client.timeout, cell
            )
        return real(client, cell, *others, **options)

    monkeypatch.setattr(nbclient.NotebookClient, "execute_cell", hangs)
    lessons = {"41_hangs": [CUDA, OTHER, "'hangs'", FIGURE], "42_a_lesson": [CUDA]}
    status, output, left = recorder(lessons, "--seconds", "500", visit=True)
    report = left["build/record/41_hangs.txt"]
    assert (
        status == 1
        and "it did not end within 125 seconds" in output
        and "not here: picture (cuda): not reached" in report
    )
    assert "not here: other (mps)\n" in report and "left for another time" not in output
    assert set(recordings(left)["build/record/incomplete", "41_hangs.json"]) == {
        "numbers"
    }
    assert WELL in left["build/record/42_a_lesson.txt"]


def test_a_lesson_in_which_the_time_ends_is_left_for_another_time(
    recorder, monkeypatch
):
    now = iter([0, 0, 0])  # the visit begins, the loop, the lesson; then it is late
    monkeypatch.setattr(record.time, "perf_counter", lambda: next(now, 10))
    status, output, left = recorder(
        {"41_one": [CUDA], "42_two": [CUDA]}, "--seconds", "5", visit=True
    )
    assert (
        status == 1
        and "not begun: the time was over" in left["build/record/41_one.txt"]
    )
    assert re.search("left for another time: .*41_one.ipynb .*42_two.ipynb", output)


def test_what_is_missing_is_named():
    without = (
        "import sys; sys.modules['nbclient'] = sys.modules['sklearn'] = None; import"
        " tools.record"
    )
    done = subprocess.run(
        [sys.executable, "-c", without], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith(
        "this Python lacks sklearn, nbclient: see "
    )
    fetched = re.findall(
        r"pip download \$FOR (.*)",
        (ROOT / "docs" / "contributing" / "recording.md").read_text(encoding="utf-8"),
    )
    modules = {"scikit-learn": "sklearn", "pyyaml": "yaml"}
    named = {modules.get(name, name) for line in fetched for name in line.split()}
    assert named - {"--no-deps"} == set(record.NEEDED) - {"torch", "numpy"}

"""The plugin that counts what nbval ran: each way in which a lesson can fail must fail the run."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest

from tests import lessons_plugin

ROOT = Path(__file__).resolve().parent.parent


def shows(state):
    """Source of a cell that shows a line in this state, as utils.messages.note does."""
    return f"""from IPython.display import display
display({{"text/plain": "not as announced"}}, metadata={{"device_lab": {{"state": {state!r}}}}}, raw=True)"""


def write_notebook(path, *sources, tags=()):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_markdown_cell("# A lesson")]
    for source in sources:
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}))
    nbformat.write(notebook, path)
    return path


def run_lessons(*paths, options=("--nbval-lax", "--nbval-cell-timeout=10")):
    return run(
        "pytest", "-p", "tests.lessons_plugin", *options, "--nbval-current-env", "-p", "no:cacheprovider", *paths
    )


def run(*arguments):
    command = [sys.executable, "-m", *map(str, arguments)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout + result.stderr


def test_good_lessons_pass_and_are_counted(tmp_path):
    one = write_notebook(tmp_path / "00_one.ipynb", "x = 1", "print(x)", shows("replayed"))
    two = write_notebook(tmp_path / "01_two.ipynb", "print('hello')")
    source = "import sys; print('progress', file=sys.stderr)"
    three = write_notebook(tmp_path / "02_tagged.ipynb", source, tags=["lab-stderr"])
    status, output = run_lessons(one, two, three)
    assert status == 0, output
    counts = "3 of 3 code cells ran  (2 live, 1 shown from recordings or not available)"
    (line,) = [line for line in output.splitlines() if line.startswith("00_one ")]
    assert counts in line
    seconds, mebibytes = float(line.split()[-4]), float(line.split()[-2])
    assert 0 < seconds < 60 and 20 < mebibytes < 1536
    assert "total      5 of 5 code cells ran  (4 live, 1 shown from recordings or not available)" in output
    assert "FAILED" not in output


def test_cells_run_twice_in_one_kernel(tmp_path):
    """A name that only the first run lacks, and one that the second finds changed."""
    once = "import builtins\nassert not hasattr(builtins, 'seen')\nbuiltins.seen = True"
    good = write_notebook(
        tmp_path / "00_good.ipynb", "n = globals().get('n', 0) + 1", "print('✓ a: 1 (claimed ≥ 1) · here\\n✓ 00.1')"
    )
    bad = write_notebook(tmp_path / "01_bad.ipynb", "x = 1", once, shows("unjudged"))
    status, output = run_lessons(good, bad, options=("--nbval-lax", "--twice"))
    assert "00_good  4 of 4 code cells ran  (4 live, 0 shown from recordings or not available)  2 claims held" in output
    assert "01_bad   5 of 6 code cells ran" in output and "0 claims held, 2 not judged" in output
    assert status == 1 and "01_bad.ipynb::Cell 1 again" in output and "did not run to the end: 4 (" in output


# Lesson: its code cells, how many of them count as run, what the report says, the cells that pytest lists.
BAD = {
    "00_last_fails": (["x = 1", "1 / 0"], "1 of 2", "ZeroDivisionError", [1]),
    "01_first_fails": (["1 / 0", "x = 1"], "1 of 2", "ZeroDivisionError", [0]),
    "02_dies": (["import os; os._exit(1)", "x = 1"], "0 of 2", "the kernel died", [0, 1]),
    "03_skips": (["# NBVAL_SKIP\nx = 1", "x = 2"], "1 of 2", "did not run to the end: 0 (", []),
    "04_error_by_tag": (["# NBVAL_RAISES_EXCEPTION\n1 / 0"], "0 of 1", "with expect_error(", [0]),
    "05_warns": (["import warnings; warnings.warn('noise')"], "0 of 1", "wrote to stderr", [0]),
    "051_finding": ([shows("finding")], "0 of 1", "A finding (finding): not as announced", [0]),
    "052_waiting": ([shows("waiting")], "0 of 1", "A finding (waiting): not as announced", [0]),
    "06_takes_memory": (["big = bytearray(1_700_000_000)"], "1 of 1", "more than 1536 MiB", []),
    "07_is_empty": ([], "0 of 0", "it has no code cells", []),
    "08_hangs": (["import time; time.sleep(60)"], "0 of 1", "Timeout of 10 seconds", [0]),
}


@pytest.fixture(scope="module")
def bad_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    return run_lessons(*[write_notebook(folder / f"{name}.ipynb", *BAD[name][0]) for name in BAD])


@pytest.mark.parametrize("name", BAD)
def test_what_must_fail_fails(bad_run, name):
    _, count, message, failed_cells = BAD[name]
    status, output = bad_run
    assert status == 1, output
    (line,) = [line for line in output.splitlines() if line.startswith(name + " ")]
    assert f" {count} code cells ran" in line
    assert message in output
    assert f"FAILED {name}: " in output
    listed = [line for line in output.splitlines() if line.startswith("FAILED") and f"{name}.ipynb::" in line]
    assert [int(line.split("::Cell ")[1].split()[0]) for line in listed] == failed_cells


def test_with_findings_what_is_not_announced_is_listed(tmp_path):
    cells = [shows("finding"), shows("waiting"), "import sys; print('a warning more', file=sys.stderr)", "6 * 7"]
    path = write_notebook(tmp_path / "00_next.ipynb", *cells)
    stored = nbformat.read(path, as_version=4)
    stored.cells[-1].update(execution_count=4, metadata={"tags": ["nbval-check-output"]})
    stored.cells[-1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "43"}, execution_count=4)]
    nbformat.write(stored, path)
    options = ["--nbval-lax", "--nbval-cell-timeout=10"]
    status, output = run_lessons(path, options=[*options, "--findings"])
    assert status == 0, output
    assert "4 of 4 code cells ran  (3 live, 1 shown" in output and "4 findings with torch" in output
    listed = [line for line in output.splitlines() if line.startswith("00_next, cell ")]
    assert len(listed) == 4 and "a warning more" in listed[2] and "than its stored output" in listed[3]
    failing = write_notebook(tmp_path / "01_fails.ipynb", shows("finding"), "1 / 0")
    assert run_lessons(failing, options=[*options, "--findings"])[0] == 1


def test_a_missed_claim_of_a_reader_fails_nothing(tmp_path):
    status, output = run_lessons(write_notebook(tmp_path / "00_claim.ipynb", shows("missed")))
    assert status == 0 and "1 of 1 code cells ran  (1 live" in output


def test_a_skipped_cell_alone_fails_the_run(tmp_path):
    status, output = run_lessons(write_notebook(tmp_path / "00_skips.ipynb", "# NBVAL_SKIP\nx = 1", "x = 2"))
    assert "1 passed, 1 skipped" in output
    assert status == 1


def test_an_empty_lesson_fails_among_good_ones(tmp_path):
    good = write_notebook(tmp_path / "00_good.ipynb", "x = 1")
    status, output = run_lessons(good, write_notebook(tmp_path / "01_empty.ipynb"))
    assert status == 1
    assert "FAILED 01_empty: it has no code cells" in output


def test_no_notebook_fails(tmp_path):
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    status, output = run_lessons(tmp_path)
    assert status == 1
    assert "no notebook was found" in output


def test_an_unreadable_notebook_fails(tmp_path):
    path = tmp_path / "00_broken.ipynb"
    path.write_text("{")
    assert run_lessons(path)[0] != 0


def claims_at(attempt, marker, then="pass"):
    """Source of a cell whose claim holds from this attempt on; `marker` is the file in which it counts."""
    return f"""
from pathlib import Path
class ClaimError(Exception): pass
count = Path({str(marker)!r})
with count.open("a") as file: file.write("x")
if len(count.read_text()) < {attempt}: raise ClaimError("missed")
{then}"""


@pytest.mark.parametrize(("attempt", "status"), [(1, 0), (2, 0), (3, 1)])
def test_a_missed_claim_gets_one_more_run(tmp_path, attempt, status):
    good = write_notebook(tmp_path / "00_good.ipynb", "x = 1")
    path = write_notebook(tmp_path / "01_claims.ipynb", claims_at(attempt, tmp_path / "count"), "y = 1")
    got, output = run("tests.lessons_plugin", good, path)
    assert got == status, output
    assert ("Only claims were missed. Once more: 01_claims" in output) == (attempt > 1)
    assert (tmp_path / "count").read_text() == "x" * min(attempt, 2)


@pytest.mark.parametrize("other", ["1 / 0", "import warnings; warnings.warn('noise')"])
def test_another_failure_gets_none(tmp_path, other):
    path = write_notebook(tmp_path / "01_claims.ipynb", claims_at(2, tmp_path / "count"), other)
    status, output = run("tests.lessons_plugin", path)
    assert status == 1 and "Once more" not in output


def test_processes_of_a_kernel_are_counted():
    ended, lesson = threading.Event(), lessons_plugin.Lesson("11_many", 1, done={0})
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytearray(3 * 10**8); input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as kernel:
        watcher = threading.Thread(target=lessons_plugin.watch_family, args=(lesson, kernel.pid, ended))
        watcher.start()
        end = time.monotonic() + 30
        while lesson.family_bytes < 3e8 and time.monotonic() < end:
            time.sleep(0.1)
        ended.set()
        watcher.join()
        kernel.communicate(b"\n")
    assert 3e8 < lesson.family_bytes < 4e8 and list(lesson.problems()) == []
    lesson.family_bytes = 5 * 2**30
    assert list(lesson.problems()) == ["its processes needed 5120 MiB of memory, more than 4096 MiB"]


def test_the_plugin_needs_nbval(tmp_path):
    status, output = run_lessons(write_notebook(tmp_path / "00_good.ipynb", "x = 1"), options=())
    assert status != 0
    assert "add --nbval-lax" in output

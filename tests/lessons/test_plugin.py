"""What counts that nbval ran all: whatever can fail in a lesson must fail the run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from course.messages import state_of
from tools.lessons import plugin, status
from tools.lessons.cells import LessonCell
from tools.lessons.edition import content_hash

ROOT = Path(__file__).resolve().parents[2]


def shows(state):
    """Source of a cell that shows a line in this state, as messages.note does."""
    return f"""from IPython.display import display
facts = {{"device_lab": {{"state": {state!r}}}}}
display({{"text/plain": "not as announced"}}, metadata=facts, raw=True)"""


def write_notebook(path, *sources, tags=()):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_markdown_cell("# A lesson")]
    for source in sources:
        notebook.cells.append(
            nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})
        )
    nbformat.write(notebook, path)
    return path


def run(*arguments, **variables):
    """Exit status and output of the plugin's command. variables: of its environment."""
    command = [
        sys.executable,
        "-m",
        "tools.lessons.plugin",
        "-pno:cacheprovider",
        *map(str, arguments),
    ]
    env = {
        key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")
    } | variables
    result = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    return result.returncode, result.stdout + result.stderr


PROCESS = """import subprocess, sys, time
code = "big = bytearray(600_000_000); input()"
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE):
    time.sleep(2)"""

SETUP = f"""import sys; sys.path.insert(0, {str(ROOT)!r})
from course.cells import *
enable_conditional_cells()"""
CHANGED = "#| requires: cuda\n#| result: numbers\nnumbers = {'a': (1, 2)}"
KEPT = "#| requires: cuda\n#| result: numbers\nnumbers = [1, 2]"

# Lessons that are run together, with two at a time. These are good: their cells, and
# what the report says of them.
GOOD = {
    "00_one": (
        ["x = 1", shows("claim") + "\nprint('✓ 00.1')", shows("replayed")],
        "3 of 3 code cells ran  (2 live, 1 shown from recordings or not available)"
        "  1 claims held, 0 not judged",
    ),
    "01_two": (
        [shows("unjudged"), shows("missed")],
        "2 of 2 code cells ran  (2 live, 0 shown from recordings or not available)"
        "  0 claims held, 1 not judged",
    ),
    "02_tagged": (
        ["import sys; print('progress', file=sys.stderr)"],
        "1 of 1 code cells ran",
    ),
    "03_recordable": ([SETUP, KEPT, "assert numbers[1] == 2"], "3 of 3 code"),
}

# Of these: their cells, how many count as run, what the report says, the cells that
# pytest lists.
BAD = {
    "00_last_fails": (["x = 1", "1 / 0"], "1 of 2", "ZeroDivisionError", [1]),
    "02_dies": (
        ["import os; os._exit(1)", "x = 1"],
        "0 of 2",
        "the kernel died",
        [0, 1],
    ),
    "03_skips": (
        ["# NBVAL_SKIP\n'not ' + 'skipped' + 1"],
        "0 of 1",
        "can only concatenate",
        [0],
    ),
    "04_error_by_tag": (
        ["# NBVAL_RAISES_EXCEPTION\nint('by tag')"],
        "0 of 1",
        "base 10: 'by tag'",
        [0],
    ),
    "05_warns": (
        ["import warnings; warnings.warn('noise')"],
        "0 of 1",
        "wrote to stderr",
        [0],
    ),
    "051_finding": (
        [shows("finding")],
        "0 of 1",
        "A finding (finding): not as announced",
        [0],
    ),
    "08_hangs": (
        ["import time; time.sleep(60)"],
        "0 of 1",
        "Timeout of 10 seconds",
        [0],
    ),
    "09_result_comes_back_changed": (
        [SETUP, CHANGED, "assert numbers['a'][1] == 2"],
        "2 of 3",
        "result 'numbers' would come back changed from a recording: use lists for"
        " tuples",
        [1],
    ),
    # In these nbval finds nothing wrong.
    "09_left_out": (
        ["x = 1", "y = 2"],
        "1 of 2",
        "did not run to the end: 1 (",
        [],
    ),
    "10_takes_memory": (
        ["big = bytearray(600_000_000)"],
        "1 of 1",
        "its kernel needed",
        [],
    ),
    "11_starts_processes": ([PROCESS], "1 of 1", "its processes needed", []),
    "12_is_empty": ([], "0 of 0", "it has no code cells", []),
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Exit status and output of one run of all these lessons."""
    folder = tmp_path_factory.mktemp("lessons")
    paths = [
        write_notebook(
            folder / f"{name}.ipynb",
            *cells,
            tags=["lab-stderr"] if name == "02_tagged" else [],
        )
        for name, (cells, *_) in {**GOOD, **BAD}.items()
    ]
    limits = ["--nbval-cell-timeout=10", "--kernel-mib=500", "--family-mib=600"]
    left_out = [f"--rootdir={folder}", "--deselect=09_left_out.ipynb::Cell 1"]
    workers = ["-n", "2", "--dist", "loadfile"]
    return run(*limits, *left_out, *workers, *paths, LAB_PRETEND="cuda")


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_good_lessons_pass_and_are_counted(both, name):
    _, output = both
    found = re.search(rf"^{name} +(.*?)  ([\d.]+) s  (\d+) MiB, ", output, re.M)
    assert found and found[1].startswith(GOOD[name][1]), output
    assert 0 < float(found[2]) < 60 and 20 < int(found[3]) < 500
    assert f"FAILED {name}" not in output and f"{name}.ipynb::" not in output


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_what_must_fail_fails(both, name):
    _, count, message, failed_cells = BAD[name]
    status, output = both
    assert status == 1 and message in output and f"FAILED {name}: " in output
    assert re.search(rf"^{name} +{count} code cells ran", output, re.M), output
    listed = re.findall(rf"^FAILED .*\b{name}\.ipynb::Cell (\d+)", output, re.M)
    assert [int(number) for number in listed] == failed_cells


@pytest.mark.slow
def test_all_is_counted(both):
    found = re.findall(r"^(\S+) +(\d+) of (\d+) code cells", both[1], re.M)
    *lessons, (_, done, cells) = found
    assert [name for name, _, _ in lessons] == [*GOOD, *BAD]
    assert int(done) == sum(int(done) for _, done, _ in lessons)
    assert int(cells) == sum(int(cells) for _, _, cells in lessons)


@pytest.mark.slow
def test_cells_run_twice_in_one_kernel(tmp_path):
    """A name that only the first run lacks, and one that the second finds changed."""
    once = "import builtins\nassert not hasattr(builtins, 'seen')\nbuiltins.seen = True"
    good = write_notebook(
        tmp_path / "00_good.ipynb",
        "n = globals().get('n', 0) + 1",
        "assert n < 3; print(n)",
    )
    bad = write_notebook(tmp_path / "01_bad.ipynb", "x = 1", once, shows("unjudged"))
    status, output = run("--twice", good, bad)
    assert "00_good  4 of 4 code cells ran" in output
    assert (
        "01_bad   5 of 6 code cells ran" in output
        and "0 claims held, 2 not judged" in output
    )
    assert (
        status == 1
        and "01_bad.ipynb::Cell 1 again" in output
        and "did not run to the end: 4 (" in output
    )


@pytest.mark.slow
def test_with_findings_what_is_not_announced_is_listed(tmp_path):
    cells = [
        shows("finding"),
        shows("waiting"),
        "import sys; print('a warning more', file=sys.stderr)",
        "6 * 7",
    ]
    path = write_notebook(tmp_path / "00_next.ipynb", *cells)
    stored = nbformat.read(path, as_version=4)
    stored.cells[-1].update(
        execution_count=4, metadata={"tags": ["nbval-check-output"]}
    )
    stored.cells[-1].outputs = [
        nbformat.v4.new_output(
            "execute_result", {"text/plain": "43"}, execution_count=4
        )
    ]
    nbformat.write(stored, path)
    failing = write_notebook(tmp_path / "01_fails.ipynb", shows("finding"), "1 / 0")
    status, output = run("--findings", path, failing)
    assert status == 1 and re.findall(r"^FAILED (\S+): ", output, re.M) == ["01_fails"]
    assert (
        "4 of 4 code cells ran  (3 live, 1 shown" in output
        and "5 findings with torch" in output
    )
    listed = [line for line in output.splitlines() if line.startswith("00_next, cell ")]
    assert (
        len(listed) == 4
        and "a warning more" in listed[2]
        and "than its stored output" in listed[3]
    )


@pytest.mark.parametrize(
    ("strict", "own"), [(False, [None, "claim"]), (True, [None, "claim", "revealed"])]
)
def test_what_the_course_says_of_a_cell_is_compared_with_nothing(strict, own):
    states = [None, "claim", "live", "working", "replayed", "revealed"]
    outputs = [{"metadata": {"device_lab": {"state": state}}} for state in states]
    kept = LessonCell.own(SimpleNamespace(strict=strict), outputs)
    assert [state_of(output) for output in kept] == own


def test_no_notebook_and_an_unreadable_one_fail(tmp_path):
    with pytest.raises(SystemExit) as stopped:
        plugin.main([str(tmp_path)])
    assert stopped.value.code == 2
    path = tmp_path / "00_broken.ipynb"
    path.write_text("{")
    with pytest.raises(ValueError):
        plugin.main([str(path)])


CLAIM = """# {timed}
from pathlib import Path
class ClaimError(Exception): pass
with open({path!r}, "a") as file: file.write("x")
if len(Path({path!r}).read_text()) < {attempt}: raise ClaimError("missed")"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timed", "attempt", "status", "runs"),
    [("timed=True", 2, 0, 2), ("timed=True", 3, 1, 2), ("", 2, 1, 1)],
)
def test_only_missed_claims_about_time_get_one_more_run(
    tmp_path, timed, attempt, status, runs
):
    source = CLAIM.format(timed=timed, path=str(tmp_path / "count"), attempt=attempt)
    got, output = run(write_notebook(tmp_path / "01_claims.ipynb", source))
    assert got == status, output
    assert ("Only claims were missed. Once more: 01_claims\n" in output) == (runs == 2)
    assert (tmp_path / "count").read_text() == "x" * runs


LIMITS = SimpleNamespace(kernel_mib=100, family_mib=100)


@pytest.mark.parametrize(
    ("left", "missed", "mib", "only"),
    [
        ({1}, {1}, 0, True),
        ({0, 1}, {1}, 0, False),  # another cell failed, too
        ({1}, {1}, 200, False),
        (set(), set(), 0, False),
    ],
)
def test_other_faults_get_none(left, missed, mib, only):
    lesson = plugin.Lesson(Path("01.ipynb"), left, kernel_mib=mib)
    lesson.missed, lesson.counts["cells"] = missed, 2
    assert lesson.only_missed_claims(LIMITS) == only


def test_lessons_that_judge_times_run_apart_from_the_others(tmp_path, monkeypatch):
    one = write_notebook(tmp_path / "00_one.ipynb", "x = 1", "x  # timed=True")
    two = write_notebook(
        tmp_path / "01_two.ipynb",
        "#| requires: result:a\nclaim('fast', a, at_most=2, timed=True)",
    )
    chosen = []
    monkeypatch.setattr(
        plugin, "run_lessons", lambda paths, *_: chosen.append(paths) or (0, [])
    )
    assert plugin.main(["--timed", str(one), str(two)]) == 0
    assert plugin.main(["--timed", str(two)]) == 0
    assert plugin.main([str(one), str(two)]) == 0
    assert chosen == [[one], [one, two]]
    assert plugin.judges_times("%%today a/b: slower 5\n1")
    assert not plugin.judges_times("%%today a/b: warns 'slower'\n1")
    assert plugin.judges_times("#| takes: 9 s to wait\nclaim('x', 1, timed=True)")
    assert plugin.judges_times("#| takes: 9 s to wait\n%%today a/b: slower 5\n1")


def ran(folder, monkeypatch, paths):
    """What is kept of a run of these lessons, as path below `folder` → content."""
    monkeypatch.setattr(status, "STATUS", folder)
    options = SimpleNamespace(findings=False, twice=False, kernel_mib=1, family_mib=1)
    lessons = plugin.Lessons(paths, options).lessons.values()
    for lesson in lessons:
        lesson.left.clear()
        lesson.claims["a"] = [{"text": "it holds", "value": True}]
    status.keep(lessons, options, attempt=1)
    return {
        str(path.relative_to(folder)): json.loads(path.read_text("utf-8"))
        for path in folder.rglob("*.*")
    }


def test_what_happened_is_kept_of_lessons_of_the_course_only(tmp_path, monkeypatch):
    one, two = sorted((ROOT / "notebooks").glob("0[01]*.ipynb"))
    other = write_notebook(tmp_path / "00_other.ipynb", "x = 1")
    for name in ("EMULATOR_GPU", "LAB_UNTIMED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        status, "installed", lambda: {"torch": "2.13.0", "IPython": "9.1"}
    )
    folder = tmp_path / "status"
    assert ran(folder, monkeypatch, [other]) == {}
    first = ran(folder, monkeypatch, [one])
    assert list(first) == [os.path.join("main", f"{one.stem}.json")]
    kept = first.popitem()[1]
    assert kept["content_hash"] == content_hash(json.loads(one.read_text("utf-8")))
    assert (
        kept["claims"] == {"a": [{"text": "it holds", "value": True}]}
        and kept["timed"]
        and not kept["problems"]
    )
    # a run of one lesson leaves the other as it was
    assert len(ran(folder, monkeypatch, [two])) == 2

"""The plugin that counts what nbval ran: each way in which a lesson can fail must fail
the run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from tools import lab
from tools.lessons import plugin

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


def test_good_lessons_pass_and_are_counted(tmp_path):
    held = shows("claim") + "\nprint('✓ 00.1')"
    one = write_notebook(tmp_path / "00_one.ipynb", "x = 1", held, shows("replayed"))
    two = write_notebook(tmp_path / "01_two.ipynb", shows("unjudged"), shows("missed"))
    source = "import sys; print('progress', file=sys.stderr)"
    three = write_notebook(tmp_path / "02_tagged.ipynb", source, tags=["lab-stderr"])
    status, output = run(one, two, three)
    assert status == 0 and "FAILED" not in output, output
    counts = (
        "3 of 3 code cells ran  (2 live, 1 shown from recordings or not available)  1"
        " claims held, 0 not judged"
    )
    ((seconds, mebibytes),) = re.findall(
        rf"^00_one     {re.escape(counts)}  (.*) s  (.*) MiB, ", output, re.M
    )
    assert 0 < float(seconds) < 60 and 20 < int(mebibytes) < 1536
    counts = (
        "6 of 6 code cells ran  (5 live, 1 shown from recordings or not available)  1"
        " claims held, 1 not judged"
    )
    assert f"\ntotal      {counts}" in output


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


def test_a_result_that_cannot_be_recorded_fails(tmp_path):
    setup = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom course.cells import"
        " *\nenable_conditional_cells()"
    )
    cell = "#| requires: cuda\n#| result: numbers\nnumbers = {}"
    bad = write_notebook(
        tmp_path / "00_bad.ipynb",
        setup,
        cell.format("{'a': (1, 2)}"),
        "assert numbers['a'][1] == 2",
    )
    good = write_notebook(
        tmp_path / "01_good.ipynb",
        setup,
        cell.format("[1, 2]"),
        "assert numbers[1] == 2",
    )
    status, output = run(bad, good, LAB_PRETEND="cuda")
    assert (
        status == 1
        and "00_bad   2 of 3 code cells ran" in output
        and "01_good  3 of 3 code cells ran" in output
    )
    assert (
        "result 'numbers' would come back changed from a recording: use lists for"
        " tuples" in output
    )


PROCESS = """import subprocess, sys, time
code = "big = bytearray(300_000_000); input()"
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE):
    time.sleep(2)"""

# Lesson: its code cells, how many of them count as run, what the report says, the cells
# that pytest lists.
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
    # In these nbval finds nothing wrong.
    "10_takes_memory": (
        ["big = bytearray(300_000_000)"],
        "1 of 1",
        "its kernel needed",
        [],
    ),
    "11_starts_processes": ([PROCESS], "1 of 1", "its processes needed", []),
    "12_is_empty": ([], "0 of 0", "it has no code cells", []),
}


@pytest.fixture(scope="module")
def bad_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    paths = [
        write_notebook(folder / f"{name}.ipynb", *cells)
        for name, (cells, *_) in BAD.items()
    ]
    return run(
        "--nbval-cell-timeout=10", "--kernel-mib=256", "--family-mib=300", *paths
    )


@pytest.mark.parametrize("name", BAD)
def test_what_must_fail_fails(bad_run, name):
    _, count, message, failed_cells = BAD[name]
    status, output = bad_run
    assert status == 1 and message in output and f"FAILED {name}: " in output
    assert re.search(rf"^{name} +{count} code cells ran", output, re.M), output
    assert [
        int(n)
        for n in re.findall(rf"^FAILED .*\b{name}\.ipynb::Cell (\d+)", output, re.M)
    ] == failed_cells


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
    status, output = run("--findings", path)
    assert status == 0, output
    assert (
        "4 of 4 code cells ran  (3 live, 1 shown" in output
        and "4 findings with torch" in output
    )
    listed = [line for line in output.splitlines() if line.startswith("00_next, cell ")]
    assert (
        len(listed) == 4
        and "a warning more" in listed[2]
        and "than its stored output" in listed[3]
    )
    failing = write_notebook(tmp_path / "01_fails.ipynb", shows("finding"), "1 / 0")
    assert run("--findings", failing)[0] == 1


def test_a_cell_that_is_left_out_fails_the_run(tmp_path):
    path = write_notebook(tmp_path / "good.ipynb", "x = 1", "y = 2")
    status, output = run(f"--rootdir={tmp_path}", "--deselect=good.ipynb::Cell 1", path)
    assert (
        status == 1
        and "1 passed, 1 deselected" in output
        and "did not run to the end: 1 (" in output
    )


def test_no_notebook_and_an_unreadable_one_fail(tmp_path):
    status, output = run(tmp_path)
    assert status == 2 and "name notebooks" in output
    path = tmp_path / "00_broken.ipynb"
    path.write_text("{")
    assert run(path)[0] != 0


CLAIM = """# {timed}
from pathlib import Path
class ClaimError(Exception): pass
with open({path!r}, "a") as file: file.write("x")
if len(Path({path!r}).read_text()) < {attempt}: raise ClaimError("missed")"""


@pytest.mark.parametrize(
    ("timed", "attempt", "other", "status", "runs"),
    [
        ("timed=True", 2, "y = 1", 0, 2),
        ("timed=True", 3, "y = 1", 1, 2),
        ("timed=True", 2, "1 / 0", 1, 1),
        ("", 2, "y = 1", 1, 1),
    ],
)
def test_only_missed_claims_about_time_get_one_more_run(
    tmp_path, timed, attempt, other, status, runs
):
    good = write_notebook(tmp_path / "00_good.ipynb", "x = 1")
    source = CLAIM.format(timed=timed, path=str(tmp_path / "count"), attempt=attempt)
    got, output = run(good, write_notebook(tmp_path / "01_claims.ipynb", source, other))
    assert got == status, output
    assert ("Only claims were missed. Once more: 01_claims\n" in output) == (runs == 2)
    assert (tmp_path / "count").read_text() == "x" * runs


def test_lessons_that_judge_times_run_apart_from_the_others(tmp_path):
    one = write_notebook(tmp_path / "00_one.ipynb", "x = 1", "x  # timed=True")
    two = write_notebook(
        tmp_path / "01_two.ipynb",
        "#| requires: result:a\nclaim('fast', a, at_most=2, timed=True)",
    )
    assert plugin.judges_times("%%today a/b: slower 5\n1")
    assert not plugin.judges_times("%%today a/b: warns 'slower'\n1")
    status, output = run("--timed=yes", one, two)
    assert status == 0 and re.findall(r"^(0\S+) ", output, re.M) == ["00_one"]
    assert plugin.main(["--timed=no", str(one)]) == 0
    job = "#| requires: cuda\n#| name: x\n%%torchrun 2\n1"
    four = write_notebook(tmp_path / "03_four.ipynb", job, "'%%torchrun'")
    assert plugin.main(["--jobs=no", str(four)]) == 0


def ran(folder, monkeypatch, paths, **options):
    """What is kept of a run of these lessons, as path below `folder` → content."""
    monkeypatch.setattr(plugin, "STATUS", folder)
    lessons = plugin.Lessons(
        paths,
        SimpleNamespace(
            **{
                "findings": False,
                "twice": False,
                "kernel_mib": 1,
                "family_mib": 1,
                **options,
            }
        ),
    )
    for lesson in lessons.lessons.values():
        lesson.left.clear()
        lesson.claims["a"] = [{"text": "it holds", "value": True}]
    lessons.keep(attempt=1)
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
        plugin, "installed", lambda: {"torch": "2.13.0", "IPython": "9.1"}
    )
    folder = tmp_path / "status"
    assert ran(folder, monkeypatch, [other]) == {}
    first = ran(folder, monkeypatch, [one])
    assert list(first) == [os.path.join("main", f"{one.stem}.json")]
    kept = first.popitem()[1]
    assert kept["content_hash"] == lab.content_hash(json.loads(one.read_text("utf-8")))
    assert (
        kept["claims"] == {"a": [{"text": "it holds", "value": True}]}
        and kept["timed"]
        and not kept["problems"]
    )
    # a run of one lesson leaves the other as it was
    assert len(ran(folder, monkeypatch, [two])) == 2

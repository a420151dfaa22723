"""%%today: rows are judged by what they do, whatever they do, and nothing of them is
left running.
"""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver

import psutil
import pytest
import torch

from tests.conftest import ROOT, text_of
from utils.claims import ClaimError
from utils.today import cell as today
from utils.today import snippets
from utils.today.cell import TodayError

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nothing is forked"
)
LEAVES = (
    "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import time;"
    " time.sleep(600)'])"
)
STRICT = pytest.mark.parametrize("strict", [False, True])


def cell(old, new="print(1)", announced="fine", lines=""):
    today.run_cell(f"group/name: {announced}", f"{lines}{old}\n# ---- today\n{new}\n")


def of(source, limit=snippets.LIMIT, prelude=""):
    """What one piece of code does."""
    (outcome,) = snippets.run_snippets(
        prelude, [source], today.launch.folder(), limit=limit
    )
    return outcome


def wait_for_the_end_of(*pids):
    end = time.monotonic() + 10
    while any(
        psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        for pid in pids
    ):
        assert time.monotonic() < end
        time.sleep(0.05)


# --------------------------------------------------------------------------------------
# Verdicts and findings

VERDICTS = {  # announcement → old part, with a new part that prints 1
    "fine": "print(1)",
    'warns "FutureWarning: soon gone"': (
        "import warnings\nwarnings.warn('soon gone', FutureWarning)"
    ),
    'raises "ValueError: no such thing"': "raise ValueError('no such thing')",
    "wrong": "print(2)",
    "slower 3": "import time\ntime.sleep(0.2)\nprint(1)",
}


@pytest.mark.parametrize("announced", VERDICTS)
def test_each_verdict_is_measured(announced, capsys, monkeypatch):
    cell(VERDICTS[announced], "import time\ntime.sleep(0.01)\nprint(1)", announced)
    shown, word = capsys.readouterr().out, announced.split()[0]
    assert (
        shown.startswith(f"{today.SIGNS[word]} {word} · PyTorch ")
        and "\n  today  prints 1" in shown
    )
    assert "Not on this device" not in shown
    monkeypatch.setenv("LAB_STRICT", "1")
    for other in (
        {"fine", "warns", "raises", "wrong"}
        - {word}
        - ({"fine"} if word == "slower" else set())
    ):
        with pytest.raises(
            TodayError,
            match=(
                rf"^group/name: announced as {other}, but with PyTorch \S+ it is"
                r" \w+: .*$"
            ),
        ):
            cell(VERDICTS[announced], announced=other)


def test_a_busy_moment_of_the_machine_does_not_change_how_much_slower(
    capsys, monkeypatch
):
    """One hiccup in either part; a run that raises counts, however fast it was."""
    seconds = iter([0.2, 0.2, 0.9, 0.01, 0.3, 0.01])
    done = {"error": None, "ended": "", "warnings": [], "printed": "1", "stderr": ""}
    monkeypatch.setattr(
        today,
        "_execute",
        lambda parts, together: [{**done, "seconds": next(seconds)} for _ in parts],
    )
    cell("print(1)", announced="slower 15")
    assert "20 times" in capsys.readouterr().out
    runs = iter([done, done, {**done, "error": ["ValueError", "no"]}, done, done, done])
    monkeypatch.setattr(
        today,
        "_execute",
        lambda parts, together: [{**next(runs), "seconds": 1.0} for _ in parts],
    )
    assert today._fastest(["old", "new"])[0]["error"]


OF_TODAY = (
    r"the part of today must run without error and without warning, and with PyTorch"
    r" \S+ it says: "
)
# What a PyTorch of the future may do: (announcement, old part, new part, what is said
# of it)
FUTURES = {
    "other words": (
        'raises "gone"',
        "raise ValueError('no')",
        "print(1)",
        r"announced with the words 'gone', but PyTorch \S+ says: ValueError: no",
    ),
    "other words of a warning": (
        'warns "soon gone"',
        "import warnings\nwarnings.warn('will be removed', FutureWarning)",
        "print(1)",
        (
            r"announced with the words 'soon gone', but PyTorch \S+ says:"
            r" FutureWarning: will be removed"
        ),
    ),
    "removed": (
        'warns "soon gone"',
        "torch.was_there_once",
        "print(1)",
        (
            r"announced as warns, but with PyTorch \S+ it is raises: AttributeError:"
            r" module 'torch' has no attribute"
        ),
    ),
    "the new part warns": (
        "fine",
        "print(1)",
        "import warnings\nwarnings.warn('hm')\nprint(1)",
        OF_TODAY + "UserWarning: hm",
    ),
    "the new part fails": (
        "fine",
        "print(1)",
        "from torch import private_thing",
        OF_TODAY + "ImportError",
    ),
    "slower no longer": (
        "slower 3",
        "print(2)",
        "print(1)",
        r"announced as slower, but with PyTorch \S+ it is wrong: 2",
    ),
}


@pytest.mark.parametrize("name", FUTURES)
def test_a_newer_pytorch_is_a_finding_and_the_cell_goes_on(name, capsys, monkeypatch):
    announced, old, new, said = FUTURES[name]
    cell(old, new, announced)
    shown = capsys.readouterr().out
    assert (
        re.search(rf"(?s)\n  old    .*\n  today  .*group/name: {said}", shown)
        and shown.count("group/name: ") == 1
    )
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(TodayError, match="group/name: " + said):
        cell(old, new, announced)


def test_a_row_newer_than_this_pytorch_is_not_run(capsys, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    cell("print(1)", "1 / 0", 'raises "x"', "#: from 2.0: newer\n")
    shown = capsys.readouterr().out
    assert re.search(
        r"✓ fine.*\n  old    prints 1\n  today  is newer than PyTorch \d", shown
    )
    cell("print(2)", "print(1)", "wrong", "#: before 2.0: newer\n")
    assert "PyTorch before 2.0: the form of today is newer" in capsys.readouterr().out


def test_too_fast_is_a_missed_claim(monkeypatch, capsys):
    cell("print(1)", announced="slower 1000000")
    assert "Not on this device" in capsys.readouterr().out
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(ClaimError, match="the old form takes longer"):
        cell("print(1)", announced="slower 1000000")


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        (
            "name fine",
            "1\n# ---- today\n1",
            "cannot read 'name fine': write %%today GROUP/NAME",
        ),
        (
            "a/b: good",
            "1\n# ---- today\n1",
            "known are fine, warns, raises, wrong, slower 5",
        ),
        ("a/b: slower", "1\n# ---- today\n1", "cannot read the announcement 'slower'"),
        (
            "a/b: fine",
            "1\n",
            "a row has an old part, a line `# ---- today` and a new part",
        ),
        ("a/b: fine", "# ---- today\n1", "a row has an old part"),
        (
            "a/b: fine",
            "#: with gpu: fine\n1\n# ---- today\n1",
            "unknown condition 'with gpu'; known are before 2.11",
        ),
    ],
)
def test_what_cannot_be_read_is_said(header, body, message):
    with pytest.raises(TodayError, match=re.escape(message)):
        today.run_cell(header, body)


def test_the_first_condition_that_holds_counts(capsys):
    lines = (
        "#: before 2.0: raises\n#: from 2.0: wrong\n#: from 2.1: raises\n#: because"
        " so\n"
    )
    cell("print(2)", announced="fine", lines=lines)
    shown = capsys.readouterr().out
    assert (
        shown.startswith("≠ wrong")
        and "PyTorch before 2.0: raises" in shown
        and "elsewhere: fine" in shown
    )
    cell("print(2)", announced="fine", lines="#: from 2.0: any\n")
    assert "≠ wrong" in capsys.readouterr().out


def test_conditions(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    assert (
        today.holds("before 2.12")
        and not today.holds("before 2.11")
        and not today.holds("before 2.9")
    )
    assert (
        today.holds("in 2.11")
        and today.holds("from 2.9, in 2.11")
        and not today.holds("from 2.9, before 2.10")
    )
    assert (
        today.holds("")
        and sum(today.holds(f"on {system}") for system in ("Linux", "Windows", "macOS"))
        == 1
    )


def test_no_path_of_the_machine_is_shown():
    told = {"error": ["OSError", ""], "warnings": [], "ended": ""}
    for path in [
        "/root/a/b.py",
        "/tmp/device-lab-1/snippet.py",
        r"C:\Users\me\lib\b.py",
        "/usr/lib/python3.11/x.py",
    ]:
        told["error"][1] = (
            f"cannot read '{path}' (see https://pytorch.org/docs/main/notes.html)"
        )
        name = re.split(r"[/\\]", path)[-1]
        assert (
            today.said(told)
            == f"OSError: cannot read '…/{name}' (see https://pytorch.org/docs/main/notes.html)"
        )


def test_long_messages_are_cut_and_it_says_so(capsys):
    today.run_cell("", "raise ValueError('\\n'.join(map(str, range(9))) + 'x' * 9000)")
    assert "(6 more lines)" in capsys.readouterr().out
    today.run_cell("", "print('word ' * 2000)")
    shown = capsys.readouterr().out
    assert "…" in shown and len(shown) < 1000


@pytest.mark.parametrize(
    ("source", "shown"),
    {
        "net(x).numpy()": (
            r"✗ raises(?s:.*)Like movement/numpy-grad in this lesson: .*\n   "
            r" net\(x\)\.detach\(\)"
        ),
        "raise ValueError('nobody knows this')": "No row of this lesson is like it",
        # silent: found by the code
        "best = net.state_dict()": "✓ fine(?s:.*)Like movement/best-state",
        "torch.cuda.empty_cache()": "Like memory/empty-cache",
    }.items(),
)
def test_a_paste_is_compared_with_the_rows(source, shown, capsys):
    today.run_cell("", source)
    assert re.search(shown, capsys.readouterr().out)


def test_rows_are_found_by_words_group_and_verdict(capsys):
    assert "amp/autocast" in [row.slug for row in today.search("cuda.amp.autocast")]
    assert [row.slug for row in today.search("one default group is_initialized")] == [
        "distributed/twice"
    ]
    assert "memory/cached" in [
        row.slug
        for row in today.search("memory_reserved", group="memory", verdict="warns")
    ]
    assert (
        today.search("memory_reserved", group="data")
        == today.search("memory_reserved", verdict="slower")
        == []
    )
    today.find("two devices")
    assert re.search(
        "two-gpus +raises  an operation runs on one device", capsys.readouterr().out
    )
    fig, alt = today.table("numpy")
    assert "movement/numpy-grad" in alt and re.search(r"\d of \d+ rows", alt)
    assert (
        "movement/numpy-grad" in fig.axes[0].texts[0].get_text()
        and "0 of" in today.table("no such words")[1]
    )


# --------------------------------------------------------------------------------------
# Processes


@pytest.fixture(params=["forkserver", "spawn"])
def method(request, monkeypatch):
    """Both ways to start processes: that of Windows and macOS is tried on Linux, too."""
    if request.param == "forkserver" and sys.platform != "linux":
        pytest.skip("nothing is forked here")
    if request.param == "forkserver":
        from multiprocessing import forkserver

        # one that other tests have started knows more than a piece should
        forkserver._forkserver._stop()
    monkeypatch.setattr(snippets, "METHOD", request.param)


def test_a_piece_may_do_what_it_likes(method, monkeypatch):
    # a server has the variables of its start; what is no more here is not there either
    of("")
    monkeypatch.setenv("FROM_HERE", "1")
    monkeypatch.delenv("PATH")
    pieces = {
        "while True:\n    print('x' * 10_000)": (
            "it printed more than 4 MiB and was stopped"
        ),
        "import os\nos._exit(0)": "its process ended with status 0",
        "import os\nos._exit(3)": "its process ended with status 3",
        "raise SystemExit": "",
        "raise SystemExit(2)": "",
        "warnings.warn('hm')\nwarnings.warn('hm')\n1 / 0": "",
        "import os\nprint(__name__, len(os.listdir()), *map(os.environ.get, ['FROM_HERE', 'GIVEN', 'PATH']))": (
            ""
        ),
        "import sys\nprint(len(sys.argv), sys.stdin.read(), {'utils', 'pytest'} & sys.modules.keys())": (
            ""
        ),
        f"import sys\nsys.exit({str(ROOT)!r} in sys.path)": "",
        "import multiprocessing\nmultiprocessing.set_start_method('spawn')": "",
    }
    if os.name != "nt":
        pieces["import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"] = (
            "its process was ended by SIGSEGV"
        )
    prelude = "import warnings\nwarnings.warn('of the prelude')"
    outcomes = snippets.run_snippets(
        prelude, list(pieces), today.launch.folder(), env={"GIVEN": "2"}
    )
    assert [outcome["ended"] for outcome in outcomes] == list(pieces.values())
    endless, _, _, left, left_2, failed, named, bare, path, free, *_ = outcomes
    assert 0 < len(endless["printed"]) <= snippets.KEPT + 1
    assert left["error"] is None and left_2["error"] == ["SystemExit", "2"]
    assert (
        failed["error"] == ["ZeroDivisionError", "division by zero"]
        and failed["seconds"] is None
    )
    assert (
        failed["warnings"] == [["UserWarning", "hm"]]
        and "line 5, in" in failed["stderr"]
    )
    # files: snippet.py, and what it prints
    assert named["printed"] == "__main__ 3 1 2 None\n"
    assert (
        bare["printed"] == "1  set()\n"
        and path["error"] is None
        and free["error"] is None
    )
    assert multiprocessing.get_start_method(allow_none=True) is None and not list(
        today.launch.folder().glob("snip*")
    )


def test_a_piece_that_hangs_is_stopped(method):
    began, outcome = (
        time.monotonic(),
        of("print('here', flush=True)\nwhile True: pass", limit=2),
    )
    assert (
        outcome["ended"] == "it did not end within 2 s and was stopped"
        and outcome["printed"] == "here\n"
    )
    assert time.monotonic() - began < 15


def test_verdicts_are_the_same_without_forks(monkeypatch, capsys):
    monkeypatch.setattr(snippets, "METHOD", "spawn")
    monkeypatch.setattr(today, "PRELUDE", "")
    cell("print(2)", "print(1)", "wrong")
    cell("raise ValueError('no')", "print(1)", 'raises "ValueError: no"')
    assert "≠ wrong" in (shown := capsys.readouterr().out) and "announced" not in shown


@pytest.mark.skipif(
    os.name == "nt", reason="there, what has lost its parent is not found"
)
def test_what_a_piece_leaves_running_is_ended(method):
    wait_for_the_end_of(int(of(LEAVES + "\nprint(p.pid)")["printed"]))


def test_a_piece_may_spawn_what_it_defines_and_is_waited_for(method):
    source = (
        "import multiprocessing\ndef there():\n    print('there')\nif __name__ =="
        " '__main__':\n    "
    )
    assert (
        of(
            source
            + "multiprocessing.get_context('spawn').Process(target=there).start()"
        )["printed"]
        == "there\n"
    )


@LINUX
def test_an_interrupt_ends_the_piece_and_the_next_gets_its_own_answer():
    def interrupt(*_):
        raise KeyboardInterrupt

    assert of(
        "import torch\nprint(torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork())"
    )["printed"] == ("False False\n")
    before, old = (
        set(psutil.Process().children(recursive=True)),
        signal.signal(signal.SIGALRM, interrupt),
    )
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    try:
        with pytest.raises(KeyboardInterrupt):
            of(LEAVES + "\np.wait()")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert not psutil.wait_procs(
        set(psutil.Process().children(recursive=True)) - before, timeout=5
    )[1]
    assert of("print(3)")["printed"] == "3\n"


PROGRAM = f"""
import sys, tempfile
print("it runs", flush=True)
sys.path.insert(0, {str(ROOT / "utils" / "today")!r})
import snippets
snippets.METHOD, snippets.PRELOAD = sys.argv[1], []
folder = tempfile.mkdtemp()
print(snippets.run_snippets("", ["import sys\\nprint(sys.argv[1:])"], folder)[0]["printed"], flush=True)
snippets.run_snippets("", [{LEAVES + chr(10) + "p.wait()"!r}], folder)
"""


@pytest.mark.parametrize(
    "start", [["my program.py"], ["-m", "my_module"]], ids=["file", "module"]
)
def test_a_program_is_not_run_again_and_takes_its_pieces_with_it(
    method, start, tmp_path
):
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("my program.py", "my_module.py"):
        (folder / name).write_text(PROGRAM)
    command = [sys.executable, *start, snippets.METHOD]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True
    ) as program:
        assert [program.stdout.readline() for _ in range(2)] == ["it runs\n", "[]\n"]
        program.stdout.readline()
        end, found = time.monotonic() + 20, []
        while not any(
            "time.sleep(600)" in " ".join(child.cmdline()) for child in found
        ):
            assert time.monotonic() < end
            found = psutil.Process(program.pid).children(recursive=True)
            time.sleep(0.05)
        program.kill()
    wait_for_the_end_of(*[child.pid for child in found])


@STRICT
def test_a_server_that_died_is_a_finding_and_is_replaced(
    strict, capsys, monkeypatch, tmp_path
):
    if snippets.METHOD == "spawn":
        pytest.skip("nothing is forked here")
    monkeypatch.setattr(snippets, "PRELOAD", [])
    monkeypatch.setattr(today, "PRELUDE", "")
    monkeypatch.setenv("LAB_STRICT", "1" if strict else "")
    server = int(of("import os\nprint(os.getppid())")["printed"])
    os.kill(server, signal.SIGKILL)
    wait_for_the_end_of(server)
    assert of("print(2)")["printed"] == "2\n"
    kill = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(100)"
    for action in (lambda: cell(kill), lambda: today.run_cell("", kill)):
        if strict:
            with pytest.raises(TodayError, match="has ended; run the cell again"):
                action()
        else:
            action()
            assert capsys.readouterr().out.endswith("has ended; run the cell again\n")
    (tmp_path / "dies.py").write_text("import os; os._exit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snippets, "PRELOAD", ["dies"])
    for source in (kill, "print(1)"):  # while it runs, and before it is ready
        with pytest.raises(snippets.ServerError):
            of(source)
    # or the next test may still meet it, dying
    wait_for_the_end_of(forkserver._forkserver._forkserver_pid)


def test_in_a_notebook(run):
    row = "%%today a/b: wrong\nprint(x.device)\n# ---- today\nprint('meta')"
    cells = run(
        "from utils import today",
        row,
        row.replace("wrong", "fine"),
        "%%requires compiler --name some_row\n" + row,
        "%%requires tpu --name other_row\n" + row,
        "%%today\nimport sys\nprint(net(x).shape, sys.argv[1:], 'IPython' in"
        " sys.modules)",
    )
    texts = [text_of(cell) for cell in cells]
    assert texts[1].startswith("≠ wrong") and "prints cpu" in texts[1]
    assert re.search(
        r"≠ wrong.*a/b: announced as fine, but with PyTorch \S+ it is wrong: cpu",
        texts[2],
        re.S,
    )
    assert not any(output.output_type == "error" for output in cells[2].outputs)
    assert "≠ wrong" in texts[3] or "NOT RUN HERE" in texts[3]
    assert "NOT RUN HERE" in texts[4] and "torch.Size([4, 2]) [] False" in texts[5]

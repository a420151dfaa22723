"""%%today: rows are judged by what they do, whatever they do, and nothing of them is left running."""

import os
import re
import signal
import sys
import time

import psutil
import pytest
import torch

from tests.conftest import text_of
from utils import snippets, today
from utils.claims import ClaimError
from utils.today import TodayError

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


@pytest.fixture(scope="module", autouse=True)
def servers():
    """One server for all tests, and none after them."""
    yield
    snippets._stop_all()


def cell(old, new="print(1)", announced="fine", lines=""):
    today.run(f"group/name: {announced}", f"{lines}{old}\n# ---- today\n{new}\n")


def of(source, limit=snippets.LIMIT):
    """What one piece of code does."""
    (outcome,) = snippets.run(today.PRELUDE, [source], today.launch.folder(), limit=limit)
    return outcome


VERDICTS = {  # announcement → old part, with a new part that prints 1
    "fine": "print(1)",
    'warns "FutureWarning: soon gone"': "import warnings\nwarnings.warn('soon gone', FutureWarning)",
    'raises "ValueError: no such thing"': "raise ValueError('no such thing')",
    "wrong": "print(2)",
    "slower 3": "import time\ntime.sleep(0.2)\nprint(1)",
}


@pytest.mark.parametrize("announced", VERDICTS)
def test_each_verdict_is_measured(announced, capsys):
    cell(VERDICTS[announced], "import time\ntime.sleep(0.01)\nprint(1)", announced)
    shown = capsys.readouterr().out
    word = announced.split()[0]
    assert shown.startswith(f"{today.SIGNS[word]} {word} · PyTorch ") and "\n  today  prints 1" in shown


def test_a_busy_moment_of_the_machine_does_not_change_how_much_slower(capsys, monkeypatch):
    """One hiccup in either part; a run that raises counts, however fast it was."""
    seconds = iter([0.2, 0.2, 0.9, 0.01, 0.3, 0.01])
    done = {"error": None, "ended": "", "warnings": [], "printed": "1", "stderr": ""}
    monkeypatch.setattr(today, "_execute", lambda parts, together: [{**done, "seconds": next(seconds)} for _ in parts])
    cell("print(1)", announced="slower 15")
    assert "20 times" in capsys.readouterr().out
    runs = iter([done, done, {**done, "error": ["ValueError", "no"]}, done, done, done])
    monkeypatch.setattr(today, "_execute", lambda parts, together: [{**next(runs), "seconds": 1.0} for _ in parts])
    assert today._fastest(["old", "new"])[0]["error"]


@pytest.mark.parametrize("announced", VERDICTS)
def test_another_announcement_is_one_clear_line(announced, capsys, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    for other in ["fine", "warns", "raises", "wrong"]:
        if other == announced.split()[0] or {other, announced.split()[0]} == {"fine", "slower"}:
            continue
        pattern = rf"group/name: announced as {other}, but with PyTorch \S+ it is \w+: "
        with pytest.raises(TodayError, match=pattern) as caught:
            cell(VERDICTS[announced], "print(1)", other)
        assert "\n" not in str(caught.value)
    assert "Not on this device" not in capsys.readouterr().out


# What a PyTorch of the future may do: (announcement, old part, new part, what is said of it)
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
        r"announced with the words 'soon gone', but PyTorch \S+ says: FutureWarning: will be removed",
    ),
    "an error that comes no longer": (
        'raises "gone"',
        "print(1)",
        "print(1)",
        r"announced as raises, but with PyTorch \S+ it is fine: 1",
    ),
    "removed": (
        'warns "soon gone"',
        "torch.was_there_once",
        "print(1)",
        r"announced as warns, but with PyTorch \S+ it is raises: AttributeError: module 'torch' has no attribute",
    ),
    "the new part warns": (
        "fine",
        "print(1)",
        "import warnings\nwarnings.warn('hm')\nprint(1)",
        r"the part of today must run without error and without warning, and with PyTorch \S+ it says: UserWarning: hm",
    ),
    "the new part fails": (
        "wrong",
        "print(2)",
        "from torch import private_thing",
        r"the part of today must run without error and without warning, and with PyTorch \S+ it says: ImportError",
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
        "\n  old    " in shown and "\n  today  " in shown and shown.index("\n  today  ") < shown.index("group/name: ")
    )
    assert len(re.findall("group/name: ", shown)) == 1 and re.search("group/name: " + said, shown)
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(TodayError, match="group/name: " + said):
        cell(old, new, announced)


def test_a_row_newer_than_this_pytorch_is_not_run(capsys, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    cell("print(1)", "1 / 0", 'raises "x"', "#: from 2.0: newer\n")
    shown = capsys.readouterr().out
    assert re.search(r"✓ fine.*\n  old    prints 1\n  today  is newer than PyTorch \d", shown)
    cell("print(2)", "print(1)", "wrong", "#: before 2.0: newer\n")
    assert "PyTorch before 2.0: the form of today is newer" in capsys.readouterr().out


def test_a_dead_server_is_a_finding(capsys, monkeypatch):
    def dead(*_, **__):
        raise snippets.ServerError("the process has ended; run the cell again")

    monkeypatch.setattr(snippets, "run", dead)
    cell("print(1)")
    today.run("", "print(1)")
    assert capsys.readouterr().out == "the process has ended; run the cell again\n" * 2
    monkeypatch.setenv("LAB_STRICT", "1")
    for action in (lambda: cell("print(1)"), lambda: today.run("", "print(1)")):
        with pytest.raises(TodayError, match="run the cell again"):
            action()


def test_too_fast_is_a_missed_claim(monkeypatch, capsys):
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(ClaimError, match="the old form takes longer"):
        cell("print(1)", announced="slower 1000000")
    monkeypatch.delenv("LAB_STRICT")
    cell("print(1)", announced="slower 1000000")
    assert "Not on this device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ("name fine", "1\n# ---- today\n1", "cannot read 'name fine': write %%today GROUP/NAME"),
        ("a/b: good", "1\n# ---- today\n1", "known are fine, warns, raises, wrong, slower 5"),
        ("a/b: slower", "1\n# ---- today\n1", "cannot read the announcement 'slower'"),
        ("a/b: fine", "1\n", "a row has an old part, a line `# ---- today` and a new part"),
        ("a/b: fine", "# ---- today\n1", "a row has an old part"),
        ("a/b: fine", "#: with gpu: fine\n1\n# ---- today\n1", "unknown condition 'with gpu'; known are before 2.11"),
    ],
)
def test_what_cannot_be_read_is_said(header, body, message):
    with pytest.raises(TodayError, match=re.escape(message)):
        today.run(header, body)


def test_the_first_condition_that_holds_counts(capsys):
    lines = "#: before 2.0: raises\n#: from 2.0: wrong\n#: from 2.1: raises\n#: because so\n"
    cell("print(2)", announced="fine", lines=lines)
    shown = capsys.readouterr().out
    assert shown.startswith("≠ wrong") and "PyTorch before 2.0: raises" in shown and "elsewhere: fine" in shown
    cell("print(2)", announced="fine", lines="#: from 2.0: any\n")
    assert "≠ wrong" in capsys.readouterr().out


def test_conditions(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    assert today.holds("before 2.12") and not today.holds("before 2.11") and not today.holds("before 2.9")
    assert today.holds("in 2.11") and today.holds("from 2.9, in 2.11") and not today.holds("from 2.9, before 2.10")
    assert today.holds("") and today.holds("python 3.10") and not today.holds("python 4.0")
    assert sum(today.holds(f"on {system}") for system in ("Linux", "Windows", "macOS")) == 1


def test_a_piece_that_hangs_is_stopped():
    began = time.monotonic()
    outcome = of("import time\nprint('here', flush=True)\ntime.sleep(600)", limit=1)
    assert outcome["ended"] == "it did not end within 1 s and was stopped" and outcome["printed"] == "here\n"
    assert time.monotonic() - began < 15


def test_a_piece_that_kills_itself(capsys):
    for status in (0, 3):
        assert of(f"import os\nos._exit({status})")["ended"] == f"its process ended with status {status}"
    if os.name != "nt":
        today.run("", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        assert "yours  its process was ended by SIGSEGV" in capsys.readouterr().out


def test_a_piece_that_prints_without_end():
    outcome = of("while True:\n    print('x' * 10_000)")
    assert outcome["ended"] == "it printed more than 4 MiB and was stopped"
    assert len(outcome["printed"]) <= snippets.KEPT + 1


def test_long_messages_are_cut_and_it_says_so(capsys):
    today.run("", "raise ValueError('\\n'.join(map(str, range(9))) + 'x' * 9000)")
    assert "(6 more lines)" in capsys.readouterr().out
    today.run("", "print('word ' * 2000)")
    shown = capsys.readouterr().out
    assert "…" in shown and len(shown) < 1000


def test_exit_is_no_error_unless_it_says_so():
    assert of("raise SystemExit")["error"] is None
    assert of("raise SystemExit(2)")["error"] == ["SystemExit", "2"]


@LINUX
def test_what_a_piece_leaves_running_is_ended():
    source = "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    pid = int(of(source + "\nprint(p.pid)")["printed"])
    end = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_each_piece_is_a_program_of_its_own():
    outcome = of("import os, sys\nprint(__name__, len(os.listdir()), 'utils' in sys.modules, x.shape)")
    assert outcome["printed"] == "__main__ 3 False torch.Size([4, 8])\n"  # snippet.py and what it prints


def test_workers_may_be_spawned():
    loader = "torch.utils.data.DataLoader(x, num_workers=1, multiprocessing_context='spawn')"
    assert of(f"if __name__ == '__main__':\n    print(len(list({loader})))")["printed"] == "4\n"


def test_no_path_of_the_machine_is_shown():
    told = {"error": ["OSError", ""], "warnings": [], "ended": ""}
    for path in ["/root/a/b.py", "/tmp/device-lab-1/snippet.py", r"C:\Users\me\lib\b.py", "/usr/lib/python3.11/x.py"]:
        told["error"][1] = f"cannot read '{path}' (see https://pytorch.org/docs/main/notes.html)"
        name = re.split(r"[/\\]", path)[-1]
        assert today.said(told) == f"OSError: cannot read '…/{name}' (see https://pytorch.org/docs/main/notes.html)"


@LINUX
def test_a_server_that_died_is_replaced():
    of("print(1)")
    os.kill(snippets._servers["torch"].pid, signal.SIGKILL)
    snippets._servers["torch"].wait(20)
    assert of("print(2)")["printed"] == "2\n"
    with pytest.raises(snippets.ServerError, match="run the cell again"):
        of(f"import os, time\nos.kill({snippets._servers['torch'].pid}, 9)\ntime.sleep(100)")
    assert of("print(3)")["printed"] == "3\n"


@LINUX
def test_an_interrupt_ends_the_piece_and_the_next_gets_its_own_answer():
    def interrupt(*_):
        raise KeyboardInterrupt

    of("print(1)")
    before, old = psutil.Process().children(recursive=True), signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    try:
        with pytest.raises(KeyboardInterrupt):
            of("import time\ntime.sleep(600)\nprint(2)")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert not psutil.wait_procs(before, timeout=5)[1] and not psutil.Process().children(recursive=True)
    assert of("print(3)")["printed"] == "3\n"


@LINUX
def test_the_server_has_not_touched_a_device():
    source = "import torch.cuda\nprint(torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork())"
    assert of(source)["printed"] == "False False\n"


def test_without_forks_the_verdicts_are_the_same(monkeypatch, capsys):
    monkeypatch.setattr(snippets, "FORKS", False)
    cell("print(2)", "print(1)", "wrong")
    cell("raise ValueError('no')", "print(1)", 'raises "ValueError: no"')
    assert "≠ wrong" in capsys.readouterr().out
    assert of("import time\ntime.sleep(600)", limit=5)["ended"].startswith("it did not end")
    assert of("import os\nos._exit(3)")["ended"] == "its process ended with status 3"
    assert not snippets._new


def test_a_paste_is_compared_with_the_rows(capsys):
    today.run("", "net(x).numpy()")
    shown = capsys.readouterr().out
    assert shown.startswith("✗ raises") and "Like movement/numpy-grad in this lesson: because" not in shown
    assert "Like movement/numpy-grad in this lesson" in shown and "net(x).detach().cpu().numpy()" in shown
    today.run("", "raise ValueError('nobody knows this')")
    assert "No row of this lesson is like it." in capsys.readouterr().out
    today.run("", "best = net.state_dict()")  # silent: found by the code
    shown = capsys.readouterr().out
    assert "✓ fine" in shown and "Like movement/best-state" in shown
    today.run("", "torch.cuda.empty_cache()")
    assert "Like memory/empty-cache" in capsys.readouterr().out


def test_find_looks_into_code_causes_and_messages(capsys):
    assert "amp/autocast" in [row.slug for row in today.search("cuda.amp.autocast")]
    assert [row.slug for row in today.search("one default group is_initialized")] == ["distributed/twice"]
    assert "memory/cached" in [row.slug for row in today.search("memory_reserved", group="memory", verdict="warns")]
    assert today.search("memory_reserved", group="data") == []
    today.find("two devices")
    assert "movement/two-gpus · raises · an operation runs on one device" in capsys.readouterr().out
    today.find("no such words")
    assert capsys.readouterr().out.startswith("0 of ")


def test_table_shows_what_search_finds():
    fig, alt = today.table("numpy")
    assert "movement/numpy-grad" in alt and re.search(r"\d+ of \d+ rows", alt)
    assert "0 of" in today.table("no such words")[1]


def test_in_a_notebook(run):
    row = "%%today a/b: wrong\nprint(x.device)\n# ---- today\nprint('meta')"
    cells = run(
        "from utils import today",
        row,
        row.replace("wrong", "fine"),
        "%%requires compiler --name some_row\n" + row,
        "%%requires tpu --name other_row\n" + row,
        "%%today\nprint(net(x).shape)",
        "import os, psutil\nprint(*[p.pid for p in psutil.Process().children(recursive=True)], os.getpid())",
        alone=True,
    )
    texts = [text_of(cell) for cell in cells]
    assert texts[1].startswith("≠ wrong") and "prints cpu" in texts[1]
    assert re.search(r"≠ wrong.*a/b: announced as fine, but with PyTorch \S+ it is wrong: cpu", texts[2], re.S)
    assert not any(output.output_type == "error" for output in cells[2].outputs)
    assert "≠ wrong" in texts[3] or "Not run here" in texts[3]
    assert "Not run here" in texts[4] and "torch.Size([4, 2])" in texts[5]
    end = time.monotonic() + 10
    while any(psutil.pid_exists(int(pid)) for pid in texts[6].split()):  # the kernel has ended, and what it started
        assert time.monotonic() < end
        time.sleep(0.1)

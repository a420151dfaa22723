"""Jobs of several processes: what they print comes back by rank, and nothing of them is
left behind.
"""

import os
import re
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

from course.torchrun import torchrun_cell
from tests.conftest import ROOT
from utils import jobs, launch
from utils.launch import LaunchError

RANKS = """
import json, os
rank = int(os.environ["RANK"])
print("I am", rank)
found = {"rank": rank, "here": os.getcwd(), "world": int(os.environ["WORLD_SIZE"])}
print(json.dumps({**found, "address": os.environ["MASTER_ADDR"]}))
"""
WORLD = """
import torch.distributed as dist
dist.init_process_group("gloo")
print(dist.get_world_size())
dist.barrier()  # who goes early looks to the other, which still connects, like a crash
dist.destroy_process_group()
"""
LETS_GO = """
import os, time
import torch, torch.distributed as dist
import torch.distributed.nn.functional

dist.init_process_group("gloo")
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
ddp(torch.ones(4, 8)).sum().backward()
del ddp
dist.destroy_process_group()
time.sleep(0.5)
tasks = "/proc/self/task"
names = [open(f"{tasks}/{thread}/comm").read() for thread in os.listdir(tasks)]
print(sum(name.startswith("pt_gloo_runloop") for name in names), flush=True)
os._exit(0)
"""
FAILS = """
import os
if os.environ["RANK"] == "1":
    raise ValueError("rank one is unhappy")
"""
DIES = """
import os, signal
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
SLEEPS = "import os, time\nprint('asleep', flush=True)\ntime.sleep(600)"


@pytest.fixture
def script(tmp_path):
    """script(source): the path of a file that holds it, in a folder with a space in its
    name.
    """

    def write(source):
        folder = tmp_path / "a folder"
        folder.mkdir(exist_ok=True)
        path = folder / "job.py"
        path.write_text(source)
        return path

    return write


def asleep(job, count):
    """Wait until `count` ranks have printed something; the processes that are alive
    then.
    """
    end = time.monotonic() + 60
    while sum("asleep" in text for text in job.so_far().printed.values()) < count:
        assert time.monotonic() < end, job.so_far()
        time.sleep(0.05)
    return job.processes()


@pytest.mark.slow
def test_each_rank_answers(script, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "7")  # a notebook inside a job of somebody else
    run = launch.torchrun(script(RANKS), processes=2)
    found = run.results()
    assert run.code == 0 and run.agent == ""
    assert [result["rank"] for result in found] == [0, 1]
    for result in found:
        assert result["world"] == 2 and result["here"] == str(launch.folder())
        assert result["address"] == "127.0.0.1"  # whatever the machine's name
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "$ torchrun --nproc-per-node=2 --standalone job.py"
    assert shown[1] == "rank 0 │ I am 0" and shown[3] == "rank 1 │ I am 1"


@pytest.mark.slow
def test_without_a_network_store_as_windows_needs_it(script, monkeypatch):
    monkeypatch.setattr(launch, "DEFAULTS", {**jobs.DEFAULTS, **jobs.WINDOWS})
    run = launch.torchrun(script(WORLD), processes=2)
    assert run.results() == [2, 2] and not set(run.printed[0]) - set("2\n")


@pytest.mark.slow
def test_a_failure_is_an_error_unless_announced(script, capsys):
    words = (
        "the job ended with status 1, its last words: ValueError: rank one is unhappy;"
        " run the cell again."
    )
    with pytest.raises(LaunchError, match=f"^{words}$"):
        launch.torchrun(script(FAILS))
    launch.torchrun(script(FAILS), fails="one is unhappy")
    assert "rank 1 │ ValueError: rank one is unhappy" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_a_rank_that_dies_without_a_word(script):
    words = r"last words: \(exitcode: -9\) local_rank: 1; run the cell again\.$"
    with pytest.raises(LaunchError, match=words):
        launch.torchrun(script(DIES))


def test_the_lines_in_which_two_scripts_differ(tmp_path, capsys):
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    middle = "for n in range(3):\n    x += n\n\n    y = n\nprint(x)\n"
    old.write_text(f"import torch\n\n\nx = 1\n{middle}")
    new.write_text(f"import os\n\nimport torch\n\nx = 2\n{middle}end = 1\n")
    launch.show_diff(old, new, context=1)
    assert capsys.readouterr().out.splitlines() == [
        "\x1b[1m--- old.py\x1b[0m",
        "\x1b[1m+++ new.py\x1b[0m",
        "\x1b[32m+import os\x1b[0m",
        " import torch",
        "\x1b[31m-x = 1\x1b[0m",
        "\x1b[32m+x = 2\x1b[0m",
        " for n in range(3):",
        "  ⋮",
        " print(x)",
        "\x1b[32m+end = 1\x1b[0m",
    ]
    launch.show_diff(old, new, only="x|end")
    shown = capsys.readouterr().out.splitlines()[2:]
    assert shown == ["\x1b[32m+x = 2\x1b[0m", "\x1b[32m+end = 1\x1b[0m"]
    launch.show_diff(str(new), new)
    assert capsys.readouterr().out == ""
    with pytest.raises(LaunchError, match="no script nowhere.py"):
        launch.show_diff(old, "nowhere.py")


def test_a_whole_script_with_what_is_new_in_it(tmp_path, capsys):
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text("a = 1\n\nb = 1\n")
    new.write_text("a = 1\n\nb = 1\n" + "c = 1\n\n" * 9)
    launch.show_diff(old, new, context=None)
    said = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()[2:]
    assert said == [" a = 1", " ", " b = 1", *["+c = 1", "+"] * 9]


@pytest.mark.slow
def test_no_colors(script, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    # a notebook's kernel does it; Python 3.13 colors its tracebacks then
    monkeypatch.setenv("FORCE_COLOR", "1")
    run = launch.torchrun(script(FAILS), fails="(?m)^ValueError: rank one")
    assert "\x1b" not in run.errors[1]


@pytest.mark.slow
def test_a_job_that_does_not_end_is_stopped(script):
    job = launch.start(script(SLEEPS))
    before = asleep(job, 2)
    assert len(before) == 3 and job.worker(1) in before
    with pytest.raises(LaunchError, match="did not end within 0.1 s"):
        job.finish(timeout=0.1)
    assert job.processes() == [] and not any(process.is_running() for process in before)


@pytest.mark.slow
def test_workers_that_lost_their_parent_are_stopped_too(script):
    job = launch.start(script(SLEEPS))
    before = asleep(job, 2)
    job.agent.kill()
    job.agent.wait(10)
    assert len(job.processes()) == 2
    job.stop()
    assert not any(process.is_running() for process in before)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_an_interrupted_or_ended_kernel_leaves_nothing(script):
    # behind a shell's &, too
    hears = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    call = f"launch.torchrun({str(script(SLEEPS))!r}, timeout=100)"
    command = [sys.executable, "-c", f"{hears}from utils import launch\n{call}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as kernel:
        end = time.monotonic() + 60
        while len(family := psutil.Process(kernel.pid).children(recursive=True)) < 3:
            assert time.monotonic() < end and kernel.poll() is None
            time.sleep(0.1)
        folder = family[0].cwd()
        kernel.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in kernel.communicate(timeout=60)[1]
    assert not any(process.is_running() for process in family)
    assert not os.path.exists(folder)


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="looks at the names of threads in /proc",
)
def test_a_destroyed_group_leaves_no_threads_once_its_model_is_gone(script):
    # as lesson 11 says: a thread that is left can meet Python's end
    assert launch.torchrun(script(LETS_GO), quiet=True).results() == [0, 0]


# the last line of a program that has opened a process group
ENDS = re.compile(
    r"(dist\.destroy_process_group\(\)|accelerator\.end_training\(\).*"
    r"|os\._exit\(0\).*|\nend\(\).*)$"  # end() of parts.py and ways.py does both
)


def test_each_program_of_a_lesson_ends_its_process_group():
    programs = {
        f"{path.stem[:2]} {cell.id}": cell.source
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        for cell in nbformat.read(path, as_version=4).cells
        if cell.source.startswith("%%torchrun")
    }
    opens = re.compile(r"init_process_group\(|Accelerator\(")
    talking = {
        name: source
        for name, source in programs.items()
        if opens.search(source) and "--fails" not in source.splitlines()[0]
    }
    assert talking
    assert [name for name, source in talking.items() if not ENDS.search(source)] == []


def test_what_pytorch_writes_for_itself_is_not_what_a_program_says():
    warning = (
        "[W1123 00:20:12.342796725 socket.cpp:207] [c10d] The hostname of the client"
        " socket cannot be retrieved. err=-3\n"
    )
    noise = f"[Gloo] Rank 0 is connected to 1 peer ranks.\n{warning}[rank1]:{warning}"
    other = "[W1123] a warning of another kind\n"
    assert jobs.NOISE.sub("", f"first\n{noise}{other}") == f"first\n{other}"


@pytest.mark.slow
def test_the_cell_magic(capsys):
    shell = InteractiveShell.instance()
    try:
        torchrun_cell("2 --result answers", RANKS)
        assert [answer["rank"] for answer in shell.user_ns["answers"]] == [0, 1]
        torchrun_cell("2 --fails 'rank one'", FAILS)
        shown = capsys.readouterr().out
        assert "this_cell.py" in shown and "rank 1 │ ValueError" in shown
        assert '"rank"' not in shown
        for line in ("", "none", "2 --result", "0", "2 --fast"):
            with pytest.raises(LaunchError, match="write %%torchrun N"):
                torchrun_cell(line, "")
    finally:
        InteractiveShell.clear_instance()

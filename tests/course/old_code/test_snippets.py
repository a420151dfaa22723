"""Pieces of code in processes of their own: whatever they do is told, and nothing of
them is left running.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver

import psutil
import pytest

from course.old_code import snippets
from tests.conftest import ROOT
from utils.jobs import folder

pytestmark = pytest.mark.slow

LEAVES = (
    "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'import time;"
    " time.sleep(600)'])"
)


def of(source, limit=snippets.LIMIT, prelude=""):
    """What one piece of code does."""
    (outcome,) = snippets.run_snippets(prelude, [source], folder(), limit=limit)
    return outcome


def wait_for_the_end_of(*pids):
    end = time.monotonic() + 60
    while any(
        psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        for pid in pids
    ):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(params=["forkserver", "spawn"])
def method(request, monkeypatch):
    """Both ways to start processes; that of Windows and macOS works on Linux, too."""
    if request.param == "forkserver" and sys.platform != "linux":
        pytest.skip("nothing is forked here")
    if request.param == "forkserver":
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
        "import os\nprint(__name__, len(os.listdir()),"
        " *map(os.environ.get, ['FROM_HERE', 'GIVEN', 'PATH']))": "",
        "import sys\nprint(len(sys.argv), sys.stdin.read(),"
        " {'utils', 'pytest'} & sys.modules.keys())": "",
        f"import sys\nsys.exit({str(ROOT)!r} in sys.path)": "",
        "import multiprocessing\nmultiprocessing.set_start_method('spawn')": "",
    }
    if os.name != "nt":
        pieces["import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"] = (
            "its process was ended by SIGSEGV"
        )
    prelude = "import warnings\nwarnings.warn('of the prelude')"
    # not None where other tests of this process have started processes
    method = multiprocessing.get_start_method(allow_none=True)
    outcomes = snippets.run_snippets(
        prelude, list(pieces), folder(), env={"GIVEN": "2"}
    )
    assert [outcome["ended"] for outcome in outcomes] == list(pieces.values())
    endless, _, _, left, left_2, failed, named, bare, path, free, *_ = outcomes
    assert 0 < len(endless["printed"]) <= snippets.KEPT + 1
    assert left["error"] is None and left_2["error"] == ["SystemExit", "2"]
    assert failed["error"] == ["ZeroDivisionError", "division by zero"]
    assert failed["seconds"] is None and "line 5, in" in failed["stderr"]
    assert failed["warnings"] == [["UserWarning", "hm"]]
    # files: snippet.py, and what it prints
    assert named["printed"] == "__main__ 3 1 2 None\n"
    assert bare["printed"] == "1  set()\n"
    assert path["error"] is None and free["error"] is None
    assert multiprocessing.get_start_method(allow_none=True) == method
    assert not list(folder().glob("snip*"))


def test_a_piece_that_hangs_is_stopped(method):
    outcome = of("print('here', flush=True)\nwhile True: pass", limit=2)
    assert outcome["ended"] == "it did not end within 2 s and was stopped"
    assert outcome["printed"] == "here\n"


@pytest.mark.skipif(
    os.name == "nt", reason="there, what has lost its parent is not found"
)
def test_what_a_piece_leaves_running_is_ended(method):
    wait_for_the_end_of(int(of(LEAVES + "\nprint(p.pid)")["printed"]))


def test_a_piece_may_spawn_what_it_defines_and_is_waited_for(method):
    source = """
import multiprocessing
def there():
    print('there')
if __name__ == '__main__':
    multiprocessing.get_context('spawn').Process(target=there).start()
"""
    assert of(source)["printed"] == "there\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_a_fork_can_still_use_cuda():
    asked = "torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()"
    assert of(f"import torch\nprint({asked})")["printed"] == "False False\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_an_interrupt_ends_the_piece_and_the_next_gets_its_own_answer():
    def interrupt(*_):
        raise KeyboardInterrupt

    of("")  # starts the server
    before = set(psutil.Process().children(recursive=True))
    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    try:
        with pytest.raises(KeyboardInterrupt):
            of(LEAVES + "\np.wait()")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    begun = set(psutil.Process().children(recursive=True)) - before
    assert not psutil.wait_procs(begun, timeout=60)[1]
    assert of("print(3)")["printed"] == "3\n"


PROGRAM = f"""
import sys, tempfile
print("it runs", flush=True)
sys.path.insert(0, {str(ROOT / "course" / "old_code")!r})
import snippets
snippets.METHOD, snippets.PRELOAD = sys.argv[1], []
folder = tempfile.mkdtemp()
(first,) = snippets.run_snippets("", ["import sys\\nprint(sys.argv[1:])"], folder)
print(first["printed"], flush=True)
snippets.run_snippets("", [{LEAVES + chr(10) + "p.wait()"!r}], folder)
"""


@pytest.mark.parametrize(
    "start", [["my program.py"], ["-m", "my_module"]], ids=["file", "module"]
)
def test_a_program_is_not_run_again_and_takes_its_pieces_with_it(
    method, start, tmp_path
):
    place = tmp_path / "a folder"
    place.mkdir()
    for name in ("my program.py", "my_module.py"):
        (place / name).write_text(PROGRAM)
    command = [sys.executable, *start, snippets.METHOD]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, text=True
    ) as program:
        assert [program.stdout.readline() for _ in range(2)] == ["it runs\n", "[]\n"]
        program.stdout.readline()
        end, found = time.monotonic() + 60, []
        while not any(
            "time.sleep(600)" in " ".join(child.cmdline()) for child in found
        ):
            assert time.monotonic() < end
            found = psutil.Process(program.pid).children(recursive=True)
            time.sleep(0.05)
        program.kill()
    wait_for_the_end_of(*[child.pid for child in found])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_a_server_that_died_is_replaced(monkeypatch, tmp_path):
    monkeypatch.setattr(snippets, "PRELOAD", [])
    server = int(of("import os\nprint(os.getppid())")["printed"])
    os.kill(server, signal.SIGKILL)
    wait_for_the_end_of(server)
    assert of("print(2)")["printed"] == "2\n"
    (tmp_path / "dies.py").write_text("import os; os._exit(1)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snippets, "PRELOAD", ["dies"])
    kill = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(100)"
    for source in (kill, "print(1)"):  # while it runs, and before it is ready
        with pytest.raises(snippets.ServerError):
            of(source)
    # or the next test may still meet it, dying
    wait_for_the_end_of(forkserver._forkserver._forkserver_pid)

"""Real processes for tests of the training scripts, without importing torch in each:
the fork server has imported it.

They have an environment and output of their own, and die of kill -9. Where there is no
fork, each is a new Python.
"""

import datetime
import json
import multiprocessing
import operator
import os
import pathlib
import random
import sys
import tempfile
import time
from types import SimpleNamespace
from unittest import mock

import torch

from tests.scripts import ROOT

CONTEXT = multiprocessing.get_context("spawn" if os.name == "nt" else "forkserver")
# torch._dynamo: the first optimizer imports it, and that takes as long as all the rest.
PRELOAD = ["pytest", "tests.scripts.processes", "train", "train_ddp", "torch._dynamo"]


def _serve():
    """Have the fork server know the scripts: lesson 16's pieces, tested in this process
    before, start one without.
    """
    from multiprocessing import forkserver  # Windows has none

    server = forkserver._forkserver
    if server._preload_modules != PRELOAD:
        server._stop()  # there for unit tests
        CONTEXT.set_forkserver_preload(PRELOAD)


def _enter(main, words, env, cwd, folder):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    torch.set_num_threads(1)
    sys.argv = [main.__module__ + ".py", *words]
    sys.exit(main())


def start(main, *words, **env):
    """Start `main`, a function of an importable module, as a script with these
    arguments. Returns the Process.

    env: variables on top of what this process has. What it prints goes to
    process.folder / "out" and "err".
    """
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TMPDIR"]))
    for name in ("out", "err"):  # there, also if it is killed before it begins
        (folder / name).touch()
    env = {**os.environ, **{name: str(value) for name, value in env.items()}}
    arguments = (main, list(map(str, words)), env, os.getcwd(), folder)
    # daemon: it ends with the tests
    process = CONTEXT.Process(target=_enter, args=arguments, daemon=True)
    if CONTEXT.get_start_method() == "forkserver":
        _serve()
    method = multiprocessing.get_start_method(allow_none=True)
    # the server finds tests.scripts.processes, whatever the folder
    with mock.patch.dict(os.environ, PYTHONPATH=str(ROOT)):
        process.start()
    # starting has fixed it; other tests look at it
    multiprocessing.set_start_method(method, force=True)
    process.folder = folder
    return process


def finish(processes, seconds=120):
    """Exit status, stdout and stderr of each. AssertionError if one is still running
    after so many seconds.
    """
    ends = []
    for process in processes:
        process.join(seconds)
        assert not process.is_alive(), f"{process.name} runs for more than {seconds} s"
        out, err = ((process.folder / name).read_text() for name in ("out", "err"))
        ends.append(SimpleNamespace(status=process.exitcode, out=out, err=err))
    return ends


def run_main(main, *words, **env):
    """Start `main` and wait for its end: exit status, stdout and stderr."""
    return finish([start(main, *words, **env)])[0]


def wait_until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.002)
    return value


def log_of(path):
    """The complete lines of a log in JSON."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def wait_for_step(path, step):
    """Wait until a training has logged this step."""

    def logged():
        return any(line["step"] >= step for line in log_of(path)[-1:])

    wait_until(logged, f"step {step} in {path}")


def chance():
    """Random numbers that are others each day, and the same all day."""
    return random.Random(datetime.date.today().timetuple().tm_yday)


def load(path):
    return torch.load(path, weights_only=True)


def assert_same_bits(one, two):
    """Two checkpoints hold the same: weights, what the optimizer keeps, how far the
    training is.
    """
    assert one.keys() == two.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same_bits(value, two[name])
        else:
            same = torch.equal if torch.is_tensor(value) else operator.eq
            assert same(value, two[name]), name

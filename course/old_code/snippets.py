"""Run pieces of code in processes of their own and say what each did: printed, warned,
raised, took.

`run_snippets(prelude, parts)` is for the caller. On Linux multiprocessing's fork server
imports torch once and forks for each piece; elsewhere each piece gets a new Python. In
that process this file is run by its path, as a program: so nothing of the course is
imported there.
"""

import contextlib
import importlib.util
import json
import multiprocessing.connection
import os
import pathlib
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings

import psutil

PRINTED_MOST = 4 * 2**20  # bytes that it may print
KEPT = 4000  # characters kept of what it printed
# Windows cannot fork, macOS does not bear it
METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# seconds that a piece may take; a new Python has to import torch first
LIMIT = 40 if METHOD == "forkserver" else 120
# the first optimizer imports the second, this file the third
PRELOAD = ["torch", "torch._dynamo", "psutil"]


class ServerError(Exception):
    """The process that forks the others has ended, before or while a piece ran."""

    def __str__(self):
        return "the process that runs the pieces of code has ended; run the cell again"


# --------------------------------------------------------------------------------------
# The caller's side


def run_snippets(prelude, parts, folder, together=True, limit=LIMIT, env=None):
    """Run each of `parts` (source code) after `prelude`, each in a process of its own;
    a list of dicts.

    Of each: "printed" and "stderr" (text), "warnings" ([category, text] each), "error"
    ([class, text] or None), "seconds" (without the prelude; None if it raised), "ended"
    ("" or why it did not end by itself).

    folder: where each gets an empty folder of its own
    together: side by side, not one after the other
    limit: in seconds
    env: variables of the processes besides this one's
    """
    xla = any("torch_xla" in part for part in parts)
    xla = xla and importlib.util.find_spec("torch_xla") is not None
    not_theirs = (pathlib.Path(__file__).parents[2], pathlib.Path.cwd())
    path = [
        place for place in sys.path if place and pathlib.Path(place) not in not_theirs
    ]
    jobs = [
        {
            "part": part,
            "place": tempfile.mkdtemp(prefix="snippet-", dir=folder),
            "limit": limit,
            "env": {**os.environ, **(env or {})},
            "path": path,
            "prelude": f"{prelude}\n",
            "xla": xla,
        }
        for part in parts
    ]
    # a TPU serves one process at a time
    groups = [jobs] if together and not xla else [[job] for job in jobs]
    try:
        for group in groups:
            _carry_out(group, limit)
        return [_outcome(job) for job in jobs]
    finally:
        # an interrupted start may still make a process, which ends where it finds no
        # folder
        for job in jobs:
            shutil.rmtree(job["place"], ignore_errors=True)


def _carry_out(jobs, limit):
    """Start the jobs side by side, wait for them, and end what does not end by itself;
    job["ended"] says why.
    """
    running = {}
    try:
        for job in jobs:
            running[_start(job)] = job
        end = time.monotonic() + limit
        while running:
            multiprocessing.connection.wait(
                [process.sentinel for process in running], 0.02
            )
            for process, job in list(running.items()):
                job["ended"] = _why_ended(process, job, late=time.monotonic() > end)
                if job["ended"] is not None:
                    _kill(process)  # and what it left running
                    del running[process]
    finally:
        for process in running:
            _kill(process)


def _start(job):
    """Start the process of a piece, before the first also the server that forks it."""
    for name in ("printed", "stderr"):
        pathlib.Path(job["place"], name).touch()
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(PRELOAD)
    process = context.Process(
        target=runpy.run_path, args=(__file__, {"job": job}, "__snippet__")
    )
    main = sys.modules["__main__"]
    method = multiprocessing.get_start_method(allow_none=True)
    # or the new process would run this program's file again
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        process.start()
    except (EOFError, OSError):
        raise ServerError from None
    finally:
        sys.modules["__main__"] = main
        # starting has fixed it; the choice is the reader's
        multiprocessing.set_start_method(method, force=True)
    return process


def _why_ended(process, job, late):
    """Why a process does not go on: "" if the piece came to its end. None while it may
    run.
    """
    place, code = pathlib.Path(job["place"]), process.exitcode
    if code is None and late:
        return f"it did not end within {job['limit']} s and was stopped"
    if code is None:
        written = sum((place / name).stat().st_size for name in ("printed", "stderr"))
        if written <= PRINTED_MOST:
            return None
        return f"it printed more than {PRINTED_MOST // 2**20} MiB and was stopped"
    # multiprocessing's answer if the server is not there to tell
    if code == 255 and psutil.pid_exists(process.pid):
        raise ServerError
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    if (place / "outcome.json").exists():
        return ""
    return f"its process ended with status {code}"


def _kill(process):
    """End a process and all that it started."""
    with contextlib.suppress(OSError, psutil.Error):
        if os.name == "nt":
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _outcome(job):
    place = pathlib.Path(job["place"])
    outcome = {"warnings": [], "error": None, "seconds": None, "ended": job["ended"]}
    with contextlib.suppress(OSError, ValueError):
        outcome |= json.loads((place / "outcome.json").read_text(encoding="utf-8"))
    for name in ("printed", "stderr"):
        with open(place / name, encoding="utf-8", errors="replace") as file:
            outcome[name] = file.read(KEPT + 1)
    return outcome


# --------------------------------------------------------------------------------------
# The process in which a piece runs


def _run(job):
    """Run one piece as the program of this process, write what it did, and end the
    process.
    """
    path = _become_program(job)
    outcome = {"error": None, "seconds": None}
    with warnings.catch_warnings(record=True) as caught:
        try:
            names = sys.modules["__main__"].__dict__
            exec(compile(job["prelude"], path, "exec"), names)
            caught.clear()  # what the prelude warned of is not the piece's
            above = "\n" * job["prelude"].count(
                "\n"
            )  # so that lines have their numbers
            code = compile(above + job["part"], path, "exec")
            began = time.perf_counter()
            exec(code, names)
            outcome["seconds"] = time.perf_counter() - began
            for other in [*threading.enumerate(), *multiprocessing.active_children()]:
                if other is not threading.current_thread() and not other.daemon:
                    other.join()  # Python waits for them at its end
        except BaseException as error:
            traceback.print_exc()
            if not isinstance(error, SystemExit) or error.code:
                outcome["error"] = [type(error).__name__, str(error)]
    outcome["warnings"] = list(
        dict.fromkeys((told.category.__name__, str(told.message)) for told in caught)
    )
    sys.stdout.flush()
    sys.stderr.flush()
    pathlib.Path(job["place"], "outcome.json").write_text(
        json.dumps(outcome), encoding="utf-8"
    )
    # no destructors and no exit handlers: what the piece left open ends with its
    # process group
    os._exit(0)


def _become_program(job):
    """Make this process what `python snippet.py` would be in the piece's own folder.
    Returns the path of that file.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # a process group, which is ended as a whole
    threading.Thread(target=_end_with_caller, args=(job["limit"],), daemon=True).start()
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(job["env"])
    try:
        os.chdir(job["place"])
    except OSError:
        os._exit(1)  # the caller was interrupted
    for descriptor, name in ((1, "printed"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY), descriptor)
    sys.stdout, sys.stderr = (
        open(descriptor, "w", encoding="utf-8", closefd=False) for descriptor in (1, 2)
    )
    path = os.path.join(job["place"], "snippet.py")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = path  # so that processes it spawns can read it again
    pathlib.Path(path).write_text(job["prelude"] + job["part"], encoding="utf-8")
    sys.argv, sys.path = [path], [job["place"], *job["path"]]
    if job["xla"]:
        # a torch_xla that does not fit; whoever imports it will see why
        with contextlib.suppress(Exception):
            import torch_xla  # noqa: F401
    return path


def _end_with_caller(limit):
    """End this process and what it started when the caller has ended, or was
    interrupted and does not wait for it.
    """
    multiprocessing.parent_process().join(limit + 20)
    if os.name != "nt":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__snippet__":
    _run(job)  # noqa: F821 (given by the caller, to run_path)

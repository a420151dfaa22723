"""Run pieces of code in processes of their own and say what each did: printed, warned, raised, took.

`run(prelude, parts)` is for the caller. On Linux a server process imports torch once and forks a child for each
piece; elsewhere each piece gets a new Python. This file is also the program of both: it is started by its path.
"""

import atexit
import contextlib
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

PRINTED_MOST = 4 * 2**20  # bytes that it may print
KEPT = 4000  # characters kept of what it printed
FORKS = sys.platform == "linux"  # Windows cannot fork, and on macOS much does not work after it
LIMIT = 40 if FORKS else 120  # seconds that a piece of code may take; a new Python has to import torch first
_numbers = itertools.count()
_servers = {}  # module → Popen of the server that has it imported
_new = {}  # process id → Popen of a piece that runs in a new Python


class ServerError(Exception):
    """The process that runs the pieces has ended."""


# ---------------------------------------------------------------------------------------------------------------
# The caller's side


def run(prelude, parts, folder, together=True, limit=LIMIT, env=None):
    """Run each of `parts` (source code) after `prelude`, each in a process of its own; a list of dicts.

    Of each: "printed" and "stderr" (text), "warnings" ([category, text] each), "error" ([class, text] or None),
    "seconds" (without the prelude; None where it never ended), "ended" ("" or why it did not end by itself).
    folder: where each gets an empty folder of its own. together: side by side, not one after the other. limit: in
    seconds. env: variables of the processes besides this one's (the first call decides, where a server runs them).
    """
    request = {"jobs": [_job(prelude, part, folder) for part in parts], "together": together, "limit": limit}
    if FORKS:
        xla = any("torch_xla" in part for part in parts) and importlib.util.find_spec("torch_xla")
        request["together"] = together and not xla  # a TPU serves one process at a time
        _ask("torch_xla" if xla else "torch", request, env or {})
    else:
        _carry_out(request, functools.partial(_start_new, env=env or {}))
    return [_outcome(job) for job in request["jobs"]]


def _job(prelude, part, folder):
    place = pathlib.Path(folder) / f"snippet-{next(_numbers)}"
    place.mkdir()
    (place / "printed").touch()
    (place / "stderr").touch()
    (place / "snippet.py").write_text(f"{prelude.rstrip()}\n# The piece itself\n{part}\n", encoding="utf-8")
    return {"place": str(place), "first": len(prelude.rstrip().splitlines()) + 2, "ended": ""}


def _ask(module, request, env):
    server = _servers.get(module)
    if server is None or server.poll() is not None:
        server = _servers[module] = _start_server(module, env)
    try:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise BrokenPipeError
    except OSError:
        stop(module)
        raise ServerError("the process that runs the pieces of code has ended; run the cell again") from None
    except BaseException:  # the reader's interrupt: what it is doing now must not answer the next question
        stop(module)
        raise
    request["jobs"] = json.loads(answer)


def _start_server(module, env):
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), "serve", module]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(
        command, **pipes, text=True, encoding="utf-8", start_new_session=True, env={**os.environ, **env}
    )


def stop(module):
    """End a server and what it runs."""
    server = _servers.pop(module, None)
    if server is None:
        return
    server.terminate()  # its handler kills what it runs
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for pipe in (server.stdin, server.stdout):
        with contextlib.suppress(OSError):
            pipe.close()


def _stop_all():
    for module in list(_servers):
        stop(module)


def _outcome(job):
    place = pathlib.Path(job["place"])
    outcome = {"warnings": [], "error": None, "seconds": None, "ended": job["ended"]}
    with contextlib.suppress(OSError, ValueError):
        outcome |= json.loads((place / "outcome.json").read_text(encoding="utf-8"))
    for name in ("printed", "stderr"):
        with open(place / name, encoding="utf-8", errors="replace") as file:
            outcome[name] = file.read(KEPT + 1)
    shutil.rmtree(place, ignore_errors=True)
    return outcome


# ---------------------------------------------------------------------------------------------------------------
# Carrying out a request: in the server, or in the caller where nothing is forked


def _carry_out(request, start):
    """Start the jobs, wait for them, end what does not end by itself. start(job) returns the id of its process."""
    jobs = request["jobs"]
    for group in [jobs] if request["together"] else [[job] for job in jobs]:
        running = {}
        try:
            for job in group:
                running[start(job)] = job
            _wait(running, request["limit"])
        finally:
            for pid in list(running):
                _kill(pid)


def _wait(running, limit):
    end, parent = time.monotonic() + limit, os.getppid()
    while running:
        for pid, job in list(running.items()):
            status = _ended(pid)
            if status is None and time.monotonic() > end:
                job["ended"], status = f"it did not end within {limit} s and was stopped", 0
            elif status is None and _written(job) > PRINTED_MOST:
                job["ended"], status = f"it printed more than {PRINTED_MOST // 2**20} MiB and was stopped", 0
            elif status is not None and status < 0:
                job["ended"] = f"its process was ended by {signal.Signals(-status).name}"
            elif status is not None and not os.path.exists(os.path.join(job["place"], "outcome.json")):
                job["ended"] = f"its process ended with status {status}"
            if status is not None:
                _kill(pid)  # and what it left running
                del running[pid]
        if os.name != "nt" and os.getppid() != parent:
            raise ServerError("nobody waits for this any more")
        time.sleep(0.004)


def _written(job):
    """Bytes that a piece has written to its stdout and stderr so far."""
    return sum(os.path.getsize(os.path.join(job["place"], name)) for name in ("printed", "stderr"))


def _start_new(job, env):
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), "run", json.dumps(job)]
    with open(f"{job['place']}/printed", "wb") as out, open(f"{job['place']}/stderr", "wb") as err:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        process = subprocess.Popen(
            command, **streams, cwd=job["place"], start_new_session=True, env={**os.environ, **env}
        )
    _new[process.pid] = process
    return process.pid


def _ended(pid):
    """The exit status of a process that has ended (negative: the signal), or None."""
    if pid in _new:
        return _new[pid].poll()
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _kill(pid):
    """End a process and all that it started."""
    process = _new.pop(pid, None)
    if os.name == "nt":
        import psutil

        with contextlib.suppress(psutil.Error):
            for one in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                one.kill()
    else:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    if process is not None:
        process.wait()
    elif os.name != "nt":
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)


# ---------------------------------------------------------------------------------------------------------------
# The process in which a piece runs


def _run(job):
    """Run one piece as the program of this process, write what it did, and end the process."""
    import traceback
    import types
    import warnings

    path = os.path.join(job["place"], "snippet.py")
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    main = types.ModuleType("__main__")  # a program from a file, so that processes it spawns can read it again
    main.__file__ = path
    sys.modules["__main__"], sys.argv, sys.path[0] = main, [path], job["place"]
    parts = "\n".join(lines[: job["first"] - 1]), "\n" * (job["first"] - 1) + "\n".join(lines[job["first"] - 1 :])
    outcome = {"error": None, "seconds": None}
    with warnings.catch_warnings(record=True) as caught:
        try:
            exec(compile(parts[0], path, "exec"), main.__dict__)
            caught.clear()  # what the prelude warned of is not the piece's
            code = compile(parts[1], path, "exec")
            began = time.perf_counter()
            try:
                exec(code, main.__dict__)
            finally:
                outcome["seconds"] = time.perf_counter() - began
            _wait_for_others()
        except BaseException as error:
            traceback.print_exc()
            if not isinstance(error, SystemExit) or error.code:
                outcome["error"] = [type(error).__name__, str(error)]
    told = [[warning.category.__name__, str(warning.message)] for warning in caught]
    outcome["warnings"] = [pair for n, pair in enumerate(told) if pair not in told[:n]]
    sys.stdout.flush()
    sys.stderr.flush()
    with open(os.path.join(job["place"], "outcome.json"), "w", encoding="utf-8") as file:
        json.dump(outcome, file)
    os._exit(0)  # no destructors: what the piece left open ends with its process group


def _wait_for_others():
    """Python waits for threads and processes at its end, unless they are daemons. (Exit handlers are not run.)"""
    import multiprocessing
    import threading

    for other in [*threading.enumerate(), *multiprocessing.active_children()]:
        if other is not threading.current_thread() and not other.daemon:
            other.join()


def _fork(job, answers, limit):
    """Start a child of this process, which has torch imported, for one piece. Returns its id."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(answers.fileno())  # if this process dies, the caller must hear it, and the child must end
        signal.alarm(int(limit) + 20)
        os.chdir(job["place"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for descriptor, name in ((1, "printed"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
        _run(job)
    finally:
        os._exit(1)


def _serve(module):
    """Import `module` (and with it torch) and answer requests, a line of JSON each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whoever prints here does not answer

    def leave(*_):
        raise SystemExit

    signal.signal(signal.SIGTERM, leave)
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first optimizer imports more than torch itself
    with contextlib.suppress(Exception):  # a torch_xla that does not fit; whoever imports it will see why
        __import__(module)
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.suppress(ServerError):
            _carry_out(request, functools.partial(_fork, answers=answers, limit=request["limit"]))
            answers.write(json.dumps(request["jobs"]) + "\n")
            answers.flush()


if __name__ == "__main__":
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path[0] = ""  # the modules beside this file are called like others
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        _run(json.loads(sys.argv[2]))

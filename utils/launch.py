"""Start several processes from a notebook, as `torchrun` in a terminal would, and leave
none behind.

`torchrun(script, …)` runs a script to its end; `start(script, …)` leaves it running and
returns a Job. A cell that begins with

    %%torchrun 4 [--result NAME] [--fails PATTERN]

is written to a file and started in four processes. Lesson 11 explains torchrun. Both
print the command that a reader would type, and what each rank printed, rank by rank
instead of mixed as a terminal shows it. Jobs run in `folder()`. `child_stderr()` is for
processes that a cell starts otherwise, by mp.spawn or a DataLoader.
"""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from utils.cells import CellEnds
from utils.course import COURSE
from utils.grammar import TORCHRUN
from utils.messages import finding, pytorch

# name of the network interface that stays on this machine
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}
# a notebook's kernel asks for colors, and Python 3.13 puts them into tracebacks
DEFAULTS |= {"PYTHON_COLORS": "0"}
# torchrun's --local-addr: on some machines their own name leads nowhere
DEFAULTS |= {"PET_LOCAL_ADDR": "127.0.0.1"}
if sys.platform in LOOPBACK:
    DEFAULTS["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
# its PyTorch has no libuv; torchrun wants one
WINDOWS = {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
if os.name == "nt":
    DEFAULTS |= WINDOWS
# what torchrun itself tells its processes
OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# What PyTorch writes for itself: 2.9 of Gloo's ranks; all of a machine without a
# network, where 127.0.0.1 has no name.
NOISE = re.compile(
    r"^(\[Gloo\] Rank |.*\[c10d\] The hostname of the client socket cannot be"
    r" retrieved).*\n",
    re.M,
)
COLORS = re.compile(r"\x1b\[[\d;]*m")
_running = []  # jobs that nobody has stopped yet


class LaunchError(CellEnds):
    """A job that failed, that did not end in time, or that did not fail as announced."""


@dataclass(frozen=True)
class Run:
    """What a job did. code: exit status of torchrun. printed, errors: rank → its stdout
    and stderr, of all attempts. agent: what torchrun wrote itself.
    """

    code: int
    printed: dict
    errors: dict
    agent: str

    def results(self):
        """The last line that each rank printed, read as JSON: a list, in the order of
        ranks.
        """
        try:
            return [
                json.loads(text.strip().splitlines()[-1])
                for _, text in sorted(self.printed.items())
            ]
        except (ValueError, IndexError):
            raise LaunchError(
                "a rank's last line is no JSON: end with print(json.dumps(…)) on every"
                " rank"
            ) from None


@functools.cache
def folder() -> pathlib.Path:
    """The folder in which jobs run and leave their files. It is removed when the
    notebook's kernel ends.
    """
    path = pathlib.Path(tempfile.mkdtemp(prefix="device-lab-"))
    atexit.register(_clean)
    return path


def _clean():
    for job in list(_running):
        job.stop()
    shutil.rmtree(folder(), ignore_errors=True)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """A torchrun that is running. command: the line that a reader would type."""

    def __init__(self, script, arguments, processes, options, env):
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=folder()))
        course, script = COURSE / "notebooks", pathlib.Path(script)
        path = next(
            (p for p in [course / script, script.absolute()] if p.exists()), None
        )
        if path is None:
            raise LaunchError(
                f"there is no script {script} here or in the folder notebooks of the"
                " course"
            )
        shown = (
            path.relative_to(course).as_posix()
            if path.is_relative_to(course)
            else path.name
        )
        standalone = ["--standalone"]
        # the same without a network store, which would need libuv
        if WINDOWS.items() <= DEFAULTS.items():
            standalone = [
                "--rdzv-backend=c10d",
                "--rdzv-conf=store_type=file",
                "--local-addr=127.0.0.1",
            ]
            standalone.append(f"--rdzv-endpoint={self.logs / 'rendezvous'}")
        given = [f"--nproc-per-node={processes}", *(options or standalone)]
        arguments = [str(argument) for argument in arguments]
        self.command = "torchrun " + shlex.join([*given, shown, *arguments])
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--log-dir={self.logs / 'ranks'}",
            "--redirects=3",
        ]
        command += [*given, str(path), *arguments]
        kept = {name: value for name, value in os.environ.items() if name not in OWN}
        every = {**DEFAULTS, **kept, **(env or {}), "DEVICE_LAB_JOB": self.logs.name}
        with open(self.logs / "agent.log", "w") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.agent = psutil.Popen(
                command, cwd=folder(), env=every, start_new_session=True, **streams
            )
        _running.append(self)

    def processes(self):
        """Its processes that are alive, torchrun first (psutil.Process), also those
        that lost their parent.
        """
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("DEVICE_LAB_JOB") == self.logs.name
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue  # it has just ended, or belongs to somebody else
        return sorted(found, key=lambda process: process.pid != self.agent.pid)

    def worker(self, rank, timeout=30):
        """The process (psutil.Process) that has this rank now. LaunchError if there is
        none within `timeout` s.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.agent.poll() is None:
            for process in self.processes():
                try:
                    if process.environ().get("RANK") == str(rank):
                        return process
                except psutil.Error:
                    continue  # it has just ended
            time.sleep(0.05)
        raise LaunchError(f"no process has rank {rank}")

    def finish(self, timeout=200):
        """Wait until the job has ended and return its Run. An interrupt, or `timeout`
        seconds, end it.
        """
        try:
            self.agent.wait(timeout)
        except psutil.TimeoutExpired:
            raise LaunchError(
                f"the job did not end within {timeout} s and was stopped; run the cell"
                " again"
            ) from None
        finally:
            self.stop()
        return self.so_far()

    def stop(self):
        """End all its processes: torchrun is asked and passes it on; what is left after
        five seconds is killed.
        """
        if self in _running:
            _running.remove(self)
        if self.agent.poll() is None:
            self.agent.terminate()
        psutil.wait_procs(self.processes(), timeout=5)
        for process in (alive := self.processes()):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended in this moment
                process.kill()
        psutil.wait_procs([self.agent, *alive], timeout=5)

    def so_far(self):
        """The Run so far."""
        printed, errors = {}, {}
        for path in sorted(self.logs.glob("ranks/*/attempt_*/*/std*.log")):
            texts, rank = (
                printed if path.stem == "stdout" else errors,
                int(path.parent.name),
            )
            text = path.read_text(encoding="utf-8", errors="replace")
            texts[rank] = texts.get(rank, "") + NOISE.sub("", COLORS.sub("", text))
        agent = (self.logs / "agent.log").read_text(encoding="utf-8", errors="replace")
        return Run(self.agent.poll(), printed, errors, agent)


def start(
    script: str | os.PathLike,
    *arguments: object,
    processes: int = 2,
    options: Sequence[str] | None = None,
    env: dict[str, str] | None = None,
) -> Job:
    """Start a script with torchrun and leave it running; returns a Job. It ends with
    the kernel at the latest.

    script: a path, or a name below notebooks/ such as "scripts/train_ddp.py".
    arguments: of the script. processes: on this machine. options: of torchrun instead
    of --standalone. env: variables of its processes.
    """
    return Job(script, arguments, processes, options, env)


def torchrun(
    script: str | os.PathLike,
    *arguments: object,
    processes: int = 2,
    options: Sequence[str] | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 200,
    fails: str | None = None,
    quiet: bool = False,
) -> Run:
    """Run a script with torchrun, show what each rank printed, and return the Run.

    fails: a regular expression; then the job must fail, with a message that matches.
    Otherwise LaunchError where it fails, or where it takes more than `timeout` seconds.
    quiet: show only the command. The rest is as for `start`.
    """
    job = start(script, *arguments, processes=processes, options=options, env=env)
    print("$", job.command)
    run = job.finish(timeout)
    if not quiet:
        show(run)
    _judge(run, fails)
    return run


def show(run: Run, hide_last: bool = False) -> None:
    """Print what the ranks of a Run printed, rank by rank, and the messages of those
    that failed.

    hide_last: leave out the last line of each (a result in JSON).
    """
    for rank in sorted({*run.printed, *run.errors}):
        lines = run.printed.get(rank, "").rstrip().splitlines()
        lines = lines[:-1] if hide_last else lines
        if run.code:
            lines += _message(run.errors.get(rank, ""))
        elif run.errors.get(rank, "").strip():
            print(f"rank {rank}: {run.errors[rank].strip()}", file=sys.stderr)
        for line in lines:
            print(f"rank {rank} │ {line}")


def _message(text, most=4):
    """The error at the end of what a process wrote to stderr, without its traceback."""
    lines = [
        re.sub(r"^\[rank\d+\]:\s?", "", line) for line in text.strip().splitlines()
    ]
    starts = [
        n
        for n, line in enumerate(lines)
        if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)
    ]
    return [line for line in lines[starts[-1] if starts else -most :] if line.strip()][
        :most
    ]


@contextlib.contextmanager
def child_stderr() -> Iterator[list[str]]:
    """Catch what processes that the block starts write to standard error (file
    descriptor 2).

    Gives a list. After the block it holds the last error, line by line, without its
    traceback and color codes; or one line that says that nothing was caught.
    """
    lines = []
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            text = COLORS.sub("", file.read().decode(errors="replace"))
            lines += _message(text) or ["(it wrote them elsewhere)"]


def last_words(run: Run, most: int = 300) -> str:
    """What the ranks of a Run that failed said last, in one line; what torchrun said,
    if they died without a word.
    """
    said = [" ".join(_message(run.errors[rank])) for rank in sorted(run.errors)]
    said = [words for words in dict.fromkeys(said) if words]  # each once
    died = re.findall(r"failed (\(exitcode: .*?\) local_rank: \d+)", run.agent)
    words = " | ".join(said) or " ".join(died[:1] or _message(run.agent))
    return words if len(words) <= most else words[:most] + " …"


def _judge(run, fails):
    said = "\n".join([*run.errors.values(), run.agent])
    if fails is None and run.code:
        words = (
            f"the job ended with status {run.code}, its last words: {last_words(run)};"
            " run the cell again."
        )
        raise LaunchError(words)
    if fails is not None and not run.code:
        finding(
            f"announced: a failure with {fails!r}; on {pytorch()} the job ends well",
            LaunchError,
        )
    elif fails is not None and not re.search(fails, said):
        finding(
            f"announced: a failure with {fails!r}; on {pytorch()} it says:"
            f" {last_words(run)}",
            LaunchError,
        )


# --------------------------------------------------------------------------------------
# The cell magic


def torchrun_cell(line, cell):
    """%%torchrun N [--result NAME] [--fails PATTERN]: run the cell as a script in N
    processes.

    --result: NAME becomes a list of what each rank printed last, read as JSON. --fails:
    the job must fail, with a message that matches this regular expression (in quotation
    marks).
    """
    found = TORCHRUN.fullmatch(line.strip())
    if not found:
        raise LaunchError(
            "write %%torchrun N, %%torchrun N --result NAME or %%torchrun N --fails"
            " PATTERN"
        )
    path = folder() / "this_cell.py"
    path.write_text(cell, encoding="utf-8")
    job = start(path, processes=int(found["processes"]))
    print("$", job.command)
    run = job.finish()
    show(run, hide_last=found["result"] is not None and not run.code)
    _judge(run, shlex.split(found["fails"])[0] if found["fails"] else None)
    if found["result"]:
        sys.modules["IPython"].get_ipython().user_ns[found["result"]] = run.results()


if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
    shell.register_magic_function(torchrun_cell, "cell", "torchrun")

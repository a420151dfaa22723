"""Jobs of several processes: torchrun started, watched, ended, and what its ranks have
written. launch.py is what lessons call.
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
from dataclasses import dataclass

import psutil

from device_lab import LabError

# name of the network interface that stays on this machine
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
    # a notebook's kernel asks for colors, and Python 3.13 puts them into tracebacks
    "PYTHON_COLORS": "0",
    # torchrun's --local-addr: on some machines their own name leads nowhere
    "PET_LOCAL_ADDR": "127.0.0.1",
    # loaded with torch, TorchTPU stops a process that torchrun alone has started
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
if sys.platform in LOOPBACK:
    DEFAULTS["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
# its PyTorch has no libuv; torchrun wants one
WINDOWS = {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
if os.name == "nt":
    DEFAULTS |= WINDOWS
# what torchrun itself tells its processes
OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# What PyTorch writes for itself, whole lines: 2.9 of Gloo's ranks; all of a machine
# without a network, where 127.0.0.1 has no name.
NOISE = re.compile(
    r"^(\[Gloo\] Rank |.*\[c10d\] The hostname of the client socket cannot be"
    r" retrieved).*\n",
    re.M,
)
COLORS = re.compile(r"\x1b\[[\d;]*m")  # what a terminal takes for a color
# where a script is looked for by its name: the lessons beside this package
NOTEBOOKS = pathlib.Path(__file__).resolve().parent.parent / "notebooks"
_running = []  # jobs that nobody has stopped yet


class LaunchError(LabError):
    """A job that failed, did not end in time, or did not fail as announced."""


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

    def __init__(self, script, arguments, processes, options):
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=folder()))
        path, shown = find(script)
        given = [f"--nproc-per-node={processes}", *(options or self._standalone())]
        arguments = [str(argument) for argument in arguments]
        self.command = "torchrun " + shlex.join([*given, shown, *arguments])
        command = [sys.executable, "-m", "torch.distributed.run"]
        command += [f"--log-dir={self.logs / 'ranks'}", "--redirects=3"]
        command += [*given, str(path), *arguments]
        inherited = {
            name: value for name, value in os.environ.items() if name not in OWN
        }
        with open(self.logs / "agent.log", "w") as log:
            self.agent = psutil.Popen(
                command,
                cwd=folder(),
                env={**DEFAULTS, **inherited, "DEVICE_LAB_JOB": self.logs.name},
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        _running.append(self)

    def _standalone(self):
        if not WINDOWS.items() <= DEFAULTS.items():
            return ["--standalone"]
        # the same without a network store, which would need libuv
        return [
            "--rdzv-backend=c10d",
            "--rdzv-conf=store_type=file",
            "--local-addr=127.0.0.1",
            f"--rdzv-endpoint={self.logs / 'rendezvous'}",
        ]

    def processes(self):
        """Its processes that are alive, torchrun first (psutil.Process), also those
        that lost their parent.
        """
        living = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("DEVICE_LAB_JOB") == self.logs.name
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
            except (psutil.Error, OSError):
                continue  # it has just ended, or belongs to somebody else
        return sorted(living, key=lambda process: process.pid != self.agent.pid)

    def worker(self, rank):
        """The process (psutil.Process) that has this rank now. LaunchError if there is
        none within 30 s.
        """
        end = time.monotonic() + 30
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
            texts = printed if path.stem == "stdout" else errors
            rank = int(path.parent.name)
            text = path.read_text(encoding="utf-8", errors="replace")
            texts[rank] = texts.get(rank, "") + NOISE.sub("", COLORS.sub("", text))
        agent = (self.logs / "agent.log").read_text(encoding="utf-8", errors="replace")
        return Run(self.agent.poll(), printed, errors, agent)


def find(script: str | os.PathLike) -> tuple[pathlib.Path, str]:
    """The path of a script, and how a reader would type it. LaunchError if there is
    none.
    """
    script = pathlib.Path(script)
    for path in (NOTEBOOKS / script, script.absolute()):
        if path.exists():
            inside = path.is_relative_to(NOTEBOOKS)
            return path, path.relative_to(NOTEBOOKS).as_posix() if inside else path.name
    raise LaunchError(
        f"there is no script {script} here or in the folder notebooks of the course"
    )

"""The command `device-lab train.py`: starts the script as Python would, and watched."""

import argparse
import json
import os
import shutil
import subprocess
import sys

import device_lab

ENV = "DEVICE_LAB_WATCH"
USAGE = """device-lab [options] train.py [its arguments]
       device-lab [options] -m package.module [its arguments]
       device-lab [options] torchrun --nproc-per-node 2 train.py [its arguments]"""
ABOUT = """Runs a PyTorch script that needs no change, watches some of its steps,
and reports: what to change first, who sets the pace, which lines wait for the
device, what a step holds in memory."""
INJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")


def main(argv: list[str] | None = None) -> int:
    """Exit status of the script; 2 for wrong arguments."""
    parser = _parser()
    options = parser.parse_args(argv)
    command, script = _command(parser, options)
    first = os.getpid() if os.name == "posix" else None  # exec keeps it
    watched = vars(options) | {"first": first, "script": script}
    environment = {**os.environ, ENV: json.dumps(watched)}
    paths = INJECT, environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if first:
        sys.stdout.flush()
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


def _parser():
    parser = argparse.ArgumentParser(
        "device-lab", usage=USAGE, description=ABOUT, allow_abbrev=False
    )
    add, rest = parser.add_argument, argparse.REMAINDER
    add("--version", action="version", version=f"device-lab {device_lab.__version__}")
    text = "watch at least N steps, 12 or more (20), and short ones for a second"
    add("--steps", type=_steps, default=20, metavar="N", help=text)
    text = "what the script does after them: go on to its end, or stop"
    add("--then", choices=["go", "stop"], default="go", help=text)
    add("--json", type=_file, metavar="FILE", help="write the report as JSON")
    add("--html", type=_file, metavar="FILE", help="write it as a page of HTML")
    add("--quiet", action="store_true", help="print no report on stderr")
    add("-m", dest="module", nargs=rest, help="run a module instead")
    add("command", nargs=rest, help=argparse.SUPPRESS)
    return parser


def _steps(text):
    if not text.isdigit() or int(text) < 12:
        raise argparse.ArgumentTypeError("a number of steps, at least 12")
    return int(text)


def _file(text):
    path = os.path.abspath(text)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder) or os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"no file can be written at {path}")
    return path


def _command(parser, options):
    """(what is started, whether that is a script of Python's)"""
    if options.module is not None:
        if not options.module:
            parser.error("-m needs the name of a module")
        return [sys.executable, "-m", *options.module], True
    if not options.command:
        parser.error("which script? device-lab train.py")
    first, *rest = options.command
    if first.endswith(".py") or os.path.isdir(first):
        if not os.path.exists(first):
            parser.error(f"no such file: {first}")
        return [sys.executable, first, *rest], True
    program = shutil.which(first)
    if not program:
        parser.error(f"no such file or command: {first}")
    return [program, *rest], False


def add_magic(shell):
    def report(line, cell):
        """%%device_lab [--steps N]: runs the cell, and reports on its loop."""
        from .watch import Watch

        options = vars(_parser().parse_args(line.split()))
        watch = Watch(options | {"first": os.getpid(), "script": True})
        watch.install()
        try:
            shell.run_cell(cell)
        finally:
            watch.at_exit()

    shell.register_magic_function(report, "cell", "device_lab")

"""Run a command as on a machine with CUDA GPUs.

python -m emulated_cuda.run [options] COMMAND …

The command sees the PyTorch of this Python (a CUDA build), above emulated GPUs; what
that takes is built the first time. EMULATOR_LOG names a file for all that the emulator
could not do; it stays empty where all is well.
"""

import argparse
import os
import pathlib
import sys

from . import build

GPUS = {"T4": "Tesla T4,7.5", "H200": "NVIDIA H200,9.0"}


def environment(
    gpu: str = "T4",
    gpus: int = 1,
    gib: float | None = None,
    log: str | os.PathLike | None = None,
    gflop: float | None = None,
    mib: float | None = None,
) -> dict[str, str]:
    """The variables that make a process see emulated GPUs, which are built if they are
    not there yet.

    gpu: a name of GPUS. gpus: how many, 1 or 2. gib: the memory of each in GiB; None is
    the real card's. gflop: the largest product that is computed, in GFLOP, mib: the
    most that an operator may read and write, in MiB (None: no limit); what is larger
    leaves its output as it was. log: a file; None: what EMULATOR_LOG names here, or
    log.txt beside the libraries.

        env = {**os.environ, **environment(gpus=2)}
        subprocess.run([sys.executable, "script.py"], env=env)
    """
    folder, here = build.build(), build.HERE
    log = log or os.environ.get("EMULATOR_LOG") or folder / "log.txt"
    programs = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{here / 'bin'}"
    variables = {
        # By its name: a path with a space would be two entries of LD_PRELOAD.
        "LD_PRELOAD": "libemulator.so",
        "LD_LIBRARY_PATH": before(folder, "LD_LIBRARY_PATH"),
        "PATH": before(programs, "PATH"),
        "PYTHONPATH": before(here / "site", "PYTHONPATH"),
        "EMULATOR_FOLDER": str(folder),
        "EMULATOR_GPU": GPUS[gpu],
        "EMULATOR_GPUS": str(gpus),
        "EMULATOR_LOG": str(log),
        # no Triton kernels in the place of CUDA's (bmm's, since 2.13)
        "TORCH_DISABLE_NATIVE_JIT": "1",
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    limits = {"GPU_GIB": gib, "MAX_GFLOP": gflop, "MAX_MIB": mib}
    for name, limit in limits.items():
        if limit:
            variables[f"EMULATOR_{name}"] = str(limit)
    return variables


def before(path: str | os.PathLike, name: str) -> str:
    """`path`, and then what the variable `name` holds."""
    return os.pathsep.join(filter(None, [str(path), os.environ.get(name)]))


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The options, and the command with its own."""
    parser = argparse.ArgumentParser(
        prog="python -m emulated_cuda.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--gpu", choices=GPUS, default="T4", help="the card (default: T4)")
    add("--gpus", type=int, choices=(1, 2), default=1, help="how many (default: 1)")
    real = "memory of each, in GiB (default: the real card's)"
    add("--gib", type=float, help=real)
    add("--gflop", type=float, help="leave larger products uncomputed")
    add("--mib", type=float, help="leave operators uncomputed that move more")
    add("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    if options.command[:1] == ["--"]:
        options.command.pop(0)
    if not options.command:
        parser.error("no command")
    return options


def main():
    options = arguments()
    command = vars(options).pop("command")
    variables = environment(**vars(options))
    if "EMULATOR_LOG" not in os.environ:  # the log is this run's alone
        pathlib.Path(variables["EMULATOR_LOG"]).unlink(missing_ok=True)
    os.environ |= variables
    os.environ.pop("PJRT_DEVICE", None)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()

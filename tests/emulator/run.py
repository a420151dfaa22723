"""Run a command as on a machine with CUDA GPUs: `python -m tests.emulator.run [options] COMMAND …`.

The command sees the PyTorch of this Python (a CUDA build), above emulated GPUs.
EMULATOR_LOG names a file for all that the emulator could not do; it stays empty where
all is well.
"""

import argparse
import os
import pathlib
import sys

from tests.emulator import build

GPUS = {"T4": "Tesla T4,7.5", "H200": "NVIDIA H200,9.0"}


def environment(gpu, gpus, gib, log, gflop=None, mib=None):
    """The variables that make a process see emulated GPUs.

    gpu: a name of GPUS. gpus: how many, 1 or 2. gib: the memory of each in GiB; None is
    the real card's. gflop: the largest product that is computed, in GFLOP, mib: the
    most that an operator may read and write, in MiB (None: no limit); what is larger
    leaves its output as it was. log: a file.
    """
    folder, here = build.folder(), build.HERE
    found = {
        # By its name: a path with a space would be two entries of LD_PRELOAD.
        "LD_PRELOAD": "libemulator.so",
        "LD_LIBRARY_PATH": os.pathsep.join(
            filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")])
        ),
        "PATH": os.pathsep.join(
            [
                str(pathlib.Path(sys.executable).parent),
                str(here / "bin"),
                os.environ["PATH"],
            ]
        ),
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(here / "site"), os.environ.get("PYTHONPATH")])
        ),
        "EMULATOR_FOLDER": str(folder),
        "EMULATOR_GPU": GPUS[gpu],
        "EMULATOR_GPUS": str(gpus),
        "EMULATOR_LOG": str(log),
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    found |= {"EMULATOR_GPU_GIB": str(gib)} if gib else {}
    found |= {"EMULATOR_MAX_GFLOP": str(gflop)} if gflop else {}
    return found | ({"EMULATOR_MAX_MIB": str(mib)} if mib else {})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", choices=GPUS, default="T4")
    parser.add_argument(
        "--gpus", type=int, choices=(1, 2), default=1, help="how many (default: 1)"
    )
    parser.add_argument(
        "--gib", type=float, help="memory of each, in GiB (default: the real card's)"
    )
    parser.add_argument("--gflop", type=float, help="leave larger products uncomputed")
    parser.add_argument(
        "--mib", type=float, help="leave operators uncomputed that move more"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("no command")
    if not (build.folder() / "emulator_operators.so").exists():
        sys.exit(
            "The emulated CUDA device is not built yet: python -m tests.emulator.build"
        )
    log = os.environ.get("EMULATOR_LOG")
    if not log:  # this run's alone
        log = build.folder() / "log.txt"
        log.unlink(missing_ok=True)
    os.environ.update(
        environment(args.gpu, args.gpus, args.gib, log, args.gflop, args.mib)
    )
    os.environ.pop("PJRT_DEVICE", None)
    os.execvp(args.command[0], args.command)


if __name__ == "__main__":
    main()

"""Run a command as on a machine with CUDA GPUs.

python -m emulator.run [options] COMMAND …

The command sees the PyTorch of this Python (a CUDA build), above emulated GPUs.
EMULATOR_LOG names a file for all that the emulator could not do; it stays empty where
all is well.
"""

import argparse
import os
import pathlib
import sys

from emulator import build

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
        "LD_LIBRARY_PATH": before(folder, "LD_LIBRARY_PATH"),
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}"
        + before(here / "bin", "PATH"),
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
            found[f"EMULATOR_{name}"] = str(limit)
    return found


def before(path, name):
    """`path`, and then what the variable `name` holds."""
    return os.pathsep.join(filter(None, [str(path), os.environ.get(name)]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--gpu", choices=GPUS, default="T4")
    add("--gpus", type=int, choices=(1, 2), default=1, help="how many (default: 1)")
    real = "memory of each, in GiB (default: the real card's)"
    add("--gib", type=float, help=real)
    add("--gflop", type=float, help="leave larger products uncomputed")
    add("--mib", type=float, help="leave operators uncomputed that move more")
    add("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("no command")
    if not (build.folder() / "emulator_operators.so").exists():
        sys.exit("The emulated device is not built yet: python -m emulator.build")
    log = os.environ.get("EMULATOR_LOG")
    if not log:  # this run's alone
        log = build.folder() / "log.txt"
        log.unlink(missing_ok=True)
    limits = {"gflop": args.gflop, "mib": args.mib}
    os.environ |= environment(args.gpu, args.gpus, args.gib, log, **limits)
    os.environ.pop("PJRT_DEVICE", None)
    os.execvp(args.command[0], args.command)


if __name__ == "__main__":
    main()

"""Run the lessons on the emulated CUDA device, strictly.

    python -m tools.lessons.emulated [--once | --record] [NUMBER…]

Each lesson runs twice in one kernel on a T4 (two of them where a cell asks for two),
and once on one H200 if anything in it asks which GPU it has. Every code cell has to
end, every claim but those about time has to hold, and no kernel may stay uncomputed.
Three run at a time: no time is measured. --once: each runs once, on the T4. --record:
instead of that, store what the timeless cells give on the T4 in notebooks/recorded.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from course import grammar
from emulated_cuda import build
from emulated_cuda.run import environment
from tools.lessons.plugin import code_of

# Memory of emulated GPUs counts as the kernel's.
COMMAND = ["-m", "tools.lessons.plugin", "--color=no"]
COMMAND += ["--kernel-mib=8192", "--family-mib=65536"]
RECORD = ["-m", "tools.record"]
NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
# The most (GFLOP, MiB) of an operator that is computed: what is larger takes too long
# on a CPU, and leaves no values.
USUAL, LIMITS = (
    (1, 64),
    {"05": (10, 600), "06": (1, 600), "07": (20, 600), "10": (1, 16), "11": (0.3, 8)},
)
AT_ONCE = 3  # on two cores: part of the time a lesson waits for the emulated GPU
# The longest first, so that the last ones end together. 13 and 14 have no cell for
# CUDA.
ORDER = "15 11 17 10 06 12 05 04 02 03 09 16 07 08 01 00".split()


# What asks which GPU there is: its name, memory, compute capability, number formats.
ASKS_WHICH = re.compile(
    r"capability|get_device_(?:name|properties)|mem_get_info|memory_gib|nvidia_smi"
    r"|look_up|tf32",
    re.I,
)


def lesson(number):
    """The path of lesson "05"."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


def headers(number):
    """What the lesson's conditional cells require."""
    return list(filter(None, map(grammar.header, code_of(lesson(number)))))


def words(number):
    """What its cells require: 11 asks for "cuda:2", 12 for no GPU."""
    return {header.word for header in headers(number)}


def on_h200(number):
    """Whether a run on another GPU than the T4 could show anything new."""
    asks = ASKS_WHICH.search("\n".join(code_of(lesson(number))))
    return bool(asks and {"cuda", "accelerator", "triton"} & words(number))


def variables(number, gpu, gpus, log):
    """The environment in which a lesson runs: with emulated GPUs, strict, and without a
    judgment about time.
    """
    gflop, mib = LIMITS.get(number, USUAL)
    found = {**os.environ, **environment(gpu, gpus, None, log, gflop, mib)}
    found |= {
        "LAB_STRICT": "1",
        "LAB_UNTIMED": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    found.pop("PJRT_DEVICE", None)
    return found


def run_lesson(number, gpu, command):
    """One lesson on one kind of GPU: (line that says how it went, all that was printed,
    whether all is well).
    """
    asks_for_two = "cuda:2" in words(number) and gpu == "T4"
    gpus = 2 if command == RECORD or asks_for_two else 1
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.txt"
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command, str(lesson(number))],
            env=variables(number, gpu, gpus, log),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        seconds = time.perf_counter() - begin
        logged = log.read_text().splitlines() if log.exists() else []
        leaks = [line for line in logged if "LEAK" in line]
    said = re.findall(rf"^{number}_\S+ +(.*)$", done.stdout, re.M)
    well = done.returncode == 0 and not leaks
    line = (
        f"{number} on {gpus} × {gpu:4} "
        f" {said[-1] if said else done.stdout.strip().splitlines()[-1]}"
    )
    return (
        f"{line}  ({seconds:.0f} s in all){'' if well else '  FAILED'}",
        "\n".join([done.stdout, *leaks]),
        well,
    )


def parser():
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "numbers",
        nargs="*",
        metavar="NUMBER",
        help="lessons, such as 05 (default: all with CUDA cells)",
    )
    found.add_argument("--once", action="store_true", help="each once, on a T4")
    found.add_argument(
        "--record", action="store_true", help="store what the timeless cells give"
    )
    return found


def jobs(numbers, once=False, record=False):
    """The arguments of run_lesson for each run of these lessons, the longest first."""
    numbers = numbers or ORDER
    if record:
        timeless = [n for n in numbers if any(head.timeless for head in headers(n))]
        return [(n, "T4", RECORD) for n in timeless]
    if once:
        return [(n, "T4", COMMAND) for n in numbers]
    found = [(n, "T4", [*COMMAND, "--twice"]) for n in numbers]
    found += [(n, "H200", COMMAND) for n in numbers if on_h200(n)]
    return sorted(found, key=lambda job: (ORDER.index(job[0]), job[1] != "T4"))


def total(lines):
    """What the lines of all runs say together."""
    counted = {  # in the lines of the plugin: how many of what
        "code cells": r"(\d+) of \d+ code cells",
        "live": r"\((\d+) live",
        "claims held": r"(\d+) claims held",
        "claims about time not judged": r"(\d+) not judged",
    }
    said = "".join(lines)
    return ", ".join(
        f"{sum(map(int, re.findall(pattern, said))):,} {what}"
        for what, pattern in counted.items()
    )


def main(arguments=None):
    options = parser().parse_args(arguments)
    build.build()  # once, before three runs need it at the same time
    begin, failed, lines = time.perf_counter(), 0, []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(run_lesson, *job) for job in jobs(**vars(options))]
        for future in concurrent.futures.as_completed(runs):
            line, printed, well = future.result()
            lines.append(line)
            print(line, flush=True)
            if not well:
                failed += 1
                print(printed, flush=True)
    minutes = (time.perf_counter() - begin) / 60
    print(f"{total(lines)}; {failed} runs failed; {minutes:.1f} min")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

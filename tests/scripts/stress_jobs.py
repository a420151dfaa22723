"""Do the jobs of the lessons end cleanly beside other work? Not part of `make test`: it
takes an hour or more.

  python -m tests.scripts.stress_jobs
  python -m tests.scripts.stress_jobs --runs 5 12 --only fsdp-job

The first runs each job of lessons 11, 12 and 15 thirty times beside 4 busy processes.

A lesson runs in a kernel from its first cell to its last, as a reader runs it. A job is
a %%torchrun cell, a cell that calls launch.torchrun, or the cells from a launch.start
to the one that waits for its end. Each runs `--runs` times in a row, with LAB_STRICT=1:
an end with a status, or without the announced failure, is an error. One line tells how
often a job failed, and its last words. The exit status is 1 if any job failed, or if
another cell of the lesson did.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time

import nbformat
from nbclient.exceptions import CellExecutionError

from course.messages import NOT_LIVE
from tests.conftest import ROOT
from tools.lessons import run

JOB = re.compile(r"^%%torchrun |\blaunch\.torchrun\(", re.MULTILINE)
START, END = re.compile(r"\blaunch\.start\("), re.compile(r"\.finish\(")


def jobs_of(cells):
    """The cells as lists: [cell] for an ordinary cell, and one list with all cells of a
    job. (is a job, cells)
    """
    found, running = [], []
    for cell in cells:
        running.append(cell)
        started = any(START.search(one.source) for one in running)
        if started and not END.search(cell.source):
            continue
        found.append((started or bool(JOB.search(cell.source)), running))
        running = []
    return found + [(False, [cell]) for cell in running]


def run_cells(client, nb, cells):
    """Execute cells. None, or the last words of the first that fails."""
    for cell in cells:
        try:
            client.execute_cell(cell, nb.cells.index(cell))
        except CellExecutionError as error:
            return f"{cell.id}: {error.ename}: {' '.join(error.evalue.split())}"
    return None


def not_here(cells):
    """Whether a conditional cell has not run on this machine."""
    outputs = [output for cell in cells for output in cell.outputs]
    states = [
        output.get("metadata", {}).get("device_lab", {}).get("state")
        for output in outputs
    ]
    return any(state in NOT_LIVE for state in states)


def stress(path, runs, only):
    """Run a lesson, its jobs `runs` times each. Whether all went well."""
    nb, well = nbformat.read(path, as_version=4), True
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    with run.kernel(nb, path.parent) as client:
        for is_job, cells in jobs_of(code):
            begin = time.perf_counter()
            words = [run_cells(client, nb, cells)]
            chosen = is_job and not not_here(cells)
            if chosen and (only is None or cells[0].id in only):
                words += [run_cells(client, nb, cells) for _ in range(runs - 1)]
                failed = [said for said in words if said]
                seconds = (time.perf_counter() - begin) / runs
                name = f"{path.stem[:2]} {' '.join(cell.id for cell in cells)}"
                print(f"{name}: {runs} runs of {seconds:.0f} s, {len(failed)} failed")
                print(*set(failed), sep="\n    ")
                well = well and not failed
            # a claim about time may miss beside other work
            elif words[0] and "ClaimError" not in words[0]:
                print(f"{path.stem[:2]}, no job:", words[0])
                well = False
            sys.stdout.flush()
    return well


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    numbers = ["11", "12", "15"]
    add("lessons", nargs="*", default=numbers, help="numbers (default: 11 12 15)")
    add("--runs", type=int, default=30, help="of each job (default: 30)")
    add("--busy", type=int, default=4, help="busy processes beside it (default: 4)")
    only = "the job that begins with CELL; repeatable"
    add("--only", action="append", metavar="CELL", help=only)
    args = parser.parse_args()
    os.environ["LAB_STRICT"] = "1"
    paths = [
        path
        for number in args.lessons
        for path in sorted((ROOT / "notebooks").glob(f"{number}_*.ipynb"))
    ]
    # so that the busy processes end, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    endless = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(endless) for _ in range(args.busy)]
    try:
        results = [stress(path, args.runs, args.only) for path in paths]
    finally:
        for process in busy:
            process.kill()
    sys.exit(not all(results))


if __name__ == "__main__":
    main()

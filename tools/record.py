"""Run lessons strictly and store what this machine's devices measured, for readers who
have no such device.

python tools/record.py [--out DIR] [NOTEBOOK…]
    below DIR, by default the course's folder (`make record`)
python tools/record.py --zip FILE [--seconds N] [--anyway] [NOTEBOOK…]
    a visit to a machine with a GPU or a TPU

A conditional cell is recorded when it has a name (result or name), its word names
hardware or a compiler, and it ran live; on the emulated CUDA device, when it is
timeless. All cells of a lesson run, also after one that fails, so that one run shows
all that has to be mended. What is stored: notebooks/recorded/<machine>/ for lessons
without a failure (with what their other cells claimed of this machine),
build/record/incomplete/<machine>/ for the others, and in build/record/ of each the
lesson as it ran and a report: seconds, failures with tracebacks, each claim with its
figure, limit and share, whether a timeless cell gave what it gave on the emulated
device, and which cells stay unrecorded.

A visit needs PyTorch and a driver for the device, no Jupyter server, no network, not
the versions of requirements.txt. It first says what PyTorch sees, and stops where that
is neither a GPU nor a TPU (--anyway: go on). Without NOTEBOOK all lessons run that have
something to record here, those first that have most. --seconds: the visit ends after so
long; what is under way is ended, no cell may take more than a quarter of it, and the
lessons that are left are named. The archive grows with each lesson, and a second visit
adds to it. Unpack it at home in the course's folder: python -m zipfile -e FILE .

Exit status 1 when anything failed, 2 when nothing could begin.
"""

import argparse
import datetime
import importlib.util
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# packages that somebody brought: docs/contributing/recording.md
SITE = ROOT / "build" / "site"
PACKAGES = [str(folder) for folder in (ROOT / "packages").iterdir()]
sys.path[:0] = [str(ROOT), *PACKAGES, str(SITE)]

NEEDED = """torch numpy matplotlib psutil accelerate huggingface_hub safetensors yaml
tqdm sklearn nbformat nbclient ipykernel ipywidgets""".split()
if lacking := [name for name in NEEDED if not importlib.util.find_spec(name)]:
    names = ", ".join(lacking)
    print(
        f"this Python lacks {names}: see docs/contributing/recording.md",
        file=sys.stderr,
    )
    sys.exit(2)

import nbformat  # noqa: E402
from nbclient import exceptions as failed  # noqa: E402

from course import grammar  # noqa: E402
from course.provenance import pretending  # noqa: E402
from device_lab import LabError  # noqa: E402
from tools.lessons import differences, parts, recorder, run  # noqa: E402
from utils.devices import emulated  # noqa: E402
from utils.jobs import COLORS  # noqa: E402

MOST = 600  # seconds that a cell may take
# a machine with none of them has nothing new to tell
DEVICES = ("cuda", "mps", "accelerator", "tpu")
PATHS = [*PACKAGES, str(SITE), os.environ.get("PYTHONPATH")]
PATHS = os.pathsep.join(filter(None, PATHS))
LOOK = """import json, sys
from course import cells, doctor
doctor()
print(json.dumps([word for word in sys.argv[1:] if cells.missing(word) is None]))
"""


def look(words):
    """(what `doctor` says, those of the words that this machine has).

    In a process of its own: what it opens, a CUDA context or a TPU that only one
    process may hold, it gives back.
    """
    command = [sys.executable, "-c", LOOK, *words]
    env = {**os.environ, "PYTHONPATH": PATHS}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        return (done.stdout + done.stderr).strip(), set()
    *said, here = done.stdout.strip().splitlines()
    return "\n".join(said), set(json.loads(here))


# --------------------------------------------------------------------------------------
# One lesson


def run_lesson(nb, folder, end=math.inf, most=MOST):
    """Run the cells of the lesson `nb`. Returns (recorded cells by name, as
    recorder.store takes them; failures).

    end: when the time is over, by time.perf_counter(). most: seconds that a cell may
    take. failures: (cell id, message with traceback) of each cell that failed, or
    ("kernel", …) where the kernel itself did not do its part.
    """
    stored, failures = {}, []
    day = datetime.date.today().isoformat()
    env = {"LAB_STRICT": "1", "PYTHONPATH": PATHS, "LAB_RECORDED": day}
    try:
        with run.kernel(nb, folder, env=env) as client:
            for n, cell in enumerate(nb.cells):
                if cell.cell_type != "code":
                    continue
                begin = time.perf_counter()
                if begin >= end:
                    failures.append((cell.id, "not begun: the time was over"))
                    break
                client.timeout = math.ceil(min(most, end - begin))
                try:
                    stored |= run_cell(client, cell, n)
                except (failed.CellExecutionError, LabError) as error:
                    failures.append((cell.id, str(error)))
                except failed.CellTimeoutError as error:
                    late = f"it did not end within {client.timeout} seconds"
                    failures.append((cell.id, f"{error}\n{late}"))
                    break
                except failed.DeadKernelError as error:
                    failures.append((cell.id, str(error)))
                    break
    # such as a kernel that does not start in time; what is stored is stored
    except Exception:
        failures.append(("kernel", traceback.format_exc()))
    return stored, [(cell, COLORS.sub("", message)) for cell, message in failures]


def run_cell(client, cell, n):
    """Run a cell, which has the number n. Returns {name: its entry} if it is to be
    recorded, else {}.
    """
    begin = time.perf_counter()
    client.execute_cell(cell, n)
    seconds = time.perf_counter() - begin
    header = grammar.header(cell.source)
    if header is None or not header.recordable or not recorder.ran_live(cell):
        return {}
    if emulated() and not header.timeless:
        return {}
    return {header.name: recorder.entry(client, cell, n, header, seconds)}


def record(path, folder, **time_left):
    """Run one lesson, and store below `folder` what it measured and a report. Returns
    whether all went well.

    time_left: `end` and `most` of run_lesson.
    """
    reports, begin = folder / "build" / "record", time.perf_counter()
    reports.mkdir(parents=True, exist_ok=True)
    try:
        nb = nbformat.read(path, as_version=4)
        parts.clear_outputs(nb)  # those of another run
        stored, failures = run_lesson(nb, path.parent, **time_left)
        seconds = time.perf_counter() - begin
        nbformat.write(nb, reports / f"{path.stem}.ipynb")
        counts = f"cells recorded: {len(stored)}, failed: {len(failures)}"
        head = f"{path.stem}: {seconds:.0f} s, {counts}"
        lines = [head, *report(nb, stored, failures)]
        print("\n".join(lines), flush=True)
        lines += [f"\n{cell}\n{message}" for cell, message in failures]
        for earlier in reports.glob(f"incomplete/*/{path.stem}.json"):
            earlier.unlink()
        if stored:
            good = folder / "notebooks" / "recorded"
            place = reports / "incomplete" if failures else good
            claims = recorder.claims_here(nb, stored)
            recorder.store(place, path.stem, stored, bool(pretending()), claims)
    except Exception as error:  # the next lessons still have their turn
        what = f"{type(error).__name__}: {error}"
        print(f"{path.stem}: FAILED as a whole: {what}", flush=True)
        failures, lines = [error], [f"{path.stem}: failed\n", traceback.format_exc()]
    (reports / f"{path.stem}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return not failures


def report(nb, stored, failures):
    """What there is to say of a lesson that has run, line by line."""
    for cell, message in failures:
        yield f"  FAILED {cell}: {last_lines(message)}"
    for name, kept in stored.items():
        yield f"  {name} {kept['seconds']:.1f} s ({kept['machine']['device']})"
    for name, kept in stored.items():
        if said := differences.line(name, kept):
            yield f"  {said}"
    for line in recorder.not_stored(nb, stored, failures):
        yield f"  not here: {line}"
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if recorder.claims_in([output]):
                yield f"  {output['data']['text/plain']}"


def last_lines(message):
    return " | ".join(
        [line for line in message.strip().splitlines() if line.strip()][-2:]
    )


# --------------------------------------------------------------------------------------
# The command


def pack(folder, archive):
    """Put the folder into the archive. Under another name first: who is stopped in the
    middle still has the old one.
    """
    os.replace(shutil.make_archive(f"{archive}.tmp", "zip", folder), archive)


def options_of(arguments):
    """The command line, read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument  # the description says what they are
    add("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    add("--out", type=pathlib.Path, default=ROOT, metavar="DIR")
    add("--zip", type=pathlib.Path, metavar="FILE")
    add("--seconds", type=float, default=math.inf)
    add("--anyway", action="store_true")
    return parser.parse_args(arguments)


def worth_a_visit(lessons, options):
    """The lessons that have something to record here, those first that have most; if
    the command names lessons, these. None where there is no device.
    """
    words = {}
    for path in lessons:
        pairs = recorder.conditional(nbformat.read(path, as_version=4))
        words[path] = [header.word for header, _ in pairs]
    said, here = look(sorted({*DEVICES, *itertools.chain(*words.values())}))
    print(said, flush=True)
    if not here & set(DEVICES) and not options.anyway:
        return None
    if options.notebooks:
        return lessons
    many = {path: sum(word in here for word in words[path]) for path in lessons}
    return sorted(filter(many.get, lessons), key=many.get, reverse=True)


def main(arguments=None):
    options = options_of(arguments)
    end = time.perf_counter() + options.seconds
    if options.zip and options.zip.exists() and not zipfile.is_zipfile(options.zip):
        print(
            f"{options.zip} is no archive to add to: move it away, or name another",
            file=sys.stderr,
        )
        return 2
    lessons = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    if options.zip:
        lessons = worth_a_visit(lessons, options)
        if lessons is None:
            print(
                "PyTorch sees neither a GPU nor a TPU here: nothing to record. --anyway"
                " goes on.",
                file=sys.stderr,
            )
            return 2
    with tempfile.TemporaryDirectory() as unpacked:
        folder = pathlib.Path(unpacked) if options.zip else options.out
        if options.zip and options.zip.exists():
            shutil.unpack_archive(options.zip, folder, "zip")
        return 0 if record_all(lessons, folder, end, options) else 1


def record_all(lessons, folder, end, options):
    """Record lessons until the time is over. Returns whether all went well."""
    well, left = True, list(lessons)
    while left and time.perf_counter() < end:
        done = record(left[0], folder, end=end, most=min(MOST, options.seconds / 4))
        well = well and done
        if options.zip:
            pack(folder, options.zip)
        if done or time.perf_counter() < end:  # else it was cut off
            left.pop(0)
    if left:
        print(f"left for another time: {' '.join(map(str, left))}")
    return well


if __name__ == "__main__":
    sys.exit(main())

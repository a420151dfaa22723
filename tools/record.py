"""Run lessons strictly and store what this machine's devices measured, for readers who
have no such device.

python tools/record.py [--out DIR] [NOTEBOOK…]                            below the course's folder (`make record`)
python tools/record.py --zip FILE [--seconds N] [--anyway] [NOTEBOOK…]    a visit to a machine with a GPU or a TPU

A conditional cell is recorded when it has a name (--result or --name), its word names
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
import contextlib
import datetime
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# packages that somebody brought: CONTRIBUTING.md, "Send a recording"
SITE = ROOT / "build" / "site"
sys.path[:0] = [str(ROOT), str(SITE)]

NEEDED = (
    "torch numpy matplotlib psutil accelerate huggingface_hub safetensors yaml tqdm"
    " sklearn".split()
)
NEEDED += "nbformat nbclient ipykernel ipywidgets".split()
if lacking := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    print(
        f'this Python lacks {", ".join(lacking)}: see "Send a recording" in'
        " CONTRIBUTING.md",
        file=sys.stderr,
    )
    sys.exit(2)

import nbformat  # noqa: E402
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError  # noqa: E402

from tools.lessons import differences, run  # noqa: E402
from utils import claims, grammar, recordings  # noqa: E402
from utils.devices import emulated  # noqa: E402
from utils.messages import NOT_LIVE, LabError  # noqa: E402

MOST = 600  # seconds that a cell may take
# a machine with none of them has nothing new to tell
DEVICES = ("cuda", "mps", "accelerator", "tpu")
PATHS = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
LOOK = """import json, sys
from utils import cells, doctor
doctor()
print(json.dumps([word for word in sys.argv[1:] if cells.missing(word) is None]))
"""


def look(words):
    """(what `doctor` says, those of the words that this machine has).

    In a process of its own: what it opens, a CUDA context or a TPU that only one
    process may hold, it gives back.
    """
    command, env = (
        [sys.executable, "-c", LOOK, *words],
        {**os.environ, "PYTHONPATH": PATHS},
    )
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        return (done.stdout + done.stderr).strip(), set()
    *said, here = done.stdout.strip().splitlines()
    return "\n".join(said), set(json.loads(here))


def conditional(nb):
    """(header, cell) of each cell of a lesson that can be recorded somewhere."""
    found = []
    for cell in nb.cells:
        with contextlib.suppress(LabError):  # a wrong header: the cell will say so
            found.append((grammar.header(cell.source), cell))
    return [(header, cell) for header, cell in found if header and header.recordable]


# --------------------------------------------------------------------------------------
# One lesson


def run_lesson(nb, folder, end=math.inf, most=MOST):
    """Run the cells of the lesson `nb`. Returns (recorded cells by name, as
    recordings.store takes them; failures).

    end: when the time is over, by time.perf_counter(). most: seconds that a cell may
    take. failures: (cell id, message with traceback) of each cell that failed, or
    ("kernel", …) where the kernel itself did not do its part.
    """
    stored, failures = {}, []
    try:
        with run.kernel(
            nb, folder, env={"LAB_STRICT": "1", "PYTHONPATH": PATHS}
        ) as client:
            for n, cell in enumerate(nb.cells):
                if cell.cell_type != "code":
                    continue
                try:
                    begin = time.perf_counter()
                    if begin >= end:
                        failures.append((cell.id, "not begun: the time was over"))
                        break
                    client.timeout = math.ceil(min(most, end - begin))
                    client.execute_cell(cell, n)
                    seconds = time.perf_counter() - begin
                    header = grammar.header(cell.source)
                    if (
                        header
                        and header.recordable
                        and ran_live(cell)
                        and (header.timeless or not emulated())
                    ):
                        stored[header.name] = entry(client, cell, n, header, seconds)
                except (CellExecutionError, LabError) as error:
                    failures.append((cell.id, str(error)))
                except CellControlSignal as error:
                    failures.append(
                        (
                            cell.id,
                            f"{error}\nit did not end within {client.timeout} seconds",
                        )
                    )
                    break
                except DeadKernelError as error:
                    failures.append((cell.id, str(error)))
                    break
    except (
        Exception
    ):  # such as a kernel that does not start in time; what is stored is stored
        failures.append(("kernel", traceback.format_exc()))
    return stored, [
        (cell, re.sub(r"\x1b\[[0-9;]*m", "", message)) for cell, message in failures
    ]


def ran_live(cell):
    """Whether a conditional cell ran on this machine's devices."""
    return not {state_of(output) for output in cell.outputs} & NOT_LIVE


def state_of(output):
    """What the course says about an output (utils.messages.note), or None."""
    return output.get("metadata", {}).get("device_lab", {}).get("state")


def entry(client, cell, n, header, seconds):
    """A cell that has run, as a recording holds it. What the machine is and the
    result's value its kernel says.
    """
    arguments = (
        f"{header.word!r}, {header.name!r}, {header.name}"
        if header.kind == "result"
        else f"{header.word!r}"
    )
    # Not an import statement: it would bind a name, and a lesson may have one like it.
    question = (
        f"print(__import__('utils.recordings').recordings.known_here({arguments}))"
    )
    answer = nbformat.v4.new_code_cell(question)
    client.execute_cell(answer, n, store_history=False)
    client.nb.cells[n] = cell  # where nbclient has put the question
    printed = "".join(
        o.text
        for o in answer.outputs
        if o.output_type == "stream" and o.name == "stdout"
    )
    try:
        # a library may have printed something before
        machine, value = json.loads(printed.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = printed.strip()[-200:]
        raise LabError(
            f"the kernel did not say what {header.name!r} is, but: {said!r}"
        ) from None
    return {
        "requires": header.word,
        "source": grammar.source_hash(cell.source),
        "date": datetime.date.today().isoformat(),
        "seconds": round(seconds, 3),
        "machine": machine,
        "outputs": [
            plain for output in cell.outputs if (plain := plain_output(output))
        ],
        **({"value": value} if header.kind == "result" else {}),
    }


def plain_output(output):
    """An output as a recording holds it, or None."""
    if state_of(output) == "live":  # true on this machine only
        return None
    if output.output_type == "stream" and output.name == "stdout":
        return {"text": output.text}
    data = output.get("data", {})
    if "image/png" in data:
        return {
            "png": data["image/png"].replace("\n", ""),
            "alt": data.get("text/plain", ""),
        }
    return {"text": data["text/plain"]} if "text/plain" in data else None


def not_stored(nb, stored, failures):
    """A line for each cell that could be recorded and is not, with the reason if it is
    not that the hardware lacks.
    """
    failed = {name for name, _ in failures}
    for header, cell in conditional(nb):
        if header.name not in stored:
            why = (
                ": it failed"
                if cell.id in failed
                else ""
                if cell.outputs
                else ": not reached"
            )
            if not why and ran_live(cell):
                why = ": not timeless"
            yield f"{header.name} ({header.word}){why}"


def claims_here(nb, stored):
    """What cells claimed of this machine's devices, by cell id; without those whose
    outputs are recorded.
    """
    found = {}
    for cell in nb.cells:
        lines = claims.LINE.findall(
            "\n".join(output.get("text", "") for output in cell.get("outputs", []))
        )
        lines = [
            line for line in lines if line.endswith(("this machine)", "times modeled"))
        ]
        if (
            lines
            and ran_live(cell)
            and getattr(grammar.header(cell.source), "name", None) not in stored
        ):
            found[cell.id] = {
                "source": grammar.source_hash(cell.source),
                "lines": lines,
            }
    return found


def record(path, folder, **time_left):
    """Run one lesson, and store below `folder` what it measured and a report. Returns
    whether all went well.

    time_left: `end` and `most` of run_lesson.
    """
    reports, begin = folder / "build" / "record", time.perf_counter()
    reports.mkdir(parents=True, exist_ok=True)
    try:
        nb = nbformat.read(path, as_version=4)
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.update(outputs=[], execution_count=None)  # those of another run
        stored, failures = run_lesson(nb, path.parent, **time_left)
        seconds = time.perf_counter() - begin
        nbformat.write(nb, reports / f"{path.stem}.ipynb")
        texts = [
            output.text
            for cell in nb.cells
            for output in cell.get("outputs", [])
            if "text" in output
        ]
        lines = [
            f"{path.stem}: {seconds:.0f} s, cells recorded: {len(stored)}, failed:"
            f" {len(failures)}"
        ]
        lines += [
            f"  FAILED {cell}: {last_lines(message)}" for cell, message in failures
        ]
        lines += [
            f"  {name} {kept['seconds']:.1f} s ({kept['machine']['device']})"
            for name, kept in stored.items()
        ]
        lines += [
            f"  {said}"
            for name, kept in stored.items()
            if (said := differences.line(name, kept))
        ]
        lines += [f"  not here: {line}" for line in not_stored(nb, stored, failures)]
        lines += [f"  {line}" for text in texts for line in claims.LINE.findall(text)]
        print("\n".join(lines), flush=True)
        lines += [f"\n{cell}\n{message}" for cell, message in failures]
        for earlier in reports.glob(f"incomplete/*/{path.stem}.json"):
            earlier.unlink()
        if stored:
            place = (
                reports / "incomplete"
                if failures
                else folder / "notebooks" / "recorded"
            )
            pretended = bool(recordings.pretending())
            recordings.store(
                place, path.stem, stored, pretended, claims_here(nb, stored)
            )
    except Exception as error:  # the next lessons still have their turn
        print(
            f"{path.stem}: FAILED as a whole: {type(error).__name__}: {error}",
            flush=True,
        )
        failures, lines = [error], [f"{path.stem}: failed\n", traceback.format_exc()]
    (reports / f"{path.stem}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return not failures


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


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=ROOT,
        metavar="DIR",
        help="default: the course's folder",
    )
    parser.add_argument(
        "--zip",
        type=pathlib.Path,
        metavar="FILE",
        help="a visit: into this archive instead",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="the visit ends after so long",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="also where PyTorch sees neither a GPU nor a TPU",
    )
    options = parser.parse_args(arguments)
    end = time.perf_counter() + options.seconds
    if options.zip and options.zip.exists() and not zipfile.is_zipfile(options.zip):
        print(
            f"{options.zip} is no archive to add to: move it away, or name another",
            file=sys.stderr,
        )
        return 2
    lessons = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    if options.zip:
        found = {
            path: conditional(nbformat.read(path, as_version=4)) for path in lessons
        }
        words = {
            path: [header.word for header, _ in pairs] for path, pairs in found.items()
        }
        said, here = look(
            sorted({*DEVICES, *(word for needed in words.values() for word in needed)})
        )
        print(said, flush=True)
        if not here & set(DEVICES) and not options.anyway:
            print(
                "PyTorch sees neither a GPU nor a TPU here: nothing to record. --anyway"
                " goes on.",
                file=sys.stderr,
            )
            return 2
        if not options.notebooks:
            many = {path: sum(word in here for word in words[path]) for path in lessons}
            lessons = sorted(filter(many.get, lessons), key=many.get, reverse=True)
    well = True
    with tempfile.TemporaryDirectory() as unpacked:
        folder = pathlib.Path(unpacked) if options.zip else options.out
        if options.zip and options.zip.exists():
            shutil.unpack_archive(options.zip, folder, "zip")
        left = list(lessons)
        while left and time.perf_counter() < end:
            done = record(left[0], folder, end=end, most=min(MOST, options.seconds / 4))
            well = well and done
            if options.zip:
                pack(folder, options.zip)
            if done or time.perf_counter() < end:  # else it was cut off
                left.pop(0)
        if left:
            print(f"left for another time: {' '.join(map(str, left))}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

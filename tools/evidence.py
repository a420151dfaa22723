"""Run the lessons on a machine with a GPU or a TPU, strictly, and bring back in one archive what its devices measured.

python tools/evidence.py [--out evidence.zip] [--seconds N] [--anyway] [NOTEBOOK…]

Needs PyTorch and a driver for the device, no Jupyter server, no network, not the exact versions of requirements.txt.
Where a package is missing it says what to bring, and how. First it says what PyTorch sees, and stops where that is
neither a GPU nor a TPU (--anyway: go on). Without NOTEBOOK all lessons run, those first that have most to record here;
--seconds: begin no further lesson after so long, and say which are left (the one that is under way goes on). All cells
of a lesson run, also after one that fails, so that one visit shows all that has to be mended. Unpack the archive in
the course's folder:

    python -m zipfile -e evidence.zip .

It grows with each lesson, and a second visit adds to it; a lesson that runs once more takes the place of what it left
before. It holds notebooks/recorded/<machine>/ for lessons without a failure, build/evidence/incomplete/ for the
others, and in build/evidence/ a report of each: seconds, failures with tracebacks, each claim with its figure, limit
and share, and which cells stay unrecorded. Exit status 1 when anything failed, 2 when nothing could begin.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"  # packages that somebody brought
sys.path[:0] = [str(ROOT), str(SITE)]

NEEDED = {  # what lessons and this command import, and the name of the package
    **{name: name for name in ("torch", "numpy", "matplotlib", "psutil", "accelerate", "tqdm")},
    **{name: name for name in ("nbformat", "nbclient", "ipykernel", "ipywidgets")},
    "sklearn": "scikit-learn",
}
DEVICES = ("cuda", "mps", "accelerator", "tpu")  # a machine with none of them has nothing new to tell


def pinned():
    """Package → "package==version", for what requirements.txt asks for on every Python."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"([\w.-]+)==[\w.]+", line.strip()) for line in lines]
    return {match[1]: match[0] for match in found if match}


def to_bring():
    """What this Python lacks, with the commands that fetch and install it, or None."""
    missing = [package for name, package in NEEDED.items() if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    if "torch" in missing:
        return "this Python has no torch: run the command with the one that has it"
    version = ".".join(platform.python_version_tuple()[:2])
    fetch = f"python -m pip download --only-binary=:all: --python-version {version} --dest build/wheels"
    if sys.platform == "linux":
        tags = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")
        fetch += "".join(f" --platform {tag}_{platform.machine()}" for tag in tags)
    lines = [f"this Python lacks {', '.join(missing)}. With a network, in the course's folder:"]
    pins = pinned()
    alone = [package for package in missing if package == "accelerate"]  # it would bring a PyTorch of its own
    others = [pins.get(package, package) for package in missing if package not in alone]
    alone = [pins.get(package, package) for package in alone]
    lines += [f"  {fetch} {' '.join(others)}"] if others else []
    lines += [f"  {fetch} --no-deps {' '.join(alone)}"] if alone else []
    lines += ["Then here, and this command again:"]
    lines += ["  python -m pip install --no-index --no-deps --upgrade --target build/site build/wheels/*.whl"]
    return "\n".join(lines)


LOOK = """import json, sys
from utils import cells, doctor
doctor()
print(json.dumps([word for word in sys.argv[1:] if cells.missing(word) is None]))
"""


def look(words):
    """(what `doctor` says, those of the words that this machine has).

    In a process of its own: what it opens, a CUDA context or a TPU that only one process may hold, it gives back.
    """
    done = subprocess.run([sys.executable, "-c", LOOK, *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return (done.stdout + done.stderr).strip(), set()
    *said, here = done.stdout.strip().splitlines()
    return "\n".join(said), set(json.loads(here))


def conditional(lesson):
    """(word, name) of each cell that can be recorded."""
    from utils import cells

    heads = [cell.source.split("\n", 1)[0] for cell in lesson if cell.cell_type == "code"]
    found = [cells.parse(head) for head in heads if head.startswith("%%requires")]
    return [(word, name) for word, _, name, _ in found if name and not word.startswith("result:")]


def claims(lesson):
    """The lines that claim() has printed: sentence, figure, bound, limit, share, device."""
    from utils.claims import LINE

    texts = [output.text for cell in lesson for output in cell.get("outputs", []) if "text" in output]
    return [line for text in texts for line in LINE.findall(text)]


def add(out, files):
    """Put files (name → bytes) into the archive `out`, in the place of those of the same names.

    Into a copy that then takes the archive's name: who is stopped in the middle still has the archive as it was.
    """
    temporary = out.with_name(out.name + ".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as new:
        if out.exists():
            with zipfile.ZipFile(out) as old:
                for name in old.namelist():
                    if name not in files:
                        new.writestr(name, old.read(name))
        for name, content in files.items():
            new.writestr(name, content)
    os.replace(temporary, out)


def collect(notebook, out):
    """Run one lesson and add to the archive `out` what it measured, and a report. Returns the failures."""
    from utils import record, recordings

    begin = time.perf_counter()
    stored, failures, lesson = record.run(notebook, keep_going=True)
    failures = [(cell, re.sub(r"\x1b\[[0-9;]*m", "", message)) for cell, message in failures]
    seconds = time.perf_counter() - begin
    lines = [f"{notebook.stem}: {seconds:.0f} s, cells recorded: {len(stored)}, failed: {len(failures)}"]
    lines += [f"  FAILED {cell}: {record.last_lines(message)}" for cell, message in failures]
    lines += [f"  {name} {entry['seconds']:.1f} s ({entry['machine']['device']})" for name, entry in stored.items()]
    lines += [f"  not here: {name} ({word})" for word, name in conditional(lesson) if name not in stored]
    lines += [f"  {line}" for line in claims(lesson)]
    print("\n".join(lines), flush=True)
    tracebacks = [f"\n{cell}\n{message}" for cell, message in failures]
    files = {f"build/evidence/{notebook.stem}.txt": "\n".join([*lines, *tracebacks]) + "\n"}
    with tempfile.TemporaryDirectory() as folder:
        if stored:
            path = recordings.store(folder, notebook.stem, stored, pretended=bool(recordings.pretending()))
            place = "build/evidence/incomplete" if failures else "notebooks/recorded"
            files[f"{place}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    add(out, files)
    return failures


def collect_or_tell(notebook, out):
    """`collect`, and where that itself fails, its traceback in the archive: the next lessons still have their turn."""
    try:
        return collect(notebook, out)
    except Exception as error:
        print(f"{notebook.stem}: FAILED as a whole: {type(error).__name__}: {error}", flush=True)
        add(out, {f"build/evidence/{notebook.stem}.txt": f"{notebook.stem}: failed\n\n{traceback.format_exc()}"})
        return [(notebook.stem, str(error))]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    out = {"type": pathlib.Path, "default": "evidence.zip", "metavar": "FILE"}
    parser.add_argument("--out", **out, help="the archive, which a second visit adds to (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no lesson after so long")
    parser.add_argument("--anyway", action="store_true", help="also where PyTorch sees neither a GPU nor a TPU")
    options = parser.parse_args(arguments)
    if problem := to_bring():
        sys.stderr.write(f"{problem}\n")
        return 2
    if options.out.exists() and not zipfile.is_zipfile(options.out):
        sys.stderr.write(f"{options.out} is no archive to add to: move it away, or choose another --out\n")
        return 2
    import nbformat

    os.environ["LAB_STRICT"] = "1"
    kernels_find = [str(SITE), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in kernels_find if path)
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this Python, not one in the home folder
    lessons = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    wanted = {path: [word for word, _ in conditional(nbformat.read(path, as_version=4).cells)] for path in lessons}
    said, here = look(sorted({*DEVICES, *(word for words in wanted.values() for word in words)}))
    print(said, flush=True)
    if not here & set(DEVICES) and not options.anyway:
        sys.stderr.write("PyTorch sees neither a GPU nor a TPU here, so nothing would be recorded. --anyway goes on.\n")
        return 2
    if not options.notebooks:  # those first that have most to record here; sorted keeps the course's order otherwise
        lessons = sorted(lessons, key=lambda path: sum(word in here for word in wanted[path]), reverse=True)
    begin, failures = time.perf_counter(), []
    for k, notebook in enumerate(lessons):
        if time.perf_counter() - begin > options.seconds:
            print(f"left for another time: {' '.join(map(str, lessons[k:]))}")
            break
        failures += collect_or_tell(notebook, options.out)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

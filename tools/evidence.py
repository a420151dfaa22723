"""Run the lessons on a machine with a GPU, strictly, and bring back in one archive what its devices measured.

python tools/evidence.py [--out evidence.zip] [--seconds N] [NOTEBOOK…]

Needs PyTorch and a driver for the GPU, no Jupyter server, no network, not the exact versions of requirements.txt. Where
a package is missing it says what to bring, and how. Without NOTEBOOK all lessons run, those with most to record first;
--seconds: begin no further lesson after so long, and say which are left. All cells of a lesson run, also after one that
fails, so that one visit shows all that has to be mended. Unpack the archive in the course's folder:

    python -m zipfile -e evidence.zip .

It grows with each lesson: notebooks/recorded/<machine>/ for lessons without a failure, build/evidence/incomplete/ for
the others, and in build/evidence/ a report of each: seconds, failures with tracebacks, each claim with its figure,
limit and share, and which cells stay unrecorded. Exit status 1 when anything failed.
"""

import argparse
import importlib.util
import os
import pathlib
import platform
import re
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"  # packages that somebody brought
sys.path[:0] = [str(ROOT), str(SITE)]

NEEDED = {  # what lessons and this command import, and the name of the package
    **{name: name for name in ("torch", "numpy", "matplotlib", "psutil", "accelerate", "tqdm")},
    **{name: name for name in ("nbformat", "nbclient", "ipykernel", "ipywidgets")},
    "sklearn": "scikit-learn",
}


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
    alone = [package for package in missing if package == "accelerate"]  # it would bring a PyTorch of its own
    others = [package for package in missing if package not in alone]
    lines += [f"  {fetch} {' '.join(others)}"] if others else []
    lines += [f"  {fetch} --no-deps {' '.join(alone)}"] if alone else []
    lines += ["Then here, and this command again:"]
    lines += ["  python -m pip install --no-index --no-deps --upgrade --target build/site build/wheels/*.whl"]
    return "\n".join(lines)


def conditional(lesson):
    """(word, name) of each cell that can be recorded."""
    from utils import cells

    heads = [cell.source.split("\n", 1)[0] for cell in lesson if cell.cell_type == "code"]
    found = [cells.parse(head) for head in heads if head.startswith("%%requires")]
    return [(word, name) for word, _, name in found if name and not word.startswith("result:")]


def claims(lesson):
    """The lines that claim() has printed: sentence, figure, bound, limit, share, device."""
    texts = [output.text for cell in lesson for output in cell.get("outputs", []) if "text" in output]
    return [line for text in texts for line in text.splitlines() if re.match(r"[✓✗] (?!\d\d\.\d)", line)]


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
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive, tempfile.TemporaryDirectory() as folder:
        archive.writestr(f"build/evidence/{notebook.stem}.txt", "\n".join([*lines, *tracebacks]) + "\n")
        if stored:
            path = recordings.store(folder, notebook.stem, stored, pretended=bool(recordings.pretending()))
            place = "build/evidence/incomplete" if failures else "notebooks/recorded"
            archive.write(path, f"{place}/{path.relative_to(folder).as_posix()}")
    return failures


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    parser.add_argument("--out", default="evidence.zip", metavar="FILE", help="the archive (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no lesson after so long")
    options = parser.parse_args(arguments)
    if problem := to_bring():
        sys.stderr.write(f"{problem}\n")
        return 2
    import nbformat

    def to_record(path):
        return len(conditional(nbformat.read(path, as_version=4).cells))

    lessons = options.notebooks or sorted(sorted((ROOT / "notebooks").glob("*.ipynb")), key=to_record, reverse=True)
    os.environ["LAB_STRICT"] = "1"
    kernels_find = [str(SITE), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in kernels_find if path)
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this Python, not one in the home folder
    pathlib.Path(options.out).unlink(missing_ok=True)
    begin, failures = time.perf_counter(), []
    for k, notebook in enumerate(lessons):
        if time.perf_counter() - begin > options.seconds:
            print(f"left for another time: {' '.join(map(str, lessons[k:]))}")
            break
        failures += collect(notebook, options.out)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

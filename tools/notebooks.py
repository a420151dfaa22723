"""Lessons as files: check their format and anatomy, write the canonical form, execute and store outputs.

python tools/notebooks.py check           every lesson against the rules below; exit status 1 and one line a problem
python tools/notebooks.py write           canonical JSON, set-up cells and badges (from the address in pyproject.toml)
python tools/notebooks.py outputs [FILE…] execute lessons in this environment and store their outputs
"""

import argparse
import base64
import pathlib
import re
import sys

import nbformat

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from utils import cells, recordings  # noqa: E402
from utils.exercises import lesson_exercises  # noqa: E402
from utils.messages import LabError  # noqa: E402

LINES_MOST = 20  # of a code cell
PNG_MOST = 60_000  # bytes
NOTEBOOK_MOST = 600_000  # bytes
FIXED_SECTIONS = ("You will learn", "Exercises", "What to remember")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
EMPTY_WORDS = re.compile(r"\b(simply|easily|powerful|note that|as we can see|obviously)\b", re.I)
BRITISH = re.compile(r"\b\w*(colour|optimis|behaviour|synchronis|initialis|centre|favour|recognis|summaris)\w*", re.I)
MACHINE_PATH = re.compile(r"/root/|/home/\w|/Users/\w|/tmp/|\b[A-Z]:\\\\?\w")

SETUP = """\
# Set-up, the same in every lesson: finds the course on this machine, or fetches it
# once (Colab, Kaggle).
import pathlib
import subprocess
import sys

REPOSITORY = "{address}"
here = pathlib.Path.cwd()
course = next(
    (p for p in [here, *here.parents] if (p / "utils" / "cells.py").exists()),
    here / "pytorch-device-lab",
)
if not course.exists():
    fetch = ["git", "clone", "--quiet", "--depth=1", REPOSITORY, str(course)]
    fetched = subprocess.run(fetch, capture_output=True, text=True)
    failed = f"Cannot fetch the course (is the network on?): {{fetched.stderr}}"
    assert fetched.returncode == 0, failed
sys.path.insert(0, str(course))

import torch
from utils import check, claim, doctor, expect_error, hint, pick_device, plots
from utils import progress, recordings, solution, where
"""
BADGES = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{slug}/blob/main/notebooks/{name}) "
    "[![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]"
    "(https://kaggle.com/kernels/welcome?src={address}/blob/main/notebooks/{name})"
)


def address():
    """Address of the repository: the one line in pyproject.toml that says it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(r'^Repository = "(.+)"$', text, re.M).group(1)


def setup_cell():
    """Source of the set-up cell."""
    return SETUP.format(address=address()).strip()


def badges(path):
    """Line of badges for the lesson at `path`."""
    slug = address().removeprefix("https://github.com/")
    return BADGES.format(slug=slug, address=address(), name=path.name)


def lessons():
    """Paths of the lessons, in order."""
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# ---------------------------------------------------------------------------------------------------------------
# Canonical form


def canonical(nb, path):
    """The notebook in the one form that is committed, as text."""
    accelerator = {key: nb.metadata[key] for key in ("accelerator", "colab") if key in nb.metadata}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nb.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}, **accelerator})
    nb.nbformat, nb.nbformat_minor = 4, 5
    taken = set()
    for cell in nb.cells:
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip().splitlines())
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": sorted(tags)} if tags else {})
        if "id" not in cell or re.fullmatch("[0-9a-f]{8}", cell.id):
            cell.id = _slug(cell, taken)
        taken.add(cell.id)
        if cell.id == "setup":
            cell.source = setup_cell()
        if cell.cell_type == "markdown" and "colab-badge.svg" in cell.source:
            cell.source = re.sub(r"^\[!\[Open in Colab\].*$", lambda _: badges(path), cell.source, flags=re.M)
        for output in cell.get("outputs", []):
            _clean_output(output)
    return nbformat.writes(nb) + "\n"


def _clean_output(output):
    for data in (output.get("data", {}), output.get("metadata", {})):
        data.pop(WIDGET_VIEW, None)
    if "image/png" in output.get("data", {}):
        output.data["image/png"] = output.data["image/png"].replace("\n", "")
        output.data.pop("text/html", None)  # the same picture once more, for front ends


def _slug(cell, taken):
    words = re.findall(r"[a-z0-9]+", re.sub(r"^(%%|#|import|from)\S*", "", cell.source.lower()))[:4]
    slug = ("-".join(words) or cell.cell_type)[:40]
    return next(s for n in range(1, 999) if (s := slug if n == 1 else f"{slug}-{n}") not in taken)


# ---------------------------------------------------------------------------------------------------------------
# Check


def problems(path):
    """Everything that is wrong with one lesson, as lines of text."""
    text = path.read_text(encoding="utf-8")
    try:
        nb = nbformat.reads(text, as_version=4)
        nbformat.validate(nb)
    except Exception as error:
        return [f"not a valid notebook: {str(error).splitlines()[0]}"]
    found = []
    if canonical(nbformat.reads(text, as_version=4), path) != text:
        found.append("not in canonical form: run `make format`")
    if len(text.encode()) > NOTEBOOK_MOST:
        found.append(f"{len(text.encode()) // 1000} kB, more than {NOTEBOOK_MOST // 1000}")
    for rule in (_ids, _anatomy, _code, _words, _links, _exercises, _outputs):
        found += rule(nb, path)
    return found


def _code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def _text(nb):
    return "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def _ids(nb, path):
    ids = [cell.id for cell in nb.cells]
    bad = [i for i in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", i) or re.fullmatch("[0-9a-f]{8}", i)]
    return [f"cell id {i!r} is no readable slug" for i in bad]


def _anatomy(nb, path):
    found = []
    first = nb.cells[0].source if nb.cells and nb.cells[0].cell_type == "markdown" else ""
    text = _text(nb)
    if len(re.findall(r"^# ", text, re.M)) != 1 or not first.startswith("# "):
        found.append("needs exactly one H1, in its first cell")
    if badges(path) not in first:
        found.append("the first cell needs the badges line: run `make format`, see CONTRIBUTING")
    for fact in ("Runs live on", "Time", "Before this"):
        if f"**{fact}:**" not in first:
            found.append(f"the line of facts lacks **{fact}:**")
    sections = re.split(r"^## ", text, flags=re.M)[1:]
    titles = [section.split("\n", 1)[0].strip() for section in sections]
    for title in FIXED_SECTIONS:
        if titles.count(title) != 1:
            found.append(f"needs one section '## {title}'")
    own = [s for s, title in zip(sections, titles, strict=True) if title not in FIXED_SECTIONS]
    if not 3 <= len(own) <= 6:
        found.append(f"has {len(own)} sections of its own, not three to six")
    found += [f"no **Predict** in the section '{s.splitlines()[0]}'" for s in own if "**Predict" not in s]
    by_title = dict(zip(titles, sections, strict=True))
    for title, least, most in (("You will learn", 3, 5), ("What to remember", 1, 6)):
        bullets = len(re.findall(r"^[-*] ", by_title.get(title, ""), re.M))
        if title in by_title and not least <= bullets <= most:
            found.append(f"'{title}' has {bullets} points, not {least} to {most}")
    if titles and titles[-1] != "What to remember":
        found.append("'What to remember' is not the last section")
    code = _code_cells(nb)
    if [cell.id for cell in code[:1]] != ["setup"] or code[0].source != setup_cell():
        found.append("the first code cell is not the set-up cell (id `setup`): run `make format`")
    if sum("plots.explorer(" in cell.source for cell in code) != 1:
        found.append("needs exactly one explorer (plots.explorer)")
    texts = sum(cell.cell_type == "markdown" for cell in nb.cells)
    if texts < 0.8 * len(code):
        found.append(f"{len(code)} code cells, but only {texts} text cells")
    return found


def _code(nb, path):
    found = []
    for cell in _code_cells(nb):
        count = sum(bool(line.strip()) for line in cell.source.splitlines())
        if count > LINES_MOST and cell.id != "setup":
            found.append(f"cell {cell.id} has {count} lines, more than {LINES_MOST}")
        try:
            header = cells.header(cell.source)
        except LabError as error:
            found.append(f"cell {cell.id}: {error}")
        else:
            if header and not header.name and not header.word.startswith("result:"):
                found.append(f"cell {cell.id} cannot be recorded: give it --result NAME or --name NAME")
    return found


def _words(nb, path):
    text = re.sub(r"```.*?```|`[^`]*`", "", _text(nb), flags=re.S)
    return [f"empty word {w!r} (voice)" for w in sorted({m.group().lower() for m in EMPTY_WORDS.finditer(text)})] + [
        f"British spelling {m.group()!r}" for m in BRITISH.finditer(text)
    ]


def _links(nb, path):
    targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", _text(nb))  # not the web, not a heading
    return [f"the link to {t} leads nowhere" for t in targets if not (ROOT / "notebooks" / t).exists()]


def _exercises(nb, path):
    number = path.name[:2]
    asked = [n for cell in _code_cells(nb) for n in re.findall(r'^check\("([\d.]+)"', cell.source, re.M)]
    known = lesson_exercises(number)
    found = [] if 3 <= len(known) <= 6 else [f"{len(known)} exercises, not three to six"]
    if asked != list(known):
        found.append(f"the lesson checks exercises {asked}, its module has {list(known)}")
    texts = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    for exercise in known.values():
        begin = f"**{exercise.number}** {'★' * exercise.stars} "
        if not any(text.startswith(begin) for text in texts):
            found.append(f"no text cell begins with {begin!r}: the number of the exercise and its stars")
    return found


def _outputs(nb, path):
    found = []
    code = _code_cells(nb)
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("outputs are not from one run from top to bottom: run `make outputs`")
    for cell in code:
        for output in cell.outputs:
            found += [f"cell {cell.id}: {problem}" for problem in _output_problems(output)]
    return found


def _output_problems(output):
    if output.output_type == "error":
        yield "shows an error"
    if output.get("name") == "stderr":
        yield "prints to stderr"
    data = output.get("data", {})
    shown = "".join([output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")])
    if MACHINE_PATH.search(shown):
        yield f"names a path of the machine ({MACHINE_PATH.search(shown).group()}…)"
    if "image/png" in data:
        if len(base64.b64decode(data["image/png"])) > PNG_MOST:
            yield f"a picture over {PNG_MOST // 1000} kB"
        if not output.metadata.get("image/png", {}).get("alt"):
            yield "a picture without a text alternative (plots.show)"


def recording_problems():
    """What is wrong with the recordings, and with the names of conditional cells across lessons."""
    found, names = [], {}
    for path in lessons():
        for cell in _code_cells(nbformat.read(path, as_version=4)):
            try:
                header = cells.header(cell.source)
            except LabError:
                continue  # _code says so
            if header and header.name:
                if header.name in names:
                    found.append(f"the name {header.name} stands twice, in {names[header.name][0]} and {path.stem}")
                names[header.name] = (path.stem, cells.source_hash(cell.source))
    for path in sorted(recordings.FOLDER.glob("*/*")):
        label = f"recorded/{path.parent.name}/{path.name}"
        try:
            recorded = recordings.load(path)
        except LabError as error:
            found.append(str(error))
            continue
        if MACHINE_PATH.search(re.sub(r'"png": "[^"]*"', "", path.read_text(encoding="utf-8"))):
            found.append(f"{label} names a path of the machine")
        for name, cell in recorded.items():
            if names.get(name, ("",))[0] != path.stem:
                found.append(f"{label}: no cell named {name} in {path.stem}")
            elif names[name][1] != cell["source"]:
                print(f"to be recorded again: {label}, {name} (the cell has changed)")
    return found


def check():
    """Check all lessons. Returns the number of problems."""
    paths = lessons()
    found = [(path.name, problem) for path in paths for problem in problems(path)]
    found += [("recordings", problem) for problem in recording_problems()]
    if not paths:
        found.append(("notebooks", "no lesson found"))
    for name, problem in found:
        print(f"{name}: {problem}")
    print(f"{len(paths)} lessons checked, {len(found)} problems")
    return len(found)


# ---------------------------------------------------------------------------------------------------------------
# Write, execute


def write():
    """Bring all lessons to canonical form, with set-up cells and badges from the address in pyproject.toml."""
    for path in lessons():
        path.write_text(canonical(nbformat.read(path, as_version=4), path), encoding="utf-8", newline="\n")


def outputs(paths):
    """Execute lessons in this environment and store their outputs."""
    from tools import run

    for path in paths or lessons():
        path = pathlib.Path(path)
        nb = nbformat.read(path, as_version=4)
        run.execute(nb, path.parent, env={"LAB_STRICT": "1"})
        path.write_text(canonical(nb, path), encoding="utf-8", newline="\n")
        print(f"{path.name}: {len(_code_cells(nb))} code cells executed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "write", "outputs"])
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.command == "check":
        return 1 if check() else 0
    write() if options.command == "write" else outputs(options.files)
    return 0


if __name__ == "__main__":
    sys.exit(main())

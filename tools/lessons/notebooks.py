"""Lessons as files: check them, write the canonical form. (tools/lessons/outputs.py
executes them.)

python -m tools.lessons.notebooks check [FILE…]
    lessons against the rules; one line a problem, and then exit status 1
python -m tools.lessons.notebooks write [FILE…]
    canonical JSON, code as Ruff writes it, set-up cells, badges

Without FILE: all lessons; check then takes the pages about them, too
(tools/lessons/pages.py).
"""

import argparse
import base64
import pathlib
import re
import sys

import nbformat

from course import grammar, recordings, uses, widgets
from course.exercises import lesson_exercises
from device_lab import LabError
from tools.lessons import links, pages, parts, rules, schemas, table

ROOT = pathlib.Path(__file__).resolve().parents[2]

PNG_MOST = 60_000  # bytes
NOTEBOOK_MOST = 600_000  # bytes
# /root/…, /home/me, C:\\Users: what a path of somebody's machine begins with
MACHINE_PATH = re.compile(r"/root/|/home/\w|/Users/\w|/tmp/|\b[A-Z]:\\\\?\w")


def address(of="Repository"):
    """Address of the repository, of the "Lessons" that badges open, of the "Site": each
    one line in pyproject.toml.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{of} = "(.+)"$', text, re.M).group(1)


def in_repository(path):
    """Address of a file or folder of the course in the repository."""
    kind = "tree" if path.is_dir() else "blob"
    return f"{address()}/{kind}/main/{path.relative_to(ROOT).as_posix()}"


def setup_cell():
    """Source of the set-up cell of all lessons: that of the first one, with the address
    of the repository.
    """
    first = nbformat.read(lessons()[0], as_version=4)
    source = next(cell.source for cell in first.cells if cell.id == "setup")
    line = f'REPOSITORY = "{address()}"'
    return re.sub('^REPOSITORY = ".*"$', line, source, flags=re.M)


def launch_links(path):
    """Addresses at which the lesson at `path` opens to be run: Colab's, Kaggle's."""
    lesson = f"{address('Lessons')}/{path.name}"
    on_github = lesson.removeprefix("https://github.com/")
    return (
        f"https://colab.research.google.com/github/{on_github}",
        f"https://kaggle.com/kernels/welcome?src={lesson}",
    )


def badges(path):
    """Line of badges for the lesson at `path`."""
    colab, kaggle = launch_links(path)
    return (
        "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"({colab}) "
        "[![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]"
        f"({kaggle})"
    )


def lessons():
    """Paths of the lessons, in order."""
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# --------------------------------------------------------------------------------------
# Canonical form


def canonical(nb, path):
    """The notebook in the one form that is committed, as text."""
    kept = {
        key: nb.metadata[key] for key in ("accelerator", "colab") if key in nb.metadata
    }
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nb.metadata = nbformat.from_dict(
        {"kernelspec": kernel, "language_info": {"name": "python"}, **kept}
    )
    nb.nbformat, nb.nbformat_minor = 4, 5
    taken = set()
    for cell in nb.cells:
        lines = cell.source.strip().splitlines()
        cell.source = "\n".join(line.rstrip() for line in lines)
        cell.metadata = nbformat.from_dict(_metadata(cell))
        # without an id, or with a random one
        if "id" not in cell or re.fullmatch("[0-9a-f]{8}", cell.id):
            cell.id = _slug(cell, taken)
        taken.add(cell.id)
        if cell.id == "setup":
            cell.source = setup_cell()
        if cell.cell_type == "markdown" and "colab-badge.svg" in cell.source:
            line = r"^\[!\[Open in Colab\].*$"
            cell.source = re.sub(line, lambda _: badges(path), cell.source, flags=re.M)
        for output in cell.get("outputs", []):
            _clean_output(output)
    for number, cell in enumerate(parts.code_cells(nb), 1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    return nbformat.writes(nb) + "\n"


def _metadata(cell):
    """A cell's metadata. The tag `fold` is ours; front ends have each their own mark
    for a cell that is shown folded.

    `jupyter.source_hidden` is that of JupyterLab and Notebook 7, `cellView` with a line
    `# @title` Colab's; the site folds by the tag. VS Code has none: there the cell
    stands open, under its title.
    """
    tags = set(cell.metadata.get("tags", []))
    marks = {}
    if parts.OUTPUTS_OF in cell.metadata:
        marks[parts.OUTPUTS_OF] = cell.metadata[parts.OUTPUTS_OF]
    if cell.get("id") == "setup" or "fold" in tags:
        marks |= {"cellView": "form", "jupyter": {"source_hidden": True}}
        tags.add("fold")
    return marks | ({"tags": sorted(tags)} if tags else {})


def _clean_output(output):
    for data in (output.get("data", {}), output.get("metadata", {})):
        data.pop(widgets.VIEW, None)
    if "image/png" in output.get("data", {}):
        output.data["image/png"] = output.data["image/png"].replace("\n", "")
        output.data.pop("text/html", None)  # the same picture once more, for front ends


def _slug(cell, taken):
    """An id from the first words of a cell, which is not among those `taken`."""
    # not from what a line of code begins with: "%%today", "#", "import", "from"
    source = re.sub(r"^(%%|#|import|from)\S*", "", cell.source.lower())
    words = re.findall(r"[a-z0-9]+", source)[:4]
    slug = first = ("-".join(words) or cell.cell_type)[:40]
    number = 1
    while slug in taken:
        number += 1
        slug = f"{first}-{number}"
    return slug


# --------------------------------------------------------------------------------------
# Check


def problems(path):
    """Everything that is wrong with one lesson, as lines of text."""
    text, found = path.read_text(encoding="utf-8"), []
    try:
        nb = nbformat.reads(text, as_version=4)
        nbformat.validate(nb)
    except Exception as error:
        return [f"not a valid notebook: {str(error).splitlines()[0]}"]
    if canonical(nbformat.reads(text, as_version=4), path) != text:
        found.append("not in canonical form: run `make format`")
    size = len(text.encode())
    if size > NOTEBOOK_MOST:
        found.append(f"{size // 1000} kB, more than {NOTEBOOK_MOST // 1000}")
    for cell in nb.cells:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cell.id):
            found.append(f"cell id {cell.id!r} is no readable slug")
    found += rules.problems(nb, path, badges(path))
    found += links.broken_links(parts.text_of(nb), ROOT / "notebooks")
    for rule in (_code, _exercises, _outputs):
        found += rule(nb, path)
    return found


def _code(nb, path):
    code = {cell.id: cell.source for cell in parts.code_cells(nb)}
    wide = sum(map(parts.long_lines, code.values()))
    if wide:
        yield f"{wide} lines of code over {parts.COLUMNS} columns"
    for name, source in code.items():
        try:
            header = grammar.header(source)
        except LabError as error:
            yield f"cell {name}: {error}"
        else:
            if header and not header.name and not header.word.startswith("result:"):
                yield (
                    f"cell {name} cannot be recorded: give it `result: NAME` or"
                    " `name: NAME`"
                )


def _exercises(nb, path):
    asked = [number for cell in nb.cells for number in parts.checks(cell)]
    known = lesson_exercises(path.name[:2])
    if asked != list(known):
        yield (
            f"the cells with the tag `exercise` check {asked}, the module of the lesson"
            f" has {list(known)}"
        )
    for exercise in known.values():
        begin = f"**{exercise.number}** {'★' * exercise.stars} "
        if not any(cell.source.startswith(begin) for cell in nb.cells):
            yield (
                f"no text cell begins with {begin!r}: the number of the exercise and"
                " its stars"
            )
    for cell in nb.cells:
        stored = "".join(output.get("text", "") for output in cell.get("outputs", []))
        for number in parts.checks(cell) if stored else []:
            title = number in known and known[number].title
            if title and f" {number} · {title} · " not in stored:
                yield f"cell {cell.id} shows another exercise: run `make outputs`"


def _outputs(nb, path):
    code = parts.code_cells(nb)
    if older := parts.with_older_outputs(nb):
        command = f'make outputs N={path.name[:2]} CELL="{" ".join(older)}"'
        yield f"code that has not run since it was changed: run `{command}`"
    for name, output in ((cell.id, output) for cell in code for output in cell.outputs):
        data = output.get("data", {})
        shown = output.get("text", "")
        shown += data.get("text/plain", "") + data.get("text/html", "")
        if output.output_type == "error":
            yield f"cell {name} shows an error"
        if output.get("name") == "stderr":
            yield f"cell {name} prints to stderr"
        if path_shown := MACHINE_PATH.search(shown):
            yield f"cell {name} names a path of the machine ({path_shown.group()}…)"
        if len(base64.b64decode(data.get("image/png", ""))) > PNG_MOST:
            yield f"cell {name}: a picture over {PNG_MOST // 1000} kB"
        if "image/png" in data and not output.metadata.get("image/png", {}).get("alt"):
            yield f"cell {name}: a picture without a text alternative (plots.show)"


def _form(path, label, schema):
    """What is wrong with the form of one file of recordings."""
    text = path.read_text(encoding="utf-8")
    if wrong := schemas.problem(text, schema):
        yield f"{label}, {wrong}"
    # pictures may hold any letters
    if MACHINE_PATH.search(re.sub(r'"png": "[^"]*"', "", text)):
        yield f"{label} names a path of the machine"


def recording_problems():
    """What is wrong with the recordings, and with the names of conditional cells across
    lessons.
    """
    names = {}
    for path in lessons():
        nb = nbformat.read(path, as_version=4)
        keys = uses.keys(nb.cells)
        for cell in parts.code_cells(nb):
            header = grammar.header(cell.source)
            if header and header.name in names:
                yield (
                    f"the name {header.name} stands twice, in {names[header.name][0]}"
                    f" and {path.stem}"
                )
            if header and header.name:
                names[header.name] = (path.stem, keys[cell.id])
    published = recordings.FOLDER / "published.json"
    yield from _form(published, "recorded/published.json", schemas.PUBLISHED)
    for path in sorted(recordings.FOLDER.glob("*/*")):
        label = f"recorded/{path.parent.name}/{path.name}"
        yield from _form(path, label, schemas.RECORDING)
        for name, cell in recordings.load(path).items():
            lesson, key = names.get(name, (None, None))
            if lesson != path.stem:
                yield f"{label}: no cell named {name} in {path.stem}"
            elif change := uses.changed(cell, key):
                print(f"to be recorded again: {label}, {name} ({change}; no error)")


def check(paths):
    """Check lessons and all recordings; with all lessons, the pages about them and the
    table of messages.
    Returns the number of problems.
    """
    found = [f"{path.name}: {problem}" for path in paths for problem in problems(path)]
    if paths == lessons():
        found += [*pages.problems(ROOT), *table.problems(lessons())]
    try:
        found += recording_problems()
    except LabError as error:  # a recording or a header that cannot be read
        found.append(str(error))
    print(*found, f"{len(paths)} lessons checked, {len(found)} problems", sep="\n")
    return len(found)


# --------------------------------------------------------------------------------------
# Write


def write(paths):
    """Bring lessons to canonical form, with the set-up cell of the first and the
    address in pyproject.toml. Says which files it has changed.
    """
    for path in paths:
        before = path.read_text(encoding="utf-8")
        text = canonical(nbformat.reads(before, as_version=4), path)
        if text != before:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"{path.name}: rewritten")


def main():
    commands = {"check": check, "write": write}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    parser.add_argument(
        "files", nargs="*", type=pathlib.Path, help="lessons (default: all)"
    )
    options = parser.parse_args()
    return 1 if commands[options.command](options.files or lessons()) else 0


if __name__ == "__main__":
    sys.exit(main())

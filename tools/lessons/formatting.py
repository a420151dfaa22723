"""Ruff for the code of a lesson: every cell, also one that begins with a %% line of the
course, which Ruff would skip.

`formatted` gives the cells as Ruff writes them, `findings` what it has to say,
`long_lines` how many are too wide.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from nbformat import v4, writes

from course import grammar
from lookup.cell import PRELUDE
from lookup.row import SETUP, TODAY

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 88


def split(source):
    """A cell as its head (lines that begin with %%) and its pieces of code: of a
    %%today cell the old and the new and, where there is one, its set-up.
    """
    head, code = grammar.split(source)
    if "%%today" not in head:
        return head, [code]
    code, *setup = SETUP.split(code)
    return head, [*TODAY.split(code), *setup]


def filled(source):
    """How many lines of a cell hold something."""
    return sum(bool(line.strip()) for line in source.splitlines())


def long_lines(source):
    """How many lines of a cell are too wide; a head, and what %%today announces in
    `#:`, cannot be wrapped.
    """
    lines = grammar.split(source)[1].splitlines()
    return sum(len(line) > COLUMNS and not line.startswith("#:") for line in lines)


def formatted(sources):
    """The code cells of a lesson (sources, in order) as Ruff writes them; as they are
    if it cannot read one of them.
    """
    cells = list(map(split, sources))
    pieces = [piece for _, pieces in cells for piece in pieces]
    options = [f"--line-length={COLUMNS}", "--stdin-filename=lesson.ipynb", "-"]
    done = _ruff("format", *options, input=_notebook(pieces))
    if done.returncode == 0:
        cells_written = json.loads(done.stdout)["cells"]
        pieces = ["".join(cell["source"]) for cell in cells_written]
    left = iter(pieces)
    return [
        head + _joined([next(left).strip("\n") for _ in its_pieces])
        for head, its_pieces in cells
    ]


def _joined(pieces):
    """The pieces of a cell, with the lines that stand between them."""
    between = ["", "\n# ---- today\n", "\n# ---- set-up\n"]
    return "".join(mark + piece for mark, piece in zip(between, pieces, strict=False))


def findings(lesson, sources):
    """What `ruff check` says about a lesson (its name; id → source of its code cells),
    as lines of text.

    A lesson is one program, cell after cell. A %%torchrun cell and the two pieces of a
    %%today cell are programs of their own. [tool.ruff.lint.per-file-ignores] sees them
    as notebooks/LESSON/NAME.ipynb.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder, "notebooks", lesson)
        home.mkdir(parents=True)
        programs = {home / f"{name}.ipynb": cells for name, cells in _programs(sources)}
        for path, cells in programs.items():
            path.write_text(_notebook(cells.values()), encoding="utf-8")
        options = [
            f"--config={ROOT / 'pyproject.toml'}",
            "--extend-ignore=E501",  # `long_lines` counts the long ones
            "--no-cache",
            "--output-format=json",
        ]
        done = _ruff("check", *options, *programs, cwd=folder)
    for found in json.loads(done.stdout):
        cell = list(programs[pathlib.Path(found["filename"])])[found["cell"] - 1]
        where = f"cell {cell}, line {found['location']['row']}"
        yield f"{where}: {found['code']} {found['message']}"


def _programs(sources):
    """The programs that a lesson consists of, as (name, {cell id: code}); heads and
    announcements are comments.
    """
    notebook = {}
    for name, source in sources.items():
        head, pieces = split(source)
        above = "#\n" * head.count("\n")
        if "%%today" in head:
            setup = "\n".join(pieces[2:])
            if setup:
                yield f"{name}-setup", {"prelude": PRELUDE, name: setup}
            for part, code in zip(("old", "new"), pieces, strict=False):
                # what the row announces
                code_alone = re.sub("(?m)^#:.*", "#", code)
                program = {"prelude": PRELUDE, "setup": setup}
                program[name] = above + code_alone
                yield f"{name}-{part}", program
                above += "#\n" * code.count("\n")
        elif "%%torchrun" in head:
            yield name, {name: above + pieces[0]}
            made = [f"{result} = None" for result in grammar.results(head)]
            notebook[name] = "\n".join(made)
        else:
            notebook[name] = above + pieces[0]
    yield "notebook", notebook


def _notebook(sources):
    cells = [v4.new_code_cell(source) for source in sources]
    return writes(v4.new_notebook(cells=cells))


def _ruff(*arguments, **options):
    command = [sys.executable, "-m", "ruff", *map(str, arguments)]
    options = {"capture_output": True, "encoding": "utf-8", **options}
    return subprocess.run(command, **options)

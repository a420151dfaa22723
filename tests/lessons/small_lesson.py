"""A lesson that is small and keeps every rule, and what changes it: the tests of the
rules break it, one by one.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import nbformat

from course import uses
from tools.lessons import notebooks, parts

PATH = Path("99_small.ipynb")
EXERCISES = {
    f"99.{n}": SimpleNamespace(number=f"99.{n}", stars=n, title="A title")
    for n in (1, 2, 3)
}
TEXT = """
[title text]
# Add numbers

BADGES
[setup fold]
# @title Set-up
[recipe]
x = torch.ones(2)
x.sum()
[recipe-text text]
The last line adds: section 1.
[sum text]
## 1 · What is a sum?

A **sum** is a number, other than what
[lesson 02](02_tensors_on_devices.ipynb), section 9, says.
[ask-sum]
predict("99.sum", "The sum will be", "1", "2")
[add]
total = x.sum().item()
reveal("99.sum", f"{total:g}")
[sum-text text]
It is 2, as sections 2 and 4 explain.
[exercise-1-text text]
**99.1** ★ Add.
[exercise-1 exercise]
def add(x):
    return ...


check("99.1", add)
[machine text]
## 2 · What adds?

**Bet.** One part of this picture. Move `end` to 4.
[machine-diagram fold]
# @title Diagram: a machine
plots.diagram("machine")
[draw fold]
# @title Draw a line
def draw(end):
    fig, ax = plots.figure(f"To {end}", about="a model", xlabel="n (1)", ylabel="m (1)")
    return fig, "A line."
[explorer]
plots.explorer(draw, end=3)
[explorer-text text]
The processor.
[gpu text]
## 3 · What else?

**Predict.** Does your machine have a GPU?
[gpu-name]
#| requires: cuda
#| result: small_name
small_name = torch.cuda.get_device_name()
[gpu-text text]
Its name is above.
[exercises text]
## Exercises
[exercise-2-text text]
**99.2** ★★ Add more.
[exercise-2 exercise]
check("99.2", add)
[remember text]
## What to remember

- A sum is a number.

You can stop here. Next: [01 · devices](01_device_detection.ipynb).
[deeper text]
## Deeper
[why text]
## 4 · Why two? (1 minute)
[ask-why]
predict("99.why", "Is it because of 1 + 1?", "yes", "no")
[why-answer]
reveal("99.why", "yes")
[why-text text]
Yes.
[more-exercises text]
## More exercises
[exercise-3-text text]
**99.3** ★★★ Add all.
[exercise-3 exercise]
check("99.3", add)
"""


# "[name tag]", and what stands below it until the next such line
CELL = re.compile(r"^\[([\w-]+) ?(\w*)\]\n(.*?)(?=\n\[[\w-]+ ?\w*\]\n|\Z)", re.M | re.S)


def lesson(path):
    """The small lesson as a notebook, as if it had been executed."""
    nb = nbformat.v4.new_notebook()
    for name, tag, source in CELL.findall(TEXT):
        if tag == "text":
            source = source.replace("BADGES", notebooks.badges(path))
            nb.cells.append(nbformat.v4.new_markdown_cell(source, id=name))
        else:
            made = nbformat.v4.new_code_cell(source, id=name)
            made.metadata[parts.OUTPUTS_OF] = uses.source_key(source)
            if tag:
                made.metadata.tags = [tag]
            nb.cells.append(made)
    return nb


def breaker(folder, monkeypatch):
    """broken(change): problems of the small lesson after change(notebook), in canonical
    form.
    """
    monkeypatch.setattr(notebooks, "lesson_exercises", lambda number: EXERCISES)
    path = folder / PATH

    def problems(change, write=notebooks.canonical):
        nb = lesson(path)
        change(nb)
        path.write_text(write(nb, path), encoding="utf-8")
        return "\n".join(notebooks.problems(path))

    problems.path = path
    return problems


# --------------------------------------------------------------------------------------
# Changes


def cell(nb, cell_id):
    return next(c for c in nb.cells if c.id == cell_id)


def code(cell_id, source):
    return lambda nb: setattr(cell(nb, cell_id), "source", source)


def replace(cell_id, old, new):
    def change(nb):
        assert old in cell(nb, cell_id).source
        cell(nb, cell_id).source = cell(nb, cell_id).source.replace(old, new)

    return change


def drop(cell_id):
    return lambda nb: nb.cells.remove(cell(nb, cell_id))


def move(cell_id, place):
    """Move a cell; place: its number afterwards."""
    return lambda nb: nb.cells.insert(
        place, nb.cells.pop(nb.cells.index(cell(nb, cell_id)))
    )


def tag(cell_id, *tags):
    return lambda nb: cell(nb, cell_id).metadata.update(tags=list(tags))


def output(output_type, *cell_ids, **fields):
    """Add an output to cells, by default to the one that adds."""

    def change(nb):
        for cell_id in cell_ids or ["add"]:
            cell(nb, cell_id).outputs.append(
                nbformat.from_dict({"output_type": output_type, **fields})
            )

    return change

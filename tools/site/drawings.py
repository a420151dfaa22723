"""Pictures of a lesson's explorer, drawn by the lesson itself: its explorer runs in a
kernel, after the cells that it needs, and draws every setting of the page, not one.

Cells that need hardware replay what was recorded, also where this machine has it: a
page shows the same wherever it is made.
"""

import ast
import gc
import gzip
import io
import itertools
import json
import os
import pathlib
import random
import re
from typing import NamedTuple

import nbformat

from course import grammar, needs, plots, uses
from tools.lessons import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFINITIONS = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef
PREPARE = """import functools, sys
sys.path.insert(0, {root!r})
from tools.site import drawings
drawings.prepare(functools.partial(drawings.keep, {grid!r}, {path!r}))
"""


def lesson_path(number):
    return next((ROOT / "notebooks").glob(f"{number}_*.ipynb"))


def explorer_cells(number):
    """The code cell of a lesson with its explorer, after what it needs: the set-up cell
    and those that make the names that it uses. Of cells that only import or define
    them, no more than that.
    """
    nb = nbformat.read(lesson_path(number), as_version=4)
    setup = next(cell for cell in nb.cells if cell.id == "setup")
    sources = [cell.source for cell in uses.code_cells(nb.cells)]
    last = next(n for n, text in enumerate(sources) if "plots.explorer(" in text)
    texts, whole = {}, [last]
    while whole:
        n = whole.pop()
        texts[n] = sources[n]
        for cell, places in uses.needed(sources, n).items():
            if texts.get(cell) == sources[cell]:
                continue
            if definitions := only_definitions(sources[cell], places):
                texts[cell] = f"{texts.get(cell, '')}\n{definitions}"
            else:
                whole.append(cell)
    return [setup.source, *(texts[n] for n in sorted(texts))]


def only_definitions(source, places):
    """Those statements of a cell, if all of them import, or define a function or class;
    else "". A statement may change what another made.
    """
    head, text = grammar.split(source)
    if grammar.header(source) or "%%" in head:  # for hardware, or a program of its own
        return ""
    lines, nodes = text.splitlines(), ast.parse(text).body
    kept = []
    for node in (nodes[place] for place in places):
        if not isinstance(node, DEFINITIONS):
            return ""
        first = min(x.lineno for x in (node, *getattr(node, "decorator_list", ())))
        kept += lines[first - 1 : node.end_lineno]
    return "\n".join(kept)


def run_lesson(number, grid, path):
    """Run a lesson's explorer, and keep what that draws in `path`. grid: as for
    `values`.
    """
    prepare = PREPARE.format(root=str(ROOT), grid=grid, path=str(path))
    code = [prepare, *explorer_cells(number)]
    cells = [nbformat.v4.new_code_cell(source) for source in code]
    nb = nbformat.v4.new_notebook(cells=cells)
    # no picture shows a time of this run, so few samples will do
    env = {"CUDA_VISIBLE_DEVICES": "", "LAB_UNTIMED": "1"}
    run.execute(nb, ROOT / "notebooks", env=env)


def prepare(keep):
    """In a lesson's kernel: give `keep` what its explorer gets, a function and a
    dictionary of controls, and let this machine have no hardware.
    """
    for name in filter(re.compile("missing_").match, dir(needs)):
        setattr(needs, name, lambda count=1: "hardware that a page does not have")
    plots.explorer = lambda draw, **controls: keep(draw, controls)


def choices(control):
    """All values of an ipywidgets control as {value: the text that it shows}; none of a
    field for any number.
    """
    if hasattr(control, "options"):
        return {value: text for text, value in control._options_full}
    if isinstance(control.value, bool):
        return {False: "no", True: "yes"}
    if not hasattr(control, "max"):
        return {}
    steps = range(round((control.max - control.min) / control.step) + 1)
    values = [control.min + n * control.step for n in steps]
    if hasattr(control, "base"):  # a logarithmic slider
        values = [control.base**value for value in values]
    kind = type(control.value)
    return {kind(round(value, 9)): f"{value:.4g}" for value in values}


class Drawing(NamedTuple):
    """One setting of an explorer.

    svg: as matplotlib writes it
    alt: the text alternative
    head: the two lines above the panels, the finding and where it is from
    cuts: between the panels, in points from the left
    """

    svg: str
    alt: str
    head: list
    cuts: list


def drawn(draw, setting):
    """The Drawing of one setting. setting: values by name of control."""
    import matplotlib

    fig, alt = draw(**setting)
    plots._finish(fig)
    text = io.StringIO()
    options = {
        "svg.fonttype": "none",
        "svg.hashsalt": "explorer",
        "font.monospace": ["DejaVu Sans Mono"],  # then any that a system has
    }
    with matplotlib.rc_context(options):
        fig.savefig(text, format="svg", metadata={"Date": None})
    head = [line.get_text() for line in fig.texts]
    return Drawing(text.getvalue(), plots._alternative(fig, alt), head, cuts(fig))


def cuts(fig):
    """Where a figure can be cut between its panels: points from the left, left of the
    labels of each panel but the first.
    """
    boxes = sorted(ax.get_tightbbox().x0 for ax in fig.axes)
    return [round(left / fig.dpi * 72) - 3 for left in boxes[1:]]


# What nobody sees: the lines before <svg>, metadata, comments, names of groups, blanks
# between tags; and what explorer.css says once: a style sheet, which would change the
# whole page, and the font of all words but those in 'DejaVu Sans Mono'.
UNSEEN = re.compile(
    r"(?s)\A.*?(?=<svg)|<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->"
    r"""|(?<=<g) id="[^"]*"|(?<=>)\s+(?=<)|font-family: 'DejaVu Sans'[^;"]*(; )?"""
)


def slim(svg):
    """A drawing of matplotlib without what nobody sees; of coordinates, in points of a
    bit more than a pixel each, two decimals are kept.
    """

    def rounded(number):
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    return re.sub(
        "<[^>]+>",  # a tag: the words between tags stay as they are
        lambda tag: re.sub(r"-?\d+\.\d{3,}(e-?\d+)?", rounded, tag[0]),
        UNSEEN.sub("", svg),
    )


def values(grid, controls):
    """Of each control of an explorer the values at which it stands in the page. grid:
    of those that have not all.
    """
    return {
        name: grid.get(name) or list(choices(control))
        for name, control in controls.items()
    }


def settings(values):
    """All settings of an explorer, in the order of its pictures: the last control runs
    fastest.
    """
    every = itertools.product(*values.values())
    return [dict(zip(values, choice, strict=True)) for choice in every]


def described(name, control, here):
    """A control for the page: its label, its kind, the texts of its positions, and
    which is the first. here: the values at which it stands.
    """
    texts, kind = choices(control), "select"
    if isinstance(control.value, bool):
        kind = "checkbox"
    elif "Slider" in type(control).__name__:
        kind = "range"
    shown = [texts[value] if value in texts else f"{value:.4g}" for value in here]
    at, label = here.index(control.value), control.description or name
    return {"label": label, "kind": kind, "first": at, "texts": shown}


def keep(grid, path, draw, controls):
    """What a lesson's explorer does in its kernel: draw all settings of its page, and
    write them to `path` (`pack`). What tests need stands beside it, in `path`.json: all
    that its controls can be, its first picture as a notebook shows it, and by chance
    some drawings as they were before they were packed.
    """
    here = values(grid, controls)
    every = settings(here)
    gc.freeze()
    gc.disable()  # while there is nothing to find: a sixth of the time
    found = [drawn(draw, setting) for setting in every]
    gc.enable()
    first = every.index({name: each.value for name, each in controls.items()})
    some = {first, *random.sample(range(len(every)), min(20, len(every)))}
    whole = {
        "choices": {name: list(choices(controls[name])) for name in here},
        "values": here,
        "first": first,
        "png": plots._png(draw(**every[first])[0]),
        "drawings": {at: found[at] for at in sorted(some)},
    }
    path = pathlib.Path(path)
    for old in path.parent.glob(f"{path.name.partition('-')[0]}-*"):
        old.unlink()
    path.with_name(f"{path.name}.json").write_text(json.dumps(whole), encoding="utf-8")
    described_here = {
        name: described(name, each, here[name]) for name, each in controls.items()
    }
    # whole or not at all, also where two draw at once
    part = path.with_name(f"{os.getpid()}")
    part.write_bytes(pack(described_here, found))
    part.replace(path)


def pack(controls, found):
    """What the page of a lesson shows, as JSON, compressed.

    controls: as `described`. found: the Drawing of each setting, in their order. Each
    different tag, with the words behind it, stands once in `tags`; a picture is a list
    of places there. With that the pictures take half as much as by compression alone.
    """
    tags, pictures = {}, []
    for drawing in found:
        # each begins with a tag
        parts = re.findall("<[^<]+", slim(drawing.svg))
        pictures.append([tags.setdefault(part, len(tags)) for part in parts])
    content = {
        "controls": controls,
        "tags": list(tags),
        "pictures": pictures,
        "alts": [drawing.alt for drawing in found],
        "heads": [drawing.head for drawing in found],
        "cuts": [drawing.cuts for drawing in found],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)

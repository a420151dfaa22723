"""Pictures of a lesson's explorer, drawn by the lesson's own code without running the
lesson.

Of a lesson run only the statements that its explorer needs, found by following names
backwards: to run all would take minutes a lesson, and the pictures would show what this
machine measures or has. What a device has measured is replayed as the lesson does it;
nothing is measured here.
"""

import ast
import contextlib
import functools
import gc
import io
import pathlib
import re
from typing import NamedTuple
from unittest import mock

import nbformat

from course import cells, grammar, plots, provenance, recordings
from tools.lessons import parts

ROOT = pathlib.Path(__file__).resolve().parents[2]

# --------------------------------------------------------------------------------------
# What of a lesson has to run


class Statement(NamedTuple):
    """A statement of a cell, or (node None) a whole cell whose result is replayed."""

    node: ast.stmt | None
    source: str
    header: grammar.Header | None
    reads: set  # names
    makes: set
    changes: set  # what is there already, such as a list that gets one element more


DEFINITION = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
# what these make may have been there before
ADDS = ast.For | ast.If | ast.With | ast.AugAssign


def lesson_path(number):
    return next((ROOT / "notebooks").glob(f"{number}_*.ipynb"))


def explorer_cells(number):
    """Sources of the code cells of a lesson, up to the one with its explorer."""
    nb = nbformat.read(lesson_path(number), as_version=4)
    sources = [cell.source for cell in parts.code_cells(nb)]
    last = next(n for n, source in enumerate(sources) if "plots.explorer(" in source)
    return sources[: last + 1]


def needed(number):
    """The Statements that the explorer of a lesson needs, in their order, and the
    header of its cell (or None).

    From the explorer's cell upwards, a statement is needed that makes or changes a name
    that is wanted below it; then what it reads is wanted above it. A function reads its
    names when it is called, so these are wanted at the end: another round begins with
    them.
    """
    lists = [statements(source) for source in explorer_cells(number)]
    every = [statement for found in lists for statement in found]
    defined = {
        name
        for statement in every
        if isinstance(statement.node, DEFINITION)
        for name in statement.makes
    }
    chosen = set(range(len(every) - len(lists[-1]), len(every)))
    at_the_end, before = set(), None
    while at_the_end != before:
        before, wanted = set(at_the_end), set(at_the_end)
        for place in reversed(range(len(every))):
            statement = every[place]
            makes, reads = statement.makes, statement.reads
            # a call of a module's function, `plots.show(…)`, does not change the module
            touches = makes | (statement.changes - defined)
            if place not in chosen and not touches & wanted:
                continue
            chosen.add(place)
            if not isinstance(statement.node, ADDS):
                wanted -= makes
            if isinstance(statement.node, ast.FunctionDef):
                at_the_end |= reads
            else:
                wanted |= reads
    return [every[place] for place in sorted(chosen)], lists[-1][0].header


def statements(source):
    """The Statements of a cell; none where it is no Python (%%torchrun, %%today)."""
    header = grammar.header(source)
    if header and not header.word.startswith("result:"):
        makes = {header.result} if header.result else set()
        return [Statement(None, source, header, set(), makes, set())]
    body = grammar.body(source)
    try:
        nodes = ast.parse(body).body
    except SyntaxError:
        return []
    return [
        statement_of(node, ast.get_source_segment(body, node), header) for node in nodes
    ]


def statement_of(node, source, header):
    reads, makes = cells._names(ast.unparse(node))
    changes = set()
    if isinstance(node, ast.AugAssign):
        reads = reads | makes
    if isinstance(node, ast.For):  # sets its own variables before it reads them
        reads = reads - cells._names(ast.unparse(node.target))[0]
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript | ast.Attribute):
                if not isinstance(part.ctx, ast.Load):  # name[0] = …
                    changes.add(root(part))
            elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
                if isinstance(part.value.func, ast.Attribute):  # name.append(…)
                    changes.add(root(part.value.func))
    return Statement(node, source, header, reads, makes, changes - {None})


def root(node):
    """The name that an expression such as `name[0].part` begins with, or None."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


# --------------------------------------------------------------------------------------
# Run it


class Explorer(NamedTuple):
    """What a lesson gives plots.explorer, and the result that the header of its cell
    names (or None).
    """

    draw: object
    controls: dict
    result: str | None


@functools.cache
def load(number):
    """The Explorer of a lesson. Runs the statements that it needs, in a namespace of
    their own.
    """
    chosen, header = needed(number)
    names = {"__name__": f"lesson_{number}"}
    provenance.running[:] = [header and header.result]
    with (
        mock.patch.object(plots, "explorer") as explorer,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        for statement in chosen:
            run(statement, names)
    (draw,), controls = explorer.call_args
    return Explorer(draw, controls, header and header.result)


def run(statement, names):
    header = statement.header
    # also where this machine has the hardware: a page shows what was recorded
    if statement.node is None:
        source = grammar.source_hash(statement.source)
        recordings.replay(
            header.name, f"`{header.word}`", source, names, header.timeless
        )
    elif header is None or cells.missing(header.word, names) is None:
        exec(compile(ast.Module([statement.node], []), "lesson", "exec"), names)


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

    svg: as matplotlib writes it, or `slim`
    alt: the text alternative
    head: the two lines above the panels, the finding and where it is from
    cuts: between the panels, in points from the left
    """

    svg: str
    alt: str
    head: list
    cuts: list


def drawn(number, setting):
    """The Drawing of one setting.

    number: of the lesson, "05". setting: values by name of control.
    """
    import matplotlib

    explorer = load(number)
    provenance.running[:] = [explorer.result]
    fig, alt = explorer.draw(**setting)
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


def drawings(number, settings):
    """The Drawings of some settings, for a page: the work of a process."""
    load(number)
    gc.freeze()
    gc.disable()  # while there is nothing to find: a sixth of the time
    done = [drawn(number, setting) for setting in settings]
    gc.enable()
    return [each._replace(svg=slim(each.svg)) for each in done]


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

"""Pictures of a lesson's explorer, drawn by the lesson's own code without running the
lesson.

Of a lesson run only the statements that its explorer needs, found by following names
backwards. What a device has measured is replayed as the lesson does it; nothing is
measured here. A picture becomes a tree of SVG elements, and a list of pictures becomes
a list in which each different element stands once.
"""

import ast
import contextlib
import functools
import gc
import html
import io
import itertools
import json
import math
import pathlib
import re
from typing import NamedTuple
from unittest import mock
from xml.etree import ElementTree

from utils import cells, grammar, plots, provenance, recordings

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What the lesson measures on the reader's machine has no value here. What would be
# drawn from it is left out of GRID.
GIVEN = {
    "04": {"memory": math.nan, "best": math.nan, "all_threads": None, "sizes": []},
    "09": {"this_cpu": {"rate": math.nan, "bandwidth": math.nan}},
}

# --------------------------------------------------------------------------------------
# What of a lesson has to run


class Statement(NamedTuple):
    """A statement of a cell, or (node None) a whole cell whose result is replayed."""

    node: ast.stmt | None
    source: str
    header: grammar.Header | None
    reads: set
    makes: set
    changes: set


# Calls by bare name that leave what they are given as it is.
SPEAK = {"print", "claim", "reveal", "predict", "check", "display", "len"}


def lesson_path(number):
    return next((ROOT / "notebooks").glob(f"{number}_*.ipynb"))


def explorer_cells(number):
    """The code cells of a lesson up to the one with its explorer, as a list of sources."""
    nb = json.loads(lesson_path(number).read_text(encoding="utf-8"))
    sources = [
        "".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == "code"
    ]
    last = next(n for n, source in enumerate(sources) if "plots.explorer(" in source)
    return sources[: last + 1]


def needed(number):
    """The Statements that the explorer of a lesson needs, in their order, and the
    header of its cell (or None).
    """
    *before, last = [_statements(source) for source in explorer_cells(number)]
    statements, given = [*itertools.chain(*before), *last], set(GIVEN.get(number, ()))
    wanted = set(range(len(statements) - len(last), len(statements)))
    work = list(wanted)
    while work:
        place = work.pop()
        statement = statements[place]
        # reads when it is called: what the names mean in the end
        later = isinstance(statement.node, ast.FunctionDef)
        for name in statement.reads - given:
            end = len(statements) if later else place
            found = _made(statements, name, end, given) - wanted
            wanted |= found
            work += found
    return [statements[place] for place in sorted(wanted)], last[0].header


def _made(statements, name, end, given):
    """Where before `end` a name comes from: the last statement that makes it, and those
    that change it.
    """
    found = set()
    for place in range(end - 1, -1, -1):
        statement = statements[place]
        if name in statement.makes and not statement.makes & given:
            if isinstance(
                statement.node,
                ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef,
            ):
                return {place}  # calls of a module's functions do not change it
            found.add(place)
            if not isinstance(
                statement.node, ast.For | ast.If | ast.With | ast.AugAssign
            ):
                return found
        elif name in statement.changes:
            found.add(place)
    # a name of Python itself; or of nobody: then the statement fails, and says so
    return set()


def _statements(source):
    header = grammar.header(source)
    if header and not header.word.startswith("result:"):
        return [Statement(None, source, header, set(), {header.result} - {None}, set())]
    body = grammar.body(source)
    try:
        nodes = ast.parse(body).body
    except SyntaxError:
        return []  # a cell in another language: %%torchrun, %%today
    return [
        _statement(node, ast.get_source_segment(body, node), header) for node in nodes
    ]


def _statement(node, source, header):
    reads, makes = cells._names(ast.unparse(node))
    if isinstance(node, ast.AugAssign):
        reads = reads | makes
    changes = set()
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript | ast.Attribute) and not isinstance(
                part.ctx, ast.Load
            ):
                changes.add(_root(part))
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
                call = part.value
                if isinstance(call.func, ast.Attribute):
                    changes.add(_root(call.func))
                elif _root(call.func) not in SPEAK:
                    changes |= {_root(argument) for argument in call.args}
    return Statement(node, source, header, reads, makes, changes - {None})


def _root(node):
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
    statements, header = needed(number)
    names = {"__name__": f"lesson_{number}", **GIVEN.get(number, {})}
    provenance.running[:] = [header and header.result]
    with (
        mock.patch.object(plots, "explorer") as explorer,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        for statement in statements:
            _run(statement, names)
    (draw,), controls = explorer.call_args
    return Explorer(draw, controls, header and header.result)


def _run(statement, names):
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


def drawn(number, setting):
    """One setting, as (SVG as matplotlib writes it, text alternative). setting: values
    by name of control.
    """
    import matplotlib

    explorer = load(number)
    provenance.running[:] = [explorer.result]
    fig, alt = explorer.draw(**setting)
    plots._finish(fig)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "explorer"}):
        fig.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue(), plots._alternative(fig, alt)


def drawings(number, settings):
    """For some settings the elements of the picture and the text alternative: the work
    of a process.
    """
    load(number)
    gc.freeze()
    gc.disable()  # while there is nothing to find: a sixth of the time
    done = [drawn(number, setting) for setting in settings]
    gc.enable()
    return [(elements(svg), alt) for svg, alt in done]


# --------------------------------------------------------------------------------------
# Each different element once

FONT = "DejaVu Sans,Verdana,sans-serif"


def elements(svg):
    """A drawing of matplotlib as nested tuples: ("<tag …>", part, part, …) for a group,
    text for any other element.

    Dropped is what nobody sees: metadata, comments, names of groups, decimals, groups
    of one element.
    """
    root = ElementTree.fromstring(
        re.sub(r"(?s)<metadata>.*?</metadata>|<style.*?</style>", "", svg)
    )
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
        if element.tag == "g":
            element.attrib.pop("id", None)
    root.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": root.get("viewBox"),
        "font-family": FONT,
        "style": "stroke-linejoin:round;stroke-linecap:butt",
    }
    return _group(root)


def _local(name):
    return name.rpartition("}")[2]


def _group(element):
    parts = []
    for child in element:
        part = _group(child) if child.tag == "g" else _element(child)
        if part[0] == "<g>" and len(part) <= 2:
            parts += part[1:]
        elif part != "<defs/>":
            parts.append(part)
    return (_opening(element) + ">", *parts)


def _element(element):
    inner = "".join(map(_element, element))
    words = element.text or ""
    if words.strip():
        inner = html.escape(words.strip("\n"), quote=False) + inner
    return (
        f"{_opening(element)}>{inner}</{element.tag}>"
        if inner
        else f"{_opening(element)}/>"
    )


def _opening(element):
    """The tag of an element with its attributes, but for its end."""
    clean = {"style": _style, "d": _path, "transform": _transform}
    text = f"<{element.tag}"
    for name, value in element.attrib.items():
        value = clean.get(name, _rounded)(value)
        if value:
            # '…': JSON would write \" for each "
            text += f" {name}='{html.escape(value)}'"
    return text


def _transform(text):
    return re.sub(r"rotate\(-?0 [^)]*\)", "", _rounded(text)).strip()


def _style(style):
    # the root has it
    style = re.sub(r"font-family: 'DejaVu Sans'[^;]*(;|$)", "", style)
    style = re.sub(
        r"font-family: 'DejaVu Sans Mono'[^;]*",
        "font-family: DejaVu Sans Mono,monospace",
        style,
    )
    return re.sub(r"([:;]) ", r"\1", style).strip("; ")


def _rounded(text):
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda found: _number(float(found[0])), text)


def _number(value):
    """A coordinate in points, a bit more than a pixel each, as text: at most a
    twentieth of one off. The small ones keep two decimals, because the shapes of marks
    consist of them.
    """
    text = f"{value:.{2 if abs(value) < 10 else 1}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _path(data):
    """A path with rounded coordinates; a line along an axis as H or V."""
    out, at = "", None
    for letter, numbers in re.findall(r"([MLCQz])([^MLCQz]*)", data):
        points = [_number(float(number)) for number in numbers.split()]
        if letter == "L" and at and points[1] == at[1]:
            out += f"H{points[0]}"
        elif letter == "L" and at and points[0] == at[0]:
            out += f"V{points[1]}"
        else:
            out += letter + " ".join(points)
        at = points[-2:] or at
    return out


NUMBER = re.compile(r"(?<=[A-Z '(>])-?\d+(\.\d+)?")
HOLE = "¤"


def pack(pictures):
    """Element trees as {"forms", "elements", "pictures"}: each different element stands
    once in a list.

    An element is text, "number of its form, numbers for the holes of the form", or a
    group, [opening, numbers of its parts], each number as its difference from the one
    before. pictures: the number of each one's root.
    """
    known, elements, forms = {}, [], {}

    def add(part):
        if isinstance(part, str):
            assert HOLE not in part, part
            form = forms.setdefault(NUMBER.sub(HOLE, part), len(forms))
            entry = " ".join(
                [str(form), *(found[0] for found in NUMBER.finditer(part))]
            )
        else:
            numbers = [0, *map(add, part[1:])]
            entry = (
                part[0],
                *(after - before for before, after in itertools.pairwise(numbers)),
            )
        if entry not in known:
            known[entry] = len(elements)
            elements.append(entry)
        return known[entry]

    roots = [add(picture) for picture in pictures]
    return {"forms": list(forms), "elements": elements, "pictures": roots}


def unpack(packed, number):
    """The SVG of the element `number`; docs/_static/explorer.js does the same."""
    entry = packed["elements"][number]
    if isinstance(entry, str):
        place, *numbers = entry.split(" ")
        form = packed["forms"][int(place)]
        for value in numbers:
            form = form.replace(HOLE, value, 1)
        return form
    opening, *steps = entry
    inner = "".join(unpack(packed, part) for part in itertools.accumulate(steps))
    return opening + inner + ("</svg>" if opening.startswith("<svg") else "</g>")

"""The parts of a lesson. What stands before the heading `## Deeper` is the core."""

import ast
import re

from course import grammar, uses

COLUMNS = 88
# in a code cell's metadata: the key (course/uses.py) of the code that gave its outputs
OUTPUTS_OF = "outputs_of"
# a heading: its level, its words, and the minutes that one below `## Deeper` says
HEADING = re.compile(r"^(#+) (.+?)(?: \((\d+) minutes?\))?$", re.M)


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def text_of(nb):
    return "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def without_code(text):
    """A Markdown text without what it shows as code."""
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)


def with_older_outputs(nb):
    """Ids of the code cells that have not run since their code was changed."""
    return [
        cell.id
        for cell in uses.code_cells(nb.cells)
        if cell.source and cell.metadata.get(OUTPUTS_OF) != uses.source_key(cell.source)
    ]


def clear_outputs(nb):
    """Take the outputs out of a lesson, as its reader gets it first."""
    for cell in code_cells(nb):
        cell.update(outputs=[], execution_count=None)


def folded(cell):
    return "fold" in cell.metadata.get("tags", [])


def is_stub(cell):
    """Whether a cell is the stub of an exercise."""
    return "exercise" in cell.metadata.get("tags", [])


def filled(source):
    """How many lines of a cell hold something."""
    return sum(bool(line.strip()) for line in source.splitlines())


def long_lines(source):
    """How many lines of a cell are too wide; a head, and what %%today announces in
    `#:`, cannot be wrapped.
    """
    lines = grammar.split(source)[1].splitlines()
    return sum(len(line) > COLUMNS and not line.startswith("#:") for line in lines)


def is_row(cell):
    """Whether a cell is a row of lesson 16, or the cell that readers paste into."""
    return cell.cell_type == "code" and "%%today" in grammar.pieces(cell.source)[0]


def checks(cell):
    """Numbers of the exercises that a stub checks; of other cells none."""
    if not is_stub(cell):
        return []
    return re.findall(r'^check\("([\d.]+)"', cell.source, re.M)


def title_of(cell):
    """What the line `# @title …` of a code cell says, or None: its first line, or the
    first below a line with %%.
    """
    first = grammar.pieces(cell.source)[1][0]
    found = re.match("# ?@title (.*)", first)
    return found and found[1]


def heading(cell):
    """A cell's heading without its ##, "" if it does not begin with one."""
    if cell.cell_type != "markdown" or not cell.source.startswith("## "):
        return ""
    return cell.source.split("\n")[0][3:].strip()


def core_and_deeper(nb):
    """The cells before the heading `## Deeper`, and those from it on."""
    for place, cell in enumerate(nb.cells):
        if re.match(r"Deeper\b", heading(cell)):
            return nb.cells[:place], nb.cells[place:]
    return nb.cells, []


def sections(cells):
    """[(heading, cells)] of the sections of a lesson; what stands above the first is
    left out.
    """
    found = []
    for cell in cells:
        if heading(cell):
            found.append((heading(cell), []))
        if found:
            found[-1][1].append(cell)
    return found


def nodes(cell):
    """All nodes of the syntax tree of a code cell."""
    for piece in grammar.pieces(cell.source)[1]:
        try:
            tree = ast.parse(piece)
        except SyntaxError:  # a line magic, or what Ruff reports
            continue
        yield from ast.walk(tree)


def calls(cell, *names):
    """Calls of the functions `names` ("predict", "plots.explorer") in a code cell, as
    nodes of its syntax tree.
    """
    for node in nodes(cell):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
            yield node

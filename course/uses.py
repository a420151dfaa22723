"""What a cell does: its code, and what that code uses from the cells above it.

A recording (course/recordings.py) is valid as long as both are what they were. So it
keeps a key in two parts, each compared by itself:

    {"source": HASH of the cell's code, "uses": {NAME: HASH of what makes NAME}}

`uses` has the names that the cell reads and a cell above makes by a function, a class
or an assignment, and those that they read in turn. Neither comments, titles, options,
formatting nor docstrings count, nor from which module of the course a name is imported.
The set-up cell does not count, nor what is changed in place (`model.train()`,
`x[0] = 1`), nor the packages and scripts that a lesson imports or starts. A result is
like any name: the statement that measures it makes it. %%torchrun and %%today cells are
programs of their own: they use nothing, and a change of their magic counts.

A kernel knows which cells a reader has run, but not where in the lesson they stand: a
name that two cells make, or a helper that was left out because a recording needs none,
would look like a change. So there the running cell gives `source`, and the committed
lesson `uses`.

The same on every Python: from the syntax tree, of which only what is set is written.
"""

import ast
import functools
import hashlib
import re
from collections import defaultdict
from typing import NamedTuple

from course import grammar
from course.names import names_of

# PyTorch's modules count: torch.cuda.amp.autocast is not torch.amp.autocast
PYTORCH = re.compile(r"torch(_xla|_tpu)?(\.|$)")
IMPORTS = ast.Import | ast.ImportFrom
DOCUMENTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Statement(NamedTuple):
    """One statement at the top of a cell; or a whole cell, where that is a program of
    its own or no Python.
    """

    code: str  # "" of an import
    imported: frozenset = frozenset()  # what it imports, as text
    makes: frozenset = frozenset()  # names
    reads: frozenset = frozenset()  # names that it reads when it runs,
    reads_later: frozenset = frozenset()  # when a function that it makes is called


# --------------------------------------------------------------------------------------
# Keys


def keys(cells) -> dict:
    """The keys of the code cells of a lesson, but for its set-up cell, by cell id.
    cells: all its cells, from nbformat or from JSON.
    """
    code = code_cells(cells)
    sources = ["".join(cell["source"]) for cell in code]
    return {
        cell["id"]: {"source": source_key(source), "uses": _uses(sources, n)}
        for n, (cell, source) in enumerate(zip(code, sources, strict=True))
    }


def code_cells(cells) -> list:
    """The code cells of a lesson but for its set-up cell."""
    return [
        cell for cell in cells if cell["cell_type"] == "code" and cell["id"] != "setup"
    ]


def source_key(source: str) -> str:
    """Hash of what a cell alone does."""
    head, pieces = grammar.pieces(source)
    magics = [line for line in head.splitlines() if not line.startswith("#|")]
    code = [_code(_statements(piece)) for piece in pieces]
    return _hash([*magics, "\n---\n".join(code)])


def changed(recorded: dict, now: dict) -> str:
    """What has changed from one key to another, as half a sentence; "" if nothing."""
    if recorded["source"] != now["source"]:
        return "the cell has changed"
    before, after = recorded.get("uses", {}), now["uses"]
    names = sorted(before.keys() | after.keys())
    other = [f"`{name}`" for name in names if before.get(name) != after.get(name)]
    if not other:
        return ""
    return f"what the cell uses from above ({', '.join(other)}) has changed"


def needed(sources: list[str], n: int) -> dict[int, list[int]]:
    """Which of the cells above the n-th make what it uses, imports among it: cell →
    those of its statements that do. Both in order.
    """
    statements = [
        (cell, place)
        for cell, source in enumerate(sources[:n])
        for place, _ in enumerate(_of_cell(source))
    ]
    makers, found = _makers(*_above(sources, n)).values(), defaultdict(list)
    for place in sorted({place for places in makers for place in places}):
        cell, statement = statements[place]
        found[cell].append(statement)
    return dict(found)


def _uses(sources, n):
    statements, first = _above(sources, n)
    hashes = {}
    for name, places in sorted(_makers(statements, first).items()):
        makers = [statements[place] for place in sorted(places)]
        if any(maker.code for maker in makers):  # not only imports
            hashes[name] = _hash([_code(makers)])
    return hashes


def _above(sources, n):
    """The statements of the cells up to the n-th; place of the first of this."""
    above = [each for source in sources[:n] for each in _of_cell(source)]
    return [*above, *_of_cell(sources[n])], len(above)


def _makers(statements, first):
    """Which statements make what those from `first` on use: {name: places}. Of several
    that make a name the last counts.
    """
    makers, seen = defaultdict(set), set()

    def look(name, place):
        above = reversed(range(place))
        maker = next((at for at in above if name in statements[at].makes), None)
        if maker is None or (name, maker, place) in seen:
            return
        seen.add((name, maker, place))
        if maker < first:
            makers[name].add(maker)
        look_all(maker, place)

    def look_all(maker, called):
        for name in statements[maker].reads:
            look(name, maker)
        for name in statements[maker].reads_later:
            look(name, called)

    for place in range(first, len(statements)):
        look_all(place, len(statements))
    return makers


# --------------------------------------------------------------------------------------
# Code


def _hash(texts):
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _code(statements):
    """Statements as text that depends on neither their form nor the Python. What they
    import stands behind, in order.
    """
    imported = {name for statement in statements for name in statement.imported}
    code = [statement.code for statement in statements if statement.code]
    return "\n".join([*code, *sorted(imported)])


@functools.cache
def _of_cell(source):
    """The statements of a cell, for the cells below it."""
    head, pieces = grammar.pieces(source)
    if "%%" in head:
        made = frozenset(grammar.results(source))
        return [Statement(source_key(source), makes=made)]
    return _statements(pieces[0])


@functools.cache
def _statements(text):
    """The statements of a piece of code; as one, where it is no Python."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:  # a line magic, `!command`
        return [Statement(grammar.untitled(text).strip())]
    return [_statement(node) for node in nodes]


def _statement(node):
    names = names_of(node)
    imported = {name for each in ast.walk(node) for name in _imported(each)}
    return Statement(
        "" if isinstance(node, IMPORTS) else _dump(node),
        frozenset(imported),
        frozenset(names.made),
        frozenset(names.read),
        frozenset(names.read_later),
    )


def _imported(node):
    """What an import statement brings, as text."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        place = f"{module}." if PYTORCH.match(module) else ""
        return [f"{place}{each.name} as {each.asname}" for each in node.names]
    return list(map(_module, node.names)) if isinstance(node, ast.Import) else []


def _module(alias):
    if alias.asname is None:
        return alias.name
    place = alias.name if PYTORCH.match(alias.name) else ""
    return f"{place} as {alias.asname}"


def _dump(value):
    """A piece of a syntax tree as text: what is not set, in this Python or any other,
    is left out.
    """
    if isinstance(value, list):
        items = [each for each in value if not isinstance(each, IMPORTS)]
        return f"[{', '.join(map(_dump, items))}]"
    if isinstance(value, ast.Constant):
        return ascii(value.value)  # what is printable depends on the Python
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = dict(ast.iter_fields(value))
    fields.pop("ctx", None)
    if _has_docstring(value):
        fields["body"] = value.body[1:]
    if isinstance(value, ast.JoinedStr):  # Python 3.12 has empty texts in f-strings
        fields["values"] = [each for each in value.values if not _is_empty(each)]
    filled = [
        f"{name}={_dump(field)}"
        for name, field in fields.items()
        if field is not None and field != []
    ]
    return f"{type(value).__name__}({', '.join(filled)})"


def _is_empty(node):
    return isinstance(node, ast.Constant) and node.value == ""


def _has_docstring(node):
    return isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None

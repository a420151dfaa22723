"""What Sphinx's general index says of lessons: which section uses or explains a public
name of torch, torch_xla, torch_tpu or accelerate, and what is written today in place of
one.

    entries(notebooks) -> {(stem, id of a cell): ["!single: torch.cuda.Stream; 05 · …"]}

Each lesson leads to the first section whose text says the name, else to the first whose
code does. `!`: where texts of the course say it most; Sphinx's search puts it first.
"""

import ast
import functools
import importlib
import pathlib
import re
import types
import warnings
from collections import Counter

from course import grammar
from course.grammar import pieces as split
from course.old_code import cell as today

ROOTS = ("torch", "torch_xla", "torch_tpu", "accelerate")
# what texts and cells call modules and classes, also without an import
ALIASES = {
    **{root: root for root in ROOTS},
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "dist": "torch.distributed",
    "xm": "torch_xla.core.xla_model",
    "xr": "torch_xla.runtime",
    "xs": "torch_xla.distributed.spmd",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "met": "torch_xla.debug.metrics",
    "Tensor": "torch.Tensor",
    "DataLoader": "torch.utils.data.DataLoader",
}
MODULES = ("nn", "F", "dist", "xm", "xr", "xs", "xmp", "met")
SHORT = {ALIASES[short]: short for short in MODULES}
# A method of an unknown object is one of these classes', if no other, and no container
# of Python, has one of its name.
CLASSES = [
    "torch.Tensor",
    "torch.nn.Module",
    "torch.optim.Optimizer",
    "torch.amp.GradScaler",
    "torch.cuda.Stream",
    "torch.cuda.Event",
    "torch.cuda.CUDAGraph",
    "torch.profiler.profile",
    "accelerate.Accelerator",
]
# attributes that an unknown object may have without being of these packages
COMMON = {name for kind in (str, list, dict, set, pathlib.Path) for name in dir(kind)}
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TITLES = re.compile(r"^#{2,4} (.+?)(?: \(\d+ minutes?\))?$", re.M)
ROW = re.compile(r"`([\w.]+(?:\(\))?)`")  # a heading that is a name
VARIABLE = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)+")  # CUDA_LAUNCH_BLOCKING
HEADING = 10  # a name in a heading counts so many times
LONGEST = 72  # letters of a line of code


@functools.cache
def existing(name):
    """What a dotted name stands for in the installed packages, or None."""
    before, _, last = name.rpartition(".")
    found = existing(before) if before else None
    if before and hasattr(found, last):
        return getattr(found, last)
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@functools.cache
def methods():
    """Full names of methods, {last part: name}, of those that are of one class only."""
    owners = {}
    for name in CLASSES:
        for attribute in dir(existing(name)):
            owners.setdefault(attribute, []).append(name)
    return {
        attribute: f"{names[0]}.{attribute}"
        for attribute, names in owners.items()
        if len(names) == 1 and attribute not in COMMON and attribute[0] != "_"
    }


@functools.cache
def public(name):
    """A dotted name as the index lists it: of a value (`torch.float16.itemsize`) the
    value, of what is called `torch.load()`. None for another package's, a private one,
    and one that the installed torch does not have.
    """
    first, *parts = name.split(".")
    if first not in ROOTS or not parts or any(part[0] == "_" for part in parts):
        return None
    if existing(first) is None:  # torch_xla is not installed here
        return name
    for end in range(1, len(parts) + 1):
        shorter = ".".join([first, *parts[:end]])
        found = existing(shorter)
        if found is None:
            return None
        if isinstance(found, types.ModuleType):
            if found.__name__.partition(".")[0] != first:  # torch.cuda.os
                return None
        elif not isinstance(found, type) and parts[0] != "backends":
            return shorter + "()" * isinstance(found, FUNCTIONS)
    return None if isinstance(found, types.ModuleType) else name


FUNCTIONS = types.FunctionType | types.BuiltinFunctionType | types.MethodType
FUNCTIONS |= types.MethodDescriptorType


def dotted(node, aliases):
    """The dotted name that a node of a syntax tree stands for, or None."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    if before := dotted(node.value, aliases):
        return f"{before}.{node.attr}"
    return methods().get(node.attr)


def names_in(source, aliases):
    """The names that a piece of code says, each as often as it does: {name: times}."""
    try:
        tree = ast.parse(source.replace("…", "..."))
    except (SyntaxError, ValueError):
        return Counter()
    nodes = list(ast.walk(tree))
    # of a.b.c the whole, once
    parts = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    found = Counter()
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in parts:
            found[dotted(node, aliases)] += 1
        elif isinstance(node, ast.Call) and (
            # of tensors and of modules, so of none in `methods`
            getattr(node.func, "attr", "") in ("to", "cuda")
            or dotted(node.func, aliases)
        ):
            found.update(f"{each.arg}=" for each in node.keywords if each.arg)
    known = Counter()
    for name, count in found.items():
        if name and (listed := name if name[-1] in "=)" else public(name)):
            known[listed] += count
    return known


def row_of(cell):
    """The row of lesson 16 that a cell is, or None."""
    line, _, body = grammar.body(cell.source).partition("\n")
    if cell.cell_type != "code" or not line.startswith("%%today "):
        return None
    return today.parse(line.removeprefix("%%today "), body)


def imported(nb):
    """What names stand for in a lesson: ALIASES, and what its cells import."""
    aliases = dict(ALIASES)
    for line in re.findall(r"^ *((?:from|import) .+)$", code_of(nb), re.M):
        try:
            (node,) = ast.parse(line).body
        except (SyntaxError, ValueError):
            continue
        before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for each in node.names:
            if before or each.asname:
                aliases[each.asname or each.name] = before + each.name
    return {short: name for short, name in aliases.items() if name.startswith(ROOTS)}


def code_of(nb):
    return "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")


def sections(nb):
    """(id of the cell that begins a section, title, its cells) of each."""
    found = [("title", "", [])]
    for cell in nb.cells:
        if cell.cell_type == "markdown" and (title := TITLES.search(cell.source)):
            found.append((cell.id, title[1], []))
        found[-1][2].append(cell)
    return found[1:]


def said(nb, aliases):
    """What each section of a lesson says: [(its id, title, texts, code)], the last two
    how often they say each name. In texts a last part stands for the name, if the
    lesson's code has one such: `GradScaler`, `non_blocking`.
    """
    found, last = [], {}
    for id, title, cells in sections(nb):
        code = Counter()
        for cell in cells:
            if cell.cell_type == "code" and cell.id != "setup" and not row_of(cell):
                for piece in split(cell.source)[1]:
                    code.update(names_in(piece, aliases))
        found.append((id, title, cells, code))
        for name in code:
            last.setdefault(last_of(name), set()).add(name)
    for word, names in last.items():
        if len(names) == 1 and word not in COMMON:
            aliases = {word: names.copy().pop(), **aliases}
    return [
        (id, title, texts_of(cells, aliases), code) for id, title, cells, code in found
    ]


def texts_of(cells, aliases):
    """How often the texts of a section say each name."""
    found = Counter()
    for cell in cells:
        if cell.cell_type == "markdown":
            headings = "\n".join(TITLES.findall(cell.source))
            for piece in CODE.findall(cell.source + f"\n{headings}" * (HEADING - 1)):
                found.update(names_in(piece, aliases))
                if VARIABLE.fullmatch(piece):
                    found[piece] += 1
    return found


def replaced(title, cells, aliases):
    """(name, what is written today) of a section that is a row about one old name."""
    if not (heading := ROW.fullmatch(title)):
        return None
    named = names_in(heading[1], aliases).keys()
    for row in filter(None, map(row_of, cells)):
        old, new = (names_in(code, aliases).keys() for code in (row.old, row.new))
        words = [last_of(name) for name in [*named, *sorted(new - old)]]
        lines = [line.strip() for line in (row.write or row.new).splitlines()]
        lines = [re.sub(r"^print\((.*)\)$", r"\1", line) for line in lines]
        lines = [line for line in lines if not line.startswith(("import ", "from "))]
        fit = [line for word in words for line in lines if word in line]
        if len(named) == 1 and named <= old - new and fit and len(fit[0]) <= LONGEST:
            return *named, fit[0].replace(";", ",")


def last_of(name):
    """Its last part: record_stream, of an argument non_blocking."""
    return re.findall(r"\w+", name)[-1]


def directive(id, lines):
    """The directive of docs/conf.py that gives entries to the place with this id."""
    return "\n".join([f"```{{entries}} {id}", *lines, "```"])


def entries(notebooks):
    """The entries, each for the cell that begins its section: {(stem, id): [entry]}, in
    the form of Sphinx's own directive `index`. notebooks: {stem: notebook}.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that will be gone
        return _entries(notebooks)


def _entries(notebooks):
    found, where, weights, labels = {}, {}, {}, {}
    for stem, nb in notebooks.items():
        aliases, totals, first = imported(nb), Counter(), {}
        lesson = said(nb, aliases)
        for _, _, texts, code in lesson:
            totals.update(texts + code)
        for id, title, texts, code in lesson:
            labels[stem, id] = f"{stem[:2]} · {re.sub('[`*;]', '', title)}"
            for name in texts | code:
                if title[0].isdigit() and texts[name]:
                    weight = (2 * texts[name] + code[name]) * totals[name]
                    weights.setdefault(name, {})[stem, id] = weight
                if name not in first or texts[name] and first[name][0]:
                    first[name] = not texts[name], (stem, id)
        for name, (_, place) in first.items():
            where.setdefault(name, {})[place] = True
        for id, title, cells in sections(nb):
            if old := replaced(title, cells, aliases):
                line = "single: {}; today: {}".format(*old)
                found.setdefault((stem, id), []).append(line)
    for name, places in where.items():
        spoken = weights.get(name, {})
        # an argument that no text names, or that says nothing: `device=`
        if name[-1] == "=" and not (spoken and "_" in name):
            continue
        best = max(spoken, key=spoken.get, default=next(iter(places)))
        for place in {**places, best: True}:
            mark = "!" * (place == best)
            line = f"{mark}single: {name}; {labels[place]}"
            found.setdefault(place, []).append(line)
        if (called := usual(name)) != name:
            found[best].append(f"!see: {called}; {name}")
    return found


def usual(name):
    """What people call a name: xm.mark_step(), nn.Linear, record_stream()."""
    before, _, last = name.rpartition(".")
    return f"{SHORT[before]}.{last}" if before in SHORT else last

"""What an entry of the index of names shows beside its links: a line of code of a
lesson that uses it, and what the package says of it.
"""

import ast
import re
import types

from tools.lessons import parts
from tools.lessons.parts import folded
from tools.site.course import md
from tools.site.names import existing, parsed, public

LONGEST = 72  # letters of a line of code
# lines that are about something else
ASIDE = re.compile(r"(?:print|claim|assert|check|predict|reveal|import|from)\b")
MOST = 200  # of a sentence
END = re.compile(r"(?<=[.?!]) (?=[A-Z`])")
ROLE = re.compile(r":[\w:]+:`~?([^`<]+?)(?: ?<[^`]*>)?`")
SIGNATURE = re.compile(r"[\w.]+\(.*\)(?: *->.*)?$|[\w.]+\(.*->")


def section(nb, id):
    """The cells of the section that begins with a cell."""
    titled, inside = re.compile(r"^#{2,4} ", re.M), False
    for cell in nb.cells:
        if cell.id == id:
            inside = True
        elif cell.cell_type == "markdown" and titled.search(cell.source):
            inside = False
        if inside:
            yield cell


def said_by_pytorch(name):
    """The first sentence of what the package itself says of a name, or ""."""
    found = existing(name)
    if found is None or isinstance(found, types.ModuleType | str | bool):
        return ""
    text = re.sub(r"\n[ \t]+", "\n", getattr(found, "__doc__", None) or "")
    for part in text.strip().split("\n\n"):
        part = " ".join(part.split())
        first = END.split(ROLE.sub(r"`\1`", part).replace("``", "`"))[0].rstrip(":")
        if SIGNATURE.match(part) or part.startswith((".. ", "See ")):
            continue
        fits = len(first) <= MOST and " " in first
        return markdown(first.replace("`\\ ", "`")) if fits else ""
    return ""


def markdown(text):
    """A text whose code stands between backticks, the rest as it is, as Markdown."""
    parts = text.split("`")
    return "`".join(part if n % 2 else md(part) for n, part in enumerate(parts))


def line(entry, notebooks, scopes):
    """The line of code that shows best how an entry is used, or "". scopes: {stem: its
    Scope}, which says what its names stand for.
    """
    found = []
    for rank, (stem, cells) in enumerate(_places(entry, notebooks)):
        for cell in cells:
            if cell.cell_type != "code" or cell.id == "setup":
                continue
            about_errors = "expect_error(" in cell.source
            for each in lines(cell.source, entry, scopes[stem]):
                aside = bool(ASIDE.match(each))
                last = folded(cell), rank, len(each), each
                found.append((about_errors, aside, *last))
    return min(found)[-1] if found else ""


def _places(entry, notebooks):
    """(stem, cells) where an entry may be used, the best first: recipes, sections."""
    for stem in dict.fromkeys(place.stem for place in entry.explained):
        cells = notebooks[stem].cells
        yield stem, [cell for cell in cells if cell.id.startswith("recipe")]
    for place in [*entry.explained, *entry.used]:
        yield place.stem, section(notebooks[place.stem], place.id)


def of_today(row, name, others):
    """The line that a row of lesson 16 gives in place of a name, or "". others: what
    the new part says and the old one does not.
    """
    found = [
        re.sub(r"^print\((.*)\)$", r"\1", each.strip())
        for each in (row.write or row.new).splitlines()
        if each.strip() and not re.match(r"import |from |if |for ", each)
    ]
    wanted = [last_of(name), *map(last_of, sorted(others))]
    says_it = [each for word in wanted for each in found if word in each]
    short = [each for each in says_it + found if len(each) <= LONGEST]
    return short[0] if short else ""


def last_of(name):
    return re.findall(r"\w+", name)[-1]


def lines(source, entry, scope):
    """The lines of a cell that stand alone and say the entry's name; of an argument in
    a longer call `DataLoader(…, num_workers=2)`.
    """
    for piece in parts.split(source)[1]:
        for node in ast.walk(parsed(piece) or ast.Module([], [])):
            called = isinstance(node, ast.Call) and node.lineno < node.end_lineno
            for each in node.keywords if called else []:
                if f"{public(scope.name(node.func) or '')}({each.arg}=)" == entry.name:
                    yield f"{ast.unparse(node.func)}(…, {ast.unparse(each)})"
        for each in piece.splitlines():
            each = each.strip().removeprefix("elif ").partition("  # ")[0]
            if entry.last not in each or len(each) > LONGEST:
                continue
            tree = parsed(each) or parsed(f"{each}\n    pass")
            if tree and entry.name in set(scope.said(tree)):
                yield each

"""What a listing contains, and which entries that is like.

A listing is read into statements: names in full (torch.cuda.amp.autocast for what was
imported as autocast), and what stands in brackets as groups of arguments. So neither
line breaks nor the order of keywords count, and a listing that Python itself cannot
read is read, too: cut off, without its indentation, for Python 2. The website does the
same in JavaScript.
"""

import functools
import re
from typing import NamedTuple

from torch_messages import messages, rules

OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")
ANY = "…"  # in the pieces of an entry


class Group(NamedTuple):
    """Brackets. parts: the arguments in them, each a list of tokens and groups. loose:
    in a piece of an entry, whether there may be more.
    """

    bracket: str
    parts: list
    loose: bool = False


# --------------------------------------------------------------------------------------
# Reading


class Listing(NamedTuple):
    """statements: each a list of tokens (str) and groups. words: all that stand in it,
    of a dotted name each part.
    """

    statements: list
    words: frozenset


@functools.lru_cache(maxsize=64)
def read(text):
    """A text as a Listing."""
    statements = [_nested(line) for line in _lines(text)]
    statements = [each for line in statements for each in _blocks(line) if each]
    statements = _in_full(statements)
    return Listing(statements, frozenset(_words(statements)))


def _words(lines):
    for line in lines:
        for each in _flat(line):
            yield from [each] if each[0] == "'" else each.split(".")


def _lines(text):
    """The tokens of each logical line. A bracket that is never closed ends where the
    next statement begins.
    """
    line, depth = [], 0
    for found in rules.TOKEN.finditer(text):
        token = found[0]
        if token in ("\n", ";"):
            if depth <= 0 or (token == "\n" and rules.BEGINS.match(text, found.end())):
                yield line
                line, depth = [], 0
        elif token[0] not in " \t\r\f\\#":
            depth += (token in "([{") - (token in ")]}")
            line.append(_string(token))
    yield line


def _string(token):
    """A string as 'text', whatever marks and letters it has around it; other tokens as
    they are.
    """
    if token[-1] not in "\"'" or len(token) < 2:
        return token
    bare = token.lstrip("rRbBfFuU")
    marks = 3 if bare[:3] in ('"""', "'''") and len(bare) > 5 else 1
    return f"'{bare[marks:-marks]}'"


def _nested(tokens):
    """A line's tokens with its brackets as groups; what stands too deep is left out."""
    whole, deeper = [], 0
    stack = [(None, [whole])]  # (bracket, parts)
    for token in tokens:
        if token in OPENING and len(stack) > rules.DEPTH:
            deeper += 1
        elif token in CLOSING and deeper:
            deeper -= 1
        elif deeper:
            continue
        elif token in OPENING:
            stack.append((token, [[]]))
        elif token in CLOSING:
            if len(stack) > 1:
                _close(stack)
        elif token == "," and len(stack) > 1:
            stack[-1][1].append([])
        else:
            stack[-1][1][-1].append(token)
    while len(stack) > 1:
        _close(stack, cut=True)
    return whole


def _close(stack, cut=False):
    bracket, parts = stack.pop()
    loose = cut or [ANY] in parts
    parts = [part for part in parts if part and part != [ANY]]
    stack[-1][1][-1].append(Group(bracket, parts, loose))


def _blocks(line):
    """`if x: y` as two statements."""
    if _first(line) in rules.BLOCKS and ":" in line:
        end = line.index(":") + 1
        return [line[:end], line[end:]]
    return [line]


def _in_full(statements):
    """The statements with full names, and behind them one for each name imported."""
    names, imports = dict(rules.USUAL), []
    for line in statements:
        for whole, name in _imported(line):
            imports.append([whole])
            if name:
                names[name] = whole
    full = [each if _imports(each) else _renamed(each, names) for each in statements]
    return [*full, *imports]


def _imports(line):
    return _first(line) in ("import", "from")


def _imported(line):
    """(full name, its name in the listing or "") of what a statement imports."""
    words = [word for word in _flat(line) if word != ","]
    if not _imports(line) or "import" not in words:
        return
    source = f"{words[1]}." if words[0] == "from" else ""
    words = words[words.index("import") + 1 :]
    for n, word in enumerate(words):
        if word != "as" and words[n - 1 : n] != ["as"]:
            renamed = words[n + 2 : n + 3] if words[n + 1 : n + 2] == ["as"] else []
            yield source + word, (renamed or [word if source else ""])[0]


def _first(line):
    """The word with which a line begins, "" for none."""
    return line[0] if line and isinstance(line[0], str) else ""


def _flat(line):
    for each in line:
        if isinstance(each, Group):
            for part in each.parts:
                yield from _flat(part)
        else:
            yield each


def _renamed(line, names):
    full = []
    for n, each in enumerate(line):
        if isinstance(each, Group):
            parts = [_renamed(part, names) for part in each.parts]
            full.append(each._replace(parts=parts))
        elif each[0] == "'" or line[n + 1 : n + 2] == ["="]:
            full.append(each)
        else:
            first, dot, rest = each.partition(".")
            full.append(names.get(first, first) + dot + rest)
    return full


# --------------------------------------------------------------------------------------
# What is a listing


def is_code(text):
    """Whether a text is a listing: most of its lines are code, and one does something.
    A message that can be read as Python is none, such as KeyError: 'RANK'.
    """
    lines = [line for line in text.splitlines() if line.strip(" \t#")]
    code = sum(are_code(lines))
    return code > 0.6 * len(lines) and any(map(_does, read(text).statements))


def are_code(lines):
    """Of each line whether it is code: a statement, or inside brackets that one has
    left open. A comment is if the line above is.
    """
    found, depth = [], 0  # depth: brackets that are open
    for line in lines:
        tokens = [each for each in rules.TOKEN.findall(line) if each.strip(" \t\\")]
        bare = [each for each in tokens if each[0] != "#"]
        begins = rules.BEGINS.match(line) or rules.KINDS["error"].search(line)
        inside = depth > 0 and not begins
        if not bare:
            is_code = bool(found) and found[-1]
        else:
            line = _nested(bare)
            is_code = _is_sequence(line) if inside else _is_statement(line)
        opened = sum((each in "([{") - (each in ")]}") for each in bare)
        depth = max(0, depth * inside + opened) if is_code else 0
        found.append(is_code)
    return found


def _is_statement(line):
    """Whether it can be a statement or its first line: no two words beside each other,
    a colon only where a block or an annotated assignment has one.
    """
    words = [each for each in line if isinstance(each, str)]
    first = _first(line)
    if not line or (first and rules.NO_FIRST.match(first)):
        return False
    if first in rules.BLOCKS:
        if ":" not in words:
            return False
    elif (
        ":" in words and "lambda" not in words and not ("=" in words and line[1] == ":")
    ):
        return False
    alone = len(line) == 1 and first not in rules.ALONE
    return _is_sequence(line) and not alone and not _joins(line[-1])


def _is_sequence(line):
    """Whether its words may follow each other."""
    words = [each for each in line if isinstance(each, str)]
    if any(map(rules.NO_CODE.match, words)) or _joins(_first(line)):
        return False
    pairs = zip([None, *line], line, strict=False)
    return all(_may_follow(before, each) for before, each in pairs)


def _joins(each):
    """Whether it is a word between two others, such as `and`."""
    return isinstance(each, str) and each in rules.JOINING


def _may_follow(before, each):
    """Whether a token or group may stand behind another one, None at the beginning."""
    if isinstance(each, str) and each in rules.LEADING:
        return before in (None, "async", ":", "yield", "raise") or each == "import"
    if _joins(each):
        return not _joins(before)
    if each == "not":
        return not _is_operand(before)
    return not (_is_operand(before) and _is_operand(each)) or _adjoins(before, each)


def _is_operand(each):
    if each is None or isinstance(each, Group):
        return each is not None
    return each not in rules.OPERATORS and bool(rules.OPERAND.match(each))


def _adjoins(before, each):
    """Whether one operand may stand behind another: brackets, attributes, strings."""
    if isinstance(each, Group):
        return each.bracket != "{"
    if each[0] == ".":
        return True
    return each[0] == "'" and isinstance(before, str) and before[0] == "'"


def _does(line):
    """Whether a statement does something: it calls, assigns, imports, defines."""
    words = [each for each in line if isinstance(each, str)]
    begins = rules.BLOCKS | rules.ALONE | {"import", "from"}
    return (
        len(words) < len(line)
        or _first(line) in begins
        or any(word in rules.ASSIGN for word in words)
    )


# --------------------------------------------------------------------------------------
# Which entries


def like(source):
    """The entries that a listing is like: last those whose old form is fine today,
    before them those that many listings have.
    """
    listing = read(source)
    found = [each for each in messages.entries().values() if fits(each, listing)]
    return sorted(found, key=lambda entry: (entry.fine, entry.cover))


def fits(entry, listing):
    """Whether a listing has what an entry is about: all pieces of one alternative."""
    return any(all(_has(listing, piece) for piece in pieces) for pieces in entry.code)


class Piece(NamedTuple):
    """lines: statements that follow each other. first, last: whether the first begins
    and the last ends its statement. words: without them in a listing it cannot fit.
    """

    lines: list
    first: bool
    last: bool
    words: frozenset


def _has(listing, text):
    if text.startswith("!"):
        return not _has(listing, text[1:])
    piece, statements = _piece(text), listing.statements
    if not piece.words <= listing.words:
        return False
    return any(
        _stand(piece, statements[n : n + len(piece.lines)])
        for n in range(len(statements) - len(piece.lines) + 1)
    )


@functools.cache
def _piece(text):
    inner = text.removeprefix("^").removesuffix("$")
    lines = [_nested(_joined(line)) for line in inner.split("\n")]
    words = [word for word in _words(lines) if rules.OPERAND.match(word)]
    words = frozenset(word for word in words if ANY not in word)
    return Piece(lines, text.startswith("^"), text.endswith("$"), words)


def _joined(line):
    """The tokens of a line of a piece, in which … is a part of names."""
    for token in rules.PIECE.findall(line):
        if token.strip():
            yield _string(token)


def _stand(piece, statements):
    """Whether each line of a piece stands in its statement."""
    final = len(statements) - 1
    return all(
        _stands(line, statement, piece.first and n == 0, piece.last and n == final)
        for n, (line, statement) in enumerate(zip(piece.lines, statements, strict=True))
    )


def _stands(line, statement, first=False, last=False):
    """Whether a line stands in a statement, or in the brackets of it."""
    for start in range(1 if first else len(statement)):
        for end in _ends(line, statement, start, not last):
            if end == len(statement) or not last:
                return True
    groups = [each for each in statement if isinstance(each, Group)]
    return not (first or last) and any(
        _stands(line, part) for group in groups for part in group.parts
    )


def _ends(wanted, line, start, more=False):
    """Where in a line what is wanted from `start` on may end. more: the last name may
    go on, as in torch.cuda.amp for torch.cuda.
    """
    if not wanted:
        yield start
    elif wanted[0] == ANY:
        for end in range(start, len(line) + 1):
            yield from _ends(wanted[1:], line, end, more)
    elif start < len(line) and _same(wanted[0], line[start], more and not wanted[1:]):
        yield from _ends(wanted[1:], line, start + 1, more)


def _same(wanted, each, more):
    if isinstance(wanted, Group) or isinstance(each, Group):
        both = isinstance(wanted, Group) and isinstance(each, Group)
        return both and wanted.bracket == each.bracket and _holds(wanted, each)
    if wanted == each:
        return True
    if ANY in wanted and (wanted[0] == "'") == (each[0] == "'"):
        return bool(_named(wanted).fullmatch(each))
    if each[0] == "'" or not rules.OPERAND.match(wanted):
        return False
    name, dotted = f".{each}", wanted if wanted[0] == "." else f".{wanted}"
    return name.endswith(dotted) or (more and f"{dotted}." in name)


@functools.cache
def _named(wanted):
    """The regular expression of a name or a string with an … in it."""
    whole = ".*".join(map(re.escape, wanted.split(ANY)))
    return re.compile(whole if wanted[0] in f"{ANY}'" else rf"(?:.*\.)?{whole}")


def _holds(wanted, group):
    """Whether brackets have the arguments that are wanted."""
    if not wanted.loose and len(wanted.parts) != len(group.parts):
        return False
    return all(
        any(_is_argument(each, argument) for argument in _places(n, group.parts))
        if each[1:2] != ["="]
        else any(_is_keyword(each, argument) for argument in group.parts)
        for n, each in enumerate(wanted.parts)
    )


def _places(n, arguments):
    """The values that the n-th argument may be: the n-th, or that of any keyword."""
    for place, argument in enumerate(arguments):
        if argument[1:2] == ["="]:
            yield argument[2:]
        elif place == n:
            yield argument


def _is_keyword(wanted, argument):
    return argument[:2] == wanted[:2] and _is_argument(
        wanted[2:] or [ANY], argument[2:]
    )


def _is_argument(wanted, argument):
    return any(end == len(argument) for end in _ends(wanted, argument, 0))

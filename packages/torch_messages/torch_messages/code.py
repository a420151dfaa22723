"""What a listing contains, and which entries that is like.

A listing is compared in a normal form: each name in full, as in torch.cuda.amp.autocast
for what was imported as autocast, and written as ast.unparse writes it (single quotes,
no comments). One that Python cannot read, as its indentation was lost on the way, is
read line by line.
"""

import ast
import functools
import re

from torch_messages import messages

# what listings use under these names, also where they show no import
USUAL = {
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "dist": "torch.distributed",
    "optim": "torch.optim",
    "xm": "torch_xla.core.xla_model",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "DDP": "torch.nn.parallel.DistributedDataParallel",
}
BLOCK = "if|for|while|with|def|class|try|else|elif|except|finally|async"


def is_code(text):
    """Whether a text is a listing: Python, and more than a name or a message that can
    be read as Python, such as KeyError: 'RANK'.
    """
    read = _read(text)
    return bool(read) and any(map(_says, read))


def is_program(text):
    """Whether a text is Python as a whole, of several statements: no message stands
    around it, and the messages that it raises are its own.
    """
    try:
        return is_code(text) and len(ast.parse(text).body) > 1
    except (SyntaxError, ValueError):
        return False


def _says(statement):
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    bare = isinstance(statement, ast.Expr) and isinstance(
        statement.value, (ast.Name, ast.Constant, ast.Attribute, ast.BinOp, ast.Tuple)
    )
    return not bare


def _read(text):
    """Its statements; one by one where some are no Python, [] where most are not."""
    text = re.sub(r"\basync ?=", "async_=", text)  # a keyword since Python 3.7
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        pass
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "%", "!"))]
    read = [found for line in lines if (found := _line(line))]
    return sum(read, []) if read and len(read) > 0.6 * len(lines) else []


def _line(line):
    if re.match(rf"({BLOCK})\b.*:$", line):
        line += " pass"
    for head in ("", "if 1: pass\n", "try: pass\n"):  # else, except
        try:
            return ast.parse(head + line).body
        except (SyntaxError, ValueError):
            continue
    return []


class _InFull(ast.NodeTransformer):
    """Puts the full name in place of what was imported."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        whole = self.names.get(node.id, node.id)
        return ast.parse(whole, mode="eval").body


@functools.lru_cache(maxsize=512)
def normal(source):
    """A listing in its normal form."""
    read = _read(source)
    names, imported = dict(USUAL), []
    for node in ast.walk(ast.Module(read, [])):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                names[name.asname or name.name] = f"{node.module}.{name.name}"
                imported.append(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                imported.append(name.name)
                if name.asname:
                    names[name.asname] = name.name
    whole = _InFull(names).visit(ast.Module(read, []))
    if not read:
        return re.sub(r"#.*", "", source)
    return "\n".join([ast.unparse(whole), *imported])


def fits(entry, source):
    """Whether a listing in normal form has what the entry is about."""
    return any(all(_has(source, piece) for piece in pieces) for pieces in entry.code)


def _has(source, piece):
    if piece.startswith("!"):
        return not _has(source, piece[1:])
    return bool(_piece(piece).search(source))


@functools.cache
def _piece(piece):
    begin = r"(?m)^[ \t]*" if piece.startswith("^") else ""
    end = r"[ \t]*$" if piece.endswith("$") else ""
    inner = piece.removeprefix("^").removesuffix("$")
    if not begin and re.match(r"\w", inner):
        begin = r"(?<![\w])"
    if not end and re.search(r"\w$", inner):
        end = r"(?!\w)"
    flag = "" if "(?m)" in begin else "(?m)"
    return re.compile(flag + begin + ".*?".join(map(re.escape, inner.split("…"))) + end)


def like(source):
    """The entries that a listing is like, last those whose old form is fine today."""
    text = normal(source)
    found = [entry for entry in messages.entries().values() if fits(entry, text)]
    return sorted(found, key=lambda entry: entry.fine)

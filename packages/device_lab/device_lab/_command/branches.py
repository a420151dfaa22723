"""Which lines do something else where there is a GPU, by the syntax tree."""

import ast
import functools
import linecache
import re
from collections.abc import Iterable, Iterator

from .._kit.errors import file_name

KINDS = r"(^|[_.])(accel|cuda|n?gpus?|hpu|mps|xpu)(_|$)|^(is_|on_|use_|no_)?cpu$"
KINDS += r"|^torch\.accelerator$"  # not what accelerate makes
DEVICE = r"(^|[_.])devices?(_|$)"
NAMED = r"(cpu|cuda|gpu|hpu|mps|xpu)(:\d*)?$"  # as a string
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
LOOPS = ast.For, ast.AsyncFor, ast.While
CONDITIONS = ast.If, ast.IfExp, ast.While
LEAVES = ast.Return, ast.Continue, ast.Break


def branch(path: str, line: int) -> int:
    """The line of the condition that asks for the device, and decides on this line of a
    file: by standing around it, by leaving before it, or by an option that it uses,
    such as non_blocking. 0 if none does.
    """
    tree = _tree(path)
    around = [x for x in tree.nodes if isinstance(x, ast.stmt) and _spans(x, line)]
    if not around:
        return 0
    statement = max(around, key=lambda x: (x.lineno, -x.end_lineno))
    found = (*_outside(tree, statement), *_within(tree, statement, line))
    return next(iter(found), 0)


def branches(paths: Iterable[str]) -> list[str]:
    """All conditions that ask for the device and choose code, in functions or loops."""
    found = []
    for path in sorted(paths):
        tree = _tree(path)
        lines = {
            x.lineno
            for x in tree.nodes
            if isinstance(x, CONDITIONS)
            and tree.asks(x.test)
            and not _only_device(x)
            and any(isinstance(each, FUNCTIONS + LOOPS) for each in tree.above(x))
        }
        found += [f"{file_name(path)}:{line}" for line in sorted(lines)]
    return found


@functools.cache
def _tree(path):
    return _Tree("".join(linecache.getlines(path)))


class _Tree:
    """options: names that a condition sets to what is no tensor → its line."""

    def __init__(self, source):
        try:
            self.nodes = list(ast.walk(ast.parse(source)))
        except SyntaxError:  # a cell with magics
            self.nodes = []
        self.parents = {
            child: node for node in self.nodes for child in ast.iter_child_nodes(node)
        }
        self.options = {}
        for node in self.nodes:
            for name in _options(node):
                scopes = (x for x in self.above(node) if isinstance(x, FUNCTIONS))
                scope = None if name.startswith(".") else next(scopes, None)
                self.options[name, scope] = node.lineno

    def above(self, node) -> Iterator[ast.AST]:
        while node := self.parents.get(node):
            yield node

    def option(self, node):
        """The line where it was set, if it is one."""
        name = _name(node)
        for scope in (*self.above(node), None):
            if name and (name, scope) in self.options:
                return self.options[name, scope]
        return 0

    def asks(self, test):
        return _asks(test) or any(self.option(x) for x in ast.walk(test))


def _spans(node, line):
    return node.lineno <= line <= node.end_lineno


def _outside(tree, statement):
    """Conditions around it, and those before it that leave."""
    node = statement
    for parent in tree.above(statement):
        for block in ("body", "orelse", "finalbody"):
            inside = getattr(parent, block, None)
            if isinstance(inside, list) and node in inside:
                if isinstance(parent, (ast.If, ast.While)) and tree.asks(parent.test):
                    yield parent.lineno
                for before in inside[: inside.index(node)]:
                    if isinstance(before, ast.If) and tree.asks(before.test):
                        ends = *before.body[-1:], *before.orelse[-1:]
                        if any(isinstance(x, LEAVES) for x in ends):
                            yield before.lineno
        node = parent


def _within(tree, statement, line):
    """Conditions in the statement itself, and options among a call's arguments."""
    own = [
        part
        for part in ast.iter_child_nodes(statement)
        if not isinstance(part, (ast.stmt, ast.excepthandler))
    ]
    for node in (x for part in own for x in ast.walk(part)):
        if isinstance(node, ast.IfExp) and _spans(node, line):
            if tree.asks(node.test) and not _only_device(node):
                yield node.lineno
        if isinstance(node, ast.Call) and _spans(node, line):
            yield from _arguments(tree, node)


def _arguments(tree, call):
    for each in (*call.args, *call.keywords):
        value = each.value if isinstance(each, ast.keyword) else each
        if set_at := tree.option(value):
            yield set_at
        named = getattr(each, "arg", None) not in (None, "device")
        question = isinstance(value, (ast.Compare, ast.BoolOp)) or _name(value)
        if named and question and _asks(value):
            yield value.lineno


def _asks(test):
    """Whether an expression asks which device there is; `device is None` does not."""
    parts = list(ast.walk(test))
    strings = [x.value for x in parts if isinstance(x, ast.Constant)]
    if any(isinstance(x, str) and re.match(NAMED, x) for x in strings):
        return True
    compared = [
        part
        for x in parts
        if isinstance(x, ast.Compare) and not isinstance(x.ops[0], (ast.Is, ast.IsNot))
        for part in ast.walk(x)
    ]
    return _any_name(parts, KINDS) or _any_name(compared, DEVICE)


def _any_name(nodes, pattern):
    return any(re.search(pattern, _name(x).strip("."), re.I) for x in nodes)


def _name(node):
    """Of a variable, or .attribute; those of PyTorch whole."""
    if isinstance(node, ast.Attribute):
        return f"{'torch' * (_name(node.value) == 'torch')}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _options(node):
    """Names that this statement makes depend on the device, if they are no tensors."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        question = isinstance(
            node.value, (ast.Compare, ast.BoolOp, ast.IfExp, ast.Call)
        )
        if question and _is_option(node.value) and _asks(node.value):
            yield from _targets(node)
    if isinstance(node, ast.If) and _asks(node.test) and not _only_device(node):
        for each in (x for part in (*node.body, *node.orelse) for x in ast.walk(part)):
            if isinstance(each, ast.Assign) and _is_option(each.value):
                yield from _targets(each)
            elif isinstance(each, ast.Call) and _name(each.func) == ".update":
                yield _name(each.func.value)


def _targets(assign):
    targets = getattr(assign, "targets", None) or [assign.target]
    for each in targets:
        base = each.value if isinstance(each, ast.Subscript) else each
        if _name(base):
            yield _name(base)


def _is_option(value):
    if isinstance(value, ast.IfExp):
        return all(map(_is_option, (value.body, value.orelse)))
    if isinstance(value, ast.Call):
        return _name(value.func) in (".is_available", "dict")
    if isinstance(value, ast.Constant):
        return isinstance(value.value, bool)
    if isinstance(value, ast.BoolOp):  # not: gpus or 1
        return not any(isinstance(x, ast.Constant) for x in value.values)
    return isinstance(value, (ast.Compare, ast.Dict))


def _only_device(node):
    """Whether it only says which device to use."""
    if isinstance(node, ast.IfExp):
        return _is_device(node.body) and _is_device(node.orelse)
    if isinstance(node, ast.While):
        return False
    return all(map(_says_device, (*node.body, *node.orelse)))


def _says_device(statement):
    if isinstance(statement, ast.If):
        return _only_device(statement)
    if isinstance(statement, ast.Assign):
        return _any_name(statement.targets, DEVICE) or _is_device(statement.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _name(statement.value.func) in ("print", ".info", ".warn", ".warning")
    return isinstance(statement, (ast.Raise, ast.Pass))


def _is_device(value):
    if isinstance(value, ast.JoinedStr):
        value = value.values[0]
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and bool(re.match(NAMED, value.value))
    if isinstance(value, ast.IfExp):
        return _only_device(value)
    if isinstance(value, ast.Call):
        value = value.func
    return _name(value) == ".type" or _any_name([value], DEVICE)

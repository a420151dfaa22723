"""Which lines do something else where there is a GPU, by the syntax tree."""

import ast
import functools
import itertools
import linecache
import re

from .._kit.errors import file_name

# In an expression: is_cuda, num_gpus, "cuda:0". Not x.cpu(), nor what accelerate makes
ASKS = r"(?<![^\W_])(accel(?![^\W_]|\()|cuda(?![^\W_]|\()|n?gpus?(?!\w|\())"
ASKS += r"|\b(is_|on_|use_|no_)?cpu\b(?!\()|\btorch\.accelerator\b"
COMPARED = r"(?<![^\W_])devices?(?![^\W_])"  # device.type not in SLOW_DEVICES
DEVICE = r"f?'(cpu|cuda|gpu|hpu|mps|xpu)\b|([\w.]+\.)?\w*device\b"
# What only says which device to use
SAYS = rf"[\w.]*device\w* = |[\w., ]+ = ({DEVICE})|print\(|[\w.]+\.(info|warn)"
SAYS += rf"|raise\b|pass$|return ({DEVICE}|torch.device\()"
OPTION = r"True|False|dict\(.*\)|[\w.]+\.is_available\(\)"
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
LEAVES = ast.Return, ast.Continue, ast.Break


def branch(path, line):
    """The line of the condition that asks for the device, and decides on this line of a
    file: by standing around it, leaving before it, or an option that it uses, such as
    non_blocking. Else 0.
    """
    tree = _tree(path)
    around = [x for x in tree.nodes if isinstance(x, ast.stmt)]
    around = [x for x in around if x.lineno <= line <= x.end_lineno]
    if not around:
        return 0
    statement = max(around, key=lambda x: (x.lineno, -x.end_lineno))
    found = itertools.chain(_outside(tree, statement), _within(tree, statement, line))
    return next(found, 0)


def branches(paths):
    """All conditions that ask for the device and choose code, in functions or loops."""
    found = []
    for path in sorted(paths):
        tree = _tree(path)
        nodes = [x for x in tree.nodes if isinstance(x, (ast.If, ast.IfExp))]
        nodes = [x for x in nodes if tree.asks(x.test) and not _only_device(x)]
        lines = {x.lineno for x in nodes}
        found += [f"{file_name(path)}:{line}" for line in sorted(lines)]
    return found


@functools.cache
def _tree(path):
    return _Tree("".join(linecache.getlines(path)))


class _Tree:
    """options: (name, function), of names that a condition sets to what is no tensor,
    → its line. Attributes belong to no function.
    """

    def __init__(self, source):
        try:
            self.nodes = list(ast.walk(ast.parse(source)))
        except SyntaxError:  # a cell with magics
            self.nodes = []
        self.parents = {
            child: node for node in self.nodes for child in ast.iter_child_nodes(node)
        }
        self.options = {
            (name, None if name[0] == "." else self.function(node)): node.lineno
            for node in self.nodes
            for name in filter(None, _options(node))
        }

    def above(self, node):
        while node := self.parents.get(node):
            yield node

    def function(self, node):
        return next((x for x in self.above(node) if isinstance(x, FUNCTIONS)), None)

    def option(self, node):
        """The line where it was set, if it is one."""
        name = _name(node)
        return max(self.options.get((name, x), 0) for x in (*self.above(node), None))

    def asks(self, test):
        return _asks(test) or any(self.option(x) for x in ast.walk(test))


def _outside(tree, statement):
    """Conditions around it, and those before it that leave."""
    node = statement
    for parent in tree.above(statement):
        for block in (getattr(parent, name, []) for name in ("body", "orelse")):
            if isinstance(block, list) and node in block:
                if isinstance(parent, ast.If) and tree.asks(parent.test):
                    yield parent.lineno
                for before in block[: block.index(node)]:
                    if _leaves(before) and tree.asks(before.test):
                        yield before.lineno
        node = parent


def _leaves(node):
    ends = (*node.body[-1:], *node.orelse[-1:]) if isinstance(node, ast.If) else ()
    return any(isinstance(x, LEAVES) for x in ends)


def _within(tree, statement, line):
    """Conditions in the statement itself, and options among a call's arguments."""
    blocks = ast.stmt, ast.excepthandler
    own = [x for x in ast.iter_child_nodes(statement) if not isinstance(x, blocks)]
    for node in (x for part in own for x in ast.walk(part)):
        if getattr(node, "lineno", line + 1) <= line <= node.end_lineno:
            if isinstance(node, ast.IfExp) and tree.asks(node.test):
                if not _only_device(node):
                    yield node.lineno
            if isinstance(node, ast.Call):
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
    compared = [x for x in ast.walk(test) if isinstance(x, ast.Compare)]
    compared = [x for x in compared if not isinstance(x.ops[0], (ast.Is, ast.IsNot))]
    asked = [(ASKS, test), *((COMPARED, x) for x in compared)]
    return any(re.search(pattern, ast.unparse(x), re.I) for pattern, x in asked)


def _name(node):
    """Of a variable, or .attribute."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _options(node):
    """Names that this statement makes depend on the device, if they are no tensors."""
    if isinstance(node, ast.Assign) and _is_option(node.value) and _asks(node.value):
        yield from _targets(node)
    if isinstance(node, ast.If) and _asks(node.test):
        for each in (x for part in (*node.body, *node.orelse) for x in ast.walk(part)):
            if isinstance(each, ast.Assign) and _is_option(each.value):
                yield from _targets(each)
            elif isinstance(each, ast.Call) and _name(each.func) == ".update":
                yield _name(each.func.value)


def _targets(assign):
    bases = [x.value if isinstance(x, ast.Subscript) else x for x in assign.targets]
    return map(_name, bases)


def _is_option(value):
    if isinstance(value, ast.IfExp):
        return _is_option(value.body) and _is_option(value.orelse)
    if isinstance(value, (ast.Constant, ast.Call)):
        return bool(re.fullmatch(OPTION, ast.unparse(value)))
    if isinstance(value, ast.BoolOp):  # not: gpus or 1
        return not any(isinstance(x, ast.Constant) for x in value.values)
    return isinstance(value, (ast.Compare, ast.Dict))


def _only_device(node):
    """Whether it only says which device to use."""
    if isinstance(node, ast.IfExp):
        values = node.body, node.orelse
        return all(re.match(DEVICE, ast.unparse(x)) for x in values)
    return all(
        _only_device(x) if isinstance(x, ast.If) else re.match(SAYS, ast.unparse(x))
        for x in (*node.body, *node.orelse)
    )

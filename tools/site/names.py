"""Which names of torch, torch_xla and accelerate a piece of code says: by its syntax
tree, with what its imports and assignments say of other names.
"""

import ast
import builtins
import functools
import importlib
import pathlib
import re
import types

ROOTS = ("torch", "torch_xla", "accelerate")
# what lessons, texts and listings call modules and classes without an import
ALIASES = {
    "torch": "torch",
    "torch_xla": "torch_xla",
    "accelerate": "accelerate",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "dist": "torch.distributed",
    "xm": "torch_xla.core.xla_model",
    "xr": "torch_xla.runtime",
    "xs": "torch_xla.distributed.spmd",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
    "pl": "torch_xla.distributed.parallel_loader",
    "met": "torch_xla.debug.metrics",
    "Tensor": "torch.Tensor",
    "DataLoader": "torch.utils.data.DataLoader",
}
TENSOR, MODULE = "torch.Tensor", "torch.nn.Module"
OPTIMIZER, STREAM = "torch.optim.Optimizer", "torch.cuda.Stream"
# of which class a variable of this name is, where no assignment says it
KINDS = {
    **dict.fromkeys(["model", "net", "network", "layer", "module"], MODULE),
    "optimizer": OPTIMIZER,
    "scaler": "torch.amp.GradScaler",
    "prof": "torch.profiler.profile",
    "loader": "torch.utils.data.DataLoader",
    **dict.fromkeys(["stream", "side", "main"], STREAM),
    "event": "torch.cuda.Event",
    "graph": "torch.cuda.CUDAGraph",
    "accelerator": "accelerate.Accelerator",
}
# what a function returns, if no tensor; a module stands for the device's
RETURNS = {
    "torch.cuda.current_stream": STREAM,
    "torch.cuda.default_stream": STREAM,
    "torch.get_device_module": "torch.cuda",
    "torch.compile": MODULE,
}
# methods that an unknown object may have without being a tensor
COMMON = {
    name for kind in (str, list, dict, set, pathlib.Path) for name in dir(kind)
} | {*dir(builtins), "name", "names"}


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


def public(name):
    """A dotted name as the index lists it, without what is said of a value: of
    `torch.float16.itemsize` the type. None for another package's, and a private one.
    """
    first, *parts = name.split(".")
    if first not in ROOTS or any(part.startswith("_") for part in parts):
        return name if name in ("torch.__version__", "torch_xla.__version__") else None
    if not parts:
        return None
    for end in range(1, len(parts)):
        shorter = ".".join([first, *parts[:end]])
        found = existing(shorter)
        if isinstance(found, types.ModuleType):
            if found.__name__.partition(".")[0] != first:  # torch.cuda.os
                return None
        elif found is not None and not isinstance(found, type):
            if not shorter.startswith("torch.backends"):
                return shorter
    return name


@functools.cache
def method(kind, attribute):
    """The name of a method of a class, at the class that brings it along, or None."""
    cls = existing(kind)
    if cls is None:  # torch_xla is not installed here
        return f"{kind}.{attribute}"
    if attribute.startswith("_") or not hasattr(cls, attribute):
        return None
    for base in (TENSOR, MODULE, OPTIMIZER):
        if issubclass(cls, existing(base)) and hasattr(existing(base), attribute):
            return f"{base}.{attribute}"
    return f"{kind}.{attribute}"


class Scope:
    """What names stand for in a lesson: modules and classes, and objects of a class."""

    def __init__(self):
        self.aliases, self.kinds = dict(ALIASES), dict(KINDS)

    def learn(self, tree):
        """Take in imports and assignments of a syntax tree."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    name = each.name if each.asname else each.name.partition(".")[0]
                    self.aliases[each.asname or name] = name
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    self.aliases[each.asname or each.name] = (
                        f"{node.module}.{each.name}"
                    )
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.withitem) and node.optional_vars:
                self._assign(node.optional_vars, node.context_expr)

    def _assign(self, target, value):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, its in zip(target.elts, value.elts, strict=False):
                self._assign(each, its)
        elif isinstance(target, ast.Name) and isinstance(value, ast.Call):
            kind = self.kind(value)
            if kind == "torch.cuda":
                self.aliases[target.id] = kind
            elif kind:
                self.kinds[target.id] = kind

    def name(self, node):
        """The dotted name that a node stands for, or None."""
        if isinstance(node, ast.Name):
            found = self.aliases.get(node.id)
            return found if found and found.partition(".")[0] in ROOTS else None
        if not isinstance(node, ast.Attribute):
            return None
        if before := self.name(node.value):
            return f"{before}.{node.attr}"
        if isinstance(node.value, ast.Name) and node.value.id in self.aliases:
            return None  # of another package
        kind = self.kind(node.value)
        if kind == "torch.cuda":
            return f"{kind}.{node.attr}"
        if kind and (found := method(kind, node.attr)):
            return found
        return None if node.attr in COMMON else method(TENSOR, node.attr)

    def kind(self, node):
        """The class of what a node gives, or None where nothing is known."""
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id)
        if isinstance(node, ast.Call):
            name = self.name(node.func)
            name = name and public(name)
            if name is None:
                return None
            if isinstance(existing(name), type):
                return name
            known = existing(name) is not None
            return RETURNS.get(name, TENSOR if known else None)
        if isinstance(node, ast.BinOp):
            return self.kind(node.left) or self.kind(node.right)
        return None

    def said(self, tree):
        """The names that a syntax tree says, each as often as it does; a named argument
        as `torch.Tensor.to(non_blocking=)`.
        """
        nodes = list(ast.walk(tree))
        # of a.b.c the whole, once
        parts = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{each.name}" for each in node.names]
            elif isinstance(node, ast.Attribute | ast.Name) and id(node) not in parts:
                names = [self.name(node)]
            elif isinstance(node, ast.Call) and (function := self.name(node.func)):
                names = [
                    f"{function}({each.arg}=)" for each in node.keywords if each.arg
                ]
            yield from filter(None, (public(name) for name in names if name))


def parsed(source):
    """The syntax tree of a piece of code, or None."""
    try:
        return ast.parse(re.sub("…", "...", source))
    except (SyntaxError, ValueError):
        return None

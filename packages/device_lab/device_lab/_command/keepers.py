"""Which variable of the reader's keeps tensors from step to step."""

import gc
import inspect
import linecache
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch.nn import Module, Parameter

from .._kit._lines import is_reader
from .._kit.errors import file_name

CONTAINERS = list, dict, deque, OrderedDict, defaultdict
MARK = "device_lab"  # in the metadata of autograd's nodes
# What gives a function its own variables as a dictionary, which is not to be touched
SNAPSHOTS = {"locals", "vars", "dir", "eval", "exec"}
ADDS = r"{0}(\[[^\]]*\])*(\.(append(left)?|extend|insert|setdefault|update)\(|\s*\+=)"
ADDS += r"|{0}(\[[^\]]*\])+\s*=[^=]"
SUMS = r"{0}\s*(\+=|=[^=].*\b{0}\b)"


class Keepers:
    """look() after each step, in the script's thread; keeper() after the last."""

    def __init__(self):
        self.sizes, self.sums = [], Counter()

    def look(self) -> None:
        gathered = {id(x): len(x) for x in _containers() if _tensors(_newest(x))}
        self.sizes.append(gathered)
        step = len(self.sizes)
        for path, name, value in _variables():
            if _is_result(value) and (node := value.grad_fn):
                self.sums[path, name] += _holds(node, (path, name, step - 1))
                node.metadata[MARK] = path, name, step

    def keeper(self, grows: int) -> dict[str, Any] | None:
        """A Line and the variable's name: each step added to it what holds a graph, or
        half of the bytes that grow; or its own graph holds that of the step before.
        """
        if len(self.sizes) < 3:
            return None
        kept = {id(x): x for x in self._growing(grows)}
        for path, name, value in _variables():
            inner = list(value.values()) if type(value) is dict else []
            if any(id(x) in kept for x in (value, *inner)):
                if line := _line(path, name, ADDS):
                    return line
        for (path, name), times in self.sums.items():
            if times == len(self.sizes) - 1 and (line := _line(path, name, SUMS)):
                return line
        return None

    def _growing(self, grows):
        for x in _containers():
            sizes = [each.get(id(x), 0) for each in self.sizes]
            if all(0 < a < b for a, b in pairwise(sizes)):
                newest = _tensors(_newest(x, sizes[-1] - sizes[-2]))
                nbytes = sum(each.untyped_storage().nbytes() for each in newest)
                graph = any(each.grad_fn is not None for each in newest)
                if graph or (grows and nbytes >= grows / 2):
                    yield x


def _containers():
    return [x for x in gc.get_objects() if type(x) in CONTAINERS and x]


def _newest(x, count=1):
    values = x.values() if isinstance(x, dict) else x
    newest = reversed(values)
    return [next(newest) for _ in range(min(count, len(values)))]


def _tensors(values):
    """Among these, or in a list, tuple or dictionary among these; of strided layout."""
    found = []
    for x in values:
        parts = list(x.values()) if type(x) is dict else x
        parts = parts if isinstance(parts, (list, tuple)) else [x]
        found += [p for p in parts if type(p) in (torch.Tensor, Parameter)]
    return [x for x in found if x.layout is torch.strided]


def _is_result(x):
    """A view is asked for its graph anew, and may refuse."""
    return type(x) is torch.Tensor and x.requires_grad and not x._is_view()


def _holds(node, mark):
    """Whether a node of the graph, or one shortly before it, has the mark."""
    nodes = [node]
    for _ in range(3):
        nodes = [x for each in nodes for x, _ in each.next_functions if x is not None]
        if any(x.metadata.get(MARK) == mark for x in nodes):
            return True
    return False


def _variables() -> Iterator[tuple[str, str, Any]]:
    """(file, name, value) of the reader's functions that run and modules, and of their
    objects' attributes.
    """
    for path, names in _spaces():
        for name, value in names:
            yield path, name, value
            if isinstance(value, Module) or _is_readers(type(value)):
                for inner, attribute in list(getattr(value, "__dict__", {}).items()):
                    yield path, f"{name}.{inner}", attribute


def _is_readers(kind):
    path = _file(sys.modules.get(kind.__module__))
    return bool(path) and is_reader(path)


def _spaces():
    frame = sys._getframe(1)
    while frame:
        if is_reader(frame.f_code.co_filename):
            yield frame.f_code.co_filename, _names(frame)
        frame = frame.f_back
    for path, module in _modules():
        yield path, list(vars(module).items())


def _names(frame):
    """Of a function's variables; a module's come with the module."""
    code = frame.f_code
    optimized = code.co_flags & inspect.CO_OPTIMIZED
    if not optimized or SNAPSHOTS.intersection(code.co_names) or sys.gettrace():
        return []
    values = frame.f_locals
    names = list(values.items())
    if type(values) is dict:  # until 3.12 a copy, which would keep them
        values.clear()
    return names


def _modules():
    modules = [(_file(x), x) for x in list(sys.modules.values())]
    return [(path, x) for path, x in modules if path and is_reader(path)]


def _file(module):
    if not isinstance(module, ModuleType):
        return ""
    # a module may be one that loads when it is asked for anything
    return object.__getattribute__(module, "__dict__").get("__file__") or ""


def _line(path, name, pattern):
    """Where the reader's source adds to the variable: there, else in other files."""
    last = name.rpartition(".")[2]
    own = re.compile(r"(^|[^\w#])" + pattern.format(re.escape(last)))
    for each in dict.fromkeys((path, *(path for path, _ in _modules()))):
        for number, code in enumerate(linecache.getlines(each), 1):
            if own.search(code):
                line = {"where": f"{file_name(each)}:{number}", "path": each}
                return line | {"line": number, "code": code.strip(), "name": name}
    return None

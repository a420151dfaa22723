"""What the steps of a running script hold, and which variable keeps what they made."""

import contextlib
import gc
import inspect
import linecache
import re
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from itertools import pairwise
from types import ModuleType

import torch
from torch import nn

from .._kit._ledger import FORWARD, OPTIMIZER, StepLedger, storages
from .._kit._lines import is_reader
from .sampling import line_of
from .waits import StepWaits, enter_below, take_out

KINDS = "parameters", "gradients", "optimizer state", "activations", "temporaries"
KINDS += ("inputs and other",)
SMALL = 4096  # what a step leaves behind, and a hundredth
CONTAINERS = list, dict, deque, OrderedDict, defaultdict
# What gives a function its own variables as a dictionary, which is not to be touched
SNAPSHOTS = {"locals", "vars", "dir", "eval", "exec"}
ADDS = r"{0}(\[[^\]]*\])*(\.(append(left)?|extend|insert|setdefault|update)\(|\s*\+=)"
ADDS += r"|{0}(\[[^\]]*\])+\s*=[^=]"


class StepMemory(StepLedger):
    """open(), then begin() and end() around each step, and close(): meanwhile a mode
    lies below the script's own. The first step after open() is better not begun: by its
    end, what steps use is known. closure: whether the optimizer was given one, which it
    calls with gradients. last: the step's last call.
    """

    quiet, closure, last = 0, False, 0
    silence = StepWaits.silence  # what is made meanwhile is noted when it is used

    def __init__(self, device, optimizers):
        device = torch.device(device)
        super().__init__(device, 512 if device.type == "cuda" else 1)
        self.stack, self.steps, self.lengths = contextlib.ExitStack(), [], {}
        for optimizer in optimizers:
            self.optimizers.add(optimizer)
            self.fused &= "fused" in optimizer.defaults

    def open(self):
        gc.collect()
        held = [x for x in gc.get_objects() if type(x) is nn.Parameter]
        self.parameters, self.ready = list(map(weakref.ref, held)), storages()
        if "torch._dynamo" in sys.modules:  # under a mode it gives up, for ever
            self.stack.enter_context(torch.compiler.set_stance("force_eager"))
        enter_below(self)

    def end(self):
        self.mark()
        if self.held() > self.before:  # cycles that the step left, or a leak
            gc.collect()
        if self.start == len(self.phases):
            return
        # L-BFGS keeps a history, of a length of its own
        living = self.living.values()
        left = [x for x in living if not (x.ready or x.kind == "optimizer state")]
        left = sum(x.nbytes for x in left)
        self.steps.append((self.start, len(self.phases) - 1, self.before, left))
        if len(self.steps) == 1:
            self.lengths = {key: (len(x), _first(x)) for key, x in _containers()}

    def close(self):
        """The facts; None if no step called anything. Called from within a call of an
        operator, the mode stays, but does nothing more.
        """
        self.stack.close()
        take_out(self)
        self.quiet += 1
        facts = self._facts() if self.steps else None
        self.living.clear()  # nothing is called when a storage ends
        return facts

    def _facts(self):
        highest, at = self.highest(self.steps[0][0])
        step = [x for x in self.steps if x[0] <= at][-1]
        self.start, self.last, self.before, _ = step
        kinds = self.kinds(at)
        left = [after - before for (*_, before), (*_, after) in pairwise(self.steps)]
        grows = min(left) if len(left) > 1 else 0
        grows = grows if grows >= max(SMALL, highest / 1000) else 0
        already = [g.get("fused") for o in self.optimizers for g in o.param_groups]
        self.fused &= bool(already) and not all(already)
        return {
            "device": str(self.device),
            "counted": "PyTorch's calls",
            "highest": highest,
            "phase": self.phases[at],
            "kinds": {kind: kinds.get(kind, 0) for kind in KINDS},
            "before": self.before,
            "grows": grows,
            "keeper": self._keeper(grows) if grows else None,
            "largest": dict(zip(("bytes", "where"), self.largest, strict=True)),
            "lower": {way: n for way, n in self.estimates() if n < 0.99 * highest},
        }

    # ---- as the ledger, but for a script that goes on

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.quiet:
            return func(*args, **kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)

    def begins(self, optimizer, args, kwargs):
        super().begins(optimizer, args, kwargs)
        self.closure = callable([*args[1:2], kwargs.get("closure")][0])

    def phase(self):
        phase = super().phase()
        within = phase == OPTIMIZER and self.closure and torch.is_grad_enabled()
        return FORWARD if within else phase

    def kind(self, piece):
        outlives = piece.died is None or piece.died > self.last
        if outlives and not piece.kind:
            return "inputs and other"
        return super().kind(piece)

    def note(self, x):
        try:
            return super().note(x)
        except (NotImplementedError, RuntimeError):  # a tensor without a storage
            return None

    # ---- what grows from the first step to the last

    def _keeper(self, grows):
        """A Line and the name of the reader's variable that took up, since the first
        step, half of the bytes that grow.
        """
        for key, x in _containers():
            path, name, _ = key
            length, first = self.lengths.get(key, (len(x), None))
            more, times = len(x) - length, len(self.steps) - 1
            kept = more >= times and _first(x) == first  # it was not emptied meanwhile
            if kept and _newest_bytes(x, more) >= times * grows / 2:
                if line := _line(path, name):
                    return line
        return None


def _containers():
    """((file, name, id), list or the like) of the reader's variables, and within."""
    for path, name, value in _variables():
        inner = list(value.values()) if type(value) is dict else []
        for x in (value, *inner):
            if type(x) in CONTAINERS and x:
                yield (path, name, id(x)), x


def _first(container):
    return id(next(iter(container), None))


def _newest_bytes(container, count):
    """Of tensors among the newest values, or in a list, tuple or dictionary there."""
    values = container.values() if isinstance(container, dict) else container
    nbytes = 0
    for _, x in zip(range(count), reversed(values), strict=False):
        parts = list(x.values()) if type(x) is dict else x
        for part in parts if isinstance(parts, (list, tuple)) else [x]:
            if type(part) is torch.Tensor and part.layout is torch.strided:
                nbytes += part.untyped_storage().nbytes()
    return nbytes


def _variables():
    """(file, name, value) of the reader's functions that run and modules, and of their
    objects' attributes.
    """
    spaces, frame = [], sys._getframe()
    while frame:
        if is_reader(frame.f_code.co_filename):
            spaces.append((frame.f_code.co_filename, _names(frame)))
        frame = frame.f_back
    spaces += [(path, list(vars(module).items())) for path, module in _modules()]
    for path, names in spaces:
        for name, value in names:
            yield path, name, value
            defined = _file(sys.modules.get(type(value).__module__))
            if isinstance(value, nn.Module) or (defined and is_reader(defined)):
                for inner, attribute in list(getattr(value, "__dict__", {}).items()):
                    yield path, f"{name}.{inner}", attribute


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


def _line(path, name):
    """Where the reader's source adds to the variable: there, else in other files."""
    last = re.escape(name.rpartition(".")[2])
    adds = re.compile(r"(^|[^\w#])" + ADDS.format(last))
    for each in dict.fromkeys((path, *(path for path, _ in _modules()))):
        for number, code in enumerate(linecache.getlines(each), 1):
            if adds.search(code):
                return line_of(each, number) | {"name": name}
    return None

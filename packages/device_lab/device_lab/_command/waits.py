"""Counts the waits of a running script, step by step, with the rules of find_waits.

Our modes lie below the script's own, so that those may end before ours. A mode's
__exit__ pops whatever is on top, so ours are not called. Nor are the compiler's flags
set: the script's modes would put them back in another order.
"""

import collections
import contextlib
import functools
import gc
import inspect
import sys
import weakref

import torch
from torch import nn, overrides
from torch.amp import GradScaler
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext

from .._kit._cures import CAUSES, OPERATIONS
from .._kit.errors import file_name
from .._kit.waits import ASKED, _Watch
from .branches import branch
from .sampling import line_of, short

NOWHERE = "", 0
_enabled = weakref.WeakSet()


def enter_below(mode):
    """What PyTorch wants at the bottom stays there: a default device, and
    FakeTensorMode and its like, which it keeps apart.
    """
    module, stack = _stack(mode)
    above = [module._pop_mode() for each in stack if not _stays(each)]
    for each in (mode, *reversed(above)):
        module._push_mode(each)


def take_out(mode):
    """From wherever it is. False if it is not there: in another thread, within the
    mode's own call, or where the script has taken all modes off for a moment.
    """
    module, stack = _stack(mode)
    if mode not in stack:
        return False
    for each in reversed(list(iter(module._pop_mode, mode))):
        module._push_mode(each)
    return True


def _stack(mode):
    if isinstance(mode, TorchFunctionMode):
        return overrides, overrides._get_current_function_mode_stack()
    return dispatch, dispatch._get_current_dispatch_mode_stack()


def _stays(mode):
    """Not `with torch.device(…):`, which pops what is on top, as other modes do."""
    default = isinstance(mode, DeviceContext) and hasattr(mode, "old_device")
    return default or hasattr(mode, "_mode_key")


def note_scalers():
    """Which scalers are asked for enabled, until the returned function is called:
    without CUDA all are disabled. In __new__, as __init__ warns where it is called.
    """
    if "__new__" in vars(GradScaler):
        return lambda: None
    GradScaler.__new__ = staticmethod(_new_scaler)
    return functools.partial(delattr, GradScaler, "__new__")


def _new_scaler(cls, *args, **kwargs):
    scaler = object.__new__(cls)
    with contextlib.suppress(TypeError):  # __init__ says what is wrong
        given = inspect.signature(cls.__init__).bind(scaler, *args, **kwargs)
        if given.arguments.get("enabled", True):
            _enabled.add(scaler)
    return scaler


class StepWaits(_Watch):
    """open(), then begin() and end() around each step, and close(). end() tells what
    waited, as keys for row(). Where a line stands is its whole path here. lies: which
    tensors are known to be on the device. readers, libraries: what is said of a line →
    its path and number. guessed: waits, if tensors lie where others are.
    """

    guess = False

    def __init__(self, lies=None):
        super().__init__()
        self.stack, self.modes = contextlib.ExitStack(), []
        self.lies = self.lies if lies is None else lies
        self.readers, self.libraries = {}, {}
        self.guessed = collections.Counter()
        for module in gc.get_objects():
            if issubclass(type(module), nn.Module):
                for x in filter(torch.is_tensor, module._buffers.values()):
                    self.lies[x] = "there"

    def open(self):
        if torch.cuda.is_initialized() and torch.cuda.memory_allocated():
            self.device = "cuda"
        super().open(self.stack, self._enter)
        if self.device == "cuda":
            self.stack.enter_context(self.witness())

    def _enter(self, mode):
        enter_below(mode)
        self.modes.append(mode)

    def close(self):
        """False if a mode is not to be reached now, as take_out says: close again."""
        self.stack.close()
        self.modes = [mode for mode in self.modes if not take_out(mode)]
        return not self.modes

    def silence(self, on):
        """Nothing is counted meanwhile: while a loader works."""
        self.quiet += 1 if on else -1

    def begin(self):
        for counts in (self.counts, self.scaler, self.assumed, self.guessed):
            counts.clear()

    def end(self):
        rows = {("wait", key): n for key, n in (self.counts | self.scaler).items()}
        rows |= {("guess", key): n for key, n in self.guessed.items()}
        if self.device is None:
            rows |= {("assumed", where): n for where, n in self.assumed.items()}
        self.begin()
        return rows

    def row(self, key):
        """The facts of a wait, but for how often it comes."""
        sort, key = key
        if sort == "assumed":
            kind = "to the device"
            key = key, "", "", "to", kind, OPERATIONS[kind][""]
        where, _, inside, operation, kind, cure = key
        line = line_of(*self.readers.get(where, NOWHERE))
        return line | {
            "where": line["where"] if line["path"] else where,
            "inside": inside,
            "operation": operation,
            "kind": kind,
            "why": CAUSES[kind],
            "cure": cure,
            "assumed": sort != "wait",
            "branch": self._branch(where, inside),
        }

    def _branch(self, where, inside):
        """The condition by which another line may run on a GPU; None on a GPU."""
        reader = file_name, self.readers.get(where, NOWHERE)
        library = short, self.libraries.get(inside, NOWHERE)
        for name, (path, line) in (reader, library) if self.device is None else ():
            if found := path and branch(path, line):
                return f"{name(path)}:{found}"
        return None

    # ---- as find_waits, but for a script that goes on

    def place(self):
        at = super().place()
        self.libraries[at.inside] = at.library
        if at.library[1] and not at.reader[1]:  # `-m` of a library
            code = at.where.partition("  ")[2]
            at = at._replace(reader=at.library, code=code)
        if at.reader[1]:
            at = at._replace(where="{}:{}".format(*at.reader))
            self.readers[at.where] = at.reader
        return at

    def may_compile(self):
        return "torch._dynamo" in sys.modules  # it takes a second to import

    def is_there(self, x):
        return super().is_there(x) or _is_parameter(x)

    def note(self, operation, kind):
        """What was made before it was watched may lie on the host or on the device."""
        if operation == "where" and getattr(self.call, "name", "")[:6] == "scaled":
            return  # a mask on the host: an error there
        call = self.operator
        if call is None or call.name == "lift_fresh":  # a list or array, as an index
            call = self.call
        asked = call.tensors if call and self.device is None else []
        self.guess = not all(x in self.lies or _is_parameter(x) for x in asked)
        super().note(operation, kind)
        self.guess = False

    def count(self, wait):
        if self.guess and wait[-1] is not None:
            self.guessed[wait] += 1
        elif not self.quiet:
            super().count(wait)

    def asking(self, owner, name):
        """What PyTorch does without a device is the script's."""
        function = getattr(owner, name)

        def asked(*args, **kwargs):
            with self.silent():
                out = function(*args, **kwargs)
            self.count(self.wait(name, ASKED[name]))
            return out

        return asked

    def scaling(self):
        step, kits = GradScaler.step, super().scaling()

        def scaled(scaler, *args, **kwargs):
            seen = scaler in _enabled and not self.quiet
            return (kits if seen else step)(scaler, *args, **kwargs)

        return scaled


def _is_parameter(x):
    return x.requires_grad and x.is_leaf

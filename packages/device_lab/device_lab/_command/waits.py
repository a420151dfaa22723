"""Counts the waits of a running script, step by step, with the rules of find_waits."""

import collections
import contextlib
import functools
import gc
import inspect
import linecache
import sys
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.utils.weak import WeakTensorKeyDictionary

from .._kit._cures import CAUSES, OPERATIONS
from .._kit.errors import file_name
from .._kit.waits import ASKED, _Watch
from .branches import branch
from .modes import enter_below, take_out

_enabled: weakref.WeakSet[GradScaler] = weakref.WeakSet()


def note_scalers() -> Callable[[], None]:
    """Until the returned function is called it is noted which scalers are asked for
    enabled: without CUDA they are disabled all the same, and only this tells them
    apart. In __new__, as __init__ warns where it is called.
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


class StepWaits:
    """lies: which tensors are known to be on the device. open(), then begin() and end()
    around each step, and close(): between open and close, modes lie below the script's
    own. end() tells what waited, as keys for row().
    """

    def __init__(self, lies: WeakTensorKeyDictionary | None = None):
        self.watch = _Running(lies)
        self.stack, self.modes = contextlib.ExitStack(), []

    @property
    def device(self) -> str:
        return self.watch.device or "cpu"

    def open(self) -> None:
        watch, gpu = self.watch, torch.cuda
        if gpu.is_available() and gpu.is_initialized() and gpu.memory_allocated():
            watch.device = "cuda"
        watch.open(self.stack, self._enter)
        if watch.device == "cuda":
            self.stack.enter_context(watch.witness())

    def _enter(self, mode):
        enter_below(mode)
        self.modes.append(mode)

    def close(self) -> bool:
        """False if a mode is not to be reached now, as take_out says: close again."""
        self.stack.close()
        self.modes = [mode for mode in self.modes if not take_out(mode)]
        return not self.modes

    def silence(self, on: bool) -> None:
        """Nothing is counted meanwhile: while a loader works."""
        self.watch.quiet += 1 if on else -1

    def begin(self) -> None:
        watch = self.watch
        for counts in (watch.counts, watch.scaler, watch.assumed, watch.guessed):
            counts.clear()

    def end(self) -> dict[Hashable, int]:
        watch = self.watch
        rows = {("wait", key): n for key, n in (watch.counts | watch.scaler).items()}
        rows |= {("guess", key): n for key, n in watch.guessed.items()}
        if watch.device is None:
            rows |= {("assumed", where): n for where, n in watch.assumed.items()}
        self.begin()
        return rows

    def row(self, key: Any) -> dict[str, Any]:
        """The facts of a wait, but for how often it comes."""
        sort, key = key
        if sort == "assumed":
            _, code = self._line(key)
            key = key, code, "", "to", "to the device", OPERATIONS["to the device"][""]
        where, code, inside, operation, kind, cure = key
        line, _ = self._line(where)
        return line | {
            "code": code,
            "inside": inside,
            "operation": operation,
            "kind": kind,
            "why": CAUSES[kind],
            "cure": cure,
            "assumed": sort != "wait",
            "branch": self._branch(where, inside),
        }

    def _line(self, where):
        path, line = self.watch.readers.get(where, ("", 0))
        short = f"{file_name(path)}:{line}" if path else where
        code = linecache.getline(path, line).strip()
        return {"where": short, "path": path, "line": line}, code

    def _branch(self, where, inside):
        if self.device != "cpu":
            return None  # this line it was that ran
        path, line = self.watch.readers.get(where, ("", 0))
        if found := path and branch(path, line):
            return f"{file_name(path)}:{found}"
        path, line = self.watch.libraries.get(inside, ("", 0))
        if found := path and branch(path, line):
            return f"{inside.split('  ')[0].rpartition(':')[0]}:{found}"
        return None


class _Running(_Watch):
    """Where a line stands is its whole path here. readers, libraries: what is said of a
    line → its path and number. guessed: waits, if tensors lie where others are.
    """

    def __init__(self, lies):
        super().__init__()
        self.lies = self.lies if lies is None else lies
        self.readers, self.libraries = {}, {}
        self.guessed, self.guess = collections.Counter(), False
        for module in gc.get_objects():
            if issubclass(type(module), nn.Module):
                for x in filter(torch.is_tensor, module._buffers.values()):
                    self.lies[x] = "there"

    def place(self):
        at = super().place()
        self.libraries[at.inside] = at.library
        if not at.reader[1]:
            return at
        at = at._replace(where="{}:{}".format(*at.reader))
        self.readers[at.where] = at.reader
        return at

    def may_compile(self):
        return "torch._dynamo" in sys.modules  # it takes a second to import

    def note(self, operation, kind):
        """What was made before it was watched may lie on the host or on the device."""
        call = self.operator
        if call is None or call.name == "lift_fresh":  # a list or array, as an index
            call = self.call
        asked = call.tensors if call and self.device is None else []
        self.guess = not all(map(self.is_known, asked))
        super().note(operation, kind)
        self.guess = False

    def is_known(self, x):
        return x in self.lies or (x.requires_grad and x.is_leaf)

    def count(self, wait):
        if self.guess and wait[-1] is not None:
            self.guessed[wait] += 1
        elif not self.quiet:
            super().count(wait)

    def asking(self, owner, name):
        """As in the kit, but what PyTorch does without a device is the script's."""
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

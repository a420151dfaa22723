"""Ledger: which storages exist, call by call. `memory` counts with it."""

import functools
import gc
import math
import sys
import weakref
from dataclasses import dataclass

import numpy
import torch
from torch.optim import optimizer as optim
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ._lines import TORCH, place
from ._wait_rules import tensors_in
from .devices import pick_device
from .errors import LabError

FORWARD, BACKWARD = "the forward pass", "the backward pass"
aten = torch.ops.aten
COPIES = aten.scatter_add.default, aten.index_add.default, aten.index_put.default
COPIES += aten.scatter.src, aten.scatter.value
AGAIN, OPTIMIZER = "the recomputation within backward", "the optimizer step"


@dataclass
class Piece:
    """A storage. born, died: numbers of the first and the last call that it lived in;
    phase, last: the phases then. kind: whose it is, where that is known. ready: whether
    Python held it before the first call, such as a batch that was made ahead.
    """

    nbytes: int
    born: int
    phase: str
    died: int | None = None
    last: str = ""
    kind: str = ""
    ready: bool = False


class Ledger(TorchDispatchMode):
    """Notes each storage on a kind of device that calls make or use, and its end."""

    supports_higher_order_operators = True

    def __init__(self, device, block=1):
        super().__init__()
        if device.type not in ("cpu", pick_device().type):
            raise LabError(f"no {device.type} device here whose memory can be counted")
        self.device, self.block = device, block
        self.pieces, self.living, self.phases = [], {}, []
        self.stepping, self.largest = False, (0, "")
        self.ready, self.copies = set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "prim":  # "which device?", asked by C++
            return func(*args, **kwargs or {})
        self.phases.append(self.phase())
        out = self.call(func, args, kwargs or {})
        for x in tensors_in((args, kwargs)):
            self.note(x)
        for x in tensors_in(out):
            count = len(self.pieces)  # views are no new tensors
            piece = self.note(x)
            if len(self.pieces) > count and piece.nbytes > self.largest[0]:
                where, code, *_ = place()
                where = f"{where}: {code}" if code else where
                self.largest = (
                    piece.nbytes,
                    f"{getattr(func, 'overloadpacket', func)} in {where}",
                )
        if self.phases[-1] == BACKWARD and self.may_be_in_place(func, args):
            self.copies.append([self.note(x) for x in (out, *args[:2])])
        return out

    def may_be_in_place(self, func, args):
        sums = func is aten.add.Tensor and not args[0]._is_view() and engine_calls()
        return sums or func in COPIES

    def in_place(self):
        """Under a mode backward passes fill a copy of new zeros, and sum gradients in
        a new tensor. Without one they do it in place, in what nobody else holds; views
        hold their base (autograd's input_buffer.cpp).
        """
        for made, into, other in self.copies:
            if made and into and into is not other and into.died == made.born:
                into.died -= 1
        self.copies.clear()

    def call(self, func, args, kwargs):
        return func(*args, **kwargs)

    def phase(self):
        if torch._C._current_graph_task_id() != -1:  # no public call tells
            return AGAIN if torch.is_grad_enabled() else BACKWARD
        if self.stepping:
            return OPTIMIZER
        return FORWARD if torch.is_grad_enabled() else "code without gradients"

    def note(self, x):
        """The piece of a tensor; None for what is none, or is elsewhere."""
        if not isinstance(x, torch.Tensor) or x.device.type != self.device.type:
            return None
        if x.layout != torch.strided:
            return None
        storage = x.untyped_storage()
        if weakref.ref(storage) not in self.living:
            piece = self.add(storage.nbytes())
            piece.ready = weakref.ref(storage) in self.ready
            gone = functools.partial(self.gone, piece)
            self.living[weakref.ref(storage, gone)] = piece
        return self.living[weakref.ref(storage)]

    def add(self, nbytes):
        nbytes = math.ceil(nbytes / self.block) * self.block
        piece = Piece(nbytes, max(0, len(self.phases) - 1), self.phase())
        self.pieces.append(piece)
        return piece

    def gone(self, piece, reference):
        piece.died, piece.last = len(self.phases) - 1, self.phase()
        del self.living[reference]

    def held(self, ready=True):
        """Bytes; ready: whether with what was there before the first call."""
        pieces = self.living.values()
        return sum(piece.nbytes for piece in pieces if ready or not piece.ready)

    def highest(self, start, weigh=lambda piece: 1):
        """(bytes, call) of the highest moment from call `start` on; weigh: which share
        of a piece counts.
        """
        self.in_place()
        change = numpy.zeros(len(self.phases) + 1)
        for piece in self.pieces:
            nbytes = weigh(piece) * piece.nbytes
            change[piece.born] += nbytes
            if piece.died is not None:
                change[piece.died + 1] -= nbytes
        curve = change[:-1].cumsum()[start:]
        return int(curve.max()), start + int(curve.argmax())


class StepLedger(Ledger):
    """With whose the pieces are. start: the call that the step begins with; before:
    bytes then. parameters: weak references; fused: whether all optimizers can be.
    """

    def __init__(self, device, block=1):
        super().__init__(device, block)
        self.optimizers, self.parameters = weakref.WeakSet(), []
        self.fused = True
        self.start = self.before = 0

    def hooks(self):
        """Of optimizers, for as long as their handles stay."""
        yield optim.register_optimizer_step_pre_hook(self.begins)
        yield optim.register_optimizer_step_post_hook(self.ends)

    def begins(self, optimizer, args, kwargs):
        self.optimizers.add(optimizer)
        self.fused &= "fused" in optimizer.defaults
        self.mark()
        self.stepping = True

    def ends(self, optimizer, args, kwargs):
        self.stepping = False
        self.mark()

    def known(self):
        """Parameters that are no optimizer's, too."""
        return [reference() for reference in self.parameters]

    def mark(self):
        """Notes whose the pieces are."""
        parameters = self.known()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                parameters += group["params"]
                on_host = not (group.get("fused") or group.get("capturable"))
                states = [optimizer.state.get(p) for p in group["params"]]
                for x in tree_leaves(states):
                    self.name(x, "optimizer state", on_host)
        for p in filter(torch.is_tensor, parameters):
            self.name(p, "parameters")
            self.name(p.grad, "gradients")

    def name(self, x, kind, on_host=False):
        """on_host: whether single numbers are, as Adam's steps."""
        piece = self.note(x)
        if piece:
            piece.kind = kind
            if on_host and not x.dim():
                piece.nbytes = 0

    def kind(self, piece):
        if piece.kind:
            return piece.kind
        if piece.born < self.start:
            return "inputs and other"
        outlives = piece.phase == FORWARD and piece.last != FORWARD
        if outlives or piece.phase == AGAIN:
            return "activations"
        return "temporaries"

    def kinds(self, at):
        """Kind → bytes, at a call."""
        kinds: dict[str, int] = {}
        for piece in self.pieces:
            if piece.born <= at and (piece.died is None or piece.died >= at):
                kind = self.kind(piece)
                kinds[kind] = kinds.get(kind, 0) + piece.nbytes
        return kinds

    def begin(self):
        self.mark()
        self.start, self.before = len(self.phases), self.held()

    def estimates(self):
        """(change, the peak with it), of those that need no other run."""

        def fused(piece):
            return bool(piece.kind) or piece.phase != OPTIMIZER

        def halved(piece):
            whole = piece.kind or piece.born < self.start or piece.phase == OPTIMIZER
            return 1 if whole else 0.5

        if self.fused:
            yield "fused=True in the optimizer", self.highest(self.start, fused)[0]
        yield "half of the batch (about)", self.highest(self.start, halved)[0]


def engine_calls():
    """Whether autograd itself makes the call that is running, no hook or Function."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith((TORCH, __file__)):
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


def storages():
    """Weak references to those of all tensors that Python holds now."""
    kinds = torch.Tensor, torch.nn.Parameter
    tensors = [x for x in gc.get_objects() if type(x) in kinds]
    strided = [x for x in tensors if x.layout == torch.strided]
    return {weakref.ref(x.untyped_storage()) for x in strided}


def size_text(nbytes: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:,.4g} {unit}"
    return f"{nbytes} bytes"

"""How `rehearse` takes a step on tensors without data: its ledger, and the changes that
would lower its peak.
"""

import contextlib
import functools
import gc
import weakref

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optim
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from ._cuda_rules import CPU, AsCuda, within
from ._ledger import AGAIN, FORWARD, OPTIMIZER, Ledger
from .errors import LabError


class Rehearsal(Ledger):
    """The ledger of steps within AsCuda."""

    def __init__(self, cuda):
        super().__init__(CPU, block=512)  # kMinBlockSize of CUDACachingAllocator
        self.cuda = cuda
        self.optimizers = weakref.WeakSet()
        self.fused = True  # all of them
        self.parameters = []
        self.modules = weakref.WeakKeyDictionary()
        self.children = weakref.WeakSet()
        self.recurrent = False
        self.start = self.before = self.grows = 0

    def watch(self):
        """Hooks that tell of optimizers, parameters and modules, while make() runs."""

        def begin(optimizer, args, kwargs):
            self.optimizers.add(optimizer)
            self.fused &= "fused" in optimizer.defaults
            self.mark()
            self.stepping = True

        def end(optimizer, args, kwargs):
            self.stepping = False
            self.mark()

        def parameter(module, name, p):
            self.modules[module] = None  # a set
            self.recurrent |= isinstance(module, nn.RNNBase)
            if p is not None:
                self.parameters.append(weakref.ref(p))

        def child(module, name, part):
            self.modules[module] = None
            self.children.add(part)

        yield optim.register_optimizer_step_pre_hook(begin)
        yield optim.register_optimizer_step_post_hook(end)
        yield hooks.register_module_parameter_registration_hook(parameter)
        yield hooks.register_module_module_registration_hook(child)

    def call(self, func, args, kwargs):
        out = self.cuda.call(func, args, kwargs)
        for nbytes in within(func, args, self.cuda.gpu):
            piece = self.add(nbytes)
            piece.died, piece.last = piece.born, piece.phase
        return out

    def mark(self):
        """Notes whose the pieces are."""
        parameters = [reference() for reference in self.parameters]
        for optimizer in self.optimizers:  # copied modules told no hook of theirs
            parameters += sum([each["params"] for each in optimizer.param_groups], [])
        for p in filter(torch.is_tensor, parameters):
            self.note(p).kind = "parameters"
            if p.grad is not None:
                self.note(p.grad).kind = "gradients"
        for optimizer in self.optimizers:
            for x in tree_leaves(list(optimizer.state.values())):
                if isinstance(x, torch.Tensor):
                    self.note(x).kind = "optimizer state"

    def kind(self, piece):
        if piece.kind:
            return piece.kind
        if piece.born < self.start:
            return "inputs and other"
        outlives = piece.phase == FORWARD and piece.last != FORWARD
        if outlives or piece.phase == AGAIN:
            return "activations"
        return "temporaries"


def second_step(make, change=lambda ledger: None):
    """The Rehearsal of the second step that make() returns; change: what is done to it
    after the first.
    """
    if not callable(make) or isinstance(make, nn.Module):
        raise LabError("rehearse asks a function that builds all and returns the step")
    with contextlib.ExitStack() as stack:
        cuda = stack.enter_context(AsCuda())
        ledger = Rehearsal(cuda)
        for handle in ledger.watch():
            stack.callback(handle.remove)
        stack.enter_context(ledger)
        step = make()
        if not callable(step) or isinstance(step, nn.Module):
            raise LabError("make() has to return the function that does one step")
        if not ledger.parameters:
            raise LabError("make() has to build the model, too; it made no parameter")
        step()
        ledger.mark()
        change(ledger)
        ledger.start, ledger.before = len(ledger.phases), ledger.held()
        step()
        ledger.mark()
        if ledger.held() > ledger.before:
            gc.collect()
        ledger.grows = max(0, ledger.held() - ledger.before)
    return ledger


def ways(make, ledger):
    """(change, the peak with it), of each that was tried."""

    def fused(piece):
        return bool(piece.kind) or piece.phase != OPTIMIZER

    def halved(piece):
        whole = piece.kind or piece.born < ledger.start or piece.phase == OPTIMIZER
        return 1 if whole else 0.5

    if ledger.fused:
        yield "fused=True in the optimizer", ledger.highest(ledger.start, fused)[0]
    yield "half of the batch (about)", ledger.highest(ledger.start, halved)[0]
    changes = {
        "zero_grad() before each step": _zero_first,
        "each block in torch.utils.checkpoint": _recompute,
        "autocast to bfloat16": _autocast,
    }
    for way, change in changes.items():
        if change is _autocast and ledger.cuda.autocast:
            continue
        with contextlib.suppress(RuntimeError, TypeError):  # not every model takes it
            changed = second_step(make, change)
            yield way, changed.highest(changed.start)[0]


def _zero_first(ledger):
    for optimizer in ledger.optimizers:
        optimizer.zero_grad()


def _recompute(ledger):
    """In each outermost nn.Sequential or nn.ModuleList."""
    lists = [m for m in ledger.modules if isinstance(m, (nn.Sequential, nn.ModuleList))]
    inner = {part for m in lists for child in m for part in child.modules()}
    options = {"use_reentrant": False, "preserve_rng_state": False}
    for blocks in set(lists) - inner:
        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, **options)


def _autocast(ledger):
    for root in set(ledger.modules) - set(ledger.children):
        root.forward = torch.autocast("cuda", torch.bfloat16)(root.forward)

"""How `rehearse` takes a step on tensors without data: its ledger, and the changes that
would lower its peak.
"""

import contextlib
import functools
import gc
import traceback
import weakref
from unittest import mock

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils.checkpoint import checkpoint

from ._cuda_rules import AsCuda, within
from ._ledger import BACKWARD, StepLedger
from ._lines import is_reader
from ._values import CPU
from .errors import LabError, file_name, without_arguments


class Rehearsal(StepLedger):
    """The ledger of steps within AsCuda. once: whether only the first step was one."""

    def __init__(self, cuda):
        super().__init__(CPU, block=512)  # kMinBlockSize of CUDACachingAllocator
        self.cuda = cuda
        self.called = weakref.WeakSet()
        self.recurrent = self.once = False
        self.grows = 0

    def watch(self):
        """Hooks that tell of optimizers, parameters and modules."""

        def parameter(module, name, p):
            self.recurrent |= isinstance(module, nn.RNNBase)
            if p is not None:
                self.parameters.append(weakref.ref(p))

        def called(module, args):
            self.called.add(module)

        yield from self.hooks()
        yield hooks.register_module_parameter_registration_hook(parameter)
        yield hooks.register_module_forward_pre_hook(called)

    def call(self, func, args, kwargs):
        out = self.cuda.values.call(func, args, kwargs)
        for nbytes in within(func, args, self.cuda.gpu):
            piece = self.add(nbytes)
            piece.died, piece.last = piece.born, piece.phase
        return out

    def note(self, x):
        """Tensors with data count as soon as they are on the device."""
        if type(x) is torch.Tensor and self.cuda.values.on_host(x):
            return None
        return super().note(self.cuda.values.double(x))

    def known(self):
        # copied modules told no hook of theirs
        called = (p for m in self.called for p in m.parameters(recurse=False))
        return [*super().known(), *called]

    def end(self):
        self.mark()
        if self.held() > self.before:
            gc.collect()
        self.grows = max(0, self.held() - self.before)


def second_step(make, change=None):
    """The Rehearsal of the second step that make() returns; change: what is done to it
    after the first. Where the second call trains no more, of the first.
    """
    _is_function(make, "is")
    without_arguments(make, ASKS)
    with contextlib.ExitStack() as stack:
        cuda = stack.enter_context(AsCuda())
        ledger = Rehearsal(cuda)
        stack.enter_context(_explained(ledger))
        for handle in ledger.watch():
            stack.callback(handle.remove)
        stack.enter_context(ledger)
        step = make()
        _is_function(step, "returned")
        without_arguments(step, "give them in make(): lambda: {}({})")
        if not ledger.parameters:
            raise LabError("make() has to build the model, too; it made no parameter")
        ledger.begin()
        first = ledger.start, ledger.before
        step()
        ledger.begin()
        if change:
            change(ledger, stack)
        step()
        ledger.end()
    if first[0] == len(ledger.phases):
        raise LabError("the step that make() returns calls nothing of PyTorch")
    if BACKWARD not in ledger.phases[ledger.start :]:
        ledger.once = BACKWARD in ledger.phases[first[0] : ledger.start]
    if ledger.once or ledger.start == len(ledger.phases):
        (ledger.start, ledger.before), ledger.grows = first, 0
    return ledger


ASKS = "rehearse asks for a make() that builds model, optimizer and batch, without"
ASKS += " arguments, and returns the function that does one step"


def _is_function(x, what):
    if not callable(x) or isinstance(x, nn.Module):
        raise LabError(f"{ASKS}; this {what} a {type(x).__name__}")


@contextlib.contextmanager
def _explained(ledger):
    """Says what to hand over in place of what does not run on tensors without data. The
    reader's own errors stay as they are.
    """
    try:
        yield
    except StopIteration:
        raise
    except Exception as error:
        read = ledger.cuda.values.read
        frames = list(traceback.walk_tb(error.__traceback__))
        own = [each for each in frames if is_reader(each[0].f_code.co_filename)]
        if own and own[-1] == frames[-1] and not read:
            raise
        if ledger.called and not ledger.parameters:
            raise LabError(f"{ASKS}; this calls a model that was there") from error
        if isinstance(error, LabError):
            raise
        lines = [f"{file_name(each.f_code.co_filename)}:{n}" for each, n in own]
        where = lines[-1] if lines else "a library"
        text = (
            "leave out for rehearse what needs data, or put fixed values in its place:"
            f" without data the step stops in {where}: {reason(error)}."
        )
        if read:
            text += f" Unknown values were read as 0, first in {next(iter(read))}."
        raise LabError(text) from error


def reason(error):
    """Its first line, or that of what it came from."""
    cause = error.__cause__ or error
    text = str(cause).strip().split("\n")[0].rstrip(".")[:150]
    kind = "" if isinstance(cause, LabError) else type(cause).__name__
    return ": ".join(filter(None, (kind, text)))


def ways(make, ledger):
    """(change, the peak with it or why there is none), of each."""

    yield from ledger.estimates()
    changes = {
        "zero_grad() before each step": _zero_first,
        "each block in torch.utils.checkpoint": _recompute,
        "autocast to bfloat16": _autocast,
    }
    if ledger.cuda.autocast:
        del changes["autocast to bfloat16"]
    for way, change in changes.items():
        try:
            if ledger.once:
                raise LabError("a second call of the step did nothing")
            changed = second_step(make, change)
            yield way, changed.highest(changed.start)[0]
        except Exception as error:  # not every model takes it
            yield way, reason(error)


def _zero_first(ledger, stack):
    for optimizer in ledger.optimizers:
        optimizer.zero_grad()


LISTS = nn.Sequential, nn.ModuleList, nn.ModuleDict


def _recompute(ledger, stack):
    options = {"use_reentrant": False, "preserve_rng_state": False}
    blocks = set(_blocks(ledger.called))
    if not blocks:
        raise LabError("no nn.Sequential, nn.ModuleList or list of blocks was called")
    for block in blocks:
        again = functools.partial(checkpoint, block.forward, **options)
        stack.enter_context(mock.patch.object(block, "forward", again))


def _blocks(called):
    """What was called in each outermost nn.Sequential, nn.ModuleList or list of
    modules of one class.
    """
    outer = {part for m in called for part in m.modules() if isinstance(part, LISTS)}
    plain = {
        nn.ModuleList(each): m
        for m in called
        for each in vars(m).values()
        if _are_blocks(each)
    }
    outer |= plain.keys()
    inner = {part for m in outer for part in m.modules() if part is not m}
    inner |= {each for each, holder in plain.items() if holder in inner}
    waiting = list(outer - inner)
    while waiting:
        for part in waiting.pop().children():
            if part in called:
                yield part
            else:
                waiting.append(part)


def _are_blocks(x):
    several = isinstance(x, (list, tuple)) and len(x) > 1 and len(set(map(type, x))) < 2
    return several and isinstance(x[0], nn.Module) and not isinstance(x[0], LISTS)


def _autocast(ledger, stack):
    """Around what the step itself calls."""
    casts, running = torch.autocast("cuda", torch.bfloat16), []

    def enter(module, args):
        if not running:
            casts.__enter__()
        running.append(module)

    def leave(module, args, out):
        running.pop()
        if not running:
            casts.__exit__(None, None, None)

    before = hooks.register_module_forward_pre_hook(enter)
    after = hooks.register_module_forward_hook(leave, always_call=True)
    stack.callback(before.remove)
    stack.callback(after.remove)

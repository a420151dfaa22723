"""What the steps of a running script hold, and what they leave behind."""

import contextlib
import gc
import sys
import weakref
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .._kit._ledger import FORWARD, OPTIMIZER, StepLedger, storages
from .keepers import Keepers
from .modes import enter_below, take_out

KINDS = "parameters", "gradients", "optimizer state", "activations", "temporaries"
KINDS += ("inputs and other",)
SMALL = 4096  # what a step leaves behind, and a hundredth


class StepMemory:
    """open(), then begin() and end() around each step, and close(): between open and
    close, a mode lies below the script's own. The first step after open() is better
    not begun: by its end, what steps use is known.
    """

    def __init__(self):
        self.stack, self.ledger, self.steps = contextlib.ExitStack(), None, []

    def open(self, device: torch.device | str, optimizers: Iterable[Optimizer]) -> None:
        device = torch.device(device)
        self.ledger = ledger = _Running(device, 512 if device.type == "cuda" else 1)
        ledger.know(optimizers)
        self.keepers, self.steps = Keepers(), []
        if "torch._dynamo" in sys.modules:  # under a mode it gives up, for ever
            self.stack.enter_context(torch.compiler.set_stance("force_eager"))
        enter_below(ledger)

    def begins(self, *step: Any) -> None:
        """An optimizer's step: what its hooks are given."""
        self.ledger.begins(*step)

    def ends(self, *step: Any) -> None:
        self.ledger.ends(*step)

    def silence(self, on: bool) -> None:
        """What is made meanwhile is noted when it is used: while a loader works."""
        self.ledger.quiet += 1 if on else -1

    def begin(self) -> None:
        self.ledger.stepping = False
        self.ledger.begin()

    def end(self) -> None:
        ledger = self.ledger
        ledger.stepping = False
        ledger.mark()
        if ledger.held() > ledger.before:  # cycles that the step left, or a leak
            gc.collect()
        if ledger.start < len(ledger.phases):
            # L-BFGS keeps a history, of a length of its own
            left = sum(
                piece.nbytes
                for piece in ledger.living.values()
                if not (piece.ready or piece.kind == "optimizer state")
            )
            end = len(ledger.phases) - 1
            self.steps.append((ledger.start, end, ledger.before, left))
        self.keepers.look()

    def close(self) -> dict[str, Any] | None:
        """The facts; None if no step called anything. Called from within a call of an
        operator, the mode stays, but does nothing more.
        """
        if self.ledger is None:
            return None
        ledger, self.ledger = self.ledger, None
        self.stack.close()
        take_out(ledger)
        ledger.quiet += 1
        facts = self._facts(ledger) if self.steps else None
        ledger.forget()
        return facts

    def _facts(self, ledger):
        highest, at = ledger.highest(self.steps[0][0])
        step = [x for x in self.steps if x[0] <= at][-1]
        ledger.start, ledger.end, ledger.before, _ = step
        kinds = ledger.kinds(at)
        left = [after - before for (*_, before), (*_, after) in pairwise(self.steps)]
        grows = min(left) if len(left) > 1 else 0
        grows = grows if grows >= max(SMALL, highest / 1000) else 0
        lower = {way: n for way, n in ledger.estimates() if n < 0.99 * highest}
        nbytes, where = ledger.largest
        return {
            "device": str(ledger.device),
            "counted": "PyTorch's calls",
            "highest": highest,
            "phase": ledger.phases[at],
            "kinds": {kind: kinds.get(kind, 0) for kind in KINDS},
            "before": ledger.before,
            "grows": grows,
            "keeper": self.keepers.keeper(grows),
            "largest": {"bytes": nbytes, "where": where},
            "lower": lower,
        }


class _Running(StepLedger):
    """closure: whether the optimizer was given one, which it calls with gradients.
    end: the step's last call.
    """

    quiet, closure, end = 0, False, 0

    def know(self, optimizers):
        for optimizer in optimizers:
            self.optimizers.add(optimizer)
            self.fused &= "fused" in optimizer.defaults
        gc.collect()
        held = [x for x in gc.get_objects() if type(x) is nn.Parameter]
        self.parameters = [weakref.ref(x) for x in held]
        self.ready = storages()

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
        outlives = piece.died is None or piece.died > self.end
        return (
            "inputs and other" if outlives and not piece.kind else super().kind(piece)
        )

    def note(self, x):
        try:
            return super().note(x)
        except (NotImplementedError, RuntimeError):  # a tensor without a storage
            return None

    def estimates(self):
        already = [g.get("fused") for o in self.optimizers for g in o.param_groups]
        self.fused &= bool(already) and not all(already)
        return super().estimates()

    def forget(self):
        """Nothing is called when a storage ends."""
        self.living.clear()

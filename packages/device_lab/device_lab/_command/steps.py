"""Where a step of an unknown loop ends."""

import threading
from collections import Counter

import torch.distributed

BACKWARDS, BATCHES = 8, 4  # so many without an optimizer, and it is done without
CALLS = 16  # so many of a model without gradients
BEFORE = {"backward": BACKWARDS - 1, "batch": BATCHES - 1, "call": CALLS - 1}
ELSEWHERE = 200  # so many optimizer steps at other lines, and another loop has begun
OPTIMIZERS = 30  # so many in turn, and they are made anew for each step


class Boundaries:
    """Told of each optimizer step, backward, batch and call, says which of them ends a
    step: the optimizer that comes last before the first one comes again (GANs have
    two); where none comes, a backward; where that does not come, a batch;
    where nothing else comes, a call.

    anchor: (kind, lines, optimizer's id) of what ends a step, once known.
    """

    def __init__(self):
        self.anchor = self.thread = None
        self.order, self.elsewhere, self.made_anew = [], 0, False
        self.seen, self.other_threads = Counter(), Counter()
        self.calls = Counter()  # since the anchor's

    def ends(self, kind, lines, optimizer=None):
        """None: no. "step": yes. "loop": yes, of another loop than before."""
        self.seen[kind] += 1
        key = kind, lines, None if self.made_anew else optimizer
        if self.thread not in (None, threading.get_ident()):
            self.other_threads[kind] += 1
            if kind != "optimizer" or self.anchor[0] == "optimizer":
                return None
            self.choose(None)  # what was watched was no training
        if kind == "optimizer":
            return self._optimizer(key)
        if key == self.anchor:
            self.calls.clear()
            return "step"
        if kind == "call":
            self.calls[key] += 1
            return self.calls[key] >= CALLS and self._begin(key, over="call")
        if self.order or self.seen["optimizer"]:
            return None
        if kind == "backward" and self.seen[kind] >= BACKWARDS:
            return self._begin(key, over="batch")
        if kind == "batch" and self.seen[kind] >= BATCHES and not self.seen["backward"]:
            return self._begin(key, over="")
        return None

    def _begin(self, key, over):
        if self.anchor is None or self.anchor[0] == over:
            self.choose(key)
            return "loop"
        return None

    def _optimizer(self, key):
        if self.anchor and self.anchor[0] == "optimizer":
            if key == self.anchor:
                self.elsewhere = 0
                return "step"
            self.elsewhere += 1
            if self.elsewhere > ELSEWHERE:
                self.choose(None)
            return None
        if key not in self.order:
            self.order.append(key)
            if len(self.order) == OPTIMIZERS:
                self.order, self.made_anew = [], True
            return None
        self.choose(self.order[-1])
        return "loop" if key == self.anchor else None

    def choose(self, anchor):
        self.anchor, self.order, self.elsewhere = anchor, [], 0
        self.thread = threading.get_ident() if anchor else None


def world():
    """How many processes train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1

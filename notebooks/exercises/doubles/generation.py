"""What checks of lesson 17 need: a model that says what is planned, a decoder small
enough to check to the last digit, and two slots for weights, with queues.

Left out: all time but that of copies and computing, which the slots are told.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from device_lab import LabError
from simulate.timeline import Op, makespan, races, schedule
from simulate.waits import CountWaits

# calls that may take tensors of the CPU and of a GPU
MIXES = {"to", "copy_", "__getitem__", "__setitem__", "type_as"}


class OnGpu(CountWaits):
    """Counts waits, and refuses to compute with tensors of the CPU and of the GPU, as
    PyTorch does: RuntimeError.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        given = tree_leaves((args, kwargs))
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        places = {getattr(x, "on_cpu", False) for x in tensors if x.dim()}
        if len(places) == 2 and name not in MIXES:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two"
                " devices, cuda:0 and cpu!"
            )
        result = super().__torch_function__(function, types, args, kwargs)
        if name == "to" and torch.device("cpu", 0) in given:  # as x.device reads here
            result = result.clone()  # on the CPU, x.to(device) is x itself
            result.on_cpu = False
        return result


class Planned:
    """A model that says what is planned, whatever it is given.

    rows: for each answer the tokens that it says, one a step

    given: what it was called with, one a step
    """

    def __init__(self, rows: Sequence[Sequence[int]]):
        self.columns = list(torch.tensor(rows).split(1, dim=1))
        self.given = []

    def __call__(self, token):
        if len(self.given) == len(self.columns):
            most = len(self.columns)
            raise LabError(
                f"step was called {most + 1} times, at most {most} are allowed"
            )
        self.given.append(token.clone() if isinstance(token, torch.Tensor) else token)
        return self.columns[len(self.given) - 1].clone()


class Seats:
    """A static cache in double precision, as the lesson has it: a key and a value for
    each seat. What the free ones hold is arbitrary.
    """

    def __init__(self, *shape: int):
        full = torch.linspace(-3, 3, shape[2], dtype=torch.float64)
        self.k = full[:, None].expand(shape).clone()
        self.v = -self.k

    def add(self, k, v, at):
        self.k.index_copy_(2, at, k)
        self.v.index_copy_(2, at, v)
        return self.k, self.v


class TinyDecoder:
    """Two layers of attention in double precision, called as the lesson's model is:
    tokens of shape (batch, n), their places `at`, a cache a layer, and a mask.

    calls: a Call for each
    """

    layers, heads, size, symbols = 2, 2, 4, 11

    def __init__(self):
        random, width = torch.Generator().manual_seed(0), self.heads * self.size

        def new(*shape):
            made = torch.randn(shape, generator=random, dtype=torch.float64)
            return made / shape[0] ** 0.5

        self.calls = []
        self.embed = new(self.symbols, width) * 3
        self.speed = new(width)
        self.weights = [(new(width, 3 * width), new(width, width)) for _ in range(2)]

    def caches(self, batch: int, room: int) -> list[Seats]:
        shape = batch, self.heads, room, self.size
        return [Seats(*shape) for _ in range(self.layers)]

    def __call__(self, tokens, at, caches, mask=None):
        room = caches[0].k.shape[2]
        if mask is not None and mask.shape[-2:] != (len(at), room):
            raise LabError(
                f"the model got a mask of shape {tuple(mask.shape)} for {len(at)}"
                f" tokens and a cache of {room} seats, expected {(len(at), room)}"
            )
        self.calls.append(Call(tokens.clone(), at.clone(), mask))
        x = self.embed[tokens] + (at[:, None] * self.speed).sin()
        for (qkv, out), cache in zip(self.weights, caches, strict=True):
            parts = (x @ qkv).unflatten(-1, (3, self.heads, self.size)).movedim(2, 0)
            q, k, v = parts.transpose(2, 3)
            k, v = cache.add(k, v, at)
            x = (
                x
                + F.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=mask is None
                )
                .transpose(1, 2)
                .flatten(2)
                @ out
            )
        return x @ self.embed.T


class Call(NamedTuple):
    """What a TinyDecoder was given."""

    tokens: torch.Tensor
    at: torch.Tensor
    mask: torch.Tensor | None

    def seen(self, room: int) -> torch.Tensor:
        """Which seats each token may look at, as booleans of shape (…, n, room)."""
        if self.mask is None:
            return torch.ones(len(self.at), room, dtype=torch.bool).tril()
        return self.mask if self.mask.dtype == torch.bool else self.mask == 0


class Event(NamedTuple):
    """What a queue can wait for: the end of the operation of this name."""

    name: str


class Slots:
    """Two slots for the weights of a layer, a copier that fills them, and a worker that
    computes with what is there. Both work through a queue of their own; whoever calls
    goes on at once.

    layers: how many there are; copy, work: seconds a layer

    computed: the layers that the worker reads, in order; fetched: triples (number of
    the copy, layer, slot); unused: those of them that nobody has computed
    """

    QUEUES = "copier", "worker"

    def __init__(self, layers: int, copy: float, work: float):
        self.layers, self.seconds = layers, {"copier": copy, "worker": work}
        self.ops, self._holds, self._waits = [], [None, None], ([], [])
        self.computed, self.fetched, self.unused = [], [], []

    def _put(self, queue, name, **touched):
        waits = self._waits[self.QUEUES.index(queue)]
        after = tuple(waits)
        waits.clear()
        seconds = self.seconds[queue]
        self.ops.append(Op(name, queue, queue, seconds, after=after, **touched))
        return Event(name)

    def fetch(self, layer: int, slot: int) -> Event:
        _expect(layer, range(self.layers), "fetch", f"layer {layer!r}")
        _expect(slot, range(2), "fetch", f"slot {slot!r}")
        self._holds[slot] = copied = len(self.fetched), layer, slot
        self.fetched.append(copied)
        self.unused.append(copied)
        return self._put("copier", f"fetch {copied[0]}", writes=(slot,))

    def compute(self, slot: int) -> Event:
        _expect(slot, range(2), "compute", f"slot {slot!r}")
        held = self._holds[slot]
        if held is None:
            raise LabError(
                f"compute({slot}) was called before any fetch into slot {slot}"
            )
        self.unused = [copied for copied in self.unused if copied != held]
        self.computed.append(held[1])
        number = len(self.computed) - 1
        return self._put("worker", f"compute {number}", reads=(slot,))

    def wait(self, queue: str, event: Event) -> None:
        if queue not in self.QUEUES:
            raise LabError(f'wait takes "copier" or "worker" first, not {queue!r}')
        if not isinstance(event, Event):
            raise LabError(
                f"wait takes what fetch or compute has returned, not {event!r}"
            )
        self._waits[self.QUEUES.index(queue)].append(event.name)

    def races(self) -> list[tuple[str, str]]:
        """Pairs of operations on the same slot that nothing brings into an order."""
        return races(self.ops)

    def spans(self) -> dict:
        """The name of each operation → simulate.timeline.Span."""
        return {span.op.name: span for span in schedule(self.ops)}

    def end(self) -> float:
        """When the last operation ends, in seconds."""
        return makespan(schedule(self.ops))


def _expect(value, allowed, function, what):
    if isinstance(value, bool) or value not in allowed:
        last = allowed[-1]
        raise LabError(f"{function} got {what}; there are 0 to {last}")

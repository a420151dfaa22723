"""Exercises of lesson 07."""

import math
import weakref

import torch
from torch import nn
from torch.nn import functional as F

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.allocator import MIB, CachingAllocator


def check_four_rules(answer):
    why = {
        1: "the smallest block has 512 bytes, and small blocks share a segment of 2 MiB",
        512: "512 is a multiple of 512 already",
        400_000: "the next multiple of 512, in a segment of 2 MiB",
        MIB: "up to and including 1 MiB a tensor is small",
        MIB + 1: "one byte over 1 MiB, and it is served from a segment of 20 MiB",
        7 * MIB: "below 10 MiB the segment has 20 MiB",
        10 * MIB - 1: "rounded up to 512 it is 10 MiB, so it gets a segment of its own",
        10 * MIB + 1: "a segment of its own, rounded up to 2 MiB; more than 1 MiB is left, so the rest is split off",
        12 * MIB: "a segment of its own of just that size",
        100 * MIB
        + 5000: "a segment of its own, rounded up to 2 MiB; more than 1 MiB is left, so the rest is split off",
    }
    for size, reason in why.items():
        gpu = CachingAllocator()
        gpu.malloc(size)
        expected = (gpu.memory_allocated, gpu.memory_reserved)
        got = call(answer, size, shown=f"{size:,} bytes")
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for {size:,} bytes you returned {got!r}, expected a pair (allocated, reserved)")
        for what, mine, theirs in zip(("allocated", "reserved"), expected, got, strict=True):
            if mine != theirs:
                raise Wrong(f"for {size:,} bytes {what} is {mine:,}, you returned {theirs!r}: {reason}")


class Kept:
    def __init__(self, x):
        self.x = x.detach()


class Graph(torch.autograd.graph.saved_tensors_hooks):
    """Counts what is kept for a backward pass, parameters left out: now, and at most."""

    def __init__(self, model):
        self.kept, self.most = weakref.WeakSet(), 0
        self.parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
        super().__init__(self.pack, lambda kept: kept.x)

    def pack(self, x):
        kept = Kept(x)
        if x.untyped_storage().data_ptr() not in self.parameters:
            self.kept.add(kept)
            self.most = max(self.most, self.bytes())
        return kept

    def bytes(self):
        return sum({k.x.untyped_storage().data_ptr(): k.x.untyped_storage().nbytes() for k in self.kept}.values())


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1)).double()
        return model, torch.randn(10, 6, dtype=torch.double), torch.randn(10, 1, dtype=torch.double)


def check_validate(answer):
    model, x, y = network()
    for sizes in ((5, 5), (6, 3, 1)):
        batches, graph = list(zip(x.split(sizes), y.split(sizes), strict=True)), Graph(model)
        shown = f"batches of {', '.join(map(str, sizes))} samples"
        with graph, torch.enable_grad():
            got = call(answer, model, batches, shown=shown)
        if isinstance(got, torch.Tensor):
            raise Wrong(f"for {shown} you returned a tensor, expected a Python number")
        if not isinstance(got, float):
            raise Wrong(f"for {shown} you returned {got!r}, expected a Python number")
        with torch.no_grad():
            expected = F.mse_loss(model(x), y).item()
        if not math.isclose(got, expected, rel_tol=1e-9):
            raise Wrong(
                f"for {shown} you returned {got:.6f}, expected {expected:.6f}: a batch counts by its number of samples"
            )
        if graph.most:
            raise Wrong(f"right value, but {graph.most:,} bytes were kept for a backward pass that never comes")


def check_forecast(answer):
    for count, activations in ((10**8, 10**10), (10**9, 10**6), (10**8, 5 * 10**8)):
        shown = f"{count:,} parameters and {activations:,} bytes of activations"
        got = call(answer, count, activations, shown=shown)
        expected = max(12 * count + activations, 20 * count)
        if got == 16 * count + activations or got == 20 * count + activations:
            raise Wrong(
                f"for {shown} you added up what is never there at the same time: {got:,}, expected {expected:,}"
            )
        if got != expected:
            which = "the start of backward" if expected > 20 * count else "the optimizer's step, with its extra copy"
            raise Wrong(f"for {shown} you returned {got!r}, expected {expected:,}: the peak is {which}")


def check_accumulate_gradients(answer):
    for size in (5, 4, 20):
        model, x, y = network()
        F.mse_loss(model(x), y).backward()
        expected = [p.grad for p in model.parameters()]
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.5)  # of an earlier step
        one, graph = Graph(model), Graph(model)
        with one:
            alone = F.mse_loss(model(x[:size]), y[:size])
        del alone
        shown = f"a batch of 10 in pieces of {size}"
        with graph, torch.enable_grad():
            call(answer, model, x, y, size, shown=shown)
        found = [p.grad for p in model.parameters()]
        if any(g is None for g in found):
            raise Wrong(f"for {shown} a parameter has no gradient afterwards")
        got, right = (torch.cat([g.flatten() for g in gradients]) for gradients in (found, expected))
        ratio = (got @ right / (right @ right)).item()
        if torch.allclose(got - 0.5, right, rtol=1e-6):
            raise Wrong(f"for {shown} yours was added to an old gradient: start from no gradients")
        if not torch.allclose(got, right, rtol=1e-9):
            raise Wrong(
                f"for {shown} the gradient is another one (along the right one {ratio:.3f} times as long): "
                "weigh each piece's mean by its share of the samples"
            )
        if graph.most > 1.2 * one.most:
            raise Wrong(
                f"right gradient, but for {shown} up to {graph.most:,} bytes were kept for the backward pass, "
                f"one piece needs {one.most:,}: call backward for each piece"
            )


def check_largest_that_fits(answer):
    for n, room in ((64, 64), (64, 20), (100, 7), (5, 1)):
        attempt = Attempts(room)
        shown = f"{n} samples where {room} fit"
        got = call(answer, attempt, n, shown=shown)
        if attempt.held:
            raise Wrong(
                f"for {shown} you tried again while the failed attempt was alive: its tensors filled the memory. "
                "Leave the except block first"
            )
        expected = n
        while expected > room:
            expected //= 2
        if got != expected or not attempt.calls or attempt.calls[-1] != expected:
            raise Wrong(f"for {shown} you tried {attempt.calls} and returned {got!r}, expected {expected}")
    _lets_through(answer, Attempts(0), torch.OutOfMemoryError, "where not even one sample fits")
    _lets_through(answer, Attempts(64, error=ValueError), ValueError, "where the attempt raises a ValueError")


class Attempts:
    """A training attempt that holds a tensor while it runs, and fails if more than `room` samples are asked."""

    def __init__(self, room, error=None):
        self.room, self.error, self.calls, self.tensors, self.held = room, error, [], [], False

    def __call__(self, n):
        if not isinstance(n, int) or n < 1 or len(self.calls) > 20:
            raise RuntimeError(f"there is no attempt with {n!r} samples; tried so far: {self.calls}")
        self.held = self.held or any(watch() is not None for watch in self.tensors)
        self.calls.append(n)
        activations = torch.ones(n)
        self.tensors.append(weakref.ref(activations))
        if self.error:
            raise self.error("not a matter of memory")
        if n > self.room:
            raise torch.OutOfMemoryError(f"{n} samples do not fit")


def _lets_through(answer, attempt, kind, shown):
    try:
        got = answer(attempt, 8)
    except kind:
        if kind is ValueError and len(attempt.calls) > 1:
            raise Wrong(f"{shown} you tried again: only running out of memory is a reason to") from None
        if kind is torch.OutOfMemoryError and attempt.calls[-1] != 1:
            raise Wrong(f"{shown} you gave up after {attempt.calls}") from None
        return
    except Exception as error:
        raise Wrong(f"{shown} the error should come through; you raised {type(error).__name__}: {error}") from error
    if got is DOTS:
        raise NotAnswered
    raise Wrong(f"{shown} the error should come through; you returned {got!r}")


EXERCISES = [
    Exercise(
        number="07.1",
        title="The four rules",
        name="four_rules",
        stars=2,
        check=check_four_rules,
        hints=[
            "First round the size up to a multiple of 512: -(-size // 512) * 512. That is the block.",
            "The block decides the segment: up to 1 MiB, below 10 MiB, or from there on. MiB is 2**20 here.",
            "One catch: in a segment of its own, a rest of 1 MiB or less is not split off. "
            "None of the sizes tried is in that case, so the block alone is allocated.",
        ],
        solution="""
def four_rules(size):
    block = -(-size // 512) * 512
    if block <= 2**20:
        return block, 2 * 2**20
    if block < 10 * 2**20:
        return block, 20 * 2**20
    return block, -(-block // 2**21) * 2**21
""",
        praise="These are the defaults. What is left in a segment of its own is split off only above 1 MiB; "
        "smaller rests stay in the block, and count as allocated.",
        wrong={
            """
def four_rules(size):
    return size, 2 * 2**20
""": "the smallest block has 512 bytes",
            """
def four_rules(size):
    block = (size // 512 + 1) * 512
    return block, 2 * 2**20
""": "512 is a multiple of 512 already",
            """
def four_rules(size):
    block = -(-size // 512) * 512
    return block, (2 if block < 2**20 else 20) * 2**20
""": "up to and including 1 MiB",
            """
def four_rules(size):
    block = -(-size // 512) * 512
    return block, (2 if block <= 2**20 else 20) * 2**20
""": "so it gets a segment of its own",
            """
def four_rules(size):
    block = -(-size // 512) * 512
    small, shared = block <= 2**20, size < 10 * 2**20
    return block, 2**21 if small else 20 * 2**20 if shared else -(-block // 2**21) * 2**21
""": "rounded up to 512 it is 10 MiB",
            """
def four_rules(size):
    return -(-size // 512) * 512
""": "expected a pair",
        },
    ),
    Exercise(
        number="07.2",
        title="Validate without a leak",
        name="validate",
        stars=2,
        check=check_validate,
        hints=[
            "A batch of 6 counts six times as much as a batch of 1. Sum up, and divide once, at the end.",
            "F.mse_loss(model(x), y, reduction='sum') gives the sum over a batch.",
            "with torch.no_grad(): around the loop, and .item() at its end.",
        ],
        solution="""
def validate(model, batches):
    total, samples = 0.0, 0
    with torch.no_grad():
        for x, y in batches:
            total = total + (model(x) - y).square().sum()
            samples += len(x)
    return (total / samples).item()
""",
        praise="In your own code add model.eval() before, and model.train() after. And one .item() at the end waits "
        "for the device once, not once a batch.",
        wrong={
            """
def validate(model, batches):
    total, samples = 0.0, 0
    for x, y in batches:
        total = total + (model(x) - y).square().sum()
        samples += len(x)
    return (total / samples).item()
""": "were kept for a backward pass",
            """
def validate(model, batches):
    total, samples = 0.0, 0
    for x, y in batches:
        total += (model(x) - y).square().sum().item()
        samples += len(x)
    return total / samples
""": "were kept for a backward pass",
            """
def validate(model, batches):
    with torch.no_grad():
        losses = [(model(x) - y).square().mean().item() for x, y in batches]
    return sum(losses) / len(losses)
""": "counts by its number of samples",
            """
def validate(model, batches):
    with torch.no_grad():
        return sum((model(x) - y).square().sum() for x, y in batches) / sum(len(x) for x, _ in batches)
""": "you returned a tensor",
        },
    ),
    Exercise(
        number="07.3",
        title="Forecast the peak",
        name="forecast",
        stars=2,
        check=check_forecast,
        hints=[
            "Write down three moments: start of backward, end of backward, optimizer step.",
            "Start of backward: parameters 4, state 8, activations. Optimizer step: 4 + 4 + 8, and a copy of 4.",
            "The peak is max(12 * parameters + activations, 20 * parameters).",
        ],
        solution="""
def forecast(parameters, activations):
    return max(12 * parameters + activations, 20 * parameters)
""",
        praise="The two are equal at 8 bytes of activations a parameter. Below that, neither checkpointing nor a "
        "smaller batch lowers the peak.",
        wrong={
            """
def forecast(parameters, activations):
    return 16 * parameters + activations
""": "never there at the same time",
            """
def forecast(parameters, activations):
    return 12 * parameters + activations
""": "with its extra copy",
            """
def forecast(parameters, activations):
    return max(12 * parameters + activations, 16 * parameters)
""": "with its extra copy",
            """
def forecast(parameters, activations):
    return 20 * parameters
""": "the peak is the start of backward",
        },
    ),
    Exercise(
        number="07.4",
        title="Micro-batches",
        name="accumulate_gradients",
        stars=2,
        check=check_accumulate_gradients,
        hints=[
            "x.split(size) gives pieces of at most `size`; zip them with y.split(size).",
            "The mean of a piece counts with len(part) / len(x).",
            "model.zero_grad() first; then backward() inside the loop, once a piece.",
        ],
        solution="""
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size), strict=True):
        loss = (model(part) - target).square().mean() * (len(part) / len(x))
        loss.backward()
""",
        praise="For a language model the weights are numbers of tokens that count, not of samples: padding is left "
        "out.",
        wrong={
            """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    pieces = list(zip(x.split(size), y.split(size)))
    for part, target in pieces:
        ((model(part) - target).square().mean() / len(pieces)).backward()
""": "by its share of the samples",
            """
def accumulate_gradients(model, x, y, size):
    for part, target in zip(x.split(size), y.split(size)):
        ((model(part) - target).square().mean() * len(part) / len(x)).backward()
""": "start from no gradients",
            """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    losses = [(model(a) - b).square().mean() * len(a) / len(x) for a, b in zip(x.split(size), y.split(size))]
    sum(losses).backward()
""": "call backward for each piece",
            """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    (model(x) - y).square().mean().backward()
""": "call backward for each piece",
            """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size)):
        (model(part) - target).square().mean().backward()
""": "by its share of the samples",
        },
    ),
    Exercise(
        number="07.5",
        title="Survive",
        name="largest_that_fits",
        stars=2,
        check=check_largest_that_fits,
        hints=[
            "A while loop around try and except. Catch torch.OutOfMemoryError, nothing wider.",
            "In the except block: raise if n is 1. Halve after the block.",
            "return n stands in the try block, after attempt(n).",
        ],
        solution="""
def largest_that_fits(attempt, n):
    while True:
        try:
            attempt(n)
            return n
        except torch.OutOfMemoryError:
            if n == 1:
                raise
        n //= 2
""",
        praise="In training the attempt must also throw away the gradients that the failed one left: zero_grad first.",
        wrong={
            """
def largest_that_fits(attempt, n):
    try:
        attempt(n)
        return n
    except torch.OutOfMemoryError:
        if n == 1:
            raise
        return largest_that_fits(attempt, n // 2)
""": "Leave the except block first",
            """
def largest_that_fits(attempt, n):
    while n > 1:
        try:
            attempt(n)
            return n
        except RuntimeError:
            n //= 2
    return n
""": "you tried [5, 2] and returned 1",
            """
def largest_that_fits(attempt, n):
    while True:
        try:
            attempt(n)
            return n
        except Exception:
            if n == 1:
                raise
        n //= 2
""": "only running out of memory is a reason",
            """
def largest_that_fits(attempt, n):
    failed = []
    while True:
        try:
            attempt(n)
            return n
        except torch.OutOfMemoryError as error:
            if n == 1:
                raise
            failed.append(error)
        n //= 2
""": "Leave the except block first",
            """
def largest_that_fits(attempt, n):
    while True:
        try:
            attempt(n)
            return n
        except torch.OutOfMemoryError:
            n //= 2
""": "there is no attempt with 0 samples",
        },
    ),
]

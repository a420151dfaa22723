"""Exercises of lesson 07."""

import contextlib
import math
import unittest.mock
import weakref

import torch
from torch import nn
from torch.nn import functional as F

from course import expect
from course.answers import DOTS, NotAnswered, Wrong, call
from course.exercises import Exercise
from simulate.allocator import MIB, CachingAllocator


def only_gpu(device=None):
    """0; for any device but the one GPU that there is, an error as from the real
    functions.
    """
    index = device
    if device is not None and not isinstance(device, int):
        try:
            device = torch.device(device)
        except (RuntimeError, TypeError):  # its message lists all kinds there are
            raise RuntimeError(f"Invalid device: {device!r}") from None
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        index = device.index
    if index:
        raise RuntimeError(
            f"Invalid device argument {index}: there is one GPU, number 0"
        )
    return 0


@contextlib.contextmanager
def asked_by_torch_cuda(gpu):
    """Within it, the memory functions of torch.cuda and torch.accelerator answer for
    this CachingAllocator.
    """

    def answers(ask):
        def function(device=None):
            only_gpu(device)
            return ask()

        return function

    def start_anew():
        gpu.max_memory_allocated = gpu.memory_allocated
        gpu.max_memory_reserved = gpu.memory_reserved

    def stats():
        found = {}
        for name in ("allocated", "reserved"):
            kind = f"{name}_bytes.all"
            found[f"{kind}.current"] = getattr(gpu, f"memory_{name}")
            found[f"{kind}.peak"] = getattr(gpu, f"max_memory_{name}")
        return found

    functions = {
        "memory_allocated": answers(lambda: gpu.memory_allocated),
        "max_memory_allocated": answers(lambda: gpu.max_memory_allocated),
        "memory_reserved": answers(lambda: gpu.memory_reserved),
        "max_memory_reserved": answers(lambda: gpu.max_memory_reserved),
        "reset_peak_memory_stats": answers(start_anew),
        "reset_max_memory_allocated": answers(start_anew),
        "memory_stats": answers(stats),
        "mem_get_info": answers(lambda: (80 * 2**30 - gpu.memory_reserved, 80 * 2**30)),
        "empty_cache": gpu.empty_cache,
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "current_device_index": lambda: 0,
        "synchronize": only_gpu,
        "set_device": only_gpu,
        "_exchange_device": only_gpu,
        "_maybe_exchange_device": only_gpu,
        "reset_accumulated_memory_stats": only_gpu,
    }
    with contextlib.ExitStack() as stack:
        for module in (torch.cuda, torch.cuda.memory, torch.accelerator):
            known = {name: f for name, f in functions.items() if hasattr(module, name)}
            stack.enter_context(unittest.mock.patch.multiple(module, **known))
        # what a function that was imported by its name, before, comes down to
        below = unittest.mock.patch.object(
            torch._C, "_cuda_resetPeakMemoryStats", answers(start_anew), create=True
        )
        stack.enter_context(below)
        yield


def workload(gpu, needed, left, calls):
    """A function without arguments: it makes tensors of `needed` MiB, and keeps the one
    of `left` MiB.
    """

    def work():
        calls.append("work")
        blocks = [gpu.malloc(n * MIB) for n in needed]
        for n, block in zip(needed, blocks, strict=True):
            if n != left:
                gpu.free(block)

    return work


def check_extra_peak(answer):
    for earlier, kept, needed, left in (
        (30, 3, (50, 5), 0),
        (30, 0, (4, 2, 1), 4),
        (0, 12, (10,), 10),
        (9, 9, (), 0),
    ):
        gpu, calls = CachingAllocator(), []
        gpu.malloc(max(1, kept * MIB))
        if earlier:
            gpu.free(gpu.malloc(earlier * MIB))
        before, reserved = gpu.memory_allocated, gpu.memory_reserved
        peak = gpu.max_memory_allocated
        work = workload(gpu, needed, left, calls)
        made = ", ".join(map(str, needed)) or "no"
        shown = f"work() that makes tensors of {made} MiB"
        with asked_by_torch_cuda(gpu):
            got = call(answer, work, shown=shown)
        if len(calls) != 1:
            raise Wrong(
                f"work() ran {len(calls)} times: call it once, between the two"
                " questions"
            )
        expect.number(got, shown, "a number of bytes")
        expected = sum(needed) * MIB
        if got == expected:
            continue
        cached = "reserved is what the cache holds, allocated is what tensors need"
        in_it = "an earlier peak is in it. reset_peak_memory_stats() starts anew"
        rest = "that is what is left afterwards; the maximum was higher"
        slips = {
            gpu.max_memory_allocated - peak: in_it,
            gpu.max_memory_reserved - before: cached,
            0: rest,
            left * MIB: rest,
            gpu.memory_reserved - reserved or None: cached,
            gpu.memory_reserved: cached,
            peak: (
                "that is an earlier peak. reset_peak_memory_stats() starts the maximum"
                " anew"
            ),
            peak - before: in_it,
            before + expected: "that counts what was allocated before",
            sum(needed): "that is in MiB. Return bytes",
        }
        other = (
            "the highest that is allocated during work(), less what was allocated"
            " before"
        )
        expect.equal(got, expected, shown, slips.get(got, other))


class Kept:
    def __init__(self, x):
        self.x = x.detach()


class Graph(torch.autograd.graph.saved_tensors_hooks):
    """Counts what is kept for a backward pass, now and at most; parameters left out."""

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
        storages = [kept.x.untyped_storage() for kept in self.kept]
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
        return sum(sizes.values())


def network(samples=10, columns=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, columns))
        model.double()
        x = torch.randn(samples, 6, dtype=torch.double)
        return model, x, torch.randn(samples, columns, dtype=torch.double)


def check_validate(answer):
    earlier = []  # errors of the calls before
    for sizes, training, frozen in (
        ((5, 5), True, 0),
        ((6, 3, 1), False, 0),
        ((10,), True, 1),
        ((1, 4, 2), True, 2),
    ):
        model, x, y = network(sum(sizes))
        model.train(training)
        for n, p in enumerate(model.parameters()):
            p.requires_grad_(n >= frozen)
            p.grad = torch.full_like(p, 0.5) if n >= frozen else None
        with torch.no_grad():  # no two models alike
            model[-1].bias.add_(len(earlier))
        before = _state(model)
        with torch.no_grad():
            errors = (model(x) - y).square().split(sizes)
        batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
        graph = Graph(model)
        shown = f"batches of {', '.join(map(str, sizes))} samples"
        with graph, torch.enable_grad():
            got = call(answer, model, batches, shown=shown, changes=[model])
            gradients_on = torch.is_grad_enabled()
        if isinstance(got, torch.Tensor):
            raise Wrong(f"for {shown} you returned a tensor, expected a Python number")
        expect.number(got, shown, "a Python number")
        expected = torch.cat(errors).mean().item()
        why = (
            "the squares of model(x) - y, both of shape (n, 1), over all samples,"
            " divided by their number"
        )
        slips = _average_slips(errors, earlier)
        expect.close(got, expected, shown, why, slips, rel_tol=1e-5)
        earlier += errors
        if graph.most:
            raise Wrong(
                f"right value, but {graph.most:,} bytes were kept for a backward pass"
                " that never comes"
            )
        if not gradients_on:
            raise Wrong(
                "right value, but gradients are switched off for all that follows: with"
                " torch.no_grad(): …"
            )
        _is_as_found(before, _state(model))


def _state(model):
    """What a validation must leave alone."""
    parameters = list(model.parameters())
    return {
        "modes": [module.training for module in model.modules()],
        "asked": [p.requires_grad for p in parameters],
        "gradients": [None if p.grad is None else p.grad.tolist() for p in parameters],
        "weights": [p.tolist() for p in parameters],
    }


def _is_as_found(before, now):
    changed = [name for name in before if before[name] != now[name]]
    if "asked" in changed:
        if sum(now["asked"]) < sum(before["asked"]):
            raise Wrong(
                "right value, but the weights ask for no gradient anymore."
                " torch.no_grad() leaves them alone"
            )
        raise Wrong(
            "right value, but a weight that was frozen asks for a gradient now."
            " torch.no_grad() leaves it alone"
        )
    if "weights" in changed:
        raise Wrong("right value, but the weights have changed")
    if "gradients" in changed:
        raise Wrong(
            "right value, but the gradients that the model had are not what they were:"
            " no zero_grad() is needed"
        )
    if "modes" in changed:
        mode = {True: "training mode", False: "evaluation mode"}
        then, after = mode[before["modes"][0]], mode[not before["modes"][0]]
        raise Wrong(
            f"right value, but the model has been left in {after}, you found it in"
            f" {then}: keep model.training, and give it to model.train() at the end"
        )


def _average_slips(errors, earlier):
    every, means = torch.cat(errors), [e.mean() for e in errors]
    slips = {
        "a batch counts by its number of samples": sum(means) / len(errors),
        "the means of the batches add up": sum(means),
        "that is the sum; divide it by the number of samples": every.sum(),
        "divide by the number of samples, not of batches": every.sum() / len(errors),
        "that is its square root": every.mean().sqrt(),
        "numbers of an earlier call are in it: a default such as [] is made once": (
            torch.cat([*earlier, *errors]).mean()
        ),
    }
    slips |= {f"that is batch {n} alone": mean for n, mean in enumerate(means)}
    return [(value.item(), text) for text, value in slips.items()]


def _flat(gradients):
    return torch.cat([g.flatten() for g in gradients])


def gradient(model, pieces):
    """Of the sum of weight * mse_loss over pieces (weight, x, y), flat; .grad is left
    as it was.
    """
    loss = sum(weight * F.mse_loss(model(x), y) for weight, x, y in pieces)
    return _flat(torch.autograd.grad(loss, list(model.parameters())))


def check_accumulate_gradients(answer):
    for n, size, columns in [
        (10, 20, 1),
        (10, 5, 1),
        (10, 4, 1),
        (10, 10, 1),
        (10, 2, 1),
        (7, 3, 1),
        (4, 1, 1),
        (10, 4, 2),
    ]:
        _check_accumulated(answer, n, size, columns)


def _check_accumulated(answer, n, size, columns):
    model, x, y = network(n, columns)
    right = gradient(model, [(1, x, y)])
    weights = _flat(model.parameters()).detach()
    if n == 10:
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.5)  # of an earlier step
    one, graph, sizes, runs = Graph(model), Graph(model), [], []
    with one:
        alone = F.mse_loss(model(x[:size]), y[:size])
    del alone
    model[0].register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    model[-1].bias.register_hook(lambda _: runs.append("backward"))
    shown = f"a batch of {n} in pieces of {size}"
    with graph, torch.enable_grad():
        call(answer, model, x, y, size, shown=shown, changes=[model])
    if not torch.equal(_flat(model.parameters()), weights):
        raise Wrong("the weights have changed: only .grad is asked for")
    _check_pieces(sizes, n, size, shown)
    count, found = math.ceil(n / size), [p.grad for p in model.parameters()]
    if any(g is None for g in found):
        raise Wrong(f"for {shown} a parameter has no gradient afterwards")
    if len(sizes) > count:
        raise Wrong(
            f"for {shown} the model got {len(sizes)} pieces, {count} would do:"
            f" {_split(size)}"
        )
    got = _flat(found)
    if not torch.allclose(got, right, rtol=1e-9):
        raise Wrong(f"for {shown} {_gradient_slip(got, right, model, x, y, size)}")
    if graph.most > 1.2 * one.most:
        cure = "let go of each piece's graph"
        if len(runs) < count:
            cure = "call backward for each piece"
        raise Wrong(
            f"right gradient, but for {shown} up to {graph.most:,} bytes were kept for"
            f" the backward pass, one piece needs {one.most:,}: {cure}"
        )


def _split(size):
    return (
        f"x.split({size}) gives pieces of {size}, x.chunk({size}) gives {size} pieces"
    )


def _check_pieces(sizes, n, size, shown):
    if max(sizes, default=0) > size:
        chunked = f". {_split(size)}" if len(sizes) > 1 else ""
        raise Wrong(
            f"for {shown} the model got {max(sizes)} samples at once, {size} at most"
            f" are asked for{chunked}"
        )
    if sum(sizes) != n:
        raise Wrong(
            f"for {shown}: {sum(sizes)} samples went through the model, there are {n}"
        )


def _gradient_slip(got, right, model, x, y, size):
    if bool((got == 0.5).all()):
        return ".grad still holds what it held before"
    if torch.allclose(got - 0.5, right, rtol=1e-6):
        return "yours was added to an old gradient: start from no gradients"
    pieces = list(zip(x.split(size), y.split(size), strict=True))
    n, k, columns = len(x), len(pieces), y.shape[1]
    share = "weigh each piece's mean by its share of the samples"
    last = "only the last piece is left: zero_grad comes once, before the loop"
    alike = f"every piece counts alike, however small: {share}"
    by_size = "a piece may have fewer than size samples: weigh it by its own number"
    numbers = (
        f"you divided by {n} samples; the mean is over all {y.numel()} numbers of y"
    )
    for text, weight, parts in [
        (f"the means of the pieces add up: {share}", 1, pieces),
        (alike, 1 / k, pieces),
        (by_size, size / n, pieces),
        (last, len(pieces[-1][0]) / n, pieces[-1:]),
        (last, 1, pieces[-1:]),
        (last, 1 / k, pieces[-1:]),
        ("you have the gradient of a sum, mse_loss is a mean", y.numel(), [(x, y)]),
        (numbers, columns, [(x, y)]),
    ]:
        taken = gradient(model, [(weight, *part) for part in parts])
        if torch.allclose(got, taken, rtol=1e-6):
            return text
    return (
        f"the gradient is not that of F.mse_loss(model(x), y): {got.norm():.5g} long,"
        f" not {right.norm():.5g}"
    )


def check_forecast(answer):
    for count, activations in [
        (10**8, 10**10),
        (10**9, 10**6),
        (10**8, 5 * 10**8),
        (10**8, 8 * 10**8),
        (10**8, 8 * 10**8 + 1000),
        (10**8, 8 * 10**8 - 1000),
        (10**8, 4 * 10**8),
        (10**8, 10**9),
        (123_456_789, 0),
        (1_000_003, 70_000_001),
    ]:
        shown = f"{count:,} parameters and {activations:,} bytes of activations"
        got = call(answer, count, activations, shown=shown)
        expected = max(12 * count + activations, 20 * count)
        expect.number(got, shown, "a number of bytes")
        if got == expected:
            continue
        if got in (16 * count + activations, 20 * count + activations):
            raise Wrong(
                f"for {shown} you added up what is never there at the same time:"
                f" {got:,}, expected {expected:,}"
            )
        units = 10**6, 10**9, 2**20, 2**30
        if any(math.isclose(got * unit, expected) for unit in units):
            raise Wrong(
                f"for {shown} you returned {got:,}, expected {expected:,}. Return bytes"
            )
        why = "the peak is the start of backward (weights, AdamW, activations)"
        if expected == 20 * count:
            why = "the peak is the optimizer's step, with its extra copy"
        raise Wrong(f"for {shown} you returned {got:,}, expected {expected:,}: {why}")


class Enough(BaseException):
    """Ends an answer that would try for ever, or with a number of samples that there is
    not.
    """


class Attempts:
    """A training attempt that holds a tensor while it runs, and runs out of memory
    above `room` samples.

    error: what it raises instead, at `at` samples.
    """

    def __init__(self, room, error=None, at=0):
        self.room, self.error, self.at = room, error, at
        self.calls, self.tensors, self.held = [], [], False
        self.raised = lambda: None

    def __call__(self, n):
        if len(self.calls) > 20:
            raise Enough(
                f"you tried {_shorter(self.calls)}, and did not come to an end"
            )
        if not isinstance(n, int) or n < 1:
            raise Enough(
                f"there is no attempt with {n!r} samples; tried before:"
                f" {_shorter(self.calls)}"
            )
        self.held = self.held or any(watch() is not None for watch in self.tensors)
        self.calls.append(n)
        activations = torch.ones(n)
        self.tensors.append(weakref.ref(activations))
        if self.error and n == self.at:
            raise self.error
        if n > self.room:
            raise self._out_of_memory(n)

    # no name in __call__ may hold the error: it would hold its own traceback
    def _out_of_memory(self, n):
        error = torch.OutOfMemoryError(f"CUDA out of memory. {n} samples do not fit.")
        self.raised = weakref.ref(error)
        return error


def _shorter(calls):
    return str(calls) if len(calls) < 9 else f"[{', '.join(map(str, calls[:8]))}, …]"


def check_largest_that_fits(answer):
    # samples → how many fit
    fit = {64: [64, 20], 100: [7], 5: [1, 4], 7: [3], 2: [2, 1], 1: [1], 999: [998]}
    for n, rooms in fit.items():
        for room in rooms:
            _check_fits(answer, n, room)
    _lets_through(answer, Attempts(0), "where not even one sample fits", [8, 4, 2, 1])
    illegal = "CUDA error: an illegal memory access was encountered"
    for name, error in {
        "ValueError": ValueError("a wrong value"),
        "RuntimeError": RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        "RuntimeError about an illegal memory access": RuntimeError(illegal),
    }.items():
        first = f"where the attempt raises a {name}"
        _lets_through(answer, Attempts(64, error, at=8), first, [8])
        second = f"where the second attempt raises a {name}"
        _lets_through(answer, Attempts(4, error, at=4), second, [8, 4])


def _check_fits(answer, n, room):
    attempt, shown = Attempts(room), f"{n} samples where {room} fit"
    try:
        got = call(answer, attempt, n, shown=shown)
    except Enough as stop:
        raise Wrong(f"for {shown}: {stop}") from None
    _is_dropped(attempt, shown)
    expected = [n]
    while expected[-1] > room:
        expected.append(expected[-1] // 2)
    found = expect.is_number(got) and got == expected[-1]
    if attempt.calls != expected or not found:
        raise Wrong(
            f"for {shown} you tried {_shorter(attempt.calls)} and returned {got!r},"
            f" expected {expected} and {expected[-1]}"
        )


def _is_dropped(attempt, shown):
    if attempt.held:
        raise Wrong(
            f"for {shown} you tried again while the failed attempt was alive: its"
            " tensors filled the memory. Leave the except block first"
        )


def _lets_through(answer, attempt, shown, expected):
    through = f"{shown} the error should come through"
    try:
        got = answer(attempt, 8)
    except Enough as stop:
        raise Wrong(f"{through}: {stop}") from None
    except Exception as error:
        if error is not (attempt.error or attempt.raised()):
            raise Wrong(
                f"{shown} the attempt's own error should come through, not a new"
                f" {type(error).__name__}: {error}"
            ) from error
    else:
        if got is DOTS:
            raise NotAnswered
        only = ""
        if attempt.error:
            only = ": only running out of memory is a reason to try again"
        raise Wrong(f"{through}; you returned {got!r}{only}")
    _is_dropped(attempt, shown)
    if attempt.calls != expected:
        raise Wrong(f"{shown} you tried {_shorter(attempt.calls)}, expected {expected}")


EXERCISES = [
    Exercise(
        number="07.0",
        title="What does it need at its highest?",
        name="extra_peak",
        stars=1,
        check=check_extra_peak,
        hints=[
            (
                "torch.cuda.memory_allocated() is what is allocated now,"
                " torch.cuda.max_memory_allocated() the highest."
            ),
            (
                "The highest since when? torch.cuda.reset_peak_memory_stats() starts it"
                " anew."
            ),
            (
                "In this order: what is allocated now; start anew; work(); the maximum,"
                " less what was there before."
            ),
        ],
        solution="""
def extra_peak(work):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() - before
""",
        praise=(
            "No synchronize() is needed: the allocator keeps its books when an"
            " operation is launched, not when it runs."
        ),
    ),
    Exercise(
        number="07.1",
        title="Validate without a leak",
        name="validate",
        stars=2,
        check=check_validate,
        hints=[
            (
                "A batch of 6 counts six times as much as a batch of 1. Sum up, and"
                " divide once, at the end."
            ),
            "F.mse_loss(model(x), y, reduction='sum') gives the sum over a batch.",
            "with torch.no_grad(): around the loop, and .item() at its end.",
        ],
        solution="""
def validate(model, batches):
    total = samples = 0
    with torch.no_grad():
        for x, y in batches:
            total += (model(x) - y).square().sum()
            samples += len(x)
    return (total / samples).item()
""",
        praise=(
            "In your own code add model.eval() before, and the old mode again after."
            " And one .item() at the end waits for the device once, not once a batch."
        ),
    ),
    Exercise(
        number="07.2",
        title="Micro-batches",
        name="accumulate_gradients",
        stars=2,
        check=check_accumulate_gradients,
        hints=[
            (
                "x.split(size) gives pieces of at most `size`; zip them with"
                " y.split(size)."
            ),
            "The mean of a piece counts with len(part) / len(x).",
            "model.zero_grad() first; then backward() inside the loop, once a piece.",
        ],
        solution="""
import torch.nn.functional as F

def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size)):
        loss = F.mse_loss(model(part), target) * (len(part) / len(x))
        loss.backward()
""",
        praise=(
            "For a language model the weights are numbers of tokens that count, not of"
            " samples: padding is left out."
        ),
    ),
    Exercise(
        number="07.3",
        title="Forecast the peak",
        name="forecast",
        stars=2,
        check=check_forecast,
        hints=[
            (
                "Write down three moments: start of backward, end of backward,"
                " optimizer step."
            ),
            (
                "Start of backward: parameters 4, state 8, activations. Optimizer step:"
                " 4 + 4 + 8, and a copy of 4."
            ),
            "The peak is max(12 * number + activations, 20 * number).",
        ],
        solution="""
def forecast(number, activations):
    return max(12 * number + activations, 20 * number)
""",
        praise=(
            "The two are equal at 8 bytes of activations a parameter. Below that,"
            " neither checkpointing nor a smaller batch lowers the peak."
        ),
    ),
    Exercise(
        number="07.4",
        title="Survive",
        name="largest_that_fits",
        stars=2,
        check=check_largest_that_fits,
        hints=[
            (
                "A while loop around try and except. Catch torch.OutOfMemoryError,"
                " nothing wider."
            ),
            (
                "return n stands in the try block, after train(n). The except block may"
                " be empty: halve after it."
            ),
            (
                "With while n > 1: one sample is left for the end. train(1) outside of"
                " any try lets its error through."
            ),
        ],
        solution="""
def largest_that_fits(train, n):
    while n > 1:
        try:
            train(n)
            return n
        except torch.OutOfMemoryError:
            pass
        n //= 2
    train(1)
    return 1
""",
        praise=(
            "In training the attempt must also throw away the gradients that the failed"
            " one left: zero_grad first."
        ),
    ),
]

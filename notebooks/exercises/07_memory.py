"""Exercises of lesson 07."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course import expect
from course.answers import DOTS, NotAnswered, Wrong, call, state
from course.exercises import Exercise
from simulate.allocator import MIB, CachingAllocator
from simulate.gpu_memory import Attempts, Enough, KeptForBackward, asked_by_torch_cuda

# --------------------------------------------------------------------------------------
# 07.0

WORKS = [  # MiB: allocated and freed before, still there, made by work(), left by it
    (30, 3, (50, 5), 0),
    (30, 0, (4, 2, 1), 4),
    (0, 12, (10,), 10),
    (9, 9, (), 0),
]
ANEW = "an earlier peak is in it. reset_peak_memory_stats() starts the maximum anew"
LEFT = "that is what is left afterwards; the maximum was higher"
CACHE = "reserved is what the cache holds, allocated is what tensors need"


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
    for earlier, kept, needed, left in WORKS:
        gpu, calls = CachingAllocator(), []
        gpu.malloc(max(1, kept * MIB))
        if earlier:
            gpu.free(gpu.malloc(earlier * MIB))
        before, reserved = gpu.memory_allocated, gpu.memory_reserved
        peak = gpu.max_memory_allocated
        made = ", ".join(map(str, needed)) or "no"
        shown = f"work() that makes tensors of {made} MiB"
        with asked_by_torch_cuda(gpu):
            got = call(answer, workload(gpu, needed, left, calls), shown=shown)
        why = "call it once, between the two questions"
        expect.equal(len(calls), 1, shown, why, "the number of its calls is")
        expect.number(got, shown, "a number of bytes")
        expected = sum(needed) * MIB
        slips = [
            (gpu.max_memory_allocated - peak, ANEW),
            (peak, ANEW),
            (peak - before, ANEW),
            (left * MIB, LEFT),
            (0, LEFT),
            (gpu.max_memory_reserved - before, CACHE),
            (gpu.memory_reserved - reserved, CACHE),
            (gpu.memory_reserved, CACHE),
            (before + expected, "that counts what was allocated before"),
            (sum(needed), "that is in MiB. Return bytes"),
        ]
        why = "the highest during work(), less what was allocated before"
        expect.close(got, expected, shown, why, slips, rel_tol=1e-9)


# --------------------------------------------------------------------------------------
# 07.1


def network(samples=10, columns=1):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, columns))
        model.double()
        x = torch.randn(samples, 6, dtype=torch.double)
        return model, x, torch.randn(samples, columns, dtype=torch.double)


VALIDATED = [  # sizes of the batches, training mode, number of frozen parameters
    ((5, 5), True, 0),
    ((6, 3, 1), False, 0),
    ((10,), True, 1),
    ((1, 4, 2), True, 2),
]
LEFT_ALONE = {  # parts of a model's state
    " (its train or eval mode)": (
        "the model has been left in another mode (training, evaluation) than you found"
        " it in: keep model.training, and give it to model.train() at the end"
    ),
    " (its parameters)": (
        "the parameters, what they ask for (requires_grad) or their gradients are not"
        " what they were: torch.no_grad() leaves them alone, and no zero_grad() is"
        " needed"
    ),
}


def check_validate(answer):
    for number, (sizes, training, frozen) in enumerate(VALIDATED):
        model, x, y = network(sum(sizes))
        model.train(training)
        for n, p in enumerate(model.parameters()):
            p.requires_grad_(n >= frozen)
            p.grad = torch.full_like(p, 0.5) if n >= frozen else None
        with torch.no_grad():  # no two models alike
            model[-1].bias.add_(number)
            errors = (model(x) - y).square().split(sizes)
        batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
        kept, before = KeptForBackward(model), state(model)
        shown = f"batches of {', '.join(map(str, sizes))} samples"
        with kept, torch.enable_grad():
            got = call(answer, model, batches, shown=shown, changes=[model])
            gradients_on = torch.is_grad_enabled()
        expect.number(got, shown, "a Python number")
        why = (
            "the squares of model(x) - y, both of shape (n, 1), over all samples,"
            " divided by their number"
        )
        right, slips = _averages(errors)
        expect.close(got, right, shown, why, slips, rel_tol=1e-5)
        if kept.most:
            raise Wrong(
                f"right value, but {kept.most:,} bytes were kept for a backward pass"
                " that never comes"
            )
        if not gradients_on:
            raise Wrong(
                "right value, but gradients are switched off for all that follows: with"
                " torch.no_grad(): …"
            )
        for part, text in LEFT_ALONE.items():
            if state(model)[part] != before[part]:
                raise Wrong(f"right value, but {text}")


def _averages(errors):
    """The mean of all, and pairs (another number, what went wrong)."""
    every, means = torch.cat(errors), torch.stack([e.mean() for e in errors])
    mean = every.mean().item()
    return mean, [
        (means.mean().item(), "a batch counts by its number of samples"),
        (means.sum().item(), "the means of the batches add up"),
        (every.sum().item(), "that is the sum; divide it by the number of samples"),
        (
            every.sum().item() / len(errors),
            "divide by the number of samples, not of batches",
        ),
        (math.sqrt(mean), "that is its square root"),
    ]


# --------------------------------------------------------------------------------------
# 07.2

BATCHES = [  # samples, size of a piece, columns of y
    (10, 20, 1),
    (10, 5, 1),
    (10, 4, 1),
    (10, 10, 1),
    (10, 2, 1),
    (7, 3, 1),
    (4, 1, 1),
    (10, 4, 2),
]


def _flat(gradients):
    return torch.cat([g.flatten() for g in gradients])


def gradient(model, pieces):
    """Of the sum of weight * mse_loss over pieces (weight, x, y), flat; .grad is left
    as it was.
    """
    loss = sum(weight * F.mse_loss(model(x), y) for weight, x, y in pieces)
    return _flat(torch.autograd.grad(loss, list(model.parameters())))


def check_accumulate_gradients(answer):
    for n, size, columns in BATCHES:
        _check_accumulated(answer, n, size, columns)


def _check_accumulated(answer, n, size, columns):
    model, x, y = network(n, columns)
    right = gradient(model, [(1, x, y)])
    weights = _flat(model.parameters()).detach()
    if n == 10:
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.5)  # of an earlier step
    one, kept, sizes = KeptForBackward(model), KeptForBackward(model), []
    with one:
        alone = F.mse_loss(model(x[:size]), y[:size])
    del alone
    model[0].register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    shown = f"a batch of {n} in pieces of {size}"
    with kept, torch.enable_grad():
        call(answer, model, x, y, size, shown=shown, changes=[model])
    if not torch.equal(_flat(model.parameters()), weights):
        raise Wrong("the weights have changed: only .grad is asked for")
    count, found = math.ceil(n / size), [p.grad for p in model.parameters()]
    if max(sizes, default=0) > size or sum(sizes) != n or len(sizes) != count:
        raise Wrong(
            f"for {shown} the model got {sizes} samples, expected {count} pieces of"
            f" {size} at most, together {n} (x.split({size}) gives pieces of {size},"
            f" x.chunk({size}) gives {size} pieces)"
        )
    if any(g is None for g in found):
        raise Wrong(f"for {shown} a parameter has no gradient afterwards")
    got = _flat(found)
    if not torch.allclose(got, right, rtol=1e-9):
        raise Wrong(
            f"for {shown} the gradient is {got.norm():.5g} long, that of"
            f" F.mse_loss(model(x), y) {right.norm():.5g}"
            f"{_gradient_slip(got, right, model, x, y, size)}"
        )
    if kept.most > 1.2 * one.most:
        raise Wrong(
            f"right gradient, but for {shown} up to {kept.most:,} bytes were kept for"
            f" the backward pass, one piece needs {one.most:,}: call backward for each"
            " piece, and let go of its graph"
        )


def _gradient_slip(got, right, model, x, y, size):
    if torch.allclose(got - 0.5, right, rtol=1e-6):
        return ": yours was added to an old gradient, start from no gradients"
    pieces = list(zip(x.split(size), y.split(size), strict=True))
    n, k, columns = len(x), len(pieces), y.shape[1]
    share = "weigh each piece's mean by its share of the samples"
    last = "only the last piece is left: zero_grad comes once, before the loop"
    for text, weight, parts in [
        (f"the means of the pieces add up, {share}", 1, pieces),
        (f"every piece counts alike, however small, {share}", 1 / k, pieces),
        ("weigh a piece by its own number, which may be less", size / n, pieces),
        (last, len(pieces[-1][0]) / n, pieces[-1:]),
        (last, 1, pieces[-1:]),
        (f"the mean is over all {y.numel()} numbers of y", columns, [(x, y)]),
    ]:
        taken = gradient(model, [(weight, *part) for part in parts])
        if torch.allclose(got, taken, rtol=1e-6):
            return f": {text}"
    return ""


# --------------------------------------------------------------------------------------
# 07.3

FORECASTS = [  # parameters, bytes of activations
    (10**8, 10**10),
    (10**9, 10**6),
    (10**8, 8 * 10**8),
    (10**8, 8 * 10**8 + 1000),
    (10**8, 8 * 10**8 - 1000),
    (10**8, 4 * 10**8),
    (123_456_789, 0),
    (1_000_003, 70_000_001),
]


def check_forecast(answer):
    for count, activations in FORECASTS:
        shown = f"{count:,} parameters and {activations:,} bytes of activations"
        got = expect.number(call(answer, count, activations, shown=shown), shown)
        expected = max(12 * count + activations, 20 * count)
        why = "the peak is the start of backward (weights, AdamW, activations)"
        if expected == 20 * count:
            why = "the peak is the optimizer's step, with its extra copy"
        both = "you added up what is never there at the same time"
        slips = [(n * count + activations, both) for n in (16, 20)]
        units = 10**6, 10**9, 2**20, 2**30
        slips += [(expected / unit, "return bytes") for unit in units]
        expect.close(got, expected, shown, why, slips, rel_tol=1e-12)


# --------------------------------------------------------------------------------------
# 07.4

FIT = {  # samples → how many fit
    64: [64, 20],
    100: [7],
    5: [1, 4],
    7: [3],
    2: [2, 1],
    1: [1],
    999: [998],
}
OTHER_ERRORS = [
    ValueError("a wrong value"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
]


def check_largest_that_fits(answer):
    for n, rooms in FIT.items():
        for room in rooms:
            expected = [n]
            while expected[-1] > room:
                expected.append(expected[-1] // 2)
            attempt, shown = Attempts(room), f"{n} samples where {room} fit"
            try:
                got = call(answer, attempt, n, shown=shown)
            except Enough as stop:
                raise Wrong(f"for {shown} you {stop}, expected {expected}") from None
            _judge_tries(attempt, expected, shown)
            expect.equal(got, expected[-1], shown)
    _lets_through(
        answer, Attempts(0), "8 samples where not even one fits", [8, 4, 2, 1]
    )
    for error in OTHER_ERRORS:
        shown = f"8 samples where an attempt raises {error!r}"
        _lets_through(answer, Attempts(64, error, at=8), shown, [8])
        _lets_through(answer, Attempts(4, error, at=4), shown, [8, 4])


def _judge_tries(attempt, expected, shown):
    if attempt.held:
        raise Wrong(
            f"for {shown}: you tried again while the failed attempt was alive: its"
            " tensors filled the memory. Leave the except block first"
        )
    if attempt.calls != expected:
        raise Wrong(f"for {shown}: you tried {attempt}, expected {expected}")


def _lets_through(answer, attempt, shown, expected):
    try:
        got = answer(attempt, 8)
    except Enough as stop:
        said = f"you {stop}"
    except Exception as error:
        if attempt.own(error):
            return _judge_tries(attempt, expected, shown)
        said = f"you raised a new {type(error).__name__}: {error}"
    else:
        if got is DOTS:
            raise NotAnswered
        said = f"you returned {got!r}"
    raise Wrong(
        f"for {shown} the attempt's own error should come through; {said}. Only"
        " running out of memory is a reason to try again, with fewer samples"
    )


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

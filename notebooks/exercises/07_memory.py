"""Exercises of lesson 07."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from course import expect
from course.answers import Wrong, call, state
from course.exercises import Exercise
from exercises.doubles.gpu_memory import KeptForBackward, asked_by_torch_cuda
from simulate.allocator import MIB, CachingAllocator

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

WORDS, WIDTH = 5, 3
PADDED = [  # size of a piece; for each sample how many of its 4 tokens are padding
    (2, (0, 1, 2, 0, 3)),
    (2, (0, 1, 3, 2)),
    (3, (1, 1, 1, 1, 1, 1)),
    (2, (3, 0, 4, 4, 1)),
    (1, (4, 2, 0)),
    (5, (1, 0, 2)),
    (4, (0, 0, 0, 0, 0, 3)),
]
MEAN = "F.cross_entropy gives the mean over the targets that count in the piece"


def language(padded):
    """A model of tokens, x and y of shape (samples, 4)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Tanh())
        model.append(nn.Linear(WIDTH, WORDS)).double()
        x, y = torch.randint(WORDS, (2, len(padded), 4))
    for row, count in zip(y, padded, strict=True):
        row[4 - count :] = -100
    return model, x, y


def _flat(gradients):
    return torch.cat([g.flatten() for g in gradients])


def gradient(model, pieces, reduction="mean"):
    """Of the sum of weight * cross_entropy over pieces (weight, x, y), flat; .grad is
    left as it was.
    """
    loss = 0
    for weight, x, y in pieces:
        logits, targets = model(x).flatten(0, 1), y.flatten()
        loss = loss + weight * F.cross_entropy(logits, targets, reduction=reduction)
    return _flat(torch.autograd.grad(loss, list(model.parameters())))


def check_accumulate_tokens(answer):
    for size, padded in PADDED:
        _check_tokens(answer, size, padded)


def _check_tokens(answer, size, padded):
    model, x, y = language(padded)
    right = gradient(model, [(1, x, y)])
    weights = _flat(model.parameters()).detach()
    if len(padded) != 3:
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.5)  # of an earlier step
    one, kept, sizes = KeptForBackward(model), KeptForBackward(model), []
    with one:
        alone = F.cross_entropy(model(x[:size]).flatten(0, 1), y[:size].flatten())
    del alone
    model[0].register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    counts = ", ".join(str(4 - count) for count in padded)
    shown = f"pieces of {size} of {len(x)} samples with {counts} tokens that count"
    with kept, torch.enable_grad():
        call(answer, model, x, y, size, shown=shown, changes=[model])
    if not torch.equal(_flat(model.parameters()), weights):
        raise Wrong("the weights have changed: only .grad is asked for")
    if max(sizes, default=0) > size or len(sizes) > math.ceil(len(x) / size):
        raise Wrong(
            f"for {shown} the model got {sizes} samples, expected at most"
            f" {math.ceil(len(x) / size)} pieces of {size} at most (x.split({size})"
            f" gives pieces of {size}, x.chunk({size}) gives {size} pieces)"
        )
    gradients = [p.grad for p in model.parameters()]
    if any(g is None for g in gradients):
        raise Wrong(f"for {shown} a parameter has no gradient afterwards")
    got = _flat(gradients)
    if not torch.allclose(got, right, rtol=1e-9):
        raise Wrong(
            f"for {shown} the gradient is {got.norm():.5g} long, that of the whole"
            f" batch {right.norm():.5g}{_token_slip(got, right, model, x, y, size)}"
        )
    if kept.most > 1.7 * one.most:
        raise Wrong(
            f"right gradient, but for {shown} up to {kept.most:,} bytes were kept for"
            f" the backward pass, one piece needs {one.most:,}: call backward for each"
            " piece, and let go of its graph"
        )


def _token_slip(got, right, model, x, y, size):
    if torch.allclose(got - 0.5, right, rtol=1e-6):
        return ": yours was added to an old gradient, start from no gradients"
    pieces = list(zip(x.split(size), y.split(size), strict=True))
    pieces = [(part, aim) for part, aim in pieces if (aim >= 0).any()]
    n, k, last = len(x), len(x.split(size)), pieces[-1]
    total, counted = y.numel(), (y >= 0).sum()
    only = "only the last piece is left: zero_grad comes once, before the loop"
    for text, weight, reduction, parts in [
        (f"a piece counts by its tokens, not samples. {MEAN}", None, "mean", pieces),
        (f"the means of the pieces add up. {MEAN}", 1, "mean", pieces),
        (f"every piece counts alike. {MEAN}", 1 / k, "mean", pieces),
        (f"every piece counts alike. {MEAN}", 1 / len(pieces), "mean", pieces),
        ("a sum stays; divide by the targets that count", 1, "sum", pieces),
        ("padding is no target that counts", 1 / total, "sum", pieces),
        ("divide by the targets that count, not samples", 1 / n, "sum", pieces),
        (only, 1 / counted, "sum", [last]),
        (only, 1, "mean", [last]),
    ]:
        weighed = [
            (len(part) / n if weight is None else weight, part, aim)
            for part, aim in parts
        ]
        if torch.allclose(got, gradient(model, weighed, reduction), rtol=1e-6):
            return f": {text}"
    return ""


# --------------------------------------------------------------------------------------
# 07.3

FORECASTS = [  # parameters, bytes of activations, of state, of step()'s extra copies
    (10**8, 10**10, 8, 4),
    (10**9, 10**6, 8, 4),
    (10**8, 8 * 10**8 + 1000, 8, 4),
    (10**8, 8 * 10**8 - 1000, 8, 4),
    (10**8, 5 * 10**8, 8, 0),
    (10**8, 3 * 10**8, 8, 0),
    (10**8, 5 * 10**8, 4, 0),
    (10**8, 10**8, 0, 0),
    (1_000_003, 70_000_001, 0, 4),
    (123_456_789, 0, 2, 4),
]


def check_forecast(answer):
    for count, activations, kept, extra in FORECASTS:
        shown = (
            f"{count:,} parameters, {activations:,} bytes of activations, {kept} of"
            f" state and {extra} extra per parameter"
        )
        got = call(answer, count, activations, kept, extra, shown=shown)
        got = expect.number(got, shown)
        start, end = (4 + kept) * count + activations, (8 + kept) * count
        expected = max(start, end + extra * count)
        why = "the peak is the start of backward (weights, state, activations)"
        if expected > start:
            why = "the peak is the optimizer's step (weights, gradients, state, extra)"
        both = "you added up what is never there at the same time"
        slips = [(end + activations, both), (end + extra * count + activations, both)]
        slips += [(start + extra * count, both)]
        units = 10**6, 10**9, 2**20, 2**30
        slips += [(expected / unit, "return bytes") for unit in units]
        expect.close(got, expected, shown, why, slips, rel_tol=1e-12)


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
        title="Micro-batches of tokens",
        name="accumulate_tokens",
        stars=2,
        check=check_accumulate_tokens,
        hints=[
            (
                "x.split(size) gives pieces of at most `size`; zip them with"
                " y.split(size). model.zero_grad() comes first, backward() once a"
                " piece."
            ),
            (
                "How many targets count in the whole batch is known before the loop:"
                " (y != -100).sum()."
            ),
            (
                "F.cross_entropy(…, reduction='sum') adds up the losses of the targets"
                " that count; divide it by their number in the whole batch."
            ),
        ],
        solution="""
import torch.nn.functional as F

def accumulate_tokens(model, x, y, size):
    model.zero_grad()
    counted = (y != -100).sum()
    for part, targets in zip(x.split(size), y.split(size)):
        logits = model(part).flatten(0, 1)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        (loss / counted).backward()
""",
        praise=(
            "With mean losses divided by the number of pieces, tokens in pieces with"
            " much padding count more: trainers had that mistake for years."
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
                "Start of backward: parameters 4, the state, and activations. Optimizer"
                " step: parameters 4, gradients 4, the state, and extra."
            ),
            "The peak is the larger of the two.",
        ],
        solution="""
def forecast(number, activations, state, extra):
    start_of_backward = (4 + state) * number + activations
    optimizer_step = (8 + state + extra) * number
    return max(start_of_backward, optimizer_step)
""",
        praise=(
            "The two are equal at 4 + extra bytes of activations per parameter. Below"
            " that, neither checkpointing nor a smaller batch lowers the peak."
        ),
    ),
]

"""Answers to the exercises of lesson 07."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

EXTRA_PEAK = SOLUTION["07.0"]
ANSWERS["07.0"] = Answers(
    right=[
        """
from torch.cuda import max_memory_allocated, memory_allocated, reset_peak_memory_stats

def extra_peak(work):
    reset_peak_memory_stats()
    before = memory_allocated()
    work()
    return max_memory_allocated() - before
""",
        """
def extra_peak(work):
    device = torch.device("cuda", torch.cuda.current_device())
    with torch.cuda.device(device):
        before = torch.cuda.memory_stats(device)["allocated_bytes.all.current"]
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
""",
    ],
    wrong={
        """
def extra_peak(work):
    work()
    return torch.cuda.max_memory_allocated()
""": "counts what was allocated before",
        edit(
            EXTRA_PEAK, ("    torch.cuda.reset_peak_memory_stats()\n", "")
        ): "an earlier peak is in it",
        """
def extra_peak(work):
    before = torch.cuda.memory_allocated()
    work()
    return torch.cuda.memory_allocated() - before
""": "what is left afterwards",
        edit(
            EXTRA_PEAK,
            ("cuda.memory_allocated", "cuda.memory_reserved"),
            ("max_memory_allocated", "max_memory_reserved"),
        ): "allocated is what tensors need",
    },
)

VALIDATE = SOLUTION["07.1"]
ANSWERS["07.1"] = Answers(
    right=[
        """
import torch.nn.functional as F

@torch.inference_mode()
def validate(model, batches):
    was_training = model.training
    model.eval()
    total = sum(F.mse_loss(model(x), y, reduction="sum").item() for x, y in batches)
    model.train(was_training)
    return total / sum(len(y) for _, y in batches)
""",
        """
import numpy as np

def validate(model, batches):
    frozen = {name: p.detach() for name, p in model.named_parameters()}
    errors = [torch.func.functional_call(model, frozen, (x,)) - y for x, y in batches]
    return np.mean(torch.cat(errors).numpy() ** 2)
""",
    ],
    wrong={
        edit(VALIDATE, ("with torch.no_grad()", "if True")): (
            "were kept for a backward pass"
        ),
        """
def validate(model, batches):
    with torch.no_grad():
        losses = [(model(x) - y).square().mean().item() for x, y in batches]
    return sum(losses) / len(losses)
""": "counts by its number of samples",
        edit(VALIDATE, ("    with", "    model.eval()\n    with")): (
            "left in another mode"
        ),
        edit(
            VALIDATE,
            (
                "    with torch.no_grad()",
                "    model.requires_grad_(False)\n    if True",
            ),
        ): "what they ask for (requires_grad)",
    },
    equivalent={
        (
            "total += (model(x) - y).square().sum() → total += (y -"
            " model(x)).square().sum()"
        ): "The square of a difference is the same in both directions.",
    },
)

ACCUMULATE = SOLUTION["07.2"]
WEIGHT = "(len(part) / len(x))"
ON_CPU = "Not judged: a check has tensors on the CPU only, where this does nothing."
ANSWERS["07.2"] = Answers(
    right=[
        """
def accumulate_gradients(model, x, y, size):
    for p in model.parameters():
        p.grad = None
    for start in range(0, len(x), size):
        error = model(x[start : start + size]) - y[start : start + size]
        (error.pow(2).sum() / y.numel()).backward()
""",
        """
import math
import torch.nn.functional as F

def accumulate_gradients(model, x, y, size):
    parameters = list(model.parameters())
    gradients = [torch.zeros_like(p) for p in parameters]
    pieces = math.ceil(len(x) / size)
    for part, target in zip(x.tensor_split(pieces), y.tensor_split(pieces)):
        loss = F.mse_loss(model(part), target)
        for total, g in zip(gradients, torch.autograd.grad(loss, parameters)):
            total += g * len(part) / len(x)
    for p, total in zip(parameters, gradients):
        p.grad = total
""",
    ],
    wrong={
        edit(
            ACCUMULATE, (f" * {WEIGHT}", " / len(x.split(size))")
        ): "every piece counts alike, however small",
        edit(ACCUMULATE, ("    model.zero_grad()\n", "")): "start from no gradients",
        edit(
            ACCUMULATE,
            ("zero_grad()\n", "zero_grad()\n    total = 0\n"),
            ("loss.backward()\n", "total += loss\n    total.backward()\n"),
        ): "call backward for each piece",
        edit(ACCUMULATE, ("split", "chunk", 2)): "x.chunk(20) gives 20 pieces",
    },
    equivalent={
        "moves x to the CPU": ON_CPU,
        "moves y to the CPU": ON_CPU,
        (
            "loss = F.mse_loss(model(part), target) * (len(part) / len(x)) →"
            " loss = F.mse_loss(model(part), target) * (len(part) / len(y))"
        ): "x and y have as many samples.",
        (
            "loss = F.mse_loss(model(part), target) * (len(part) / len(x)) →"
            " loss = F.mse_loss(target, model(part)) * (len(part) / len(x))"
        ): "The square of a difference is the same in both directions.",
    },
)

FORECAST = SOLUTION["07.3"]
ANSWERS["07.3"] = Answers(
    right=[
        """
def forecast(number, activations):
    start_of_backward = (4 + 8) * number + activations
    end_of_backward = (4 + 4 + 8) * number
    optimizer_step = end_of_backward + 4 * number
    return max(start_of_backward, end_of_backward, optimizer_step)
""",
        """
def forecast(number, activations):
    return 12.0 * number + (activations if activations > 8 * number else 8 * number)
""",
    ],
    wrong={
        """
def forecast(number, activations):
    return 16 * number + activations
""": "never there at the same time",
        edit(FORECAST, ("20 *", "16 *")): "with its extra copy",
        """
def forecast(number, activations):
    return 20 * number
""": "the peak is the start of backward",
        edit(FORECAST, ("max(", "1e-9 * max(")): "return bytes",
    },
)

FITS = SOLUTION["07.4"]
HALVING = """
def largest_that_fits(train, n):
    while True:
        try:
            train(n)
            return n
        except torch.OutOfMemoryError:
            if n == 1:
                raise
        n //= 2
"""
ANSWERS["07.4"] = Answers(
    right=[
        HALVING,
        """
def largest_that_fits(train, n):
    try:
        train(n)
        return n
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) or n == 1:
            raise
    return largest_that_fits(train, n // 2)
""",
    ],
    wrong={
        """
def largest_that_fits(train, n):
    try:
        train(n)
        return n
    except torch.OutOfMemoryError:
        if n == 1:
            raise
        return largest_that_fits(train, n // 2)
""": "Leave the except block first",
        edit(HALVING, ("torch.OutOfMemoryError", "RuntimeError")): (
            "cannot be multiplied') the attempt's own error should come through; you"
            " returned 4"
        ),
        edit(
            FITS,
            ("n > 1", "n"),
            ("train(1)\n    return 1", 'raise torch.OutOfMemoryError("none fits")'),
        ): "you raised a new OutOfMemoryError: none fits",
        edit(HALVING, ("//= 2", "-= 1")): "you tried [64, 63, 62",
    },
)

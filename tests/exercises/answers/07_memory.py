"""Answers to the exercises of lesson 07."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

EXTRA_PEAK = SOLUTION["07.0"]
ANSWERS["07.0"] = Answers(
    right=[
        """
def extra_peak(work):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
""",
        """
def extra_peak(work):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(0)
    before = torch.cuda.memory_stats()["allocated_bytes.all.current"]
    work()
    return torch.cuda.memory_stats(0)["allocated_bytes.all.peak"] - before
""",
        """
def extra_peak(work):
    if not torch.cuda.is_available():
        return 0
    before = torch.cuda.memory_allocated("cuda")
    torch.cuda.reset_peak_memory_stats(device=None)
    work()
    return float(torch.cuda.max_memory_allocated("cuda") - before)
""",
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
        before = torch.cuda.memory_allocated(device)
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
        edit(
            EXTRA_PEAK, ("return ", "return ("), (" before\n", " before) / 2**20\n")
        ): "Return bytes",
        """
def extra_peak(work):
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()
""": "work() ran 0 times",
        """
def extra_peak(work):
    torch.cuda.reset_peak_memory_stats("cudax")
    work()
    return torch.cuda.max_memory_allocated()
""": "Invalid device: 'cudax'",
        """
def extra_peak(work):
    before = torch.cuda.memory_allocated(1)
    torch.cuda.reset_peak_memory_stats(1)
    work()
    return torch.cuda.max_memory_allocated(1) - before
""": "Invalid device argument 1: there is one GPU, number 0",
        """
def extra_peak(work):
    before = torch.cuda.memory_allocated("cpu")
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() - before
""": "Expected a cuda device, but got: cpu",
        """
def extra_peak(work):
    before = torch.cuda.max_memory_allocated()
    work()
    return torch.cuda.max_memory_allocated() - before
""": "an earlier peak is in it",
        """
def extra_peak(work):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work("cuda")
    return torch.cuda.max_memory_allocated() - before
""": "takes 0 positional arguments but 1 was given",
    },
)

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
import torch.nn.functional as F

def validate(model, batches):
    total = samples = 0
    with torch.no_grad():
        for x, y in batches:
            total += F.mse_loss(model(x), y).item() * len(x)
            samples += len(x)
    return total / samples
""",
        """
def validate(model, batches):
    x, y = (torch.cat(parts) for parts in zip(*batches))
    with torch.no_grad():
        return float(torch.nn.MSELoss()(model(x), y))
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
    model.requires_grad_(False)
    total = sum((model(x) - y).square().sum().item() for x, y in batches)
    return total / sum(len(x) for x, _ in batches)
""": "the weights ask for no gradient anymore",
        """
def validate(model, batches):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(x) - y for x, y in batches]).square().mean().item()
""": "left in evaluation mode",
        """
def validate(model, batches):
    model.eval()
    with torch.no_grad():
        value = torch.cat([model(x) - y for x, y in batches]).square().mean().item()
    model.train()
    return value
""": "left in training mode, you found it in evaluation mode",
        """
def validate(model, batches):
    model.requires_grad_(False)
    value = torch.cat([model(x) - y for x, y in batches]).square().mean().item()
    model.requires_grad_(True)
    return value
""": "a weight that was frozen asks for a gradient now",
        """
def validate(model, batches):
    model.zero_grad()
    with torch.no_grad():
        return torch.cat([model(x) - y for x, y in batches]).square().mean().item()
""": "no zero_grad() is needed",
        """
def validate(model, batches):
    with torch.no_grad():
        return torch.cat([y.sub_(model(x)) for x, y in batches]).square().mean().item()
""": "changed batches[0][1] (its numbers)",
        """
def validate(model, batches, errors=[]):
    with torch.no_grad():
        errors += [model(x) - y for x, y in batches]
    return torch.cat(errors).square().mean().item()
""": "numbers of an earlier call are in it",
        """
def validate(model, batches):
    torch.set_grad_enabled(False)
    return torch.cat([model(x) - y for x, y in batches]).square().mean().item()
""": "switched off for all that follows",
        """
def validate(model, batches):
    with torch.no_grad():
        return (
            torch.cat([model(x) - y for x, y in batches]).square().mean().sqrt().item()
        )
""": "its square root",
        """
def validate(model, batches):
    with torch.no_grad():
        return (
            torch.cat([(model(x).squeeze() - y).square().mean(1) for x, y in batches])
            .mean()
            .item()
        )
""": "both of shape (n, 1)",
        """
def validate(model, batches):
    with torch.no_grad():
        return sum((model(x) - y).square().sum() for x, y in batches) / sum(
            len(x) for x, _ in batches
        )
""": "you returned a tensor",
    },
    equivalent={
        (
            "total += (model(x) - y).square().sum() → total += (y -"
            " model(x)).square().sum()"
        ): "The square of a difference is the same in both directions.",
    },
)

ACCUMULATE_GRADIENTS = SOLUTION["07.2"]
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
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

def accumulate_gradients(model, x, y, size):
    model.zero_grad(set_to_none=False)
    for part, target in DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True):
        loss = F.mse_loss(model(part), target)
        (loss * part.shape[0] / x.shape[0]).backward()
    return model
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
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    pieces = list(zip(x.split(size), y.split(size)))
    for part, target in pieces:
        ((model(part) - target).square().mean() / len(pieces)).backward()
""": "every piece counts alike, however small",
        """
def accumulate_gradients(model, x, y, size):
    for part, target in zip(x.split(size), y.split(size)):
        ((model(part) - target).square().mean() * len(part) / len(x)).backward()
""": "start from no gradients",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    losses = [
        (model(a) - b).square().mean() * len(a) / len(x)
        for a, b in zip(x.split(size), y.split(size))
    ]
    sum(losses).backward()
""": "call backward for each piece",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    (model(x) - y).square().mean().backward()
""": "the model got 10 samples at once, 5 at most",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.chunk(size), y.chunk(size)):
        ((model(part) - target).square().mean() * (len(part) / len(x))).backward()
""": "x.chunk(20) gives 20 pieces",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size)):
        ((model(part) - target).square().sum() / len(x)).backward()
""": "the mean is over all 20 numbers of y",
        """
def accumulate_gradients(model, x, y, size):
    for part, target in zip(x.split(size), y.split(size)):
        model.zero_grad()
        ((model(part) - target).square().mean() * len(part) / len(x)).backward()
""": "zero_grad comes once, before the loop",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size)):
        ((model(part) - target).square().mean() * size / max(size, len(x))).backward()
""": "weigh it by its own number",
        edit(
            ACCUMULATE_GRADIENTS, ("backward()", "backward(retain_graph=True)")
        ): "let go of each piece's graph",
        """
def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for part, target in zip(x.split(size), y.split(size)):
        (model(part) - target).square().mean().backward()
""": "the means of the pieces add up: weigh each",
        """
import torch.nn.functional as F

def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    x -= x.mean()
    for part, target in zip(x.split(size), y.split(size)):
        (F.mse_loss(model(part), target) * len(part) / len(x)).backward()
""": "changed x (its numbers)",
        """
import torch.nn.functional as F

def accumulate_gradients(model, x, y, size):
    model.zero_grad()
    for k in range(len(x) // size):
        part, target = x[k * size : (k + 1) * size], y[k * size : (k + 1) * size]
        (F.mse_loss(model(part), target) * len(part) / len(x)).backward()
""": "0 samples went through the model, there are 10",
    },
    equivalent={
        "moves x to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
        "moves y to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
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
        """
def forecast(number, activations):
    return 12 * number + activations
""": "with its extra copy",
        edit(FORECAST, ("20 *", "16 *")): "with its extra copy",
        """
def forecast(number, activations):
    return 20 * number
""": "the peak is the start of backward",
        """
def forecast(number, activations):
    return 12 * number + activations if activations > 10 * number else 20 * number
""": "for 100,000,000 parameters and 800,001,000 bytes",
        """
def forecast(number, activations):
    return max(12 * number + activations, 20 * number) / 10**9
""": "you returned 11.2, expected 11,200,000,000. Return bytes",
    },
)

LARGEST_THAT_FITS = SOLUTION["07.4"]
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
    fits = False
    while not fits:
        fits = True
        try:
            train(n)
        except torch.cuda.OutOfMemoryError as error:
            if n <= 1:
                raise error
            fits = False
        if not fits:
            n = int(n / 2)
    return n
""",
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
        edit(
            LARGEST_THAT_FITS,
            ("pass\n        n", "n"),
            ("train(1)\n    return 1", "return n"),
        ): "you tried [5, 2] and returned 1, expected [5, 2, 1] and 1",
        edit(HALVING, ("torch.OutOfMemoryError", "RuntimeError")): (
            "where the attempt raises a RuntimeError the error should come"
            " through; you returned 4"
        ),
        """
def largest_that_fits(train, n):
    while n:
        try:
            train(n)
            return n
        except torch.OutOfMemoryError:
            pass
        n //= 2
    raise torch.OutOfMemoryError("not even one sample fits")
""": "own error should come through, not a new OutOfMemoryError",
        edit(
            HALVING, ("try:", "try:\n            train(n)")
        ): "you tried [64, 64] and returned 64",
        edit(HALVING, ("//= 2", "-= 1")): "you tried [64, 63, 62",
        edit(HALVING, ("//= 2", "/= 2")): "there is no attempt with 32.0 samples",
        edit(
            HALVING, ("torch.OutOfMemoryError", "Exception")
        ): "only running out of memory is a reason",
        edit(
            HALVING,
            ("torch.OutOfMemoryError", "RuntimeError as error"),
            ("== 1", '== 1 or "memory" not in str(error)'),
        ): (
            "raises a RuntimeError about an illegal memory access the error should"
            " come through"
        ),
        """
def largest_that_fits(train, n):
    failed = []
    while True:
        try:
            train(n)
            return n
        except torch.OutOfMemoryError as error:
            if n == 1:
                raise
            failed.append(error)
        n //= 2
""": "Leave the except block first",
        """
def largest_that_fits(train, n):
    while True:
        try:
            train(n)
            return n
        except torch.OutOfMemoryError:
            n //= 2
""": "there is no attempt with 0 samples",
    },
)

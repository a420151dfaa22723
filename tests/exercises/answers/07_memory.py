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
ON_CPU = "Not judged: a check has tensors on the CPU only, where this does nothing."
ANSWERS["07.2"] = Answers(
    right=[
        """
import torch.nn.functional as F

def accumulate_tokens(model, x, y, size):
    for p in model.parameters():
        p.grad = None
    total = y.ne(-100).sum().item()
    for start in range(0, len(x), size):
        targets = y[start : start + size]
        count = targets.ne(-100).sum().item()
        if not count:
            continue
        logits = model(x[start : start + size])
        loss = F.cross_entropy(logits.transpose(1, 2), targets)
        (loss * (count / total)).backward()
""",
        """
import torch.nn.functional as F

def accumulate_tokens(model, x, y, size):
    parameters = list(model.parameters())
    gradients = [torch.zeros_like(p) for p in parameters]
    for part, aim in zip(torch.split(x, size), torch.split(y, size)):
        chances = model(part).log_softmax(-1)[aim >= 0]
        loss = -chances.gather(1, aim[aim >= 0][:, None]).sum() / (y >= 0).sum()
        for total, g in zip(gradients, torch.autograd.grad(loss, parameters)):
            total += g
    for p, total in zip(parameters, gradients):
        p.grad = total
""",
    ],
    wrong={
        edit(
            ACCUMULATE,
            (', reduction="sum"', ""),
            ("loss / counted", "loss * len(part) / len(x)"),
        ): "a piece counts by its tokens, not samples",
        """
import torch.nn.functional as F

def accumulate_tokens(model, x, y, size):
    model.zero_grad()
    pieces = y.split(size)
    for part, targets in zip(x.split(size), pieces):
        loss = F.cross_entropy(model(part).flatten(0, 1), targets.flatten())
        (loss / len(pieces)).backward()
""": "every piece counts alike",
        edit(ACCUMULATE, ("    model.zero_grad()\n", "")): "start from no gradients",
        edit(ACCUMULATE, ("(y != -100).sum()", "y.numel()")): "padding is no target",
        edit(ACCUMULATE, ("split", "chunk", 2)): "gives 2 pieces",
        edit(
            ACCUMULATE,
            ("model.zero_grad()\n", "model.zero_grad()\n    total = 0\n"),
            (
                "        (loss / counted).backward()",
                "        total += loss / counted\n    total.backward()",
            ),
        ): "call backward for each piece",
    },
    equivalent={"moves x to the CPU": ON_CPU, "moves y to the CPU": ON_CPU},
)

FORECAST = SOLUTION["07.3"]
ANSWERS["07.3"] = Answers(
    right=[
        """
def forecast(number, activations, state, extra):
    moments = {
        "start of backward": 4 * number + state * number + activations,
        "end of backward": (4 + 4 + state) * number,
        "optimizer step": (4 + 4 + state + extra) * number,
    }
    return max(moments.values())
""",
        """
def forecast(number, activations, state, extra):
    always = (4.0 + state) * number
    comes = (4 + extra) * number
    return always + (activations if activations > comes else comes)
""",
    ],
    wrong={
        """
def forecast(number, activations, state, extra):
    return (8 + state) * number + activations
""": "never there at the same time",
        edit(FORECAST, ("(8 + state + extra)", "(8 + state)")): "state, extra)",
        """
def forecast(number, activations, state, extra):
    return (8 + state + extra) * number
""": "the peak is the start of backward",
        edit(FORECAST, ("max(", "1e-9 * max(")): "return bytes",
    },
)

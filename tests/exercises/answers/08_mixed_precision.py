"""Answers to the exercises of lesson 08."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}
ON_CPU = "Not judged: a check has tensors on the CPU only, where this does nothing."

AUTOCAST_TO = SOLUTION["08.1"]
ANSWERS["08.1"] = Answers(
    right=[
        """
def autocast_to(model, x, dtype):
    with torch.amp.autocast(device_type=x.device.type, dtype=dtype, enabled=True):
        output = model(x)
    return output
""",
        """
def autocast_to(model, x, dtype):
    return torch.autocast(str(x.device), dtype)(model)(x)
""",
    ],
    wrong={
        edit(
            AUTOCAST_TO, ("x.device.type", '"cpu"')
        ): "for a tensor on xpu and torch.float16 (an Intel GPU",
        """
def autocast_to(model, x, dtype):
    return model.to(dtype)(x.to(dtype))
""": "autocast casts a copy",
        edit(AUTOCAST_TO, ("(x)", "(x).float()")): "return model(x) as it comes out",
        """
def autocast_to(model, x, dtype):
    torch.set_autocast_dtype(x.device.type, dtype)
    with torch.autocast(x.device.type):
        return model(x)
""": "has another default type for cpu",
    },
)

COMPLETE = SOLUTION["08.2"]
ANSWERS["08.2"] = Answers(
    right=[
        edit(COMPLETE, (" loss\n", " loss.item()\n")),
        """
def complete(model, optimizer, scaler, x, y, max_norm):
    model.zero_grad()
    with torch.amp.autocast(x.device.type, torch.half):
        loss = torch.nn.CrossEntropyLoss()(model(x), y)
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()
""",
    ],
    wrong={
        edit(
            COMPLETE, ("    scaler.unscale_(optimizer)\n", "")
        ): "clipped while it still had the scale",
        edit(COMPLETE, ("    scaler.update()\n", "")): "scaler.update(), each once",
        edit(
            COMPLETE, ("scaler.scale(loss)", "loss = scaler.scale(loss)\n    loss")
        ): "that is the loss times the scale",
        edit(
            COMPLETE,
            ("scaler.step(optimizer)", "optimizer.step()"),
            ("    scaler.update()\n", ""),
        ): "use scaler.step(optimizer)",
    },
    equivalent={"moves x to the CPU": ON_CPU, "moves y to the CPU": ON_CPU},
)

DTYPES = SOLUTION["08.3"]
ANSWERS["08.3"] = Answers(
    right=[
        """
half, single = torch.half, torch.float
dtypes = [half, single, half, single, single, single]
""",
        edit(DTYPES, ('"float', '"torch.float', 6)),
    ],
    wrong={
        edit(DTYPES, ('["float16"', '["float32"')): "the float32 weight is cast",
        edit(DTYPES, ('"float16", "float32", ', '"float16", "float16", ', 2)): (
            "softmax is on CUDA's list"
        ),
        edit(DTYPES, ('32"]', '16"]')): "as in an addition",
        'dtypes = ["float16", "float32"]': "expected a list of 6",
    },
)

ACCUMULATE = SOLUTION["08.4"]
ANSWERS["08.4"] = Answers(
    right=[
        """
import torch.nn as nn

def accumulate(model, optimizer, scaler, batches, max_norm):
    model.zero_grad(set_to_none=False)
    k, criterion = len(batches), nn.CrossEntropyLoss()
    for x, y in batches:
        with torch.amp.autocast(device_type=x.device.type, dtype=torch.half):
            logits = model(x)
            loss = criterion(logits, y)
        scaler.scale(loss / k).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()
""",
        """
import torch.nn.functional as F

def accumulate(model, optimizer, scaler, batches, max_norm):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = None
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
        scaler.scale(F.cross_entropy(logits.float(), y)).backward()
    scaler.unscale_(optimizer)
    for p in parameters:
        p.grad /= len(batches)
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in parameters]))
    if norm > max_norm:
        for p in parameters:
            p.grad *= max_norm / norm
    scaler.step(optimizer)
    scaler.update()
""",
    ],
    wrong={
        edit(
            ACCUMULATE, (" / len(batches)", "")
        ): "Divide each loss by the number of batches",
        edit(
            ACCUMULATE,
            ("    scaler.update()\n", ""),
            ("backward()", "backward()\n        scaler.update()"),
        ): "when backward has run for all batches comes scaler.step(optimizer)",
        edit(
            ACCUMULATE,
            ("    optimizer.zero_grad()\n", ""),
            ("y in batches:\n", "y in batches:\n        optimizer.zero_grad()\n"),
        ): "the batches before the last were thrown away",
        edit(
            ACCUMULATE, ("        scaler.scale(loss)", "            scaler.scale(loss)")
        ): "within autocast",
    },
)

SHARE_LOST = SOLUTION["08.5"]
ANSWERS["08.5"] = Answers(
    right=[
        """
def share_lost(weights, updates, dtype):
    stored = weights.to(dtype)
    still = stored + updates.to(dtype) == stored
    return still.sum() / still.numel()
""",
        """
def share_lost(weights, updates, dtype):
    before = weights.type(dtype).flatten().tolist()
    after = (weights.type(dtype) + updates.type(dtype)).flatten().tolist()
    return sum(a == b for a, b in zip(after, before)) / len(before)
""",
    ],
    wrong={
        edit(
            SHARE_LOST, ("updates.to(dtype)", "updates")
        ): "less than half of the distance",
        edit(SHARE_LOST, ("mean", "sum")): "that is how many, not which share",
        """
def share_lost(weights, updates, dtype):
    before, after = weights.to(dtype), (weights + updates).to(dtype)
    return (after == before).float().mean().item()
""": "round both first",
        """
def share_lost(weights, updates, dtype):
    return (updates.abs() < torch.finfo(dtype).eps / 2).float().mean().item()
""": "grows with the weight",
    },
    equivalent={"moves weights to the CPU": ON_CPU, "moves updates to the CPU": ON_CPU},
)

KEEP = SOLUTION["08.6"]
ANSWERS["08.6"] = Answers(
    right=[
        """
import math
import numpy as np

def keep_bits(x, exponent_bits, mantissa_bits):
    if x == 0:
        return x
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.floor(math.log2(abs(x))), 1 - bias)
    step = 2.0 ** (exponent - mantissa_bits)
    kept = np.rint(x / step) * step
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
    return np.sign(kept) * np.inf if abs(kept) > largest else kept
""",
        """
import math

def keep_bits(x, exponent_bits, mantissa_bits):
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = 1 - bias
    while abs(x) >= 2.0 ** (exponent + 1) and exponent <= bias:
        exponent += 1
    scaled = math.ldexp(abs(x), mantissa_bits - exponent)
    whole, rest = int(scaled), scaled % 1
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    kept = math.ldexp(whole, exponent - mantissa_bits)
    if kept >= math.ldexp(1, bias + 1):
        kept = float("inf")
    return kept if x > 0 else -kept
""",
    ],
    wrong={
        edit(KEEP, ("round", "int")): "the nearest of its neighbors",
        edit(
            KEEP, ("max(math.frexp(x)[1] - 1, 1 - bias)", "math.frexp(x)[1] - 1")
        ): "the steps get no smaller",
        edit(
            KEEP,
            (
                "abs(kept) < 2.0 ** (bias + 1)",
                "abs(x) <= (2 - 2.0**-mantissa_bits) * 2.0**bias",
            ),
        ): "round first: the nearest is the largest number",
        """
def keep_bits(x, exponent_bits, mantissa_bits):
    formats = {
        (5, 10): torch.float16,
        (8, 7): torch.bfloat16,
        (5, 2): torch.float8_e5m2,
    }
    return (
        torch.tensor(float(x))
        .to(formats.get((exponent_bits, mantissa_bits), torch.float8_e4m3fn))
        .item()
    )
""": "keep_bits(70000, 4, 3) you returned",
    },
)

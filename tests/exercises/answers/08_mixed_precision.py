"""Answers to the exercises of lesson 08."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

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
            AUTOCAST_TO, ("x.device.type", '"cuda"')
        ): "autocast was off while the model ran",
        edit(
            AUTOCAST_TO, ("x.device.type", '"cpu"')
        ): "for a tensor on xpu and torch.float16 (an Intel GPU",
        edit(
            AUTOCAST_TO, (", dtype=dtype", "")
        ): "for a tensor on cpu and torch.float16 autocast ran with torch.bfloat16",
        """
def autocast_to(model, x, dtype):
    return model.to(dtype)(x.to(dtype))
""": "autocast casts a copy",
        """
def autocast_to(model, x, dtype):
    return model(x).to(dtype)
""": "autocast was off while the model ran",
        edit(AUTOCAST_TO, ("(x)", "(x).float()")): "your output is torch.float32",
        edit(
            AUTOCAST_TO, ("(x)", "(x).to(dtype)")
        ): "the model's last operation gave torch.float32: return it as it comes out",
        edit(AUTOCAST_TO, ("(x)", "(x.to(dtype))")): "the model got x in torch.float16",
        edit(
            AUTOCAST_TO, ("def", "@torch.no_grad()\ndef")
        ): "backward() would fail on your output",
        """
def autocast_to(model, x, dtype):
    torch.set_autocast_dtype(x.device.type, dtype)
    with torch.autocast(x.device.type):
        return model(x)
""": "autocast has another default type for cpu now",
    },
)

COMPLETE = SOLUTION["08.2"]
ANSWERS["08.2"] = Answers(
    right=[
        edit(
            COMPLETE,
            ("import torch.nn.functional as F\n\n", ""),
            ("= F.", "= torch.nn.functional."),
            (" loss\n", " loss.item()\n"),
        ),
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
        edit(
            COMPLETE, ("    scaler.update()\n", "")
        ): "update() was not called: call it once, after the step",
        edit(
            COMPLETE,
            ("    scaler.unscale_(optimizer)\n", ""),
            ("step", "unscale_(optimizer)\n    scaler.step"),
        ): "clipped while it still had the scale",
        edit(
            COMPLETE,
            (
                "step(optimizer)\n    scaler.update()",
                "update()\n    scaler.step(optimizer)",
            ),
        ): "update() came before step()",
        edit(COMPLETE, ("    return loss\n", "")): "you returned None: return the loss",
        edit(
            COMPLETE, ("scaler.scale(loss)", "loss = scaler.scale(loss)\n    loss")
        ): "you returned the loss times the scale",
        edit(
            COMPLETE,
            (
                "    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n",
                "",
            ),
        ): "it was not clipped",
        edit(COMPLETE, ("    optimizer.zero_grad()\n", "")): "zero_grad comes first",
        edit(COMPLETE, ("    scaler.scale", "        scaler.scale")): "within autocast",
        edit(
            COMPLETE,
            ("scaler.step(optimizer)", "optimizer.step()"),
            ("    scaler.update()\n", ""),
        ): "use scaler.step(optimizer)",
    },
    equivalent={
        "moves x to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
        "moves y to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)

ANSWERS["08.3"] = Answers(
    right=[
        """
dtypes = [
    torch.float16,
    torch.float32,
    torch.half,
    torch.float,
    torch.float32,
    torch.float32,
]
""",
        """
low, high = "torch.float16", "torch.float32"
dtypes = (low, high, low, high, high, high)
""",
    ],
    wrong={
        'dtypes = ["float32", "float32", "float16", "float32", "float32", "float32"]': (
            "the float32 weight is cast"
        ),
        'dtypes = ["float16", "float16", "float16", "float32", "float32", "float32"]': (
            "softmax is on CUDA's list"
        ),
        'dtypes = ["float16", "float32", "float32", "float32", "float32", "float32"]': (
            "relu is on no list"
        ),
        'dtypes = ["float16", "float32", "float16", "float16", "float32", "float32"]': (
            "the wider type wins"
        ),
        'dtypes = ["float16", "float32", "float16", "float32", "float16", "float32"]': (
            "a sum over many numbers"
        ),
        'dtypes = ["float16", "float32", "float16", "float32", "float32", "float16"]': (
            "as in an addition"
        ),
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
            ACCUMULATE, ("    scaler.update()\n", "")
        ): "update() was not called: call it once, after the step",
        edit(
            ACCUMULATE, ("len(batches)", "4")
        ): "2 batches: the optimizer saw a gradient of norm",
        edit(ACCUMULATE, ("(), max_norm", "(), 0.125")): "clipped once",
        edit(
            ACCUMULATE,
            (
                "            loss = F.cross",
                "            logits = model(x)\n        loss = F.cross",
            ),
            ("(model(x), y)", "(logits, y)"),
        ): "the loss was computed in float16, outside of autocast",
        edit(
            ACCUMULATE,
            (
                "    scaler.step(optimizer)\n    scaler.update()",
                "    scaler.update()\n    scaler.step(optimizer)",
            ),
        ): "update() came before step()",
        edit(
            ACCUMULATE,
            ("    scaler.update()\n", ""),
            ("backward()", "backward()\n        scaler.update()"),
        ): "update() came before step(): it ends a step, after the loop",
        edit(
            ACCUMULATE,
            ("    optimizer.zero_grad()\n", ""),
            ("y in batches:\n", "y in batches:\n        optimizer.zero_grad()\n"),
        ): "the batches before the last were thrown away",
        edit(
            ACCUMULATE,
            (
                "clip_grad_norm_(model.parameters(), max_norm)",
                "[clip_grad_norm_(p, max_norm) for p in model.parameters()]",
            ),
        ): "clipped once",
        edit(ACCUMULATE, ("    optimizer.zero_grad()\n", "")): "zero_grad comes first",
        edit(ACCUMULATE, ("(loss)", "(loss)\n        loss")): "never multiplied by it",
        edit(
            ACCUMULATE, ("scaler.scale(loss)", "loss")
        ): "did not use scaler.scale(loss",
        edit(
            ACCUMULATE,
            ("scaler.step(optimizer)", "optimizer.step()"),
            ("    scaler.update()\n", ""),
        ): "use scaler.step(optimizer)",
        edit(
            ACCUMULATE, ("        scaler.scale(loss)", "            scaler.scale(loss)")
        ): "within autocast",
        edit(
            ACCUMULATE, ("dtype=torch.float16", "dtype=torch.float16, enabled=False")
        ): "without autocast for the CPU",
        edit(ACCUMULATE, ("float16", "bfloat16")): "another type",
        """
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

def accumulate(model, optimizer, scaler, batches, max_norm):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        total = sum(F.cross_entropy(model(x), y) / len(batches) for x, y in batches)
    scaler.scale(total).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
""": "backward ran once for 4 batches",
        edit(
            ACCUMULATE, ("(loss)", "(scaler.scale(loss))")
        ): "backward ran 4 times, scaler.scale 8 times",
        edit(
            ACCUMULATE,
            (
                "    scaler.step",
                (
                    "    optimizer.param_groups[0]['lr'] /= len(batches)\n"
                    "    scaler.step"
                ),
            ),
        ): "learning rate of 0.1, now it has 0.025",
        edit(
            ACCUMULATE,
            (
                "    clip_grad",
                (
                    "    if not all(p.grad.isfinite().all() for p in"
                    " model.parameters()):\n"
                    "        return\n"
                    "    clip_grad"
                ),
            ),
        ): "scaler.update() was not called",
        edit(
            ACCUMULATE, ("    scaler.unscale_(optimizer)\n", "")
        ): "unscale_ first, once",
        edit(
            ACCUMULATE, ("    clip_grad_norm_(model.parameters(), max_norm)\n", "")
        ): "it was not clipped",
        edit(
            ACCUMULATE,
            ("    scaler.unscale_", "        scaler.unscale_"),
            ("    clip_grad", "        clip_grad"),
            ("    scaler.step", "        scaler.step"),
            ("    scaler.update", "        scaler.update"),
        ): "4 optimizer steps for 4 batches",
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
        edit(
            SHARE_LOST, ("weights.to(dtype)", "weights")
        ): "less than half of the distance",
        edit(SHARE_LOST, ("==", "!=")): "that is the share that moves",
        edit(SHARE_LOST, ("mean", "sum")): "that is how many, not which share",
        edit(SHARE_LOST, (".float().mean()", "")): "expected a number",
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
    equivalent={
        "moves weights to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
        "moves updates to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
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
                (
                    "kept if abs(kept) < 2.0 ** (bias + 1) else"
                    " math.copysign(math.inf, x)"
                ),
                "kept",
            ),
        ): "too large becomes infinite",
        edit(KEEP, ("math.copysign(math.inf, x)", "math.inf")): "on the other side",
        edit(
            KEEP, ("round(x / step)", "math.floor(x / step + 0.5)")
        ): "the even one wins",
        edit(
            KEEP,
            (
                "    exponent =",
                (
                    "    if abs(x) < 2.0 ** (1 - bias):\n"
                    "        return 0.0\n"
                    "    exponent ="
                ),
            ),
        ): "the steps get no smaller, down to zero",
        edit(
            KEEP,
            (
                "abs(kept) < 2.0 ** (bias + 1)",
                "abs(x) <= (2 - 2.0**-mantissa_bits) * 2.0**bias",
            ),
        ): "round first: the nearest is the largest number",
        edit(KEEP, ("abs(kept) < 2.0 ** (bias + 1)", "exponent <= bias")): "infinity",
        edit(
            KEEP, ("    bias =", "    x = torch.tensor(float(x)).item()\n    bias =")
        ): "float32 keeps 23 bits of mantissa",
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
""": "keep_bits(70000, 4, 3) gave",
    },
)

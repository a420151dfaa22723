"""Answers to the exercises of lesson 09."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

RECORD = SOLUTION["09.1"]
ANSWERS["09.1"] = Answers(
    right=[
        """
import torch


def record(step, steps, first, count):
    prof = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(
            wait=0, skip_first=first - 1, warmup=1, active=count, repeat=1
        ),
    )
    prof.start()
    for _ in range(steps):
        step()
        prof.step()
    prof.stop()
    return prof
""",
        """
import torch


def record(step, steps, first, count):
    for _ in range(first):
        step()
    with torch.autograd.profiler.profile() as prof:
        for _ in range(count):
            step()
    for _ in range(steps - first - count):
        step()
    return prof
""",
    ],
    wrong={
        edit(RECORD, ("first - 1", "first")): "wait + warmup steps come before number",
        edit(RECORD, (", repeat=1", "")): "has thrown away the first one (repeat=1)",
        edit(RECORD, ("            prof.step()\n", "")): "call prof.step() at the end",
        edit(
            RECORD, ("return prof", "return prof.key_averages()")
        ): "the profiler is asked",
    },
)

NAME_FAULT = SOLUTION["09.2"]
ANSWERS["09.2"] = Answers(
    right=[
        """
from device_lab import busy


def name_fault(trace, waits):
    share, idle = busy(trace).share, busy(trace).idle
    starts = "aten::", "cuda", "hip"
    launching = sum(t for name, t in idle.items() if name.startswith(starts))
    if share > 0.9 or share == 0.9:
        return "busy"
    elif launching / sum(idle.values()) < 0.5:
        return "input-bound"
    elif waits >= 1:
        return "sync-bound"
    else:
        return "launch-bound"
""",
        """
import re
from device_lab import busy


def name_fault(trace, waits):
    found = busy(trace)
    by_kind = {True: 0, False: 0}
    for name, seconds in found.idle.items():
        by_kind[bool(re.match("aten::|cuda|hip", name))] += seconds
    rules = {
        "busy": found.share >= 0.9,
        "input-bound": by_kind[False] > by_kind[True],
        "sync-bound": waits > 0,
    }
    return next((name for name, holds in rules.items() if holds), "launch-bound")
""",
    ],
    wrong={
        edit(NAME_FAULT, ("found.idle", "found.longest", 2)): "the longest gap is in",
        edit(
            NAME_FAULT, ('("aten::", "cuda", "hip")', '("aten::", "cuda")')
        ): "aten::, cuda and hip together",
        """
from device_lab import busy


def name_fault(trace, waits):
    found = busy(trace)
    if found.share >= 0.9:
        return "busy"
    if waits:
        return "sync-bound"
    longest = next(iter(found.idle))
    if longest.startswith(("aten::", "cuda", "hip")):
        return "launch-bound"
    return "input-bound"
""": "whatever waits",
        """
from device_lab import busy


def name_fault(trace, waits):
    kernels = sum(e["dur"] for e in trace if e["cat"] == "kernel")
    if kernels >= 0.9 * sum(e["dur"] for e in trace):
        return "busy"
    name = next(iter(busy(trace).idle))
    if not name.startswith(("aten::", "cuda", "hip")):
        return "input-bound"
    return "sync-bound" if waits else "launch-bound"
""": "you said",
        edit(
            NAME_FAULT, ("-bound", " bound", 3)
        ): "you returned 'launch bound', expected one of",
    },
    equivalent={
        (
            "if launching < sum(found.idle.values()) / 2: → if launching <="
            " sum(found.idle.values()) / 2:"
        ): "Two sums of measured times are never the same.",
        (
            "if name.startswith(('aten::', 'cuda', 'hip')): → if"
            " name.startswith(('cuda', 'aten::', 'hip')):"
        ): "Any of the three will do.",
        (
            "if name.startswith(('aten::', 'cuda', 'hip')): → if"
            " name.startswith(('aten::', 'hip', 'cuda')):"
        ): "Any of the three will do.",
    },
)

BOUND = SOLUTION["09.3"]
ANSWERS["09.3"] = Answers(
    right=[
        """
def bound(m, k, n, b, rate, bandwidth):
    intensity = 2 * m * k * n / (b * (m * k + k * n + m * n))
    if intensity >= rate / bandwidth:
        return [intensity, "arithmetic", 2 * m * k * n / rate]
    return [intensity, "memory", b * (m * k + k * n + m * n) / bandwidth]
""",
        """
import numpy as np

def bound(m, k, n, b, rate, bandwidth):
    flop = 2 * np.prod([m, k, n])
    moved = b * sum(rows * columns for rows, columns in ((m, k), (k, n), (m, n)))
    seconds, limit = max((flop / rate, "arithmetic"), (moved / bandwidth, "memory"))
    return np.float64(flop / moved), limit, seconds
""",
    ],
    wrong={
        edit(BOUND, ("2 * m", "m")): "an addition a term are two",
        edit(BOUND, (" + m * n", "")): "the result is written to memory",
        edit(BOUND, ("max(arithmetic, memory)", "arithmetic + memory")): (
            "the two go on at the same time"
        ),
        edit(BOUND, ("> memory", "< memory")): "you said 'memory', expected",
    },
    equivalent={
        (
            "limit = 'arithmetic' if arithmetic > memory else 'memory' → limit ="
            " 'arithmetic' if arithmetic >= memory else 'memory'"
        ): "At the ridge both take as long, and either word is right.",
    },
)

EPOCH = SOLUTION["09.4"]
ANSWERS["09.4"] = Answers(
    right=[
        """
def epoch(batches, weight):
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    scores = x.float() / 64 @ weight
    loss = torch.nn.functional.cross_entropy(scores, y)
    right = (scores.argmax(dim=-1) == y).float().mean()
    return tuple(torch.stack((loss, right)).cpu().numpy())
""",
        """
import torch.nn.functional as F


def epoch(batches, weight):
    sums = torch.zeros(2, device=weight.device)
    for x, y in batches:
        scores = F.linear(x.to(torch.float32).div_(64), weight.T)
        sums[0] += F.cross_entropy(scores, y) * len(y)
        sums[1] += scores.argmax(1).eq(y).sum()
    loss, right = sums.to("cpu") / sum(len(y) for _, y in batches)
    return float(loss), float(right)
""",
    ],
    wrong={
        edit(
            EPOCH, ("x.float() @ weight / 64", "(x.double() / 64) @ weight.double()")
        ): "a product computes in torch.float64",
        edit(
            EPOCH,
            (
                "loss, right = torch.stack([loss, right]).tolist()",
                "loss, right = loss.item(), right.item()",
            ),
        ): "2 fetches (item, item …)",
        """
def epoch(batches, weight):
    losses, rights = [], []
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        losses.append(torch.nn.functional.cross_entropy(scores, y))
        rights.append((scores.argmax(1) == y).float().mean())
    return tuple(
        torch.stack([torch.stack(losses).mean(), torch.stack(rights).mean()]).tolist()
    )
""": "a mean of means is no mean",
        edit(
            EPOCH,
            ("loss = right = count = 0", "totals, count = torch.zeros(2), 0"),
            ("loss = loss +", "totals[0] +="),
            ("right = right +", "totals[1] +="),
            ("torch.stack([loss, right])", "totals"),
        ): "right on the CPU, but for the same on a GPU your function raised",
    },
)

MFU = SOLUTION["09.5"]
ANSWERS["09.5"] = Answers(
    right=[
        edit(
            MFU,
            ("model(x).sum().backward()", "out = model(x)\n        out.backward(out)"),
        ),
        """
import torch
from torch.utils import flop_counter


def mfu_of(make, shape, seconds, peak):
    torch.set_default_device("meta")
    try:
        model = make()
    finally:
        torch.set_default_device(None)
    x = torch.zeros(*shape, device="meta")
    counter = flop_counter.FlopCounterMode(display=False)
    with counter:
        loss = model.forward(x).square().mean()
        loss.backward()
    flops = sum(counter.get_flop_counts()["Global"].values())
    return float(flops) / seconds / 1e12 / peak
""",
    ],
    wrong={
        edit(MFU, ("model(x).sum().backward()", "model(x)")): "forward and backward",
        edit(
            MFU, ("torch.empty(shape)", "torch.empty(shape, requires_grad=True)")
        ): "the input needs no gradient",
        edit(MFU, ("display=False", "")): "FlopCounterMode(display=False)",
        """
def mfu_of(make, shape, seconds, peak):
    parameters = sum(p.numel() for p in make().parameters())
    return 6 * parameters * shape[0] * shape[1] / seconds / (peak * 1e12)
""": "counted on meta",
    },
    equivalent={
        "model(x).sum().backward() → model(x).max().backward()": (
            "Any number made of the whole output will do: the products behind it"
            " are the same."
        ),
    },
)

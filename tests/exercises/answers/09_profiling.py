"""Answers to the exercises of lesson 09."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

CALLS_OF = SOLUTION["09.0"]
ANSWERS["09.0"] = Answers(
    right=[
        """
from torch.profiler import ProfilerActivity, profile


def calls_of(name, program):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        program()
    return len([event for event in prof.events() if event.name == name])
""",
        """
import collections
from torch.autograd.profiler import profile


def calls_of(name, program):
    with profile() as prof:
        program()
    return collections.Counter(event.key for event in prof.function_events)[name]
""",
        """
import torch


def calls_of(name, program):
    prof = torch.profiler.profile()
    prof.start()
    program()
    prof.stop()
    counts = {row.key: row.count for row in prof.key_averages()}
    return counts.get(name, 0)
""",
    ],
    wrong={
        edit(
            CALLS_OF, ("count", "key == name"), (" if row.key == name", "")
        ): "the count of all its calls",
        edit(
            CALLS_OF, ("row.key == name", "name in row.key")
        ): "aten::addmm is another operator",
        """
from torch.profiler import profile


def calls_of(name, program):
    with profile() as prof:
        program()
    return {row.key: row.count for row in prof.key_averages()}.get(name)
""": "expected a number of calls, 0 if there is none",
        """
from torch.profiler import profile


def calls_of(name, program):
    program()
    with profile() as prof:
        pass
    return sum(row.count for row in prof.key_averages() if row.key == name)
""": "call the program in the `with` block",
        edit(
            CALLS_OF, ("program()", "program()\n        program()")
        ): "call the program once",
        edit(CALLS_OF, ("count", "self_cpu_time_total")): "not their time",
        """
from torch.profiler import profile


def calls_of(name, program):
    with profile() as prof:
        program()
    return sum(
        event.name == name for event in prof.events() if event.cpu_parent is None
    )
""": "aten::matmul calls it",
        """
from torch.utils._python_dispatch import TorchDispatchMode


def calls_of(name, program):
    class Counting(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append("aten::" + function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    with Counting() as counting:
        program()
    return counting.seen.count(name)
""": "operators that call others count as well",
    },
)

SELF = SOLUTION["09.1"]
PARENT = """
def self_times(spans):
    times = {name: 0 for name, _, _ in spans}
    for name, start, end in spans:
        times[name] += end - start
        around = [
            (e - s, n)
            for n, s, e in spans
            if s <= start and end <= e and e - s > end - start
        ]
        if around:
            times[min(around)[1]] -= end - start
    return times
"""
ANSWERS["09.1"] = Answers(
    right=[
        PARENT,
        """
def self_times(spans):
    times = {name: 0 for name, _, _ in spans}
    edges = sorted({t for _, start, end in spans for t in (start, end)})
    for a, b in zip(edges, edges[1:]):
        around = [
            (end - start, name) for name, start, end in spans if start <= a and b <= end
        ]
        if around:
            times[min(around)[1]] += b - a
    return times
""",
        """
from collections import defaultdict


def self_times(spans):
    times, stack = defaultdict(float), []
    for name, start, end in sorted(
        spans, key=lambda span: (span[1], span[1] - span[2])
    ):
        while stack and stack[-1][1] <= start:
            stack.pop()
        times[name] += end - start
        if stack:
            times[stack[-1][0]] -= end - start
        stack.append((name, end))
    return times
""",
    ],
    wrong={
        """
def self_times(spans):
    times = {}
    for name, start, end in spans:
        times[name] = times.get(name, 0) + end - start
    return times
""": "less the time of what is inside",
        """
def self_times(spans):
    times = {}
    for name, a, b in spans:
        inside = sum(
            d - c for _, c, d in spans if a <= c and d <= b and (c, d) != (a, b)
        )
        times[name] = times.get(name, 0) + b - a - inside
    return times
""": "only the direct children count",
        edit(
            SELF, ("sorted(spans, key=lambda span: (span[1], -span[2]))", "spans")
        ): "sort it first",
        edit(SELF, ("(span[1], -span[2])", "span[1]")): "the longer one is the parent",
        edit(
            SELF, ("[2] >", "[2] >=")
        ): "what begins where another span ends is not inside of it",
        edit(
            SELF, ("times.get(name, 0) + end - start", "end - start")
        ): "add up all spans of a name",
        edit(PARENT, ("s <=", "s <"), ("<= e", "< e")): "the longer one is the parent",
        edit(PARENT, ("e - s,", "e,")): "the parent of mm is linear",
        edit(
            SELF,
            (
                "return times",
                "return {name: time for name, time in times.items() if time}",
            ),
        ): "your names",
        """
def self_times(spans):
    return [end - start for _, start, end in spans]
""": "expected a dict",
    },
)

ANSWERS["09.2"] = Answers(
    right=[
        """
def longest_gap(spans):
    gap, reached = None, float("inf")
    for start, end in sorted(spans):
        if start > reached and (gap is None or start - reached > gap[1] - gap[0]):
            gap = reached, start
        reached = end if reached == float("inf") else max(reached, end)
    return gap
""",
        """
import numpy as np


def longest_gap(spans):
    if not spans:
        return None
    starts, ends = np.array(sorted(spans)).T
    reached = np.maximum.accumulate(ends)
    gaps = starts[1:] - reached[:-1]
    if gaps.size == 0 or gaps.max() <= 0:
        return None
    k = gaps.argmax()
    return reached[k], starts[k + 1]
""",
        """
def longest_gap(spans):
    found = []
    for _, end in spans:
        later = [start for start, _ in spans if start > end]
        if later and not any(start <= end < stop for start, stop in spans):
            found.append([end, min(later)])
    return max(found, key=lambda gap: gap[1] - gap[0]) if found else None
""",
    ],
    wrong={
        """
def longest_gap(spans):
    pairs = [(a[1], b[0]) for a, b in zip(spans, spans[1:]) if b[0] > a[1]]
    return max(pairs, key=lambda gap: gap[1] - gap[0], default=None)
""": "sort the kernels",
        """
def longest_gap(spans):
    spans = sorted(spans)
    pairs = [(a[1], b[0]) for a, b in zip(spans, spans[1:]) if b[0] > a[1]]
    return max(pairs, key=lambda gap: gap[1] - gap[0], default=None)
""": "the first kernel runs until 10",
        """
def longest_gap(spans):
    gaps, reached = [], 0
    for start, end in sorted(spans):
        gaps.append((reached, start))
        reached = max(reached, end)
    return max(gaps, key=lambda gap: gap[1] - gap[0])
""": "there is no gap, expected None",
        """
def longest_gap(spans):
    gaps, reached = [], 0
    for start, end in sorted(spans):
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
""": "what comes before the first start does not count",
        """
def longest_gap(spans):
    reached = None
    for start, end in sorted(spans):
        if reached is not None and start > reached:
            return reached, start
        reached = end if reached is None else max(reached, end)
""": "you returned (1, 2), expected (3, 10): the gaps are",
        """
def longest_gap(spans):
    spans = sorted(spans)
    return max((b[0] - a[1] for a, b in zip(spans, spans[1:])), default=None)
""": "you returned 3, expected the pair (2, 5)",
        """
def longest_gap(spans):
    gap, reached = None, float("inf")
    for start, end in sorted(spans):
        if start > reached and (gap is None or start - reached > gap[0]):
            gap = reached, start
        reached = end if reached == float("inf") else max(reached, end)
    return gap
""": "their lengths decide",
        """
def longest_gap(spans):
    found = []
    for _, end in spans:
        later = [start for start, _ in spans if start > end]
        if later and not any(start < end < stop for start, stop in spans):
            found.append((end, min(later)))
    return max(found, key=lambda gap: gap[1] - gap[0], default=None)
""": "the second kernel runs until 2",
        """
def longest_gap(spans):
    gaps, reached = [], min(start for start, _ in spans)
    for start, end in sorted(spans):
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
""": "for no kernels, [] your function raised ValueError",
    },
)

NAME_FAULT = SOLUTION["09.3"]
ANSWERS["09.3"] = Answers(
    right=[
        """
def name_fault(step, busy, data, fetched):
    idle = step - busy
    if idle / step <= 0.1:
        return "busy"
    elif data / idle > 0.5:
        return "input-bound"
    elif fetched >= 2:
        return "sync-bound"
    else:
        return "launch-bound"
""",
        """
def name_fault(step, busy, data, fetched):
    rules = {
        "busy": 10 * busy >= 9 * step,
        "input-bound": 2 * data + busy > step,
        "sync-bound": fetched not in (0, 1),
        "launch-bound": True,
    }
    return next(name for name, holds in rules.items() if holds)
""",
    ],
    wrong={
        edit(
            NAME_FAULT, ("(step - busy)", "step")
        ): "2.5 of 4 ms of idle time, more than half",
        edit(
            NAME_FAULT, ("data >", "data >=")
        ): "8 of 16 ms of idle time, values fetched: 0; none of the three is enough",
        edit(NAME_FAULT, (">= 0.9", "> 0.9")): "the GPU worked 90% of the step",
        """
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if fetched > 1:
        return "sync-bound"
    return "input-bound" if data > (step - busy) / 2 else "launch-bound"
""": "which is asked before the fetches",
        """
def name_fault(step, busy, data, fetched):
    if data > (step - busy) / 2:
        return "input-bound"
    if busy >= 0.9 * step:
        return "busy"
    return "sync-bound" if fetched > 1 else "launch-bound"
""": "and that is asked first",
        edit(NAME_FAULT, ("> 1 else", "else")): "values fetched: 1; none of the three",
        edit(
            NAME_FAULT, ("0.9 * step", "0.9"), ("(step - busy) / 2", "0.5")
        ): "you said 'busy', expected 'launch-bound': the GPU worked 89% of the step",
        edit(
            NAME_FAULT, ("busy >= 0.9 * step", "round(100 * busy / step) >= 90")
        ): "the GPU worked 89.8% of the step",
        """
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > (step - busy) / 2:
        return "input bound"
    return "sync bound" if fetched > 1 else "launch bound"
""": "you returned 'launch bound', expected one of",
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
        """
def epoch(batches, weight):
    losses, hits = [], []
    for x, y in batches:
        scores = torch.einsum("ij,jk->ik", x / 64, weight)
        losses.append(-scores.log_softmax(1).gather(1, y[:, None])[:, 0])
        hits.append(scores.max(1).indices == y)
    both = torch.stack([torch.cat(losses), torch.cat(hits)]).mean(1).cpu()
    return [value.item() for value in both]
""",
    ],
    wrong={
        """
def epoch(batches, weight):
    losses, right, count = [], 0, 0
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        for k in range(len(y)):
            losses.append(torch.nn.functional.cross_entropy(scores[k], y[k]).item())
            right += (scores[k].argmax() == y[k]).item()
            count += 1
    return sum(losses) / count, right / count
""": "fetches (item, item, item, item …)",
        edit(
            EPOCH, ("x.float() @ weight / 64", "(x.double() / 64) @ weight.double()")
        ): "still computes in float64",
        edit(
            EPOCH,
            ("x.float() @ weight / 64", "(x.bfloat16() / 64) @ weight.bfloat16()"),
        ): "a product computes in 16 bits",
        edit(
            EPOCH,
            (
                "right = right + (scores.argmax(1) == y).sum()",
                "right += (scores.argmax(1) == y).sum().item()",
            ),
            ("loss, right = torch.stack([loss, right]).tolist()", "loss = loss.item()"),
        ): "3 fetches",
        edit(
            EPOCH,
            (
                "loss, right = torch.stack([loss, right]).tolist()",
                "loss, right = loss.item(), right.item()",
            ),
        ): "2 fetches (item, item)",
        edit(EPOCH, ("tolist", "numpy")): "NumPy cannot read a tensor on a GPU",
        edit(
            EPOCH,
            (
                "x.float() @ weight / 64",
                "x * torch.tensor([1 / 64] * x.shape[1]) @ weight",
            ),
        ): "still made for each batch",
        edit(
            EPOCH, ("weight / 64", "weight.div_(64)")
        ): "wrote into a batch or into weight",
        edit(EPOCH, ("len(y)", "1")): "not of batches",
        edit(
            EPOCH, ("loss, right = torch.stack([loss, right]).tolist()\n    ", "")
        ): "Python numbers are asked",
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
            (
                "for x, y in batches:",
                "for x, y in batches:\n        if len(y) < 16: continue",
            ),
        ): "all samples count",
        edit(
            EPOCH,
            (
                "return loss / count, right / count",
                "return right / count, loss / count",
            ),
        ): "the mean loss comes first",
        edit(
            EPOCH, ("right / count", "100 * right / count")
        ): "a share is asked, not percent",
        edit(EPOCH, (" / 64", "")): "x / 64 @ weight as scores",
        edit(
            EPOCH,
            (
                "for x, y in batches:",
                (
                    "for k, (x, y) in enumerate(batches):\n"
                    "        batches[k] = x.float(), y"
                ),
            ),
        ): "changed the list of batches",
        """
def epoch(batches, weight):
    totals, count = torch.zeros(2), 0
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        totals[0] += torch.nn.functional.cross_entropy(scores, y, reduction="sum")
        totals[1] += (scores.argmax(1) == y).sum()
        count += len(y)
    loss, right = totals.tolist()
    return loss / count, right / count
""": "right on the CPU, but for the same on a GPU your function raised RuntimeError",
        """
def epoch(batches, weight):
    losses, rights = [], []
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        for k in range(len(y)):
            losses.append(torch.nn.functional.cross_entropy(scores[k], y[k]))
            rights.append((scores[k].argmax() == y[k]).float())
    return tuple(
        torch.stack([torch.stack(losses).mean(), torch.stack(rights).mean()]).tolist()
    )
""": "operators: cross_entropy and argmax take a whole batch",
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
        edit(
            MFU, ("model(x).sum().backward()", "model(x)"), ("return", "return 3 *")
        ): "the input needs no gradient",
        edit(MFU, (" * 1e12", "")): "a TFLOP is",
        edit(MFU, ("1e12", "1e9")): "a TFLOP is 10¹² FLOP, not 10⁹, and",
        edit(MFU, ("return counter", "return 100 * counter")): "not percent",
        edit(MFU, ("seconds * ", "")): "divide by the seconds",
        edit(
            MFU, ("(seconds * peak * 1e12)", "seconds / peak * 1e12")
        ): "put the whole divisor in brackets",
        edit(MFU, ("return counter", "return 0.5 * counter")): "half as much",
        edit(MFU, ("return ", "return round("), ("1e12)", "1e12), 2)")): "do not round",
        edit(
            MFU, ("model(x).sum().backward()", "model(x)"), ("return", "return 2 *")
        ): "that is twice the forward pass",
        edit(
            MFU,
            (
                'with torch.device("meta"):\n        model',
                'torch.set_default_device("meta")\n    model',
            ),
        ): "the default device is still meta",
        edit(MFU, ("display=False", "")): "FlopCounterMode(display=False)",
        edit(
            MFU,
            ("make(), torch.empty(shape)", "None, torch.empty(shape)"),
            ("    with Flop", "    model = make().to('meta')\n    with Flop"),
        ): "build it on meta",
        edit(MFU, ("meta", "cpu")): "",
        """
def mfu_of(make, shape, seconds, peak):
    parameters = sum(p.numel() for p in make().parameters())
    return 6 * parameters * shape[0] * shape[1] / seconds / (peak * 1e12)
""": "a formula leaves something out",
    },
    equivalent={
        "model(x).sum().backward() → model(x).max().backward()": (
            "Any number made of the whole output will do: the products behind it"
            " are the same."
        ),
    },
)

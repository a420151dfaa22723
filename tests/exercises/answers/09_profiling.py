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
from torch.profiler import ProfilerAction, profile


def record(step, steps, first, count):
    def plan(number):
        if number == first - 1:
            return ProfilerAction.WARMUP
        if first <= number < first + count - 1:
            return ProfilerAction.RECORD
        if number == first + count - 1:
            return ProfilerAction.RECORD_AND_SAVE
        return ProfilerAction.NONE

    with profile(schedule=plan) as prof:
        for _ in range(steps):
            step()
            prof.step()
    return prof
""",
        """
from torch.profiler import profile


def record(step, steps, first, count):
    prof = profile()
    for number in range(steps):
        if number == first:
            prof.start()
        step()
        if number == first + count - 1:
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
        edit(RECORD, ("schedule=plan", "schedule=plan, acc_events=True")),
        edit(RECORD, ("wait=first - 1, warmup=1,", "wait=0, warmup=first,")),
    ],
    wrong={
        edit(RECORD, ("first - 1", "first")): "but not the right ones",
        edit(RECORD, (", repeat=1", "")): "repeat=1 ends that",
        edit(
            RECORD,
            (", repeat=1", ""),
            ("schedule=plan", "schedule=plan, acc_events=True"),
        ): "a later cycle are in it, too",
        edit(RECORD, ("            prof.step()\n", "")): "call prof.step() at the end",
        edit(
            RECORD,
            (
                "            step()\n            prof.step()",
                "            prof.step()\n            step()",
            ),
        ): "but not the right ones",
        edit(
            RECORD, ("return prof", "return prof.key_averages()")
        ): "the profiler is asked",
        edit(RECORD, ("    return prof\n", "")): "the profiler is asked",
        edit(RECORD, ("range(steps)", "range(first + count)")): "goes on to its end",
        edit(RECORD, ("active=count", "active=first + count")): "goes on for too long",
        """
from torch.profiler import profile


def record(step, steps, first, count):
    with profile() as prof:
        for _ in range(steps):
            step()
    return prof
""": "active says how many are kept",
    },
)

NAME_FAULT = SOLUTION["09.2"]
ANSWERS["09.2"] = Answers(
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
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, 4 * (m * k + k * n + m * n)
    arithmetic, memory = flop / rate, moved / bandwidth
    return (
        flop / moved,
        "arithmetic" if arithmetic > memory else "memory",
        max(arithmetic, memory),
    )
""": "for numbers of 4 bytes, and b = 2",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = m * k * n, b * (m * k + k * n + m * n)
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "that is two",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, m * k + k * n + m * n
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "FLOP per number",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n)
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "the result is written to memory",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    return flop / moved, "arithmetic", max(flop / rate, moved / bandwidth)
""": "the ridge is at 206",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    limit = "arithmetic" if flop / moved > rate / bandwidth else "memory"
    return flop / moved, limit, flop / rate + moved / bandwidth
""": "the two go on at the same time",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    limit = "arithmetic" if flop / moved > rate / bandwidth else "memory"
    return flop / moved, limit, max(flop / (rate * 1e12), moved / (bandwidth * 1e9))
""": "come in FLOP/s and bytes/s",
        """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    limit = "arithmetic" if flop / moved > rate / bandwidth else "memory"
    return flop / moved, limit, min(flop / rate, moved / bandwidth)
""": "that is the shorter of the two",
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

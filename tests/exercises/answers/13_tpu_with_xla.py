"""Answers to the exercises of lesson 13."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

SUM_ABOVE = SOLUTION["13.1"]
ANSWERS["13.1"] = Answers(
    right=[
        """
import torch


def sum_above(y):
    return torch.where(y > 1, y, 0).sum()
""",
        """
def sum_above(y):
    return y.masked_fill(y <= 1, 0).sum()
""",
        """
import torch


def sum_above(y):
    return torch.dot(y.flatten(), (y > 1).flatten().to(y.dtype))
""",
        """
import torch.nn.functional as F


def sum_above(y):
    return F.threshold(y, 1, 0).sum()
""",
        """
def sum_above(y):
    return (y.clamp(min=1) - 1).sum() + (y > 1).sum()
""",
    ],
    wrong={
        """
def sum_above(y):
    return y[y > 1].sum()
""": "a selection such as y[y > 1] cuts the graph",
        # runs a program on torch_xla 2.9.0 and on PyTorch's own lazy device
        """
def sum_above(y):
    kept = y.clone()
    kept[y <= 1] = 0
    return kept.sum()
""": "cuts the graph",
        """
import torch


def sum_above(y):
    return torch.masked_select(y, y > 1).sum()
""": "a selection such as y[y > 1] cuts the graph",
        """
import torch


def sum_above(y):
    total = torch.where(y > 1, y, 0).sum()
    return torch.tensor(total.item())
""": "item() or an `if` cuts the graph",
        """
import torch


def sum_above(y):
    if (y > 1).any():
        return torch.where(y > 1, y, 0).sum()
    return y.new_zeros(())
""": "cuts the graph",
        """
def sum_above(y):
    y = y.cpu()
    return y[y > 1].sum()
""": "cuts the graph",
        """
def sum_above(y):
    return y.clamp(min=1).sum()
""": "1.5 and 3 are above 1",
        edit(SUM_ABOVE, ("y > 1", "y >= 1")): "1 is not above 1",
        edit(SUM_ABOVE, (".sum()", "")): "without dimensions",
        edit(SUM_ABOVE, (".sum()", ".sum().item()")): "without dimensions",
        """
def sum_above(y):
    return (y > 1).sum()
""": "expected torch.float32",
    },
)

RUN_EPOCH = SOLUTION["13.2"]
ANSWERS["13.2"] = Answers(
    right=[
        """
def run_epoch(torch_xla, add_up, update, loader, every):
    device, losses = torch_xla.device(), []
    for number, (x, y) in enumerate(loader):
        losses.append(add_up(x.to(device), y.to(device)).detach())
        if (number + 1) % every == 0:
            update()
            torch_xla.sync(wait=True)
    return losses
""",
        """
def run_epoch(torch_xla, add_up, update, loader, every):
    device, losses = torch_xla.device(), []
    pairs = list(loader)
    for first in range(0, len(pairs), every):
        with torch_xla.step():
            for x, y in pairs[first : first + every]:
                losses.append(add_up(x.to(device), y.to(device)))
            update()
    return tuple(losses)
""",
        """
from itertools import islice


def run_epoch(torch_xla, add_up, update, loader, every):
    device = torch_xla.device()

    @torch_xla.compile(full_graph=True)
    def one_step(pairs):
        losses = [add_up(x.to(device), y.to(device)) for x, y in pairs]
        update()
        return losses

    found, waiting = [], iter(loader)
    while pairs := list(islice(waiting, every)):
        found.extend(one_step(pairs))
    return found
""",
    ],
    wrong={
        edit(
            RUN_EPOCH,
            ("device, losses = torch_xla.device(),", "losses ="),
            ("(device), y.to(device)", '("xla"), y.to("xla")'),
        ): "device() of the torch_xla that your function is given was never called",
        edit(
            RUN_EPOCH,
            ("device, losses = torch_xla.device(),", "losses ="),
            ("(device), y.to(device)", '("meta"), y.to("meta")'),
        ): "was never called",
        edit(
            RUN_EPOCH, ("            torch_xla.sync()", "        torch_xla.sync()")
        ): "a program held 'b'",
        edit(
            RUN_EPOCH, ("            torch_xla.sync()", "    torch_xla.sync()")
        ): "one program held 3 steps",
        edit(RUN_EPOCH, ("            torch_xla.sync()\n", "")): "none has run",
        edit(
            RUN_EPOCH,
            (
                "            update()\n            torch_xla.sync()",
                "            torch_xla.sync()\n            update()",
            ),
        ): "the last step is recorded, but has not run",
        edit(RUN_EPOCH, (", 1)", ")")): "in the order 'bubbubbub'",
        edit(RUN_EPOCH, ("x.to(device), y", "x, y")): "x was on cpu",
        edit(RUN_EPOCH, ("y.to(device)", "y")): "y was on cpu",
        edit(RUN_EPOCH, ("(device))", "(device)).item()")): "item()",
        edit(
            RUN_EPOCH,
            (
                "losses.append(add_up(x.to(device), y.to(device)))",
                "loss = add_up(x.to(device), y.to(device))",
            ),
            ("return losses", "return loss"),
            ("torch_xla.device(), []", "torch_xla.device(), None"),
        ): "expected a list of 6 losses",
    },
)

PROGRAMS_AND_COPIES = SOLUTION["13.3"]
ANSWERS["13.3"] = Answers(
    right=[
        """
def programs_and_copies(steps, every, place):
    programs = copies = 0
    for step in range(1, steps + 1):
        programs += 1
        if step % every == 0:
            copies += 1
            programs += place.startswith("before")
    return [programs, copies]
""",
        """
import numpy as np


def programs_and_copies(steps, every, place):
    reads = np.count_nonzero(np.arange(1, steps + 1) % every == 0)
    return np.int64(steps + (0 if "after" in place else reads)), reads
""",
        """
import numpy as np


def programs_and_copies(steps, every, place):
    reads = steps // every
    return np.array([steps, 0]) + reads * np.array([place.startswith("before"), 1])
""",
    ],
    wrong={
        """
def programs_and_copies(steps, every, place):
    reads = steps // every
    return steps + (reads if place == "before backward" else 0), reads
""": "before the sync the loss is only recorded, too",
        """
def programs_and_copies(steps, every, place):
    return steps + steps // every, steps // every
""": "reading it runs nothing",
        """
def programs_and_copies(steps, every, place):
    return steps, steps // every
""": "again as a part of the step",
        edit(
            PROGRAMS_AND_COPIES, ("steps // every", "-(-steps // every)")
        ): "is read 2 times",
        edit(
            PROGRAMS_AND_COPIES, ("steps // every", "round(steps / every)")
        ): "is read 2 times",
        """
def programs_and_copies(steps, every, place):
    reads = steps // every
    return (2 * steps if place != "after sync" else steps), reads
""": "the forward pass runs once for the number",
        edit(
            PROGRAMS_AND_COPIES, ("steps +", "reads, steps +"), (", reads", "")
        ): "the programs come first",
        """
def programs_and_copies(steps, every, place):
    reads = steps // every
    return (2 * reads if place != "after sync" else steps), reads
""": "of the step: 20 + 2 programs",
        """
def programs_and_copies(steps, every, place):
    return steps + (0 if place == "after sync" else steps // every), steps
""": "is read 2 times",
    },
)

ANSWERS["13.4"] = Answers(
    right=[
        r"""
import re


def state(torch_version, xla_version, runtime):
    if not xla_version:
        return "not installed"
    torch_release, xla_release = (
        re.match(r"\d+\.\d+", v)[0] for v in (torch_version, xla_version)
    )
    if torch_release != xla_release:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    first, second = (
        [int(n) for n in v.split("+")[0].split(".")]
        for v in (torch_version, xla_version)
    )
    if first[0] != second[0] or first[1] != second[1]:
        return "mismatch"
    if runtime is None:
        return "no runtime"
    if runtime == "TPU":
        return "TPU"
    return "no TPU"
""",
        """
from packaging.version import Version


def state(torch_version, xla_version, runtime):
    match (xla_version, runtime):
        case None, _:
            return "not installed"
        case v, _ if Version(v).release[:2] != Version(torch_version).release[:2]:
            return "mismatch"
        case _, None:
            return "no runtime"
        case _, "TPU":
            return "TPU"
    return "no TPU"
""",
    ],
    wrong={
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version != xla_version:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "how torch was built",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if not xla_version.startswith(torch_version[:3]):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "compare numbers",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split("+")[0] != xla_version:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "repair",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "the import would fail",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if not torch_version.startswith(".".join(xla_version.split(".")[:2])):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "2.10 is not 2.1:",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if float(torch_version[:4].rstrip(".")) != float(xla_version[:4].rstrip(".")):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "2.1 is not 2.10:",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return {"CPU": "no TPU", None: "no runtime"}.get(runtime, "TPU")
""": "no TPU is behind it",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if "".join(torch_version.split(".")[:2]) != "".join(xla_version.split(".")[:2]):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "compare number by number",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if runtime is None:
        return "no runtime"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return "TPU" if runtime == "TPU" else "no TPU"
""": "2.11 is not 2.9",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return runtime or "no runtime"
""": "you returned 'CPU', expected one of",
    },
)

COMPILATIONS = SOLUTION["13.5"]
ANSWERS["13.5"] = Answers(
    right=[
        """
def compilations(values):
    baked = {v for v in values if v in {-1, 0, 1}}
    return len(baked) + any(v not in baked for v in values)
""",
        """
def compilations(values):
    cache = []
    for v in values:
        program = float(v) if v == 0 or abs(v) == 1 else "x * input"
        if program not in cache:
            cache.append(program)
    return len(cache)
""",
    ],
    wrong={
        """
def compilations(values):
    return len(set(values))
""": "ordinary numbers are inputs",
        """
def compilations(values):
    return min(len(values), 1)
""": "1 is baked in",
        edit(COMPILATIONS, ("1, -", ""), ("None", '"input"')): "-1 is baked in",
        """
def compilations(values):
    return 1 + len({v for v in values if v in (0, 1, -1)})
""": "have a program each",
        edit(COMPILATIONS, ("v if", "abs(v) if")): "0, 1 and -1 have a program each",
        """
def compilations(values):
    return sum(v in (0, 1, -1) for v in values) + 1
""": "is kept for the second 1",
        edit(COMPILATIONS, ("None", "v > 0")): "ordinary numbers are inputs",
        edit(
            COMPILATIONS, ("v if v", "int(v) if int(v)")
        ): "ordinary numbers are inputs",
        """
def compilations(values):
    return len({round(v, 2) if round(v, 2) in (0, 1, -1) else None for v in values})
""": "not what is near them",
        edit(COMPILATIONS, ("None", "type(v)")): "an int and a float are inputs",
    },
)

BUCKETS = SOLUTION["13.6"]
ANSWERS["13.6"] = Answers(
    right=[
        """
def buckets(lengths, most):
    found = []
    while lengths:
        longest = max(lengths)
        found.insert(0, longest)
        lengths = [n for n in lengths if n * most < longest]
    return found
""",
        """
def buckets(lengths, most):
    found = []
    for n in sorted(lengths):
        if not found or n > found[-1]:
            found.append(int(n * most))  # the largest bucket that the shortest may have
    return found
""",
        """
from itertools import combinations


def buckets(lengths, most):
    sizes = sorted(set(lengths))
    for count in range(1, len(sizes) + 1):
        for chosen in combinations(sizes, count):
            if all(any(n <= size <= most * n for size in chosen) for n in sizes):
                return chosen
""",
    ],
    wrong={
        """
def buckets(lengths, most):
    return sorted(set(lengths))
""": "enough. Begin with the longest",
        """
def buckets(lengths, most):
    return [max(lengths)]
""": "grows to",
        edit(
            BUCKETS, ("lengths, reverse", "set(lengths), reverse"), ("[::-1]", "")
        ): "sort the buckets",
        """
def buckets(lengths, most):
    found = []
    for n in sorted(lengths):
        if not found or n > found[-1]:
            found.append(n * most)
    return found
""": "a whole number of rows",
        """
def buckets(lengths, most):
    chosen, size = [min(lengths)], min(lengths)
    while size < max(lengths):
        size = max(size + 1, int(size * most))
        chosen.append(size)
    return chosen
""": "enough. Begin with the longest",
        """
def buckets(lengths, most):
    return [min(lengths)]
""": "holds the length",
        edit(
            BUCKETS,
            ("lengths, reverse", "set(lengths), reverse"),
            ("most <", "most <="),
        ): "125 is 1.25 times 100, no more",
        """
def buckets(lengths, most):
    chosen, first = [], None
    for n in sorted(set(lengths)):
        if first is None or n > first * most:
            first = n
            chosen.append(n)
        chosen[-1] = n if len(chosen) == 1 else chosen[-1]
    return chosen
""": "holds the length",
        """
def buckets(lengths, most):
    chosen = []
    for n in sorted(set(lengths)):
        if not chosen or n > chosen[0] * most ** len(chosen):
            chosen.append(n)
    return chosen
""": "holds the length",
    },
)

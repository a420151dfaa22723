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
    total = torch.where(y > 1, y, 0).sum()
    return torch.tensor(total.item())
""": "item() or an `if` cuts the graph",
        edit(SUM_ABOVE, ("y > 1", "y >= 1")): "1 is not above 1",
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
            RUN_EPOCH, ("            torch_xla.sync()", "        torch_xla.sync()")
        ): "one sync() a step",
        edit(
            RUN_EPOCH,
            (
                "            update()\n            torch_xla.sync()",
                "            torch_xla.sync()\n            update()",
            ),
        ): "is recorded, but has not run",
        edit(RUN_EPOCH, ("y.to(device)", "y")): "y was [torch.int64, 'cpu'] in add_up",
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
    reads = steps // every
    return np.array([steps, 0]) + reads * np.array([place.startswith("before"), 1])
""",
    ],
    wrong={
        edit(
            PROGRAMS_AND_COPIES,
            ('0 if place == "after sync" else reads', "0"),
        ): "again as a part of the step",
        edit(
            PROGRAMS_AND_COPIES,
            (
                '0 if place == "after sync" else reads',
                'reads if place == "before backward" else 0',
            ),
        ): "before the sync the loss is only recorded, too",
        edit(
            PROGRAMS_AND_COPIES,
            ('(0 if place == "after sync" else reads)', "reads"),
        ): "reading it runs nothing",
        edit(
            PROGRAMS_AND_COPIES, ("steps // every", "round(steps / every)")
        ): "is read 2 times",
    },
)

VERDICT = SOLUTION["13.4"]
ANSWERS["13.4"] = Answers(
    right=[
        """
def verdict(compiled, run):
    found = "steady"
    for step in range(3, len(run)):
        if compiled[step] > compiled[step - 1]:
            return "compiles"
        if run[step] - run[step - 1] > 1:
            found = "cut"
    return found
""",
        """
import numpy as np


def verdict(compiled, run):
    new, launched = (np.diff(counter[2:]) for counter in (compiled, run))
    return "compiles" if new.any() else "cut" if launched.max() > 1 else "steady"
""",
    ],
    wrong={
        edit(VERDICT, ("compiled[2]", "compiled[0]")): "warm-up",
        """
def verdict(compiled, run):
    if compiled[-1] > 3:
        return "compiles"
    return "cut" if run[-1] > len(run) else "steady"
""": "began above 0",
        """
def verdict(compiled, run):
    if compiled[-1] > compiled[-2]:
        return "compiles"
    return "cut" if run[-1] - run[-2] > 1 else "steady"
""": "look at all steps",
        """
def verdict(compiled, run):
    if compiled[-1] > compiled[2]:
        return "compiles"
    return "cut" if run[-1] - run[2] > len(run) - 3 else "steady"
""": "some steps run none, some two",
    },
)

BUCKETS = SOLUTION["13.5"]
ANSWERS["13.5"] = Answers(
    right=[
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
""": "1 can do it. Begin with the longest",
        """
def buckets(lengths, most):
    return [max(lengths)]
""": "grows to",
        """
def buckets(lengths, most):
    found = []
    for n in sorted(lengths):
        if not found or n > found[-1]:
            found.append(n * most)
    return found
""": "a whole number of rows",
        edit(
            BUCKETS,
            ("lengths, reverse", "set(lengths), reverse"),
            ("most <", "most <="),
        ): "a length may grow by 1.25, no more",
    },
)

"""Answers to the exercises of lesson 14."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

CUT = SOLUTION["14.0"]
ANSWERS["14.0"] = Answers(
    right=[
        """
import numpy as np


def cut_columns(xs, x, n):
    mesh = xs.Mesh(np.arange(n), mesh_shape=(n // 2, 2), axis_names=("data", "model"))
    return xs.mark_sharding(x, mesh, partition_spec=(None, "data"))
""",
        """
import torch


def cut_columns(xs, x, n):
    sizes = {"data": n // 2, "model": 2}
    mesh = xs.Mesh(torch.arange(n).tolist(), list(sizes.values()), list(sizes))
    xs.mark_sharding(x, mesh, (None, 0))
""",
    ],
    wrong={
        edit(
            CUT, ('(None, "data")', '("data", None)')
        ): "the rows, and they stay whole",
        edit(CUT, ('(None, "data")', '(None, "model")')): "here along `data`",
        edit(CUT, ('(None, "data")', '("data",)')): "needs a spec of as many",
        edit(CUT, ("(n // 2, 2)", "(2, n // 2)")): "the mesh is",
    },
    equivalent={
        "moves x to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)

PAIR = SOLUTION["14.1"]
IMPORTS = "from torch.distributed.tensor import Replicate, Shard\n\n"
ANSWERS["14.1"] = Answers(
    right=[
        IMPORTS + "pair = (Shard(-1), Replicate()), (Shard(-2), Replicate())",
        IMPORTS
        + """
placements = {"a": [Shard(dim=1), Replicate()], "b": [Shard(dim=0), Replicate()]}
pair = list(placements.values())
""",
    ],
    wrong={
        edit(PAIR, ("Shard(1)", "Shard(0)")): "expected one all_reduce of 128 bytes",
        IMPORTS + "pair = [Shard(0), Replicate()], [Shard(1), Replicate()]": (
            "which rows of b does it need"
        ),
        IMPORTS + "pair = [Replicate(), Shard(1)], [Replicate(), Shard(0)]": (
            "is cut along data"
        ),
        'pair = (None, "model"), ("model", None)': "expected Shard(dimension)",
    },
)

MY_ROWS = SOLUTION["14.2"]
ANSWERS["14.2"] = Answers(
    right=[
        """
def my_rows(device, rows, n):
    part = -(-rows // n)
    held = range(rows)[device * part : (device + 1) * part]
    return held.start, held.stop
""",
        """
import torch


def my_rows(device, rows, n):
    parts = torch.arange(rows).chunk(n)
    mine = parts[device].tolist() if device < len(parts) else []
    return [mine[0], mine[-1] + 1] if mine else [0, 0]
""",
    ],
    wrong={
        edit(MY_ROWS, ("-(-rows // n)", "rows // n")): "rounded up",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return device * k, (device + 1) * k
""": "as long as any of the 10 are left",
        """
def my_rows(device, rows, n):
    q, r = divmod(rows, n)
    first = device * q + min(device, r)
    return first, first + q + (device < r)
""": "rounded up",
        edit(MY_ROWS, ("* part, rows)\n", "* part, rows) - 1\n")): "as in a slice",
    },
)

LOADER = SOLUTION["14.3"]
SHARE = """
import torch
from torch.utils.data import DataLoader, Sampler


class Share(Sampler):
    def __init__(self, samples, rank, world):
        self.samples, self.rank, self.world, self.epoch = samples, rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(
            self.samples, generator=torch.Generator().manual_seed(self.epoch)
        ).tolist()
        return iter(
            order[self.rank : self.samples // self.world * self.world : self.world]
        )


def my_loader(data, batch, rank, world):
    return DataLoader(
        data, batch // world, sampler=Share(len(data), rank, world), drop_last=True
    )
"""
ANSWERS["14.3"] = Answers(
    right=[
        edit(
            LOADER,
            (
                "world, rank, drop_last=True",
                "num_replicas=world, rank=rank, shuffle=True, seed=7, drop_last=True",
            ),
            ("sampler=sampler", "sampler=sampler, num_workers=1"),
        ),
        SHARE,
    ],
    wrong={
        """
from torch.utils.data import DataLoader

def my_loader(data, batch, rank, world):
    return DataLoader(data, batch_size=batch // world, shuffle=True, drop_last=True)
""": "no set_epoch",
        edit(
            LOADER,
            ("drop_last=True)\n    return", "drop_last=True, seed=rank)\n    return"),
        ): "do all use the same order",
        edit(LOADER, (" // world", "")): "counts all processes",
        edit(LOADER, ("rank, drop_last", "rank, shuffle")): "fills up",
    },
)

BREAK_EVEN = SOLUTION["14.4"]
ANSWERS["14.4"] = Answers(
    right=[
        """
def my_break_even(width, p):
    once = (p - 1) / p
    weights = 2 * (width * 4 * width + 4 * width * width)
    return 3 * once * weights / (2 * 2 * once * 2 * width)
""",
        """
from fractions import Fraction


def my_break_even(width, p):
    return Fraction(3 * 8 * width**2, 2 * 2 * width)
""",
    ],
    wrong={
        edit(BREAK_EVEN, ("6 *", "12 *")): "sends half of what an all-reduce does",
        edit(BREAK_EVEN, ("6 *", "4 *")): "The weights are gathered twice",
        edit(BREAK_EVEN, ("6 *", "3 *")): "two weights",
        edit(BREAK_EVEN, ("width\n", "width / p\n")): "p drops out",
    },
    equivalent={
        "reads a global p, that of the first call": (
            "The result does not depend on it."
        ),
    },
)

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
        edit(CUT, ('"data"))', '("data",)))')),
    ],
    wrong={
        edit(
            CUT, ('(None, "data")', '("data", None)')
        ): "the rows, and they stay whole",
        edit(
            CUT, ('(None, "data")', '(None, "model")')
        ): "expected rows 0:12 and columns 0:2: the second entry",
        edit(CUT, ("None", '"model"')): "the rows, and they stay whole",
        edit(CUT, ('(None, "data")', '(None, ("data", "model"))')): "here along `data`",
        edit(
            CUT, ('"data")', '"data"))\n    xs.mark_sharding(x, mesh, ("data", None)')
        ): "Existing annotation must be cleared first",
        edit(CUT, ('(None, "data")', '("data",)')): "needs a spec of as many",
        edit(
            CUT, ('(None, "data")', '(None, "columns")')
        ): "the mesh has no axis 'columns'",
        edit(CUT, ("(n // 2, 2)", "(4, 2)")): "must match mesh size",
        edit(CUT, ("(n // 2, 2)", "(2, n // 2)")): "the mesh is",
        edit(CUT, ("range(n)", "range(n)[::-1]")): "row by row",
        edit(
            CUT, ("    xs.mark_sharding", "    # xs.mark_sharding")
        ): "nothing was marked",
        edit(CUT, ("x, mesh", "x.clone(), mesh")): "x itself",
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
        """
from torch.distributed.tensor import Replicate, Shard

pair = (Shard(-1), Replicate()), (Shard(-2), Replicate())
""",
        """
from torch.distributed.tensor import Replicate, Shard

placements = {"a": [Shard(dim=1), Replicate()], "b": [Shard(dim=0), Replicate()]}
pair = list(placements.values())
""",
    ],
    wrong={
        edit(PAIR, ("Shard(1)", "Shard(0)")): "expected one all_reduce of 128 bytes",
        edit(PAIR, ("[Shard(0)", "[Shard(1)")): "expected one all_reduce of 128 bytes",
        IMPORTS + "pair = [Shard(0), Replicate()], [Shard(1), Replicate()]": (
            "which rows of b does it need"
        ),
        IMPORTS + "pair = [Replicate(), Shard(1)], [Replicate(), Shard(0)]": (
            "is cut along data"
        ),
        IMPORTS
        + "pair = [Shard(1), Shard(0)], [Shard(0), Replicate()]": "a is cut along data",
        IMPORTS + "pair = [Replicate(), Replicate()], [Replicate(), Replicate()]": (
            "a is not cut along model"
        ),
        edit(PAIR, (", [Shard(0), Replicate()]", "")): "expected a list of two",
        'pair = (None, "model"), ("model", None)': "expected Shard(dimension)",
        IMPORTS + "pair = [Shard(2), Replicate()], [Shard(0), Replicate()]": (
            "only the dimensions"
        ),
        IMPORTS + "pair = Shard(1), Shard(0)": "expected a list of two placements",
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
        """
import math


def my_rows(device, rows, n):
    first, end, step = slice(
        math.ceil(rows / n) * device, math.ceil(rows / n) * (device + 1)
    ).indices(rows)
    return first, end
""",
    ],
    wrong={
        """
def my_rows(device, rows, n):
    part = rows // n
    return device * part, (device + 1) * part
""": "rounded up",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return device * k, (device + 1) * k
""": "hold all 10",
        """
def my_rows(device, rows, n):
    q, r = divmod(rows, n)
    first = device * q + min(device, r)
    return first, first + q + (device < r)
""": "rounded up",
        """
def my_rows(device, rows, n):
    return rows // n
""": "expected a pair",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return min(device * k, rows), min((device + 1) * k, rows) - 1
""": "as in a slice",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return device * k, k
""": "not how many",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return (device - 1) * k, device * k
""": "devices and rows count from 0",
        edit(
            MY_ROWS, ("rows // n", "n // rows"), ("part", "k", 3)
        ): "each part has 3 rows",
        """
def my_rows(device, rows, n):
    k = -(-rows // n)
    return device * k, min((device + 1) * k, rows)
""": "you returned (12, 10), expected (10, 10)",
        """
def my_rows(device, rows, n):
    k = rows // n
    return device * k, rows if device == n - 1 else (device + 1) * k
""": "10 / 8 rounded up",
        """
def my_rows(device, rows, n):
    k = rows / n
    return device * k, (device + 1) * k
""": "two whole numbers",
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
OWN = """
from torch.utils.data import DataLoader, RandomSampler


class Share(RandomSampler):
    def set_epoch(self, epoch):
        pass


def my_loader(data, batch, rank, world):
    mine = torch.utils.data.Subset(data, range(rank, len(data) // world * world, world))
    return DataLoader(
        mine, batch_size=batch // world, sampler=Share(mine), drop_last=True
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
        OWN,
    ],
    wrong={
        """
from torch.utils.data import DataLoader

def my_loader(data, batch, rank, world):
    return DataLoader(data, batch_size=batch // world, shuffle=True, drop_last=True)
""": "no set_epoch",
        edit(
            OWN, ("Share(mine)", "None, shuffle=True")
        ): "a RandomSampler, has no set_epoch",
        edit(
            SHARE, (", generator=torch.Generator().manual_seed(self.epoch)", "")
        ): "Do all use the same order",
        edit(
            OWN, ("Share(mine)", "Share(mine, replacement=True)")
        ): "so others are left out",
        edit(
            SHARE, ("(self.epoch)", "(self.epoch * (self.rank + 1))")
        ): "epoch 1: 12 samples",
        edit(
            LOADER,
            ("drop_last=True)\n    return", "drop_last=True, seed=rank)\n    return"),
        ): "Do all use the same order",
        edit(LOADER, ("batch // world", "batch * world")): "counts all processes",
        edit(
            LOADER,
            (
                "sampler =",
                (
                    "data = torch.utils.data.Subset(data, range(len(data) //"
                    " (batch * world) * batch * world))\n"
                    "    sampler ="
                ),
            ),
        ): "expected 4 more: all whole batches",
        edit(LOADER, ("sampler, drop_last=True", "sampler")): "another compilation",
        edit(LOADER, (" // world", "")): "counts all processes",
        edit(LOADER, ("world, rank", "world, rank, shuffle=False")): "same order",
        edit(LOADER, ("rank, drop_last", "rank, shuffle")): "fills up",
        edit(LOADER, ("world, rank", "world, 0")): "came to two processes",
    },
)

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
        """
def my_break_even(width, p):
    return 12 * width
""": "sends half of what an all-reduce does",
        """
def my_break_even(width, p):
    return 4 * width
""": "The weights are gathered twice",
        """
def my_break_even(width, p):
    return 3 * width
""": "two weights",
        """
def my_break_even(width, p):
    return 6 * width / p
""": "p drops out",
        """
def my_break_even(width, p):
    return 12 * width * (p - 1) / p
""": "both sides",
        """
def my_break_even(width, p):
    return None
""": "expected a number of tokens",
    },
    equivalent={
        "reads a global p, that of the first call": (
            "The result does not depend on it."
        ),
    },
)

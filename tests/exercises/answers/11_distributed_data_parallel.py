"""Answers to the exercises of lesson 11."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

MEAN = SOLUTION["11.0"]
ANSWERS["11.0"] = Answers(
    right=[
        """
def mean_loss(dist, loss):
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return (total / dist.get_world_size()).item()
""",
        """
def mean_loss(dist, loss):
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss.item())
    return sum(losses) / len(losses)
""",
    ],
    wrong={
        """
def mean_loss(dist, loss):
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
""": "writes into the tensor",
        """
def mean_loss(dist, loss):
    total = loss.clone()
    dist.all_reduce(total)
    return total
""": "all_reduce leaves the sum",
        """
def mean_loss(dist, loss):
    return dist.all_reduce(loss.clone()) / dist.get_world_size()
""": "all_reduce itself returns nothing",
        edit(
            MEAN, ("    dist", "    if dist.get_rank() == 0:\n        dist")
        ): "waits in all_reduce, which rank 1 never calls: a hang",
    },
    equivalent={
        "moves loss to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)

LOAD = SOLUTION["11.1"]
ANSWERS["11.1"] = Answers(
    right=[
        """
def load_data(dist, local_rank, download, read):
    dist.barrier()
    if not local_rank:
        download()
    dist.barrier(async_op=True).wait()
    data = read()
    dist.barrier()
    return data
""",
        """
import torch

def load_data(dist, local_rank, download, read):
    if local_rank == 0:
        download()
    dist.all_reduce(torch.zeros(1))
    return read()
""",
    ],
    wrong={
        edit(LOAD, ("local_rank == 0", "dist.get_rank() == 0")): (
            "machine 1 was given the data by ranks []: one rank of each machine"
        ),
        edit(LOAD, ("local_rank == 0", "True")): "by ranks [0, 1]: one rank of each",
        edit(
            LOAD,
            ("    dist.barrier()\n", ""),
            ("    if", "    dist.barrier()\n    if"),
        ): "rank 1 read before the data were there",
        edit(
            LOAD, ("    dist.barrier", "        dist.barrier")
        ): "waits in barrier, which rank 1 never calls: a hang",
        edit(LOAD, ("return read()", "read()")): "rank 0 returned None",
    },
)

ANSWERS["11.2"] = Answers(
    right=[
        """
def loss_factor(rank, sizes):
    mean_size = sum(sizes) / len(sizes)
    return sizes[rank] / mean_size
""",
        """
import torch


def loss_factor(rank, sizes):
    sizes = torch.tensor(sizes, dtype=torch.float64)
    return (sizes / sizes.mean())[rank]
""",
    ],
    wrong={
        """
def loss_factor(rank, sizes):
    return sizes[rank] / sum(sizes)
""": "so multiply by it",
        """
def loss_factor(rank, sizes):
    return len(sizes) / sum(sizes)
""": "must weigh more",
        """
def loss_factor(rank, sizes):
    return sum(sizes) / (len(sizes) * sizes[rank])
""": "not less",
        """
def loss_factor(rank, sizes):
    return 2 * sizes[rank] / sum(sizes)
""": "expected",
    },
)

TRAIN = SOLUTION["11.3"]
ANSWERS["11.3"] = Answers(
    right=[
        """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch + 1)
        for index in sampler:
            step(index)
        right, total = (torch.tensor(float(n)) for n in count())
        works = [
            dist.all_reduce(n, op=dist.ReduceOp.SUM, async_op=True)
            for n in (right, total)
        ]
        for work in works:
            work.wait()
        if dist.get_rank() == 0:
            save((right / total).item())
        dist.barrier()
""",
        """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    rank, world = dist.get_rank(), dist.get_world_size()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        mine = torch.tensor(count())
        if rank > 0:
            dist.gather(mine)
        else:
            parts = [torch.empty_like(mine) for _ in range(world)]
            dist.gather(mine, parts, dst=0)
            right, total = torch.stack(parts).sum(0)
            save(right / total)
""",
    ],
    wrong={
        edit(
            TRAIN, ("        sampler.set_epoch(epoch)\n", "")
        ): "the sampler must be told the epoch",
        edit(
            TRAIN, ("set_epoch(epoch)", "set_epoch(epochs * dist.get_rank() + epoch)")
        ): "each other's samples",
        edit(TRAIN, ("(counts)", "(counts, async_op=True)")): "never called wait()",
        """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        right, total = count()
        accuracy = torch.tensor(right / total)
        dist.all_reduce(accuracy)
        if dist.get_rank() == 0:
            save(accuracy.item() / dist.get_world_size())
""": "then divide",
    },
    equivalent={
        "right, total = counts.tolist() → right, total = counts": (
            "A tensor with one number is a number, too."
        ),
        "right, total = counts.tolist() → right, total = counts.cpu()": (
            "A tensor with one number is a number, too."
        ),
    },
)

LIMIT = SOLUTION["11.4"]
ANSWERS["11.4"] = Answers(
    right=[
        """
import math


def one_against_several(one, several, processes):
    if several >= one * processes:
        return several / one, several / (one * processes), math.inf
    return (
        several / one,
        several / (one * processes),
        1 / (one / several - 1 / processes),
    )
""",
        """
import numpy as np


def one_against_several(one, several, processes):
    speedup = np.float64(several) / one
    with np.errstate(divide="ignore"):
        rest = max(np.float64(0), 1 / speedup - 1 / processes)
        return np.array([speedup, speedup / processes, 1 / rest])
""",
    ],
    wrong={
        edit(LIMIT, ("several / one\n", "one / several\n")): "the other way round",
        edit(LIMIT, ("rest > 0", "rest")): "no rest that would not shrink",
        edit(LIMIT, ("1 / one / rest", "max(1, 1 / one / rest)")): "it may be below 1",
        """
def one_against_several(one, several, processes):
    speedup = several / one
    serial = (processes / speedup - 1) / (processes - 1) if processes > 1 else 1
    return speedup, speedup / processes, 1 / serial if serial > 1e-12 else float("inf")
""": "one process has no such rest",
    },
)

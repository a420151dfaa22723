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
import torch


def mean_loss(dist, loss):
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss)
    return torch.stack(losses).mean()
""",
        """
import torch


def mean_loss(dist, loss):
    mean = torch.tensor([loss.item()])
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=True).wait()
    return mean
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
    return dist.all_reduce(loss / dist.get_world_size())
""": "all_reduce itself returns nothing",
        """
def mean_loss(dist, loss):
    total = loss.clone()
    dist.all_reduce(total)
    return total / 2
""": "expected",
        edit(
            MEAN, ("    dist", "    if dist.get_rank() == 0:\n        dist")
        ): "waits in all_reduce, which rank 1 never calls: a hang",
        edit(MEAN, ("all_reduce(mean)", "reduce(mean, dst=0)")): "rank 1 returned",
        edit(MEAN, ("(mean)", "(mean, async_op=True)")): "never called wait()",
        """
def mean_loss(dist, loss):
    return loss
""": "its own loss only",
        """
def mean_loss(dist, loss):
    losses = [None] * dist.get_world_size()
    dist.all_gather(losses, loss)
    return sum(losses) / len(losses)
""": "Expected parameter `tensor_list` of type List[torch.Tensor]",
    },
    equivalent={
        "moves loss to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)

SHARE = SOLUTION["11.1"]
ANSWERS["11.1"] = Answers(
    right=[
        edit(
            SHARE, ("seed + epoch", "1000 * seed + epoch"), ("[rank", ".tolist()[rank")
        ),
        """
import random


def share(n, rank, world, seed, epoch):
    indices = list(range(n))
    random.Random(f"{seed}, {epoch}").shuffle(indices)
    return indices[rank * n // world : (rank + 1) * n // world]
""",
        """
import numpy as np


def share(n, rank, world, seed, epoch):
    return np.array_split(np.random.default_rng([seed, epoch]).permutation(n), world)[
        rank
    ]
""",
        """
import torch


def share(n, rank, world, seed, epoch):
    torch.manual_seed(hash((seed, epoch)))
    order = torch.randperm(n).tolist()
    return [order[i] for i in range(n) if i % world == rank]
""",
    ],
    wrong={
        edit(SHARE, ("seed + epoch", "seed + epoch + 7919 * rank")): "shuffle alike",
        edit(SHARE, ("seed + epoch", "seed")): "epochs 0 and 1 have the same order",
        edit(SHARE, ("seed + epoch", "epoch")): "seeds 0 and 1 give the same order",
        edit(SHARE, ("seed + epoch", "max(seed, epoch)")): "the same order",
        edit(SHARE, (", generator=generator", "")): "shuffle alike",
        """
def share(n, rank, world, seed, epoch):
    return list(range(rank, n, world))
""": "not shuffled",
        """
import torch


def share(n, rank, world, seed, epoch):
    mine = torch.arange(n)[rank::world]
    order = torch.randperm(
        len(mine), generator=torch.Generator().manual_seed(1000 * seed + epoch)
    )
    return mine[order].tolist()
""": "the same samples in epochs 0 and 1",
        """
from torch.utils.data import DistributedSampler


def share(n, rank, world, seed, epoch):
    sampler = DistributedSampler(range(n), world, rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)
""": "without padding",
        """
from torch.utils.data import DistributedSampler


def share(n, rank, world, seed, epoch):
    sampler = DistributedSampler(range(n), world, rank, seed=seed, drop_last=True)
    sampler.set_epoch(epoch)
    return list(sampler)
""": "what does not divide must be dealt out",
        """
import torch


def share(n, rank, world, seed, epoch):
    order = torch.randperm(
        n, generator=torch.Generator().manual_seed(1000 * seed + epoch)
    ).tolist()
    size = n // world
    return order[rank * size : (rank + 1) * size if rank < world - 1 else n]
""": "no rank may have two more",
    },
    equivalent={
        (
            "generator.manual_seed(seed + epoch) → generator.manual_seed(seed - epoch)"
        ): "Another seed in each epoch, and for each seed.",
    },
)

LOSS_FACTOR = SOLUTION["11.2"]
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
        """
from fractions import Fraction


def loss_factor(rank, sizes):
    return len(sizes) * Fraction(sizes[rank], sum(sizes))
""",
    ],
    wrong={
        """
def loss_factor(rank, sizes):
    return sizes[rank] / sum(sizes)
""": "so multiply by it",
        """
def loss_factor(rank, sizes):
    return 1
""": "must weigh more",
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
        edit(LOSS_FACTOR, ("/ sum", "// sum")): "you returned 1, expected 1.5",
    },
)

RING = SOLUTION["11.3"]
ANSWERS["11.3"] = Answers(
    right=[
        """
def ring_all_gather(rank, world, value, send, receive):
    values = [None] * world
    values[rank] = value
    for step in range(world - 1):
        send(values[(rank - step) % world])
        values[(rank - step - 1) % world] = receive()
    return values
""",
        """
def ring_all_gather(rank, world, value, send, receive):
    found = {rank: value}
    message = rank, value
    while len(found) < world:
        send(message)
        message = receive()
        found[message[0]] = message[1]
    return [found[r] for r in range(world)]
""",
        """
from collections import deque


def ring_all_gather(rank, world, value, send, receive):
    values = deque([value])
    for _ in range(world - 1):
        send(values[0])
        values.appendleft(receive())
    values.rotate(rank + 1)
    return tuple(values)
""",
    ],
    wrong={
        edit(
            RING,
            (
                "value = receive()\n        values[rank - step] = value",
                "values[rank - step] = receive()",
            ),
        ): "expected",
        edit(
            RING,
            (
                "send(value)\n        value = receive()",
                "value = receive()\n        send(value)",
            ),
        ): "a deadlock",
        edit(
            RING, ("    return", "    send(value)\n    return")
        ): "too many values: 2 instead of 1",
        edit(
            RING, ("value =", "left ="), (" value\n", " left\n")
        ): "your own value again",
        """
found = {}

def ring_all_gather(rank, world, value, send, receive):
    found[world, rank] = value
    while any((world, r) not in found for r in range(world)):
        pass
    return [found[world, r] for r in range(world)]
""": "ranks do not share variables",
        edit(RING, ("rank - step", "(rank + step) % world")): "in the order of ranks",
        edit(RING, ("return values", "return sorted(values)")): "in the order of ranks",
        edit(
            RING,
            (
                "    for",
                "    if rank == 1:\n        raise ValueError('broken')\n    for",
            ),
        ): "for rank 1 of 2 your function raised ValueError: broken",
        edit(
            RING, ("    for", "    if rank == 1:\n        return values\n    for")
        ): "waits for one more value, which rank 1 never sends",
        """
def ring_all_gather(rank, world, value, send, receive):
    values = {rank: value}
    for _ in range(world - 1):
        send(values)
        values = values | receive()
    return [values[r] for r in range(world)]
""": "one value in each message",
        """
def ring_all_gather(rank, world, value, send, receive):
    values = []
    while len(values) < world:
        values += values
    return values
""": "had not ended",
    },
)

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
        return np.array(
            [
                speedup,
                speedup / processes,
                1 / max(np.float64(0), 1 / speedup - 1 / processes),
            ]
        )
""",
    ],
    wrong={
        """
def one_against_several(one, several, processes):
    return one / several, one / several / processes, 1.0
""": "the other way round",
        """
def one_against_several(one, several, processes):
    return several / one, several / one, 1.0
""": "the efficiency is",
        """
def one_against_several(one, several, processes):
    return several / one, several / one / processes, float(processes)
""": "only the rest remains",
        """
def one_against_several(one, several, processes):
    speedup = several / one
    serial = (processes / speedup - 1) / (processes - 1) if processes > 1 else 1
    return speedup, speedup / processes, 1 / serial if serial > 1e-12 else float("inf")
""": "one process has no such rest",
        """
def one_against_several(one, several, processes):
    speedup = several / one
    rest = 1 / several - 1 / (one * processes)
    return (
        speedup,
        speedup / processes,
        max(1, 1 / one / rest) if rest > 0 else float("inf"),
    )
""": "may be slower than one process",
        """
def one_against_several(one, several, processes):
    speedup = several / one
    rest = 1 / several - 1 / (one * processes)
    return speedup, speedup / processes, 1 / one / rest if rest else float("inf")
""": "no rest that would not shrink",
    },
)

TRAIN = SOLUTION["11.5"]
ANSWERS["11.5"] = Answers(
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
        edit(
            TRAIN,
            (
                (
                    "        counts = torch.tensor(count())\n"
                    "        dist.all_reduce(counts)\n"
                ),
                (
                    "        mine = torch.tensor(count())\n"
                    "        parts = [torch.zeros_like(mine) for _ in"
                    " range(dist.get_world_size())]\n"
                    "        dist.all_gather(parts, mine)\n"
                    "        counts = sum(parts)\n"
                ),
            ),
        ),
        edit(
            TRAIN,
            (
                (
                    "        counts = torch.tensor(count())\n"
                    "        dist.all_reduce(counts)\n"
                ),
                (
                    "        parts = [None] * dist.get_world_size()\n"
                    "        dist.all_gather_object(parts, count())\n"
                    "        counts = torch.tensor(parts).sum(0)\n"
                ),
            ),
        ),
        edit(TRAIN, ("dist.all_reduce(counts)", "dist.reduce(counts, dst=0)")),
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
            TRAIN,
            ("        sampler.set_epoch(epoch)\n", ""),
            ("counts =", "sampler.set_epoch(epoch)\n        counts ="),
        ): "epochs 0 and 1 train in the same order",
        edit(
            TRAIN, ("set_epoch(epoch)", "set_epoch(epochs * dist.get_rank() + epoch)")
        ): "each other's samples",
        """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        counts = torch.tensor(count())
        if dist.get_rank() == 0:
            dist.all_reduce(counts)
            save(counts[0].item() / counts[1].item())
""": "waits in all_reduce, which rank 1 never calls: a hang",
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
        edit(
            TRAIN, ("        dist.all_reduce(counts)\n", "")
        ): "the accuracy of rank 0 alone",
        edit(TRAIN, ("(counts)", "(counts, async_op=True)")): "never called wait()",
        edit(TRAIN, ("all_reduce", "scatter")): "has no scatter; it has",
        edit(
            TRAIN,
            (
                "dist.all_reduce(counts)",
                "(dist.all_reduce, dist.reduce)[dist.get_rank()](counts)",
            ),
        ): "all ranks must call the same ones",
        edit(
            TRAIN,
            (
                (
                    "        counts = torch.tensor(count())\n"
                    "        dist.all_reduce(counts)\n"
                ),
                "",
            ),
            (
                "        sampler",
                (
                    "        counts = torch.tensor(count())\n"
                    "        dist.all_reduce(counts)\n"
                    "        sampler"
                ),
            ),
        ): "count after each epoch",
        edit(TRAIN, ("if dist.get_rank() == 0", "if True")): "only rank 0 writes",
        edit(
            TRAIN,
            (
                "            step(index)\n",
                "            step(index)\n            save(0.5)\n",
            ),
        ): "only rank 0 writes",
        edit(TRAIN, ("save(", "save(epoch, ")): "save() takes 1 positional argument",
        edit(TRAIN, ("in sampler:", "in enumerate(sampler):")): "from number 0 on",
        edit(
            TRAIN,
            (
                "step(index)",
                "step(index)\n        if dist.get_rank() == 1:\n            1 / 0",
            ),
        ): "for rank 1 of 2 your function raised ZeroDivisionError",
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

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

FINISH = SOLUTION["11.1"]
ANSWERS["11.1"] = Answers(
    right=[
        """
def finish(dist, ddp, save):
    if dist.get_rank() > 0:
        dist.barrier()
        return
    save(ddp.module.state_dict())
    dist.barrier()
""",
        """
import torch


def finish(dist, ddp, save):
    if dist.get_rank() == 0:
        save({name: x.cpu().clone() for name, x in ddp.module.state_dict().items()})
    dist.all_reduce(torch.zeros(1))
""",
        """
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present


def finish(dist, ddp, save):
    state = ddp.state_dict()
    consume_prefix_in_state_dict_if_present(state, "module.")
    dist.barrier()
    if not dist.get_rank():
        save(state=state)
    dist.barrier(async_op=True).wait()
""",
        """
def finish(dist, ddp, save):
    model = getattr(ddp, "module", ddp)
    state = model.state_dict()
    if dist.get_rank() == 0:
        save(state)
    done = [None] * dist.get_world_size()
    dist.all_gather_object(done, True)
    return state
""",
        """
import torch


def finish(dist, ddp, save):
    flag = torch.zeros(1)
    if dist.get_rank() == 0:
        save(ddp.module.state_dict())
        for rank in range(1, dist.get_world_size()):
            dist.send(flag, rank)
    else:
        dist.recv(flag, 0)
""",
        """
def finish(dist, ddp, save):
    try:
        if dist.get_rank() == 0:
            names = ddp.state_dict()
            save({name.removeprefix("module."): names[name] for name in names})
    finally:
        dist.barrier()
""",
    ],
    wrong={
        edit(FINISH, ("ddp.module.state", "ddp.state")): "begin with 'module.'",
        edit(FINISH, (".state_dict()", "")): "saved a Sequential, expected a state",
        edit(FINISH, (".module.state_dict()", "")): "saved a _Wrapped, expected",
        edit(FINISH, ("    dist.barrier()\n", "")): "had left before the file",
        edit(
            FINISH,
            ("    dist.barrier()\n", ""),
            ("    if", "    dist.barrier()\n    if"),
        ): "had left before the file was there: all wait for rank 0, until it *has*",
        edit(
            FINISH, ("    dist.barrier", "        dist.barrier")
        ): "waits in barrier, which rank 1 never calls: a hang",
        edit(FINISH, ("== 0", ">= 0")): "by ranks [0, 1] of 2: only rank 0 does",
        edit(FINISH, ("== 0", "== 1")): "by ranks [1] of 2: only rank 0 does",
        edit(FINISH, ("== 0", "== 5")): "nobody called save",
        edit(
            FINISH, ("    dist", "    save(ddp.module.state_dict())\n    dist")
        ): "by ranks [0, 0, 1] of 2",
        edit(
            FINISH,
            ("        save", "        save(ddp.module.state_dict())\n        save"),
        ): "called save 2 times",
        edit(FINISH, ("barrier()", "barrier(async_op=True)")): "never called wait()",
        edit(
            FINISH, ("ddp.module.state_dict()", "dict(ddp.module.named_parameters())")
        ): "expected ['0.weight', '0.bias', '1.weight', '1.bias', '1.running_mean'",
        edit(
            FINISH,
            (
                "ddp.module.state_dict()",
                "{name: 0 * x for name, x in ddp.module.state_dict().items()}",
            ),
        ): "as in the model",
        """
def finish(dist, ddp, save):
    if dist.get_rank() == 0:
        dist.barrier()
        save(ddp.module.state_dict())
    else:
        dist.barrier()
""": "had left before the file",
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

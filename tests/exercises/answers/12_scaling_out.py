"""Answers to the exercises of lesson 12."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

RESUME = SOLUTION["12.0"]
ANSWERS["12.0"] = Answers(
    right=[
        """
import os

def resume(path, model, optimizer):
    done = 0
    if os.path.exists(path):
        device = next(model.parameters()).device
        run = torch.load(path, map_location=device, weights_only=True)
        optimizer.load_state_dict(run["optimizer"])
        model.load_state_dict(run["model"])
        done = run["done"]
    return done
""",
        """
def resume(path, model, optimizer):
    try:
        with path.open("rb") as file:
            run = torch.load(file, lambda storage, location: storage)
    except FileNotFoundError:
        return 0
    model.load_state_dict(run.pop("model"))
    optimizer.load_state_dict(run.pop("optimizer"))
    (done,) = run.values()
    return done
""",
    ],
    wrong={
        edit(RESUME, (', map_location="cpu"', "")): "pass map_location",
        edit(
            RESUME, ('    optimizer.load_state_dict(run["optimizer"])\n', "")
        ): "state was not loaded",
        edit(
            RESUME, ('run["model"])', 'run["model"], assign=True)')
        ): "other parameters than the model",
        edit(RESUME, ("return 0", "return")): "you returned None, expected 0",
    },
)

SAVE = SOLUTION["12.1"]
ANSWERS["12.1"] = Answers(
    right=[
        """
import io
from os import fsync

def save(write, path):
    buffer = io.BytesIO()
    write(buffer)
    temporary = path.with_suffix(".new")
    with temporary.open("wb", buffering=0) as file:
        file.write(buffer.getvalue())
        fsync(file)
    temporary.replace(path)
""",
        """
import os, tempfile

def save(write, path):
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
""",
    ],
    wrong={
        """
def save(write, path):
    with open(path, "wb") as file:
        write(file)
""": "written directly",
        edit(
            SAVE, ("        file.flush()\n        os.fsync(file.fileno())\n", "")
        ): "os.fsync was not called",
        edit(
            SAVE, ("    os.replace(", "    path.unlink()\n    os.rename(")
        ): "no checkpoint at all",
        edit(SAVE, ("        file.flush()\n", "")): "write, file.flush(), os.fsync",
    },
    equivalent={
        (
            "temporary = path.with_name(path.name + '.tmp') → temporary ="
            " path.with_name('.tmp')"
        ): "Any other name in the folder will do.",
        (
            "temporary = path.with_name(path.name + '.tmp') → temporary ="
            " path.with_name(path.name + '.tmpx')"
        ): "Any other name in the folder will do.",
        "os.fsync(file.fileno()) → os.fsync(file)": (
            "os.fsync takes a file as well as its number."
        ),
    },
)

SHARD_BLOCKS = SOLUTION["12.2"]
ANSWERS["12.2"] = Answers(
    right=[
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in [*model, model]:
        fully_shard(part, mesh=mesh)
    return model
""",
        """
import torch.distributed.fsdp

def shard_blocks(model, mesh):
    def shard(module):
        return torch.distributed.fsdp.fully_shard(
            module, mesh=mesh, reshard_after_forward=True
        )

    list(map(shard, reversed(list(model.children()))))
    return shard(model)
""",
    ],
    wrong={
        edit(
            SHARD_BLOCKS,
            ("    for block in model:\n        fully_shard(block, mesh=mesh)\n", ""),
        ): "block 0 is no group of its own",
        edit(
            SHARD_BLOCKS, ("    fully_shard(model, mesh=mesh)\n", "")
        ): "in no block is still whole",
        edit(SHARD_BLOCKS, (", mesh=mesh", "", 2)): "over 2 × 4 processes: pass mesh",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in [model, *model]:
        fully_shard(part, mesh=mesh)
""": "blocks first",
    },
)

BEST_INTERVAL = SOLUTION["12.3"]
ANSWERS["12.3"] = Answers(
    right=[
        """
import math

def best_interval(cost, host_mtbf, hosts):
    interval = math.sqrt(2 * cost * host_mtbf / hosts)
    return [interval, 2 * cost / interval]
""",
        """
import numpy as np

def best_interval(cost, host_mtbf, hosts):
    share = np.sqrt(2 * cost * hosts / host_mtbf)
    return np.array([2 * cost / share, share])
""",
    ],
    wrong={
        edit(BEST_INTERVAL, (" / hosts", "")): "of one host",
        edit(BEST_INTERVAL, (" + interval / (2 * mtbf)", "")): "work that is repeated",
        edit(BEST_INTERVAL, ("2 * cost", "cost")): "the root is of twice the product",
        edit(
            BEST_INTERVAL, ("cost / interval +", "1 - cost / interval -")
        ): "not what remains",
    },
)

REST_OF_EPOCH = SOLUTION["12.4"]
ANSWERS["12.4"] = Answers(
    right=[
        """
import math

def rest_of_epoch(steps, order, batch, rank, size):
    per_epoch = math.ceil(len(order(0)) / batch)
    samples = order(steps // per_epoch)[steps % per_epoch * batch :]
    parts = []
    while samples:
        parts.append(samples[:batch][rank::size])
        samples = samples[batch:]
    return parts
""",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch = 0
    while steps * batch >= len(order(epoch)):
        steps -= (len(order(epoch)) + batch - 1) // batch
        epoch += 1
    parts = torch.tensor(order(epoch)).split(batch)[steps:]
    return tuple(part[rank::size] for part in parts)
""",
    ],
    wrong={
        edit(
            REST_OF_EPOCH,
            ("    per_epoch = -(-len(order(0)) // batch)  # rounded up\n", ""),
            ("per_epoch)", "len(order(0)) // batch)"),
        ): "steps remain",
        edit(REST_OF_EPOCH, ("order(epoch)", "order(0)")): "the order of epoch 0",
        edit(
            REST_OF_EPOCH,
            ("samples[first : first + batch][rank::size]", "part"),
            ("    return [", "    parts = ["),
            ("part\n", "samples[first : first + batch]\n"),
            (
                "batch)\n    ]\n",
                "batch)\n    ]\n    return [\n        part[rank * len(part) // size :"
                " (rank + 1) * len(part) // size]\n        for part in parts\n    ]\n",
            ),
        ): "not a part in one piece",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    rest = order(epoch)[done * batch + rank :: size]
    per_rank = -(-batch // size)
    return [rest[first : first + per_rank] for first in range(0, len(rest), per_rank)]
""": "divided within each step",
    },
    equivalent={
        (
            "per_epoch = -(-len(order(0)) // batch) → per_epoch ="
            " -(-len(order(1)) // batch)"
        ): "All epochs have the same number of samples.",
    },
)

"""Answers to the exercises of lesson 12."""

import torch

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

SNAPSHOT = SOLUTION["12.0"]
ANSWERS["12.0"] = Answers(
    right=[
        """
from copy import deepcopy

def snapshot(model, optimizer, schedule, done):
    return {
        "model": {name: x.clone() for name, x in model.state_dict().items()},
        "optimizer": deepcopy(optimizer.state_dict()),
        "schedule": schedule.state_dict(),
        "rng": torch.random.get_rng_state(),
        "done": done,
    }
""",
        """
import io

def snapshot(model, optimizer, schedule, done):
    file = io.BytesIO()
    parts = dict(model=model, optimizer=optimizer, schedule=schedule)
    run = {name: part.state_dict() for name, part in parts.items()}
    torch.save(run | {"rng": torch.get_rng_state(), "done": done}, file)
    file.seek(0)
    return torch.load(file)
""",
    ],
    wrong={
        edit(SNAPSHOT, ("copy.deepcopy(run)", "run")): "so copy them",
        edit(SNAPSHOT, ("copy.deepcopy(run)", "dict(run)")): "so copy them",
        edit(
            SNAPSHOT, ('    run["rng"] = torch.get_rng_state()\n', "")
        ): "has no 'rng'",
        edit(SNAPSHOT, ("torch.get_rng_state()", "torch.initial_seed()")): (
            "set_rng_state does not take"
        ),
        edit(SNAPSHOT, ("schedule.state_dict()", "schedule.get_last_lr()")): (
            "load_state_dict does not take what stands under 'schedule'"
        ),
    },
)

SHARD_BLOCKS = SOLUTION["12.1"]
NO_REDUCE_DTYPE = edit(SHARD_BLOCKS, (", torch.float32", ""))
ANSWERS["12.1"] = Answers(
    right=[
        """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

def shard_blocks(model, mesh):
    how = dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in [*model.layers, model]:
        fully_shard(part, mesh=mesh, mp_policy=MixedPrecisionPolicy(**how))
    return model
""",
        """
import torch.distributed.fsdp as fsdp

def shard_blocks(model, mesh):
    policy = fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)

    def shard(module):
        return fsdp.fully_shard(
            module, mesh=mesh, reshard_after_forward=True, mp_policy=policy
        )

    list(map(shard, reversed(list(model.layers.children()))))
    return shard(model)
""",
    ],
    wrong={
        edit(SHARD_BLOCKS, ("float32", "bfloat16")): "that is reduce_dtype",
        edit(SHARD_BLOCKS, (", mp_policy=policy", "", 2)): "that is param_dtype",
        edit(
            SHARD_BLOCKS, ("(model, mesh=mesh, mp_policy=policy)", "(model, mesh=mesh)")
        ): "the same policy in each call",
        edit(
            SHARD_BLOCKS,
            ("    for block in model.layers:\n", ""),
            ("        fully_shard(block", "    fully_shard(model.layers"),
        ): "shard its blocks, one by one",
        edit(
            SHARD_BLOCKS,
            ("    fully_shard(model, mesh=mesh, mp_policy=policy)\n", ""),
        ): "in no block is still whole",
        edit(SHARD_BLOCKS, ("mesh=mesh, ", "", 2)): "over 2 × 4 processes: pass mesh",
        edit(
            SHARD_BLOCKS,
            ("    for block", "    model.to(torch.bfloat16)\n    for block"),
        ): "the shards stay in float32",
        """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

def shard_blocks(model, mesh):
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for part in [model, *model.layers]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
""": "blocks first",
    },
)
# since 2.15 it is float32 without, as the shards (MixedPrecisionPolicy's docstring)
if torch.__version__ >= (2, 15):
    ANSWERS["12.1"].right.append(NO_REDUCE_DTYPE)
else:
    ANSWERS["12.1"].wrong[NO_REDUCE_DTYPE] = "that is reduce_dtype"

SAVE = SOLUTION["12.2"]
ANSWERS["12.2"] = Answers(
    right=[
        """
import shutil
from os import fsync

def save(write, home, step):
    place = home / f"step-{step}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    write(place)
    temporary = home / ".new"
    with temporary.open("wb", buffering=0) as file:
        file.write(place.name.encode())
        fsync(file)
    temporary.replace(home / "latest")
""",
        """
import os, tempfile

def save(write, home, step):
    place = home / f"step-{step}"
    os.makedirs(place, exist_ok=True)
    write(place)
    descriptor, name = tempfile.mkstemp(dir=home)
    with os.fdopen(descriptor, "w") as file:
        print(place.name, file=file, flush=True)
        os.fsync(descriptor)
    os.replace(name, home / "latest")
""",
    ],
    wrong={
        """
def save(write, home, step):
    place = home / f"step-{step}"
    place.mkdir(exist_ok=True)
    write(place)
    (home / "latest").write_text(place.name)
""": "os.fsync was not called",
        """
import os

def save(write, home, step):
    place = home / f"step-{step}"
    place.mkdir(exist_ok=True)
    write(place)
    with open(home / "latest", "r+" if (home / "latest").exists() else "w") as file:
        os.fsync(file.fileno())
        file.write(place.name)
""": "the name was written into the old file",
        edit(
            SAVE, ("        file.flush()\n        os.fsync(file.fileno())\n", "")
        ): "os.fsync was not called",
        edit(
            SAVE,
            (
                "    os.replace(",
                '    if (home / "latest").exists():\n'
                '        (home / "latest").unlink()\n    os.rename(',
            ),
        ): "the files, then their name",
        edit(SAVE, ("        file.flush()\n", "")): "write, file.flush(), os.fsync",
        edit(SAVE, ("exist_ok=True", "")): "let half a folder stop no later save",
        edit(
            SAVE,
            ("    write(place)\n", ""),
            ('home / "latest")\n', 'home / "latest")\n    write(place)\n'),
        ): "latest was written before all files were there",
        edit(SAVE, ("write(place)", "write(home)")): "does not hold the files",
    },
    equivalent={
        "os.fsync(file.fileno()) → os.fsync(file)": (
            "os.fsync takes a file as well as its number."
        ),
    },
)

WHO_HOLDS_UP = SOLUTION["12.3"]
ANSWERS["12.3"] = Answers(
    right=[
        """
from collections import Counter

def who_holds_up(records):
    calls = {}
    for rank, entries in enumerate(records):
        for entry in entries:
            what = entry["profiling_name"], str(entry["input_sizes"])
            calls.setdefault(entry["collective_seq_id"], {})[rank] = what
    first = max(entries[0]["collective_seq_id"] for entries in records)
    for number in sorted(n for n in calls if n >= first):
        there = calls[number]
        if len(there) < len(records):
            return number, [r for r in range(len(records)) if r not in there]
        (usual, count), *_ = Counter(there.values()).most_common(1)
        if count < len(records):
            return number, [r for r in sorted(there) if there[r] != usual]
""",
        """
def who_holds_up(records):
    ends = [entries[-1]["collective_seq_id"] for entries in records]
    starts = [entries[0]["collective_seq_id"] for entries in records]
    for number in range(max(starts), min(ends) + 1):
        calls = [e[number - start] for e, start in zip(records, starts)]
        calls = [(e["profiling_name"], e["input_sizes"]) for e in calls]
        odd = [r for r, c in enumerate(calls) if 2 * calls.count(c) < len(calls)]
        if odd:
            return [number, odd]
    if min(ends) < max(ends):
        behind = [r for r, end in enumerate(ends) if end == min(ends)]
        return [min(ends) + 1, behind]
    return None
""",
    ],
    wrong={
        """
def who_holds_up(records):
    longest = max(map(len, records))
    if all(len(entries) == longest for entries in records):
        return None
    short = [r for r, entries in enumerate(records) if len(entries) < longest]
    return records[short[0]][-1]["collective_seq_id"] + 1, short
""": "called a barrier",
        edit(
            WHO_HOLDS_UP, ("    number = max(min", "    number = min(min")
        ): "you returned (5, [1, 2, 3])",
        edit(WHO_HOLDS_UP, (', e["input_sizes"])', ",)")): "the sizes differ",
        edit(WHO_HOLDS_UP, ("return number, ranks", "return number, ranks[:1]")): (
            "name all such ranks"
        ),
        edit(WHO_HOLDS_UP, ("return number, ranks", "return number - 1, ranks")): (
            "that one is still alike"
        ),
        edit(WHO_HOLDS_UP, ("return None", "return number, []")): (
            "you returned (12, [])"
        ),
    },
    equivalent={
        "return None → ": "A function without a return returns None.",
        (
            "lists = [{e['collective_seq_id']: (e['profiling_name'], e['input_sizes'])"
            " for e in part} for part in records] → lists = [{e['collective_seq_id']:"
            " (e['input_sizes'], e['profiling_name']) for e in part} for part in"
            " records]"
        ): "Compared are pairs, whichever comes first.",
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

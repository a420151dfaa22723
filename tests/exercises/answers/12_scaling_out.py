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
        """
def resume(path, model, optimizer):
    run = {}
    if path.is_file():
        run = torch.load(str(path), map_location=torch.device("cpu"))
    for name, part in {"model": model, "optimizer": optimizer}.items():
        if name in run:
            part.load_state_dict(run[name])
    return run.get("done", 0)
""",
        edit(RESUME, ('"cpu")', '"cpu", mmap=True)')),
    ],
    wrong={
        edit(RESUME, (', map_location="cpu"', "")): "pass map_location",
        edit(RESUME, ('"cpu"', '{"cuda:0": "cpu"}')): "pass map_location",
        edit(
            RESUME, ('    model.load_state_dict(run["model"])\n', "")
        ): "does not have the weights",
        edit(
            RESUME, ('    optimizer.load_state_dict(run["optimizer"])\n', "")
        ): "state was not loaded",
        edit(
            RESUME,
            (
                'optimizer.load_state_dict(run["optimizer"])',
                'optimizer.state.update(run["optimizer"]["state"])',
            ),
        ): "is not that of the file",
        edit(
            RESUME, ('run["model"])', 'run["model"], assign=True)')
        ): "other parameters than the model",
        edit(RESUME, ("    if not path.exists():\n        return 0\n", "")): (
            "raised FileNotFoundError"
        ),
        edit(RESUME, ("return 0", "return")): "you returned None, expected 0",
        edit(RESUME, ('run["done"]', 'run["done"] + 1')): "expected 40",
        edit(RESUME, ('return run["done"]', "return run")): "expected 40",
        edit(
            RESUME,
            (
                "        return 0\n",
                ("        torch.save({'done': 0}, path)\n        return 0\n"),
            ),
        ): "only the loop saves",
        edit(
            RESUME,
            (
                "        return 0\n",
                ("        optimizer.state.clear()\n        return 0\n"),
            ),
        ): "changed the optimizer",
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
        edit(SAVE, ("os.fsync", "getattr(os, 'fdatasync', os.fsync)")),
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
            SAVE,
            ("        file.flush()\n        os.fsync(file.fileno())\n", ""),
            (
                "    os.replace(temporary, path)",
                (
                    "    os.replace(temporary, path)\n"
                    "    with open(path, 'rb+') as file:\n"
                    "        os.fsync(file.fileno())"
                ),
            ),
        ): "os.fsync was not called before the rename",
        edit(
            SAVE, ("    os.replace(", "    path.unlink()\n    os.rename(")
        ): "no checkpoint at all",
        edit(SAVE, ("        file.flush()\n", "")): "file.flush() first",
        edit(
            SAVE,
            ("        os.fsync(file.fileno())\n", ""),
            (
                "        write(file)",
                "        os.fsync(file.fileno())\n        write(file)",
            ),
        ): "before anything was written",
        edit(
            SAVE,
            (
                "    temporary =",
                (
                    "    if not path.exists():\n"
                    "        return write(open(path, 'wb', buffering=0))\n"
                    "    temporary ="
                ),
            ),
        ): "wrote to path directly",
        """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return
    os.replace(temporary, path)
""": "nobody will notice",
        """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.replace(temporary, path)
""": "failed in the middle",
        edit(
            SAVE, ("import os", "import os, shutil"), ("os.replace", "shutil.copy")
        ): "the folder holds",
        edit(
            SAVE,
            (" os\n", " os, shutil\n"),
            (
                "    os.replace(temporary, path)\n",
                "    shutil.copy(temporary, path)\n    temporary.unlink()\n",
            ),
        ): "copied into the old file",
        edit(
            SAVE,
            ("import os", "import os, pathlib, tempfile"),
            (
                "path.with_name(path.name",
                "pathlib.Path(tempfile.gettempdir(), path.name",
            ),
        ): "not in the folder of path",
        edit(
            SAVE,
            (
                "    os.replace",
                "    os.rename(path, path.with_suffix('.old'))\n    os.replace",
            ),
            (
                "replace(temporary, path)",
                "replace(temporary, path)\n    os.remove(path.with_suffix('.old'))",
            ),
        ): "no checkpoint at all",
        edit(
            SAVE, ("    os.replace", "    assert path.exists()\n    os.replace")
        ): "a first save",
        edit(SAVE, ('"wb"', '"xb"')): "the next save cannot open it",
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
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    fully_shard(model, mesh=mesh)
""": "block 0 is no group of its own",
        edit(
            SHARD_BLOCKS, ("    fully_shard(model, mesh=mesh)\n", "")
        ): "in no block is still whole",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in [*model, model]:
        fully_shard(part)
""": "over 8 processes, and `mesh` is 2 × 4",
        """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

def shard_blocks(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for part in [*model, model]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
""": "560 were gathered",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    model.requires_grad_(False)
    for part in [*model, model]:
        fully_shard(part, mesh=mesh)
""": "does not require a gradient any more",
        edit(
            SHARD_BLOCKS, ("for block in model:\n        ", ""), ("block,", "[*model],")
        ): "bytes are gathered at once",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in reversed([*model.modules()]):
        fully_shard(part, mesh=mesh)
""": "not for each layer",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in [*model, model]:
        fully_shard(part, mesh=mesh, reshard_after_forward=False)
""": "stays gathered",
        """
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for part in [model, *model]:
        fully_shard(part, mesh=mesh)
""": "blocks first",
        """
def shard_blocks(model, mesh):
    return model
""": "nothing of the model is sharded",
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
        """
def best_interval(cost, host_mtbf, hosts):
    interval = (2 * cost * host_mtbf) ** 0.5
    return interval, cost / interval + interval / (2 * host_mtbf)
""": "of one host",
        edit(BEST_INTERVAL, (" + interval / (2 * mtbf)", "")): "work that is repeated",
        """
def best_interval(cost, host_mtbf, hosts):
    return (2 * cost * host_mtbf / hosts) ** 0.5
""": "expected a pair",
        edit(BEST_INTERVAL, ("2 * cost", "cost")): "the root is of twice the product",
        edit(BEST_INTERVAL, ("/ hosts", "* hosts")): "more hosts crash more often",
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
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    samples = order(epoch)
    rest = [
        samples[first : first + batch]
        for first in range(done * batch, len(samples), batch)
    ]
    return [
        part[rank * len(part) // size : (rank + 1) * len(part) // size] for part in rest
    ]
""": "not a part in one piece",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    samples = order(epoch)[done * batch :]
    if done == 0 and epoch > 0:
        return []
    return [
        samples[first : first + batch][rank::size]
        for first in range(0, len(samples), batch)
    ]
""": "has just ended",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    samples = order(epoch)
    parts = [
        samples[first : first + batch]
        for first in range(done * batch, len(samples), batch)
    ]
    return [[sample for sample in part if sample % size == rank] for part in parts]
""": "step 1 of the epoch takes [4, 11, 18, 3, 10, 17]",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch = steps // -(-len(order(0)) // batch)
    samples = order(epoch)
    return [
        samples[first : first + batch][rank::size]
        for first in range(0, len(samples), batch)
    ]
""": "steps remain",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    return order(0)[rank::size]
""": "a list of lists",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    done = steps % -(-len(order(0)) // batch)
    samples = order(0)
    return [
        samples[first : first + batch][rank::size]
        for first in range(done * batch, len(samples), batch)
    ]
""": "you took the order of epoch 0",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    rest = order(epoch)[done * batch + rank :: size]
    per_rank = -(-batch // size)
    return [rest[first : first + per_rank] for first in range(0, len(rest), per_rank)]
""": "divided within each step",
        """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    samples = order(epoch)
    parts = [
        samples[first : first + batch][rank::size]
        for first in range(done * batch, len(samples), batch)
    ]
    return [part for part in parts if part]
""": "is an empty list",
    },
    equivalent={
        (
            "per_epoch = -(-len(order(0)) // batch) → per_epoch ="
            " -(-len(order(1)) // batch)"
        ): "All epochs have the same number of samples.",
    },
)

"""Exercises of lesson 12."""

import contextlib
import math
import os
import pathlib
import tempfile
from unittest import mock

import torch
import torch.distributed as dist

from course import expect
from course.answers import Wrong, call, state
from course.exercises import Exercise
from simulate.fake import fake_processes

WIDTH = 8


class Blocks(torch.nn.Sequential):
    """Some blocks, and a parameter that is in none of them."""

    def __init__(self, count):
        super().__init__(*(self.block() for _ in range(count)))
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    @staticmethod
    def block():
        up, down = torch.nn.Linear(WIDTH, 16), torch.nn.Linear(16, WIDTH)
        return torch.nn.Sequential(up, torch.nn.ReLU(), down)

    def forward(self, x):
        return self.scale * super().forward(x)


def check_shard_blocks(answer):
    if dist.is_initialized():
        raise Wrong(
            "a process group is open in this kernel: first call"
            " torch.distributed.destroy_process_group()"
        )
    for mesh_shape, count in (((4,), 3), ((2, 4), 2)):
        with fake_processes(math.prod(mesh_shape)) as collectives:
            _check_shards(answer, mesh_shape, count, collectives)


def _check_shards(answer, mesh_shape, count, collectives):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    names = ("replicate", "shard")[-len(mesh_shape) :]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    model = Blocks(count)
    block_bytes = sum(p.nbytes for p in model[0].parameters())
    shown = f"{count} blocks and a mesh of {_times(mesh_shape)} processes"
    try:
        call(answer, model, mesh, shown=shown, changes=[model])
    except Wrong as error:
        # what PyTorch says then is another thing in each version
        if isinstance(model, FSDPModule):
            raise Wrong(
                "the model was sharded before its blocks, so nothing is left for them:"
                " blocks first"
            ) from error
        raise
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise Wrong(
            "nothing of the model is sharded: call fully_shard, which changes a module"
            " in place"
        )
    for number, block in enumerate(model):
        if block not in sharded:
            raise Wrong(
                f"block {number} is no group of its own, so it is gathered together"
                " with others"
            )
    if not isinstance(model.scale, DTensor):
        raise Wrong(
            "a parameter that is in no block is still whole: shard the model itself,"
            " too, after its blocks"
        )
    if len(sharded) > count + 1:
        raise Wrong(
            f"{len(sharded)} groups for {count} blocks and the model: one for each"
            " block, not for each layer"
        )
    for name, p in model.named_parameters():
        if p.device_mesh.shape != mesh.shape:
            raise Wrong(
                f"{name} is sharded over {_times(p.device_mesh.shape)} processes, and"
                f" `mesh` is {_times(mesh.shape)}: pass mesh=mesh"
            )
        if not p.requires_grad:
            raise Wrong(
                f"{name} does not require a gradient any more: sharding is all that is"
                " asked"
            )
    model(torch.zeros(1, WIDTH)).sum().backward()
    gathered = [size for name, size, _ in collectives if name == "all_gather"]
    if max(gathered) > block_bytes:
        raise Wrong(
            f"{max(gathered):,} bytes are gathered at once, and a block has"
            f" {block_bytes:,}: one call for each"
        )
    if max(gathered) < block_bytes:
        raise Wrong(
            f"a block has {block_bytes:,} bytes, and {max(gathered):,} were gathered:"
            " leave mp_policy as it is"
        )
    if gathered.count(block_bytes) < 2 * count:
        raise Wrong(
            "a block stays gathered between forward and backward: leave"
            " reshard_after_forward as it is"
        )


def _times(shape):
    return " × ".join(map(str, shape))


# a GPU that hardly any machine has
ELSEWHERE = "cuda:63"


def make_trained(make_optimizer, seed, steps):
    """A small model and its optimizer, after some steps."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def with_momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def with_averages(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def check_resume(answer):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "run.pt"
        _begin(answer, path)
        for done, make_optimizer in ((40, with_momentum), (7, with_averages)):
            _go_on(answer, path, done, make_optimizer)


def _begin(answer, path):
    """Without a file."""
    model, optimizer = make_trained(with_momentum, 0, 1)
    before = state(optimizer.state_dict())
    shown = "a path without a file"
    got = call(answer, path, model, optimizer, shown=shown)
    expect.equal(got, 0, shown, "no step is done")
    if state(optimizer.state_dict()) != before:
        raise Wrong(f"for {shown} your function changed the optimizer: leave it")
    if path.exists():
        raise Wrong(f"for {shown} your function wrote a file: only the loop saves")


def _go_on(answer, path, done, make_optimizer):
    saved, its_optimizer = make_trained(make_optimizer, 1, 3)
    its_optimizer.param_groups[0]["lr"] = 0.001  # a schedule has lowered it
    run = {"model": saved.state_dict(), "done": done}
    run["optimizer"] = its_optimizer.state_dict()
    with mock.patch.object(
        torch.serialization, "location_tag", lambda storage: ELSEWHERE, create=True
    ):
        torch.save(run, path)
    model, optimizer = make_trained(make_optimizer, 2, 1)
    before = state(optimizer.state_dict())
    shown = f"a file that says done: {done}, of {type(optimizer).__name__}"
    try:
        got = call(
            answer, path, model, optimizer, shown=shown, changes=[model, optimizer]
        )
    except Wrong as error:
        if "deserialize" in str(error.__cause__):
            raise Wrong(
                "the file was written on a GPU that is not here, and torch.load looks"
                " for it: pass map_location"
            ) from error
        raise
    if state(dict(model.state_dict())) != state(dict(saved.state_dict())):
        raise Wrong(f"for {shown} the model does not have the weights of the file")
    if [*map(id, optimizer.param_groups[0]["params"])] != [
        *map(id, model.parameters())
    ]:
        raise Wrong(
            f"for {shown} the optimizer is left with other parameters than the model"
            " has: load into those that are there"
        )
    found, asked = state(optimizer.state_dict()), state(its_optimizer.state_dict())
    if found != asked:
        what = "was not loaded" if found == before else "is not that of the file"
        raise Wrong(
            f"for {shown} the optimizer's state {what}: its averages, and the learning"
            " rate, belong to the run, too"
        )
    expect.equal(got, done, shown, "the steps that are done stand in the file")


RUNS = [  # steps, batch, size, samples
    (8, 6, 2, 22),
    (9, 6, 3, 22),
    (4, 6, 1, 22),
    (1, 4, 3, 22),
    (11, 4, 3, 22),
    (0, 5, 2, 22),
    (8, 6, 4, 22),
    (5, 2, 3, 10),
    (4, 2, 3, 10),
    (12, 50, 3, 10),
    (7, 1, 2, 5),
    (3, 1, 1, 1),
]


def check_rest_of_epoch(answer):
    for steps, batch, size, samples in RUNS:
        epoch, done = divmod(steps, -(-samples // batch))
        order = _order(samples)
        batches = _rest(order(epoch), done, batch)
        for rank in range(size):
            shown = (
                f"steps = {steps}, batch = {batch}, rank = {rank}, size = {size},"
                f" {samples} samples an epoch"
            )
            got = call(answer, steps, order, batch, rank, size, shown=shown)
            if isinstance(got, (list, tuple)):
                got = [expect.listed(part) for part in got]
            if not isinstance(got, list) or not all(
                isinstance(part, (list, tuple)) for part in got
            ):
                raise Wrong(
                    f"for {shown} you returned {got!r}, expected a list of lists, one"
                    " for each step"
                )
            got = [list(part) for part in got]
            expected = [part[rank::size] for part in batches]
            if got != expected:
                slip = _slip(got, expected, order, epoch, done, batch, rank, size)
                why = f"the run is in epoch {epoch}, steps done: {done}; {slip}"
                expect.equal(got, expected, shown, why)


def _order(samples):
    """Orders of the samples of an epoch: 7 has no factor in common with the numbers
    above, so each comes once.
    """
    return lambda epoch: [(7 * n + 3 * epoch) % samples for n in range(samples)]


def _rest(samples, done, batch):
    return [
        samples[first : first + batch]
        for first in range(done * batch, len(samples), batch)
    ]


def _slip(got, expected, order, epoch, done, batch, rank, size):
    batches = _rest(order(epoch), done, batch)
    for other in (0, epoch - 1, epoch + 1):
        if got == [part[rank::size] for part in _rest(order(other), done, batch)]:
            return f"you took the order of epoch {other}"
    if got == [part for part in expected if part]:
        return "a step in which this rank has no sample is an empty list"
    if sum(batches, [])[rank::size] == sum(got, []) != sum(expected, []):
        return (
            "the samples are divided within each step, so that steps are the same for"
            " any number of processes"
        )
    if not got and done == 0:
        return "the epoch before has just ended, so this is all of the next one"
    if len(got) != len(expected):
        return (
            f"{len(expected)} steps remain, the last of which may be smaller, not"
            f" {len(got)}"
        )
    if got == batches:
        return "these are the samples of all ranks"
    for length in (len, lambda part: batch):
        pieces = []
        for part in batches:
            first, end = rank * length(part) // size, (rank + 1) * length(part) // size
            pieces.append(part[first:end])
        if got == pieces:
            return (
                "a rank takes every size-th sample of a step, not a part in one piece"
            )
    wrong = next(number for number, part in enumerate(got) if part != expected[number])
    return (
        f"step {done + wrong} of the epoch takes {batches[wrong]}, this rank those at"
        f" {rank}, {rank + size}, …"
    )


def check_save(answer):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _save_well(answer, folder / "well.pt")
    with tempfile.TemporaryDirectory() as name:
        path, there = pathlib.Path(name) / "first.pt", []

        def write(file):
            there.append(path.exists())
            file.write(b"first")

        call(answer, write, path, shown="a first save, with no old checkpoint")
        if not path.exists() or path.read_bytes() != b"first":
            raise Wrong("a first save, with no old checkpoint, did not write one")
        if any(there):
            raise Wrong(
                "a first save, with no old checkpoint, wrote to path directly: a crash"
                " leaves half a file there"
            )
        _save_badly(answer, path.with_name("badly.pt"))


def _save_well(answer, path):
    path.write_bytes(b"old checkpoint")
    before = path.stat().st_ino
    seen = _watch_save(answer, path)
    if not path.exists():
        raise Wrong("after a save that went well, there is no file at path")
    held = path.read_bytes()
    if held != b"new checkpoint":
        raise Wrong(
            f"after a save that went well, path holds {held!r}, expected"
            " b'new checkpoint'"
        )
    if "gone" in seen:
        raise Wrong(
            "for a moment there was no checkpoint at all: os.replace renames over the"
            " old file in one step"
        )
    if seen["while writing"] != b"old checkpoint":
        raise Wrong(
            "path was written directly: a crash while writing leaves half a file. Write"
            " beside it, then rename"
        )
    names = sorted(p.name for p in path.parent.iterdir())
    if names != [path.name]:
        raise Wrong(
            f"after a save that went well, the folder holds {names}, expected"
            f" {path.name} alone"
        )
    if path.stat().st_ino == before:
        raise Wrong(
            "the new bytes were copied into the old file: a crash in that moment leaves"
            " half. Use os.replace"
        )
    at_path, beside, size = seen.get("at fsync", (b"new checkpoint", True, 0))
    if at_path != b"old checkpoint":
        raise Wrong(
            "os.fsync was not called before the rename: after a power cut the name may"
            " point to no bytes"
        )
    if not beside:
        raise Wrong(
            "the other file is not in the folder of path: from disk to disk, a rename"
            " is a copy, or fails"
        )
    if size == 0:
        raise Wrong(
            "os.fsync was called before anything was written: write, flush, fsync, in"
            " this order"
        )
    if size < len(b"new checkpoint"):
        raise Wrong(
            "os.fsync was called while Python's own buffer still held bytes: call"
            " file.flush() first"
        )


def _watch_save(answer, path):
    """What was seen during a save that goes well: at path "while writing"; at the first
    "fsync", at path, whether the file lies beside it, and its size; "gone" if there was
    nothing at path for a moment.
    """
    seen = {}

    def held():
        return path.read_bytes() if path.exists() else b""

    def write(file):
        file.write(b"new ")
        file.flush()
        seen["while writing"] = held()
        file.write(b"checkpoint")

    def fsync(descriptor, real=os.fsync):
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        state = os.fstat(number)
        beside = any(p.stat().st_ino == state.st_ino for p in path.parent.iterdir())
        seen.setdefault("at fsync", (held(), beside, state.st_size))
        return real(descriptor)

    def watched(function):
        def run(*args, **kwargs):
            result = function(*args, **kwargs)
            if not path.exists():
                seen["gone"] = True
            return result

        return run

    watches = {"fsync": fsync}
    if hasattr(os, "fdatasync"):
        watches["fdatasync"] = fsync
    # from os import fsync
    syncs = [getattr(os, name) for name in watches]
    imported = {
        name: fsync
        for name, value in getattr(answer, "__globals__", {}).items()
        if any(value is sync for sync in syncs)
    }
    for name in ("unlink", "remove", "rename", "replace"):
        watches[name] = watched(getattr(os, name))
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(os, **watches))
        own_names = getattr(answer, "__globals__", {})
        stack.enter_context(mock.patch.dict(own_names, imported))
        call(answer, write, path, shown="a write that goes well")
    return seen


def _save_badly(answer, path):
    path.write_bytes(b"old checkpoint")
    _fail(answer, path, OSError("no space left on device"), "")
    after = "after a save that failed, "
    _fail(answer, path, ValueError("this cannot be saved"), after)
    shown = "a save after two that failed"
    call(answer, lambda file: file.write(b"third try"), path, shown=shown)
    if path.read_bytes() != b"third try":
        raise Wrong(f"{shown} left {path.read_bytes()!r}, expected b'third try'")


def _fail(answer, path, error, after):
    def write(file):
        file.write(b"half a ")
        file.flush()
        raise error

    try:
        answer(write, path)
    except FileExistsError as raised:
        raise Wrong(
            f"{after}its half file is still there, and the next save cannot open it:"
            f" {raised}"
        ) from raised
    except Exception as raised:
        if error not in (raised, raised.__cause__):
            raise Wrong(
                f"{after}write raised {error!r}, and save {raised!r}: let the error"
                " through"
            ) from raised
    else:
        raise Wrong(f"write raised {error!r}, but save did not: nobody will notice")
    held = path.read_bytes() if path.exists() else "nothing"
    if held != b"old checkpoint":
        raise Wrong(
            f"write failed in the middle, and path holds {held!r}, expected b'old"
            " checkpoint'"
        )


CRASHES = [  # cost, host_mtbf, hosts
    (60.0, 3e7, 2048),
    (5.0, 3e7, 1),
    (120.0, 1e7, 16),
    (60.0, 3e7, 512),
]


def check_best_interval(answer):
    for cost, host_mtbf, hosts in CRASHES:
        shown = f"cost = {cost:g} s, host_mtbf = {host_mtbf:g} s, {hosts} hosts"
        got = expect.listed(call(answer, cost, host_mtbf, hosts, shown=shown))
        seconds, share = expect.numbers(got, 2, shown, "a pair (seconds, share)")
        M = host_mtbf / hosts
        T = math.sqrt(2 * cost * M)
        lost = cost / T + T / (2 * M)
        slips = [
            (
                math.sqrt(2 * cost * host_mtbf),
                "you took the time between crashes of one host",
            ),
            (math.sqrt(cost * M), "the root is of twice the product, 2 · cost · M"),
            (
                math.sqrt(2 * cost * host_mtbf * hosts),
                "more hosts crash more often, not less",
            ),
            (T / 60, "seconds are asked, not minutes"),
            (T / 3600, "seconds are asked, not hours"),
            (M, "a checkpoint at each crash is too late"),
            (T**2, "the root is missing"),
            (lost, "that is the share. First the seconds"),
        ]
        fault = expect.explain(seconds, slips, "T = sqrt(2 · cost · M)")
        why = f"the job crashes every {M:.4g} s; {fault}"
        said = "you returned an interval of"
        expect.close(seconds, T, shown, why, said=said, unit=" s")
        slips = [
            (100 * lost, "a share is asked, not percent"),
            (1 - lost, "asked is what is lost, not what remains"),
        ]
        why = (
            "cost / T for saving and T / (2 M) for work that is repeated, M ="
            f" {M:.4g} s"
        )
        expect.close(share, lost, shown, why, slips, said="you returned a share of")


EXERCISES = [
    Exercise(
        number="12.0",
        title="Go on where it stopped",
        name="resume",
        stars=1,
        check=check_resume,
        hints=[
            "The recipe has these lines. path.exists() says whether there is a file.",
            (
                "torch.load puts a tensor where it was saved, unless map_location says"
                ' where else: "cpu" here.'
            ),
            (
                "model.load_state_dict and optimizer.load_state_dict work in place."
                ' Then return what stands under "done".'
            ),
        ],
        solution="""
def resume(path, model, optimizer):
    if not path.exists():
        return 0
    run = torch.load(path, map_location="cpu")
    model.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])
    return run["done"]
""",
        praise=(
            "Every rank calls it, and all must find the same file: a rank that finds"
            " none starts at step 0, and the others wait for it in vain."
        ),
    ),
    Exercise(
        number="12.1",
        title="Save atomically",
        name="save",
        stars=2,
        check=check_save,
        hints=[
            "Give write a file with another name, in the same folder as path.",
            (
                "After write: file.flush(), then os.fsync(file.fileno()), then close."
                " An error goes no further."
            ),
            (
                "Last, os.replace(temporary, path): it takes the place of an old file,"
                " on Windows too."
            ),
        ],
        solution="""
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
""",
        praise=(
            "A crash leaves a second file behind, which the next save overwrites. A"
            " careful program on Linux also calls fsync on the folder, so that the new"
            " name survives a power cut."
        ),
    ),
    Exercise(
        number="12.2",
        title="One block at a time",
        name="shard_blocks",
        stars=1,
        check=check_shard_blocks,
        hints=[
            (
                "from torch.distributed.fsdp import fully_shard. It changes the module"
                " that it gets."
            ),
            (
                "for block in model: fully_shard(block, mesh=mesh). What is still whole"
                " then?"
            ),
            "After the loop, fully_shard(model, mesh=mesh) takes what is in no block.",
        ],
        solution="""
from torch.distributed.fsdp import fully_shard

def shard_blocks(model, mesh):
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
""",
        praise=(
            "Over a mesh of two dimensions, the same lines give hybrid sharding: the"
            " gathers stay within a row of the mesh, and only gradients, already cut,"
            " cross it."
        ),
    ),
    Exercise(
        number="12.3",
        title="How often to save",
        name="best_interval",
        stars=2,
        check=check_best_interval,
        hints=[
            (
                "Twice as many hosts crash twice as often: how many seconds pass"
                " between crashes of the job?"
            ),
            "M = host_mtbf / hosts, and T = sqrt(2 · cost · M).",
            (
                "The share is cost / T for saving and T / (2 M) for repeated work. At"
                " the best T both are equal."
            ),
        ],
        solution="""
def best_interval(cost, host_mtbf, hosts):
    mtbf = host_mtbf / hosts
    interval = (2 * cost * mtbf) ** 0.5
    return interval, cost / interval + interval / (2 * mtbf)
""",
        praise=(
            "The share is sqrt(2 · cost / M): four times as many hosts lose twice as"
            " much, unless saving gets faster. Sharded checkpoints do, because each"
            " host writes its own part."
        ),
    ),
    Exercise(
        number="12.4",
        title="The rest of an epoch",
        name="rest_of_epoch",
        stars=3,
        check=check_rest_of_epoch,
        hints=[
            (
                "First find the epoch and the step in it. An epoch has as many steps as"
                " batches, the last smaller one too."
            ),
            (
                "divmod(steps, steps_per_epoch) gives both. The samples before step *"
                " batch are done."
            ),
            "Cut what remains into batches first, then take [rank::size] of each.",
        ],
        solution="""
def rest_of_epoch(steps, order, batch, rank, size):
    per_epoch = -(-len(order(0)) // batch)  # rounded up
    epoch, done = divmod(steps, per_epoch)
    samples = order(epoch)
    return [
        samples[first : first + batch][rank::size]
        for first in range(done * batch, len(samples), batch)
    ]
""",
        praise=(
            "Nothing in it depends on how many processes there were before. That is"
            " what lets a job go on with fewer: the global batches stay the same, only"
            " their division changes."
        ),
    ),
]

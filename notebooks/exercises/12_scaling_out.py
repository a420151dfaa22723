"""Exercises of lesson 12."""

import math
import pathlib
import tempfile
from unittest import mock

import torch
import torch.distributed as dist

from course import expect
from course.answers import Wrong, call, state
from course.exercises import Exercise
from simulate.fake import fake_processes
from simulate.files import Moment, held, watched

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
            names = ("replicate", "shard")[-len(mesh_shape) :]
            mesh = dist.init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
            model = Blocks(count)
            size = sum(p.nbytes for p in model[0].parameters())
            over = " × ".join(map(str, mesh_shape))
            shown = f"{count} blocks and a mesh of {over} processes"
            try:
                call(answer, model, mesh, shown=shown, changes=[model])
            except Wrong as error:
                if hasattr(model, "unshard"):  # what PyTorch says then, changes
                    raise Wrong(
                        "the model was sharded before its blocks: blocks first"
                    ) from error
                raise
            fault = next(_faults_of_shards(model, mesh, over, collectives, size), None)
            if fault:
                raise Wrong(fault)


def _faults_of_shards(model, mesh, over, collectives, size):
    """What is wrong, the cause before what follows from it. over: the mesh in words.
    size: bytes of a block.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    count = len(model)
    groups = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not groups:
        yield "nothing of the model is sharded: fully_shard changes a module in place"
    for number, block in enumerate(model):
        if block not in groups:
            yield (
                f"block {number} is no group of its own, so it is gathered together"
                " with others"
            )
    if not isinstance(model.scale, DTensor):
        yield (
            "a parameter that is in no block is still whole: shard the model itself,"
            " too, after its blocks"
        )
    if len(groups) > count + 1:
        yield f"{len(groups)} groups: one for each block, not for each layer"
    for name, p in model.named_parameters():
        if p.device_mesh.shape != mesh.shape:
            yield f"{name} is not sharded over {over} processes: pass mesh=mesh"
        if not p.requires_grad:
            yield f"{name} does not require a gradient any more"
    model(torch.zeros(1, WIDTH)).sum().backward()
    gathered = [bytes for name, bytes, _ in collectives if name == "all_gather"]
    if max(gathered) != size:
        yield (
            f"{max(gathered):,} bytes are gathered at once, and a block has {size:,}:"
            " one call for each, with nothing but its mesh"
        )
    if gathered.count(size) < 2 * count:
        yield (
            "a block stays gathered between forward and backward: leave"
            " reshard_after_forward as it is"
        )


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
        model, optimizer = make_trained(with_momentum, 0, 1)
        before = state(optimizer.state_dict())
        shown = "a path without a file"
        got = call(answer, path, model, optimizer, shown=shown)
        expect.equal(got, 0, shown, "no step is done")
        if state(optimizer.state_dict()) != before:
            raise Wrong(f"for {shown} your function changed the optimizer: leave it")
        if path.exists():
            raise Wrong(f"for {shown} your function wrote a file: only the loop saves")
        for done, make_optimizer in ((40, with_momentum), (7, with_averages)):
            _go_on(answer, path, done, make_optimizer)


def _go_on(answer, path, done, make_optimizer):
    saved, its_optimizer = make_trained(make_optimizer, 1, 3)
    its_optimizer.param_groups[0]["lr"] = 0.001  # a schedule has lowered it
    run = {"model": saved.state_dict(), "done": done}
    run["optimizer"] = its_optimizer.state_dict()
    # a GPU that hardly any machine has
    tag = mock.Mock(return_value="cuda:63")
    with mock.patch("torch.serialization.location_tag", tag, create=True):
        torch.save(run, path)
    model, optimizer = given = make_trained(make_optimizer, 2, 1)
    before = state(optimizer.state_dict())
    shown = f"a file that says done: {done}, of {type(optimizer).__name__}"
    try:
        got = call(answer, path, *given, shown=shown, changes=given)
    except Wrong as error:
        if "deserialize" in str(error.__cause__):
            raise Wrong(
                "the file was written on a GPU that is not here, and torch.load looks"
                " for it: pass map_location"
            ) from error
        raise
    if state(dict(model.state_dict())) != state(dict(saved.state_dict())):
        raise Wrong(f"for {shown} the model does not have the weights of the file")
    own = [*map(id, model.parameters())]
    if [*map(id, optimizer.param_groups[0]["params"])] != own:
        raise Wrong(
            f"for {shown} the optimizer is left with other parameters than the model"
            " has: load into those that are there"
        )
    found = state(optimizer.state_dict())
    if found != state(its_optimizer.state_dict()):
        what = "was not loaded" if found == before else "is not that of the file"
        raise Wrong(
            f"for {shown} the optimizer's state {what}: its averages, and the learning"
            " rate, belong to the run, too"
        )
    expect.equal(got, done, shown, "the steps that are done stand in the file")


# steps, batch, size, samples
RUNS = """
8 6 2 22 | 9 6 3 22 | 4 6 1 22 | 1 4 3 22 | 11 4 3 22 | 0 5 2 22 | 8 6 4 22 | 5 2 3 10
4 2 3 10 | 12 50 3 10 | 7 1 2 5 | 3 1 1 1
"""


def check_rest_of_epoch(answer):
    for run in RUNS.replace("\n", "|").strip("|").split("|"):
        steps, batch, size, samples = map(int, run.split())

        # 7 has no factor in common with these numbers of samples, so each comes once
        def order(epoch, samples=samples):
            return [(7 * n + 3 * epoch) % samples for n in range(samples)]

        for rank in range(size):
            _judge_rest(answer, steps, order, batch, rank, size)


def _judge_rest(answer, steps, order, batch, rank, size):
    samples = len(order(0))
    epoch, done = divmod(steps, -(-samples // batch))
    shown = f"{steps=}, {batch=}, {rank=}, {size=} and {samples} samples an epoch"
    got = call(answer, steps, order, batch, rank, size, shown=shown)
    asked = "a list of lists, one for each step"
    expect.instance(got, (list, tuple), shown, asked)
    got = [
        list(expect.instance(expect.listed(part), (list, tuple), shown, asked))
        for part in got
    ]

    def rest(epoch):
        """The batches of all ranks."""
        found = range(done * batch, samples, batch)
        return [order(epoch)[first : first + batch] for first in found]

    batches = rest(epoch)
    expected = [part[rank::size] for part in batches]
    pieces = [
        part[rank * len(part) // size : (rank + 1) * len(part) // size]
        for part in batches
    ]
    slips = [
        (
            pieces,
            "a rank takes every size-th sample of a step, not a part in one piece",
        ),
        ([part[rank::size] for part in rest(0)], "you took the order of epoch 0"),
        (
            [part for part in expected if part],
            "a step in which this rank has no sample is an empty list",
        ),
        ([], "the epoch before has just ended, so this is all of the next one"),
        (batches, "these are the samples of all ranks"),
    ]
    slip = f"of each step this rank takes number {rank}, {rank + size}, …"
    if len(got) != len(expected):
        slip = f"{len(expected)} steps remain, the last of which may be smaller"
    if sum(got, []) == sum(batches, [])[rank::size]:
        slip = "the samples are divided within each step"
    slip = next((text for value, text in slips if got == value), slip)
    why = f"the run is in epoch {epoch}, steps done: {done}; {slip}"
    expect.equal(got, expected, shown, why)


NEW, OLD = b"new checkpoint", b"old checkpoint"
STEPS = (
    "write beside path, in its folder, let fsync bring the bytes to the disk, then"
    " os.replace, which renames over the old file in one step"
)


def check_save(answer):
    for old in (OLD, None):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "run.pt"
            if old:
                path.write_bytes(old)
            _save_well(answer, path, old)
            _save_badly(answer, path)


def _save_well(answer, path, old):
    shown = f"a save {'over an' if old else 'without an'} old checkpoint"
    inode = path.stat().st_ino if old else None
    with watched(path, answer) as moments:

        def write(file):
            file.write(NEW[:4])
            file.flush()
            moments.append(Moment("write", held(path)))
            file.write(NEW[4:])

        call(answer, write, path, shown=shown)
    same = held(path) and inode == path.stat().st_ino
    gone = old and any(moment.held is None for moment in moments)
    moment = {moment.call: moment for moment in reversed(moments)}  # the first of each
    written = moment.get("write", Moment("write", old))
    sync = moment.get("fsync") or moment.get("fdatasync") or Moment("fsync", NEW)
    names = sorted(p.name for p in path.parent.iterdir())
    for wrong, said in (
        (held(path) != NEW, f"path holds {held(path)!r}, expected {NEW!r}"),
        (gone, "for a moment there was no checkpoint at all: os.replace has none"),
        (written.held != old, "path was written directly, and a crash leaves half"),
        (names != [path.name], f"the folder holds {names}, expected {path.name} alone"),
        (same, "the new bytes were copied into the old file, and a crash leaves half"),
        (sync.held != old, "os.fsync was not called before the rename"),
        (sync.synced is None, "the file renamed is not in the folder of path"),
        (
            sync.synced != len(NEW),
            f"at os.fsync the file had {sync.synced} of {len(NEW)} bytes, the others"
            " not yet, or in Python's buffer: write, file.flush(), os.fsync",
        ),
    ):
        if wrong:
            raise Wrong(f"after {shown}: {said}; {STEPS}")


def _save_badly(answer, path):
    """Two saves that fail, and one that goes well, over the new checkpoint."""
    for error in (OSError("no space left on device"), ValueError("cannot be saved")):

        def write(file, error=error):
            file.write(b"half a ")
            file.flush()
            raise error

        try:
            answer(write, path)
        except Exception as raised:
            if error not in (raised, raised.__cause__):
                raise Wrong(
                    f"write raised {error!r}, and save {raised!r}: let the error"
                    " through, and let a half file stop no later save"
                ) from raised
        else:
            raise Wrong(f"write raised {error!r}, but save did not: nobody will notice")
        if held(path) != NEW:
            raise Wrong(
                f"write failed in the middle, and path holds {held(path)!r}, expected"
                f" the checkpoint before, {NEW!r}"
            )
    shown = "a save after two that failed"
    call(answer, lambda file: file.write(b"third try"), path, shown=shown)
    expect.equal(held(path), b"third try", shown, said="path holds")


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
            (T * hosts**0.5, "you took the time between crashes of one host"),
            (T / 2**0.5, "the root is of twice the product, 2 · cost · M"),
            (T * hosts, "more hosts crash more often, not less"),
            (T**2, "the root is missing"),
        ]
        fault = expect.explain(seconds, slips, "T = sqrt(2 · cost · M)")
        why = f"the job crashes every {M:.4g} s; {fault}"
        said = "you returned an interval of"
        expect.close(seconds, T, shown, why, said=said, unit=" s")
        slips = [
            (100 * lost, "a share is asked, not percent"),
            (1 - lost, "asked is what is lost, not what remains"),
        ]
        why = f"cost / T for saving, T / (2 M) for work that is repeated, M = {M:.4g} s"
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

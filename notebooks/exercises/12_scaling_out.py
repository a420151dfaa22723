"""Exercises of lesson 12."""

import contextlib
import math
import os
import pathlib
import tempfile
from unittest import mock

import torch
import torch.distributed as dist

from utils import expect
from utils.answers import Wrong, call
from utils.exercises import Exercise
from utils.simulate.collectives import Link, all_reduce
from utils.simulate.fake import fake_processes

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


ALL_REDUCES = [  # size, ranks, latency, bandwidth
    (100e6, 1024, 5e-6, 200e9),
    (100e6, 8, 5e-6, 200e9),
    (1024, 2, 1e-5, 1e9),
    (1e9, 2, 0.0, 1e9),
    (0, 4, 1e-6, 1e9),
    (1e6, 1, 1e-6, 1e9),
]


def check_latency_share(answer):
    for size, ranks, latency, bandwidth in ALL_REDUCES:
        shown = f"{size:g} bytes, {ranks} ranks, {latency:g} s, {bandwidth:g} bytes/s"
        got = call(answer, size, ranks, latency, bandwidth, shown=shown)
        expect.number(got, shown)
        if ranks == 1:
            why = "a single rank sends nothing"
            expect.close(got, 0.0, shown, why, abs_tol=1e-12)
            continue
        steps = 2 * (ranks - 1)
        whole = all_reduce(size, ranks, Link(latency, bandwidth))
        waiting = steps * latency
        sending = whole - waiting
        half = waiting / 2
        slips = [
            (waiting, "That is the time of the latency, not its share"),
            (sending / whole, "That is the share of the bytes"),
            (whole, "That is the whole time"),
            (
                waiting / sending if sending else math.inf,
                "Divide by the whole time, not by that of the bytes",
            ),
            (100 * waiting / whole, "A number from 0 to 1 is asked, not percent"),
            (
                half / (half + size / bandwidth),
                "A step carries one piece of the bytes, 1/p of them",
            ),
        ]
        fault = expect.explain(got, slips, "Asked is the latency's share of the time")
        why = f"{steps} steps, and {steps / ranks:.4g} times the bytes from each rank."
        expect.close(
            got, waiting / whole, shown, f"{why} {fault}", rel_tol=1e-9, abs_tol=1e-12
        )


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


WEAK = {8: 0.25, 64: 0.26, 512: 0.3125}
FIXED = {1: 64.0, 8: 8.0, 64: 1.25, 512: 0.5}
SCALED = [  # devices → seconds, whether all share one problem
    (WEAK, False),
    (FIXED, True),
    ({512: 0.5, 8: 0.25}, False),
    ({64: 1.0, 128: 0.625}, True),
    ({256: 0.5, 16: 4.0}, True),
    ({8: 0.5}, False),
    ({4: 0.5}, True),
    (WEAK, True),
    (FIXED, False),
    ({1: 8.0, 4: 1.6}, True),  # faster than the ideal
]


def check_efficiency(answer):
    for seconds, strong in SCALED:
        shown = f"{seconds}, strong={strong}"
        got = call(answer, seconds, strong, shown=shown)
        if not isinstance(got, dict) or set(got) != set(seconds):
            raise Wrong(
                f"for {shown} you returned {got!r}, expected a dict with the keys"
                f" {sorted(seconds)}"
            )
        first = min(seconds)
        for n in seconds:
            speed_up, more = seconds[first] / seconds[n], n / first
            expected = speed_up / more if strong else speed_up
            value = expect.number(got[n], shown)
            if math.isclose(value, expected, rel_tol=1e-9):
                continue
            otherwise = f"ideal is the time at {first}"
            if first != next(iter(seconds)):
                otherwise = (
                    f"relative to the smallest number, {first}, wherever it stands in"
                    " the dict"
                )
            elif strong:
                otherwise += f", times {first} / {n}"
            slips = _efficiency_slips(speed_up, more, expected, strong)
            why = expect.explain(value, slips, otherwise)
            mine, theirs = expect.distinct_texts(value, expected)
            raise Wrong(
                f"for {shown} you returned {mine} at {n} devices, expected {theirs}:"
                f" {why}"
            )


def _efficiency_slips(speed_up, more, expected, strong):
    """more: how many times as many devices as the smallest number of them."""
    slips = [(100 * expected, "a share, not percent")]
    if expected > 1:
        slips.append((1, "faster than the ideal is more than 1"))
    if strong:
        text = (
            f"that is the speed-up; {more:g} times as many devices could have been"
            f" {more:g} times as fast"
        )
        slips.append((speed_up, text))
    else:
        text = (
            "each device has as much work as before, so the same time would be perfect"
        )
        slips.append((speed_up / more, text))
    text = "the ideal time over the measured one, not the other way round"
    slips.append((1 / expected, text))
    return slips


EXERCISES = [
    Exercise(
        number="12.0",
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
        number="12.1",
        title="Latency's share of a ring",
        name="latency_share",
        stars=2,
        check=check_latency_share,
        hints=[
            (
                "How many steps does a ring of p ranks make, and how many bytes leave"
                " each rank in all?"
            ),
            "2(p - 1) steps of latency; 2(p - 1)/p of the bytes over the bandwidth.",
            "Divide the first by the sum of both. Mind one rank, where both are 0.",
        ],
        solution="""
def latency_share(size, ranks, latency, bandwidth):
    if ranks == 1:
        return 0.0
    waiting = 2 * (ranks - 1) * latency
    sending = 2 * (ranks - 1) / ranks * size / bandwidth
    return waiting / (waiting + sending)
""",
        praise=(
            "Divide both by 2(p - 1): latency against size / p / bandwidth. More ranks"
            " cut the message into smaller pieces, and the pieces become too small for"
            " the wire."
        ),
    ),
    Exercise(
        number="12.2",
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
    Exercise(
        number="12.3",
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
            "A crash leaves a .tmp behind, which the next save overwrites. On Linux a"
            " careful program also calls fsync on the folder, so that the new name"
            " survives a power cut."
        ),
    ),
    Exercise(
        number="12.4",
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
        number="12.5",
        title="Efficiency, weak and strong",
        name="efficiency",
        stars=2,
        check=check_efficiency,
        hints=[
            "What would a step take at n devices if nothing were lost?",
            (
                "Weak: as long as at the smallest number. Strong: that time, times"
                " smallest / n."
            ),
            "Efficiency is that ideal time divided by the measured one.",
        ],
        solution="""
def efficiency(seconds, strong):
    first = min(seconds)
    ideal = {n: seconds[first] * (first / n if strong else 1) for n in seconds}
    return {n: ideal[n] / seconds[n] for n in seconds}
""",
        praise=(
            "When somebody publishes an efficiency, ask for three things: weak or"
            " strong, relative to how many devices, and the seconds themselves. 90 % of"
            " a slow base is easy to reach."
        ),
    ),
]

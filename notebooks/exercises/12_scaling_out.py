"""Exercises of lesson 12."""

import contextlib
import math
import os
import pathlib
import tempfile
import unittest.mock

import torch
import torch.distributed as dist

from utils.exercises import Exercise, Wrong, apart, call, expect_number
from utils.simulate.collectives import Link, all_reduce
from utils.simulate.fake import fake_processes

WIDTH = 8


class Blocks(torch.nn.Sequential):
    """Some blocks, and a parameter that is in none of them."""

    def __init__(self, count):
        Linear, Block = torch.nn.Linear, torch.nn.Sequential
        super().__init__(
            *(
                Block(Linear(WIDTH, 16), torch.nn.ReLU(), Linear(16, WIDTH))
                for _ in range(count)
            )
        )
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

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

    mesh = init_device_mesh(
        "cpu", mesh_shape, mesh_dim_names=("replicate", "shard")[-len(mesh_shape) :]
    )
    model = Blocks(count)
    block_bytes = sum(p.nbytes for p in model[0].parameters())
    try:
        call(
            answer,
            model,
            mesh,
            shown=(
                f"{count} blocks and a mesh of {' × '.join(map(str, mesh_shape))}"
                " processes"
            ),
        )
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
            shapes = [
                " × ".join(map(str, shape))
                for shape in (p.device_mesh.shape, mesh.shape)
            ]
            raise Wrong(
                f"{name} is sharded over {shapes[0]} processes, and `mesh` is"
                f" {shapes[1]}: pass mesh=mesh"
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


def check_latency_share(answer):
    cases = [
        (100e6, 1024, 5e-6, 200e9),
        (100e6, 8, 5e-6, 200e9),
        (1024, 2, 1e-5, 1e9),
        (1e9, 2, 0.0, 1e9),
        (0, 4, 1e-6, 1e9),
        (1e6, 1, 1e-6, 1e9),
    ]
    for size, ranks, latency, bandwidth in cases:
        shown = f"{size:g} bytes, {ranks} ranks, {latency:g} s, {bandwidth:g} bytes/s"
        got = expect_number(
            call(answer, size, ranks, latency, bandwidth, shown=shown), shown
        )
        steps, share = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
        whole = all_reduce(size, ranks, Link(latency, bandwidth))
        expected = steps * latency / whole if whole else 0.0
        if math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12):
            continue
        got_text, expected_text = apart(got, expected)
        why = (
            f"expected {expected_text}: {steps} steps, and {share:.4g} times the bytes"
            " from each rank"
        )
        if ranks == 1:
            why = "expected 0: a single rank sends nothing"
        elif math.isclose(got, latency * steps, rel_tol=1e-9):
            why += ". That is the time of the latency, not its share"
        elif math.isclose(got, 1 - expected, rel_tol=1e-9):
            why += ". That is the share of the bytes"
        elif math.isclose(got, whole, rel_tol=1e-9):
            why += ". That is the whole time"
        elif expected < 1 and math.isclose(
            got, expected / (1 - expected), rel_tol=1e-9
        ):
            why += ". Divide by the whole time, not by that of the bytes"
        elif math.isclose(got, 100 * expected, rel_tol=1e-9):
            why += ". A number from 0 to 1 is asked, not percent"
        elif math.isclose(
            got,
            (ranks - 1) * latency / ((ranks - 1) * latency + size / bandwidth),
            rel_tol=1e-9,
        ):
            why += ". A step carries one piece of the bytes, 1/p of them"
        raise Wrong(f"for {shown} you returned {got_text}, {why}")


def check_rest_of_epoch(answer):
    cases = [
        (8, 6, 2, 22),
        (9, 6, 3, 22),
        (4, 6, 1, 22),
        (1, 4, 3, 22),
        (11, 4, 3, 22),
        (0, 5, 2, 22),
        (8, 6, 4, 22),
    ]
    cases += [(5, 2, 3, 10), (4, 2, 3, 10), (12, 50, 3, 10), (7, 1, 2, 5), (3, 1, 1, 1)]
    for steps, batch, size, samples in cases:
        epoch, done = divmod(steps, -(-samples // batch))
        batches = _rest(_order(samples)(epoch), done, batch)
        for rank in range(size):
            shown = (
                f"steps = {steps}, batch = {batch}, rank = {rank}, size = {size},"
                f" {samples} samples an epoch"
            )
            got = call(answer, steps, _order(samples), batch, rank, size, shown=shown)
            expected = [samples[rank::size] for samples in batches]
            if isinstance(got, (list, tuple)):
                got = [
                    part.tolist() if hasattr(part, "tolist") else part for part in got
                ]
            if not isinstance(got, list) or not all(
                isinstance(part, (list, tuple)) for part in got
            ):
                raise Wrong(
                    f"for {shown} you returned {got!r}, expected a list of lists, one"
                    " for each step"
                )
            got = [list(part) for part in got]
            if got != expected:
                why = f"the run is in epoch {epoch}, steps done: {done}"
                why += _slip(
                    got, expected, _order(samples), epoch, done, batch, rank, size
                )
                raise Wrong(
                    f"for {shown} you returned {got}, expected {expected}: {why}"
                )


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
        if got == [samples[rank::size] for samples in _rest(order(other), done, batch)]:
            return f"; you took the order of epoch {other}"
    if got == [part for part in expected if part]:
        return "; a step in which this rank has no sample is an empty list"
    if sum(batches, [])[rank::size] == sum(got, []) != sum(expected, []):
        return (
            "; the samples are divided within each step, so that steps are the same for"
            " any number of processes"
        )
    if not got and done == 0:
        return "; the epoch before has just ended, so this is all of the next one"
    if len(got) != len(expected):
        return (
            f"; {len(expected)} steps remain, the last of which may be smaller, not"
            f" {len(got)}"
        )
    if got == batches:
        return "; these are the samples of all ranks"
    for length in (len, lambda part: batch):
        if got == [
            s[rank * length(s) // size : (rank + 1) * length(s) // size]
            for s in batches
        ]:
            return (
                "; a rank takes every size-th sample of a step, not a part in one piece"
            )
    wrong = next(number for number, part in enumerate(got) if part != expected[number])
    return (
        f"; step {done + wrong} of the epoch takes {batches[wrong]}, this rank those at"
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
    seen, real = {}, os.fsync

    def write(file):
        file.write(b"new ")
        file.flush()
        seen["while writing"] = path.read_bytes() if path.exists() else b""
        file.write(b"checkpoint")

    def fsync(descriptor):
        state = os.fstat(
            descriptor if isinstance(descriptor, int) else descriptor.fileno()
        )
        beside = any(p.stat().st_ino == state.st_ino for p in path.parent.iterdir())
        seen.setdefault(
            "at fsync",
            (path.read_bytes() if path.exists() else b"", beside, state.st_size),
        )
        return real(descriptor)

    def watched(function):
        def run(*args, **kwargs):
            result = function(*args, **kwargs)
            if not path.exists():
                seen["gone"] = True
            return result

        return run

    path.write_bytes(b"old checkpoint")
    before = path.stat().st_ino
    with contextlib.ExitStack() as stack:
        for name in ("unlink", "remove", "rename", "replace"):
            stack.enter_context(
                unittest.mock.patch.object(os, name, watched(getattr(os, name)))
            )
        syncs = [
            getattr(os, name) for name in ("fsync", "fdatasync") if hasattr(os, name)
        ]
        for function in syncs:
            stack.enter_context(
                unittest.mock.patch.object(os, function.__name__, fsync)
            )
        names = {
            name: fsync
            for name, value in getattr(answer, "__globals__", {}).items()
            if any(value is f for f in syncs)
        }
        # from os import fsync
        stack.enter_context(
            unittest.mock.patch.dict(getattr(answer, "__globals__", {}), names)
        )
        call(answer, write, path, shown="a write that goes well")
    if not path.exists():
        raise Wrong("after a save that went well, there is no file at path")
    if path.read_bytes() != b"new checkpoint":
        raise Wrong(
            f"after a save that went well, path holds {path.read_bytes()!r}, expected"
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


def _save_badly(answer, path):
    path.write_bytes(b"old checkpoint")
    after = ""
    for error in (
        OSError("no space left on device"),
        ValueError("this cannot be saved"),
    ):

        def fails(file, error=error):
            file.write(b"half a ")
            file.flush()
            raise error

        try:
            answer(fails, path)
        except Exception as raised:
            if isinstance(raised, FileExistsError):
                raise Wrong(
                    f"{after}its half file is still there, and the next save cannot"
                    f" open it: {raised}"
                ) from raised
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
        after = "after a save that failed, "
    call(
        answer,
        lambda file: file.write(b"third try"),
        path,
        shown="a save after two that failed",
    )
    if path.read_bytes() != b"third try":
        raise Wrong(
            f"a save after two that failed left {path.read_bytes()!r}, expected b'third"
            " try'"
        )


def check_best_interval(answer):
    for cost, host_mtbf, hosts in (
        (60.0, 3e7, 2048),
        (5.0, 3e7, 1),
        (120.0, 1e7, 16),
        (60.0, 3e7, 512),
    ):
        shown = f"cost = {cost:g} s, host_mtbf = {host_mtbf:g} s, {hosts} hosts"
        got = call(answer, cost, host_mtbf, hosts, shown=shown)
        got = got.tolist() if hasattr(got, "tolist") else got
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(
                f"for {shown} you returned {got!r}, expected a pair (seconds, share)"
            )
        M = host_mtbf / hosts
        T = math.sqrt(2 * cost * M)
        seconds, share = (expect_number(value, shown) for value in got)
        if not math.isclose(seconds, T, rel_tol=1e-6):
            texts = apart(seconds, T)
            why = f"expected {texts[1]} s, as the job crashes every {M:.4g} s"
            for other, text in (
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
                (M, "a checkpoint at each crash is too late: T = sqrt(2 · cost · M)"),
                (T**2, "the root is missing"),
                (cost / T + T / (2 * M), "that is the share. First the seconds"),
            ):
                if math.isclose(seconds, other, rel_tol=1e-6):
                    why += f"; {text}"
            raise Wrong(f"for {shown} you returned an interval of {texts[0]} s, {why}")
        expected = cost / T + T / (2 * M)
        if not math.isclose(share, expected, rel_tol=1e-6):
            texts = apart(share, expected)
            why = (
                f"expected {texts[1]}: cost / T for saving and T / (2 M) for work that"
                f" is repeated, M = {M:.4g} s"
            )
            if math.isclose(share, 100 * expected, rel_tol=1e-6):
                why = f"expected {texts[1]}, not percent"
            elif math.isclose(share, 1 - expected, rel_tol=1e-6):
                why = f"expected {texts[1]}, which is lost, not what remains"
            raise Wrong(f"for {shown} you returned a share of {texts[0]}, {why}")


def check_efficiency(answer):
    weak = {8: 0.25, 64: 0.26, 512: 0.3125}
    fixed = {1: 64.0, 8: 8.0, 64: 1.25, 512: 0.5}
    cases = [
        (weak, False),
        (fixed, True),
        ({512: 0.5, 8: 0.25}, False),
        ({64: 1.0, 128: 0.625}, True),
    ]
    cases += [
        ({256: 0.5, 16: 4.0}, True),
        ({8: 0.5}, False),
        ({4: 0.5}, True),
        (weak, True),
        (fixed, False),
    ]
    cases += [({1: 8.0, 4: 1.6}, True)]  # faster than the ideal
    for seconds, strong in cases:
        shown = f"{seconds}, strong={strong}"
        got = call(answer, seconds, strong, shown=shown)
        first = min(seconds)
        expected = {
            n: seconds[first] / t * (first / n if strong else 1)
            for n, t in seconds.items()
        }
        if not isinstance(got, dict) or set(got) != set(seconds):
            raise Wrong(
                f"for {shown} you returned {got!r}, expected a dict with the keys"
                f" {sorted(seconds)}"
            )
        for n in seconds:
            value = expect_number(got[n], shown)
            if math.isclose(value, expected[n], rel_tol=1e-9):
                continue
            texts = apart(value, expected[n])
            why = f"expected {texts[1]}"
            if math.isclose(value, 100 * expected[n], rel_tol=1e-9):
                why += ": a share, not percent"
            elif value == 1 < expected[n]:
                why += ": faster than the ideal is more than 1"
            elif strong and math.isclose(
                value, seconds[first] / seconds[n], rel_tol=1e-9
            ):
                why += (
                    f": that is the speed-up; {n} devices could have been {n / first:g}"
                    f" times as fast as {first}"
                )
            elif not strong and math.isclose(
                value, seconds[first] / seconds[n] * first / n, rel_tol=1e-9
            ):
                why += (
                    ": each device has as much work as before, so the same time would"
                    " be perfect"
                )
            elif math.isclose(value, 1 / expected[n], rel_tol=1e-9):
                why += ": the ideal time over the measured one, not the other way round"
            elif first != next(iter(seconds)):
                why += (
                    f": relative to the smallest number, {first}, wherever it stands in"
                    " the dict"
                )
            elif strong:
                why += f": ideal is the time at {first}, times {first} / {n}"
            else:
                why += f": ideal is the time at {first}"
            raise Wrong(f"for {shown} you returned {texts[0]} at {n} devices, {why}")


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

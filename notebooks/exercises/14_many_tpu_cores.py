"""Exercises of lesson 14."""

import functools

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.data import DataLoader, TensorDataset

from course import expect
from course.answers import NotAnswered, Wrong, call, unanswered
from course.exercises import Exercise
from exercises.doubles.toy_xla import ToySpmd
from simulate.fake import fake_processes
from simulate.sharding import blocks


def check_cut(answer):
    for n, rows, columns in ((8, 12, 8), (4, 6, 10), (6, 8, 6)):
        xs, x = ToySpmd(n), torch.zeros(rows, columns)
        shown = f"{n} devices and a {rows} × {columns} matrix"
        call(answer, xs, x, n, shown=shown)
        if not xs.marked or xs.marked[-1].tensor is not x:
            what = "another tensor" if xs.marked else "nothing"
            raise Wrong(
                f"for {shown} {what} was marked: expected xs.mark_sharding(x, mesh,"
                " spec), of x itself"
            )
        mark, devices = xs.marked[-1], list(range(n))
        mesh = {"data": n // 2, "model": 2}
        axes = mark.mesh.shape()
        # as lists, for the order of the axes counts
        said = "the mesh is"
        expect.equal([*axes.items()], [*mesh.items()], shown, said=said)
        said, why = "the mesh has the devices", "row by row"
        expect.equal(mark.mesh.device_ids, devices, shown, why, said=said)
        why = "the second entry of a spec cuts the columns, here along `data`"
        if mark.spec[0] is not None:
            why = "the first entry of a spec is for the rows, and they stay whole"
        expected = blocks(x.shape, mesh, (None, "data"))
        for device, mine, theirs in zip(devices, mark.blocks, expected, strict=True):
            said = f"and the spec {mark.spec}, device {device} holds"
            expect.equal(_block(mine), _block(theirs), shown, why, said=said)


def _block(block):
    (top, bottom), (left, right) = block
    return f"rows {top}:{bottom} and columns {left}:{right}"


def check_rows(answer):
    for rows, n in ((24, 8), (10, 8), (12, 8), (7, 3), (9, 4), (3, 4), (5, 1)):
        for device, ((first, end),) in enumerate(blocks((rows,), {"all": n}, ("all",))):
            shown = f"device = {device}, rows = {rows}, n = {n}"
            asked = "a pair (first, end) of whole numbers"
            got = expect.listed(call(answer, device, rows, n, shown=shown))
            if isinstance(got, (tuple, list)):
                got = [*map(expect.listed, got)]
            got = expect.numbers(got, 2, shown, asked)
            for value in got:
                expect.instance(value, int, shown, asked)
            if first == end and got[0] == got[1]:
                continue  # nothing is nothing, wherever
            part = -(-rows // n)
            slips = [
                ((first, end - 1), "`end` is the first row not held, as in a slice"),
                ((first, end - first), "`end` says where its rows end, not how many"),
                ((first - part, end - part), "devices and rows count from 0"),
            ]
            why = f"a part has {rows} / {n} rows, rounded up: {part}, as long as any"
            why = f"{why} of the {rows} are left"
            for value, text in slips:
                # of uneven parts these say too much
                if tuple(got) == value and rows % n == 0:
                    why = text
            expect.equal(tuple(got), (first, end), shown, why)


LOADED = [  # samples, batch, world
    (50, 8, 1),
    (50, 8, 2),
    (50, 8, 4),
    (37, 12, 3),
    (50, 4, 4),
]


def check_loader(answer):
    for samples, batch, world in LOADED:
        data, taken = TensorDataset(torch.arange(samples)), []
        given = f"{samples} samples, batch = {batch}, world = {world}"
        for rank in range(world):
            shown = f"{given}, rank = {rank}"
            loader = call(answer, data, batch, rank, world, shown=shown)
            expect.instance(loader, DataLoader, shown, "a DataLoader")
            if not hasattr(loader.sampler, "set_epoch"):
                raise Wrong(
                    f"for {shown} the loader's sampler, a"
                    f" {type(loader.sampler).__name__}, has no set_epoch, which the"
                    " caller uses. DistributedSampler has it, and divides the data"
                )
            # other processes would give the same, and take longer
            loader.num_workers = 0
            epochs = [_numbers(loader, epoch, shown) for epoch in (0, 1, 2)]
            _judge_epochs(epochs, batch // world, shown)
            taken.append(epochs)
        for epoch in (0, 1, 2):
            shares = [sum(epochs[epoch], []) for epochs in taken]
            _judge_shares(shares, samples, batch // world, f"{given}, epoch {epoch}:")


def _numbers(loader, epoch, shown):
    """The samples of an epoch, batch by batch."""
    try:
        loader.sampler.set_epoch(epoch)
        return [[int(n) for n in part[0]] for part in loader]
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
        raise Wrong(f"for {shown} the loader raised {raised}") from error


def _judge_epochs(epochs, size, shown):
    sizes = sorted({len(part) for epoch in epochs for part in epoch})
    why = "each other shape is another compilation"
    if len(sizes) == 1 and sizes[0] > size:
        why = "`batch` counts all processes"
    expect.equal(sizes, [size], shown, why, said="the batches have the sizes")
    for k, epoch in ((1, 0), (2, 1), (2, 0)):
        if epochs[k] == epochs[epoch]:
            raise Wrong(
                f"for {shown} epochs {epoch} and {k} have the same order, expected a"
                " new one: shuffle by epoch"
            )


def _judge_shares(shares, samples, own_batch, shown):
    world, sizes = len(shares), [len(share) for share in shares]
    whole = samples // world // own_batch * own_batch
    # a sample more than whole batches came twice, which is said below
    said, why = "the processes have so many samples:", "all whole batches, each as many"
    if min(sizes) < whole or len(set(sizes)) > 1:
        expect.equal(sizes, [whole] * world, shown, why, said=said)
    strange = [n for share in shares for n in share if n >= samples]
    if strange:
        raise Wrong(f"for {shown} sample {strange[0]} is not of your data")
    for share in shares:
        if again := _twice(share):
            raise Wrong(
                f"for {shown} a process gets number {again[0]} more than once, so"
                " others are left out"
            )
    twice = _twice(sum(shares, []))
    if twice:
        why = "do all use the same order in an epoch, and each its own part of it?"
        if len(twice) < world:  # a sampler pads by up to world - 1
            why = (
                f"{samples} is no multiple of {world}, and the sampler fills up with"
                " samples that it has given; DistributedSampler(..., drop_last=True)"
                " does not"
            )
        raise Wrong(
            f"for {shown} {len(twice)} samples came to two processes, such as number"
            f" {twice[0]}: {why}"
        )


def _twice(numbers):
    return sorted({n for n in numbers if numbers.count(n) > 1})


def check_pair(answer):
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"expected two lists of placements, of a and of b, got {answer!r}")
    if any(map(unanswered, [answer, *answer])):
        raise NotAnswered
    for name, placements in zip("ab", answer, strict=True):
        _judge_placements(name, placements)
    forward = _issued(*map(list, answer))
    for name, (along_model, along_data) in zip("ab", answer, strict=True):
        if along_data.is_shard():
            raise Wrong(
                f"{name} is cut along data: its second placement is {along_data},"
                " expected Replicate()"
            )
        if not along_model.is_shard():
            raise Wrong(
                f"{name} is not cut along model: its first placement is {along_model}"
            )
    # y has 16 / 4 rows and 8 columns of 4 bytes here
    if forward != [("all_reduce", 128, 2)]:
        words = ", ".join("{} of {} bytes among {}".format(*each) for each in forward)
        raise Wrong(
            f"with a {list(answer[0])} and b {list(answer[1])} the forward pass sends"
            f" {words or 'nothing'}, expected one all_reduce of 128 bytes among 2."
            " Which columns of x @ a has a device, and which rows of b does it need"
            " for them?"
        )


def _judge_placements(name, placements):
    asked = "a list of two placements, for the axes model and data"
    if not isinstance(placements, (tuple, list)) or len(placements) != 2:
        raise Wrong(f"{name} is {placements!r}, expected {asked}")
    for placement in placements:
        if not isinstance(placement, (Shard, Replicate)):
            raise Wrong(
                f"{name} has {placement!r}, expected Shard(dimension) or Replicate()"
            )
        if placement.is_shard() and not -2 <= placement.dim < 2:
            raise Wrong(f"{name} has {placement}, and only the dimensions 0 and 1")


def _issued(a, b):
    """What torch.relu(x @ a) @ b sends, up to a y that is whole along model."""
    with fake_processes(8) as collectives:
        mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("model", "data"))
        cut = functools.partial(distribute_tensor, device_mesh=mesh, src_data_rank=None)
        rows = [Replicate(), Shard(0)]
        x = cut(torch.ones(16, 8), placements=rows)
        a = cut(torch.ones(8, 32), placements=a)
        b = cut(torch.ones(32, 8), placements=b)
        y = torch.relu(x @ a) @ b
        y.redistribute(placements=rows)
    return [tuple(each) for each in collectives]


def check_break_even(answer):
    for width, p in ((1024, 8), (1024, 2), (4096, 2), (100, 6)):
        shown = f"width = {width}, p = {p}"
        asked = "a number of tokens"
        got = expect.real(call(answer, width, p, shown=shown), shown, asked)
        got = int(got) if got.is_integer() else got
        slips = [
            (
                12 * width,
                "In a ring, a gather or a reduce-scatter sends half of what an"
                " all-reduce does, and both all-reduces count",
            ),
            (
                4 * width,
                "The weights are gathered twice, and their gradients reduce-scattered:"
                " three times",
            ),
            (
                3 * width,
                "The pair has two weights, of 4 × width² each; all numbers have 2"
                " bytes, and a ring sends a sum twice",
            ),
        ]
        fault = "For which tokens are they equal? p drops out, it is on both sides"
        fault = expect.explain(got, slips, fault)
        why = (
            f"two all-reduces of tokens × {width} against three collectives of"
            f" 8 × {width}², each of which sends half as much. {fault}"
        )
        expect.close(got, 6 * width, shown, why)


EXERCISES = [
    Exercise(
        number="14.0",
        title="Cut the columns",
        name="cut_columns",
        stars=1,
        check=check_cut,
        hints=[
            (
                "First a mesh, then a mark: xs.Mesh(devices, sizes, names),"
                " xs.mark_sharding(tensor, mesh, spec)."
            ),
            (
                'The mesh: range(n) as devices, (n // 2, 2) as sizes, ("data", "model")'
                " as names."
            ),
            (
                "A spec has one entry for each dimension of the tensor: rows, then"
                " columns. None leaves a dimension whole."
            ),
        ],
        solution="""
def cut_columns(xs, x, n):
    mesh = xs.Mesh(range(n), (n // 2, 2), ("data", "model"))
    xs.mark_sharding(x, mesh, (None, "data"))
""",
        praise=(
            "Each column lies on two devices, as the spec does not name `model`: what"
            " it does not name is copied."
        ),
    ),
    Exercise(
        number="14.1",
        title="A pair of matmuls",
        name="pair",
        stars=1,
        check=check_pair,
        hints=[
            (
                "A placement has an entry for each axis of the mesh: here the first is"
                " for model, the second for data. Along data, a and b are copied."
            ),
            (
                "If a is cut by columns, each device has some columns of x @ a, with"
                " nothing sent. relu changes each number by itself."
            ),
            (
                "Then it needs those rows of b that belong to its columns, and has a"
                " part of the sum for all of y."
            ),
        ],
        solution="""
from torch.distributed.tensor import Replicate, Shard

pair = [Shard(1), Replicate()], [Shard(0), Replicate()]
""",
        praise=(
            "The first by its outputs, the second by its inputs. In a `Linear`, whose"
            " weight is outputs × inputs, it is Shard(0), then Shard(1)."
        ),
    ),
    Exercise(
        number="14.2",
        title="Who holds what?",
        name="my_rows",
        stars=1,
        check=check_rows,
        hints=[
            (
                "All parts have the size of the largest: rows / n, rounded up. -(-a //"
                " b) rounds up."
            ),
            (
                "Device d begins at d times that size, and no part goes beyond the end"
                " of the tensor."
            ),
            "min(..., rows) for the beginning and for the end.",
        ],
        solution=(
            "def my_rows(device, rows, n):\n"
            "    part = -(-rows // n)\n"
            "    return min(device * part, rows), min((device + 1) * part, rows)\n"
        ),
        praise=(
            "On a mesh with several axes this holds for each dimension, with the place"
            " along its axis as device."
        ),
    ),
    Exercise(
        number="14.3",
        title="The loader for each process",
        name="my_loader",
        stars=2,
        check=check_loader,
        hints=[
            (
                "DistributedSampler divides the data. DataLoader takes it as"
                " sampler=..., without shuffle."
            ),
            (
                "The sampler takes the number of processes, the rank and shuffle=True."
                " A process takes batch // world."
            ),
            (
                "drop_last=True twice: in the sampler, or it repeats samples; in the"
                " loader, or the last batch is smaller."
            ),
        ],
        solution="""
from torch.utils.data import DataLoader, DistributedSampler


def my_loader(data, batch, rank, world):
    sampler = DistributedSampler(data, world, rank, drop_last=True)
    return DataLoader(data, batch_size=batch // world, sampler=sampler, drop_last=True)
""",
        praise=(
            "The seed of the sampler must be the same in all processes. The default is;"
            " one of your own may not be."
        ),
    ),
    Exercise(
        number="14.4",
        title="Tensor parallel, and when not",
        name="my_break_even",
        stars=2,
        check=check_break_even,
        hints=[
            (
                "An all-reduce of S bytes sends 2 (p - 1) / p times S, a gather or a"
                " reduce-scatter (p - 1) / p times. Write down S for each."
            ),
            (
                "Tensor parallel: S is tokens × width numbers, two times. Fully"
                " sharded: width × 4 width and 4 width × width, three times."
            ),
            (
                "4 × tokens × width = 3 × 8 × width². What happened to p, and to the"
                " bytes of a number?"
            ),
        ],
        solution="def my_break_even(width, p):\n    return 6 * width\n",
        praise=(
            "Below six times the width, tensor parallel sends less, whatever the"
            " number of devices."
        ),
    ),
]

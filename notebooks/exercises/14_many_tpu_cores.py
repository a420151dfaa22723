"""Exercises of lesson 14."""

import functools
import math
import numbers
import operator

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.data import DataLoader, TensorDataset

from course import expect
from course.answers import DOTS, NotAnswered, Wrong, call, plain
from course.exercises import Exercise
from simulate.fake import fake_processes
from simulate.sharding import blocks


class _Spmd:
    """What torch_xla.distributed.spmd knows of meshes and specs, for n devices and
    without torch_xla.
    """

    def __init__(self, n):
        self.Mesh, self.marked = functools.partial(_Mesh, n), []

    def mark_sharding(self, t, mesh, partition_spec):
        if not isinstance(mesh, _Mesh):
            raise TypeError(
                f"the second argument must be a Mesh, not a {type(mesh).__name__}"
            )
        spec = tuple(
            mesh.axis_names[axis] if isinstance(axis, int) else axis
            for axis in partition_spec
        )
        held = blocks(t.shape, mesh.shape(), spec)
        for old, _, cut, before in self.marked:
            if old is t and any(cut) and before != held:
                raise RuntimeError("Existing annotation must be cleared first")
        self.marked.append((t, mesh, spec, held))
        return t


class _Mesh:
    def __init__(self, n, device_ids, mesh_shape, axis_names=None):
        self.device_ids = plain(list(device_ids))
        self.mesh_shape = tuple(map(operator.index, mesh_shape))
        axes = len(self.mesh_shape)
        self.axis_names = tuple(axis_names or (f"axis {k}" for k in range(axes)))
        assert len(self.device_ids) == n, (
            f"Number of device IDs ({len(self.device_ids)}) must match the global"
            f" number of devices ({n})"
        )
        assert math.prod(self.mesh_shape) == n, (
            f"Number of device IDs ({n}) must match mesh size"
            f" ({math.prod(self.mesh_shape)})"
        )
        assert len(self.axis_names) == axes, (
            f"Number of axis names ({len(self.axis_names)}) must match mesh dimensions"
            f" ({axes})"
        )

    def shape(self):
        return dict(zip(self.axis_names, self.mesh_shape, strict=True))


def check_cut(answer):
    for n, rows, columns in ((8, 12, 8), (4, 6, 10), (6, 8, 6)):
        xs, x = _Spmd(n), torch.zeros(rows, columns)
        mesh = {"data": n // 2, "model": 2}
        given = f"{n} devices and a {rows} × {columns} matrix"
        call(answer, xs, x, n, shown=given)
        shown = f"for {given}"
        if not xs.marked:
            raise Wrong(
                f"{shown} nothing was marked: expected xs.mark_sharding(x, mesh, spec)"
            )
        tensor, found, spec, held = xs.marked[-1]
        if tensor is not x:
            raise Wrong(f"{shown} another tensor was marked, expected x itself")
        if list(found.shape().items()) != list(mesh.items()):
            raise Wrong(f"{shown} the mesh is {found.shape()}, expected {mesh}")
        devices = list(range(n))
        if found.device_ids != devices:
            raise Wrong(
                f"{shown} the mesh has the devices {found.device_ids}, expected"
                f" {devices}, row by row"
            )
        why = "the second entry of a spec cuts the columns, here along `data`"
        if spec[0] is not None:
            why = "the first entry of a spec is for the rows, and they stay whole"
        expected = blocks(x.shape, mesh, (None, "data"))
        for device, mine, theirs in zip(devices, held, expected, strict=True):
            if mine != theirs:
                raise Wrong(
                    f"{shown} and the spec {spec}, device {device} holds"
                    f" {_block(mine)}, expected {_block(theirs)}: {why}"
                )


def _block(block):
    (top, bottom), (left, right) = block
    return f"rows {top}:{bottom} and columns {left}:{right}"


def check_rows(answer):
    for rows, n in ((24, 8), (10, 8), (12, 8), (7, 3), (9, 4), (3, 4), (5, 1)):
        for device, (held,) in enumerate(blocks((rows,), {"all": n}, ("all",))):
            shown = f"device = {device}, rows = {rows}, n = {n}"
            got = expect.listed(call(answer, device, rows, n, shown=shown))
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise Wrong(
                    f"for {shown} you returned {got!r}, expected a pair (first, end)"
                )
            got = tuple(map(expect.listed, got))
            expected = tuple(held)
            if not all(type(value) is int for value in got):
                raise Wrong(
                    f"for {shown} you returned {got}, expected two whole numbers"
                )
            nothing = expected[0] == expected[1]
            if not (nothing and got[0] == got[1]):
                why = _why_rows(got, *expected, rows, n)
                expect.equal(got, expected, shown, why)


def _why_rows(got, first, end, rows, n):
    part = -(-rows // n)
    if not rows % n:
        if got == (first, end - 1):
            return "`end` is the first row that it does not hold, as in a slice"
        if got == (first, end - first):
            return "the second number says where its rows end, not how many there are"
        if got in ((first - part, end - part), (first + 1, end + 1)):
            return "devices and rows count from 0"
    count = "1 row" if part == 1 else f"{part} rows"
    why = f"each part has {count}, {rows} / {n} rounded up"
    if first == end:
        return f"{why}, and the devices before it hold all {rows}"
    if end - first < part:
        return f"{why}, but the tensor ends at {rows}"
    return why


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
        for rank in range(world):
            shown = (
                f"{samples} samples, batch = {batch}, rank = {rank}, world = {world}"
            )
            loader = call(answer, data, batch, rank, world, shown=shown)
            if not isinstance(loader, DataLoader):
                raise Wrong(
                    f"for {shown} you returned {type(loader).__name__}, expected a"
                    " DataLoader"
                )
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
            _judge_shares(shares, samples, batch, world, epoch)


def _numbers(loader, epoch, shown):
    try:
        loader.sampler.set_epoch(epoch)
        return [[int(n) for n in part[0]] for part in loader]
    except Exception as error:
        raise Wrong(
            f"for {shown} the loader raised {type(error).__name__}: {error}"
        ) from error


def _judge_epochs(epochs, size, shown):
    sizes = sorted({len(part) for epoch in epochs for part in epoch})
    if not sizes:
        raise Wrong(f"for {shown} the loader has no batches")
    if len(sizes) > 1:
        raise Wrong(
            f"for {shown} the batches have {sizes} samples: each other shape is another"
            " compilation"
        )
    if sizes != [size]:
        why = ": `batch` counts all processes" if sizes[0] > size else ""
        raise Wrong(
            f"for {shown} the batches have {sizes[0]} samples, expected {size}{why}"
        )
    for k, epoch in ((1, 0), (2, 1), (2, 0)):
        if epochs[k] == epochs[epoch]:
            raise Wrong(
                f"for {shown} epochs {epoch} and {k} have the same order, expected a"
                " new one: shuffle by epoch"
            )


def _judge_shares(taken, samples, batch, world, epoch):
    shown = f"for {samples} samples, batch = {batch}, world = {world}, epoch {epoch}:"
    sizes = [len(share) for share in taken]
    if len(set(sizes)) > 1:
        raise Wrong(
            f"{shown} the processes have {sizes} samples, expected as many each"
        )
    own_batch = batch // world
    missing = samples // world // own_batch * own_batch - sizes[0]
    if missing > 0:
        raise Wrong(
            f"{shown} a process gets {sizes[0]} samples, expected {missing} more: all"
            " whole batches"
        )
    strange = [number for share in taken for number in share if number >= samples]
    if strange:
        raise Wrong(
            f"{shown} sample {strange[0]} is not of the data that you were given"
        )
    for share in taken:
        if again := _twice(share):
            raise Wrong(
                f"{shown} a process gets number {again[0]} more than once, so others"
                " are left out"
            )
    twice = _twice(sum(taken, []))
    if len(twice) >= world:  # a sampler pads by up to world - 1
        raise Wrong(
            f"{shown} {len(twice)} samples came to two processes, such as number"
            f" {twice[0]}: expected none. Do all use the same order in an epoch, and"
            " each its own part of it?"
        )
    if twice:
        raise Wrong(
            f"{shown} sample {twice[0]} came to two processes: {samples} is no multiple"
            f" of {world}, and the sampler fills up with samples that it has given"
            " already; DistributedSampler(..., drop_last=True) does not"
        )


def _twice(numbers):
    return sorted({n for n in numbers if numbers.count(n) > 1})


def check_pair(answer):
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"expected two lists of placements, of a and of b, got {answer!r}")
    if any(part is DOTS for part in answer):
        raise NotAnswered
    for name, placements in zip("ab", answer, strict=True):
        _judge_placements(name, placements)
    forward = _issued(*map(list, answer))
    for name, placements in zip("ab", answer, strict=True):
        along_model, along_data = placements
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
        words = ", ".join(
            f"{name} of {size} bytes among {ranks}" for name, size, ranks in forward
        )
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
    if any(placement is DOTS for placement in placements):
        raise NotAnswered
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
        got = _tokens(answer, width, p)
        if math.isclose(got, 6 * width, rel_tol=1e-6):
            continue
        if math.isclose(got, _tokens(answer, width, 3 * p), rel_tol=1e-6):
            slips = [
                (
                    12 * width,
                    "In a ring, a gather or a reduce-scatter sends half of what an"
                    " all-reduce does, and both all-reduces count",
                ),
                (
                    4 * width,
                    "The weights are gathered twice, and their gradients"
                    " reduce-scattered: three times",
                ),
                (
                    3 * width,
                    "The pair has two weights, of 4 × width² each; all numbers have 2"
                    " bytes, and a ring sends a sum twice",
                ),
            ]
            fault = expect.explain(got, slips, "For which tokens are they equal?")
        else:
            fault = (
                "p drops out: both are sums over all p devices, and the factor of a"
                " ring stands on both sides"
            )
        shown = f"width = {width}, p = {p}"
        why = (
            f"two all-reduces of tokens × {width} against three collectives of"
            f" 8 × {width}², each of which sends half as much. {fault}"
        )
        expect.close(got, 6 * width, shown, why)


def _tokens(answer, width, p):
    shown = f"width = {width}, p = {p}"
    got = call(answer, width, p, shown=shown)
    got = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        raise Wrong(f"for {shown} you returned {got!r}, expected a number of tokens")
    return int(got) if float(got).is_integer() else float(got)


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

"""Exercises of lesson 14."""

import math

import torch
from torch.utils.data import DataLoader, TensorDataset

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.messages import LabError
from utils.simulate.sharding import blocks, product


def check_rows(answer):
    for rows, n in ((16, 8), (10, 8), (12, 8), (7, 3), (3, 4), (5, 1)):
        expected = [tuple(block[0]) for block in blocks((rows,), {"all": n}, ("all",))]
        for device in range(n):
            shown = f"device = {device}, rows = {rows}, n = {n}"
            got = call(answer, device, rows, n, shown=shown)
            if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
                raise NotAnswered
            got = got.tolist() if hasattr(got, "tolist") else got
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise Wrong(f"for {shown} you returned {got!r}, expected a pair (first, end)")
            nothing = expected[device][0] == expected[device][1]
            if tuple(got) == expected[device] or (nothing and got[0] == got[1]):
                continue
            why = f"expected {expected[device]}: each part has {-(-rows // n)} rows, {rows} / {n} rounded up"
            first, end = expected[device]
            if first == end:
                why += f", and the devices before it hold all {rows}"
            elif end - first < -(-rows // n):
                why += f", but the tensor ends at {rows}"
            raise Wrong(f"for {shown} you returned {tuple(got)}, {why}")


def check_loader(answer):
    data = TensorDataset(torch.arange(50))
    for batch, world in ((8, 1), (8, 2), (8, 4), (12, 3), (4, 4)):
        taken = []
        for rank in range(world):
            shown = f"batch = {batch}, rank = {rank}, world = {world}, 50 samples"
            loader = call(answer, data, batch, rank, world, shown=shown)
            if not isinstance(loader, DataLoader):
                raise Wrong(f"for {shown} you returned {type(loader).__name__}, expected a DataLoader")
            if not hasattr(loader.sampler, "set_epoch"):
                raise Wrong(
                    f"for {shown} the loader's sampler has no set_epoch: MpDeviceLoader does not divide the data"
                )
            epochs = []
            for epoch in (0, 1, 0):
                loader.sampler.set_epoch(epoch)
                epochs.append([[int(n) for n in part[0]] for part in loader])
            _judge_epochs(epochs, batch // world, shown)
            taken.append([n for part in epochs[0] for n in part])
        _judge_shares(taken, batch, world)


def _judge_epochs(epochs, size, shown):
    sizes = sorted({len(part) for part in epochs[0]})
    if len(sizes) > 1:
        raise Wrong(f"for {shown} the batches have {sizes} samples: each other shape is another compilation")
    if sizes != [size]:
        raise Wrong(f"for {shown} the batches have {sizes} samples, expected {size}: `batch` counts all processes")
    if epochs[0] == epochs[1]:
        raise Wrong(f"for {shown} two epochs have the same order, expected another one: shuffle")
    if epochs[0] != epochs[2]:
        raise Wrong(
            f"for {shown} epoch 0 came out otherwise the second time: the processes would not agree on an order"
        )


def _judge_shares(taken, batch, world):
    shown = f"batch = {batch}, world = {world}"
    if len({len(share) for share in taken}) > 1:
        raise Wrong(f"for {shown} the processes have {[len(share) for share in taken]} samples, expected as many each")
    flat = [n for share in taken for n in share]
    twice = sorted({n for n in flat if flat.count(n) > 1})
    if len(twice) > world:  # a sampler pads by up to world - 1
        raise Wrong(f"for {shown} {len(twice)} samples came to two processes, such as number {twice[0]}: expected none")
    if twice:
        raise Wrong(
            f"for {shown} sample {twice[0]} came to two processes: 50 is no multiple of {world}, and the sampler fills "
            "up with samples that it has given already; DistributedSampler(..., drop_last=True) does not"
        )


def check_pair(answer):
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"expected two specs, got {answer!r}")
    if any(spec is DOTS for spec in answer):
        raise NotAnswered
    names, mesh = ("up_weight", "down_weight"), {"data": 4, "model": 2}
    for name, spec in zip(names, answer, strict=True):
        if not isinstance(spec, (tuple, list)) or len(spec) != 2:
            raise Wrong(f"{name} is {spec!r}, expected two entries, for outputs and inputs")
        if not all(axis is None or isinstance(axis, str) for axis in spec):
            raise Wrong(f"{name} is {tuple(spec)}, expected the name of an axis, or None, for each of the two")
        if "model" not in spec:
            raise Wrong(f"{name} is {tuple(spec)}, expected one dimension cut along 'model'")
    (up, down), specs, moved = answer, ("data", None), []
    for name, spec, sizes in (("up", up, (64, 32, 128)), ("down", down, (64, 128, 32))):
        try:
            specs, found = product(*sizes, mesh, specs, tuple(spec)[::-1])
        except LabError as error:
            raise Wrong(f"{name}_weight is {tuple(spec)}: {error}") from None
        moved.append([f"{c.kind} along {c.axis}" for c in found])
    if moved[0]:
        raise Wrong(f"with up_weight {tuple(up)}, {' and '.join(moved[0])} in the first layer, expected nothing")
    if moved[1] != ["all-reduce along model"]:
        raise Wrong(
            f"with up_weight {tuple(up)} and down_weight {tuple(down)}, {' and '.join(moved[1]) or 'nothing'} in the "
            "second layer, expected one all-reduce along model: its inputs are cut along 'model' already"
        )


def check_break_even(answer):
    for width, p in ((1024, 8), (4096, 2), (100, 4)):
        shown = f"width = {width}, p = {p}"
        got = call(answer, width, p, shown=shown)
        got = got.item() if hasattr(got, "item") else got
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise Wrong(f"for {shown} you returned {got!r}, expected a number of tokens")
        if math.isclose(got, 4 * width, rel_tol=1e-6):
            continue
        why = f"expected {4 * width}: two all-reduces of tokens × {width} against one of 8 × {width}²"
        if math.isclose(got, 8 * width, rel_tol=1e-6):
            why += ". There are two all-reduces of activations in a step, one forward and one backward"
        elif math.isclose(got, 2 * width, rel_tol=1e-6):
            why += ". The pair has two weights, of 4 × width² each"
        elif math.isclose(got * p, 4 * width, rel_tol=1e-6) or math.isclose(got, 4 * width * p, rel_tol=1e-6):
            why += ". The factor 2 (p - 1) / p of a ring stands on both sides"
        raise Wrong(f"for {shown} you returned {got:g}, {why}")


EXERCISES = [
    Exercise(
        number="14.1",
        title="who holds what",
        name="my_rows",
        stars=2,
        check=check_rows,
        hints=[
            "All parts have the size of the largest: rows / n, rounded up. -(-a // b) rounds up.",
            "Device d begins at d times that size, and no part goes beyond the end of the tensor.",
            "min(..., rows) for the beginning and for the end.",
        ],
        solution="def my_rows(device, rows, n):\n"
        "    part = -(-rows // n)\n"
        "    return min(device * part, rows), min((device + 1) * part, rows)\n",
        praise="On a mesh with several axes this holds for each dimension, with the place along its axis as device.",
        wrong={
            "def my_rows(device, rows, n):\n    part = rows // n\n    return device * part, (device + 1) * part\n": (
                "rounded up"
            ),
            "def my_rows(device, rows, n):\n    k = -(-rows // n)\n    return device * k, (device + 1) * k\n": (
                "hold all 10"
            ),
            "def my_rows(device, rows, n):\n    q, r = divmod(rows, n)\n"
            "    first = device * q + min(device, r)\n    return first, first + q + (device < r)\n": "rounded up",
            "def my_rows(device, rows, n):\n    return rows // n\n": "expected a pair",
        },
    ),
    Exercise(
        number="14.2",
        title="the loader for each process",
        name="my_loader",
        stars=2,
        check=check_loader,
        hints=[
            "DistributedSampler divides the data. DataLoader takes it as sampler=..., without shuffle.",
            "The sampler takes the number of processes, the rank and shuffle=True. A process takes batch // world.",
            "drop_last=True twice: in the sampler, or it repeats samples; in the loader, or the last batch is smaller.",
        ],
        solution="from torch.utils.data import DataLoader, DistributedSampler\n\n\n"
        "def my_loader(data, batch, rank, world):\n"
        "    sampler = DistributedSampler(data, world, rank, shuffle=True, drop_last=True)\n"
        "    return DataLoader(data, batch_size=batch // world, sampler=sampler, drop_last=True)\n",
        praise="The seed of the sampler must be the same in all processes. The default is; one of your own may not be.",
        wrong={
            "from torch.utils.data import DataLoader\n\ndef my_loader(data, batch, rank, world):\n"
            "    return DataLoader(data, batch_size=batch // world, shuffle=True, drop_last=True)\n": "no set_epoch",
            "from torch.utils.data import DataLoader, DistributedSampler\n\ndef my_loader(data, batch, rank, world):\n"
            "    sampler = DistributedSampler(data, world, rank, drop_last=True)\n"
            "    return DataLoader(data, batch_size=batch // world, sampler=sampler)\n": "another compilation",
            "from torch.utils.data import DataLoader, DistributedSampler\n\ndef my_loader(data, batch, rank, world):\n"
            "    sampler = DistributedSampler(data, world, rank, drop_last=True)\n"
            "    return DataLoader(data, batch_size=batch, sampler=sampler, drop_last=True)\n": "counts all processes",
            "from torch.utils.data import DataLoader, DistributedSampler\n\ndef my_loader(data, batch, rank, world):\n"
            "    sampler = DistributedSampler(data, world, rank, shuffle=False, drop_last=True)\n"
            "    return DataLoader(data, batch_size=batch // world, sampler=sampler, drop_last=True)\n": "same order",
            "from torch.utils.data import DataLoader, DistributedSampler\n\ndef my_loader(data, batch, rank, world):\n"
            "    sampler = DistributedSampler(data, world, rank, shuffle=True)\n"
            "    return DataLoader(data, batch_size=batch // world, sampler=sampler, drop_last=True)\n": "fills up",
            "from torch.utils.data import DataLoader, DistributedSampler\n\ndef my_loader(data, batch, rank, world):\n"
            "    sampler = DistributedSampler(data, world, 0, drop_last=True)\n"
            "    return DataLoader(data, batch_size=batch // world, sampler=sampler, drop_last=True)\n": (
                "came to two processes"
            ),
        },
    ),
    Exercise(
        number="14.3",
        title="a pair of layers",
        name="pair_specs",
        stars=2,
        check=check_pair,
        hints=[
            "Lesson and Megatron-LM cut the first layer by its outputs, the second one by its inputs.",
            "A Linear keeps outputs × inputs: the first entry of a spec is for the outputs.",
            'up_weight = ("model", None). What is cut along "model" then, in what down gets?',
        ],
        solution='pair_specs = (("model", None), (None, "model"))\n',
        praise="The rows of X stay cut along data, so this is data parallel and tensor parallel at once.",
        wrong={
            'pair_specs = ((None, "model"), ("model", None))\n': "in the first layer, expected nothing",
            'pair_specs = (("model", None), ("model", None))\n': "in the second layer",
            'pair_specs = (("data", None), (None, "model"))\n': "cut along 'model'",
            'pair_specs = (("model", "data"), (None, "model"))\n': "in the first layer",
            'pair_specs = (("model",), (None, "model"))\n': "two entries",
            'pair_specs = (("model", ("data",)), (("data",), "model"))\n': "the name of an axis",
        },
    ),
    Exercise(
        number="14.4",
        title="tensor parallel, and when not",
        name="my_break_even",
        stars=2,
        check=check_break_even,
        hints=[
            "An all-reduce of S bytes sends 2 (p - 1) / p times S. Write down S for both ways.",
            "Tensor parallel: twice tokens × width numbers. Data parallel: width × 4 width, twice.",
            "2 × tokens × width = 8 × width². What happened to p, and to the bytes of a number?",
        ],
        solution="def my_break_even(width, p):\n    return 4 * width\n",
        praise="Below four times the width, tensor parallel sends less, whatever the number of devices.",
        wrong={
            "def my_break_even(width, p):\n    return 8 * width\n": "two all-reduces of activations",
            "def my_break_even(width, p):\n    return 2 * width\n": "two weights",
            "def my_break_even(width, p):\n    return 4 * width / p\n": "both sides",
            "def my_break_even(width, p):\n    return None\n": "expected a number of tokens",
        },
    ),
]

"""The torch_xla calls that lessons share: when TorchTPU replaces torch_xla, this is the
file to change.
"""

import math
import pathlib
import re
from typing import NamedTuple

import torch


def launch_graph() -> None:
    """Compile and launch what was recorded lazily, as far as somebody still holds a
    result. Does not wait.
    """
    import torch_xla

    torch_xla.sync()


def synchronize() -> None:
    """Launch what was recorded, and return when the XLA device is done.

    torch_xla.sync() alone does not wait (seen on torch_xla 2.9.0, with wait=True
    neither).
    """
    import torch_xla.core.xla_model

    launch_graph()
    torch_xla.core.xla_model.wait_device_ops()


def graph_text(*tensors: torch.Tensor) -> str:
    """What has been recorded for `tensors` and not run yet, as torch_xla's intermediate
    representation: one line an operation, %number = shape operation(inputs). Runs
    nothing. A private call: torch_xla offers no public one.
    """
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_text(list(tensors))


class Node(NamedTuple):
    """One line of a graph: its number, the operation ("aten::mm"), the shape of its
    result, its inputs' numbers.
    """

    number: int
    operation: str
    shape: str
    inputs: tuple[int, ...]


def graph_nodes(text: str) -> list[Node]:
    """The lines of `graph_text`, inputs before what uses them. Needs no torch_xla."""
    # %7 = f32[4,2]{1,0} aten::mm(%6, %2), …
    lines = re.findall(r"%(\d+) = (.+?)(?:\{[\d,]*\})? ([\w:]+)\(([^)]*)\)", text)
    return [
        Node(int(n), op, shape, tuple(map(int, re.findall(r"%(\d+)", used))))
        for n, shape, op, used in lines
    ]


# --------------------------------------------------------------------------------------
# Sharding (lesson 14)


def held(tensor: torch.Tensor) -> list[list[list[int]]]:
    """Which block of a tensor on "xla" each device holds under SPMD: by device, for
    each dimension [first, end).
    """
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime

    whole, found = [[0, size] for size in tensor.shape], {}
    sharded = xs.wrap_if_sharded(tensor)
    if not isinstance(sharded, xs.XLAShardedTensor):
        return [whole] * torch_xla.runtime.global_runtime_device_count()
    for shard in sharded.local_shards:
        block = whole
        if shard.indices is not ...:
            block = [[part.start, part.stop] for part in shard.indices]
        found[int(shard.shard_device.rpartition(":")[2])] = block
    return [block for _, block in sorted(found.items())]


def programs(folder: str | pathlib.Path) -> set[pathlib.Path]:
    """Paths of the optimized programs (HLO text) that XLA has written to `folder` so
    far.

    XLA writes them where the environment variable XLA_FLAGS held "--xla_dump_to=FOLDER
    --xla_dump_hlo_as_text" before torch_xla was imported.
    """
    return set(pathlib.Path(folder).glob("*after_optimizations.txt"))


# bytes; others have 4
WIDTHS = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "s64": 8,
    "u64": 8,
    "f64": 8,
}
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


def collectives(text: str) -> list[list]:
    """The collectives in optimized HLO text, each as [kind, shapes of the result, its
    bytes on each device].

    An asynchronous one counts where it starts ("all-gather-start"), and there its
    operands stand before the results.
    """
    found = []
    # %ar = f32[64,8]{1,0} all-reduce(…), or: (f32[8], f32[64]) all-gather-start(…)
    calls = re.findall(rf"= (\(?\w+\[.*?) ({KINDS})(-start)?\(", text)
    for result, kind, starts in calls:
        shapes = re.findall(r"(\w+)\[([\d,]*)\]", result)  # type and dimensions
        if starts and kind == "all-gather":
            shapes = shapes[len(shapes) // 2 :]
        elif starts and kind != "all-reduce":
            shapes = shapes[1:2]
        sizes = [
            WIDTHS.get(dtype, 4) * math.prod(int(d) for d in dims.split(",") if d)
            for dtype, dims in shapes
        ]
        shown = " ".join(f"{dtype}[{dims}]" for dtype, dims in shapes)
        found.append([kind, shown, sum(sizes)])
    return found

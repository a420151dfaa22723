"""The torch_xla calls that lessons share, and the lazy device of PyTorch that stands in
for it: when TorchTPU replaces torch_xla, change this file and device_lab/_clocks.py.
"""

import collections
import functools
import math
import pathlib
import re
import sys
from typing import NamedTuple

import torch

from device_lab._kit._clocks import launch_graph, wait_for

from .devices import on_libtpu, package_version, pick_device


def missing_xla() -> str | None:
    ours, theirs = package_version("torch"), package_version("torch_xla")
    if theirs is None:
        return "torch_xla, and it is not installed here"
    if ours.split(".")[:2] != theirs.split(".")[:2]:
        return (
            f"torch_xla and torch of the same release, and here are torch_xla {theirs}"
            f" and torch {ours}"
        )
    return None


def missing_tpu() -> str | None:
    if pick_device().type == "tpu":  # TorchTPU, which registers this device type
        here = "a TPU, and torch_tpu runs on XLA's CPU device here"
        return None if on_libtpu() else here
    if package_version("torch_xla") is None:
        if package_version("torch_tpu"):
            sees = "finds none" if "torch_tpu" in sys.modules else "is not loaded"
            return f"a TPU, and torch_tpu {sees} here"
        return "a TPU, and neither torch_xla nor torch_tpu is installed here"
    if missing_xla():
        return missing_xla()
    import torch_xla.runtime

    kind = torch_xla.runtime.device_type()
    return None if kind == "TPU" else f"a TPU, and torch_xla runs on {kind} here"


def synchronize() -> None:
    """Launch what was recorded, and return when the XLA device is done."""
    wait_for("xla")


# A lazy device on every machine (lesson 13)


class Counts(NamedTuple):
    """Programs of this process so far."""

    compiled: int
    run: int

    def since(self, before: "Counts") -> "Counts":
        return Counts(self.compiled - before.compiled, self.run - before.run)


class LazyDevice:
    """A lazy device, with the names that torch_xla gives its calls. Here it is
    torch_xla.
    """

    def __init__(self) -> None:
        import torch_xla

        # starts the runtime, before any backward()
        self._device = torch_xla.device()
        self.name = f"torch_xla on {torch_xla.real_devices()[0]}"

    def device(self) -> torch.device:
        return self._device

    def sync(self) -> None:
        """Compile and launch what was recorded. Does not wait."""
        launch_graph()

    def counts(self) -> Counts:
        """Programs compiled and run so far, read when the device is done with what was
        launched. Launches nothing.
        """
        # of graphs that were new, and of those whose program was there
        new, cached = map(self._counter, ("UncachedCompile", "CachedCompile"))
        return Counts(new, new + cached)

    def fallbacks(self) -> collections.Counter:
        """How often each operation was computed on the host so far: the counters
        "aten::…".
        """
        names = [name for name in self._names() if name.startswith("aten::")]
        return collections.Counter({name: self._counter(name) for name in names})

    def graph(self, *tensors: torch.Tensor) -> list[str]:
        """What has been recorded for `tensors` and not run yet, a line an operation:
        "%number = shape operation(inputs)". Runs nothing.
        """
        return _graph_lines(self._graph_text(list(tensors)))

    def _counter(self, name):
        import torch_xla.core.xla_model
        import torch_xla.debug.metrics

        torch_xla.core.xla_model.wait_device_ops()
        return torch_xla.debug.metrics.counter_value(name) or 0

    def _names(self):
        import torch_xla.debug.metrics

        return torch_xla.debug.metrics.counter_names()

    def _graph_text(self, tensors):
        import torch_xla

        # torch_xla offers no public call
        return torch_xla._XLAC._get_xla_tensors_text(tensors)


class OwnLazyDevice(LazyDevice):
    """The lazy device of PyTorch: the same recorder and counters as torch_xla, with a
    compiler for the CPU. Private calls throughout.
    """

    def __init__(self) -> None:
        import torch._lazy.metrics
        import torch._lazy.ts_backend

        _start_own()
        self._device = torch.device("lazy:0")
        self.name = "PyTorch's own lazy device"

    def sync(self) -> None:
        torch._lazy.mark_step()

    def _counter(self, name):
        torch._lazy.wait_device_ops()
        return torch._lazy.metrics.counter_value(name) or 0

    def _names(self):
        return torch._lazy.metrics.counter_names()

    def _graph_text(self, tensors):
        return torch._C._lazy._get_tensors_text(tensors)


@functools.cache
def _start_own():
    """Once in a process."""
    torch._lazy.ts_backend.init()


def lazy_device() -> LazyDevice:
    """torch_xla where it is installed and fits this PyTorch, else PyTorch's own lazy
    device. Never both: a process has one recorder.
    """
    return OwnLazyDevice() if missing_xla() else LazyDevice()


def _graph_lines(text):
    # %7 = f32[4,2]{1,0} aten::mm(%6, %2), xla_shape=…       as torch_xla prints it
    # %4 = [Float[4,2]] aten::mm(%3, %1), ROOT=0, NodeType=…  as PyTorch does
    lines = re.findall(r"%(\d+) = (.+?)(?:\{[\d,]*\})? ([\w:]+)\(([^)]*)\)", text)
    return [f"%{n} = {shape} {name}({used})" for n, shape, name, used in lines]


# Sharding (lesson 14)


def held(tensor: torch.Tensor) -> list[list[list[int]]]:
    """Which block of a tensor on "xla" each device holds under SPMD: by device, for
    each dimension [first, end).
    """
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime

    whole = [[0, size] for size in tensor.shape]
    blocks = {}
    sharded = xs.wrap_if_sharded(tensor)
    if not isinstance(sharded, xs.XLAShardedTensor):
        return [whole] * torch_xla.runtime.global_runtime_device_count()
    for shard in sharded.local_shards:
        block = whole
        if shard.indices is not ...:
            block = [[part.start, part.stop] for part in shard.indices]
        blocks[int(shard.shard_device.rpartition(":")[2])] = block
    return [block for _, block in sorted(blocks.items())]


def programs(folder: str | pathlib.Path) -> set[pathlib.Path]:
    """Paths of the optimized programs (HLO text) that XLA has written to `folder`.

    XLA writes them where the environment variable XLA_FLAGS held "--xla_dump_to=FOLDER
    --xla_dump_hlo_as_text" before torch_xla was imported.
    """
    return set(pathlib.Path(folder).glob("*after_optimizations.txt"))


# bytes; others have 4
WIDTHS = dict(pred=1, s8=1, u8=1, bf16=2, f16=2, s64=8, u64=8, f64=8)
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


def collectives(text: str) -> list[list]:
    """The collectives in optimized HLO text, each as [kind, shapes of the result, its
    bytes on each device].

    An asynchronous one counts where it starts ("all-gather-start"), and there its
    operands stand before the results.
    """
    rows = []
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
        rows.append([kind, shown, sum(sizes)])
    return rows

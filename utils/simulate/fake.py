"""GPUs and processes that do not exist: tensors with a real device name and no numbers,
ranks without a machine.
"""

import contextlib
import unittest.mock
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextlib.contextmanager
def fake_gpus() -> Iterator[None]:
    """Within it, cuda:0, cuda:1, … exist for bare tensors, on a machine with any number
    of real GPUs, or none. "Bare" means without gradients: autograd asks the real device
    for its stream.

    PyTorch's FakeTensorMode, kept from making real tensors where there is a GPU: it
    does up to 2.11 for every fake tensor (`init_gpu_context`), and in all versions for
    `torch.tensor(data, device=…)` (`avoid_device_init`).
    """
    with (
        unittest.mock.patch.object(
            fake_tensor, "init_gpu_context", lambda device: None, create=True
        ),
        unittest.mock.patch.object(
            fake_tensor.FakeTensorMode, "avoid_device_init", True, create=True
        ),
        fake_tensor.FakeTensorMode(),
    ):
        yield


@contextlib.contextmanager
def fake_autocast(dtype: torch.dtype = torch.float16) -> Iterator[None]:
    """fake_gpus() with CUDA's autocast switched on, also on a machine without a GPU.

    dtype: torch.float16 or torch.bfloat16. Only the dtypes that come out are real.
    (`torch.autocast("cuda")` itself warns and does nothing where there is no GPU; this
    sets the switch beneath it.)
    """
    with fake_gpus():
        before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])
            torch.clear_autocast_cache()


class Collective(NamedTuple):
    """A collective that was issued. name: "all_gather", "reduce_scatter" or
    "all_reduce". bytes: of the whole, with padding: what each rank has after a gather,
    or before a reduction. ranks: that take part in it.
    """

    name: str
    bytes: int
    ranks: int


NAMES = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allreduce_": "all_reduce",
}


class _Collectives(TorchDispatchMode):
    """Notes the collectives of torch.distributed on their way to the process group."""

    def __init__(self):
        super().__init__()
        self.issued = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = NAMES.get(func._schema.name.removeprefix("c10d::"))
        if name:
            whole = max(arg.nbytes for arg in tree_leaves(args) if torch.is_tensor(arg))
            group = next(
                dist.ProcessGroup.unbox(arg)
                for arg in args
                if isinstance(arg, torch.ScriptObject)
            )
            self.issued.append(Collective(name, whole, group.size()))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def fake_processes(ranks: int) -> Iterator[list[Collective]]:
    """Within it, this process is rank 0 of `ranks` that do not exist, and has their
    default process group.

    Yields a list that grows by a Collective each time one is issued. Collectives return
    at once and their results mean nothing: what is real is which ones are issued, in
    which order, with how many bytes. (DDP fails in such a group at the end of its first
    backward pass; FSDP2 runs.)
    """
    dist.init_process_group("fake", rank=0, world_size=ranks)
    try:
        with _Collectives() as mode:
            yield mode.issued
    finally:
        dist.destroy_process_group()

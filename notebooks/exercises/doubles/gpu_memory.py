"""What a program sees of a GPU's memory, on a machine without a GPU: the functions of
torch.cuda that tell how much is allocated, what autograd keeps, attempts that run out
of memory.
"""

import contextlib
import weakref
from collections.abc import Iterator
from unittest import mock

import torch

from simulate.allocator import CachingAllocator

TOTAL = 80 * 2**30
# functions whose answer the allocator has under the same name
FIGURES = ("memory_allocated", "max_memory_allocated")
FIGURES += ("memory_reserved", "max_memory_reserved")
# functions that answer 0, the number of the GPU, or have nothing to do
NOTHING = ("init", "synchronize", "current_device", "current_device_index")
NOTHING += ("set_device", "_exchange_device", "_maybe_exchange_device")
NOTHING += ("reset_accumulated_memory_stats",)


@contextlib.contextmanager
def asked_by_torch_cuda(gpu: CachingAllocator) -> Iterator[None]:
    """Within it, the memory functions of torch.cuda and torch.accelerator answer for
    this allocator, as for the one GPU of the machine.

    Also those that were imported by their names before: they end in `memory_stats` and
    one function of torch._C. For another device they raise what the real ones raise.
    No tensor can be made on this GPU.
    """

    def start_anew():
        gpu.max_memory_allocated = gpu.memory_allocated
        gpu.max_memory_reserved = gpu.memory_reserved

    functions = {name: _of_the_gpu(lambda: 0) for name in NOTHING}
    for name in FIGURES:
        functions[name] = _of_the_gpu(lambda name=name: getattr(gpu, name))
    functions |= {
        "reset_peak_memory_stats": _of_the_gpu(start_anew),
        "reset_max_memory_allocated": _of_the_gpu(start_anew),
        "memory_stats": _of_the_gpu(lambda: _stats(gpu)),
        "mem_get_info": _of_the_gpu(lambda: (TOTAL - gpu.memory_reserved, TOTAL)),
        "empty_cache": gpu.empty_cache,
        "is_available": lambda: True,
        "device_count": lambda: 1,
    }
    with contextlib.ExitStack() as stack:
        for module in (torch.cuda, torch.cuda.memory, torch.accelerator):
            known = {name: f for name, f in functions.items() if hasattr(module, name)}
            stack.enter_context(mock.patch.multiple(module, **known))
        below = "_cuda_resetPeakMemoryStats", _of_the_gpu(start_anew)
        stack.enter_context(mock.patch.object(torch._C, *below, create=True))
        yield


def _of_the_gpu(ask):
    """`ask` as a function of a device, with the errors of the real functions for any
    but the one GPU that there is.
    """

    def function(device=None):
        index = device
        if device is not None and not isinstance(device, int):
            try:
                device = torch.device(device)
            except (RuntimeError, TypeError):  # its message lists all kinds there are
                raise RuntimeError(f"Invalid device: {device!r}") from None
            if device.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device}")
            index = device.index
        if index:
            raise RuntimeError(
                f"Invalid device argument {index}: there is one GPU, number 0"
            )
        return ask()

    return function


def _stats(gpu):
    found = {}
    for name in ("allocated", "reserved"):
        kind = f"{name}_bytes.all"
        found[f"{kind}.current"] = getattr(gpu, f"memory_{name}")
        found[f"{kind}.peak"] = getattr(gpu, f"max_memory_{name}")
    return found


class _Kept:
    def __init__(self, x):
        self.x = x.detach()


class KeptForBackward(torch.autograd.graph.saved_tensors_hooks):
    """Within it, what autograd keeps for a backward pass is counted; parameters of
    `model` are left out, which are there anyway. most: bytes, the highest so far.
    """

    def __init__(self, model: torch.nn.Module):
        self.most, self._kept = 0, weakref.WeakSet()
        self._parameters = {_storage(p).data_ptr() for p in model.parameters()}
        super().__init__(self._pack, lambda kept: kept.x)

    def _pack(self, x):
        kept = _Kept(x)
        if _storage(x).data_ptr() not in self._parameters:
            self._kept.add(kept)
            self.most = max(self.most, self.bytes())
        return kept

    def bytes(self) -> int:
        """Kept now."""
        storages = [_storage(kept.x) for kept in self._kept]
        return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


def _storage(x):
    return x.untyped_storage()

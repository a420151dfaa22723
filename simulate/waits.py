"""Which calls would wait for a GPU: counted on any machine."""

import contextlib
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

# calls whose answer is a value, or whose result is as large as the values say
READS = set(
    "item tolist nonzero argwhere masked_select is_nonzero equal allclose unique"
    " bincount __bool__ __float__ __int__ __index__ __complex__ __format__ __repr__"
    " __contains__".split()
)
# calls that make a tensor on the CPU where no device is named
MAKES = set(
    "empty zeros ones full eye rand randn randint randperm normal arange linspace"
    " logspace tensor as_tensor asarray".split()
)


class CountWaits(TorchFunctionMode):
    """Takes tensors for tensors on a GPU, and notes each call of a block that needs a
    value of one on the CPU.

    On the CPU is what the block makes without device=, what .cpu() brings, and what is
    computed from these alone; the `device` of the others reads cpu:0. Among the names:
    "synchronize" of any kind of device; it is noted, and waits for nothing. late:
    copies with non_blocking=True, which wait for nothing. Not seen: waits within
    PyTorch's own functions, a backward pass, compiled code, other names
    (torch.repeat_interleave, x[i] = 0), and that torch.from_numpy makes a tensor.
    numpy_raises: x.numpy() raises TypeError, as on a GPU; without, it is noted and
    gives the array.
    """

    def __init__(self, numpy_raises: bool = True):
        super().__init__()
        self.names, self.late, self.numpy_raises = [], 0, numpy_raises
        self._patches = contextlib.ExitStack()

    @property
    def count(self):
        return len(self.names)

    def __enter__(self):
        for module in (torch.cpu, torch.cuda, torch.mps, torch.xpu, torch.accelerator):
            noted = mock.patch.object(
                module, "synchronize", lambda *_, **__: self.names.append("synchronize")
            )
            self._patches.enter_context(noted)
        return super().__enter__()

    def __exit__(self, *error):
        self._patches.close()
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        call = _Call(function, args, kwargs or {})
        if call.asks_device():
            return torch.device("cpu", 0)
        if call.gives_array() and self.numpy_raises:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"
                " first."
            )
        if call.copies() and call.kwargs.get("non_blocking"):
            self.late += 1
        else:
            self.names += [call.name] * call.waits()
        result = function(*args, **call.kwargs)
        if call.name == "__iter__":
            result = list(result)
        elif call.fetches():
            result = result.clone()  # on a CPU, x.cpu() is x itself
        on_cpu = call.result_on_cpu()
        for tensor in _tensors(tree_leaves(result)):
            tensor.on_cpu = on_cpu
        return iter(result) if call.name == "__iter__" else result


class _Call:
    """A call of one of PyTorch's functions, and what it asks of the tensors that pass
    for tensors on a GPU.
    """

    def __init__(self, function, args, kwargs):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = getattr(function, "__name__", "")
        self.given = [*args, *kwargs.values()]
        self.tensors = _tensors(tree_leaves(self.given))
        self.on_gpu = bool(_on_gpu(self.tensors))  # any of them

    def asks_device(self):
        """x.device: not the real one, so that x.to(y.device) is no fetch, and
        x.to("cpu") is one.
        """
        return (
            self.function == torch.Tensor.device.__get__
            and self.args[0].device.type == "cpu"
            and self.on_gpu
        )

    def fetches(self):
        """From the GPU to a new tensor on the CPU."""
        targets = [v for v in self.given if isinstance(v, (str, torch.device))]
        to_cpu = self.name == "to" and "cpu" in map(str, targets)
        return self.on_gpu and (self.name == "cpu" or to_cpu)

    def fills(self):
        """From the GPU to a place in a tensor on the CPU."""
        target = _on_gpu(_tensors(self.args[:1]))
        into = self.name in ("copy_", "__setitem__") and not target
        return self.on_gpu and into

    def copies(self):
        return self.fetches() or self.fills()

    def gives_array(self):
        return self.on_gpu and self.name in ("numpy", "__array__", "__dlpack__")

    def waits(self):
        """How many values on the GPU it waits for."""
        # where(mask) alone is nonzero, where(mask, x, y) needs no value
        finds = self.name == "where" and len(self.given) == 1
        reads = self.on_gpu and (self.name in READS or finds)
        if self.copies() or self.gives_array() or reads:
            return 1
        if self.name == "__getitem__":
            # a mask, or a number: where and how large is the result?
            parts = _on_gpu(_tensors(_index_parts(self.args[1])))
            return len([x for x in parts if x.dtype == torch.bool or not x.dim()])
        if self.name in ("tensor", "as_tensor", "new_tensor"):
            # each tensor in a list, one after the other
            lists = [value for value in self.given if isinstance(value, (list, tuple))]
            return len(_on_gpu(_tensors(tree_leaves(lists))))
        return 0

    def result_on_cpu(self):
        """Whether what it gives is known to be on the CPU."""
        makes = (
            self.name in MAKES
            and str(self.kwargs.get("device", "cpu")) == "cpu"
            and not _on_gpu(_tensors(self.given))
        )
        of_others = bool(self.tensors) and not self.on_gpu
        return self.copies() or makes or of_others


def _tensors(values):
    return [value for value in values if isinstance(value, torch.Tensor)]


def _on_gpu(tensors):
    return [x for x in tensors if not getattr(x, "on_cpu", False)]


def _index_parts(index):
    """What stands between the brackets, with the ends of slices."""
    parts = []
    for item in index if isinstance(index, tuple) else (index,):
        parts += [item.start, item.stop] if isinstance(item, slice) else [item]
    return parts

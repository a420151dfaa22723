"""Which calls would wait for a GPU: counted on any machine."""

import contextlib
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

READS = {
    "item",
    "tolist",
    "nonzero",
    "argwhere",
    "masked_select",
    "is_nonzero",
    "equal",
    "allclose",
    "unique",
}
READS |= {
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__complex__",
    "__format__",
    "__repr__",
    "__contains__",
}
MAKES = {
    "empty",
    "zeros",
    "ones",
    "full",
    "rand",
    "randn",
    "arange",
    "linspace",
    "tensor",
    "as_tensor",
    "from_numpy",
}


class CountWaits(TorchFunctionMode):
    """Takes tensors for tensors on a GPU, and notes each call of a block that needs a
    value of one on the CPU.

    On the CPU is what the block makes without device=, what .cpu() brings, and what is
    computed from these alone; the `device` of the others reads cpu:0. Among the names:
    "synchronize" of any kind of device; it is noted, and waits for nothing. late:
    copies with non_blocking=True, which wait for nothing. Not seen: waits within
    PyTorch's own functions, compiled code, other names (torch.repeat_interleave,
    torch.where with one argument, x[i] = 0). numpy_raises: x.numpy() raises TypeError,
    as on a GPU; without, it is noted and gives the array.
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
        if (
            function == torch.Tensor.device.__get__
            and args[0].device.type == "cpu"
            and _on_gpu(args)
        ):
            # so that x.to(y.device) is no fetch, and x.to("cpu") is one
            return torch.device("cpu", 0)
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        given = [*args, *kwargs.values()]
        there = _on_gpu(tree_leaves(given))
        to_cpu = name == "to" and any(
            str(v) == "cpu" for v in given if isinstance(v, (str, torch.device))
        )
        fetches = there and (name == "cpu" or to_cpu)
        # a place on the CPU
        fills = there and name in ("copy_", "__setitem__") and not _on_gpu(args[:1])
        arrays = there and name in ("numpy", "__array__", "__dlpack__")
        if arrays and self.numpy_raises:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"
                " first."
            )
        if (fetches or fills) and kwargs.get("non_blocking"):
            self.late += 1
        elif fetches or fills or arrays or (there and name in READS):
            self.names.append(name)
        elif (
            name == "__getitem__"
        ):  # a mask, or a number: where and how large is the result?
            self.names += [
                name
                for index in _on_gpu(_flat(args[1]))
                if index.dtype == torch.bool or not index.dim()
            ]
        elif name in (
            "tensor",
            "as_tensor",
            "new_tensor",
        ):  # reads each tensor in a list, one after the other
            self.names += [
                name
                for x in _on_gpu(
                    tree_leaves([v for v in given if isinstance(v, (list, tuple))])
                )
            ]
        makes = (
            name in MAKES
            and str(kwargs.get("device", "cpu")) == "cpu"
            and not _on_gpu(given)
        )
        result = function(*args, **kwargs)
        result = (
            list(result)
            if name == "__iter__"
            else result.clone()
            if fetches
            else result
        )
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                known = not there and any(
                    isinstance(v, torch.Tensor) for v in tree_leaves(given)
                )
                x.on_cpu = bool(fetches or fills or makes or known)
        return iter(result) if name == "__iter__" else result


def _on_gpu(values):
    return [
        x
        for x in values
        if isinstance(x, torch.Tensor) and not getattr(x, "on_cpu", False)
    ]


def _flat(index):
    items = index if isinstance(index, tuple) else (index,)
    return [
        part
        for item in items
        for part in ([item.start, item.stop] if isinstance(item, slice) else [item])
    ]

"""Calls that cross the border between host and device, seen on a machine that has no
border: modes of PyTorch that note what each call brings where.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from utils.waits import READS


class Moves(TorchFunctionMode):
    """Notes the names of calls that bring numbers from one device to another, in
    `names`. A call that takes tensors of several devices counts, too.
    """

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            given = [value for value in args if isinstance(value, torch.Tensor)]
            if any(value.device != result.device for value in given):
                self.names.append(getattr(function, "__name__", "?"))
        return result


class Reads(TorchFunctionMode):
    """Notes the names of calls that would bring a value of a GPU's tensor to the host,
    in `names`, while all tensors are on the CPU.

    What `.cpu()` or `.to("cpu")` has brought is there: to read it costs nothing more.
    given: tensors that start on the host; to move them asks for no value.
    """

    def __init__(self, given=()):
        super().__init__()
        self.names, self.given = [], set(map(id, given))
        self.on_host = {}  # id → tensor, kept so that no id serves twice

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        found = [x for x in tree_leaves(args) if torch.is_tensor(x)]
        host = bool(found) and all(id(x) in self.on_host for x in found)
        to_host = name == "cpu"
        if name == "to" and id(args[0]) not in self.given:
            to_host = "cpu" in map(str, [*args[1:], *kwargs.values()])
        from_list = name in ("tensor", "as_tensor") and isinstance(
            args[0] if args else None, (list, tuple)
        )
        if not host and (to_host or _asks(name, args, kwargs)):
            self.names.append(name)
        if not host and from_list:  # it reads one after the other
            self.names += [name for _ in found]
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
        if torch.is_tensor(result) and (to_host or from_list or host):
            if to_host:  # on a CPU, .cpu() hands back x itself
                result = result.view_as(result)
            self.on_host[id(result)] = result
        return result


def _asks(name, args, kwargs):
    """Whether a call needs a value: for Python, or for the size of its result."""
    if name == "__getitem__":
        return getattr(args[1], "dtype", None) == torch.bool
    if name == "where":  # with one argument, its result is as long as the values say
        return len(args) + len(kwargs) == 1
    return name in READS or name in ("numpy", "__array__", "bincount")


class MetaValues(TorchFunctionMode):
    """A tensor on `meta` that is asked for its value says 0, or yes, and a copy of it
    on the CPU holds zeros: a program for a GPU runs through. Sums in place mind the
    device, as on a GPU.
    """

    ANSWERS = {
        torch.Tensor.item: 0.0,
        torch.Tensor.tolist: 0.0,
        torch.Tensor.__float__: 0.0,
        torch.Tensor.__bool__: True,
        torch.Tensor.__format__: "0",
    }
    TESTS = torch.isnan, torch.isinf, torch.Tensor.isnan, torch.Tensor.isinf

    def __torch_function__(self, func, types, args=(), kwargs=None):
        on_meta = [getattr(x, "is_meta", False) for x in args]
        if any(on_meta[:1]):
            if func in self.ANSWERS:
                return self.ANSWERS[func]
            if func in self.TESTS:
                return torch.tensor(False)
            if func in (torch.Tensor.to, torch.Tensor.cpu):
                try:
                    return func(*args, **(kwargs or {}))
                except NotImplementedError:  # a copy to the CPU, which a GPU allows
                    return torch.zeros(args[0].shape, dtype=args[0].dtype)
        if func is torch.Tensor.add_ and on_meta[:2] == [False, True]:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two,"
                " cpu and meta"
            )
        return func(*args, **(kwargs or {}))

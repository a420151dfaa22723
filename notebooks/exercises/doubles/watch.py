"""Modes of PyTorch for devices that are not there: one notes which calls move numbers,
one lets a program run where tensors have no values. (Which calls would wait for a GPU,
`simulate.waits` counts.)
"""

import torch
from torch.overrides import TorchFunctionMode


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

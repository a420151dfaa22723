"""Which of PyTorch's operators ran: what checks of exercises look through."""

from typing import Any, NamedTuple

from torch.utils._python_dispatch import TorchDispatchMode


class Operator(NamedTuple):
    """One that ran: its name ("mm", "_to_copy"), what it got, and what came out."""

    name: str
    args: tuple
    kwargs: dict
    result: Any


class Operators(TorchDispatchMode):
    """Notes the operators that run in its block, in `ran`. Tensors that they got or
    returned live as long as it does.
    """

    def __init__(self):
        super().__init__()
        self.ran = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        self.ran.append(Operator(name, args, kwargs, result))
        return result

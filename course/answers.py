"""The answer to an exercise: how a check calls it, and what it sees of it."""

import ctypes
import inspect
from collections import deque

import numpy as np
import torch

DOTS = ...


class Wrong(Exception):
    """An answer that is not right; the message says which input, what came out, what
    was expected and why.
    """


class NotAnswered(Exception):
    """The stub was left as it is."""


def call(answer, *args, shown=None, changes=()):
    """Call the reader's function; NotAnswered if it still returns `...`, also in a
    list, tuple or dict, Wrong if it raises or changes an argument.

    shown: how the message names the input; by default its repr. changes: arguments,
    or what is in them, that the task asks to change, or whose change the check judges
    itself. The function gets copies of lists, dicts and sets, so that no answer spoils
    the input of the next one; what it gets and what it returns is `plain`.
    """
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    shown = ", ".join(map(repr, args)) if shown is None else shown
    given = [plain(arg) for arg in args]
    states = [
        (place, state(value, changes))
        for place, (arg, value) in enumerate(zip(args, given, strict=True))
        if not any(arg is change for change in changes)
    ]
    try:
        result = answer(*given)
    except Wrong:  # from something that the check has handed out
        raise
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise Wrong(
            f"for {shown} your function raised {type(error).__name__}: {first}"
        ) from error
    if unanswered(result):
        raise NotAnswered
    for place, before in states:
        after = state(given[place], changes)
        if after != before:
            what = _parameter(answer, place) + _difference(before, after)
            raise Wrong(
                f"for {shown} your function changed {what}, which belongs to the"
                " caller: leave it as it is"
            )
    return plain(result)


def state(value, changes=()):
    """What a caller would see of `value` later, to be compared: through containers,
    tensors and modules, bit for bit, as a dict part → its state. Of other objects only
    which one it is.

    changes: objects that are left out.
    """
    if any(value is change for change in changes):
        return None
    if isinstance(value, dict):
        parts = {f"[{key!r}]": state(item, changes) for key, item in value.items()}
        return {"": (type(value), *map(repr, value))} | parts
    if isinstance(value, (list, tuple, deque)):
        parts = {f"[{place}]": state(item, changes) for place, item in enumerate(value)}
        return {"": (type(value), len(value))} | parts
    if isinstance(value, (set, frozenset)):
        return type(value), set(value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return {
            "": (value.device, value.dtype, value.shape, value.requires_grad),
            " (its numbers)": _numbers(value),
            ".grad": state(value.grad, changes) if value.is_leaf else None,
        }
    if isinstance(value, torch.nn.Module):
        return {
            " (its train or eval mode)": [m.training for m in value.modules()],
            " (its parameters)": state(dict(value.named_parameters()), changes),
            " (its buffers)": state(dict(value.named_buffers()), changes),
        }
    if isinstance(value, (int, float, complex, str, bytes)):
        return type(value), repr(value)  # a NaN is equal to itself, and -0.0 is not 0.0
    return id(value)


def _difference(before, after):
    """Which part of a state is another one: "[2]", "[0].grad"; "" for all of it."""
    if isinstance(before, dict) and isinstance(after, dict):
        for part, old in before.items():
            if part not in after or after[part] != old:
                return part + _difference(old, after.get(part))
    return ""


def _numbers(x):
    """The bytes of a tensor in main memory. Read without an operation of PyTorch, which
    a check may count.
    """
    if x.device.type != "cpu" or x.layout != torch.strided:
        return None
    memory = x.untyped_storage()
    return ctypes.string_at(memory.data_ptr(), memory.nbytes()), x.stride()


def _parameter(answer, place):
    function = answer.forward if isinstance(answer, torch.nn.Module) else answer
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function written in C
        parameters = []
    names = [p.name for p in parameters if p.kind != p.VAR_POSITIONAL]
    return names[place] if place < len(names) else f"its argument {place + 1}"


def unanswered(value):
    """Whether `value` is the dots of the stub, or a list, tuple or dict that has some
    among its values.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(item is DOTS for item in value)
    return value is DOTS


def plain(value):
    """A copy of `value`, through lists, tuples, sets and dicts, with NumPy's numbers
    and booleans as Python's, also those in an array without dimensions.
    """
    if isinstance(value, np.generic) or type(value) is np.ndarray and not value.ndim:
        return value.item()
    if type(value) is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    return (
        type(value)(map(plain, value)) if type(value) in (list, tuple, set) else value
    )

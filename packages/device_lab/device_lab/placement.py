"""left_behind: the tensors that `model.to(device)` does not take along. Lesson 03
explains why.
"""

import collections
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from .errors import LabError

ATTRIBUTE = "plain attribute: register_buffer"
COMPUTED = "plain, has a grad_fn: does forward compute it anew?"
UNLISTED = "its module is in no register: nn.ModuleList, nn.ModuleDict"
ELSEWHERE = "the rest of the model is not there: model.to(device)"
FOREIGN = "optimizer's, no parameter of the model: make the optimizer last"
STATE = "optimizer's state, not with its parameter: make the optimizer after .to"


class Left(NamedTuple):
    """A tensor that is left behind: path ("blocks.0.mask"), size in bytes, why."""

    path: str
    device: torch.device
    shape: tuple[int, ...]
    bytes: int
    why: str

    def __str__(self):
        where = f"{self.path}: {self.device} {[*self.shape]}"
        return f"{where} {self.bytes:,} bytes; {self.why}"


class LeftBehind(NamedTuple):
    """device: where the model is, or should be. found: what is elsewhere, or does not
    move with it. unsaved: non-persistent buffers, which move, but are in no state_dict.
    """

    device: torch.device
    found: list[Left]
    unsaved: list[str]

    def __str__(self):
        size = sum(left.bytes for left in self.found)
        text = (
            f"{len(self.found)} tensors, {size:,} bytes" if self.found else "none seen"
        )
        lines = [f"Left behind by .to({str(self.device)!r}): {text}."]
        lines += map(str, self.found[:6])
        if len(self.found) > 6:
            lines += [f"… and {len(self.found) - 6} more"]
        if self.unsaved:
            lines += [f"In no state_dict (persistent=False): {', '.join(self.unsaved)}"]
        return "\n".join(lines)


def left_behind(
    model: nn.Module,
    device: torch.device | str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> LeftBehind:
    """The tensors that `model.to(device)` does not take along, or did not.

    device: where the model should be; None for where most of its bytes are

    Named are tensors in attributes (also in lists and dicts) that are neither parameter
    nor buffer, wherever they are now; parameters and buffers on another device; and of
    an optimizer what is no parameter of the model (a layer was replaced since, or .to
    on XLA made new ones), and state on another device than its parameter. Not seen:
    what objects of other classes hold. LabError if `model` is no nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise LabError(f"left_behind asks an nn.Module, this is {type(model).__name__}")
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    device = torch.device(device) if device else _most(tensors.values())
    left = list(_unregistered(model, {id(x) for x in tensors.values()}))
    left += [
        _left(path, x, ELSEWHERE)
        for path, x in tensors.items()
        if not _same(x.device, device)
    ]
    if optimizer is not None:
        left += _of_optimizer(optimizer, {id(x) for x in model.parameters()})
    unsaved = [
        name for name, _ in model.named_buffers() if name not in model.state_dict()
    ]
    return LeftBehind(device, left, unsaved)


def _left(path, x, why):
    return Left(path, x.device, tuple(x.shape), x.numel() * x.element_size(), why)


def _most(tensors):
    """The device of most bytes."""
    sizes = collections.Counter({torch.device("cpu"): 0})
    for x in tensors:
        sizes[x.device] += x.numel() * x.element_size()
    return sizes.most_common(1)[0][0]


def _same(here, there):
    return here.type == there.type and there.index in (None, here.index)


def _unregistered(model, seen) -> Iterator[Left]:
    """Tensors and modules among the attributes whose id is not in `seen`."""
    seen |= {id(module) for module in model.modules()}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            yield from _within(value, f"{prefix}.{name}".strip("."), seen)


def _within(value, path, seen):
    if id(value) in seen:
        return
    if isinstance(value, torch.Tensor):
        seen.add(id(value))
        yield _left(path, value, COMPUTED if value.grad_fn else ATTRIBUTE)
    elif isinstance(value, nn.Module):
        for name, x in [*value.named_parameters(), *value.named_buffers()]:
            yield _left(f"{path}.{name}", x, UNLISTED)
    elif isinstance(value, (dict, list, tuple, set)):
        seen.add(id(value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in list(items):
            yield from _within(each, f"{path}.{key}", seen)


def _of_optimizer(optimizer, parameters):
    for i, group in enumerate(optimizer.param_groups):
        for k, parameter in enumerate(group["params"]):
            path = f"optimizer.param_groups[{i}].params[{k}]"
            if id(parameter) not in parameters:
                yield _left(path, parameter, FOREIGN)
            for name, x in optimizer.state.get(parameter, {}).items():
                # Adam keeps its step on the CPU, on purpose
                if (
                    torch.is_tensor(x)
                    and name != "step"
                    and x.device != parameter.device
                ):
                    yield _left(f"{path}, {name}", x, STATE)

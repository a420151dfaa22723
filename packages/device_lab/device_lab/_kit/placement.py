"""left_behind: the tensors that `model.to(device)` does not take along."""

import collections
import dataclasses
import dis
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import nn

from ._results import Result, table
from .errors import LabError

ATTRIBUTE = "plain attribute: register_buffer"
COMPUTED = "plain, but computed: does forward make it anew on another device?"
UNLISTED = "its module is in no register: nn.ModuleList, nn.ModuleDict"
ELSEWHERE = "the rest of the model is not there: model.to(device)"
FOREIGN = "optimizer's, no parameter of the model: make the optimizer last"
STATE = "optimizer's state, not with its parameter: make the optimizer after .to"
CONTAINERS = (list, tuple, set, frozenset, collections.deque)
OBJECTS = (types.SimpleNamespace, torch.distributions.Distribution)


@dataclasses.dataclass(frozen=True, repr=False)
class Left(Result):
    """A tensor that is left behind: path ("blocks.0.mask"), size in bytes, why."""

    path: str
    device: torch.device
    shape: tuple[int, ...]
    bytes: int
    why: str

    def __str__(self) -> str:
        where = f"{self.path}: {self.device} {[*self.shape]}"
        return f"{where} {self.bytes:,} bytes; {self.why}"


@dataclasses.dataclass(frozen=True, repr=False)
class LeftBehind(Result):
    """device: where the model is, or should be. found: what is elsewhere, or does not
    move with it. staying: paths of plain tensors that are there, and would stay if the
    model moved on. unsaved: non-persistent buffers, which move, but are in no
    state_dict.
    """

    device: torch.device
    found: list[Left]
    staying: list[str]
    unsaved: list[str]

    def __str__(self) -> str:
        lines = [self._head(), *map(str, self.found[:6])]
        if len(self.found) > 6:
            lines += [f"… and {len(self.found) - 6} more"]
        return "\n".join(lines + self._notes())

    def _repr_html_(self) -> str:
        names = [field.name for field in dataclasses.fields(Left)]
        rows = [[getattr(left, name) for name in names] for left in self.found]
        return table("\n".join([self._head(), *self._notes()]), names, rows)

    def _head(self) -> str:
        size = sum(left.bytes for left in self.found)
        many = "s" * (len(self.found) > 1)
        text = f"{len(self.found)} tensor{many}, {size:,} bytes"
        found = text if self.found else "none seen"
        return f"Left behind by .to({str(self.device)!r}): {found}."

    def _notes(self) -> list[str]:
        notes = {
            "There, but would stay if the model moved on": self.staying,
            "In no state_dict (persistent=False)": self.unsaved,
        }
        return [f"{note}: {', '.join(names)}" for note, names in notes.items() if names]


def left_behind(
    model: nn.Module,
    device: torch.device | str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> LeftBehind:
    """The tensors that `model.to(device)` does not take along, or did not.

    device: where the model should be; None for where most of its bytes are

    Named are tensors in attributes (also in lists, dicts, dataclasses, distributions,
    objects of the model's own package) that are no parameters or buffers, and that no
    module's `_apply` moves; parameters and buffers on another device; and of an
    optimizer what is no parameter of the model (a layer was replaced since, or .to on
    XLA made new ones), and state on another device than its parameter. Not seen: what
    objects of other packages and closures hold, and what an overridden `.to` moves.
    LabError if `model` is no nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise LabError(f"left_behind asks an nn.Module, this is {type(model).__name__}")
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = {path: x for path, x in named if not nn.parameter.is_lazy(x)}
    device = torch.device(device) if device else _most(tensors.values())
    found, staying = [], []
    for left in _plain(model):
        there = device.type != "cpu" and _same(left.device, device)
        staying.append(left.path) if there else found.append(left)
    found += [
        _left(path, x, ELSEWHERE)
        for path, x in tensors.items()
        if not _same(x.device, device)
    ]
    if optimizer is not None:
        found += _of_optimizer(optimizer, {id(x) for x in model.parameters()})
    saved = model.state_dict().keys()
    unsaved = [name for name, _ in model.named_buffers() if name not in saved]
    return LeftBehind(device, found, staying, unsaved)


def _left(path: str, x: torch.Tensor, why: str) -> Left:
    return Left(path, x.device, tuple(x.shape), x.numel() * x.element_size(), why)


def _most(tensors: Iterable[torch.Tensor]) -> torch.device:
    """The device of most bytes."""
    sizes = collections.Counter({torch.device("cpu"): 0})
    for x in tensors:
        sizes[x.device] += x.numel() * x.element_size()
    return sizes.most_common(1)[0][0]


def _same(here: torch.device, there: torch.device) -> bool:
    return here.type == there.type and there.index in (None, here.index)


def _moving(model: nn.Module) -> set[int]:
    """Ids of what `.to` moves: what `_apply` hands to its function. A module that has
    an `_apply` of its own is asked, while PyTorch's changes nothing.
    """
    moving = set()

    def record(x: Any) -> Any:
        moving.add(id(x))
        return x

    def apply(module: Any, fn: Any, recurse: bool = True) -> Any:
        for child in module.children() if recurse else ():
            # PyTorch's other ones move nothing more, and reorder memory
            own = type(child)._apply.__module__.startswith("torch.")
            apply(child, fn) if own else child._apply(fn)
        for x in [*module._parameters.values(), *module._buffers.values()]:
            if x is not None:
                fn(x)
        return module

    before = [(vars(module), {**vars(module)}) for module in model.modules()]
    try:
        with mock.patch.object(nn.Module, "_apply", apply):
            apply(nn.ModuleList([model]), record)
    finally:
        for now, attributes in before:
            now.clear()
            now.update(attributes)
    return moving


def _plain(model: nn.Module) -> Iterator[Left]:
    """Tensors among the attributes of all modules, but for those that move, and those
    that a hook computes before each forward (torch.nn.utils: weight_norm, pruning).
    """
    seen = _moving(model) | {id(module) for module in model.modules()}
    stored: dict[type, set[str]] = {}
    for prefix, module in model.named_modules():
        kind, hooks = type(module), module._forward_pre_hooks.values()
        if kind not in stored:
            stored[kind] = _stored(kind, "forward", {*dir(nn.Module)} - {"forward"})
        keys = ("name", "_tensor_name")
        made = {getattr(hook, key, None) for hook in hooks for key in keys}
        for name, value in vars(module).items():
            if name not in made:
                path, package = f"{prefix}.{name}".strip("."), _package(module)
                why = COMPUTED if name in stored[kind] else ATTRIBUTE
                yield from _within(value, path, why, package, seen)


def _stored(kind: type, method: str, visited: set[str]) -> set[str]:
    """Attributes that a method assigns, or a method that it calls."""
    code = getattr(getattr(kind, method, None), "__code__", None)
    if code is None or method in visited:
        return set()
    visited.add(method)
    steps = dis.get_instructions(code)
    names = {step.argval for step in steps if step.opname == "STORE_ATTR"}
    return names.union(*(_stored(kind, name, visited) for name in code.co_names))


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _within(
    value: Any, path: str, why: str, package: str, seen: set[int]
) -> Iterator[Left]:
    """A tensor, or those that a container or an object of this package holds, but for
    those whose ids were `seen`.
    """
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if not nn.parameter.is_lazy(value):
            yield _left(path, value, COMPUTED if value.grad_fn else why)
        return
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, nn.Module):
        items, why = [*value.named_parameters(), *value.named_buffers()], UNLISTED
    elif isinstance(value, Mapping):
        items = [*value.items()]
    elif isinstance(value, CONTAINERS):
        items = enumerate([*value])
    elif (
        isinstance(value, OBJECTS)
        or dataclasses.is_dataclass(value)
        or _package(value) == package != "torch"
    ):
        items = [*getattr(value, "__dict__", {}).items()]
    for key, each in items:
        yield from _within(each, f"{path}.{key}", why, package, seen)


def _of_optimizer(
    optimizer: torch.optim.Optimizer, parameters: set[int]
) -> Iterator[Left]:
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

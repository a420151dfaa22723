"""left_behind: the tensors that `model.to(device)` does not take along."""

import collections
import dataclasses
import dis
import inspect
import itertools
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from torch import nn

from ._ledger import size_text
from ._results import Result
from .errors import LabError

ATTRIBUTE = "plain attribute: register_buffer"
COMPUTED = "plain, but computed: does forward make it anew on another device?"
UNLISTED = (
    "in a plain list, dict or object, unseen by PyTorch: nn.ModuleList, nn.ModuleDict"
)
PARAMETER = "a plain parameter: nn.ParameterList, nn.ParameterDict"
ELSEWHERE = "the rest of the model is not there: model.to(device)"
FOREIGN = "optimizer's, no parameter of the model: make the optimizer last"
STATE = "optimizer's state, not with its parameter: make the optimizer after .to"
CONTAINERS = (list, tuple, set, frozenset, collections.deque)
UNTRAINED = (
    "model.parameters() lacks parameters in plain lists, dicts and objects:"
    " an optimizer made from it does not train them."
)
OBJECTS = (types.SimpleNamespace, torch.distributions.Distribution)


@dataclasses.dataclass(frozen=True, repr=False)
class Left(Result):
    """A tensor that is left behind: path ("blocks.0.mask"), size in bytes, why; group:
    path of the attribute whose tensors share a line of the text.
    """

    path: str
    device: torch.device
    shape: tuple[int, ...]
    bytes: int
    why: str
    group: str

    def __str__(self) -> str:
        where = f"{self.path}: {self.device} {[*self.shape]}"
        return f"{where} {self.bytes:,} bytes; {self.why}"


@dataclasses.dataclass(frozen=True, repr=False)
class LeftBehind(Result):
    """device: where the model is, or should be. found: what is elsewhere, or does not
    move with it. moved: False if all of the model is on another device.
    """

    device: torch.device
    found: list[Left]
    moved: bool

    def __str__(self) -> str:
        groups: dict[tuple[object, ...], list[Left]] = {}
        for left in self.found:
            name = left.group if left.why is ELSEWHERE else _starred(left.group)
            key = name, left.device, left.why
            groups.setdefault(key, []).append(left)
        lines = [*map(_line, groups.values())]
        if len(self.found) > len(lines):
            lines += ["Each tensor stands in .found."]
        if any(left.why in (UNLISTED, PARAMETER) for left in self.found):
            lines += [UNTRAINED]
        return "\n".join([self._head(), *lines])

    def _head(self) -> str:
        many = "s" * (len(self.found) > 1)
        text = f"{len(self.found)} tensor{many}, {_sum(self.found):,} bytes"
        found = text if self.found else "none seen"
        to = f".to({str(self.device)!r})"
        if not self.moved:
            return f"Not moved yet. {to} would leave behind: {found}."
        if {self.device.type, *(left.device.type for left in self.found)} == {"cpu"}:
            return f"Would stay behind when the model moves: {found}."
        return f"Left behind by {to}: {found}."


def _sum(found: list[Left]) -> int:
    return sum(left.bytes for left in found)


def _line(lefts: list[Left]) -> str:
    """Of tensors that one cause leaves behind."""
    first, *more = lefts
    if not more:
        return str(first)
    parts = zip(*(left.group.split(".") for left in lefts), strict=True)
    name = ".".join(_starred(p[0]) if len({*p}) > 1 else p[0] for p in parts)
    size = f"{len(lefts)} tensors, {size_text(_sum(lefts))}"
    return f"{name}: {first.device}, {size}; {first.why}"


def left_behind(
    model: nn.Module,
    device: torch.device | str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> LeftBehind:
    """The tensors that `model.to(device)` does not take along, or did not.

    device: where the model should be; None for where most of its bytes are

    Named are tensors in attributes (also in lists, dicts, dataclasses, distributions,
    objects of the model's own package) that are no parameters or buffers, and that no
    module's `_apply` moves, nor the model's own `.to`; parameters and buffers on
    another device; and of an optimizer what is no parameter of the model (a layer was
    replaced since), and state on another device than its parameter. If all of the model
    is on one other device, it has not moved yet: named is then what would stay. Not
    seen: what objects of other packages and closures hold, and that `.cuda()`, or the
    `.to` of a model around it, passes over a model's own `.to`. LabError if `model` is
    no nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise LabError(f"left_behind asks an nn.Module, this is {type(model).__name__}")
    if isinstance(device, torch.optim.Optimizer):
        raise LabError("name the optimizer: left_behind(model, optimizer=optimizer)")
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = {path: x for path, x in named if not nn.parameter.is_lazy(x)}
    here = _most(tensors.values())
    device = torch.device(device) if device else here
    moved = len({x.device for x in tensors.values()}) != 1 or any(
        _same(x.device, device) for x in tensors.values()
    )
    found = [
        left
        for left in _plain(model, _moving(model, here))
        if device.type == "cpu" or not _same(left.device, device)
    ]
    found += [
        _left(x, path, ELSEWHERE, path.partition(".")[0])
        for path, x in tensors.items()
        if moved and not _same(x.device, device)
    ]
    if optimizer is not None:
        found += _of_optimizer(optimizer, {id(x) for x in model.parameters()})
    return LeftBehind(device, found, moved)


def _left(x: torch.Tensor, path: str, why: str, group: str) -> Left:
    return Left(path, x.device, tuple(x.shape), _size(x), why, group)


def _size(x: torch.Tensor) -> int:  # nbytes refuses sparse ones
    return x.numel() * x.element_size()


def _starred(path: str) -> str:
    """What paths share that differ in numbers only."""
    return re.sub(r"(?<![^.[])\d+(?![^].])", "*", path)


def _most(tensors: Iterable[torch.Tensor]) -> torch.device:
    """The device of most bytes."""
    sizes = collections.Counter({torch.device("cpu"): 0})
    for x in tensors:
        sizes[x.device] += _size(x)
    return sizes.most_common(1)[0][0]


def _same(here: torch.device, there: torch.device) -> bool:
    return here.type == there.type and there.index in (None, here.index)


def _moving(model: nn.Module, here: torch.device) -> set[int]:
    """Ids of what moves with a model: what `_apply` hands to its function. A module
    that has an `_apply` of its own is asked, while PyTorch's changes nothing; a `.to`
    of the model's own, too, for what is `here` already.
    """
    moving = set()

    def record(x: Any) -> Any:
        moving.add(id(x))
        return x

    def stay(x: Any, *to: Any, **options: Any) -> Any:
        return record(x) if x.device == here else x

    def apply(module: Any, fn: Any, recurse: bool = True) -> Any:
        for child in module.children() if recurse else ():
            # PyTorch's other ones move nothing more, and reorder memory
            own = type(child)._apply.__module__.startswith("torch.")
            apply(child, fn) if own else child._apply(fn)
        for x in [*module._parameters.values(), *module._buffers.values()]:
            if x is not None:
                fn(x)
        return module

    moves = dict.fromkeys(["to", "cuda", "cpu"], stay)
    dicts = [
        held
        for x in model.modules()
        for held in (vars(x), x._parameters, x._buffers, x._modules)
    ]
    before = [(held, {**held}) for held in dicts]
    try:
        with mock.patch.object(nn.Module, "_apply", apply):
            apply(nn.ModuleList([model]), record)
            if type(model).to is not nn.Module.to:
                # one that refuses moves nothing
                with mock.patch.multiple(torch.Tensor, **moves), suppress(Exception):
                    model.to(here)
    finally:
        for now, attributes in before:
            now.clear()
            now.update(attributes)
    return moving


def _assigned(kinds: set[type]) -> set[str]:
    """Attributes that a forward assigns, or a method that it calls, by name, of any of
    these classes.
    """
    found, visited, waiting = set(), {*dir(nn.Module)}, {"forward"}
    while waiting:
        visited |= waiting
        named = (getattr(kind, name, None) for kind in kinds for name in waiting)
        methods = filter(inspect.isfunction, map(inspect.unwrap, named))
        codes = {method.__code__ for method in methods}
        waiting = {name for code in codes for name in code.co_names} - visited
        for step in itertools.chain(*map(dis.get_instructions, codes)):
            if step.opname == "STORE_ATTR":
                found.add(step.argval)
    return found


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _plain(model: nn.Module, seen: set[int], at: str = "") -> Iterator[Left]:
    """Tensors among the attributes of all modules, but for those that move, and those
    that a hook computes before each forward (torch.nn.utils: weight_norm, pruning).
    seen: ids of what is named, or moves. at: the path of a module that none lists.
    """
    named = [x for x in model.named_modules() if id(x[1]) not in seen]
    seen.update(id(module) for _, module in named)
    assigned = _assigned({type(module) for module in model.modules()})
    for prefix, module in named:
        hooks = module._forward_pre_hooks.values()
        keys = ("name", "_tensor_name")
        made = {getattr(hook, key, None) for hook in hooks for key in keys}
        for name, value in [*vars(module).items()]:
            if name not in made:
                path = ".".join(filter(None, (at, prefix, name)))
                why = COMPUTED if name in assigned else ATTRIBUTE
                yield from _within(value, path, why, _package(module), path, seen)


def _within(
    value: Any, path: str, why: str, package: str, held: str, seen: set[int]
) -> Iterator[Left]:
    """A tensor, or those that a container, a module or an object of this package
    holds, but for those `seen`. held: the path of the attribute that holds it.
    """
    if id(value) in seen:
        return
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, nn.Module):
        items = [*value.named_parameters(), *value.named_buffers()]
        for name, x in items:
            yield from _within(x, f"{path}.{name}", UNLISTED, package, held, seen)
        yield from _plain(value, seen, path)
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if not nn.parameter.is_lazy(value):
            yield _named(value, path, why, held)
        return
    if isinstance(value, Mapping):
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
        yield from _within(each, f"{path}.{key}", why, package, held, seen)


def _named(x: torch.Tensor, path: str, why: str, held: str) -> Left:
    if why is UNLISTED:
        return _left(x, path, why, held)
    if isinstance(x, nn.Parameter):
        why = PARAMETER
    return _left(x, path, COMPUTED if x.grad_fn else why, path)


def _of_optimizer(
    optimizer: torch.optim.Optimizer, parameters: set[int]
) -> Iterator[Left]:
    for i, group in enumerate(optimizer.param_groups):
        for k, parameter in enumerate(group["params"]):
            path = f"optimizer.param_groups[{i}].params[{k}]"
            if id(parameter) not in parameters:
                yield _left(parameter, path, FOREIGN, path)
            for name, x in optimizer.state.get(parameter, {}).items():
                of = f"{path}, {name}"
                # Adam keeps its step on the CPU, on purpose
                if name == "step" or not torch.is_tensor(x):
                    continue
                if x.device != parameter.device:
                    yield _left(x, of, STATE, of)

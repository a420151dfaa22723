"""The rules of `find_waits`: at which operators and functions of PyTorch the host waits
for the device. A watch gets the notes: `on_device`, `mark`, `note`, `silent`.
"""

import collections
import gc
import numbers
import sys
import types
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from ._lines import TORCH, keep_line

# Operators of aten that wait on CUDA, by their sources (aten/src/ATen/native): those
# that read values of the device's tensors → of which argument on
VALUES = {"index_fill": 3, "masked_fill": 2, "normal": 1}
VALUES |= dict.fromkeys(
    """_linalg_check_errors _linalg_eigh _linalg_svd _local_scalar_dense allclose equal
    histc is_nonzero linalg_eig linalg_lstsq linalg_matrix_exp linalg_pinv linspace
    logspace""".split(),
    0,
)
# those whose result has a size that depends on values
SIZES = """_unique _unique2 bincount isin masked_scatter_backward masked_select nonzero
repeat_interleave unique_consecutive unique_dim unique_dim_consecutive""".split()
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
MASKS = torch.bool, torch.uint8
NAMES = {"_local_scalar_dense": "item", "_to_copy": "to", "lift_fresh": "tensor"}
PYTHON = {"__bool__": "bool", "__index__": "index"}  # who asks for the item
# Functions of Python whose work the dispatcher does not see, or not on the CPU
READS = ("tolist", "numpy", "__array__", "__dlpack__", "cpu")
FROM_PYTHON = ("tensor", "as_tensor", "asarray", "new_tensor")
# Since 2.15 a number that is assigned is made on the device, and a single index stays
# on a GPU: asTensor and canKeepScalarIndexOnDevice in ATen/TensorIndexing.h
STAYS = torch.__version__ >= (2, 15)
# What an object of a batch may name that is no part of it
BEYOND = type, types.ModuleType, types.FunctionType, types.MethodType
BEYOND += torch.nn.Module, torch.utils.data.Dataset


WHOLE = {torch.Tensor, torch.nn.Parameter}
BARE = {bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout}


def tensors_in(tree):
    """As PyTorch's tree_leaves finds them, in a part of its time."""
    found = []
    _gather((tree,), found)
    return found


def _gather(values, found):
    for x in values:
        kind = type(x)
        if kind in WHOLE:
            found.append(x)
        elif kind is tuple or kind is list:
            _gather(x, found)
        elif kind is dict:
            _gather(x.values(), found)
        elif kind not in BARE:
            found += [y for y in tree_leaves(x) if isinstance(y, torch.Tensor)]


def tensors_of(batch):
    """Those that the objects of a batch hold, too: the nearest thousands."""
    found, seen, waiting = [], set(), collections.deque([batch])
    while waiting and len(seen) < 10_000:
        each = waiting.popleft()
        if id(each) in seen or isinstance(each, BEYOND):
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            found.append(each)
        else:
            waiting += filter(gc.is_tracked, gc.get_referents(each))
    return found


class _Call(NamedTuple):
    """A call of an operator or function. tensors: among its arguments."""

    func: Callable
    name: str
    args: tuple
    kwargs: dict
    tensors: list

    def __call__(self):
        return self.func(*self.args, **self.kwargs)


class Operators(TorchDispatchMode):
    """What the dispatcher sees, PyTorch's own functions included."""

    supports_higher_order_operators = True

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):  # flex_attention, torch.cond: whole
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled():  # there composed operators come whole
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        backward = torch._C._current_graph_task_id() != -1  # no public call tells
        self.watch.work.add("backward" if backward else "forward")
        name = func.overloadpacket.__name__
        call = _Call(func, name, args, kwargs, tensors_in(args))
        self.watch.operator = call
        operation, kinds = NAMES.get(name, name.strip("_2")), self.kinds(call)
        if self.watch.bracket is not None and name in NAMES:
            operation = "index"
        elif operation == "item" and self.watch.call:
            operation = PYTHON.get(self.watch.call.name, "item")
        for kind in kinds:
            self.watch.note(operation, kind)
        self.watch.operator = None
        out = call()
        self.follow(call, out, kinds)
        return out

    def follow(self, call, out, kinds):
        """Mark what is on the host now: made there, or of tensors of the host alone."""
        watch, name = self.watch, call.name
        tensors = tensors_in((call.args, call.kwargs))
        bracket = watch.bracket is not None
        made = name == "lift_fresh" or (name == "scalar_tensor" and bracket)
        made = made and not (bracket and STAYS)
        here = tensors and not any(map(watch.on_device, tensors))
        if (made and not kinds) or here:
            watch.mark(out, number=made and bracket)
        elif not tensors or any(map(watch.is_there, tensors)):
            given = set(map(id, tensors)) if name == "copy_" else ()  # the host's, too
            for x in tensors_in(out):
                if id(x) not in given:  # C++ makes some without device=
                    watch.lies.setdefault(x, "there")
        if name == "_pack_padded_sequence":  # the batches' sizes
            watch.mark(out[1])

    def kinds(self, call):
        """Why the host waits for this call: keys of CAUSES, one for each wait."""
        rule = self.RULES.get(call.name) or self.RULES.get(call.name.rstrip("_"))
        kinds = rule(self, call) if rule and call.tensors else None
        return [kinds] if isinstance(kinds, str) else kinds or []

    def value(self, call):
        stays = any(call.args[0] is x for x in self.watch.bracket or [])
        if stays and call.name == "_local_scalar_dense":
            return None
        read = tensors_in(call.args[VALUES[call.name.rstrip("_")] :])
        # histc reads if it is given no range
        known = call.name == "histc" and len(call.args) > 2
        if call.name == "normal":  # since then on the device: normal_impl's check
            known = STAYS
        if call.name == "equal":  # cuda_equal in ATen/native/cuda/Equal.cpp
            known = read[0].shape != read[1].shape or not read[0].numel()
        return "value" if any(map(self.watch.on_device, read)) and not known else None

    def size(self, call):
        known = call.kwargs.get("output_size") is not None
        if call.name in ("bincount", "repeat_interleave"):
            known = known or not call.tensors[0].numel()
        if call.name == "isin":  # isin_sorting in ATen/native/TensorCompare.cpp
            sizes = [x.numel() for x in call.tensors]
            unique = call.kwargs.get("assume_unique")
            known = unique or len(sizes) < 2 or sizes[1] < int(10 * sizes[0] ** 0.145)
        return None if known or not self.watch.on_device(call.tensors[0]) else "size"

    def indexed(self, call):
        """A wait for each mask, each index on the host, and a number that is put."""
        there, indices = self.watch.on_device, tensors_in(call.args[1])
        if not there(call.tensors[0]):
            return []
        counted = [x for x in indices if x.dtype in MASKS and there(x)]
        sums, value = any(call.args[3:]), call.args[2:3]
        number = value and value[0].numel() == 1 and not there(value[0])
        if counted and number and len(indices) == 1 and not sums:
            return []  # x[mask] = 0 is masked_fill (canDispatchToMaskedFill)
        # A mask's indices are pinned, but where they sum (expandTensors in
        # ATen/native/IndexingUtils.h, makeLinearIndex in cuda/Indexing.cu)
        copies = bool(number) + sum(
            x.dim() * sums if x.dtype in MASKS else 1
            for x in indices
            if not there(x) and x.numel()
        )
        return ["size"] * len(counted) + ["to the device"] * copies

    def moved(self, call):
        (x,), target = call.tensors, call.kwargs.get("device")
        if target is None or call.kwargs.get("non_blocking") or not x.numel():
            return None
        ends = x.device.type, torch.device(target).type
        if ends.count("cpu") != 1 or "meta" in ends:
            return None
        return "to the host" if ends[1] == "cpu" else "to the device"

    def copied(self, call):
        into, source = map(self.watch.on_device, call.args[:2])
        waits = not (call.kwargs.get("non_blocking") or any(call.args[2:]))
        if into == source or not (waits and call.args[0].numel()):
            return None
        return "to the device" if into else "to the host"

    def chosen(self, call):
        """torch.where, of tensors here and there."""
        places = {self.watch.on_device(x) for x in call.tensors}
        return "to the device" if len(places) == 2 else None

    def lifted(self, call):
        """A tensor of Python's numbers; in brackets of a list."""
        (x,) = call.tensors
        if not (self.watch.on_device(x) and x.numel()):
            return None
        copied = self.watch.device if self.watch.bracket is None else x.dim()
        return "to the device" if copied else None

    RULES = {
        **dict.fromkeys(VALUES, value),
        **dict.fromkeys(SIZES, size),
        **dict.fromkeys(INDEXED, indexed),
        "_to_copy": moved,
        "copy_": copied,
        "where": chosen,
        "lift_fresh": lifted,
    }


class Functions(TorchFunctionMode):
    """What only the call in Python shows: where tensors are made; on a CPU, sent."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        call = _Call(func, name, args, kwargs, tensors_in((args, kwargs)))
        there = [x for x in call.tensors if self.watch.on_device(x)]
        rule = self.ANYWHERE.get(name)
        on_cpu = all(x.device.type == "cpu" for x in call.tensors)
        if not (rule or self.watch.device) and on_cpu:
            rule = self.ON_A_CPU.get(name, Functions.other)
        self.watch.call = call
        try:
            return rule(self, call, there) if rule else call()
        finally:
            self.watch.call = None

    def bracketed(self, call, there):
        """x[i], x[i] = y"""
        if not self.watch.on_device(call.args[0]):
            return call()
        self.watch.bracket = _staying(self.watch, *call.args)
        try:
            out = call()
        finally:
            self.watch.bracket = None
        keep_line(call.args[0] if out is None else out)
        return out

    def printed(self, call, there):
        if there:  # it switches modes off
            self.watch.note("print", "value")
        return call()

    def ctc_loss(self, call, there):
        if not there:
            return call()
        self.watch.note(call.name, "to the device")  # its lengths
        with _disable_current_modes():  # under them it refuses those of the host
            return call()

    def made(self, call, there):
        """torch.tensor and its like: from numbers, or from tensors in a list."""
        own = call.name == "new_tensor"
        data = call.args[own:][:1]
        device = call.kwargs.get("device") or (own and there[:1])
        asks = sys._getframe(2).f_code.co_filename
        if device == "cpu" and asks.startswith(f"{TORCH}optim"):
            device = None  # an optimizer's counter
        single = any(map(torch.is_tensor, data))
        if not single:
            for _ in there[own:]:
                self.watch.note(call.name, "value")
        known = there[0] if single and there else None
        if not device or self.watch.device or (own and known is not None):
            return call()
        return self.sent(call, call.name, known)

    def moved(self, call, there):
        """.to and .type_as"""
        target = [*call.args[1:2], call.kwargs.get("device")]
        named = any(isinstance(each, (str, torch.device)) for each in target)
        here = call.tensors and not self.watch.on_device(call.tensors[0])
        if here and (there or named):
            return self.sent(call, "to")
        if named and there:
            return self.sent(call, "to", there[0])
        return self.other(call, there)

    def sent(self, call, name, known=None):
        """On a CPU: to the device, a copy; known: passes for a tensor there."""
        out = call()
        if out.device.type != "cpu":
            return out
        blocks = not call.kwargs.get("non_blocking") and True not in call.args[2:]
        if blocks and known is not None:
            self.watch.assume(known)
        elif blocks and out.numel():
            self.watch.note(name, "to the device")
        if any(out is each for each in call.args):
            out = alias(out)
        if out is not known:
            self.watch.lies[out] = "there"
        return out

    def unchecked(self, call, there):
        """What CUDA does not check: labels; quantiles, which 2.9 checks on a CPU."""
        one_hot = call.name == "one_hot"
        if one_hot and there and [*call.args[1:], *call.kwargs.values()] in ([], [-1]):
            self.watch.note(call.name, "value")
        with self.watch.silent():
            return call()

    def read(self, call, there):
        out = call()
        if any(x.numel() for x in there):
            self.watch.note(call.name, "to the host")
        if call.name == "cpu":
            out = alias(out) if there else out
            if not any(out is x for x in there):
                self.watch.mark(out)
        return out

    def other(self, call, there):
        out = call()
        if not (call.tensors or call.kwargs.get("device")):
            self.watch.mark(out)
        return out

    ANYWHERE = {
        "__getitem__": bracketed,
        "__setitem__": bracketed,
        "__repr__": printed,
        "ctc_loss": ctc_loss,
        **dict.fromkeys(FROM_PYTHON, made),
    }
    ON_A_CPU = {
        "to": moved,
        "type_as": moved,
        **dict.fromkeys(("one_hot", "quantile", "nanquantile"), unchecked),
        **dict.fromkeys(READS, read),
    }


def alias(x):
    """Of the same memory and history, with a mark of its own. x itself, where that may
    be told from it: a leaf of autograd has its own gradient.
    """
    plain = type(x) is torch.Tensor and x.layout is torch.strided
    if not plain or (x.requires_grad and x.is_leaf):
        return x
    with torch.inference_mode(False):  # gradients are on; else x.add_(w) may refuse
        return torch.ops.aten.alias(x)


def _staying(watch, target, index, value=None):
    """Indices that a GPU does not read to assign `value`, a number."""
    fits = isinstance(value, numbers.Number)
    if isinstance(value, torch.Tensor):
        one = value.dim() == 0 and value.dtype == target.dtype
        fits = one and watch.on_device(value)
    if not (fits and STAYS):
        return []
    whole = torch.int64, torch.int32
    return [x for x in tensors_in(index) if x.dim() == 0 and x.dtype in whole]

"""Which data are known where tensors have none: what Python's numbers, NumPy's arrays
and loaders determine, as far as it is small.
"""

import re
import weakref

import torch
from torch.utils._python_dispatch import _disable_current_modes as outside
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from ._lines import place
from .errors import LabError

aten = torch.ops.aten
CPU = torch.device("cpu")
UNKNOWN = object()
LIMIT = 2**17  # values that an operation may take and make


class Values:
    """For the storages of fake tensors those with their data, where these are known.

    An operation on known data is really computed, beside the fake one. Tensors with
    data that nothing has moved to a device (from NumPy, of a loader) stay on the host,
    and what is made of them, too. read: the lines that read what is not known, and
    whether that may decide a branch or a size.
    """

    def __init__(self, mode, fake_tensor):
        self.mode, self.fake = mode, fake_tensor.FakeTensor
        self.with_data = fake_tensor.unset_fake_temporarily
        self.no_value = fake_tensor.DataDependentOutputException
        self.no_size = fake_tensor.DynamicOutputShapeException
        self.storages = weakref.WeakKeyDictionary()
        self.doubles = WeakTensorKeyDictionary()
        self.read = {}

    def call(self, func, args, kwargs):
        """An operation, as a TorchDispatchMode gets it. A value that is not known is 0
        where Python asks for it (.item(), `if loss > 1`); LabError for a size.
        """
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": CPU}
        given = _tensors((args, kwargs))
        if given and all(map(self.on_host, given)) and func not in LIFTS:
            with self.with_data():
                return func(*args, **kwargs)
        args, kwargs = tree_map(self.double, (args, kwargs))
        known = self.known((args, kwargs))
        if func.overloadpacket in LIKE:
            known = (self.zeros(args[0]), *args[1:]), kwargs
        try:
            out = func(*args, **kwargs)
        except (self.no_value, self.no_size) as error:
            data = self.compute(func, known)
            if data is not UNKNOWN:
                return tree_map(self.double, data)
            sized = self.sized(func, args)
            return self.unknown(func, args, error) if sized is None else sized
        numel = sum(x.numel() for x in (*_tensors(out), *given))
        data = self.compute(func, known) if numel <= LIMIT else UNKNOWN
        if data is UNKNOWN:
            self.forget(func, args, kwargs)
        else:
            self.keep(func, out, data)
        return out

    def on_host(self, x):
        plain = type(x) is torch.Tensor and not x.requires_grad
        return plain and x not in self.doubles

    def double(self, x):
        """The fake tensor in the place of one with data, as long as that lives."""
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            return x
        if x not in self.doubles:
            with outside():
                self.doubles[x] = self.mode.from_tensor(x)
            if x.layout == torch.strided:
                storage = self.doubles[x].untyped_storage()
                self.storages[storage] = x.untyped_storage()
        return self.doubles[x]

    def move(self, x):
        """To the device: from now on it is fake, too."""
        if type(x) is torch.Tensor and not x.requires_grad:
            self.double(x)

    def known(self, tree):
        """The same with data; None where they are not all known."""
        if any(self.storage(x) is None for x in _tensors(tree)):
            return None
        with self.with_data():
            return tree_map(self.view, tree)

    def storage(self, x):
        odd = type(x) is not self.fake or x.layout != torch.strided
        if odd or x.is_conj() or x.is_neg():
            return None
        return self.storages.get(x.untyped_storage())

    def view(self, x):
        if not isinstance(x, torch.Tensor):
            return x
        place = self.storage(x), x.storage_offset(), x.shape, x.stride()
        return torch.empty(0, dtype=x.dtype).set_(*place)

    def compute(self, func, known):
        """The result with data, if the inputs are known and a CPU can do it."""
        if known is None:
            return UNKNOWN
        args, kwargs = known
        try:
            with self.with_data():
                return func(*args, **kwargs)
        except (RuntimeError, IndexError):
            return UNKNOWN

    def sized(self, func, args):
        """A result of which the first input decides no size; None of others."""
        others = func.overloadpacket in SIZED and self.known(args[1:])
        if not others:
            return None
        data = self.compute(func, ((self.zeros(args[0]), *others), {}))
        with outside():
            return tree_map_only(torch.Tensor, self.mode.from_tensor, data)

    def keep(self, func, out, data):
        for x, y in zip(_tensors(out), _tensors(data), strict=True):
            if type(x) is not self.fake or x.untyped_storage() in self.storages:
                continue
            if x.layout != torch.strided or x.shape != y.shape or x.storage_offset():
                continue
            with self.with_data():
                own = torch.empty_strided(y.shape, x.stride(), dtype=y.dtype)
                own = own.zero_() if func.overloadpacket in EMPTY else own.copy_(y)
            self.storages[x.untyped_storage()] = own.untyped_storage()

    def forget(self, func, args, kwargs):
        """What an operation on unknown data writes is not known any more."""
        for i, each in enumerate(func._schema.arguments):
            if each.alias_info and each.alias_info.is_write:
                written = args[i] if i < len(args) else kwargs.get(each.name)
                for x in _tensors(written):
                    if type(x) is self.fake and x.layout == torch.strided:
                        self.storages.pop(x.untyped_storage(), None)

    def note(self, dtype):
        """That a value of a line was read as 0. GradScaler asks whether it was inf."""
        where, code, inside, *_ = place()
        if inside.startswith("torch/amp/grad_scaler"):
            return
        if inside.startswith("torch/_subclasses"):  # a fake tensor's tolist
            inside = ""
        text = _named(where, code, inside)
        decides = _decides(inside.partition("  ")[2] or code, dtype)
        self.read[text] = decides or self.read.get(text, False)

    def unknown(self, func, args, error):
        if func in (aten.equal.default, aten.allclose.default):
            self.note(torch.bool)
            return False
        # of tensors made in inference_mode it is still called item
        if func in (aten._local_scalar_dense.default, aten.item.default):
            self.note(args[0].dtype)
            return 0.0 if args[0].dtype.is_floating_point else 0
        where, code, inside, *_ = place()
        line = _named(where, code, inside)
        cure = "" if inside else "; torch.where and masked_fill do without"
        raise LabError(
            f"fix this size for rehearse, or leave the line out: {line}. What {func}"
            f" makes is as large as values say, which are not there{cure}"
        ) from error

    def data(self, x):
        """The tensor with its data; with zeros where they are not known."""
        if type(x) is not self.fake:
            return x
        with outside():
            known = self.known(x)
            if known is None:
                self.note(x.dtype)
                return self.zeros(x)
            return known

    def zeros(self, x):
        with self.with_data():
            return torch.zeros(x.shape, dtype=x.dtype)


LIFTS = aten.lift_fresh.default, aten.lift.default
SIZED = aten.index, aten.masked_select, aten._ctc_loss
LIKE = aten.zeros_like, aten.ones_like, aten.full_like  # whatever the data
LIKE += aten.new_zeros, aten.new_ones, aten.new_full
EMPTY = aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty

BRANCHES = r"\b(if|elif|while|assert|and|or|not|for|range|int)\b"
REPORTS = r"\+=|(?<!/)/(?!/)|\b(append|extend|print|info|log\w*)\("


def _decides(code, dtype):
    """Whether a value that a line reads may decide a branch or a size, as far as the
    line shows: truth values do, counts that are not only summed up or shown may.
    """
    code = re.sub(r"""#.*|"[^"]*"|'[^']*'""", "", code)
    fraction = dtype.is_floating_point or dtype.is_complex
    counts = not fraction and not re.search(REPORTS, code)
    return dtype == torch.bool or counts or bool(re.search(BRANCHES, code))


def _named(where, code, inside):
    return f"{where}: {code}" + (f" ({inside})" if inside else "")


def _tensors(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]

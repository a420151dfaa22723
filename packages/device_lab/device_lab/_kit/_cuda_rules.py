"""AsCuda: tensors without data that follow the rules of a CUDA GPU, on any machine.
`memory.rehearse` counts on them.
"""

import contextlib
import copy
import functools
import math
import pathlib
import re
import types
import warnings
from unittest import mock

import torch
from torch.nn.functional import ctc_loss
from torch.optim import optimizer as optim
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import dataloader

from ._values import CPU, Values, outside

aten = torch.ops.aten
DEVICES = "cpu", "cuda", "mps", "xpu"
COLLECTIVES = "broadcast", "all_reduce", "reduce", "all_gather", "barrier"
H100 = (9, 0), 132, 2048  # capability, multiprocessors, threads on each
# What is composed on the CPU, and has a kernel of its own on CUDA: all of PyTorch 2.13
WHOLE = "_fused_rms_norm", "mish_backward", "silu_backward"


class AsCuda(contextlib.ExitStack):
    """Within it, every tensor that is made has no data, and what decides about memory
    is decided as on CUDA: autocast, dropout, attention, foreach optimizers.

    To C++ these are fake tensors on the CPU, since autograd aborts for those of a
    device that the build does not have; their dispatch keys are CUDA's, and what
    PyTorch does otherwise on CUDA is put in its place. gpu: as H100 above. autocast:
    whether it was switched on.
    """

    def __init__(self):
        super().__init__()
        self.autocast, self.casts, self.gpu = False, {}, H100
        if torch.cuda.is_available():
            gpu = torch.cuda.get_device_properties(0)
            threads = gpu.max_threads_per_multi_processor
            self.gpu = (gpu.major, gpu.minor), gpu.multi_processor_count, threads

    def __enter__(self):
        from torch._subclasses import fake_tensor  # takes a second

        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            for patch in _patches(self, fake_tensor):
                stack.enter_context(patch)
            library = torch.library._scoped_library("aten", "IMPL")
            self.override(stack.enter_context(library))
            mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
            self.values = Values(mode, fake_tensor)
            stack.enter_context(mode)
            stack.enter_context(_Here(self.values))
            self.push(stack.pop_all())
        return self

    def override(self, library):
        attention = functools.partial(_attention, self.gpu[0])
        library.impl("dropout", _dropout, "AutogradCUDA")
        library.impl("scaled_dot_product_attention", attention, "AutogradCUDA")
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        for name in WHOLE:  # a build for CPUs has no such kernel: it takes them apart
            if not has_kernel(f"aten::{name}", "CUDA"):
                library.impl(name, _never, "CUDA")
        for operation, policy in _autocast_lists():
            rule = functools.partial(self.cast, operation, policy)
            library.impl(operation, rule, "AutocastCUDA")

    def cast(self, operation, policy, *args, **kwargs):
        """An operation under autocast; C++ has this for tensors on CUDA only."""
        low, full = torch.get_autocast_dtype("cuda"), torch.float32
        with torch.autocast("cuda", enabled=False):
            if policy == "FP32_SET_OPT_DTYPE":
                given = any(isinstance(x, torch.dtype) for x in args)
                if _casts(args[0]) and not given:
                    kwargs = {"dtype": full, **kwargs}
                return operation(*args, **kwargs)
            dtypes = {x.dtype for x in tree_leaves((args, kwargs)) if _casts(x)}
            wide = policy == "FP32" or (policy == "PROMOTE" and full in dtypes)
            to = functools.partial(self.to, full if wide else low)
            return operation(*tree_map(to, args), **tree_map(to, kwargs))

    def to(self, dtype, x):
        if not _casts(x) or x.dtype == dtype:
            return x
        if dtype == torch.float32 or not (x.is_leaf and x.requires_grad):
            return x.to(dtype)
        if id(x) not in self.casts:  # weights: once
            self.casts[id(x)] = x.to(dtype)
        return self.casts[id(x)]


READS = torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist


class _Here(TorchFunctionMode):
    """Takes every device for the CPU."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        number = func is torch.Tensor.__format__ and not args[0].dim()
        if number or func in READS:
            data = self.values.data(args[0])
            with outside():
                return func(data, *args[1:], **kwargs)
        if func is ctc_loss:  # of tuples C++ makes tensors with data
            args = *args[:2], *map(torch.as_tensor, args[2:])
        if func in (torch.Tensor.record_stream, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.__deepcopy__:  # it would copy the storage's data
            return _copy(*args)
        if func is torch.device:  # without its index
            return func(_here(args[0] if args else kwargs["type"]))
        if func is torch.Tensor.cuda:
            func, args, kwargs = torch.Tensor.to, (args[0], CPU), {}
        moves = func is torch.Tensor.to
        args = [_here(value, moves) for value in args]
        kwargs = {name: _here(x, name == "device") for name, x in kwargs.items()}
        out = func(*args, **kwargs)
        if moves and any(value is CPU for value in (*args, *kwargs.values())):
            self.values.move(out)
        return out


def _here(value, numbered=False):
    """The CPU in the place of a device; numbered: a number stands for one, too."""
    named = isinstance(value, str) and value.split(":")[0] in DEVICES
    named |= numbered and type(value) is int
    return CPU if named or isinstance(value, torch.device) else value


def _copy(x, memo):
    if id(x) not in memo:
        memo[id(x)] = x.detach().clone().requires_grad_(x.requires_grad)
        if isinstance(x, torch.nn.Parameter):
            memo[id(x)] = torch.nn.Parameter(memo[id(x)], x.requires_grad)
    return memo[id(x)]


def _patches(state, fake_tensor):
    """Contexts that put something in the place of what PyTorch does on a CPU."""
    yield warnings.catch_warnings()
    warnings.simplefilter("ignore")
    yield mock.patch.object(fake_tensor.log, "exception", _nothing)
    # before the others: what it imports must not see them
    yield torch.compiler.set_stance("force_eager")
    yield from _of_tensors(fake_tensor)
    yield from _of_autocast(state)
    yield from _of_optimizers(fake_tensor.FakeTensor)
    yield from _of_loaders()
    if not torch.cuda.is_available():
        yield from _of_gpus()
    yield torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    yield mock.patch.object(torch, "save", _nothing)  # there is no data
    yield mock.patch.object(torch.nn.DataParallel, "forward", _alone)
    distributed = torch.nn.parallel.DistributedDataParallel
    yield mock.patch.object(distributed, "__init__", _with_buckets)
    yield mock.patch.object(distributed, "forward", _alone)
    yield mock.patch.object(distributed, "no_sync", contextlib.nullcontext)
    if torch.distributed.is_available():
        for name in COLLECTIVES:
            yield mock.patch.object(torch.distributed, name, _nothing)


def _nothing(*args, async_op=False, **kwargs):
    return types.SimpleNamespace(wait=lambda: True) if async_op else None


def _alone(self, *args, **kwargs):
    return self.module(*args, **kwargs)


def _with_buckets(self, module, *args, gradient_as_bucket_view=False, **kwargs):
    """DistributedDataParallel: what it sends lies in buckets, the size of gradients."""
    torch.nn.Module.__init__(self)
    self.module, self.buckets = module, []
    if not gradient_as_bucket_view:
        own = [p for p in module.parameters() if p.requires_grad]
        self.buckets = [torch.empty_like(p, requires_grad=False) for p in own]


def _of_tensors(fake_tensor):
    """Fake tensors are dispatched as CUDA's, and stay themselves."""
    make = torch.Tensor._make_subclass

    def make_subclass(cls, *args, **kwargs):
        if cls is fake_tensor.FakeTensor:
            kwargs["device_for_backend_keys"] = torch.device("cuda")
        return make(cls, *args, **kwargs)

    def set_data(x, other):
        x.data = other

    yield mock.patch.object(torch.Tensor, "_make_subclass", staticmethod(make_subclass))
    mode = fake_tensor.FakeTensorMode
    yield mock.patch.object(mode, "avoid_device_init", True, create=True)
    # module.to() swaps fake tensors only, and none that a graph or a weakref knows
    yield mock.patch.object(torch.utils, "swap_tensors", set_data)


def _of_autocast(state):
    """It is CUDA's, whatever its device, and `state` learns whether it was on."""
    init = torch.autocast.__init__

    def autocast(self, device_type, *args, **kwargs):
        init(self, "cuda", *args, **kwargs)  # a loop says "cpu" where there is no GPU
        state.autocast |= self._enabled

    yield mock.patch.object(torch.autocast, "__init__", autocast)
    # checkpoint asks, and switches the same on for the recomputation
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        asked = functools.partial(getattr(torch, name), "cuda")
        yield mock.patch.object(torch, name, lambda *_, asked=asked: asked())
    yield mock.patch.object(torch, "clear_autocast_cache", state.casts.clear)
    common = torch.cuda.amp.common
    yield mock.patch.object(common, "amp_definitely_not_available", lambda: False)
    yield mock.patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: True)


def _of_optimizers(kind):
    """They take tensors of this kind together, as those on a GPU."""
    devices = "_get_foreach_kernels_supported_devices"
    yield mock.patch.object(optim, devices, lambda: ["cpu"])
    for module in (optim, torch.utils._foreach_utils):
        yield mock.patch.object(module, "_foreach_supported_types", [kind])


def _of_loaders():
    """Batches and arrays have data; they are prepared outside, and in this process."""
    for name in ("from_numpy", "frombuffer"):
        yield mock.patch.object(torch, name, outside()(getattr(torch, name)))
    steps = dataloader._BaseDataLoaderIter.__next__

    def iterator(loader):
        alone = copy.copy(loader)
        vars(alone).update(num_workers=0, timeout=0, pin_memory=False)
        with outside():
            return dataloader._SingleProcessDataLoaderIter(alone)

    def following(self):
        with outside():
            return steps(self)

    yield mock.patch.object(dataloader.DataLoader, "_get_iterator", iterator)
    yield mock.patch.object(dataloader._BaseDataLoaderIter, "__next__", following)


class _Stream(contextlib.nullcontext):
    """A stream, an event or a device that is not there. Its times are 1."""

    def __init__(self, *args, **kwargs):
        super().__init__(self)

    def __getattr__(self, name):
        return lambda *args, **kwargs: 1.0


class _Generator(torch.Generator):
    """The CPU's, whatever its device."""

    def __new__(cls, device=None):
        return super().__new__(cls)


NO_GPU = {
    _nothing: "init set_device synchronize reset_peak_memory_stats ipc_collect",
    lambda *_, **__: 0: """current_device memory_allocated max_memory_allocated
        memory_reserved max_memory_reserved""",
    _Stream: "Stream Event stream current_stream default_stream device",
    lambda *_: (2**36, 2**36): "mem_get_info",
    lambda *_: "H100": "get_device_name",
    lambda *_: H100[0]: "get_device_capability",
}


def _of_gpus():
    """What speaks to the GPU itself, where there is none."""
    yield mock.patch.object(torch, "Generator", _Generator)
    for answer, names in NO_GPU.items():
        for name in names.split():
            for module in (torch.cuda, torch.accelerator):
                if hasattr(module, name):
                    yield mock.patch.object(module, name, answer)


def _casts(x):
    dtypes = torch.float32, torch.float16, torch.bfloat16
    return isinstance(x, torch.Tensor) and x.dtype in dtypes


def _never(*args):
    """Fake tensors call no kernel; the dispatcher only asks whether there is one."""
    raise NotImplementedError


def _autocast_lists():
    """(operation, policy) of CUDA's autocast, from the header of this PyTorch."""
    header = pathlib.Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    text = header.read_text(encoding="utf-8")
    for policy in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        body = re.search(rf"define AT_FORALL_{policy}\(_\)((?:.*\\\n)*.*)", text)[1]
        for name, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body):
            yield getattr(getattr(aten, name), overload or "default"), policy


def _dropout(x, p, train):
    """CUDA's keeps a mask of one byte a value."""
    return torch.native_dropout(x, p, train)[0] if train and p > 0 else x


def _attention(
    gpu, q, k, v, mask=None, dropout=0.0, causal=False, *, scale=None, enable_gqa=False
):
    """The first of flash, efficient and math that takes the inputs: sdp_utils.cpp in
    ATen/native/transformers/cuda.
    """
    half = q.dtype in (torch.float16, torch.bfloat16)
    if q.dim() == 4 and half and mask is None and q.shape[-1] <= 256 and gpu >= (8, 0):
        flash = aten._scaled_dot_product_flash_attention
        return flash(q, k, v, dropout, causal, scale=scale)[0]
    aligned = all(x.shape[-1] % (8 if half else 4) == 0 for x in (q, v))
    has_type = gpu >= (8, 0) or q.dtype != torch.bfloat16
    if q.dim() != 4 or enable_gqa or not aligned or not has_type:
        by_hand = aten._scaled_dot_product_attention_math
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return by_hand(q, k, v, mask, dropout, causal, **options)[0]
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
    saves = any(x.requires_grad for x in (q, k, v))
    efficient = aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, mask, saves, dropout, causal, scale=scale)[0]


def within(func, args, gpu):
    """Bytes that CUDA's kernels take and give back within a call, fitted to what the
    allocator was asked for on an emulated T4 and H200. ATen/native: cuda/Blas.cpp,
    cuda/SoftMax.cu, cuda/Reduce.cuh, transformers/cuda/attention_backward.cu.
    """
    name, x = func.overloadpacket, args[0] if args else None
    if name in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
        for x in args[-2:]:  # cuBLAS takes no expanded matrices
            (m, n), (row, column) = x.shape[-2:], x.stride()[-2:]
            if not ((row == 1 and column >= m) or (column == 1 and row >= n)):
                yield x.numel() * x.element_size()
    elif name is aten._softmax_backward_data:
        yield x.numel() * x.element_size()
    elif name is aten._safe_softmax:
        yield x.numel()
    elif name is aten._scaled_dot_product_efficient_attention_backward:
        if x.dtype == torch.float32:
            yield x.numel() * 4
    elif func in (aten.sum.dim_IntList, aten.mean.dim) and args[1]:
        yield _partial_sums(x, args[1], gpu)


def _partial_sums(x, dims, gpu):
    """For sums over all dimensions but the last, as the gradient of a bias:
    setReduceConfig in Reduce.cuh.
    """
    last = x.shape[-1]
    if len(dims) != x.dim() - 1 or last < 2 or not x.is_contiguous():
        return 0
    rows, vector = x.numel() // last, math.gcd(last, 4)
    threads, columns = 512 // vector, _power(last // vector)
    height = min(_power(rows), threads // min(columns, 32))
    width = min(columns, threads // height)
    each, grid = math.ceil(rows / height), math.ceil(last / vector / width)
    most = gpu[1] * (gpu[2] // (width * height))
    if each < 256 or grid > most:
        return 0
    split = max(
        min(math.ceil(most / grid), math.ceil(each / 16)), math.ceil(each / 256)
    )
    return (split > 1) * max(4, x.element_size()) * last * split * width * vector


def _power(n):
    """The largest power of two up to n."""
    return 1 << (max(1, n).bit_length() - 1)

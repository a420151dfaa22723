"""GPUs and processes that do not exist: tensors with a real device name and no numbers,
ranks without a machine.
"""

import contextlib
import unittest.mock
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch._subclasses import fake_tensor
from torch.distributed import distributed_c10d
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextlib.contextmanager
def fake_gpus() -> Iterator[None]:
    """Within it, cuda:0, cuda:1, … exist for bare tensors, on a machine with any number
    of real GPUs, or none. "Bare" means without gradients, so no models either: autograd
    asks the real device for its stream, and a build without CUDA ends the process.

    RuntimeError, one line that says so, where that would happen, on every build; where
    a value is asked for (a fake tensor has none); and where an operation asks for a
    real GPU that this build does not know (`x[0] = 1`).

    PyTorch's FakeTensorMode, kept from making real tensors where there is a GPU: it
    does up to 2.11 for every fake tensor (`init_gpu_context`), and in all versions for
    `torch.tensor(data, device=…)` (`avoid_device_init`).
    """
    with (
        unittest.mock.patch.object(
            fake_tensor, "init_gpu_context", lambda device: None, create=True
        ),
        unittest.mock.patch.object(
            fake_tensor.FakeTensorMode, "avoid_device_init", True, create=True
        ),
        unittest.mock.patch.object(torch.autograd.Function, "apply", _tried_apply),
        # of tensors made outside, too
        fake_tensor.FakeTensorMode(allow_non_fake_inputs=True),
        _NoGraph(),
        _ClearWords(),
    ):
        yield


NO_GRADIENTS = (
    "fake_gpus() has no gradients and no models, for autograd asks a real GPU: rehearse"
    ' a training step on device="meta"'
)
NO_NUMBERS = (
    "a tensor of fake_gpus() has no numbers, and `{name}` needs one (a real GPU would"
    " send it, and the program wait)"
)
NO_GPU = (
    "fake_gpus() cannot do `{name}`, for this build of PyTorch asks a real GPU there:"
    ' try it on device="meta"'
)
# parts of what PyTorch says instead
INSTEAD = {
    ".numpy() is not supported for tensor subclasses": NO_NUMBERS,
    "unsupported format string passed to FakeTensor": NO_NUMBERS,
    "aten._local_scalar_dense": NO_NUMBERS,
    "not linked with support for": NO_GPU,
    "Cannot access accelerator device": NO_GPU,
    "NVIDIA driver": NO_GPU,
    "CUDA driver": NO_GPU,
}
CHANGES_LEAF = torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__
own_apply = torch.autograd.Function.__dict__["apply"]


def _is_gpu(x):
    return isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "meta")


def _graph_on_a_gpu(inputs, results):
    """Whether autograd would record an operation with a result on a GPU."""
    tensors = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    return recorded and any(map(_is_gpu, tree_leaves(results)))


class _NoGraph(TorchDispatchMode):
    """RuntimeError before autograd makes a node for a result on a GPU, where the
    process would end.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        if _graph_on_a_gpu((args, kwargs), result):
            raise RuntimeError(NO_GRADIENTS)
        return result


@classmethod
def _tried_apply(cls, *args, **kwargs):
    """torch.autograd.Function.apply, tried without gradients first: it runs `forward`
    without a graph, and makes its node afterwards.
    """
    with torch.no_grad():
        result = own_apply.__get__(None, cls)(*args, **kwargs)
    if _graph_on_a_gpu((args, kwargs), result):
        raise RuntimeError(NO_GRADIENTS)
    return own_apply.__get__(None, cls)(*args, **kwargs)


class _ClearWords(TorchFunctionMode):
    """Gives a number to a GPU without one ("cuda", cuda()), for PyTorch would ask which
    is the current one. Refuses leaves on a GPU. Says in one line what a fake GPU cannot
    do.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        if function in (torch.Tensor.to, torch.Tensor.cuda):
            function, args, kwargs = _numbered(function, *args, **kwargs)
        first = args[0] if args else None
        if _is_gpu(first):
            _refuse(function, name, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            line = _clear_line(error)
            if line is None:
                raise
            raise RuntimeError(line.format(name=name)) from None
        if _is_gpu(result):
            if result.requires_grad or isinstance(first, torch.nn.Parameter):
                raise RuntimeError(NO_GRADIENTS)
        return result


def _numbered(function, tensor, *args, **kwargs):
    """A call of Tensor.to or Tensor.cuda as one of `to` with a number for the GPU."""
    if function is torch.Tensor.cuda:
        place = args[0] if args else kwargs.pop("device", None)
        args = ("cuda" if place is None else place, *args[1:])
    args = [tensor, *map(_with_number, args)]
    return torch.Tensor.to, args, {key: _with_number(x) for key, x in kwargs.items()}


def _with_number(place):
    """A device for "cuda", torch.device("cuda") and 1; all else as it is."""
    if isinstance(place, int) and not isinstance(place, bool):
        return torch.device("cuda", place)
    if isinstance(place, (str, torch.device)):
        device = torch.device(place)
        if device.type not in ("cpu", "meta") and device.index is None:
            return torch.device(device.type, 0)
    return place


def _refuse(function, name, args, kwargs):
    """Raise for what a tensor on a GPU cannot be asked."""
    if function in CHANGES_LEAF:
        if args[1] if len(args) > 1 else kwargs.get("requires_grad", True):
            raise RuntimeError(NO_GRADIENTS)
    if name in ("numpy", "__array__"):  # as a real one says it
        raise TypeError(
            f"can't convert {args[0].device} device type tensor to numpy. Use"
            " Tensor.cpu() to copy the tensor to host memory first."
        )


def _clear_line(error):
    """What to say in place of one of PyTorch's messages, or None."""
    if isinstance(error, fake_tensor.DynamicOutputShapeException):
        return NO_NUMBERS
    return next((INSTEAD[part] for part in INSTEAD if part in str(error)), None)


@contextlib.contextmanager
def fake_autocast(dtype: torch.dtype = torch.float16) -> Iterator[None]:
    """fake_gpus() with CUDA's autocast switched on, also on a machine without a GPU.

    dtype: torch.float16 or torch.bfloat16. Only the dtypes that come out are real.
    (`torch.autocast("cuda")` itself warns and does nothing where there is no GPU; this
    sets the switch beneath it.)
    """
    with fake_gpus():
        before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])
            torch.clear_autocast_cache()


class Fetched(BaseException):
    """Raised by MetaAsGpu where a value is asked for. No Exception, so that `except
    Exception` does not catch it.
    """


# in which a tensor of the CPU may meet one of a GPU: as an index, or copied
MAY_MEET = {"index", "index_put", "index_put_", "copy_", "_to_copy"}


class MetaAsGpu(TorchDispatchMode):
    """Within it, tensors on meta stand for tensors on a GPU, also in operations that
    fake_gpus() cannot do without a CUDA build (`x[0] += 1`).

    meta lets some mixtures with the CPU pass that a GPU refuses: RuntimeError, as
    there. Fetched where a value would come to the CPU. Not refused: a tensor of the
    CPU between brackets (`x[here]`), and copies between the two.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = operation.overloadpacket.__name__
        tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        if _brings_values(name, kwargs) and tensors[0].is_meta:
            raise Fetched
        if name not in MAY_MEET and _meet(operation, tensors):
            raise RuntimeError(
                "Expected all tensors to be on the same device, found cuda:0 and cpu in"
                f" {name}"
            )
        return operation(*args, **kwargs)


def _brings_values(name, kwargs):
    """Whether an operation brings what its first tensor holds to the CPU."""
    to_host = name == "_to_copy" and str(kwargs.get("device")) == "cpu"
    return to_host or name == "_local_scalar_dense"


def _meet(operation, tensors):
    """Whether meta and the CPU meet in it: a number on the CPU may join, but not
    receive.
    """
    on_cpu = [x for x in tensors if not x.is_meta]
    if not on_cpu or len(on_cpu) == len(tensors):
        return False
    receives = operation._schema.is_mutable and not tensors[0].is_meta
    return receives or any(x.dim() > 0 for x in on_cpu)


class Collective(NamedTuple):
    """A collective that was issued. name: "all_gather", "reduce_scatter" or
    "all_reduce". bytes: of the whole, with padding: what each rank has after a gather,
    or before a reduction. ranks: that take part in it.
    """

    name: str
    bytes: int
    ranks: int


NAMES = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allreduce_": "all_reduce",
    # those of DTensor
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
}


class _Collectives(TorchDispatchMode):
    """Notes the collectives of torch.distributed on their way to the process group."""

    def __init__(self):
        super().__init__()
        # takes a second to import, and most who import this module need it not
        from torch.distributed.tensor import DTensor

        self.issued, self.sharded = [], DTensor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, self.sharded) for kind in types):
            return NotImplemented  # DTensor comes again, with what it does inside
        result = func(*args, **(kwargs or {}))
        space, name = func._schema.name.split("::")
        if space in ("c10d", "_c10d_functional") and name in NAMES:
            tensors = [x for x in tree_leaves((args, result)) if torch.is_tensor(x)]
            whole = max(tensor.nbytes for tensor in tensors)
            self.issued.append(Collective(NAMES[name], whole, _group(args).size()))
        return result


def _group(args):
    """The process group among the arguments of a collective: itself or its name."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return dist.ProcessGroup.unbox(arg)
    return distributed_c10d._resolve_process_group(args[-1])


@contextlib.contextmanager
def fake_processes(ranks: int, rank: int = 0) -> Iterator[list[Collective]]:
    """Within it, this process is one of `ranks`, of which the others do not exist, and
    has their default process group.

    Yields a list that grows by a Collective each time one is issued. Collectives return
    at once and their results mean nothing: what is real is which ones are issued, in
    which order, with how many bytes. (DDP fails in such a group at the end of its first
    backward pass; FSDP2 and DTensor run. Give `distribute_tensor` src_data_rank=None:
    it would send what is nothing.)
    """
    dist.init_process_group("fake", rank=rank, world_size=ranks)
    try:
        with _Collectives() as mode:
            yield mode.issued
    finally:
        dist.destroy_process_group()

"""A toy of CUDA Graphs on the CPU: record the operations of a block once, replay them
on the same memory.

It shares the rules that matter: capturing runs no work, a replay runs no Python, every
operation reads and writes the tensors it saw while it was recorded. Built on PyTorch's
TorchDispatchMode, which sees each operation on its way to the kernel. Lesson 10 uses it
where there is no GPU.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from device_lab import LabError


class ToyGraph:
    """What torch.cuda.CUDAGraph is to a GPU. `with graph.capture(): …`, then
    `graph.replay()`.

    kernels: names of the recorded operations, in order, such as "mm"; views, which move
    no data, are left out.

    While capturing, the tensors made inside are filled with NaN, because no work runs;
    changes in place wait for the first replay as well (except for the running
    statistics of batch normalization). LabError where the block asks for a value, as
    `.item()`, `if tensor:` and `nonzero` do. CPU tensors only.

    Not as a GPU: an index that is a tensor of whole numbers raises here, too; and
    `.cpu()`, `.tolist()` and `.numpy()` pass, since the memory is the CPU's.
    """

    def __init__(self):
        self._steps, self.kernels = [], []

    def capture(self):
        """Context manager: record what happens in it. LabError where this graph holds
        something already.
        """
        if self._steps:
            raise LabError("this graph is captured already: make a new ToyGraph")
        return _Recorder(self)

    def replay(self):
        """Do all recorded operations again, on the tensors of the recording. Python
        code is not among them.
        """
        if not self._steps:
            raise LabError("nothing is captured yet: use `with graph.capture():` first")
        with torch.no_grad():
            for operation, args, kwargs, made in self._steps:
                for old, new in zip(
                    made, _tensors(operation(*args, **kwargs)), strict=True
                ):
                    old.copy_(new)


# operations whose result, or its shape, depends on values
ASKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class _Recorder(TorchDispatchMode):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs, schema = kwargs or {}, operation._schema
        name = operation.overloadpacket.__name__
        if ASKS & set(operation.tags):
            raise LabError(
                f"{name} needs a value while the graph is captured, and nothing has"
                " run yet"
            )
        returns = [returned.alias_info for returned in schema.returns]
        if returns and all(alias and not alias.is_write for alias in returns):
            # a view: it stays valid, whatever is replayed
            return operation(*args, **kwargs)
        # marks of the profiler, around each optimizer step
        if not name.startswith("_record_function"):
            self.graph.kernels.append(name)
        # in place: nothing is made, and nothing runs now
        if all(alias and alias.is_write for alias in returns):
            result = _written(schema, args, kwargs)
        else:
            result = operation(*args, **kwargs)
            for made in _tensors(result):
                if made.is_floating_point():
                    made.fill_(float("nan"))
        self.graph._steps.append((operation, args, kwargs, _tensors(result)))
        return result


def _written(schema, args, kwargs):
    """What an operation in place returns: the arguments that it writes to."""
    values = dict(zip([a.name for a in schema.arguments], args, strict=False)) | kwargs
    written = [
        values[a.name]
        for a in schema.arguments
        if a.alias_info and a.alias_info.is_write and a.name in values
    ]
    if len(schema.returns) == 1:
        return written[0]
    return tuple(written) if schema.returns else None


def _tensors(result):
    return [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]

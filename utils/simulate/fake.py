"""GPUs that need no hardware: tensors with a real device name and no numbers."""

import contextlib
import unittest.mock

import torch
from torch._subclasses import fake_tensor


@contextlib.contextmanager
def fake_gpus():
    """Within it, cuda:0, cuda:1, … exist for bare tensors, on a machine with any number of real GPUs, or none.

    PyTorch's FakeTensorMode, which its compiler uses to rehearse a program. Up to 2.11, on a machine with a GPU, the
    mode also makes a real tensor on the named device, and fails where a GPU with that index is missing: not here.
    """
    with unittest.mock.patch.object(fake_tensor, "init_gpu_context", lambda device: None):
        with fake_tensor.FakeTensorMode():
            yield


@contextlib.contextmanager
def fake_autocast(dtype=torch.float16):
    """fake_gpus() with CUDA's autocast switched on, also on a machine without a GPU.

    dtype: torch.float16 or torch.bfloat16. Only the dtypes that come out are real. (`torch.autocast("cuda")` itself
    warns and does nothing where there is no GPU; this sets the switch beneath it.)
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

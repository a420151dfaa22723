"""GPUs that need no hardware: tensors with a real device name and no numbers."""

import contextlib
import unittest.mock

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

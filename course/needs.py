"""What this machine lacks for what cells of lessons require (course/grammar.py): a
function `missing_WORD` for each word.

None: nothing is missing. Otherwise a phrase to be read after "needs": "a CUDA GPU, and
PyTorch sees none here".
"""

import importlib.util

import torch

from utils.devices import missing_code, missing_compiler, name_of, pick_device
from utils.xla import missing_tpu, missing_xla  # noqa: F401 (words of cells)


def missing_cuda(count: int = 1) -> str | None:
    if not torch.cuda.is_available():
        return "a CUDA GPU, and PyTorch sees none here"
    seen = torch.cuda.device_count()
    if seen < count:
        return f"{count} CUDA GPUs, and PyTorch sees {seen} here"
    return next(filter(None, (missing_code(f"cuda:{i}") for i in range(count))), None)


def missing_mps() -> str | None:
    if torch.backends.mps.is_available():
        return None
    return "an Apple GPU (MPS), and PyTorch sees none here"


def missing_accelerator() -> str | None:
    if pick_device().type != "cpu":
        return None
    why = missing_cuda() if torch.cuda.is_available() else None
    return why or "an accelerator, and PyTorch sees none here"


def missing_triton() -> str | None:
    """What torch.compile lacks here to write kernels for a CUDA GPU."""
    if missing_cuda():
        return missing_cuda()
    if torch.cuda.get_device_capability() < (7, 0):
        return (
            f"a GPU of compute capability 7.0 or newer, and {name_of('cuda')} is older"
        )
    if not importlib.util.find_spec("triton"):
        return "Triton, and it is not installed here"
    return missing_compiler()

"""What this machine lacks for what cells of lessons require (course/grammar.py): a
function `missing_WORD` for each word.

None: nothing is missing. Otherwise a phrase to be read after "needs": "a CUDA GPU, and
PyTorch sees none here".
"""

import importlib.util
import os
import pathlib
import shutil
import sys
import sysconfig
import tempfile

import torch

from .devices import missing_code, name_of, on_libtpu, package_version, pick_device
from .hardware import output_of


def missing_cuda(count: int = 1) -> str | None:
    if not torch.cuda.is_available():
        return "a CUDA GPU, and PyTorch sees none here"
    found = torch.cuda.device_count()
    if found < count:
        return f"{count} CUDA GPUs, and PyTorch sees {found} here"
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


def missing_xla() -> str | None:
    ours, theirs = package_version("torch"), package_version("torch_xla")
    if theirs is None:
        return "torch_xla, and it is not installed here"
    if ours.split(".")[:2] != theirs.split(".")[:2]:
        return (
            f"torch_xla and torch of the same release, and here are torch_xla {theirs}"
            f" and torch {ours}"
        )
    return None


def missing_tpu() -> str | None:
    if pick_device().type == "tpu":  # TorchTPU, which registers this device type
        here = "a TPU, and torch_tpu runs on XLA's CPU device here"
        return None if on_libtpu() else here
    if package_version("torch_xla") is None:
        if package_version("torch_tpu"):
            sees = "finds none" if "torch_tpu" in sys.modules else "is not loaded"
            return f"a TPU, and torch_tpu {sees} here"
        return "a TPU, and neither torch_xla nor torch_tpu is installed here"
    if missing_xla():
        return missing_xla()
    import torch_xla.runtime

    kind = torch_xla.runtime.device_type()
    return None if kind == "TPU" else f"a TPU, and torch_xla runs on {kind} here"


def missing_compiler() -> str | None:
    """What torch.compile lacks here to write kernels for the CPU: it calls one
    compiler, and includes Python.h.
    """
    usual = {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    name = os.environ.get("CXX") or usual
    found = shutil.which(name)
    # on a Mac without the developer tools, a program that offers to install them
    if found == "/usr/bin/clang++" and sys.platform == "darwin":
        found = found if output_of("xcode-select", "-p") else None
    if not found:
        return (
            f"the C++ compiler that torch.compile calls ({name}), and it is not found"
            " here"
        )
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return "Python's header files (Debian: python3-dev), and none are found here"
    folders = (torch.__path__[0], tempfile.gettempdir(), header)
    if any(" " in str(path) for path in folders):
        return (
            "folders without a space for PyTorch and for temporary files: torch.compile"
            " gives the compiler bare paths"
        )
    return None


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

"""doctor: what this machine offers to PyTorch, and what to do where something is
missing.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator

import torch

from .devices import (
    emulated,
    memory_gib,
    missing_code,
    missing_compiler,
    name_of,
    package_version,
    pick_device,
)
from .no_gpu import QUESTIONS, why_no_gpu
from .supported import NEWEST_PYTHON, OLDEST_PYTHON, OLDEST_TORCH, PYTHONS, dotted
from .xla import missing_tpu, missing_xla


def doctor() -> None:
    """Print what this machine offers to PyTorch, one line each, with what to do where
    something is missing.
    """
    print("\n".join(line(ok, text) for ok, text in checkup()))


def line(ok: bool, text: str) -> str:
    """A line as `doctor` prints it."""
    return f"[{'OK' if ok else '--'}] {text}"


def checkup() -> Iterator[tuple[bool, str]]:
    """The lines of `doctor`: whether a thing is there, and what is said about it."""
    yield from _check_software()
    yield from _check_devices()
    yield from _check_tools()


def _check_software():
    python = f"Python {platform.python_version()}"
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        yield True, python
    else:
        yield False, f"{python}: tested are {PYTHONS}"
    flavor = "built for the CPU only"
    if torch.version.cuda:
        flavor = f"built for CUDA {torch.version.cuda}"
    elif torch.version.hip:
        flavor = f"built for ROCm {torch.version.hip}"
    elif torch.backends.mps.is_built():
        flavor = "built with MPS"
    pytorch = f"PyTorch {torch.__version__}, {flavor}"
    if torch.__version__ >= OLDEST_TORCH:
        yield True, pytorch
    else:
        yield False, f"{pytorch}: you need {dotted(OLDEST_TORCH)} or newer"
    for package in ("numpy", "psutil"):
        if not package_version(package):
            yield False, f"{package} is not installed: pip install {package}"


def _check_devices():
    threads = torch.get_num_threads()
    memory = f"{memory_gib():.0f} GiB memory"
    yield True, f"CPU: {name_of('cpu')}, {memory}, {threads} threads for PyTorch"
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for i in range(gpus):
        yield _check_gpu(i)
    if not gpus:
        chain = why_no_gpu()
        why = QUESTIONS[chain.broken] + " No" if chain.broken else "but why?"
        lines = [f"CUDA GPU: none that PyTorch can use. {why}", *chain.cure]
        yield False, "\n     ".join(lines)
    if torch.backends.mps.is_available():
        most = f"{torch.mps.recommended_max_memory() / 2**30:.1f} GiB"
        yield True, f"Apple GPU (MPS): shares the memory, at most {most} recommended"
    else:
        yield False, "Apple GPU (MPS): none; it takes a Mac with an Apple chip"
    if torch.xpu.is_available():
        yield True, "Intel GPU (XPU): available"
    else:
        xpu = "none; it takes an Intel GPU and PyTorch's XPU build"
        yield False, f"Intel GPU (XPU): {xpu}"
    yield _check_tpu()


def _check_tpu():
    ours = package_version("torch_tpu")
    if ours and pick_device().type == "tpu":
        return missing_tpu() is None, f"{name_of('tpu')} (torch_tpu {ours})"
    if not (xla := missing_xla()):
        return True, f"torch_xla {package_version('torch_xla')}: XLA devices"
    if ours:
        # what it counts: torch_tpu/_internal/utils/hardware.py
        advice = "it takes a TPU v4 or newer, with a file in /dev/vfio"
        if "torch_tpu" not in sys.modules:
            advice = "start Python without TORCH_DEVICE_BACKEND_AUTOLOAD"
        return False, f"torch_tpu {ours}: needs {missing_tpu()}; {advice}"
    return False, f"TPU: needs {xla}; on Colab choose a TPU runtime"


def _check_gpu(index):
    gpu, lack = torch.cuda.get_device_properties(index), missing_code(f"cuda:{index}")
    name = gpu.name
    if emulated():
        name = f"emulated {name}: numbers and memory real, times modeled"
    memory = f"{gpu.total_memory / 2**30:.1f} GiB"
    if gpu.is_integrated and torch.version.cuda:
        memory += " shared with the CPU"
    text = f"GPU {index}: {name}, {memory}, compute capability {gpu.major}.{gpu.minor}"
    if lack:
        text += (
            ": this PyTorch has no code for it: why_no_gpu() names a build that has; or"
            " hide the GPU with CUDA_VISIBLE_DEVICES=-1 before you start Python"
        )
    return lack is None, text


def _check_tools():
    compiles = "torch.compile on the CPU:"
    if missing := missing_compiler():
        yield False, f"{compiles} needs {missing}"
    else:
        yield True, f"{compiles} works here, there is a C++ compiler"
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    if free > 1:
        yield True, f"disk: {free:.0f} GiB free"
    else:
        yield False, f"disk: {free:.0f} GiB free; free some space before you go on"

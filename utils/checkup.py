"""doctor: what this machine offers to the course, and what to do where something is
missing.
"""

import platform
import shutil
import sys
from collections.abc import Iterator

import torch

from utils.course import COURSE
from utils.devices import emulated, memory_gib, missing_code, name_of, package_version
from utils.needs import missing_compiler, missing_mps, missing_xla


def doctor() -> None:
    """Print what this machine offers to the course, one line each, with what to do
    where something is missing.
    """
    print("\n".join(f"[{'OK' if ok else '--'}] {text}" for ok, text in checkup()))


def checkup() -> Iterator[tuple[bool, str]]:
    """The lines of `doctor`: whether a thing is there, and what is said about it."""
    yield from _check_software()
    yield from _check_devices()
    yield from _check_tools()


def _check_software():
    ok = (3, 10) <= sys.version_info[:2] <= (3, 13)
    yield (
        ok,
        f"Python {platform.python_version()}"
        + ("" if ok else ": tested are 3.10 to 3.13"),
    )
    flavor = (
        f"built for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "built for the CPU only"
    )
    if torch.version.hip:
        flavor = f"built for ROCm {torch.version.hip}"
    elif torch.backends.mps.is_built():
        flavor = "built with MPS"
    ok = torch.__version__ >= (2, 9)
    yield (
        ok,
        f"PyTorch {torch.__version__}, {flavor}"
        + ("" if ok else ": the lessons need 2.9 or newer"),
    )
    for package in ("numpy", "matplotlib", "ipywidgets", "psutil"):
        if not package_version(package):
            yield False, f"{package} is not installed: pip install {package}"
    if package_version("ipywidgets"):
        yield True, f"ipywidgets {package_version('ipywidgets')}: sliders work"


def _check_devices():
    threads = torch.get_num_threads()
    yield (
        True,
        (
            f"CPU: {name_of('cpu')}, {memory_gib():.0f} GiB memory, {threads} threads"
            " for PyTorch"
        ),
    )
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for i in range(gpus):
        p, lack = torch.cuda.get_device_properties(i), missing_code(f"cuda:{i}")
        name = (
            f"emulated {p.name}: numbers and memory real, times modeled"
            if emulated()
            else p.name
        )
        text = (
            f"GPU {i}: {name}, {p.total_memory / 2**30:.1f} GiB, compute capability"
            f" {p.major}.{p.minor}"
        )
        if lack:
            text += (
                ": this PyTorch has no code for it; install a build that has (lesson"
                " 01), "
            )
            text += (
                "or hide the GPU with CUDA_VISIBLE_DEVICES=-1 before you start Python"
            )
        yield lack is None, text
    if not gpus:
        yield (
            False,
            (
                "CUDA GPU: none that PyTorch can use; lesson 01 finds out why, and all"
                " lessons run without"
            ),
        )
    mps = missing_mps() is None
    yield (
        mps,
        "Apple GPU (MPS): "
        + ("available" if mps else "none; it takes a Mac with an Apple chip"),
    )
    xpu = torch.xpu.is_available()
    yield (
        xpu,
        "Intel GPU (XPU): "
        + (
            "available"
            if xpu
            else "none; it takes an Intel GPU and PyTorch's XPU build"
        ),
    )
    xla = missing_xla()
    text = f"TPU: needs {xla}; the lessons run without; on Colab choose a TPU runtime"
    yield (
        xla is None,
        text
        if xla
        else f"torch_xla {package_version('torch_xla')}: the XLA cells run live here",
    )


def _check_tools():
    missing = missing_compiler()
    text = (
        "works here, there is a C++ compiler"
        if missing is None
        else f"needs {missing}; only lesson 10 uses it"
    )
    yield missing is None, f"torch.compile on the CPU: {text}"
    free = shutil.disk_usage(COURSE).free / 2**30
    yield (
        free > 1,
        f"disk: {free:.0f} GiB free"
        + ("" if free > 1 else "; free some space before you go on"),
    )
    machines = sorted(
        p.name for p in (COURSE / "notebooks" / "recorded").glob("*") if p.is_dir()
    )
    yield (
        bool(machines),
        "recorded results from: " + (", ".join(machines) or "no machine yet"),
    )

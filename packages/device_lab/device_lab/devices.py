"""The device of this machine: which one to use, and what its PyTorch lacks for it."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch


def pick_device() -> torch.device:
    """The accelerator that PyTorch can use on this machine, or the CPU, without an
    index: device(type='cuda').
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or missing_code(accelerator):
        return torch.device("cpu")
    return accelerator


def missing_code(device: torch.device | str) -> str | None:
    """What the build of PyTorch lacks for `device`, as a phrase after "needs"; None
    where it holds code for it.

    A GPU can be there and available, and the first operation on it says "no kernel
    image is available": the build holds machine code or PTX for other generations. Only
    CUDA devices are judged.
    """
    # ROCm names its generations in another way
    if torch.device(device).type != "cuda" or not torch.version.cuda:
        return None
    capability = torch.cuda.get_device_capability(device)
    built = torch.cuda.get_arch_list()
    if not built or any(_runs(capability, entry) for entry in built):
        return None
    name = torch.cuda.get_device_name(device)
    generation = ".".join(map(str, capability))
    return (
        f"a CUDA GPU that this PyTorch holds code for, and the {name} has compute"
        f" capability {generation}, the build {' '.join(built)}"
    )


def _runs(capability: tuple[int, int], entry: str) -> bool:
    """Whether code for `entry`, such as "sm_86", runs on a GPU of this (major, minor).
    Exercise 01.3 is this rule.
    """
    # sm_86, compute_90, sm_100a: kind, major, minor, letter
    parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)(a|f)?", entry)
    if not parts:
        # a kind of code that nobody knew when this was written: let PyTorch judge
        return True
    kind, built, letter = parts[1], (int(parts[2]), int(parts[3])), parts[4]
    if letter == "a":  # for that one generation alone
        return capability == built
    if kind == "compute" and letter is None:  # PTX: the driver compiles it
        return capability >= built
    return capability[0] == built[0] and capability[1] >= built[1]


def missing_compiler() -> str | None:
    """What torch.compile lacks here to write kernels for the CPU: it calls one
    compiler, and includes Python.h.
    """
    usual = {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    name = os.environ.get("CXX") or usual
    path = shutil.which(name)
    # on a Mac without the developer tools, a program that offers to install them
    if path == "/usr/bin/clang++" and sys.platform == "darwin":
        path = path if output_of("xcode-select", "-p") else None
    if not path:
        return (
            f"the C++ compiler that torch.compile calls ({name}), and it is not found"
            " here"
        )
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return "Python's header files (Debian: python3-dev), and none are found here"
    folders = (torch.__path__[0], tempfile.gettempdir(), header)
    if any(" " in str(folder) for folder in folders):
        return (
            "folders without a space for PyTorch and for temporary files: torch.compile"
            " gives the compiler bare paths"
        )
    return None


# --------------------------------------------------------------------------------------
# nvidia-smi

# What holds a GPU's clock down, by its bit in NVML (nvml.h, nvmlClocksEventReason…).
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


@functools.lru_cache
def nvidia_smi(
    field: str, device: torch.device | int | None = None, when: int = 0
) -> str:
    """One field of a GPU from nvidia-smi, such as "driver_version"; "" where nvidia-smi
    is missing or does not know.

    device: a CUDA device of PyTorch, whose order need not be nvidia-smi's; without it
    the first one of nvidia-smi. when: an answer is kept, and asked for again with
    another number here.
    """
    gpu = "0"
    if device is not None:
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        # some builds of PyTorch do not tell it; another card's answer would be worse
        if not uuid:
            return ""
        gpu = f"GPU-{uuid}"
    return output_of(
        "nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", f"--id={gpu}"
    )


def throttle_reasons(device: torch.device) -> list[str]:
    """What holds down the clock of this NVIDIA GPU now, such as ["power cap"]; [] where
    nobody can say.
    """
    second = int(time.monotonic())  # nvidia-smi can take that long
    # of older drivers, of newer ones
    for name in ("clocks_throttle_reasons.active", "clocks_event_reasons.active"):
        mask = nvidia_smi(name, device, second)
        if mask.startswith("0x"):
            return sorted(
                reason for bit, reason in THROTTLES.items() if int(mask, 16) & bit
            )
    return []


def output_of(*command: str) -> str:
    """What a program prints; "" where it is missing, fails, or takes more than 20
    seconds.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()

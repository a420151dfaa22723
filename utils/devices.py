"""Which devices this machine has, what they are called and lack, and the versions that
decide what a measurement means.
"""

import functools
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import torch

from device_lab import LabError


def pick_device() -> torch.device:
    """The accelerator that PyTorch can use on this machine, or the CPU, without an
    index: device(type='cuda').
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or missing_code(accelerator):
        return torch.device("cpu")
    return accelerator


def missing_code(device: torch.device | str) -> str | None:
    """What the build of PyTorch lacks for `device`, as a phrase after "needs", where it
    holds machine code and PTX for other generations ("no kernel image is available").
    """
    # only CUDA devices are judged; ROCm names its generations in another way
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
    """Whether code for `entry` ("sm_86", "compute_90", "sm_100a") runs on a GPU of this
    (major, minor). Exercise 01.3 is this rule.
    """
    parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)(a|f)?", entry)
    if not parts:  # a kind of code that is newer than this: let PyTorch judge
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
        what = f"the C++ compiler that torch.compile calls ({name})"
        return f"{what}, and it is not found here"
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


@functools.lru_cache
def nvidia_smi(
    field: str, device: torch.device | int | None = None, when: int = 0
) -> str:
    """One field of a GPU, such as "driver_version"; "" where nvidia-smi is missing or
    does not know. device: of PyTorch, None for nvidia-smi's first. when: an answer is
    kept, and asked for again with another number here.
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


def output_of(*command: str) -> str:
    """What a program prints; "" where it is missing, fails, or takes over 20 s."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


@functools.cache
def cpu_name() -> str:
    """The operating system's name of the processor, such as "Intel Xeon Platinum
    8480C", without "(R)" and clock.
    """
    info, name = pathlib.Path("/proc/cpuinfo"), ""
    if info.exists():
        text = info.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        name = match[1].strip() if match else ""
    elif sys.platform == "darwin":
        name = output_of("sysctl", "-n", "machdep.cpu.brand_string")
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    # marks, words that tell nothing, and the clock: "@ 2.00GHz"
    short = re.sub(r"\((R|TM|tm)\)|\bCPU\b|\bProcessor\b|@.*", " ", name)
    return " ".join(short.split()) or name


def cores() -> int:
    """Number of processors this process may use (logical cores)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def memory_gib() -> float:
    """Main memory of this machine in GiB."""
    import psutil

    return psutil.virtual_memory().total / 2**30


def emulated() -> bool:
    """Whether the CUDA device of this process is that of packages/emulated_cuda: no
    GPU, its times are a model.
    """
    return "libemulator.so" in os.environ.get("LD_PRELOAD", "")


def name_of(kind: str) -> str:
    """Name of this machine's device of a kind: "cpu", "cuda", "mps", "xpu", "xla",
    "tpu" or another torch device type.

    Raises LabError where it has none of that kind.
    """
    if kind == "cuda" and torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        if not name:  # in some builds for ROCm
            name = f"AMD {torch.cuda.get_device_properties(0).gcnArchName}"
        return f"emulated {name}" if emulated() else name
    if kind == "xpu" and torch.xpu.is_available():
        return torch.xpu.get_device_name(0)
    if kind == "mps":
        return f"{cpu_name()} GPU (MPS)"
    if kind == "xla":
        import torch_xla.runtime

        runtime = torch_xla.runtime.device_type()
        return tpu_name() if runtime == "TPU" else f"XLA on {runtime}"
    if kind == "tpu" and pick_device().type == "tpu":  # TorchTPU
        return tpu_name() if on_libtpu() else "TorchTPU on XLA's CPU device, no TPU"
    if kind == "meta":
        return "meta"
    if kind != "cpu":
        raise LabError(f"this machine has no {kind} device to name")
    return f"{cpu_name()}, {cores()} core{'s' if cores() != 1 else ''}"


# number on the PCI bus → generation (jax/_src/hardware_utils.py, read 2026-11-22)
TPU_CHIPS = {
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU7x",
}


def on_libtpu() -> bool:
    """Whether TorchTPU uses libtpu, the driver of all TPUs. Another library in its
    place, such as XLA's own for the CPU, has no TPU behind it.
    """
    library = os.environ.get("TPU_LIBRARY_PATH") or "libtpu.so"
    return pathlib.Path(library).name.startswith("libtpu")


def tpu_name(bus: str | pathlib.Path = "/sys/bus/pci/devices") -> str:
    """Generation of this machine's TPU, such as "TPU v5e"; "TPU" where nothing tells.
    Starts no runtime.

    Read from the PCI bus, else from TPU_ACCELERATOR_TYPE ("v5litepod-8", "v6e-1").
    """
    for vendor in sorted(pathlib.Path(bus).glob("*/vendor")):
        if vendor.read_text().strip() == "0x1ae0":  # Google
            chip = TPU_CHIPS.get((vendor.parent / "device").read_text().strip())
            if chip:
                return chip
    kind = os.environ.get("TPU_ACCELERATOR_TYPE", "").lower()
    match = re.match(r"(?:tpu-?)?v?(\d+)(litepod|lite|[a-z]*)", kind)
    if not match:
        return "TPU"
    generation, letter = match.groups()
    if letter == "x":
        return f"TPU{generation}x"
    return f"TPU v{generation}{'e' if letter.startswith('lite') else letter}"


def versions() -> dict[str, str]:
    """Versions that decide what a measurement means; what is not there is left out."""
    facts = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "cpu": name_of("cpu"),
        "torch_xla": package_version("torch_xla"),
        "torch_tpu": package_version("torch_tpu"),
    }
    if torch.cuda.is_available():
        facts["cuda"], facts["rocm"] = torch.version.cuda, torch.version.hip
        major, minor = torch.cuda.get_device_capability(0)
        facts["capability"] = f"{major}.{minor}"
        facts["driver"] = None if emulated() else nvidia_smi("driver_version")
    return {key: value for key, value in facts.items() if value}


def pytorch() -> str:
    """This PyTorch by name and version: "PyTorch 2.13.0"."""
    return f"PyTorch {torch.__version__.split('+')[0]}"


def package_version(package: str) -> str | None:
    """Installed version of `package`, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

"""What hardware is here: pick_device, doctor, names and provenance of this machine, the device table."""

import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import NamedTuple

import torch

from utils.messages import LabError

COURSE = pathlib.Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------------------------------------------------------
# Choosing a device. Lesson 01 builds this function line by line.


def pick_device():
    """The accelerator that PyTorch can use on this machine, or the CPU.

    Returns a torch.device without an index, such as device(type='cuda') or device(type='cpu').
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or missing_code(accelerator):
        return torch.device("cpu")
    return accelerator


def missing_code(device):
    """What the build of PyTorch lacks for `device`, as half a sentence, or None where it holds code for it.

    A GPU can be there and available, and the first operation on it says "no kernel image is available": the build
    holds machine code or PTX for other generations. Only CUDA devices are judged.
    """
    if torch.device(device).type != "cuda" or not torch.version.cuda:  # ROCm names its generations in another way
        return None
    capability, built = torch.cuda.get_device_capability(device), torch.cuda.get_arch_list()
    if not built or any(_runs(capability, entry) for entry in built):
        return None
    name, generation = torch.cuda.get_device_name(device), ".".join(map(str, capability))
    return (
        f"a CUDA GPU that this PyTorch holds code for, and the {name} has compute capability {generation}, "
        f"the build {' '.join(built)}"
    )


def _runs(capability, entry):
    """Whether code for `entry`, such as "sm_86", runs on a GPU of this (major, minor). Exercise 01.2 is this rule."""
    found = re.fullmatch(r"(sm|compute)_(\d+)(\d)(a|f)?", entry)
    if not found:
        return True  # a kind of code that nobody knew when this was written: let PyTorch judge
    kind, built, letter = found[1], (int(found[2]), int(found[3])), found[4]
    if letter == "a":  # for that one generation alone
        return capability == built
    if kind == "compute" and letter is None:  # PTX: the driver compiles it
        return capability >= built
    return capability[0] == built[0] and capability[1] >= built[1]


# ---------------------------------------------------------------------------------------------------------------
# Naming this machine


@functools.cache
def cpu_name():
    """Name of the processor, such as "Intel Xeon Platinum 8480C": the operating system's, without its ornaments."""
    name = ""
    if pathlib.Path("/proc/cpuinfo").exists():
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        name = found.group(1).strip() if found else ""
    elif sys.platform == "darwin":
        name = _output_of("sysctl", "-n", "machdep.cpu.brand_string")
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join(re.sub(r"\((R|TM|tm)\)|\bCPU\b|\bProcessor\b|@.*", " ", name).split()) or name


def cores():
    """Number of processors this process may use (logical cores)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def memory_gib():
    """Main memory of this machine in GiB."""
    import psutil

    return psutil.virtual_memory().total / 2**30


@functools.cache
def nvidia_smi(field, gpu="0"):
    """One field of a GPU from nvidia-smi, such as "driver_version"; "" where nvidia-smi is missing or does not know.

    gpu: a number in nvidia-smi's own order, which need not be PyTorch's, or what `smi_id` gives for a PyTorch device.
    """
    return _output_of("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", f"--id={gpu}")


def smi_id(device="cuda"):
    """nvidia-smi's name for a CUDA device, "GPU-<uuid>"; None where PyTorch does not tell the uuid."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def gpu_state(device="cuda"):
    """What an NVIDIA GPU does now, by nvidia-smi's names (clocks.sm: "1980 MHz", …); {} where nobody can say.

    An answer up to a second old is given again: nvidia-smi can take that long.
    """
    gpu, now = smi_id(device), time.monotonic()
    asked, state = _states.get(gpu, (None, {}))
    if asked is None or now - asked > 1:
        line = ""
        for reasons in REASONS if gpu else ():
            query = ",".join([*STATE[:-1], reasons])
            line = line or _output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", f"--id={gpu}")
        state = dict(zip(STATE, line.split(", "), strict=False)) if line else {}
        _states[gpu] = now, state
    return state


STATE = ["clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_throttle_reasons.active"]
REASONS = ["clocks_throttle_reasons.active", "clocks_event_reasons.active"]  # older drivers' name, newer drivers' name
_states = {}  # nvidia-smi's name of a GPU → when it was asked, what it said


def _output_of(*command):
    if not shutil.which(command[0]):
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (subprocess.TimeoutExpired, OSError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def emulated():
    """Whether the CUDA device of this process is the emulated one of tests/emulator: no GPU, its times are a model."""
    return "libemulator.so" in os.environ.get("LD_PRELOAD", "")


def name_of(kind):
    """Display name of a device of this machine; LabError where it has none of that kind.

    kind: "cpu", "cuda", "mps", "xpu", "xla", "tpu" or another torch device type.
    """
    if kind == "cuda" and torch.cuda.is_available():  # some ROCm builds give an empty name
        name = torch.cuda.get_device_name(0) or f"AMD {torch.cuda.get_device_properties(0).gcnArchName}"
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
        return tpu_name()
    if kind == "meta":
        return "meta"
    if kind != "cpu":
        raise LabError(f"this machine has no {kind} device to name")
    n = cores()
    return f"{cpu_name()}, {n} core{'s' if n != 1 else ''}"


TPU_CHIPS = {  # device number on the PCI bus → generation (jax/_src/hardware_utils.py, read 2026-11-22)
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU7x",
}


def tpu_name(bus="/sys/bus/pci/devices"):
    """Generation of this machine's TPU, such as "TPU v5e"; "TPU" where nothing tells. Starts no runtime.

    Read from the PCI bus, else from TPU_ACCELERATOR_TYPE ("v5litepod-8", "v6e-1"), which some machines set.
    """
    for vendor in sorted(pathlib.Path(bus).glob("*/vendor")):
        if vendor.read_text().strip() == "0x1ae0":  # Google
            chip = TPU_CHIPS.get((vendor.parent / "device").read_text().strip())
            if chip:
                return chip
    found = re.match(r"(?:tpu-?)?v?(\d+)(litepod|lite|[a-z]*)", os.environ.get("TPU_ACCELERATOR_TYPE", "").lower())
    if not found:
        return "TPU"
    letter = {"litepod": "e", "lite": "e"}.get(found[2], found[2])
    return f"TPU{found[1]}x" if letter == "x" else f"TPU v{found[1]}{letter}"


def versions():
    """Versions that decide what a measurement means, as a dict of strings; absent parts are left out."""
    found = {"torch": torch.__version__, "python": platform.python_version(), "system": platform.system()}
    found["cpu"] = name_of("cpu")
    if torch.cuda.is_available():
        found["cuda"], found["rocm"] = torch.version.cuda, torch.version.hip
        major, minor = torch.cuda.get_device_capability(0)
        found["capability"] = f"{major}.{minor}"
        found["driver"] = None if emulated() else nvidia_smi("driver_version")
    if package_version("torch_xla"):
        found["torch_xla"] = package_version("torch_xla")
    return {key: value for key, value in found.items() if value}


def package_version(package):
    """Installed version of `package`, or None. Does not import it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# ---------------------------------------------------------------------------------------------------------------
# What is missing for a conditional cell: None when it is there, otherwise half a sentence.


def missing_cuda(count=1):
    if not torch.cuda.is_available():
        return "a CUDA GPU, and PyTorch sees none here"
    found = torch.cuda.device_count()
    if found < count:
        return f"{count} CUDA GPUs, and PyTorch sees {found} here"
    return next(filter(None, (missing_code(f"cuda:{i}") for i in range(count))), None)


def missing_mps():
    return None if torch.backends.mps.is_available() else "an Apple GPU (MPS), and PyTorch sees none here"


def missing_accelerator():
    if pick_device().type != "cpu":
        return None
    return torch.cuda.is_available() and missing_cuda() or "an accelerator, and PyTorch sees none here"


def missing_xla():
    ours, theirs = package_version("torch"), package_version("torch_xla")
    if theirs is None:
        return "torch_xla, and it is not installed here"
    if ours.split(".")[:2] != theirs.split(".")[:2]:
        return f"torch_xla and torch of the same release, and here are torch_xla {theirs} and torch {ours}"
    return None


def missing_tpu():
    if pick_device().type == "tpu":  # TorchTPU, which registers this device type
        return None
    if package_version("torch_xla") is None:
        return "a TPU, and neither torch_xla nor torch_tpu is installed here"
    if missing_xla():
        return missing_xla()
    import torch_xla.runtime

    kind = torch_xla.runtime.device_type()
    return None if kind == "TPU" else f"a TPU, and torch_xla runs on {kind} here"


def missing_compiler():
    """What torch.compile lacks here to write kernels for the CPU: it calls one compiler, and includes Python.h."""
    name = os.environ.get("CXX") or {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    found = shutil.which(name)
    if found == "/usr/bin/clang++" and sys.platform == "darwin" and not _output_of("xcode-select", "-p"):
        found = None  # on a Mac without the developer tools, a program that offers to install them
    if not found:
        return f"the C++ compiler that torch.compile calls ({name}), and it is not found here"
    header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return "Python's header files (Debian: python3-dev), and none are found here"
    if any(" " in str(path) for path in (torch.__path__[0], tempfile.gettempdir(), header)):
        return (
            "folders without a space for PyTorch and for temporary files: torch.compile gives the compiler bare paths"
        )
    return None


def missing_triton():
    """What torch.compile lacks here to write kernels for a CUDA GPU."""
    if missing_cuda():
        return missing_cuda()
    if torch.cuda.get_device_capability() < (7, 0):
        return f"a GPU of compute capability 7.0 or newer, and {name_of('cuda')} is older"
    if not importlib.util.find_spec("triton"):
        return "Triton, and it is not installed here"
    return missing_compiler()


# ---------------------------------------------------------------------------------------------------------------
# doctor


def doctor():
    """Print what this machine offers to the course, one line each, with what to do where something is missing."""
    print("\n".join(f"[{'OK' if ok else '--'}] {text}" for ok, text in checkup()))


def checkup():
    """The lines of `doctor` as (ok, text) pairs."""
    yield from _check_software()
    yield from _check_devices()
    yield from _check_tools()


def _check_software():
    v = sys.version_info
    ok = (3, 10) <= v[:2] <= (3, 13)
    yield ok, f"Python {platform.python_version()}" + ("" if ok else ": tested are 3.10 to 3.13")
    flavor = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU only"
    if torch.version.hip:
        flavor = f"built for ROCm {torch.version.hip}"
    elif torch.backends.mps.is_built():
        flavor = "built with MPS"
    ok = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 9)
    yield ok, f"PyTorch {torch.__version__}, {flavor}" + ("" if ok else ": the lessons need 2.9 or newer")
    for package in ("numpy", "matplotlib", "ipywidgets", "psutil"):
        if not package_version(package):
            yield False, f"{package} is not installed: pip install {package}"
    if package_version("ipywidgets"):
        yield True, f"ipywidgets {package_version('ipywidgets')}: sliders work"


def _check_devices():
    yield (
        True,
        f"CPU: {name_of('cpu')}, {memory_gib():.0f} GiB memory, {torch.get_num_threads()} threads for PyTorch",
    )
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            p, lack = torch.cuda.get_device_properties(i), missing_code(f"cuda:{i}")
            name = f"emulated {p.name}: numbers and memory real, times modeled" if emulated() else p.name
            text = f"GPU {i}: {name}, {p.total_memory / 2**30:.1f} GiB, compute capability {p.major}.{p.minor}"
            if lack:
                text += ": this PyTorch has no code for it; install a build that has (lesson 01), "
                text += "or hide the GPU with CUDA_VISIBLE_DEVICES=-1 before you start Python"
            yield lack is None, text
    else:
        yield (
            False,
            "CUDA GPU: none that PyTorch can use; lesson 01 finds out why, recorded results are shown instead",
        )
    mps = missing_mps() is None
    yield mps, "Apple GPU (MPS): " + ("available" if mps else "none; it takes a Mac with an Apple chip")
    xpu = torch.xpu.is_available()
    yield xpu, "Intel GPU (XPU): " + ("available" if xpu else "none; it takes an Intel GPU and PyTorch's XPU build")
    xla = missing_xla()
    if xla is None:
        yield True, f"torch_xla {package_version('torch_xla')}: the XLA cells run live here"
    else:
        yield (
            False,
            f"TPU: needs {xla}; on Colab choose a TPU runtime, elsewhere the recorded results are shown",
        )


def _check_tools():
    missing = missing_compiler()
    text = "works here, there is a C++ compiler" if missing is None else f"needs {missing}; only lesson 10 uses it"
    yield missing is None, f"torch.compile on the CPU: {text}"
    free = shutil.disk_usage(COURSE).free / 2**30
    yield free > 1, f"disk: {free:.0f} GiB free" + ("" if free > 1 else "; free some space before you go on")
    machines = sorted(p.name for p in (COURSE / "notebooks" / "recorded").glob("*") if p.is_dir())
    yield bool(machines), "recorded results from: " + (", ".join(machines) or "no machine yet")


# ---------------------------------------------------------------------------------------------------------------
# The device table


class DeviceRow(NamedTuple):
    """Peak figures of one device, dense (no sparsity). None: the device has no such unit, or no source was found.

    pattern: regular expression for the whole name that PyTorch reports, without the maker in front. fp32, tf32,
    fp16, bf16, fp8: TFLOP/s; products of 16-bit and 8-bit numbers are summed in float32, as PyTorch does. memory:
    GiB (sellers write GB and mean 2**30 bytes). bandwidth: GB/s of the device's memory. link: GB/s between host and
    device in one direction. source, checked: where and when the row was read. rated: the peaks hold at a rated clock
    that the card exceeds when it is cool.
    """

    name: str
    pattern: str
    fp32: float | None
    tf32: float | None
    fp16: float | None
    bf16: float | None
    fp8: float | None
    memory: float | None
    bandwidth: float | None
    link: float | None
    source: str
    checked: str = "2026-11-20"
    rated: bool = False

    def limit(self, kind):
        """Peak of `kind` ("fp32", …) as a physical limit for `claim`; None where there is none.

        A GeForce clocks itself above the "boost clock" that its peaks are printed for, so a right measurement can
        lie above them.
        """
        return None if self.rated else getattr(self, kind)


def pcie_limit(generation, lanes=16):
    """Most that a PCI Express link can carry in one direction, in GB/s, before protocol overhead.

    generation: 3, 4, 5 or 6. Source: transfer rates of 8, 16, 32, 64 GT/s a lane, one bit a transfer, the 128b/130b
    line code (PCI Express Base Specification 3.0 to 5.0), and 242 of 256 bytes a flit (6.0).
    """
    return {3: 8, 4: 16, 5: 32, 6: 64}[generation] * lanes * (242 / 256 if generation == 6 else 128 / 130) / 8


_ML = "stas00/ml-engineering, accelerator tables (2026-08)"
_PL = "Lightning, fabric/utilities/throughput.py"
_P3, _P4, _P5 = (round(pcie_limit(g), 1) for g in (3, 4, 5))
_G = "docs.cloud.google.com/tpu/docs/"
_HGX = "NVIDIA's column for the HGX B200, copied at zdszero.github.io (Hardware)"
_L40S = "NVIDIA's L40S figures, in ml-engineering (2026-08) and at mullet.se"
_4090 = "hmc-tech.com, RTX 4090; at 2,520 MHz"
_5090 = "Linux Format 5/2025: 170 multiprocessors, 2,407 MHz; dense tensor peaks follow"
_AMD = "AMD's MI300X page, in ml-engineering (2026-08); MLPerf 4.1 for the link"
_NOW = "2026-11-22"

DEVICE_TABLE = [
    #         name              pattern                    fp32  tf32   fp16  bf16  fp8   GiB  GB/s  link
    DeviceRow("P100 PCIe", r"P100-PCIE-16GB", 9.3, None, 18.7, None, None, 16, 732, _P3, "NVIDIA's P100, second-hand"),
    DeviceRow("V100 SXM2", r"V100-SXM2-16GB", 15.7, None, 125, None, None, 16, 900, _P3, _PL),
    DeviceRow("V100 SXM2 32 GB", r"V100-SXM2-32GB", 15.7, None, 125, None, None, 32, 900, _P3, _PL),
    DeviceRow("V100 PCIe", r"V100-PCIE-16GB", 14, None, 112, None, None, 16, 900, _P3, _PL),
    DeviceRow("V100 PCIe 32 GB", r"V100-PCIE-32GB", 14, None, 112, None, None, 32, 900, _P3, _PL),
    DeviceRow("T4", r"T4", 8.1, None, 65, None, None, 16, 320, _P3, _PL),
    DeviceRow("L4", r"L4", 30.3, 60, 121, 121, 242, 24, 300, _P4, "resellers' pages on the L4, sparse figures halved"),
    DeviceRow("L40S", r"L40S", 91.6, 183, 362, 362, 733, 48, 864, _P4, _L40S, _NOW),
    DeviceRow("A100 40 GB", r"A100-(SXM4?|PCIE)-40GB", 19.5, 156, 312, 312, None, 40, 1555, _P4, _ML),
    DeviceRow("A100 80 GB PCIe", r"A100 80GB PCIe", 19.5, 156, 312, 312, None, 80, 1935, _P4, _ML),
    DeviceRow("A100 80 GB SXM", r"A100-SXM4?-80GB", 19.5, 156, 312, 312, None, 80, 2039, _P4, _ML),
    DeviceRow("H100 PCIe", r"H100 PCIe", 51, 378, 756, 756, 1513, 80, 2000, _P5, _ML),
    DeviceRow("H100 SXM", r"H100 80GB HBM3", 67, 494.5, 989, 989, 1979, 80, 3350, _P5, _ML),
    DeviceRow("H200 SXM", r"H200", 67, 494.5, 989, 989, 1979, 141, 4800, _P5, _ML),
    DeviceRow("B200 SXM", r"B200", 75, 1125, 2250, 2250, 4500, 180, 7700, _P5, _HGX, _NOW),
    DeviceRow("RTX 4090", r"GeForce RTX 4090", 82.6, 82.6, 165.2, 165.2, 330.3, 24, 1008, _P4, _4090, _NOW, rated=True),
    DeviceRow("RTX 5090", r"GeForce RTX 5090", 104.8, 104.8, 209.5, 209.5, 419, 32, 1792, _P5, _5090, _NOW, rated=True),
    # A partition of an MI300X (CPX, DPX) has the same name as the whole.
    DeviceRow(
        "MI300X", r"Instinct MI300X( OAM| VF)?", 163.4, 653.7, 1307.4, 1307.4, 2614.9, 192, 5300, _P5, _AMD, _NOW
    ),
    DeviceRow("TPU v4", r"TPU v4", None, None, None, 275, None, 32, 1200, None, _G + "v4"),
    DeviceRow("TPU v5e", r"TPU v5e|TPU v5 lite", None, None, None, 197, None, 16, 819, None, _G + "v5e"),
    DeviceRow("TPU v5p", r"TPU v5p?", None, None, None, 459, 459, 95, 2765, None, _G + "v5p"),
    DeviceRow("TPU v6e", r"TPU v6e|TPU v6 lite", None, None, None, 918, 918, 32, 1638, _P5, _G + "v6e"),
    DeviceRow("TPU7x", r"TPU ?7x", None, None, None, 2307, 4614, 192, 7380, None, _G + "tpu7x", _NOW),
]


def look_up(name):
    """The row of the device table for a device name as PyTorch reports it, or None.

    The whole name must fit: an "NVIDIA H200 NVL" is no "NVIDIA H200", a MIG slice or a virtual GPU no whole GPU, a
    "Laptop GPU" not the card of that name.
    """
    bare = re.sub(r"^((emulated|NVIDIA|Tesla|AMD) )+", "", name)
    return next((row for row in DEVICE_TABLE if row.name == name or re.fullmatch(row.pattern, bare)), None)


def link_limit():
    """(GB/s in one direction, how we know) for the link to the first CUDA GPU; (None, why not) when unknown."""
    if not torch.cuda.is_available():
        return None, "no host link known"
    name = name_of("cuda")
    if re.search(r"\bG[HB]\d", name):
        return None, f"{name} is joined to its CPU by NVLink-C2C, not PCIe"
    gpu = smi_id(0)
    known = {field: nvidia_smi(f"pcie.link.{field}", gpu) if gpu else "" for field in LINK}
    generation, *lanes = (int(text) if text.isdigit() else None for text in known.values())
    lanes = min(filter(None, lanes), default=None)  # a card with 16 lanes may sit in a slot with 4
    if lanes and generation in (3, 4, 5, 6):
        return pcie_limit(generation, lanes), f"PCIe {generation} x{lanes}, from nvidia-smi"
    row = look_up(name)
    if row and row.link:
        return row.link, f"PCIe, from the device table ({row.name})"
    return None, "no host link known"


LINK = ("gen.max", "width.max", "width.current")  # the generation falls when the GPU rests, the width does not

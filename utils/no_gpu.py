"""why_no_gpu: the chain from an NVIDIA card to a tensor on it, its first broken link,
and a command that mends it. Lesson 01 explains the links.
"""

import os
import pathlib
import platform
import re
import sys
from typing import NamedTuple

import torch

from .devices import missing_code, nvidia_smi, output_of, package_version
from .supported import (
    FIRST_OF_CU126,
    FIRST_OF_CU130,
    FIRST_WITHOUT_CU126,
    OLDEST_DRIVER,
    OLDEST_TORCH,
    TOO_NEW_FOR_CU126,
    dotted,
)

QUESTIONS = {
    "gpu": "Is there an NVIDIA GPU?",
    "driver": "Does its driver answer?",
    "build": "Is PyTorch a CUDA build?",
    "versions": "Do driver and build fit?",
    "visible": "Is the GPU left visible?",
    "kernels": "Does a first kernel run?",
}
AMD_ON_WINDOWS = [
    "AMD graphics: a wheel for the card's gfx number, a new Adrenalin driver:",
    "github.com/ROCm/TheRock/blob/main/RELEASES.md",
]
WHEELS = "https://download.pytorch.org/whl/"
MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}  # on the PCI bus


class Chain(NamedTuple):
    """What `why_no_gpu` found. links: name → True (holds), False, or None where it
    cannot be judged. broken: the first that does not hold, or None. cure: what mends
    it, line by line, commands as they are typed.
    """

    links: dict[str, bool | None]
    broken: str | None
    cure: list[str]

    def __str__(self):
        answers = {True: "yes", False: "NO", None: "?"}
        lines = []
        for name, question in QUESTIONS.items():
            mark = "→" if name == self.broken else " "
            answer = answers[self.links[name]]
            lines.append(f"{mark} {name:9} {question:25} {answer}")
        return "\n".join([*lines, *self.cure])


def why_no_gpu(facts: dict | None = None) -> Chain:
    """Which link between an NVIDIA GPU and PyTorch breaks first, and its cure.

    facts: as `gpu_facts` gives them, of another machine for example; without it those
    of this one are asked for, which makes a CUDA context where there is a GPU. Nothing
    is raised. Where all links hold, or none can be told to be broken, `broken` is None.
    """
    facts = gpu_facts() if facts is None else facts
    links = _links(facts)
    broken = next((name for name, holds in links.items() if holds is False), None)
    if broken is None and not facts["available"]:
        cure = ["Nothing here tells why. `python -m torch.utils.collect_env` prints"]
        cure += ["what others will ask for; a restart mends a driver that was updated."]
    else:
        cure = CURES[broken](facts) if broken else []
    return Chain(links, broken, cure)


def gpu_facts() -> dict:
    """What this machine says of its NVIDIA GPU:

    gpu: whether the PCI bus shows one; None where it shows nothing (WSL)
    others: makers of other graphics there, of "AMD" and "Intel"
    driver: version by nvidia-smi, such as "580.65.06"; "" where it does not answer
    capability: (major, minor) of the card by nvidia-smi, or None
    cuda, rocm: what PyTorch was built for, such as "13.0", or None
    visible: CUDA_VISIBLE_DEVICES, or None where it is not set
    available: torch.cuda.is_available()
    kernels: True where a first sum on the GPU is right, else what it said
    """
    shown = _graphics()
    capability = nvidia_smi("compute_cap")
    number = capability.replace(".", "", 1).isdecimal()
    available = torch.cuda.is_available()
    return {
        "gpu": None if shown is None else "NVIDIA" in shown,
        "others": sorted((shown or set()) - {"NVIDIA"}),
        "driver": nvidia_smi("driver_version"),
        "capability": tuple(map(int, capability.split("."))) if number else None,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "available": available,
        "kernels": _first_kernel() if available else None,
    }


def _graphics(bus="/sys/bus/pci/devices"):
    """Makers of the graphics cards on the PCI bus, a set; None where it is not seen."""
    if sys.platform == "darwin":
        return set()
    if sys.platform == "win32":
        ask = "(Get-CimInstance Win32_VideoController).PNPDeviceID"
        told = output_of("powershell", "-NoProfile", "-Command", ask).lower()
        makers = re.findall(r"ven_(\w+)", told)
        return {MAKERS.get(f"0x{each}", "another maker") for each in makers} or None
    makers = []
    for device in pathlib.Path(bus).glob("*"):
        kind, maker = ((device / name) for name in ("class", "vendor"))
        # 0x03…: display, 3D controllers among them
        if kind.exists() and kind.read_text().startswith("0x03"):
            makers.append(MAKERS.get(maker.read_text().strip(), "another maker"))
    seen = any(pathlib.Path(bus).glob("*")) and "microsoft" not in platform.release()
    return set(makers) if seen else None


def _first_kernel():
    lacks = missing_code("cuda")
    if lacks:
        return f"needs {lacks}"
    try:
        right = (torch.ones(1, device="cuda") + 1).item() == 2
    except (AssertionError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return right or "a wrong sum"


def _links(facts):
    if facts["available"]:  # the first five hold
        return dict.fromkeys(QUESTIONS, True) | {"kernels": facts["kernels"] is True}
    return {
        "gpu": True if facts["driver"] else facts["gpu"],
        "driver": bool(facts["driver"]),
        "build": bool(facts["cuda"]),
        "versions": _fit(facts),
        "visible": _leaves_a_gpu(facts["visible"]),
        "kernels": None,
    }


def _fit(facts):
    oldest = OLDEST_DRIVER.get(int((facts["cuda"] or "0").split(".")[0]))
    if not facts["driver"] or oldest is None:
        return None
    return _major(facts) >= oldest


def _major(facts):
    return int(facts["driver"].split(".")[0])


def _leaves_a_gpu(visible):
    """Whether CUDA_VISIBLE_DEVICES leaves a GPU; None where nobody can say."""
    if visible is None:
        return True
    first = visible.split(",")[0].strip()
    return None if first.isdigit() or first.startswith(("GPU-", "MIG-")) else False


# Cures: lines for the first broken link


def _card(facts):
    if "COLAB_RELEASE_TAG" in os.environ:
        return ["In Colab's menu: Runtime > Change runtime type > a GPU."]
    if sys.platform == "darwin":
        return ["A Mac has Apple's GPU, if any: torch.device('mps')."]
    lines, amd = [], "AMD" in facts.get("others", ())
    if sys.platform == "win32":
        lines += AMD_ON_WINDOWS if amd or facts.get("rocm") else []
    elif facts.get("rocm"):
        lines += ["Does amd-smi list the card, and may you use it? Then log in anew:"]
        lines += ["sudo usermod -a -G render,video $USER"]
    elif amd and sys.platform == "linux":
        lines += ["AMD graphics, if ROCm supports them:", _install("rocm7.2")]
    if "Intel" in facts.get("others", ()):
        lines += ["Intel graphics, if Arc or newer:", _install("xpu")]
    return lines or ["No NVIDIA GPU here: the CPU, a Colab runtime, another machine."]


def _driver(facts):
    if facts.get("rocm") and sys.platform == "win32":
        return AMD_ON_WINDOWS
    if "microsoft" in platform.release():
        return ["WSL takes Windows' driver: nvidia.com/drivers, then wsl --update"]
    if _in_container():
        need = "In a container the driver must be let in (nvidia-container-toolkit):"
        return [need, "docker run --gpus all …"]
    install = "sudo ubuntu-drivers install    # elsewhere: nvidia.com/drivers"
    return ["If it was updated, restart. Else install it:", install]


def _in_container():
    return any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))


def _build(facts):
    """The command for the build that card and driver take."""
    card = facts.get("capability") or (8, 0)
    driver = _major(facts) if facts["driver"] else OLDEST_DRIVER[13]
    if card < FIRST_OF_CU126:
        oldest = dotted(OLDEST_TORCH)
        return [f"No build of PyTorch {oldest} or newer has code for this card."]
    oldest = OLDEST_DRIVER[13 if card >= TOO_NEW_FOR_CU126 else 12]
    if driver < oldest:
        return [f"First a driver {oldest} or newer (nvidia.com/drivers)."]
    if card < FIRST_OF_CU130 or driver < OLDEST_DRIVER[13]:
        return [_install("cu126", f'"torch<{FIRST_WITHOUT_CU126}"')]
    return [_install("cu130")]


def _install(build, torch="torch"):
    """Without --force-reinstall pip says "Requirement already satisfied"."""
    others = [name for name in ("torchvision", "torchaudio") if package_version(name)]
    packages = " ".join([torch, *others])
    command = f"python -m pip install --force-reinstall {packages}"
    return f"{command} --index-url {WHEELS}{build}"


def _versions(facts):
    oldest = OLDEST_DRIVER[int(facts["cuda"].split(".")[0])]
    driver, other = f"driver {oldest} or newer (nvidia.com/drivers)", _build(facts)
    if "pip" not in other[0]:  # no build takes this driver
        return [f"A {driver}"]
    return [f"Either a {driver}", "or another build:", *other]


def _visible(facts):
    own = "If you have set it yourself: unset CUDA_VISIBLE_DEVICES, and start anew."
    return [own, "On a cluster, ask the scheduler for a GPU: srun --gres=gpu:1 …"]


def _kernels(facts):
    reason = str(facts["kernels"])
    if "out of memory" in reason or "busy" in reason:
        return [reason, "Somebody else holds it: nvidia-smi lists the processes."]
    if reason.startswith("needs") or "kernel image" in reason:
        return [reason, *_build(facts)]
    return [reason]


CURES = {
    "gpu": _card,
    "driver": _driver,
    "build": _build,
    "versions": _versions,
    "visible": _visible,
    "kernels": _kernels,
}

"""What a lesson says of this machine at its start, and of its measurements."""

import time

import torch

import utils
from course.paths import COURSE
from utils.checkup import line
from utils.devices import name_of, nvidia_smi, package_version, pytorch


def ready() -> None:
    """Print in one line that the course is loaded, on which PyTorch, and which kind of
    device PyTorch sees: "Ready: PyTorch 2.13.0, CPU".

    Makes no CUDA context and starts no XLA runtime: some lessons look at how that
    happens.
    """
    device = torch.accelerator.current_accelerator(check_available=True)
    kind = device.type.upper() if device else "CPU"
    if kind == "TPU":  # or what stands in for it
        kind = name_of("tpu")
    tpu = " and torch_tpu" if package_version("torch_tpu") else ""
    xla = " and torch_xla" if package_version("torch_xla") else ""
    print(f"Ready: {pytorch()}{tpu}, {kind}{xla}")


def doctor() -> None:
    """Print what the kit's `doctor` says of this machine, whether sliders work, and
    from which machines the course has recorded results.
    """
    utils.doctor()
    for package in ("matplotlib", "ipywidgets"):
        if not package_version(package):
            print(line(False, f"{package} is not installed: pip install {package}"))
    if package_version("ipywidgets"):
        print(line(True, f"ipywidgets {package_version('ipywidgets')}: sliders work"))
    folders = (COURSE / "notebooks" / "recorded").glob("*")
    names = sorted(path.name for path in folders if path.is_dir())
    emulations = [name for name in names if name.startswith("emulated-")]
    machines = ", ".join(name for name in names if name not in emulations)
    print(
        line(bool(machines), f"recorded results from: {machines or 'no machine yet'}")
    )
    if emulations:
        print(line(True, f"emulated results, no GPU: {', '.join(emulations)}"))


# What holds a GPU's clock down, by its bit in NVML (nvml.h, nvmlClocksEventReason…).
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


def throttle_reasons(device: torch.device) -> list[str]:
    """What holds down the clock of this NVIDIA GPU now, as far as it is known."""
    second = int(time.monotonic())  # nvidia-smi can take that long
    # of older drivers, of newer ones
    for name in ("clocks_throttle_reasons.active", "clocks_event_reasons.active"):
        mask = nvidia_smi(name, device, second)
        if mask.startswith("0x"):
            return sorted(
                reason for bit, reason in THROTTLES.items() if int(mask, 16) & bit
            )
    return []


def slowed_down(device: torch.device) -> list[str]:
    """Remarks of a measurement, where an NVIDIA GPU's clock is held down now."""
    if device.type != "cuda":
        return []
    reasons = throttle_reasons(device)
    return [f"the GPU was slowed down by its {reason}" for reason in reasons]

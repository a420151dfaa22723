"""What a lesson says of this machine at its start."""

import torch

import utils
from course.paths import COURSE
from utils.checkup import line
from utils.devices import name_of, package_version, pytorch


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

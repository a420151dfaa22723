import pathlib
import re
import types

import pytest
import torch

from utils import devices, recordings
from utils.messages import LabError


def test_pick_device_is_usable():
    device = devices.pick_device()
    assert torch.ones(2, device=device).sum().item() == 2
    if not torch.accelerator.is_available():
        assert device == torch.device("cpu")


def test_doctor_lines(capsys):
    devices.doctor()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 8
    for line in lines:
        assert re.match(r"\[(OK|--)\] \S", line), line
    text = "\n".join(lines)
    assert torch.__version__ in text and devices.cpu_name() in text
    assert str(pathlib.Path.home()) not in text and str(devices.COURSE) not in text


def test_doctor_says_what_to_do_about_what_is_missing(monkeypatch):
    monkeypatch.setattr(devices, "package_version", lambda package: None)
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    bad = [text for ok, text in devices.checkup() if not ok]
    assert any("pip install ipywidgets" in text for text in bad)
    assert any("torch.compile on the CPU: needs the C++ compiler" in text for text in bad)
    assert any("the lessons need 2.9 or newer" in text for text in bad)


def test_what_torch_compile_lacks_for_a_gpu(monkeypatch):
    machine = {"capability": (6, 0), "triton": None, "compiler": "a C++ compiler"}
    monkeypatch.setattr(devices, "missing_cuda", lambda: None)
    monkeypatch.setattr(devices, "name_of", lambda kind: "Tesla P100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: machine["capability"])
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: machine[name])
    monkeypatch.setattr(devices, "missing_compiler", lambda: machine["compiler"])
    assert "Tesla P100 is older" in devices.missing_triton()
    machine["capability"] = (7, 5)
    assert "Triton" in devices.missing_triton()
    machine["triton"] = "found"
    assert devices.missing_triton() == "a C++ compiler"
    machine["compiler"] = None
    assert devices.missing_triton() is None
    monkeypatch.setattr(devices, "missing_cuda", lambda: "a CUDA GPU")
    assert devices.missing_triton() == "a CUDA GPU"


@pytest.mark.parametrize(("system", "name"), [("linux", "g++"), ("win32", "cl"), ("darwin", "clang++")])
def test_only_the_compiler_that_torch_compile_calls_counts(monkeypatch, system, name):
    monkeypatch.setattr(devices.sys, "platform", system)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(devices.shutil, "which", lambda asked: f"/opt/{asked}" if asked == name else None)
    monkeypatch.setattr(devices.torch, "__path__", ["/opt/torch"])
    assert devices.missing_compiler() is None
    monkeypatch.setenv("CXX", "icpx")
    assert "(icpx)" in devices.missing_compiler()


def test_a_macs_stub_is_no_compiler(monkeypatch):
    monkeypatch.setattr(devices.sys, "platform", "darwin")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(devices.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(devices, "_output_of", lambda *command: "")
    assert "clang++" in devices.missing_compiler()
    monkeypatch.setattr(devices, "_output_of", lambda *command: "/Library/Developer/CommandLineTools")
    monkeypatch.setattr(devices.torch, "__path__", ["/opt/torch"])
    assert devices.missing_compiler() is None


def test_a_compiler_without_pythons_headers_is_not_enough(monkeypatch, tmp_path):
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(devices.sysconfig, "get_path", lambda name: str(tmp_path))
    assert "header files" in devices.missing_compiler()
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(devices.torch, "__path__", ["/opt/torch"])
    assert devices.missing_compiler() is None


def test_a_folder_with_a_space_is_too_much_for_torch_compile(monkeypatch):
    """Seen with torch 2.9, 2.11 and 2.13: the linker is told `-L/home/my course/…` in two words."""
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(devices.pathlib.Path, "exists", lambda self: True)
    monkeypatch.setattr(devices.torch, "__path__", ["/home/my course/torch"])
    assert "without a space" in devices.missing_compiler()
    monkeypatch.setattr(devices.torch, "__path__", ["/home/course/torch"])
    assert devices.missing_compiler() is None
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: "/home/my files")
    assert "without a space" in devices.missing_compiler()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to name")
def test_a_device_that_is_not_there_has_no_name():
    with pytest.raises(LabError, match="no cuda device"):
        devices.name_of("cuda")


def test_versions_are_plain_text():
    assert all(isinstance(value, str) and value for value in devices.versions().values())


def test_torch_xla_of_another_release_is_said_before_it_is_imported(monkeypatch):
    found = {"torch": "2.13.0+cpu", "torch_xla": "2.9.0"}
    monkeypatch.setattr(devices, "package_version", found.get)
    assert devices.missing_xla() == (
        "torch_xla and torch of the same release, and here are torch_xla 2.9.0 and torch 2.13.0+cpu"
    )
    found["torch"] = "2.9.1+cpu"
    assert devices.missing_xla() is None
    del found["torch_xla"]
    assert devices.missing_xla() == "torch_xla, and it is not installed here"
    assert devices.missing_tpu() == "a TPU, and neither torch_xla nor torch_tpu is installed here"


def test_torchtpu_is_a_tpu_without_torch_xla(monkeypatch):
    """What its documentation says; it has no device without the chip, so here a stand-in for PyTorch's answer."""
    for module in (devices, recordings):
        monkeypatch.setattr(module, "pick_device", lambda: types.SimpleNamespace(type="tpu"))
    assert devices.missing_tpu() is None and recordings.kind_of("tpu") == "tpu"
    assert str(recordings.where("tpu")) == "TPU (this machine)"


# ---------------------------------------------------------------------------------------------------------------
# The device table: names as PyTorch reports them, and figures that can be derived from others


@pytest.mark.parametrize(
    ("reported", "row"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA B200", "B200 SXM"),
        ("TPU v5 lite", "TPU v5e"),
    ],
)
def test_look_up_by_the_name_pytorch_reports(reported, row):
    assert devices.look_up(reported).name == row


@pytest.mark.parametrize(
    "reported", ["NVIDIA GeForce RTX 4090", "NVIDIA A10G", "NVIDIA L40S", "NVIDIA GH200 480GB", "", "T400"]
)
def test_unknown_devices_have_no_row(reported):
    assert devices.look_up(reported) is None


def test_rows_have_source_and_date_and_look_themselves_up():
    for row in devices.DEVICE_TABLE:
        assert row.source and re.fullmatch(r"20\d\d-\d\d-\d\d", row.checked)
        assert devices.look_up(row.name) is row
        assert row.bandwidth > 0 and row.memory > 0


# SMs, fused multiply-adds a clock and SM on fp16 tensor cores, MHz
TENSOR = {
    "V100 SXM2": (80, 512, 1530),
    "T4": (40, 512, 1590),
    "A100 40 GB": (108, 1024, 1410),
    "H100 SXM": (132, 2048, 1830),
    "H100 PCIe": (114, 2048, 1620),
    "L4": (58, 512, 2040),
}


@pytest.mark.parametrize("name", TENSOR)
def test_fp16_peak_follows_from_units_and_clock(name):
    sms, fma, mhz = TENSOR[name]
    assert devices.look_up(name).fp16 == pytest.approx(sms * fma * 2 * mhz * 1e6 / 1e12, rel=0.005)


# Published ridge points (peak FLOP/s over bandwidth, FLOP a byte)
RIDGE = {"T4": 203, "L4": 403, "A100 40 GB": 201, "H100 SXM": 295, "H200 SXM": 206, "B200 SXM": 281, "TPU v5e": 241}


@pytest.mark.parametrize("name", RIDGE)
def test_ridge_points(name):
    row = devices.look_up(name)
    assert (row.bf16 or row.fp16) * 1e12 / (row.bandwidth * 1e9) == pytest.approx(RIDGE[name], abs=1)


def test_pcie_limits():
    assert [round(devices.pcie_limit(generation), 2) for generation in (3, 4, 5)] == [15.75, 31.51, 63.02]
    assert devices.pcie_limit(4, lanes=8) == devices.pcie_limit(4) / 2


def test_link_limit_prefers_what_the_driver_says(monkeypatch):
    monkeypatch.setattr(devices, "nvidia_smi", {"pcie.link.gen.max": "5", "pcie.link.width.max": "8"}.get)
    assert devices.link_limit() == (devices.pcie_limit(5, 8), "PCIe 5 x8, from nvidia-smi")
    monkeypatch.setattr(devices, "nvidia_smi", lambda field: "")
    if not torch.cuda.is_available():
        assert devices.link_limit() == (None, "no host link known")


def test_a_stuck_nvidia_smi_is_no_answer(monkeypatch):
    def stuck(command, **options):
        raise devices.subprocess.TimeoutExpired(command, 20)

    monkeypatch.setattr(devices.shutil, "which", lambda name: name)
    monkeypatch.setattr(devices.subprocess, "run", stuck)
    assert devices._output_of("nvidia-smi") == ""


def test_nvidia_smi_is_asked_about_this_gpu_and_once_a_second(monkeypatch):
    asked, clock = [], [100.0]
    answer = "1980 MHz, 2619 MHz, 61, 512.30 W, 0x0000000000000000"
    monkeypatch.setattr(devices.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(devices, "_output_of", lambda *command: (asked.append(command), answer)[1])
    monkeypatch.setattr(devices, "_states", {})
    properties = types.SimpleNamespace(uuid="0a1b")
    monkeypatch.setattr(devices.torch.cuda, "get_device_properties", lambda device: properties)
    assert devices.gpu_state("cuda")["temperature.gpu"] == "61" and devices.gpu_state("cuda")["clocks.sm"] == "1980 MHz"
    assert len(asked) == 1 and "--id=GPU-0a1b" in asked[0]
    clock[0] += 1.5
    devices.gpu_state("cuda")
    assert len(asked) == 2

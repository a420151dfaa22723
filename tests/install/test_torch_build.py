"""Which build of PyTorch set-up takes on which machine. Nothing here was tried on a
GPU, a driver or Windows: what nvidia-smi says was recorded elsewhere, in public issues,
or has the form of that.
"""

import io
import platform
import urllib.error

import pytest

from tools import torch_build

NO_FIELD = 'Field "compute_cap" is not a valid field to query.\n\n'
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make"
    " sure that the latest NVIDIA driver is installed and running.\n"
)


def cards(*names, driver="580.65.06"):
    """What nvidia-smi prints: "RTX 3060, 8.6" and the driver, a line each."""
    return "".join(f"NVIDIA GeForce {name}, {driver}\n" for name in names)


LINUX, WINDOWS = ("Linux", "x86_64"), ("Windows", "AMD64")
ARM, WINDOWS_ARM = ("Linux", "aarch64"), ("Windows", "ARM64")
V100 = "Tesla V100-SXM2-16GB, 7.0, 535.104.05\n"
GH200 = "NVIDIA GH200 480GB, 9.0, 580.82.07\n"
NO_NVML = "Failed to initialize NVML: Driver/library version mismatch\n"
CASES = [  # what nvidia-smi says, /dev/nvidia0, machine, build, words of the reason
    (None, False, LINUX, "cpu", "no NVIDIA GPU found"),
    (None, False, WINDOWS, "cpu", "no NVIDIA GPU found"),
    (None, False, ("Darwin", "arm64"), "plain", "the one for this system"),
    # a toolkit without a card, a card without its driver
    (NO_DRIVER, False, LINUX, "cpu", "no NVIDIA GPU found"),
    ("No devices were found\n", False, LINUX, "cpu", "no NVIDIA GPU found"),
    # a container without nvidia-smi; a driver that has just been updated
    (None, True, LINUX, "plain", "of which nvidia-smi says nothing"),
    (NO_NVML, True, LINUX, "plain", "of which nvidia-smi says nothing"),
    (cards("RTX 3060, 8.6"), True, LINUX, "plain", "NVIDIA GeForce RTX 3060"),
    (cards("RTX 3060, 8.6").replace("\n", "\r\n"), False, WINDOWS, "cu130", "3060"),
    (cards("GTX 1650, 7.5", driver="591.44"), False, WINDOWS, "cu130", "GTX 1650"),
    (GH200, True, ARM, "cu130", "GH200"),
    (GH200.replace("580", "550"), True, ARM, "cu126", "driver 550"),
    # Maxwell, Pascal, Volta
    (cards("GTX 960, 5.2"), True, LINUX, "cu126", "GTX 960: too old for CUDA 13"),
    (cards("GTX 1080 Ti, 6.1"), False, WINDOWS, "cu126", "Ti: too old for CUDA 13"),
    (V100, True, LINUX, "cu126", "16GB: too old for CUDA 13"),
    # Kepler
    (cards("GT 710, 3.5"), True, LINUX, "cpu", "GT 710: too old for any build"),
    # Blackwell
    (cards("RTX 5090, 12.0"), True, LINUX, "plain", "RTX 5090"),
    (cards("RTX 5090, 12.0"), False, WINDOWS, "cu130", "RTX 5090"),
    (cards("RTX 5060, 12.0", driver="570.1"), True, LINUX, "cpu", "install 580 or"),
    # drivers
    (cards("RTX 4090, 8.9", driver="560.35.03"), True, LINUX, "cu126", "driver 560"),
    (cards("RTX 4090, 8.9", driver="525.60.13"), True, LINUX, "cu126", "driver 525"),
    (cards("RTX 2080, 7.5", driver="516.94"), False, WINDOWS, "cpu", "install 525 or"),
    (
        NO_FIELD,
        True,
        LINUX,
        "cpu",
        "NVIDIA GPU, but its driver is too old: install 525",
    ),
    # more than one: what serves both, or the newer
    (cards("GTX 1080, 6.1", "RTX 3090, 8.6"), True, LINUX, "cu126", "GTX 1080: too"),
    (cards("RTX 5090, 12.0", "GTX 1080, 6.1"), True, LINUX, "plain", "RTX 5090"),
    (cards("GT 710, 3.5", "RTX 3090, 8.6"), True, LINUX, "plain", "RTX 3090"),
    # a board that does not say what it is
    ("Orin (nvgpu), [N/A], 540.4.0\n", True, ARM, "cu126", "driver 540, too old"),
    ("Thor, [Not Supported], 580.00\n", True, ARM, "cu130", "Thor"),
]


@pytest.mark.parametrize("smi, has_device, machine, build, words", CASES)
def test_the_build_fits_the_machine(smi, has_device, machine, build, words):
    chosen, reason = torch_build.choose(smi, has_device, *machine)
    assert chosen == build and words in reason


def test_nvidia_smi_is_asked_and_heard_also_where_it_fails(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "$*"; echo no driver >&2; exit 9\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    query = "--query-gpu=name,compute_cap,driver_version --format=csv,noheader\n"
    assert torch_build.ask_nvidia_smi() == query + "no driver\n"
    assert torch_build.has_nvidia()
    program.unlink()
    monkeypatch.setattr(torch_build, "WSL", str(program))
    monkeypatch.setattr(torch_build, "DEVICES", str(tmp_path / "nvidia[0-9]*"))
    assert torch_build.ask_nvidia_smi() is None and not torch_build.has_nvidia()


CPU = {"build": "cpu", "why": "no NVIDIA GPU found"}


@pytest.mark.parametrize(
    "asked, there, has_nvidia, decided",
    [
        (None, {}, False, "found"),
        ("cu126", {}, False, "cu126"),
        ("cu126", CPU, False, "cu126"),
        (None, CPU, False, "cpu"),
        (None, CPU, True, "found"),  # a driver since, or another computer
        (None, {**CPU, "why": torch_build.ASKED_FOR}, True, "cpu"),
        (None, {"build": "plain", "why": "RTX 3060"}, False, "plain"),
        ("auto", {"build": "cu126", "why": torch_build.ASKED_FOR}, True, "found"),
    ],
)
def test_what_is_there_stays_unless_more_is_possible(
    asked, there, has_nvidia, decided, monkeypatch
):
    monkeypatch.setattr(torch_build, "has_nvidia", lambda: has_nvidia)
    monkeypatch.setattr(torch_build, "find", lambda: ("found", ""))
    assert torch_build.decide(asked, there)[0] == decided


PAGE = """\
<a href="/whl/cpu/torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl#sha256=0">
torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl</a><br/>
<a href="/whl/cpu/torch-2.13.0%2Bcpu-cp313-cp313-win_amd64.whl#sha256=0">
torch-2.13.0+cpu-cp313-cp313-win_amd64.whl</a><br/>
"""


@pytest.mark.parametrize(
    "pins, python, machine, is_there",
    [
        ("numpy==2.2.6\ntorch==2.13.0\n", "3.12", LINUX, True),
        ("torch==2.13.0\n", "3.13", WINDOWS, True),
        ("torch==2.13.0\n", "3.14", LINUX, False),
        ("torch==2.13.0\n", "3.12", ARM, False),
        ("torch==2.13.0\n", "3.13", WINDOWS_ARM, False),
        ("torch==2.15.0\n", "3.12", LINUX, False),
        ("torch\n", "3.12", LINUX, True),
    ],
)
def test_only_a_build_that_is_there_is_asked_for(
    pins, python, machine, is_there, monkeypatch, capsys
):
    """The form of the index's pages; none can be reached from everywhere."""

    def page(url, timeout):
        assert url == "https://download.pytorch.org/whl/cpu/torch/"
        return io.BytesIO(PAGE.encode())

    monkeypatch.setattr(torch_build.urllib.request, "urlopen", page)
    monkeypatch.setattr(platform, "system", lambda: machine[0])
    monkeypatch.setattr(platform, "machine", lambda: machine[1])
    version = ["torch==2.13.0+cpu"] if "==" in pins else []
    expected = ["--extra-index-url", f"{torch_build.WHEELS}cpu", *version]
    found = torch_build.pip_arguments("cpu", pins, python)
    assert found == (expected if is_there else [])
    assert ("not to be had" in capsys.readouterr().out) is not is_there


def test_an_index_that_is_not_reached_is_no_error(monkeypatch, capsys):
    def page(url, timeout):
        raise urllib.error.URLError("no such host")

    monkeypatch.setattr(torch_build.urllib.request, "urlopen", page)
    assert torch_build.pip_arguments("plain", "torch==2.13.0", "3.12") == []
    assert capsys.readouterr().out == ""
    assert torch_build.pip_arguments("cu126", "torch==2.13.0", "3.12") == []
    assert "pip's own choice is taken" in capsys.readouterr().out

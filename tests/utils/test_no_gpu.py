"""Which link between a GPU and PyTorch breaks, and whether its cure is a command that
does something.
"""

import os
import pathlib
import platform
import sys

import pytest
import torch

from utils import no_gpu

GOOD = {
    "gpu": True,
    "others": [],
    "driver": "580.65.06",
    "capability": (8, 6),
    "cuda": "13.0",
    "rocm": None,
    "visible": None,
    "available": False,
    "kernels": None,
}
CU130 = "torch --index-url https://download.pytorch.org/whl/cu130"
CU126 = '"torch<2.15" --index-url https://download.pytorch.org/whl/cu126'
DRIVER = "driver {} or newer (nvidia.com/drivers)"


@pytest.fixture(autouse=True)
def plain_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "release", lambda: "6.8.0-generic")
    monkeypatch.setattr(no_gpu, "package_version", lambda package: None)
    monkeypatch.setattr(no_gpu, "_in_container", lambda: False)
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)


@pytest.mark.parametrize(
    "facts, broken, cure",
    [
        ({"gpu": False, "driver": ""}, "gpu", "a Colab runtime, another machine"),
        ({"gpu": False, "driver": "", "others": ["AMD"]}, "gpu", "whl/rocm7.2"),
        ({"gpu": False, "driver": "", "others": ["Intel"]}, "gpu", "whl/xpu"),
        ({"gpu": False, "driver": "", "rocm": "7.2"}, "gpu", "usermod -a -G render"),
        ({"driver": ""}, "driver", "sudo ubuntu-drivers install"),
        # nobody sees the bus, and no driver answers
        ({"gpu": None, "driver": ""}, "driver", "restart"),
        ({"cuda": None}, "build", CU130),
        # Pascal and Volta: not in builds for CUDA 13, nor in 2.15
        ({"cuda": None, "capability": (6, 1)}, "build", CU126),
        ({"cuda": None, "capability": (7, 0)}, "build", CU126),
        ({"cuda": None, "driver": "535.1"}, "build", CU126),
        ({"cuda": None, "driver": "470.1"}, "build", DRIVER.format(525)),
        # Blackwell: no build for CUDA 12.6 has its code
        ({"cuda": None, "capability": (12, 0)}, "build", CU130),
        (
            {"cuda": None, "capability": (12, 0), "driver": "535.1"},
            "build",
            DRIVER.format(580),
        ),
        ({"cuda": None, "capability": (3, 7)}, "build", "No build of PyTorch"),
        ({"driver": "535.1"}, "versions", CU126),
        ({"driver": "470.1", "cuda": "12.8"}, "versions", DRIVER.format(525)),
        ({"visible": ""}, "visible", "unset CUDA_VISIBLE_DEVICES"),
        ({"visible": "NoDevFiles"}, "visible", "srun --gres=gpu:1"),
        ({"visible": "0,1"}, None, "collect_env"),
        ({"visible": "GPU-1f"}, None, "collect_env"),
        ({"available": True, "kernels": True}, None, None),
        (
            {"available": True, "kernels": "CUDA error: out of memory"},
            "kernels",
            "nvidia-smi lists",
        ),
        (
            {
                "available": True,
                "kernels": "no kernel image is available",
                "capability": (6, 1),
            },
            "kernels",
            CU126,
        ),
    ],
)
def test_the_first_broken_link_and_its_cure(facts, broken, cure):
    chain = no_gpu.why_no_gpu({**GOOD, **facts})
    text = "\n".join(chain.cure)
    assert chain.broken == broken and (cure in text if cure else not text), chain
    assert [line[0] for line in str(chain).splitlines()].count("→") == bool(broken)
    # "already satisfied" is what pip says without
    assert text.count("pip install") == text.count("pip install --force-reinstall")
    assert all(len(line) <= 120 for line in chain.cure)


def test_what_goes_with_torch_is_installed_with_it(monkeypatch):
    """A torchvision of another release would not even import."""
    monkeypatch.setattr(no_gpu, "package_version", {"torchvision": "0.28"}.get)
    (line,) = no_gpu.why_no_gpu({**GOOD, "cuda": None}).cure
    assert "--force-reinstall torch torchvision --index-url" in line


def test_elsewhere(monkeypatch):
    none = {**GOOD, "gpu": False, "driver": ""}
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    assert "Change runtime type" in no_gpu.why_no_gpu(none).cure[0]
    monkeypatch.delenv("COLAB_RELEASE_TAG")
    monkeypatch.setattr(no_gpu, "_in_container", lambda: True)
    assert "docker run --gpus all" in no_gpu.why_no_gpu({**GOOD, "driver": ""}).cure[1]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "mps" in no_gpu.why_no_gpu(none).cure[0]
    monkeypatch.setattr(platform, "release", lambda: "5.15-microsoft-standard-WSL2")
    chain = no_gpu.why_no_gpu({**none, "gpu": None})
    assert chain.broken == "driver" and "wsl --update" in chain.cure[0]


@pytest.mark.parametrize("rocm", [None, "7.2.53211"])
def test_amd_on_windows(rocm, monkeypatch):
    """Not tried there. What Windows calls its cards: PCI\\VEN_1002&DEV_7550&SUBSYS_…"""
    cards = "PCI\\VEN_1002&DEV_7550&SUBSYS_1EAE8409&REV_C0\\6&1\nPCI\\VEN_8086&DEV_A780"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(no_gpu, "output_of", lambda *command: cards)
    assert no_gpu._graphics() == {"AMD", "Intel"}
    facts = {**GOOD, "gpu": False, "driver": "", "cuda": None, "rocm": rocm}
    chain = no_gpu.why_no_gpu({**facts, "others": ["AMD", "Intel"]})
    assert chain.broken == "gpu" and chain.cure[:2] == no_gpu.AMD_ON_WINDOWS
    # PowerShell says nothing: a build for ROCm tells whose card it is
    monkeypatch.setattr(no_gpu, "output_of", lambda *command: "")
    assert no_gpu._graphics() is None
    chain = no_gpu.why_no_gpu({**facts, "gpu": None})
    assert chain.broken == "driver"
    assert (chain.cure == no_gpu.AMD_ON_WINDOWS) is bool(rocm)
    assert not any("usermod" in line for line in chain.cure)


def test_the_bus(tmp_path, monkeypatch):
    assert no_gpu._graphics(tmp_path) is None
    for n, (kind, maker) in enumerate(
        [("0x030000", "0x8086"), ("0x030200", "0x10de"), ("0x020000", "0x1002")]
    ):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "class").write_text(kind)
        (tmp_path / str(n) / "vendor").write_text(maker)
    assert no_gpu._graphics(tmp_path) == {"Intel", "NVIDIA"}  # the last is a network's


def test_this_machine():
    facts, chain = no_gpu.gpu_facts(), no_gpu.why_no_gpu()
    assert set(facts) == set(GOOD)
    assert chain.links["build"] is (torch.version.cuda is not None)
    assert (chain.broken is None) >= (facts["available"] and facts["kernels"] is True)
    assert str(pathlib.Path.home()) not in str(chain) or os.name == "nt"

"""Which device is picked, what it is called, what is lacking of what cells require,
and what doctor says.
"""

import importlib.util
import json
import pathlib
import re
import runpy
import shutil
import sys
import sysconfig
import tempfile
import types

import pytest
import torch

from course import machine, needs, provenance
from course.paths import COURSE
from device_lab import LabError
from utils import checkup, devices, xla
from utils.hardware import look_up

# --------------------------------------------------------------------------------------
# A GPU that PyTorch sees, and whose generation its build may have no code for


@pytest.fixture
def gpu(monkeypatch):
    """gpu(capability, built): PyTorch, built for CUDA with code for `built`, sees one
    GPU of this capability.
    """

    def show(capability, built, integrated=0):
        major, minor = capability
        properties = types.SimpleNamespace(
            name="Some GPU",
            total_memory=11 * 2**30,
            major=major,
            minor=minor,
            is_integrated=integrated,
        )
        facts = {
            "is_available": True,
            "device_count": 1,
            "get_device_name": "Some GPU",
            "get_arch_list": built,
            "get_device_capability": capability,
            "get_device_properties": properties,
        }
        for name, value in facts.items():
            monkeypatch.setattr(torch.cuda, name, lambda *index, value=value: value)
        cuda = torch.device("cuda")
        accelerator = torch.accelerator
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(accelerator, "current_accelerator", lambda **_: cuda)

    return show


# the default wheels of 2.13 and 2.15
BUILD = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((8, 9), BUILD, True),
        ((6, 1), BUILD, False),  # GTX 1080 Ti
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["sm_100f"], False),
        ((6, 1), [], True),  # nothing is known, so nothing is claimed
        ((6, 1), ["sm_75", "tile_ir"], True),
    ],
)
def test_a_gpu_whose_generation_is_not_in_the_build_is_missing(
    gpu, monkeypatch, capability, built, runs
):
    gpu(capability, built)
    assert devices.pick_device() == torch.device("cuda" if runs else "cpu")
    said = {
        text: ok for ok, text in checkup.checkup() if text.startswith("GPU 0: Some")
    }
    ((text, ok),) = said.items()
    assert ok is runs and ("no code for it" in text) is not runs
    major, minor = capability
    for lack in (needs.missing_cuda(), needs.missing_accelerator()):
        if runs:
            assert lack is None
        else:
            assert f"the Some GPU has compute capability {major}.{minor}" in lack
            assert built[0] in lack
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm, where nobody compares
    assert needs.missing_cuda() is None
    assert "2 CUDA GPUs, and PyTorch sees 1" in needs.missing_cuda(2)


def test_doctor_says_whose_memory_it_is(gpu, monkeypatch):
    """As a DGX Spark and a Mac have it: 37.44 GiB were recommended on one with 48 GB
    (dev.to/nefayran, 2026).
    """
    gpu((12, 1), ["sm_120"], integrated=1)
    said = "\n".join(text for ok, text in checkup.checkup())
    assert "Some GPU, 11.0 GiB shared with the CPU, compute capability 12.1" in said
    gpu((12, 0), ["sm_120"])
    assert "shared" not in "\n".join(text for ok, text in checkup.checkup())
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: int(37.44 * 2**30))
    said = [text for ok, text in checkup.checkup() if ok and "MPS" in text]
    assert said == ["Apple GPU (MPS): shares the memory, at most 37.4 GiB recommended"]


def test_the_rule_about_generations_is_the_one_of_exercise_01_2():
    (path,) = (COURSE / "notebooks" / "exercises").glob("01_*.py")
    exercise = runpy.run_path(str(path))
    for version, code, runs, _ in exercise["rows"](exercise["CODE_CASES"]):
        capability = tuple(map(int, version.split(".")))
        found = any(devices._runs(capability, entry) for entry in code.split())
        assert found is (runs == "yes")


# --------------------------------------------------------------------------------------
# What is missing


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """All that torch.compile needs on a CPU under Linux."""
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", {"g++": "/usr/bin/g++"}.get)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(torch, "__path__", ["/opt/torch"])
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")


# Spaces: seen with torch 2.9, 2.11 and 2.13; the linker is told `-L/home/my course/…`
# in two words.
@pytest.mark.parametrize(
    ("owner", "name", "value", "phrase"),
    [
        (sys, "platform", "linux", None),
        (sys, "platform", "win32", "calls (cl), and it is not found"),
        (sys, "platform", "darwin", r"calls (clang++), and it is not found"),
        (sysconfig, "get_path", lambda name: "/nowhere", "header files"),
        (torch, "__path__", ["/home/my course/torch"], "without a space"),
        (tempfile, "tempdir", "/home/my files", "without a space"),
    ],
)
def test_what_torch_compile_needs_on_a_cpu(
    compiler, monkeypatch, owner, name, value, phrase
):
    monkeypatch.setattr(owner, name, value)
    lack = needs.missing_compiler()
    assert lack is None if phrase is None else phrase in lack
    monkeypatch.setenv("CXX", "icpx")
    assert "(icpx)" in needs.missing_compiler()


def test_a_macs_clang_is_no_compiler_before_the_developer_tools_are_there(
    compiler, monkeypatch
):
    tools = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(devices, "output_of", lambda *command: "".join(tools))
    assert "clang++" in needs.missing_compiler()
    tools.append("/Library/Developer/CommandLineTools")
    assert needs.missing_compiler() is None


def test_what_torch_compile_needs_on_a_gpu(compiler, gpu, monkeypatch):
    gpu((6, 0), ["sm_60"])
    assert "compute capability 7.0 or newer" in needs.missing_triton()
    gpu((7, 5), ["sm_75"])
    monkeypatch.setattr(importlib.util, "find_spec", {"triton": None}.get)
    assert "Triton" in needs.missing_triton()
    monkeypatch.setattr(importlib.util, "find_spec", {"triton": "found"}.get)
    assert needs.missing_triton() is None
    monkeypatch.setenv("CXX", "icpx")
    assert needs.missing_triton() == needs.missing_compiler() is not None
    gpu((7, 5), ["sm_80"])
    assert needs.missing_triton() == needs.missing_cuda() is not None


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_what_a_machine_without_an_accelerator_lacks():
    assert needs.missing_cuda() == "a CUDA GPU, and PyTorch sees none here"
    assert needs.missing_triton() == needs.missing_cuda()
    assert needs.missing_mps() == "an Apple GPU (MPS), and PyTorch sees none here"
    assert needs.missing_accelerator() == "an accelerator, and PyTorch sees none here"
    with pytest.raises(LabError, match="no cuda device"):
        devices.name_of("cuda")


OTHER_RELEASE = (
    "torch_xla and torch of the same release, and here are torch_xla 2.9.0 and torch"
    " 2.13.0"
)


@pytest.mark.parametrize(
    ("ours", "theirs", "lack"),
    [
        ("2.9.1+cpu", "2.9.0", None),
        ("2.9.0", None, "torch_xla, and it is not installed here"),
        ("2.13.0", "2.9.0", OTHER_RELEASE),
    ],
)
def test_torch_xla_of_another_release_is_reported_before_it_is_imported(
    monkeypatch, ours, theirs, lack
):
    found = {"torch": ours, "torch_xla": theirs}
    monkeypatch.setattr(xla, "package_version", found.get)
    assert needs.missing_xla() == lack
    bad = "".join(text for ok, text in checkup.checkup() if not ok)
    if lack is not None:
        assert f"TPU: needs {lack}" in bad
    if theirs is None:
        assert "neither torch_xla nor torch_tpu" in needs.missing_tpu()
    elif lack is not None:
        assert needs.missing_tpu() == lack


@pytest.fixture
def torchtpu(monkeypatch):
    """torchtpu(kind, library, loaded): torch_tpu is installed and torch_xla is not,
    PyTorch finds a device of this kind, and TorchTPU's driver is this library. A
    stand-in: it has no device without the chip.
    """

    def show(kind="cpu", library="/there/libtpu/libtpu.so", loaded=True):
        version = {"torch": "2.13.0", "torch_tpu": "0.2.0"}.get
        for module in (devices, xla, checkup, machine):
            monkeypatch.setattr(module, "package_version", version)
        found = types.SimpleNamespace(type=kind)
        for module in (devices, needs, xla, checkup, provenance):
            monkeypatch.setattr(module, "pick_device", lambda: found)
        here = None if kind == "cpu" else found
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: here)
        monkeypatch.setenv("TPU_LIBRARY_PATH", library)
        monkeypatch.delitem(sys.modules, "torch_tpu", raising=False)
        if loaded:
            monkeypatch.setitem(sys.modules, "torch_tpu", types.ModuleType("torch_tpu"))

    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    return show


def tpu_line():
    """What doctor says of a TPU: (whether there is one, the text)."""
    ((ok, text),) = [pair for pair in checkup.checkup() if "TPU" in pair[1]]
    return ok, text


@pytest.mark.parametrize("library", ["", "/lib/libtpu.so"])
def test_torchtpu_is_a_tpu_without_torch_xla(torchtpu, monkeypatch, capsys, library):
    torchtpu("tpu", library)
    assert needs.missing_tpu() is None
    assert tpu_line() == (True, "TPU v5e (torch_tpu 0.2.0)")
    assert str(provenance.where("tpu")) == "TPU v5e (this run)"
    monkeypatch.setenv("LAB_RECORDED", "2026-11-28")  # while `make record` runs
    assert str(provenance.where("tpu")) == "TPU v5e (recorded 2026-11-28)"
    kept, _ = json.loads(provenance.known_here("accelerator"))
    assert (kept["device"], kept["torch_tpu"]) == ("TPU v5e", "0.2.0")
    machine.ready()
    assert capsys.readouterr().out.endswith(" and torch_tpu, TPU v5e\n")


def test_torchtpu_on_xlas_cpu_device_is_never_taken_for_a_tpu(torchtpu, capsys):
    label = "TorchTPU on XLA's CPU device, no TPU"
    torchtpu("tpu", "/there/pjrt_c_api_cpu_plugin.so")
    assert needs.missing_tpu() == "a TPU, and torch_tpu runs on XLA's CPU device here"
    assert needs.missing_accelerator() is None
    assert tpu_line() == (False, f"{label} (torch_tpu 0.2.0)")
    assert str(provenance.where("tpu")) == f"{label} (this run)"
    kept, _ = json.loads(provenance.known_here("accelerator"))
    assert (kept["device"], kept["torch_tpu"]) == (label, "0.2.0")
    machine.ready()
    assert capsys.readouterr().out.endswith(f" and torch_tpu, {label}\n")


@pytest.mark.parametrize(
    ("loaded", "lack", "advice"),
    [
        (True, "torch_tpu finds none here", "a file in /dev/vfio"),
        (False, "torch_tpu is not loaded here", "TORCH_DEVICE_BACKEND_AUTOLOAD"),
    ],
)
def test_torchtpu_where_no_tpu_is(torchtpu, capsys, loaded, lack, advice):
    torchtpu(loaded=loaded)
    assert needs.missing_tpu() == f"a TPU, and {lack}"
    ok, text = tpu_line()
    assert not ok and text.startswith(f"torch_tpu 0.2.0: needs a TPU, and {lack}; ")
    assert text.endswith(advice)
    with pytest.raises(LabError, match="no tpu device"):
        devices.name_of("tpu")
    machine.ready()
    assert capsys.readouterr().out.endswith(" and torch_tpu, CPU\n")


# --------------------------------------------------------------------------------------
# Names, versions, doctor


@pytest.mark.parametrize(
    ("chip", "variable", "name"),
    [
        ("0x0063", None, "TPU v5e"),
        # what is on the bus is surer than what a variable says
        ("0x0063", "v6e-1", "TPU v5e"),
        ("0x0027", "v3-8", "TPU v3"),  # a number that two generations share
        (None, "v5litepod-8", "TPU v5e"),
        (None, None, "TPU"),
    ],
)
def test_a_tpu_is_named_by_its_generation(monkeypatch, tmp_path, chip, variable, name):
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    bus = {"other": ("0x8086", "0x0063"), "chip": ("0x1ae0", chip or "0x0042")}
    for slot, (vendor, device) in bus.items():
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "vendor").write_text(vendor + "\n")
        (tmp_path / slot / "device").write_text(device + "\n")
    if variable:
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", variable)
    assert devices.tpu_name(tmp_path) == name
    assert name in ("TPU", "TPU v3") or look_up(name).name == name


def test_doctor_prints_a_line_for_each_thing_and_no_path(capsys):
    checkup.doctor()
    text = capsys.readouterr().out
    assert len(text.splitlines()) >= 8
    for line in text.splitlines():
        assert re.match(r"(\[(OK|--)\]|    ) \S", line), line
    assert torch.__version__ in text and devices.cpu_name() in text
    assert str(pathlib.Path.home()) not in text and str(COURSE) not in text


def test_doctor_says_what_to_do_about_what_is_missing(monkeypatch):
    for module in (xla, checkup):
        monkeypatch.setattr(module, "package_version", lambda package: None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.8.1"))
    bad = "\n".join(text for ok, text in checkup.checkup() if not ok)
    for advice in (
        "pip install psutil",
        "torch.compile on the CPU: needs the C++ compiler",
        "need 2.9 or newer",
    ):
        assert advice in bad

import pathlib
import re
import runpy
import sys
import types

import pytest
import torch

from utils import checkup, devices, hardware, needs, recordings
from utils.messages import LabError
from utils.paths import COURSE


def test_pick_device_is_usable():
    device = devices.pick_device()
    assert torch.ones(2, device=device).sum().item() == 2
    if not torch.accelerator.is_available():
        assert device == torch.device("cpu")


def test_doctor_lines(capsys):
    checkup.doctor()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 8
    for line in lines:
        assert re.match(r"\[(OK|--)\] \S", line), line
    text = "\n".join(lines)
    assert torch.__version__ in text and devices.cpu_name() in text
    assert str(pathlib.Path.home()) not in text and str(COURSE) not in text


def test_doctor_says_what_to_do_about_what_is_missing(monkeypatch):
    for module in (needs, checkup):
        monkeypatch.setattr(module, "package_version", lambda package: None)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    bad = [text for ok, text in checkup.checkup() if not ok]
    assert any("pip install ipywidgets" in text for text in bad)
    assert any("torch.compile on the CPU: needs the C++ compiler" in text for text in bad)
    assert any("the lessons need 2.9 or newer" in text for text in bad)


def test_what_torch_compile_lacks_for_a_gpu(monkeypatch):
    machine = {"capability": (6, 0), "triton": None, "compiler": "a C++ compiler"}
    monkeypatch.setattr(needs, "missing_cuda", lambda: None)
    monkeypatch.setattr(needs, "name_of", lambda kind: "Tesla P100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: machine["capability"])
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: machine[name])
    monkeypatch.setattr(needs, "missing_compiler", lambda: machine["compiler"])
    assert "Tesla P100 is older" in needs.missing_triton()
    machine["capability"] = (7, 5)
    assert "Triton" in needs.missing_triton()
    machine["triton"] = "found"
    assert needs.missing_triton() == "a C++ compiler"
    machine["compiler"] = None
    assert needs.missing_triton() is None
    monkeypatch.setattr(needs, "missing_cuda", lambda: "a CUDA GPU")
    assert needs.missing_triton() == "a CUDA GPU"


BUILD = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]  # the default wheels of 2.13 and 2.15


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((7, 5), BUILD, True),
        ((8, 9), BUILD, True),
        ((10, 3), BUILD, True),
        ((6, 1), BUILD, False),  # GTX 1080 Ti
        ((7, 0), BUILD, False),  # V100
        ((11, 0), BUILD, False),
        ((12, 0), ["sm_90", "compute_90"], True),  # PTX
        ((8, 9), ["compute_90"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["sm_100f"], False),
        ((6, 1), [], True),  # nothing is known, so nothing is claimed
        ((6, 1), ["sm_75", "tile_ir"], True),
    ],
)
def test_a_gpu_whose_generation_is_not_in_the_build_is_missing(monkeypatch, capability, built, runs):
    gpu = {"is_available": True, "device_count": 1, "get_device_capability": capability, "get_arch_list": built}
    for name, value in (gpu | {"get_device_name": "Some GPU"}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *index, value=value: value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    assert devices.pick_device() == torch.device("cuda" if runs else "cpu")
    for lack in (needs.missing_cuda(), needs.missing_accelerator()):
        if runs:
            assert lack is None
        else:
            assert f"the Some GPU has compute capability {capability[0]}.{capability[1]}" in lack and built[0] in lack
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm, where nobody compares
    assert needs.missing_cuda() is None
    assert "2 CUDA GPUs, and PyTorch sees 1" in needs.missing_cuda(2)


def test_the_rule_about_generations_is_the_one_of_exercise_01_2():
    (path,) = (COURSE / "notebooks" / "exercises").glob("01_*.py")
    exercise = runpy.run_path(str(path))
    for capability, built, expected, _ in exercise["CODE_CASES"]:
        if built:
            assert any(devices._runs(capability, entry) for entry in built) is expected


def test_doctor_says_which_gpu_the_build_has_no_code_for(monkeypatch):
    gpu = types.SimpleNamespace(name="GTX 1080 Ti", total_memory=11 * 2**30, major=6, minor=1)
    facts = {"is_available": True, "device_count": 1, "get_device_capability": (6, 1), "get_arch_list": BUILD}
    for name, value in (facts | {"get_device_name": gpu.name, "get_device_properties": gpu}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *index, value=value: value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    ((ok, text),) = [line for line in checkup.checkup() if line[1].startswith("GPU 0")]
    assert not ok and "no code for it" in text and "CUDA_VISIBLE_DEVICES" in text


def test_doctor_says_what_torch_xla_lacks(monkeypatch):
    found = {"torch": "2.13.0", "torch_xla": "2.9.0"}
    monkeypatch.setattr(needs, "package_version", found.get)
    (text,) = [text for ok, text in checkup.checkup() if text.startswith("TPU")]
    assert "torch_xla 2.9.0 and torch 2.13.0" in text and "not installed" not in text


@pytest.mark.parametrize(("system", "name"), [("linux", "g++"), ("win32", "cl"), ("darwin", "clang++")])
def test_only_the_compiler_that_torch_compile_calls_counts(monkeypatch, system, name):
    monkeypatch.setattr(needs.sys, "platform", system)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(hardware.shutil, "which", lambda asked: f"/opt/{asked}" if asked == name else None)
    monkeypatch.setattr(needs.torch, "__path__", ["/opt/torch"])
    assert needs.missing_compiler() is None
    monkeypatch.setenv("CXX", "icpx")
    assert "(icpx)" in needs.missing_compiler()


def test_a_macs_stub_is_no_compiler(monkeypatch):
    monkeypatch.setattr(needs.sys, "platform", "darwin")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(hardware.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(needs, "output_of", lambda *command: "")
    assert "clang++" in needs.missing_compiler()
    monkeypatch.setattr(needs, "output_of", lambda *command: "/Library/Developer/CommandLineTools")
    monkeypatch.setattr(needs.torch, "__path__", ["/opt/torch"])
    assert needs.missing_compiler() is None


def test_a_compiler_without_pythons_headers_is_not_enough(monkeypatch, tmp_path):
    monkeypatch.setattr(hardware.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(needs.sysconfig, "get_path", lambda name: str(tmp_path))
    assert "header files" in needs.missing_compiler()
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(needs.torch, "__path__", ["/opt/torch"])
    assert needs.missing_compiler() is None


def test_a_folder_with_a_space_is_too_much_for_torch_compile(monkeypatch):
    """Seen with torch 2.9, 2.11 and 2.13: the linker is told `-L/home/my course/…` in two words."""
    monkeypatch.setattr(hardware.shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(needs.pathlib.Path, "exists", lambda self: True)
    monkeypatch.setattr(needs.torch, "__path__", ["/home/my course/torch"])
    assert "without a space" in needs.missing_compiler()
    monkeypatch.setattr(needs.torch, "__path__", ["/home/course/torch"])
    assert needs.missing_compiler() is None
    monkeypatch.setattr(needs.tempfile, "gettempdir", lambda: "/home/my files")
    assert "without a space" in needs.missing_compiler()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to name")
def test_a_device_that_is_not_there_has_no_name():
    with pytest.raises(LabError, match="no cuda device"):
        devices.name_of("cuda")


def test_versions_are_plain_text():
    assert all(isinstance(value, str) and value for value in devices.versions().values())


def test_torch_xla_of_another_release_is_said_before_it_is_imported(monkeypatch):
    found = {"torch": "2.13.0+cpu", "torch_xla": "2.9.0"}
    monkeypatch.setattr(needs, "package_version", found.get)
    assert needs.missing_xla() == (
        "torch_xla and torch of the same release, and here are torch_xla 2.9.0 and torch 2.13.0+cpu"
    )
    found["torch"] = "2.9.1+cpu"
    assert needs.missing_xla() is None
    del found["torch_xla"]
    assert needs.missing_xla() == "torch_xla, and it is not installed here"
    assert needs.missing_tpu() == "a TPU, and neither torch_xla nor torch_tpu is installed here"


def test_torchtpu_is_a_tpu_without_torch_xla(monkeypatch):
    """What its documentation says; it has no device without the chip, so here a stand-in for PyTorch's answer."""
    for module in (devices, needs, recordings):
        monkeypatch.setattr(module, "pick_device", lambda: types.SimpleNamespace(type="tpu"))
    assert needs.missing_tpu() is None and recordings.kind_of("tpu") == "tpu"
    assert str(recordings.where("tpu")) == "TPU (this machine)"


@pytest.mark.parametrize(
    ("chip", "variable", "name"),
    [
        ("0x0063", None, "TPU v5e"),
        ("0x0062", None, "TPU v5p"),
        ("0x0063", "v6e-1", "TPU v5e"),  # what is on the bus is surer than what a variable says
        ("0x0027", "v3-8", "TPU v3"),  # a number that two generations share
        (None, "v5litepod-8", "TPU v5e"),
        (None, "v5e-8", "TPU v5e"),
        (None, "v5p-16", "TPU v5p"),
        (None, "v6e-1", "TPU v6e"),
        (None, "tpu7x-8", "TPU7x"),
        (None, "v4-8", "TPU v4"),
        (None, "something new", "TPU"),
        (None, None, "TPU"),
    ],
)
def test_a_tpu_is_named_by_its_generation(monkeypatch, tmp_path, chip, variable, name):
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    for k, (vendor, device) in enumerate([("0x8086", "0x0063"), ("0x1ae0", "0x0042"), ("0x1ae0", chip)]):
        if device:
            (tmp_path / str(k)).mkdir()
            (tmp_path / str(k) / "vendor").write_text(vendor + "\n")
            (tmp_path / str(k) / "device").write_text(device + "\n")
    if variable:
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", variable)
    assert devices.tpu_name(tmp_path) == name
    assert name in ("TPU", "TPU v3") or hardware.look_up(name).name == name


@pytest.mark.parametrize(("kind", "name"), [("CPU", "XLA on CPU"), ("TPU", "TPU v5e"), ("NEURON", "XLA on NEURON")])
def test_the_name_of_an_xla_device_is_that_of_what_the_runtime_runs_on(monkeypatch, kind, name):
    runtime = types.SimpleNamespace(device_type=lambda: kind)
    monkeypatch.setitem(sys.modules, "torch_xla", types.SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "torch_xla.runtime", runtime)
    monkeypatch.setattr(devices, "tpu_name", lambda: "TPU v5e")
    assert devices.name_of("xla") == name


# ---------------------------------------------------------------------------------------------------------------
# The device table: names as PyTorch reports them, and figures that can be derived from others


@pytest.mark.parametrize(
    ("reported", "row"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32 GB"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32 GB"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("TPU v4", "TPU v4"),
        ("TPU v5 lite", "TPU v5e"),
        ("TPU v5p", "TPU v5p"),
        ("TPU v6 lite", "TPU v6e"),
        ("TPU7x", "TPU7x"),
    ],
)
def test_look_up_by_the_name_pytorch_reports(reported, row):
    assert hardware.look_up(reported).name == row


@pytest.mark.parametrize(
    "reported",
    [
        *["NVIDIA A10G", "NVIDIA L40", "NVIDIA T400", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA B300 SXM6 AC", ""],
        # other cards whose names begin like one in the table
        *["NVIDIA H200 NVL", "NVIDIA H100 NVL", "NVIDIA H100 64GB HBM2e", "NVIDIA H20", "Tesla V100S-PCIE-32GB"],
        *["Tesla V100-SXM3-32GB", "Tesla V100-DGXS-32GB", "Tesla P100-PCIE-12GB", "NVIDIA A100-SXM-64GB"],
        *["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5090 D"],
        *["AMD Instinct MI300A", "AMD Instinct MI300X HF", "TPU v5 something", "TPU"],
        # parts of a GPU
        *["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 MIG 2g.35gb"],
        *["GRID T4-8C", "GRID V100-16C", "NVIDIA A100-40C", "NVIDIA L4-6Q"],
    ],
)
def test_unknown_devices_and_parts_of_known_ones_have_no_row(reported):
    assert hardware.look_up(reported) is None


def test_no_name_fits_two_rows():
    for row in hardware.DEVICE_TABLE:
        assert [other.name for other in hardware.DEVICE_TABLE if re.fullmatch(other.pattern, row.name)] in (
            [],
            [row.name],
        )
    names = [row.name for row in hardware.DEVICE_TABLE]
    assert len(set(names)) == len(names)


def test_a_peak_is_a_limit_except_for_a_card_that_clocks_itself_higher():
    assert hardware.look_up("Tesla T4").limit("fp16") == 65 and hardware.look_up("Tesla T4").limit("bf16") is None
    card = hardware.look_up("NVIDIA GeForce RTX 5090")
    assert card.bf16 == 209.5 and card.limit("bf16") is None


def test_figures_are_dense_and_the_memory_of_a_tpu_is_what_google_prints():
    for row in hardware.DEVICE_TABLE:
        if row.fp8 and row.fp32:  # 8-bit numbers pass at twice the rate of 16-bit ones, not at four times
            assert row.fp8 == pytest.approx(2 * row.bf16, rel=0.02)
        if row.tf32 and not row.rated:
            assert row.tf32 == pytest.approx(row.fp16 / 2, rel=0.02)
    memory = {row.name: row.memory for row in hardware.DEVICE_TABLE if row.name.startswith("TPU")}
    assert memory == {"TPU v4": 32, "TPU v5e": 16, "TPU v5p": 95, "TPU v6e": 32, "TPU7x": 192}


def test_rows_have_source_and_date_and_look_themselves_up():
    for row in hardware.DEVICE_TABLE:
        assert row.source and re.fullmatch(r"20\d\d-\d\d-\d\d", row.checked)
        assert hardware.look_up(row.name) is row
        assert row.bandwidth > 0 and row.memory > 0


# SMs, fused multiply-adds a clock and SM on fp16 tensor cores, MHz
TENSOR = {
    "V100 SXM2": (80, 512, 1530),
    "T4": (40, 512, 1590),
    "A100 40 GB": (108, 1024, 1410),
    "H100 SXM": (132, 2048, 1830),
    "H100 PCIe": (114, 2048, 1620),
    "L4": (58, 512, 2040),
    "RTX 4090": (128, 256, 2520),  # sums in float32
    "RTX 5090": (170, 256, 2407),
    "MI300X": (304, 1024, 2100),  # compute units
}


@pytest.mark.parametrize("name", TENSOR)
def test_fp16_peak_follows_from_units_and_clock(name):
    sms, fma, mhz = TENSOR[name]
    assert hardware.look_up(name).fp16 == pytest.approx(sms * fma * 2 * mhz * 1e6 / 1e12, rel=0.005)


# Published ridge points (peak FLOP/s over bandwidth, FLOP a byte)
RIDGE = {"T4": 203, "L4": 403, "A100 40 GB": 201, "H100 SXM": 295, "H200 SXM": 206, "B200 SXM": 292, "TPU v5e": 241}
RIDGE |= {"RTX 4090": 164, "RTX 5090": 117}


@pytest.mark.parametrize("name", RIDGE)
def test_ridge_points(name):
    row = hardware.look_up(name)
    assert (row.bf16 or row.fp16) * 1e12 / (row.bandwidth * 1e9) == pytest.approx(RIDGE[name], abs=1)


def test_pcie_limits():
    limits = [round(hardware.pcie_limit(generation), 2) for generation in (3, 4, 5, 6)]
    assert limits == [15.75, 31.51, 63.02, 121.0]
    assert hardware.pcie_limit(4, lanes=8) == hardware.pcie_limit(4) / 2


@pytest.fixture
def a_t4(monkeypatch):
    """PyTorch sees one T4; what nvidia-smi answers is in the dict."""
    answers, asked = {}, []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    properties = types.SimpleNamespace(uuid="0a1b")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(hardware, "nvidia_smi", lambda field, gpu: (asked.append(gpu), answers.get(field, ""))[1])
    return types.SimpleNamespace(answers=answers, asked=asked, properties=properties)


def test_link_limit_prefers_what_the_driver_says_about_this_gpu(a_t4):
    a_t4.answers |= {"pcie.link.gen.max": "5", "pcie.link.width.max": "8", "pcie.link.width.current": "8"}
    assert hardware.link_limit() == (hardware.pcie_limit(5, 8), "PCIe 5 x8, from nvidia-smi")
    assert set(a_t4.asked) == {"GPU-0a1b"}
    a_t4.answers["pcie.link.width.current"] = "4"  # a card of eight lanes in a slot of four
    assert hardware.link_limit() == (hardware.pcie_limit(5, 4), "PCIe 5 x4, from nvidia-smi")
    a_t4.answers |= {"pcie.link.width.max": "16", "pcie.link.width.current": "[N/A]"}
    assert hardware.link_limit() == (hardware.pcie_limit(5, 16), "PCIe 5 x16, from nvidia-smi")


def test_link_limit_without_nvidia_smi_is_the_tables(a_t4, monkeypatch):
    table = (hardware.look_up("T4").link, "PCIe, from the device table (T4)")
    assert hardware.link_limit() == table
    a_t4.answers |= {"pcie.link.gen.max": "3", "pcie.link.width.max": "16"}
    a_t4.properties.uuid = None  # some builds do not tell it, and another card's link would be worse than none
    assert hardware.link_limit() == table
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA GH200 480GB")
    assert hardware.link_limit()[0] is None and "NVLink" in hardware.link_limit()[1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert hardware.link_limit() == (None, "no host link known")


def test_a_stuck_nvidia_smi_is_no_answer(monkeypatch):
    def stuck(command, **options):
        raise hardware.subprocess.TimeoutExpired(command, 20)

    monkeypatch.setattr(hardware.shutil, "which", lambda name: name)
    monkeypatch.setattr(hardware.subprocess, "run", stuck)
    assert hardware.output_of("nvidia-smi") == ""


def test_nvidia_smi_is_asked_about_this_gpu_and_once_a_second(monkeypatch):
    asked, clock = [], [100.0]
    answer = "1980 MHz, 2619 MHz, 61, 512.30 W, 0x0000000000000000"
    monkeypatch.setattr(hardware.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(hardware, "output_of", lambda *command: (asked.append(command), answer)[1])
    monkeypatch.setattr(hardware, "_states", {})
    properties = types.SimpleNamespace(uuid="0a1b")
    monkeypatch.setattr(needs.torch.cuda, "get_device_properties", lambda device: properties)
    assert (
        hardware.gpu_state("cuda")["temperature.gpu"] == "61" and hardware.gpu_state("cuda")["clocks.sm"] == "1980 MHz"
    )
    assert len(asked) == 1 and "--id=GPU-0a1b" in asked[0]
    clock[0] += 1.5
    hardware.gpu_state("cuda")
    assert len(asked) == 2


def test_a_newer_nvidia_smi_is_asked_by_its_newer_name(monkeypatch):
    """An unknown field makes nvidia-smi refuse the whole question, and newer drivers have another name for one."""
    asked = []

    def newer(*command):
        asked.append(command[1])
        return "" if "clocks_throttle_reasons" in command[1] else "1980 MHz, 2619 MHz, 61, 512.30 W, 0x0000000000000004"

    monkeypatch.setattr(hardware, "output_of", newer)
    monkeypatch.setattr(hardware, "_states", {})
    properties = types.SimpleNamespace(uuid="0a1b")
    monkeypatch.setattr(needs.torch.cuda, "get_device_properties", lambda device: properties)
    assert hardware.gpu_state("cuda")["clocks_throttle_reasons.active"] == "0x0000000000000004"
    assert len(asked) == 2 and "clocks_event_reasons.active" in asked[1]

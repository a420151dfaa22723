"""The data sheet: names as PyTorch reports them, figures that follow from others; and
what nvidia-smi says.
"""

import re
import subprocess
import sys
import types

import pytest
import torch

from course import machine
from utils import devices
from utils.hardware import DEVICE_TABLE, link_limit, look_up, pcie_limit

REPORTED = {  # row → names under which PyTorch reports this device
    "T4": ["Tesla T4", "emulated Tesla T4"],
    "L4": ["NVIDIA L4"],
    "L40S": ["NVIDIA L40S"],
    "V100 SXM2": ["Tesla V100-SXM2-16GB"],
    "V100 SXM2 32 GB": ["Tesla V100-SXM2-32GB"],
    "V100 PCIe": ["Tesla V100-PCIE-16GB"],
    "V100 PCIe 32 GB": ["Tesla V100-PCIE-32GB"],
    "P100 PCIe": ["Tesla P100-PCIE-16GB"],
    "A100 40 GB": ["NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"],
    "A100 80 GB SXM": ["NVIDIA A100-SXM4-80GB"],
    "A100 80 GB PCIe": ["NVIDIA A100 80GB PCIe"],
    "H100 SXM": ["NVIDIA H100 80GB HBM3"],
    "H100 PCIe": ["NVIDIA H100 PCIe"],
    "H200 SXM": ["NVIDIA H200"],
    "B200 SXM": ["NVIDIA B200"],
    "RTX 4090": ["NVIDIA GeForce RTX 4090"],
    "RTX 5090": ["NVIDIA GeForce RTX 5090"],
    "MI300X": ["AMD Instinct MI300X", "AMD Instinct MI300X VF"],
    "TPU v4": ["TPU v4"],
    "TPU v5e": ["TPU v5 lite"],
    "TPU v5p": ["TPU v5p"],
    "TPU v6e": ["TPU v6 lite"],
    "TPU7x": ["TPU7x"],
}
UNKNOWN = [
    "NVIDIA L40",
    "NVIDIA T400",
    "NVIDIA GH200 480GB",
    "",
    # other cards whose names begin like one in the table
    "NVIDIA H200 NVL",
    "NVIDIA H100 64GB HBM2e",
    "NVIDIA H20",
    "Tesla V100S-PCIE-32GB",
    "Tesla V100-SXM3-32GB",
    "Tesla P100-PCIE-12GB",
    "NVIDIA A100-SXM-64GB",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 5090 D",
    "AMD Instinct MI300A",
    "AMD Instinct MI300X HF",
    "TPU v5 something",
    "TPU",
    # parts of a GPU
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA H200 MIG 2g.35gb",
    "GRID T4-8C",
    "NVIDIA A100-40C",
]


def test_each_row_is_found_by_its_names_and_only_by_them():
    assert sorted(REPORTED) == sorted(row.name for row in DEVICE_TABLE)
    for name, reported in REPORTED.items():
        assert {look_up(each).name for each in [name, *reported]} == {name}
        for each in reported:
            bare = re.sub("^((emulated|NVIDIA|Tesla|AMD) )+", "", each)
            rows = [row for row in DEVICE_TABLE if re.fullmatch(row.pattern, bare)]
            assert len(rows) == 1, each
    assert not [each for each in UNKNOWN if look_up(each)]


def test_figures_have_a_source_and_are_dense():
    for row in DEVICE_TABLE:
        assert row.source and re.fullmatch(r"20\d\d-\d\d-\d\d", row.checked)
        assert row.bandwidth > 0 and row.memory > 0
        # 8-bit numbers pass at twice the rate of 16-bit ones, not at four times
        if row.fp8 and row.fp32:
            assert row.fp8 == pytest.approx(2 * row.bf16, rel=0.02)
        if row.tf32 and not row.rated:
            assert row.tf32 == pytest.approx(row.fp16 / 2, rel=0.02)


def test_the_memory_of_a_tpu_is_what_google_prints():
    memory = {"TPU v4": 32, "TPU v5e": 16, "TPU v5p": 95, "TPU v6e": 32, "TPU7x": 192}
    assert {name: look_up(name).memory for name in memory} == memory


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
    peak = sms * fma * 2 * mhz * 1e6 / 1e12
    assert look_up(name).fp16 == pytest.approx(peak, rel=0.005)


def test_a_peak_is_a_limit_except_for_a_card_that_clocks_itself_higher():
    assert look_up("Tesla T4").limit("fp16") == 65
    assert look_up("Tesla T4").limit("bf16") is None
    card = look_up("NVIDIA GeForce RTX 5090")
    assert card.bf16 == 209.5 and card.limit("bf16") is None


def test_pcie_limits():
    found = [round(pcie_limit(generation), 2) for generation in (3, 4, 5, 6)]
    assert found == [15.75, 31.51, 63.02, 121.0]
    assert pcie_limit(4, lanes=8) == pcie_limit(4) / 2


# --------------------------------------------------------------------------------------
# nvidia-smi


@pytest.fixture
def gpu(monkeypatch):
    """PyTorch sees one GPU, whose name and uuid can be set; nvidia-smi answers what is
    in `answers`, by field.
    """
    gpu = types.SimpleNamespace(
        name="Tesla T4", uuid="0a1b", answers={}, asked=[], second=100.0
    )

    def answer(program, query, style, card):
        gpu.asked.append(card)
        return gpu.answers.get(query.removeprefix("--query-gpu="), "")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: gpu.name)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(devices, "output_of", answer)
    monkeypatch.setattr(machine.time, "monotonic", lambda: gpu.second)
    devices.nvidia_smi.cache_clear()
    yield gpu
    devices.nvidia_smi.cache_clear()


@pytest.mark.parametrize(
    ("most", "card", "slot", "limit"),
    [
        ("5", "8", "8", (pcie_limit(5, 8), "PCIe 5 x8, from nvidia-smi")),
        # a card of eight lanes in a slot of four
        ("5", "8", "4", (pcie_limit(5, 4), "PCIe 5 x4, from nvidia-smi")),
        ("5", "16", "[N/A]", (pcie_limit(5, 16), "PCIe 5 x16, from nvidia-smi")),
        ("", "", "", (look_up("T4").link, "PCIe, from the device table (T4)")),
        ("7", "16", "16", (look_up("T4").link, "PCIe, from the device table (T4)")),
    ],
)
def test_link_limit_prefers_what_the_driver_says_about_this_gpu(
    gpu, most, card, slot, limit
):
    gpu.answers |= {
        "pcie.link.gen.max": most,
        "pcie.link.width.max": card,
        "pcie.link.width.current": slot,
    }
    assert link_limit() == limit
    assert set(gpu.asked) == {"--id=GPU-0a1b"}


def test_link_limit_of_a_gpu_that_nvidia_smi_cannot_be_asked_about(gpu, monkeypatch):
    gpu.answers |= {"pcie.link.gen.max": "5", "pcie.link.width.max": "8"}
    # some builds do not tell it, and another card's link would be worse than none
    gpu.uuid = None
    assert link_limit() == (look_up("T4").link, "PCIe, from the device table (T4)")
    gpu.name = "NVIDIA GH200 480GB"
    assert link_limit()[0] is None and "NVLink" in link_limit()[1]
    gpu.name = "Some GPU"
    assert link_limit() == (None, "no host link known")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert link_limit() == (None, "no host link known")
    assert not gpu.asked


@pytest.mark.parametrize(
    "field", ["clocks_throttle_reasons.active", "clocks_event_reasons.active"]
)
def test_throttle_reasons_by_the_name_of_older_and_of_newer_drivers_once_a_second(
    gpu, field
):
    masks = {
        "0x0000000000000004": ["power cap"],
        "0x0000000000000060": ["heat", "heat (hardware)"],
        "0x0000000000000001": [],
        "[N/A]": [],
        "": [],
    }
    for mask, reasons in masks.items():
        gpu.answers[field] = mask
        gpu.second += 1
        assert machine.throttle_reasons(torch.device("cuda")) == reasons
        asked = len(gpu.asked)
        assert machine.throttle_reasons(torch.device("cuda")) == reasons
        assert len(gpu.asked) == asked


def test_a_program_that_is_missing_fails_or_hangs_says_nothing(monkeypatch):
    assert devices.output_of(sys.executable, "-c", "print(' 580.95 ')") == "580.95"
    fails = "print('no GPU'); raise SystemExit(9)"
    assert devices.output_of(sys.executable, "-c", fails) == ""
    assert devices.output_of("no-such-program") == ""

    def hangs(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert devices.output_of("nvidia-smi") == ""

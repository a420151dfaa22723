"""The data sheet (peaks of known devices, limits of links), and what nvidia-smi says
about a GPU of this machine.
"""

import re
from typing import NamedTuple

import torch

from .devices import nvidia_smi


class DeviceRow(NamedTuple):
    """Peak figures of one device, dense (no sparsity). None: the device has no such
    unit, or no source was found.

    pattern: regular expression for the whole name that PyTorch reports, without the
    maker in front. fp32, tf32, fp16, bf16, fp8: TFLOP/s; products of 16-bit and 8-bit
    numbers are summed in float32, as PyTorch does. memory: GiB (sellers write GB and
    mean 2**30 bytes). bandwidth: GB/s of the device's memory. link: GB/s between host
    and device in one direction. source, checked: where and when the row was read.
    rated: the peaks hold at a rated clock that the card exceeds when it is cool.
    """

    name: str
    pattern: str
    source: str
    fp32: float | None
    tf32: float | None
    fp16: float | None
    bf16: float | None
    fp8: float | None
    memory: float
    bandwidth: float
    link: float | None
    checked: str = "2026-11-20"
    rated: bool = False

    def limit(self, kind: str) -> float | None:
        """Peak of `kind` ("fp32", …) as a physical limit for `claim`; None where there
        is none.

        A GeForce clocks itself above the "boost clock" that its peaks are printed for,
        so a right measurement can lie above them.
        """
        return None if self.rated else getattr(self, kind)


PCIE = {3: 8, 4: 16, 5: 32, 6: 64}  # generation → GT/s a lane


def pcie_limit(generation: int, lanes: int = 16) -> float:
    """Most that a PCI Express link can carry in one direction, in GB/s, before protocol
    overhead.

    generation: 3, 4, 5 or 6. Source: one bit a transfer and lane,
    the 128b/130b line code (PCI Express Base Specification 3.0 to 5.0), and 242 of 256
    bytes a flit (6.0).
    """
    return PCIE[generation] * lanes * (242 / 256 if generation == 6 else 128 / 130) / 8


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

# fmt: off
DEVICE_TABLE = [  # the figures of a column below each other
    #   fp32    tf32    fp16    bf16     fp8  GiB  GB/s  link
    DeviceRow("P100 PCIe", r"P100-PCIE-16GB", "NVIDIA's P100, second-hand",
         9.3,   None,   18.7,   None,   None,  16,  732,  _P3),
    DeviceRow("V100 SXM2", r"V100-SXM2-16GB", _PL,
        15.7,   None,    125,   None,   None,  16,  900,  _P3),
    DeviceRow("V100 SXM2 32 GB", r"V100-SXM2-32GB", _PL,
        15.7,   None,    125,   None,   None,  32,  900,  _P3),
    DeviceRow("V100 PCIe", r"V100-PCIE-16GB", _PL,
          14,   None,    112,   None,   None,  16,  900,  _P3),
    DeviceRow("V100 PCIe 32 GB", r"V100-PCIE-32GB", _PL,
          14,   None,    112,   None,   None,  32,  900,  _P3),
    DeviceRow("T4", r"T4", _PL,
         8.1,   None,     65,   None,   None,  16,  320,  _P3),
    DeviceRow("L4", r"L4", "resellers' pages on the L4, sparse figures halved",
        30.3,     60,    121,    121,    242,  24,  300,  _P4),
    DeviceRow("L40S", r"L40S", _L40S,
        91.6,    183,    362,    362,    733,  48,  864,  _P4, _NOW),
    DeviceRow("A100 40 GB", r"A100-(SXM4?|PCIE)-40GB", _ML,
        19.5,    156,    312,    312,   None,  40, 1555,  _P4),
    DeviceRow("A100 80 GB PCIe", r"A100 80GB PCIe", _ML,
        19.5,    156,    312,    312,   None,  80, 1935,  _P4),
    DeviceRow("A100 80 GB SXM", r"A100-SXM4?-80GB", _ML,
        19.5,    156,    312,    312,   None,  80, 2039,  _P4),
    DeviceRow("H100 PCIe", r"H100 PCIe", _ML,
          51,    378,    756,    756,   1513,  80, 2000,  _P5),
    DeviceRow("H100 SXM", r"H100 80GB HBM3", _ML,
          67,  494.5,    989,    989,   1979,  80, 3350,  _P5),
    DeviceRow("H200 SXM", r"H200", _ML,
          67,  494.5,    989,    989,   1979, 141, 4800,  _P5),
    DeviceRow("B200 SXM", r"B200", _HGX,
          75,   1125,   2250,   2250,   4500, 180, 7700,  _P5, _NOW),
    DeviceRow("RTX 4090", r"GeForce RTX 4090", _4090,
        82.6,   82.6,  165.2,  165.2,  330.3,  24, 1008,  _P4, _NOW, rated=True),
    DeviceRow("RTX 5090", r"GeForce RTX 5090", _5090,
       104.8,  104.8,  209.5,  209.5,    419,  32, 1792,  _P5, _NOW, rated=True),
    # A partition of an MI300X (CPX, DPX) has the same name as the whole.
    DeviceRow("MI300X", r"Instinct MI300X( OAM| VF)?", _AMD,
       163.4,  653.7, 1307.4, 1307.4, 2614.9, 192, 5300,  _P5, _NOW),
    DeviceRow("TPU v4", r"TPU v4", _G + "v4",
        None,   None,   None,    275,   None,  32, 1200, None),
    DeviceRow("TPU v5e", r"TPU v5e|TPU v5 lite", _G + "v5e",
        None,   None,   None,    197,   None,  16,  819, None),
    DeviceRow("TPU v5p", r"TPU v5p?", _G + "v5p",
        None,   None,   None,    459,    459,  95, 2765, None),
    DeviceRow("TPU v6e", r"TPU v6e|TPU v6 lite", _G + "v6e",
        None,   None,   None,    918,    918,  32, 1638,  _P5),
    DeviceRow("TPU7x", r"TPU ?7x", _G + "tpu7x",
        None,   None,   None,   2307,   4614, 192, 7380, None, _NOW),
]
# fmt: on


def look_up(name: str) -> DeviceRow | None:
    """The row of the device table for a device name as PyTorch reports it, or None.

    The whole name must fit: an "NVIDIA H200 NVL" is no "NVIDIA H200", a MIG slice or a
    virtual GPU no whole GPU, a "Laptop GPU" not the card of that name.
    """
    bare = re.sub(r"^((emulated|NVIDIA|Tesla|AMD) )+", "", name)  # without the maker
    for row in DEVICE_TABLE:
        if row.name == name or re.fullmatch(row.pattern, bare):
            return row
    return None


def link_limit() -> tuple[float | None, str]:
    """(GB/s in one direction, how we know) for the link to the first CUDA GPU; (None,
    why not) when unknown.
    """
    if not torch.cuda.is_available():
        return None, "no host link known"
    name = torch.cuda.get_device_name(0)
    if re.search(r"\bG[HB]\d", name):  # GH200, GB200
        return None, f"{name} is joined to its CPU by NVLink-C2C, not PCIe"
    # The generation falls when the GPU rests, the width does not; a card with 16 lanes
    # may sit in a slot with 4.
    fields = [
        nvidia_smi(f"pcie.link.{field}", 0)
        for field in ("gen.max", "width.max", "width.current")
    ]
    generation, *widths = (int(text) if text.isdigit() else None for text in fields)
    lanes = min(filter(None, widths), default=None)
    if lanes and generation in PCIE:
        limit = pcie_limit(generation, lanes)
        return limit, f"PCIe {generation} x{lanes}, from nvidia-smi"
    row = look_up(name)
    if row and row.link:
        return row.link, f"PCIe, from the device table ({row.name})"
    return None, "no host link known"

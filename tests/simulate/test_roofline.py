"""Roofline and operation counts against published figures and against PyTorch's own
counter.
"""

import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course.answers import Wrong
from course.exercises import all_exercises
from simulate.roofline import attainable, product_intensity, ridge, transformer_flops
from tests.simulate.test_memory import Block
from utils.hardware import look_up

# Peak (dense) over memory bandwidth, FLOP/byte, in the 16-bit type; V100 and T4 have
# fp16 alone.
RIDGES = {
    "V100 SXM2": 139,
    "T4": 203,
    "L4": 403,
    "A100 40 GB": 201,
    "A100 80 GB SXM": 153,
    "H100 PCIe": 378,
    "H100 SXM": 295,
    "H200 SXM": 206,
    "B200 SXM": 292,
    "TPU v4": 229,
    "TPU v5e": 241,
    "TPU v5p": 166,
    "TPU v6e": 560,
    "RTX 4090": 164,
    "RTX 5090": 117,
}


@pytest.mark.parametrize("name", RIDGES)
def test_ridge_points(name):
    row = look_up(name)
    peak = row.bf16 or row.fp16
    found = ridge(peak, row.bandwidth)
    assert found == pytest.approx(RIDGES[name], rel=0.005)
    assert attainable(2 * found, peak, row.bandwidth) == pytest.approx(peak)
    assert attainable(found / 2, peak, row.bandwidth) == pytest.approx(peak / 2)


def test_a_large_square_product_has_a_third_of_its_side_as_intensity():
    assert product_intensity(4096, 4096, 4096, 2) == pytest.approx(4096 / 3)
    # a vector: one FLOP a byte
    assert product_intensity(1, 4096, 4096, 2) == pytest.approx(1, rel=0.001)


# Korthikanti et al. 2022, tables 3 and 5: batch, layers, hidden, GPUs, seconds an
# iteration, MFU and HFU in percent.
@pytest.mark.parametrize(
    ("batch", "layers", "hidden", "gpus", "seconds", "mfu", "hfu"),
    [(4, 48, 6144, 8, 1.10, 41.5, 43.7), (64, 96, 12288, 64, 13.75, 51.4, 52.8)],
)
def test_published_utilization(batch, layers, hidden, gpus, seconds, mfu, hfu):
    size = (layers, hidden, 2048, batch, 51200)
    model = transformer_flops(*size)
    device = transformer_flops(*size, recompute="selective")
    assert 100 * model / (gpus * seconds * 312e12) == pytest.approx(mfu, abs=0.2)
    assert 100 * device / (gpus * seconds * 312e12) == pytest.approx(hfu, abs=0.2)


@pytest.mark.parametrize(
    ("hidden", "heads", "sequence", "batch", "vocabulary"),
    [(256, 4, 128, 2, 500), (128, 2, 64, 1, 1000)],
)
def test_the_formula_agrees_with_pytorchs_counter(
    hidden, heads, sequence, batch, vocabulary
):
    """On meta: the counter of 2.13 finds no attention on the CPU (pytorch#195460)."""
    with torch.device("meta"):
        model = torch.nn.Sequential(
            Block(hidden, heads), torch.nn.Linear(hidden, vocabulary, bias=False)
        )
        x = torch.empty(batch, sequence, hidden, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    expected = transformer_flops(1, hidden, sequence, batch, vocabulary)
    assert counter.get_total_flops() == pytest.approx(expected)


def test_exercise_09_5_says_what_a_counter_with_its_table_lacks(monkeypatch):
    """FlopCounterMode() prints a table at its end and needs tabulate, which the course
    does not install.
    """
    monkeypatch.setitem(sys.modules, "tabulate", None)
    exercise = all_exercises()["09.5"]
    names = {"torch": torch}
    exec(exercise.solution.replace("display=False", ""), names)
    with pytest.raises(Wrong, match=r"needs the package tabulate .*display=False"):
        exercise.check(names["mfu_of"])

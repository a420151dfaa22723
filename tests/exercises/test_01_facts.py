"""Facts of lesson 01 that no exercise and no cell holds."""

import re

import nbformat
import pytest
import torch

from tests.conftest import ROOT
from utils.no_gpu import OLDEST_DRIVER, why_no_gpu

LESSON = nbformat.read(ROOT / "notebooks" / "01_device_detection.ipynb", as_version=4)
TEXTS = {cell.id: cell.source for cell in LESSON.cells}


@pytest.mark.parametrize("text", ["cuda:-1", "cuda:01", "cuda:1.5", "cuda:2147483648"])
def test_an_index_with_a_sign_a_zero_or_31_bits_is_refused(text):
    with pytest.raises(RuntimeError):
        torch.device(text)


def test_none_is_no_device_and_moves_nothing_without_a_word():
    x = torch.ones(1)
    assert x.to(None) is x


@pytest.mark.parametrize("family", ["ipu", "vulkan"])
def test_messages_of_a_family_that_the_build_lacks(family):
    with pytest.raises(RuntimeError, match="not linked with support"):
        torch.ones(1).to(family)
    with pytest.raises(NotImplementedError, match="Could not run 'aten::empty"):
        torch.ones(1, device=family)


def test_each_pip_line_for_another_build_reinstalls():
    lines = [
        line
        for text in TEXTS.values()
        for line in text.splitlines()
        if "pip install" in line and "--index-url" in line
    ]
    assert len(lines) == 2
    assert all("--force-reinstall" in line for line in lines)


def test_the_ages_of_drivers_stand_above_the_bet_that_needs_them():
    order = list(TEXTS)
    assert order.index("chain-text") < order.index("diagnose-text")
    table = re.findall(r"^\| (?:CUDA|driver).*?\| (.*) \|$", TEXTS["chain-text"], re.M)
    versions, drivers = ([int(n) for n in row.split(" | ")] for row in table)
    assert dict(zip(versions, drivers, strict=True)) == OLDEST_DRIVER


def test_no_build_of_pytorch_takes_the_driver_of_the_workstation():
    facts = {"gpu": True, "driver": "470.82.01", "cuda": "12.8"}
    cure = why_no_gpu(facts | {"visible": "", "available": False, "kernels": None}).cure
    assert cure == ["A driver 525 or newer (nvidia.com/drivers)"]

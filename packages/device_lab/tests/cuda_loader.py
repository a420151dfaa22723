"""who_waits on an emulated GPU: which copies it times. Times are modeled there, so no
verdict is judged.
"""

import os

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from device_lab import who_waits

if "libemulator" not in os.environ.get("LD_PRELOAD", ""):
    pytest.exit("no emulated device: python -m emulated_cuda.run python -m pytest …", 2)

DATA = TensorDataset(torch.rand(64, 8), torch.arange(64) % 10)


def parts(loader):
    weight = torch.ones(8, 8, device="cuda")
    found = who_waits(loader, lambda batch: batch[0].cuda() @ weight)
    assert found.who and str(found)
    return list(found.parts)


def test_a_batch_that_has_to_be_moved_is_timed_with_and_without_its_copy():
    moved = ["loop", "loader", "step", "launch", "step, no copy", "copy"]
    assert parts(DataLoader(DATA, 8)) == moved


def test_batches_that_are_on_the_gpu_need_no_copy():
    batches = [[torch.ones(2, 8, device="cuda")]] * 3
    assert parts(batches) == ["loop", "loader", "step", "launch"]


def test_a_step_that_needs_the_batch_on_the_cpu_is_timed_as_it_is():
    weight = torch.ones(8, 8, device="cuda")

    def step(batch):
        return torch.from_numpy(batch[0].numpy() / 2).cuda() @ weight

    found = who_waits(DataLoader(DATA, 8), step)
    assert list(found.parts) == ["loop", "loader", "step", "launch"]

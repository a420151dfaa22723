"""does_it_pay on an emulated GPU: graphs, outputs and what is put back. Times are
modeled there, so no gain is judged.
"""

import os

import pytest
import torch
from torch import nn

from device_lab import does_it_pay

if "libemulator" not in os.environ.get("LD_PRELOAD", ""):
    pytest.exit("no emulated device: python -m emulated_cuda.run python -m pytest …", 2)


def test_a_training_step_on_the_gpu():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()
    mean = model[1].running_mean.clone()
    x = torch.randn(16, 8, device="cuda")
    options = {"backend": "aot_eager", "seconds": 0.05}
    found = does_it_pay(model, x, **options)
    assert found.graphs == 1 and found.agree, str(found)
    assert torch.equal(model[1].running_mean, mean) and model[0].weight.grad is None


def test_inputs_on_the_cpu_that_the_model_moves():
    weight = torch.ones(8, 8, device="cuda")

    def moves(x):
        return x.to("cuda", non_blocking=True) @ weight

    found = does_it_pay(moves, torch.ones(4, 8), backend="aot_eager", seconds=0.05)
    assert found.agree and str(found)


def test_a_value_that_the_host_reads_breaks_the_graph():
    def reads(x):
        return x * 2 if x.sum() > 0 else x

    x = torch.ones(4, device="cuda")
    found = does_it_pay(reads, x, backend="aot_eager", seconds=0.05)
    assert len(found.breaks) == 1 and "cuda_compiling.py" in found.breaks[0]

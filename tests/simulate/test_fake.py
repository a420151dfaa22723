"""Fake GPUs must not depend on how many real ones the machine has; fake processes on
nothing at all.
"""

import json
import subprocess
import sys
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import fake_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from simulate import fake
from simulate.fake import (
    Fetched,
    MetaAsGpu,
    fake_autocast,
    fake_gpus,
    fake_processes,
)


def test_two_gpus_move_and_refuse_to_meet():
    with fake_gpus():
        first = torch.ones(2, device="cuda:0")
        second = first.to("cuda:1")
        with pytest.raises(RuntimeError, match="two devices|two different devices"):
            first + second
    assert str(second.device) == "cuda:1" and torch.ones(2).add(1).tolist() == [2, 2]


def test_a_machine_with_one_real_gpu_is_not_asked_for_a_second(monkeypatch):
    """On such a machine PyTorch 2.9 to 2.11 makes a real tensor on cuda:1 first, and
    fails.
    """

    def no_such_gpu(device):
        raise RuntimeError("invalid device ordinal")

    monkeypatch.setattr(fake_tensor, "init_gpu_context", no_such_gpu)
    with (
        fake_tensor.FakeTensorMode(),
        pytest.raises(RuntimeError, match="invalid device ordinal"),
    ):
        torch.ones(2, device="cuda:1")
    with fake_gpus():
        assert str(torch.ones(2, device="cuda:1").device) == "cuda:1"
    assert fake_tensor.init_gpu_context is no_such_gpu


def test_data_on_a_second_gpu_makes_no_real_tensor(monkeypatch):
    """Where there is a GPU, torch.tensor(data, device=…) makes a real tensor there
    before it becomes a fake one.
    """
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def nothing(device):
        pass

    monkeypatch.setattr(fake_tensor, "init_gpu_context", nothing, raising=False)
    with fake_tensor.FakeTensorMode(), pytest.raises((RuntimeError, AssertionError)):
        torch.tensor([1.0, 2.0], device="cuda:1")
    with fake_gpus():
        data = torch.tensor([1.0, 2.0], device="cuda:1")
        assert str(data.device) == "cuda:1"
        assert str((data + torch.ones(2, device="cuda:1")).device) == "cuda:1"
    assert type(torch.tensor([1.0])) is torch.Tensor


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (fake_tensor, "init_gpu_context"),
        (fake_tensor.FakeTensorMode, "avoid_device_init"),
    ],
)
def test_a_newer_pytorch_may_lack_what_is_switched_off(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    with fake_gpus():
        assert str(torch.ones(2, device="cuda:1").device) == "cuda:1"
    assert not hasattr(owner, name)


# how a reader tries to have a gradient or a model on a fake GPU
GRADIENTS = [
    "torch.ones(2, requires_grad=True).to('cuda:0')",
    "torch.ones(2, requires_grad=True).cuda(1)",
    "leaf.to('cuda')",
    "leaf.detach().clone().requires_grad_().cuda()",
    "torch.ones(2, device='cuda:0', requires_grad=True) * 2",
    "torch.tensor([1.0], device='cuda', requires_grad=True)",
    "torch.ones(2, device='cuda').requires_grad_() * 2",
    "setattr(torch.ones(2, device='cuda'), 'requires_grad', True)",
    "nn.Parameter(torch.ones(2, device='cuda:0')) * 2",
    "nn.Linear(2, 2, device='cuda:0')",
    "nn.Linear(2, 2, device='cuda')(torch.ones(1, 2, device='cuda'))",
    "nn.Embedding(3, 2, device='cuda:1')",
    "nn.Linear(2, 2).to('cuda:0')",
    "nn.Linear(2, 2).cuda()",
    "nn.Linear(2, 2).cuda(1)",
    "model.to('cuda')",
    "model.cuda(1)",
    "model.requires_grad_(False).to('cuda:0')",
    "(leaf.sum() * torch.ones(2, device='cuda:0')).sum().backward()",
    "(leaf.sum() + torch.ones((), device='cuda:0')).backward()",
    "torch.where(there > 0, leaf.sum(), there)",
    "Crosses.apply(leaf)",
    "torch.func.grad(torch.sum)(there)",
    "torch.autograd.functional.jacobian(torch.exp, there)",
]
WORKS = {
    "torch.ones(2).cuda().device": "cuda:0",
    "torch.ones(2).cuda(1).device": "cuda:1",
    "torch.ones(2).cuda(device=1).device": "cuda:1",
    "there.cuda('cuda:1').device": "cuda:1",
    "torch.ones(2).to('cuda').device": "cuda:0",
    "torch.ones(2).to(1).device": "cuda:1",
    "torch.ones(2).to(device='cuda', dtype=torch.float16).device": "cuda:0",
    "torch.ones(2).to('cuda', non_blocking=True).device": "cuda:0",
    "torch.ones(2).to(torch.float16, False).dtype": "torch.float16",
    "there.to('cpu').device": "cpu",
    "there.requires_grad_(False).requires_grad": "False",
    "nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()": "None",
    "model(torch.ones(1, 2)).sum().backward()": "None",
    "Crosses.apply(torch.ones(2)).device": "cuda:0",
}
OTHER = {
    "there.sum().item()": "has no numbers, and `item` needs one",
    "there.tolist()": "has no numbers",
    "f'{there.sum():.2f}'": "has no numbers",
    "1 if there.sum() > 0 else 0": "has no numbers, and `__bool__` needs one",
    "torch.ones(2).numpy()": "has no numbers, and `numpy` needs one",
    "there.numpy()": "can't convert cuda:0 device type tensor to numpy",
    "np.asarray(there)": "can't convert cuda:0 device type tensor to numpy",
}
# the words depend on whether the build knows CUDA: an error or a result, no more
ONE_LINE = ["there.nonzero()", "there[there > 0]", "there[0]", "there.copy_(leaf)"]
TRY = """
import json, sys
import numpy as np
import torch
from torch import nn
from simulate.fake import fake_gpus

class Crosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.to("cuda:0")

    @staticmethod
    def backward(ctx, gradient):
        return gradient.cpu()

for line in json.loads(sys.argv[1]):
    print(json.dumps(line), flush=True)  # the last one, if the process ends here
    model, leaf = nn.Linear(2, 2), torch.ones(2, requires_grad=True)
    try:
        with fake_gpus():
            there = torch.ones(2, device="cuda:0")
            said = str(eval(line))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    assert {type(p) for p in model.parameters()} == {nn.Parameter}
    assert str(model.weight.device) == "cpu"
    print(json.dumps(said), flush=True)
"""


@pytest.fixture(scope="module")
def tried():
    """Line → what came of it, from a process of its own: PyTorch ends one in which a
    fake GPU gets a gradient.
    """
    lines = [*GRADIENTS, *WORKS, *OTHER, *ONE_LINE]
    command = [sys.executable, "-c", TRY, json.dumps(lines)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    said = list(map(json.loads, ran.stdout.splitlines()))
    assert ran.returncode == 0, f"{said[-1]} ended it: {ran.stderr[-2000:]}"
    return dict(zip(said[::2], said[1::2], strict=True))


@pytest.mark.parametrize("line", GRADIENTS)
def test_a_fake_gpu_refuses_gradients_and_models_in_one_line(tried, line):
    lines = [fake.NO_GRADIENTS]
    if torch.__version__.startswith(
        "2.9"
    ):  # moves of what was made outside ask for a GPU first
        lines += [fake.NO_GPU.format(name=name) for name in ("to", "cuda")]
    assert tried[line].removeprefix("RuntimeError: ") in lines


@pytest.mark.parametrize("line", WORKS)
def test_a_fake_gpu_needs_no_number_and_a_cpu_keeps_its_gradients(tried, line):
    assert tried[line] == WORKS[line]


@pytest.mark.parametrize("line", OTHER)
def test_what_needs_a_value_says_so(tried, line):
    assert OTHER[line] in tried[line]


@pytest.mark.parametrize("line", ONE_LINE)
def test_what_asks_for_a_real_gpu_says_so(tried, line):
    said = tried[line]
    fine = "has no numbers" in said or "cannot do" in said or "Error" not in said
    assert (fine or said.endswith(fake.NO_GRADIENTS)) and "\n" not in said


def test_what_fake_gpus_replaces_is_put_back():
    before = vars(torch.autograd.Function)["apply"]
    with fake_gpus():
        pass
    assert vars(torch.autograd.Function)["apply"] is before


@pytest.mark.parametrize(
    "mixes",
    [
        lambda x: x + torch.ones(2),
        lambda x: torch.ones(2).add_(x),
        lambda x: torch.tensor(0.0).add_(x.sum()),
        lambda x: x.index_select(0, torch.tensor([1])),
    ],
)
def test_meta_as_a_gpu_refuses_to_meet_the_cpu(mixes):
    with MetaAsGpu(), pytest.raises(RuntimeError, match="to be on the same device"):
        mixes(torch.ones(2, device="meta"))


def test_meta_as_a_gpu_computes_and_takes_numbers_and_copies():
    with MetaAsGpu():
        sums = torch.zeros(2, device="meta")
        sums[0] += torch.ones(3, device="meta").sum() * 2
        sums += torch.tensor(1.0)
        sums.copy_(torch.ones(2))
        sums[torch.tensor([1])] += sums[torch.tensor([0])]
        assert sums.is_meta and (torch.ones(2) + 1).tolist() == [2, 2]
    assert (torch.ones(2, device="meta") + 1).is_meta


@pytest.mark.parametrize("fetch", [torch.Tensor.item, torch.Tensor.cpu, float, bool])
def test_meta_as_a_gpu_has_no_values(fetch):
    with MetaAsGpu(), pytest.raises(Fetched):
        fetch(torch.ones(1, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cuda_autocast_without_a_gpu(dtype):
    """The three lists of the documentation of torch.amp, one operation of each, and
    what is on no list.
    """
    with fake_autocast(dtype):
        single = torch.ones(4, 4, device="cuda")
        half = single.to(dtype)
        found = [
            (single @ single).dtype,
            half.softmax(-1).dtype,
            torch.addcmul(half, single, half).dtype,
        ]
        assert found == [dtype, torch.float32, torch.float32]
        assert half.relu().dtype == dtype and single.relu().dtype == torch.float32
    assert not torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") == torch.float16


@pytest.mark.parametrize(
    "fake", [fake_gpus, fake_autocast, lambda: fake_processes(4096)]
)
def test_what_is_fake_is_gone_after_an_error(fake):
    with pytest.raises(ValueError), fake():
        raise ValueError
    assert not torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") == torch.float16
    assert not dist.is_initialized() and type(torch.ones(1)) is torch.Tensor


def sharded_step(mesh_shape, width=64):
    names = ("replicate", "shard")[-len(mesh_shape) :]
    with fake_processes(torch.Size(mesh_shape).numel()) as issued:
        layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(2)]
        model = nn.Sequential(*layers)
        mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
        for part in [*model, model]:
            fully_shard(part, mesh=mesh)
        model(torch.zeros(1, width)).sum().backward()
    return issued


# Two layers of 64 · 64 + 64 numbers, cut by rows. 128 ranks for 64 rows: each sends
# one, of which half are padding.
LAYER = 4 * 65 * 64  # bytes


@pytest.mark.parametrize(
    ("mesh_shape", "ranks", "size"), [((4,), 4, LAYER), ((128,), 128, 2 * LAYER)]
)
def test_fsdp_gathers_twice_and_reduces_once(mesh_shape, ranks, size):
    gathered, reduced = ("all_gather", size, ranks), ("reduce_scatter", size, ranks)
    assert Counter(sharded_step(mesh_shape)) == {gathered: 4, reduced: 2}


def test_fsdp_sums_across_its_groups():
    assert Counter(sharded_step((16, 8))) == {
        ("all_gather", LAYER, 8): 4,
        ("reduce_scatter", LAYER, 8): 2,
        ("all_reduce", LAYER // 8, 16): 2,
    }


def test_what_DTensor_issues_is_noted_with_its_ranks():
    with fake_processes(8) as issued:
        mesh = init_device_mesh("cpu", (2, 4))
        options = {"device_mesh": mesh, "src_data_rank": None}
        x = distribute_tensor(
            torch.ones(6, 8), placements=[Replicate(), Shard(1)], **options
        )
        w = distribute_tensor(
            torch.ones(8, 10), placements=[Replicate(), Shard(0)], **options
        )
        (x @ w).full_tensor()
        x.full_tensor()
    assert issued == [("all_reduce", 4 * 6 * 10, 4), ("all_gather", 4 * 6 * 8, 4)]


def test_a_fake_process_has_the_block_of_its_rank():
    with fake_processes(8, rank=5):
        mesh = init_device_mesh("cpu", (4, 2))
        cut = [Shard(0), Shard(1)]
        held = distribute_tensor(torch.eye(8), mesh, cut, src_data_rank=None).to_local()
    assert torch.equal(held, torch.eye(8)[4:6, 4:])

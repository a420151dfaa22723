"""Fake GPUs must not depend on how many real ones the machine has; fake processes on
nothing at all.
"""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import fake_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

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

"""What stands in for a GPU's memory answers, counts and fails as a GPU does."""

import pytest
import torch
from torch.cuda import max_memory_allocated, memory_allocated, reset_peak_memory_stats

from exercises.doubles.gpu_memory import KeptForBackward, asked_by_torch_cuda
from simulate.allocator import MIB, CachingAllocator


@pytest.fixture
def gpu():
    """30 MiB were allocated, 3 MiB are."""
    gpu = CachingAllocator()
    gpu.free(gpu.malloc(30 * MIB))
    gpu.malloc(3 * MIB)
    with asked_by_torch_cuda(gpu):
        yield gpu


@pytest.mark.parametrize("device", [None, 0, "cuda", "cuda:0", torch.device("cuda")])
def test_torch_cuda_answers_for_the_allocator(gpu, device):
    assert torch.cuda.memory_allocated(device) == memory_allocated(device) == 3 * MIB
    assert torch.cuda.max_memory_allocated(device) == 30 * MIB
    stats = torch.cuda.memory_stats(device)
    assert stats["allocated_bytes.all.peak"] == max_memory_allocated() == 30 * MIB
    free, total = torch.cuda.mem_get_info(device)
    assert total - free == torch.cuda.memory_reserved(device) == gpu.memory_reserved
    reset_peak_memory_stats(device)
    assert torch.cuda.max_memory_allocated(device) == 3 * MIB
    with torch.cuda.device(torch.cuda.current_device()):
        torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("device", "error"),
    [(1, RuntimeError), ("cuda:1", RuntimeError), ("cpu", ValueError)],
)
def test_there_is_one_gpu(gpu, device, error):
    for function in (torch.cuda.memory_allocated, torch.cuda.synchronize):
        with pytest.raises(error, match="nvalid device|Expected a cuda device"):
            function(device)


def test_afterwards_torch_cuda_is_as_it_was():
    before = torch.cuda.is_available(), torch.cuda.memory_allocated
    with pytest.raises(ValueError), asked_by_torch_cuda(CachingAllocator()):
        raise ValueError
    assert (torch.cuda.is_available(), torch.cuda.memory_allocated) == before


def test_what_is_kept_for_backward():
    model, x = torch.nn.Linear(4, 8), torch.ones(10, 4)
    kept = KeptForBackward(model)
    with kept, torch.enable_grad():
        loss = model(x).square().sum()
        # the input of the layer and that of the square, float32
        assert kept.bytes() == kept.most == 4 * (10 * 4 + 10 * 8)
        loss.backward()
        assert kept.bytes() == 0
        with torch.no_grad():
            model(x)
    assert kept.most == 480

"""The allocator simulator against PyTorch's published rules, and against what must hold for any program."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from utils.messages import LabError
from utils.simulate.allocator import MIB, CachingAllocator, block_size, segment_size


# c10/core/AllocatorConfig.h (torch 2.13): kMinBlockSize 512, kSmallSize 1 MiB, kSmallBuffer 2 MiB, kMinLargeAlloc
# 10 MiB, kRoundLarge 2 MiB, large_segment_size 20 MiB; both sides of each limit.
@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (4000, 4096, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (1023 * MIB, 1023 * MIB, 1024 * MIB),
    ],
)
def test_rounding_is_exact(size, block, segment):
    assert block_size(size) == block and segment_size(block) == segment


def test_the_constants_are_those_of_the_installed_torch():
    header = torch.__path__[0] + "/include/c10/core/AllocatorConfig.h"
    with open(header, encoding="utf-8") as file:
        text = file.read()
    for name, value in {
        "kMinBlockSize": 512,
        "kSmallSize": MIB,
        "kSmallBuffer": 2 * MIB,
        "kRoundLarge": 2 * MIB,
    }.items():
        assert f"{name} = {value};" in text or name not in text
    assert "20971520" in text and ("kMinLargeAlloc = 10485760;" in text or "kMinLargeAlloc" not in text)


def test_small_tensors_share_a_segment_and_large_ones_do_not():
    gpu = CachingAllocator()
    for _ in range(4):
        gpu.malloc(400_000)
    assert gpu.memory_reserved == 2 * MIB and gpu.memory_allocated == 4 * 400_384
    gpu.malloc(400_000)  # 5 × 400,384 fit into 2 MiB
    assert gpu.memory_reserved == 2 * MIB
    gpu.malloc(400_000)
    assert gpu.memory_reserved == 4 * MIB
    gpu.malloc(3 * MIB)
    assert gpu.memory_reserved == 24 * MIB and gpu.driver_calls == 3


def test_what_is_left_of_a_large_block_stays_in_it_up_to_1_mib():
    gpu = CachingAllocator()
    gpu.malloc(11 * MIB)  # a segment of 12 MiB, 1 MiB left: not split off, so counted as allocated
    assert gpu.memory_allocated == 12 * MIB
    gpu.malloc(10 * MIB + 512)  # 12 MiB, nearly 2 MiB left: split
    assert gpu.memory_allocated == 22 * MIB + 512


def test_a_freed_block_is_used_again_without_the_driver():
    gpu = CachingAllocator()
    first = gpu.malloc(64 * MIB)
    gpu.free(first)
    assert (gpu.memory_allocated, gpu.memory_reserved) == (0, 64 * MIB)
    gpu.malloc(64 * MIB)
    assert gpu.driver_calls == 1
    with pytest.raises(LabError, match="free already"):
        gpu.free(CachingAllocator().malloc(1).segment.blocks[1])


def test_one_small_tensor_holds_a_whole_segment():
    gpu = CachingAllocator()
    blocks = [gpu.malloc(5 * MIB) for _ in range(4)]
    for block in blocks[1:]:
        gpu.free(block)
    assert gpu.empty_cache() == 0 and gpu.memory_reserved == 20 * MIB
    gpu.free(blocks[0])
    assert gpu.empty_cache() == 20 * MIB and gpu.memory_reserved == 0


def test_the_maxima_stay_when_memory_goes_back():
    gpu = CachingAllocator()
    gpu.free(gpu.malloc(64 * MIB))
    gpu.empty_cache()
    gpu.malloc(5 * MIB)
    assert (gpu.memory_allocated, gpu.memory_reserved) == (5 * MIB, 20 * MIB)
    assert gpu.max_memory_allocated == gpu.max_memory_reserved == 64 * MIB


def test_out_of_memory_with_enough_free_bytes():
    """Fragmentation: 40 MiB are free, in pieces of 10, and 20 are not to be had."""
    gpu = CachingAllocator(capacity=80 * MIB)
    blocks = [gpu.malloc(5 * MIB) for _ in range(16)]
    for block in blocks[::2]:
        gpu.free(block)
    with pytest.raises(torch.OutOfMemoryError, match="40.0 MiB reserved but unallocated"):
        gpu.malloc(6 * MIB)
    assert gpu.memory_allocated == 40 * MIB


def test_the_cache_is_emptied_before_giving_up():
    gpu = CachingAllocator(capacity=100 * MIB)
    gpu.free(gpu.malloc(60 * MIB))
    gpu.malloc(80 * MIB)
    assert gpu.memory_reserved == 80 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30 * MIB)), max_size=40))
def test_no_byte_is_lost_or_used_twice(program):
    gpu, held = CachingAllocator(), []
    for wants, number in program:
        if wants or not held:
            held.append(gpu.malloc(number))
        else:
            gpu.free(held.pop(number % len(held)))
        for segment in gpu.segments:
            assert sum(block.size for block in segment.blocks) == segment.size
            ends = [block.offset + block.size for block in segment.blocks]
            assert [block.offset for block in segment.blocks] == [0, *ends[:-1]]
            free = [not block.requested for block in segment.blocks]
            assert not any(a and b for a, b in zip(free, free[1:], strict=False)), "free neighbors must be one block"
        assert gpu.memory_allocated == sum(block.size for block in held)
        assert sum(b.requested for b in held) <= gpu.memory_allocated <= gpu.memory_reserved
    for block in held:
        gpu.free(block)
    gpu.empty_cache()
    assert gpu.memory_allocated == gpu.memory_reserved == 0

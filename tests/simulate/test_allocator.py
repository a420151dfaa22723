"""The allocator simulator against PyTorch's published rules, and against what must hold
for any program.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simulate.allocator import MIB, CachingAllocator, block_size, segment_size


# c10/core/AllocatorConfig.h (torch 2.13): kMinBlockSize 512, kSmallSize 1 MiB,
# kSmallBuffer 2 MiB, kMinLargeAlloc 10 MiB, kRoundLarge 2 MiB, large_segment_size 20
# MiB; both sides of each limit.
@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
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
    values = {
        "kMinBlockSize": 512,
        "kSmallSize": MIB,
        "kSmallBuffer": 2 * MIB,
        "kRoundLarge": 2 * MIB,
        "kMinLargeAlloc": 10 * MIB,
    }
    for name, value in values.items():
        assert f"{name} = {value};" in text or name not in text
    assert "20971520" in text


# What is asked for, one after the other, and what is allocated and reserved then, in
# bytes.
@pytest.mark.parametrize(
    ("sizes", "allocated", "reserved"),
    [
        # small ones share a segment while they fit
        ([400_000] * 5, 5 * 400_384, 2 * MIB),
        ([400_000] * 6, 6 * 400_384, 4 * MIB),
        # large ones have segments of their own
        ([400_000, 3 * MIB], 400_384 + 3 * MIB, 22 * MIB),
        ([5 * MIB] * 4, 20 * MIB, 20 * MIB),
        # 1 MiB is left: not split off, so counted as allocated
        ([11 * MIB], 12 * MIB, 12 * MIB),
        ([10 * MIB + 512], 10 * MIB + 512, 12 * MIB),  # nearly 2 MiB are left: split
        ([2 * MIB + 512, MIB], 3 * MIB + 512, 22 * MIB),
    ],
)
def test_blocks_and_segments(sizes, allocated, reserved):
    gpu = CachingAllocator()
    for size in sizes:
        gpu.malloc(size)
    assert (gpu.memory_allocated, gpu.memory_reserved) == (allocated, reserved)


def test_the_smallest_hole_that_is_large_enough_is_used_again():
    gpu = CachingAllocator()
    first, _, second, _ = (gpu.malloc(size * MIB) for size in (6, 2, 5, 7))
    gpu.free(first)
    gpu.free(second)
    assert gpu.malloc(4 * MIB).offset == 8 * MIB
    assert gpu.memory_reserved == 20 * MIB


def test_one_small_tensor_holds_a_whole_segment_and_the_maxima_stay():
    gpu = CachingAllocator()
    blocks = [gpu.malloc(5 * MIB) for _ in range(4)]
    for block in blocks[1:]:
        gpu.free(block)
    assert gpu.empty_cache() == 0 and gpu.memory_reserved == 20 * MIB
    gpu.free(blocks[0])
    assert gpu.empty_cache() == 20 * MIB and gpu.memory_reserved == 0
    gpu.malloc(1)
    assert gpu.max_memory_allocated == gpu.max_memory_reserved == 20 * MIB


def test_out_of_memory_with_enough_free_bytes():
    """Fragmentation: 40 MiB are free, in pieces of 5, and 6 are not to be had."""
    gpu = CachingAllocator(capacity=80 * MIB)
    blocks = [gpu.malloc(5 * MIB) for _ in range(16)]
    for block in blocks[::2]:
        gpu.free(block)
    message = "40.0 MiB reserved but unallocated"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        gpu.malloc(6 * MIB)
    assert gpu.memory_allocated == 40 * MIB


def test_the_cache_is_emptied_before_giving_up():
    gpu = CachingAllocator(capacity=100 * MIB)
    gpu.free(gpu.malloc(60 * MIB))
    gpu.malloc(80 * MIB)
    assert gpu.memory_reserved == 80 * MIB
    assert gpu.history == ["malloc", "free", "empty_cache", "malloc"]


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
            neighbors = zip(free, free[1:], strict=False)
            assert (True, True) not in neighbors, "free neighbors must be one block"
        assert gpu.memory_allocated == sum(block.size for block in held)
        wanted = sum(block.requested for block in held)
        assert wanted <= gpu.memory_allocated <= gpu.memory_reserved
    for block in held:
        gpu.free(block)
    gpu.empty_cache()
    assert gpu.memory_allocated == gpu.memory_reserved == 0

"""PyTorch's caching allocator for GPU memory, with its rounding rules, on no GPU.

The rules are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h
in their default setting, for one stream (read 2026-11, torch 2.9 to 2.13): sizes are
rounded up to 512 B; up to 1 MiB they come from segments of 2 MiB, below 10 MiB from
segments of 20 MiB, from there on from a segment of their own, rounded up to 2 MiB. The
smallest free block that is large enough is taken, and split where enough is left.
Lesson 07 explains them.
"""

import math
from dataclasses import dataclass, field

import torch

from device_lab import LabError

MIB = 2**20
MIN_BLOCK, SMALL, SMALL_SEGMENT = 512, MIB, 2 * MIB
LARGE, LARGE_SEGMENT, ROUND_LARGE = 10 * MIB, 20 * MIB, 2 * MIB


def block_size(size):
    """Bytes of the block that a tensor of `size` bytes gets: a multiple of 512."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(block):
    """Bytes that are asked of the driver for a block of `block` bytes, when no free
    block fits.
    """
    if block <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if block < LARGE else -(-block // ROUND_LARGE) * ROUND_LARGE


@dataclass
class Block:
    """A piece of a segment. offset, size: bytes. requested: what the tensor needs; 0 in
    a free block.
    """

    segment: "Segment" = field(repr=False)
    offset: int
    size: int
    requested: int = 0


@dataclass
class Segment:
    """Memory from the driver. size: bytes. small: whether it serves sizes up to 1 MiB.
    blocks: in order of address.
    """

    number: int
    size: int
    small: bool
    blocks: list = field(default_factory=list)


class CachingAllocator:
    """Blocks and segments as torch.cuda would hand them out.

    capacity: bytes that the driver has (default: no end). segments: all that are held.
    memory_allocated, memory_reserved: bytes, as the functions of torch.cuda with these
    names count them; max_memory_allocated, max_memory_reserved: the highest so far.
    history: the names of the calls, in order.
    """

    def __init__(self, capacity: float = math.inf):
        self.capacity, self.segments, self.history = capacity, [], []
        self.memory_allocated = self.max_memory_allocated = 0
        self.max_memory_reserved = self._made = 0

    @property
    def memory_reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def malloc(self, size: int) -> Block:
        """A Block for `size` bytes (at least 1). torch.OutOfMemoryError where the
        driver has no room left.
        """
        if size < 1:
            raise LabError("a block holds at least 1 byte")
        need = block_size(size)
        block = self._smallest_free(need) or self._from_driver(need)
        rest = block.size - need
        # else the rest stays in the block, unused
        if rest >= MIN_BLOCK if block.segment.small else rest > SMALL:
            after = Block(block.segment, block.offset + need, rest)
            block.segment.blocks.insert(block.segment.blocks.index(block) + 1, after)
            block.size = need
        block.requested = size
        self.memory_allocated += block.size
        most = max(self.max_memory_allocated, self.memory_allocated)
        self.max_memory_allocated = most
        self.history.append("malloc")
        return block

    def free(self, block: Block) -> None:
        """Give a block back to the allocator, not to the driver. Free neighbors in its
        segment become one.
        """
        if not block.requested:
            raise LabError("this block is free already")
        self.memory_allocated -= block.size
        block.requested, blocks = 0, block.segment.blocks
        at = blocks.index(block)
        for left, right in ((at, at + 1), (at - 1, at)):
            pair = blocks[max(left, 0) : right + 1]
            if len(pair) == 2 and not any(piece.requested for piece in pair):
                pair[0].size += pair[1].size
                del blocks[right]
        self.history.append("free")

    def empty_cache(self) -> int:
        """Give the segments without a used block back to the driver. Returns how many
        bytes that were.
        """
        unused = [
            segment
            for segment in self.segments
            if not any(block.requested for block in segment.blocks)
        ]
        self.segments = [segment for segment in self.segments if segment not in unused]
        self.history.append("empty_cache")
        return sum(segment.size for segment in unused)

    def _smallest_free(self, need):
        fits = [
            block
            for segment in self.segments
            if segment.small == (need <= SMALL)
            for block in segment.blocks
            if not block.requested and block.size >= need
        ]
        # of equal ones the first: segments and blocks are in order
        return min(fits, key=lambda block: block.size, default=None)

    def _from_driver(self, need):
        size = segment_size(need)
        if self.memory_reserved + size > self.capacity:
            self.empty_cache()  # PyTorch does the same before it gives up
        if self.memory_reserved + size > self.capacity:
            unused = self.memory_reserved - self.memory_allocated
            raise torch.OutOfMemoryError(
                f"simulated GPU out of memory: tried to reserve {size / MIB:.0f} MiB."
                f" Of its {self.capacity / MIB:.0f} MiB,"
                f" {self.memory_allocated / MIB:.1f} MiB are allocated and"
                f" {unused / MIB:.1f} MiB reserved but unallocated."
            )
        segment = Segment(self._made, size, need <= SMALL)
        segment.blocks.append(Block(segment, 0, size))
        self.segments.append(segment)
        self.max_memory_reserved = max(self.max_memory_reserved, self.memory_reserved)
        self._made += 1
        return segment.blocks[0]

"""Memory for large weights in pages of 2 MB, where Linux gives them.

A decoding step reads all weights once, from end to end. In pages of 4 kB the processor
has to look up an address every thousand numbers, and on a virtual machine, where two
tables are asked in turn, it may wait longer for addresses than for weights. Linux gives
large pages to memory that asks for them; PyTorch's own memory does not ask. [Ours]
"""

import mmap

import torch
from torch import Tensor

PAGE = 2 << 20  # bytes
_REGION = 256 << 20  # bytes that are asked for at once; unused ones take no memory
_SMALLEST = 1 << 20  # bytes of a tensor that is worth a place there

_region: Tensor = torch.empty(0)  # what is left of the region that is being filled


def in_huge_pages(values: Tensor) -> Tensor:
    """A float32 CPU tensor, contiguous and in large pages where there are any.

    values: [...]; small tensors stay in usual memory

    A region's memory is given back when no tensor in it is left. [Ours]
    """
    num_bytes = 4 * values.numel()
    if num_bytes < _SMALLEST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return values.contiguous()
    place = _take(values.numel())
    return place.view(values.shape).copy_(values)


def _take(count: int) -> Tensor:
    """Room for `count` float32 numbers: [count]"""
    global _region
    if count > len(_region):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory gets none
        memory = mmap.mmap(-1, max(_REGION, 4 * count + PAGE), flags=flags)
        memory.madvise(mmap.MADV_HUGEPAGE)
        _region = torch.frombuffer(memory, dtype=torch.float32)
    place, _region = _region[:count], _region[-(-count // 16) * 16 :]
    return place

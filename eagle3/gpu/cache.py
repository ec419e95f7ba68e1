"""A key/value cache for many texts: fixed in size, filled to different lengths.

`eagle3.cache.KVCache` has one length for its whole batch. Here each text has a *slot*
of its own, and how far a slot is filled is a number on the device that only the masks
look at. So no shape depends on any text, and nothing has to be asked of the device. A
slot that becomes free is overwritten by the next text. [Ours; Code:
eagle/model/kv_cache.py has the fixed buffers, for one text]
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eagle3.cache import KVCache
from eagle3.layers import DraftCache


@dataclass(frozen=True)
class CacheSize:
    """How large a `SlotCache` is.

    layers: L   slots: B   heads: Hkv   length: S, columns of a slot   head_dim: d

    [Ours]
    """

    layers: int
    slots: int
    heads: int
    length: int
    head_dim: int

    @property
    def numel(self) -> int:
        """Numbers in keys and values together."""
        return 2 * self.layers * self.slots * self.heads * self.length * self.head_dim


class SlotCache:
    """Keys and values of B slots in one block of memory.

    size: how large, S columns a slot   like: any tensor, for dtype and device

    store: [2L, B * Hkv * S, d]  keys of layer 0, values of layer 0, keys of layer 1 ...
    keys[i], values[i]: [B, Hkv, S, d]  views of it, of layer i

    It starts as zeros and not empty: a masked column weighs 0, and 0 times what chance
    left in memory may be NaN. [Ours]
    """

    def __init__(self, size: CacheSize, like: Tensor) -> None:
        self.size = size
        rows = size.slots * size.heads
        self.store = torch.zeros(
            2 * size.layers,
            rows * size.length,
            size.head_dim,
            dtype=like.dtype,
            device=like.device,
        )
        shape = (size.slots, size.heads, size.length, size.head_dim)
        self.keys = [self.store[2 * i].view(shape) for i in range(size.layers)]
        self.values = [self.store[2 * i + 1].view(shape) for i in range(size.layers)]
        # Keys and values of a layer, one behind the other: [2 * B * Hkv * S, d]
        pairs = self.store.view(size.layers, 2 * rows * size.length, size.head_dim)
        self._pairs = list(pairs)
        first = torch.arange(rows, device=like.device) * size.length
        self._first = first.view(size.slots, size.heads, 1)  # row of column 0
        self.length, self.max_length = 0, size.length  # the target asks for them
        self.span = size.length

    def place(self, columns: Tensor, span: int) -> None:
        """Say where the next block goes, and how much of a slot it may look at.

        columns: [B, n] int64, of each row of the block   span: columns that `write`
            returns. A short span saves reading columns that nobody has filled
        """
        block = self._rows(columns)
        self._block = torch.cat([block, block + self.store.shape[1]])
        self.span = span

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a block at its place and return all that may be looked at.

        keys, values: [B, Hkv, n, d] -> views [B, Hkv, span, d], which hold more than
        is valid: the mask says what counts
        """
        block = torch.stack((keys, values)).flatten(0, -2)  # [2 * B * Hkv * n, d]
        self._pairs[layer].index_copy_(0, self._block, block)
        return (
            self.keys[layer][:, :, : self.span],
            self.values[layer][:, :, : self.span],
        )

    def advance(self, count: int) -> None:
        """Nothing to count here: lengths are the engine's, one for each slot."""

    def move(self, source: Tensor, destination: Tensor) -> None:
        """Copy columns within their slots, in all layers at once.

        source, destination: [B, m] int64. All are read before one is written, so the
        two may overlap; a column that stays is its own source. [Code:
        update_inference_inputs]
        """
        self.put(destination, self.take(source))

    def take(self, columns: Tensor) -> Tensor:
        """A copy of columns in all layers: [B, m] int64 -> [2L, B * Hkv * m, d]"""
        return self.store[:, self._rows(columns)]

    def put(self, columns: Tensor, block: Tensor) -> None:
        """Write what `take` returned to these columns: [B, m] int64."""
        self.store.index_copy_(1, self._rows(columns), block)

    def clear(self, slot: int) -> None:
        """Zero one slot: what isn't a number would reach the next text through 0."""
        for buffer in (*self.keys, *self.values):
            buffer[slot].zero_()

    def as_target_cache(self, slot: int) -> KVCache:
        """One slot as the cache of an ordinary pass: a prompt is run into it."""
        view = KVCache(self.size.layers, self.size.length)
        view.keys = [buffer[slot : slot + 1] for buffer in self.keys]
        view.values = [buffer[slot : slot + 1] for buffer in self.values]
        return view

    def as_draft_cache(self, slot: int) -> DraftCache:
        """One slot of a single layer as an ordinary cache of a draft."""
        here = slice(slot, slot + 1)
        return DraftCache(self.keys[0][here], self.values[0][here])

    def _rows(self, columns: Tensor) -> Tensor:
        # [B, n] -> [B, Hkv, n] -> rows of the store
        return (self._first + columns[:, None]).flatten()


def block_mask(own: Tensor, start: Tensor, span: int) -> Tensor:
    """What the rows of a block see of their slot: all before it, and `own` inside it.

    own: [B or 1, n, m] bool  what a row sees of the m columns from `start` on
    start: [B] int64  the column at which the block begins, another for each slot
    Returns [B, n, span] bool, True = may attend. [Ours]
    """
    width = own.shape[2]
    column = torch.arange(span, device=start.device) - start[:, None]  # [B, span]
    inside = (column >= 0) & (column < width)
    index = column.clamp(0, width - 1)[:, None].expand(-1, own.shape[1], -1)
    seen = own.expand(len(start), -1, -1).gather(2, index)  # [B, n, span]
    return (column < 0)[:, None] | (seen & inside[:, None])

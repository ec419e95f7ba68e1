"""The target's key/value cache: allocated once, written in place, rolled back by count.

A cache that grows by concatenation copies every key it holds at each step. Here the
buffers have their final size from the start, `length` says how much of them counts,
and forgetting rejected tokens is one subtraction. [Ours; Code: eagle/model/kv_cache.py
does the same]
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


class KVCache:
    """Keys and values of all layers for `max_length` positions.

    keys[i], values[i]: [B, Hkv, max_length, d]   buffers of layer i, None until the
        first block tells their shape, dtype and device
    length: positions that count; `advance` and `rollback` move it

    [Ours]
    """

    def __init__(self, num_layers: int, max_length: int):
        self.max_length = max_length
        self.length = 0
        self.keys: list[Tensor | None] = [None] * num_layers
        self.values: list[Tensor | None] = [None] * num_layers

    def require_room(self, count: int) -> None:
        """Raise ValueError unless `count` more positions fit. [Ours]"""
        end = self.length + count
        if end > self.max_length:
            raise ValueError(
                f"the cache holds {self.max_length} positions and was asked for {end}: "
                "create it with a larger max_length."
            )

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a block after the counted positions and return all that is visible.

        keys, values: [B, Hkv, n, d] -> views [B, Hkv, length + n, d]. The block counts
        only after `advance`, so that every layer writes to the same place. Raises
        ValueError when it doesn't fit, or for another batch size. [Ours]
        """
        start, end = self.length, self.length + keys.shape[2]
        self.require_room(keys.shape[2])
        if self.keys[layer] is None:  # allocated on first use, when shapes are known
            shape = (*keys.shape[:2], self.max_length, keys.shape[3])
            self.keys[layer] = keys.new_empty(shape)
            self.values[layer] = values.new_empty((*shape[:3], values.shape[3]))
        if len(keys) != len(self.keys[layer]):  # one row would be broadcast, silently
            raise ValueError(
                f"the cache holds a batch of {len(self.keys[layer])} and was given "
                f"{len(keys)}: use a new cache for another batch."
            )
        self.keys[layer][:, :, start:end] = keys
        self.values[layer][:, :, start:end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, count: int) -> None:
        """Count `count` more positions, after every layer has written them. [Ours]"""
        self.length += count

    def rollback(self, count: int) -> None:
        """Forget the last `count` positions (rejected tokens).

        Raises ValueError below 0 or above `length`. [Ours]
        """
        if not 0 <= count <= self.length:
            raise ValueError(
                f"{count} of {self.length} cached positions can't be forgotten: roll "
                f"back 0 to {self.length}."
            )
        self.length -= count

    def keep(self, start: int, rows: Sequence[int]) -> None:
        """Of the positions from `start` on keep only these, closed up, and count them.

        rows: ascending, counted from `start`. The accepted path of a draft tree lies
        scattered over the block; a chain's lies in place and nothing is copied.

        Raises ValueError for rows that aren't ascending cached positions. [Ours; Code:
        update_inference_inputs]
        """
        end = start + len(rows)
        wanted = [start + row for row in rows]
        bounds = [start - 1, *wanted, self.length]
        if start < 0 or not all(a < b for a, b in pairwise(bounds)):
            raise ValueError(
                f"rows {list(rows)} from position {start} can't be kept of "
                f"{self.length} cached ones: name ascending rows within them."
            )
        if wanted != list(range(start, end)):
            with torch.inference_mode():  # as the target writes them
                for buffer in (*self.keys, *self.values):
                    buffer[:, :, start:end] = buffer[:, :, wanted]
        self.length = end

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order: rows [B'] int64. [Ours]"""
        self.keys = [None if k is None else k[rows] for k in self.keys]
        self.values = [None if v is None else v[rows] for v in self.values]

"""The target's key/value cache: allocated once, written in place, rolled back by count.

A cache that grows by concatenation copies every key it holds at each step. Here the
buffers have their final size from the start, `length` says how much of them counts,
and forgetting rejected tokens is one subtraction. [Ours; design of XI.4: the cache
keeps only committed tokens]
"""

import torch
from torch import Tensor


class KVCache:
    """Keys and values of all layers for `max_length` positions.

    keys[i], values[i]: [B, Hkv, max_length, d]   buffers of layer i
    length: positions that count; `advance` and `rollback` move it
    """

    def __init__(self, num_layers: int, max_length: int):
        self.max_length = max_length
        self.length = 0
        self.keys: list[Tensor | None] = [None] * num_layers
        self.values: list[Tensor | None] = [None] * num_layers

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a block after the counted positions and return all that is visible.

        keys, values: [B, Hkv, n, d] -> views [B, Hkv, length + n, d]. The block counts
        only after `advance`, so that every layer writes to the same place.
        """
        start, end = self.length, self.length + keys.shape[2]
        if end > self.max_length:
            raise ValueError(
                f"the cache holds {self.max_length} positions and was asked for {end}: "
                "create it with a larger max_length"
            )
        if self.keys[layer] is None:  # allocated on first use, when shapes are known
            shape = (*keys.shape[:2], self.max_length, keys.shape[3])
            self.keys[layer] = keys.new_empty(shape)
            self.values[layer] = values.new_empty((*shape[:3], values.shape[3]))
        self.keys[layer][:, :, start:end] = keys
        self.values[layer][:, :, start:end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, count: int) -> None:
        """Count `count` more positions, after every layer has written them."""
        self.length += count

    def rollback(self, count: int) -> None:
        """Forget the last `count` positions (rejected tokens)."""
        if not 0 <= count <= self.length:
            raise ValueError(
                f"cannot roll back {count} of {self.length} cached positions"
            )
        self.length -= count

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch: rows [B'] int64."""
        self.keys = [None if k is None else k[rows] for k in self.keys]
        self.values = [None if v is None else v[rows] for v in self.values]

"""The draft in a batch: catch up on real features, then run its levels, all slots.

The same weights and the same layer as `eagle3.drafters.EagleDrafter`; what differs is
that each slot stands at another position. [Paper, section 3.1; batch: Ours]
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.gpu.cache import CacheSize, SlotCache, block_mask
from eagle3.rope import cos_sin, inverse_frequencies


class SlotDraft:
    """A feature draft with a cache of slots.

    draft: an `Eagle3Draft` or an `Eagle1Draft`, ready for inference
    num_slots: B   length: S, columns of a slot

    [Ours]
    """

    def __init__(self, draft: Any, num_slots: int, length: int) -> None:
        self.draft, config = draft, draft.config
        like = draft.layer.post_norm.weight
        size = CacheSize(1, num_slots, config.num_kv_heads, length, config.head_dim)
        self.cache = SlotCache(size, like)
        every = torch.arange(length, device=like.device)
        tables = cos_sin(every, inverse_frequencies(config.rope, config.head_dim))
        self.cos, self.sin = (table.to(like.dtype) for table in tables)  # [S, d]

    def run(self, ids: Tensor, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Run a block whose place in the cache is set: see `SlotCache.place`.

        ids, positions: [B, n]   x: [B, n, k], g or the draft's own a
        mask: [B, n, span] bool, True = may attend
        Returns a: [B, n, k].
        """
        # One table row per slot and position, the same for all heads: [B, 1, n, d]
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        inputs, stream = self.draft.enter(ids, x)
        query, key, value = self.draft.layer.project(inputs, cos, sin)
        keys, values = self.cache.write(0, key, value)
        attended = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask[:, None], enable_gqa=True
        )
        return self.draft.leave(self.draft.layer.finish(stream, attended))

    def catch_up(
        self, ids: Tensor, features: Tensor, unseen: Tensor, start: Tensor, span: int
    ) -> Tensor:
        """Run the committed tokens that the draft has not run, 1 to m in each slot.

        ids: [B, m]  the token after each of them   features: [B, m, F]  the target's,
            F numbers each
        unseen: [B] int64  how many of the m rows count; the others are padding, and
            what they leave in the cache is overwritten before it is looked at
        start: [B] int64  the position of the first of them
        Returns the last a that counts: [B, 1, k].
        """
        rows = ids.shape[1]
        columns = start[:, None] + torch.arange(rows, device=ids.device)  # [B, m]
        own = torch.ones(1, rows, rows, dtype=torch.bool, device=ids.device).tril()
        self.cache.place(columns, span)
        g = self.draft.fuse(features)
        a = self.run(ids, g, columns, block_mask(own, start, span))
        last = (unseen - 1)[:, None, None].expand(-1, 1, a.shape[2])
        return a.gather(1, last)

    def prefill(self, slot: int, ids: Tensor, features: Tensor) -> None:
        """Run a prompt into a fresh slot: ids [1, T], features [1, T, F], F numbers."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        cache = self.cache.as_draft_cache(slot)
        self.draft(ids, self.draft.fuse(features), positions, cache)


class Branches:
    """The `Runner` of one cycle: each node reads its parent's a.

    last: [B, 1, k]  the a of the last committed token
    known: [B] int64  positions built from real features   span: columns to look at
    max_rows: R, nodes that will be run

    [Ours]
    """

    def __init__(
        self, side: SlotDraft, last: Tensor, known: Tensor, span: int, max_rows: int
    ) -> None:
        self.side, self.known, self.span = side, known, span
        self.outputs = last  # [B, 1 + rows, k], the pending token's first
        # Row 0 is the pending token, which stands before the block: it sees nothing.
        shape = (len(known), 1 + max_rows, max_rows)
        self.sees = torch.zeros(shape, dtype=torch.bool, device=known.device)
        self.root_logits = side.draft.logits(last)
        self.to_target_vocab = side.draft.to_target_vocab

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        """Ids of the draft's vocabulary as target ids: [...] -> [...]"""
        return self.side.draft.d2t[draft_ids]

    def run(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Run r more nodes of each slot: see `Runner`.

        tokens, parents: [B, r] -> logits [B, r, Vd]
        """
        first, rows = self.outputs.shape[1] - 1, tokens.shape[1]
        seen_by_parent = parents[:, :, None].expand(-1, -1, self.sees.shape[2])
        own = self.sees.gather(1, seen_by_parent)  # [B, r, R]
        itself = torch.eye(rows, dtype=torch.bool, device=tokens.device)
        own[:, :, first : first + rows] |= itself
        self.sees[:, 1 + first : 1 + first + rows] = own
        index = torch.arange(first, first + rows, device=tokens.device)
        self.side.cache.place(self.known[:, None] + index, self.span)
        positions = self.known[:, None] + own.sum(-1) - 1  # the first level is next
        x_of_parent = parents[:, :, None].expand(-1, -1, self.outputs.shape[2])
        a = self.side.run(
            tokens,
            self.outputs.gather(1, x_of_parent),
            positions,
            block_mask(own, self.known, self.span),
        )
        self.outputs = torch.cat([self.outputs, a], dim=1)
        return self.side.draft.logits(a)

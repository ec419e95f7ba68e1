"""The drafter of EAGLE-1, EAGLE-2 and EAGLE-3: catch up on real features, then branch.

Position i of the draft reads (feature i, embedding of token i+1) and predicts token
i+2. At drafted positions the target has not run, and the draft's own output takes the
feature's place. The three methods differ in the draft and in the growth:

- EAGLE-1: its draft on the top-layer feature, a static tree [Paper, section 2.2]
- EAGLE-2: the same draft, a dynamic tree
- EAGLE-3: its draft on three fused features, a chain or a dynamic tree [Paper, 3.1]
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from eagle3.drafters.base import Ancestry
from eagle3.growth import Growth, chain
from eagle3.packed import pack_linear_layers
from eagle3.sampling import SamplingParams
from eagle3.target import Target, TargetOutput
from eagle3.tree import NOTHING, DraftTree


class EagleDrafter:
    """Drafts trees with a draft that reads the target's features.

    target: whose tokens and features it will be shown
    draft: an `Eagle3Draft` or an `Eagle1Draft`. It is copied, put where the target is,
        and prepacked where the machine allows; the original stays as it is
    growth: which tree is drafted, a chain of three if not given

    Raises ValueError when the draft doesn't fit the target. [Paper, section 3.1;
    packing: Ours]
    """

    def __init__(self, target: Target, draft: Any, growth: Growth | None = None):
        draft.require_fit(target)
        self.growth = growth or chain(3)
        self.draft = _inference_copy(draft, target)

    @property
    def max_nodes(self) -> int:
        """The most tokens that a proposal holds."""
        return self.growth.max_nodes

    @property
    def cache_length(self) -> int:
        """Positions in the draft's cache, all built from real features."""
        return self.cache.length

    def start(self, max_length: int) -> None:
        """Forget the last request and make room for `max_length` positions."""
        self.window = min(max_length, self.draft.config.max_positions)
        self.cache = self.draft.new_cache(self.window + self.growth.max_rows)
        self.unseen_ids: list[int] = []  # committed, not yet run by the draft
        self.unseen_features: list[Tensor] = []

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Queue committed tokens (n) with their features for catch-up."""
        self.unseen_ids += token_ids
        self.unseen_features.append(getattr(output, self.draft.reads))

    @torch.inference_mode()
    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Draft a tree of at most `limit` levels after `pending`.

        Past the draft's own window it proposes nothing: the target goes on alone.
        """
        known = self.cache.length + len(self.unseen_ids)
        limit = min(limit, self.window - known + 1)
        if limit < 1:
            return NOTHING
        runner = _Branches(self.draft, self.cache, self._catch_up(pending))
        tree = self.growth.grow(runner, limit, params, generator)
        # Positions built from drafted features are forgotten, even if accepted: the
        # target will have real features for them.
        self.cache.rollback(self.cache.length - known)
        return tree

    def _catch_up(self, pending: int) -> Tensor:
        """Run all unseen positions on real features; returns the last a: [1, 1, k]."""
        device = self.draft.d2t.device
        # Position i reads token i+1: the ids move up by one, pending comes last.
        next_ids = torch.tensor([[*self.unseen_ids[1:], pending]], device=device)
        g = self.draft.fuse(torch.cat(self.unseen_features, dim=1))  # [1, n, k]
        first = self.cache.length
        positions = torch.arange(first, first + next_ids.shape[1], device=device)
        a = self.draft(next_ids, g, positions, self.cache)
        self.unseen_ids, self.unseen_features = [], []
        return a[:, -1:]


class _Branches:
    """The `Runner` of one cycle: each drafted token reads its parent's a."""

    def __init__(self, draft: Any, cache: Any, a: Tensor) -> None:
        self.draft, self.cache = draft, cache
        self.known = cache.length
        self.outputs = a  # [1, 1 + rows, k], the root's first
        self.ancestry = Ancestry()
        self.root_logits = draft.logits(a)[:, -1]
        self.to_target_vocab = draft.to_target_vocab

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        return self.draft.d2t[draft_ids]

    def run(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        own = self.ancestry.extend(parents)  # [n, rows + n]
        depths = self.ancestry.depths[-len(parents) :]
        # A row at depth 1 stands where the pending token's own row would be next.
        positions = torch.tensor([self.known + depth - 1 for depth in depths])
        prefix = torch.ones(len(parents), self.known, dtype=torch.bool)
        mask = None if bool(own.all()) else torch.cat([prefix, own], dim=1)
        x = self.outputs[:, [parent + 1 for parent in parents]]  # [1, n, k]
        device = x.device
        a = self.draft(
            tokens[None],
            x,
            positions.to(device),
            self.cache,
            None if mask is None else mask.to(device),
        )
        self.outputs = torch.cat([self.outputs, a], dim=1)
        return self.draft.logits(a)[0]


def _inference_copy(draft: Any, target: Target) -> Any:
    """A packed copy in the target's dtype, on its device."""
    # The embedding is large and frozen: the copy gets a parameter of its own on the
    # same memory, so that a change of dtype or device leaves the original alone.
    weight = draft.embed.weight
    alias = nn.Parameter(weight.detach(), requires_grad=False)
    twin = copy.deepcopy(draft, {id(weight): alias}).to(target.device, target.dtype)
    pack_linear_layers(twin)
    return twin

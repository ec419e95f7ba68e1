"""Medusa: extra heads on the target's last hidden state, one for each place ahead.

Head j guesses the token j places after the pending one from the same hidden state, so
no head knows what the others guessed: every node of a level has the same children.
[Ours, after Medusa-1; the tree is verified without loss]
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3.drafters.base import Ancestry
from eagle3.growth import Growth, chain
from eagle3.medusa import MedusaHeads
from eagle3.packed import pack_linear_layers
from eagle3.sampling import SamplingParams
from eagle3.target import Target, TargetOutput
from eagle3.tree import NOTHING, DraftTree


class MedusaDrafter:
    """Drafts with Medusa heads.

    target: whose hidden states it will be shown
    heads: copied and prepacked where the machine allows
    growth: which tree is drafted, a chain over all heads if not given; no tree gets
        more levels than there are heads

    Raises ValueError when the heads don't fit the target. [Ours, after Medusa-1]
    """

    cache_length = 0

    def __init__(
        self, target: Target, heads: MedusaHeads, growth: Growth | None = None
    ):
        heads.require_fit(target)
        self.growth = growth or chain(heads.config.num_heads)
        self.heads = copy.deepcopy(heads).to(target.device, target.dtype)
        pack_linear_layers(self.heads)

    @property
    def max_nodes(self) -> int:
        """The most tokens that a proposal holds."""
        return self.growth.max_nodes

    def start(self, max_length: int) -> None:
        """Nothing to make room for."""

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Keep the hidden state of the last committed token."""
        self.hidden = output.hidden[:, -1:]  # [1, 1, k]

    @torch.inference_mode()
    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Draft a tree of at most `limit` levels and one level per head."""
        limit = min(limit, self.heads.config.num_heads, self.growth.depth)
        if limit < 1:
            return NOTHING
        logits = self.heads.logits(self.heads(self.hidden))  # [K, 1, 1, V]
        return self.growth.grow(_Levels(logits[:, 0]), limit, params, generator)


class _Levels:
    """The `Runner` of one cycle: what follows depends on the depth alone."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # [K, 1, V]
        self.root_logits = logits[0]
        self.ancestry = Ancestry()

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        return draft_ids

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        return probs

    def run(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        self.ancestry.extend(parents)
        depth = self.ancestry.depths[-1]
        return self.logits[depth].expand(len(parents), -1)

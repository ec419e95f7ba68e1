"""Vanilla speculative sampling: a small language model drafts for the large one.

The draft model reads tokens only, nothing of the target's inner states, and keeps a
cache of its own over the whole text. [Paper, section 2.1]
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3.cache import KVCache
from eagle3.drafters.base import Ancestry
from eagle3.growth import Growth, chain
from eagle3.sampling import SamplingParams
from eagle3.target import Target, TargetOutput
from eagle3.tree import NOTHING, DraftTree


class DraftLMDrafter:
    """Drafts with a small model of the same vocabulary.

    target: who verifies       model: the small one, itself a `Target`, see
        `eagle3.draft_lm.load_draft_lm`
    growth: which tree is drafted, a chain of three if not given

    Raises ValueError for another vocabulary. [Paper, section 2.1]
    """

    def __init__(self, target: Target, model: Target, growth: Growth | None = None):
        if model.vocab_size != target.vocab_size:
            raise ValueError(
                f"the draft model has {model.vocab_size} tokens and the target "
                f"{target.vocab_size}: draft with a model of the target's tokenizer."
            )
        self.model, self.growth = model, growth or chain(3)

    @property
    def max_nodes(self) -> int:
        """The most tokens that a proposal holds."""
        return self.growth.max_nodes

    @property
    def cache_length(self) -> int:
        """Positions in the draft model's cache."""
        return self.cache.length

    def start(self, max_length: int) -> None:
        """Forget the last request and make room for `max_length` positions."""
        self.window = min(max_length, self.model.max_positions)
        self.cache = self.model.new_cache(self.window, spare=self.growth.max_rows)
        self.text: list[int] = []  # all committed tokens

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Take note of committed tokens."""
        self.text += token_ids

    @torch.inference_mode()
    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Draft a tree of at most `limit` levels after `pending`.

        Past the draft model's own window it proposes nothing.
        """
        known = len(self.text) + 1  # with the pending token
        limit = min(limit, self.window - known + 1)
        if limit < 1:
            return NOTHING
        unseen = [*self.text, pending][self.cache.length :]
        ids = torch.tensor([unseen], device=self.model.device)
        output = self.model.forward(ids, self.cache, last_only=True)
        runner = _Branches(self.model, self.cache, output.logits[:, -1])
        tree = self.growth.grow(runner, limit, params, generator)
        self.cache.rollback(self.cache.length - known)
        return tree


class _Branches:
    """The `Runner` of one cycle."""

    def __init__(self, model: Target, cache: KVCache, root_logits: Tensor) -> None:
        self.model, self.cache = model, cache
        self.root_logits = root_logits
        self.ancestry = Ancestry()

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        return draft_ids

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        return probs

    def run(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        own = self.ancestry.extend(parents)
        output = self.model.forward(tokens[None], self.cache, tree_mask=own)
        return output.logits[0]

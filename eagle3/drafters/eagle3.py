"""EAGLE-3's drafter, as a chain: catch up on real features, then feed back a.

Position i of the draft reads (g_i, embedding of token i+1) and predicts token i+2. At
drafted positions g is not known, because the target has not run there, and the
draft's own output a takes its place. [Paper, section 3.1, Figure 5]
"""

import copy
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor, nn

from eagle3.draft import Eagle3Draft, require_fit
from eagle3.drafters.base import NOTHING, Proposal
from eagle3.packed import pack_linear_layers
from eagle3.sampling import SamplingParams, next_token_distribution, sample
from eagle3.target import Target

MAX_CHAIN_LENGTH = 64


class Eagle3Drafter:
    """Drafts a chain of up to `chain_length` tokens with an EAGLE-3 draft.

    target: whose tokens and features it will be shown
    draft: is copied, put where the target is, and prepacked where the machine allows;
        the original stays as it is and trainable
    chain_length: tokens per cycle, 1 to 64

    Raises ValueError when the draft doesn't fit the target or chain_length is out of
    range. [Paper, section 3.1; packing: Ours]
    """

    def __init__(self, target: Target, draft: Eagle3Draft, chain_length: int = 3):
        require_fit(draft.config, target)
        require_chain_length(chain_length)
        self.chain_length = chain_length
        self.draft = _inference_copy(draft, target)

    def start(self, max_length: int) -> None:
        """Forget the last request and make room for `max_length` positions."""
        self.window = min(max_length, self.draft.config.max_positions)
        self.cache = self.draft.new_cache(self.window)
        self.unseen_ids: list[int] = []  # committed, not yet run by the draft
        self.unseen_features: list[Tensor] = []

    @property
    def cache_length(self) -> int:
        """Positions in the draft's cache, all built from real features."""
        return self.cache.length

    def observe(self, token_ids: Sequence[int], features: Tensor) -> None:
        """Queue committed tokens (n) with their features [1, n, 3k] for catch-up."""
        self.unseen_ids += token_ids
        self.unseen_features.append(features)

    @torch.inference_mode()
    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> Proposal:
        """Draft a chain of min(limit, chain_length) tokens after `pending`.

        Past the draft's own window it proposes nothing: the target goes on alone.
        """
        known = self.cache.length + len(self.unseen_ids)
        count = min(limit, self.chain_length, self.window - known + 1)
        if count < 1:
            return NOTHING
        a = self._catch_up(pending)
        tokens, probs = [], []
        for step in range(count):
            token, q = self._choose(a, params, generator)  # [1, 1], [V] or None
            tokens.append(token)
            probs.append(q)
            if step + 1 < count:
                position = torch.tensor([known + step], device=a.device)
                a = self.draft(token, a, position, self.cache)
        # Positions built from a are forgotten, even if accepted: the target will
        # have real features for them.
        self.cache.rollback(count - 1)
        ids = tuple(torch.cat(tokens).flatten().tolist())
        return Proposal(ids, None if params.is_greedy else torch.stack(probs))

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

    def _choose(
        self, a: Tensor, params: SamplingParams, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """The next drafted token [1, 1] as a target id, and its q [V]."""
        logits = self.draft.logits(a)[:, -1]  # [1, Vd]
        if params.is_greedy:
            return self.draft.d2t[logits.argmax(-1, keepdim=True)], None
        q = next_token_distribution(logits, params)
        token = self.draft.d2t[sample(q, generator)][:, None]
        return token, self.draft.to_target_vocab(q)[0]


def require_chain_length(chain_length: int) -> None:
    """Raise ValueError unless it is a whole number from 1 to 64. [Ours]"""
    whole = isinstance(chain_length, Integral)
    if not whole or not 1 <= chain_length <= MAX_CHAIN_LENGTH:
        raise ValueError(
            f"chain length {chain_length!r} is out of range: draft 1 to "
            f"{MAX_CHAIN_LENGTH} tokens, or pass None as the draft to draft none."
        )


def _inference_copy(draft: Eagle3Draft, target: Target) -> Eagle3Draft:
    """A packed copy in the target's dtype, on its device."""
    # The embedding is large and frozen: the copy gets a parameter of its own on the
    # same memory, so that a change of dtype or device leaves the original alone.
    weight = draft.embed.weight
    alias = nn.Parameter(weight.detach(), requires_grad=False)
    twin = copy.deepcopy(draft, {id(weight): alias}).to(target.device, target.dtype)
    pack_linear_layers(twin)
    return twin

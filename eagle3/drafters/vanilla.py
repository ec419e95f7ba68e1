"""Vanilla decoding: the drafter that proposes nothing.

With it the engine makes one token per target pass, through exactly the same code as
every speculative method: the baseline of all speedups.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from eagle3.drafters.base import NOTHING, Proposal
from eagle3.sampling import SamplingParams


class VanillaDrafter:
    """Proposes nothing, ever. [Ours]"""

    cache_length = 0

    def start(self, max_length: int) -> None:
        """Nothing to forget."""

    def observe(self, token_ids: Sequence[int], features: Tensor) -> None:
        """Nothing to learn from token_ids (n) and features [1, n, taps * k]."""

    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> Proposal:
        """No tokens."""
        return NOTHING

"""Vanilla decoding: the drafter that proposes nothing.

With it the engine makes one token per target pass, through exactly the same code as
every speculative method: the baseline of all speedups.
"""

from collections.abc import Sequence

import torch

from eagle3.sampling import SamplingParams
from eagle3.target import TargetOutput
from eagle3.tree import NOTHING, DraftTree


class VanillaDrafter:
    """Proposes nothing, ever. [Ours]"""

    cache_length = 0
    max_nodes = 0

    def start(self, max_length: int) -> None:
        """Nothing to forget."""

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Nothing to learn."""

    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """No tokens."""
        return NOTHING

"""What the engine asks of a drafter.

Every decoding method of the book is a drafter behind this interface, and one engine
verifies whatever it proposes. So a comparison of methods compares drafting alone.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.sampling import SamplingParams
from eagle3.target import TargetOutput
from eagle3.tree import ROOT, DraftTree


class Drafter(Protocol):
    """Proposes tokens for one request at a time. [Ours]

    The engine calls `start` once, then in each cycle `observe` with the tokens that
    were committed since, then `propose`.

    cache_length: positions in the drafter's own cache, for the trace
    max_nodes: the most tokens that a proposal holds
    """

    cache_length: int
    max_nodes: int

    def start(self, max_length: int) -> None:
        """Forget the last request and make room for `max_length` positions."""

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Take note of committed tokens and what the target computed on them.

        token_ids: n ids      output: of these n tokens, batch 1; its logits are those
            of the last token alone after prefill
        """

    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Draft a tree of at most `limit` levels that follows `pending`.

        pending: the newest token, chosen by the target and not yet committed
        """


class Ancestry:
    """Which rows see which, while a tree is run level by level. [Ours]

    depths: of each row its distance from the pending token
    """

    def __init__(self) -> None:
        self.visible = torch.zeros(0, 0, dtype=torch.bool)
        self.depths: list[int] = []

    def extend(self, parents: Sequence[int]) -> Tensor:
        """Add n rows and return what they see: [n, rows so far + n] bool.

        parents: the earlier row that each follows, -1 for the pending token, which
            is not a row
        """
        old = F.pad(self.visible, (0, 0, 0, 1))  # row -1 sees nothing
        rows = torch.cat(
            [old[list(parents)], torch.eye(len(parents), dtype=torch.bool)], dim=1
        )
        self.visible = torch.cat([F.pad(self.visible, (0, len(parents))), rows])
        before = [0, *self.depths]  # so that -1 + 1 is the pending token
        self.depths += [1 + before[parent - ROOT] for parent in parents]
        return rows

"""What the engine asks of a drafter.

Every decoding method of the book is a drafter behind this interface, and one engine
verifies whatever it proposes. So a comparison of methods compares drafting alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from eagle3.sampling import SamplingParams


@dataclass(frozen=True)
class Proposal:
    """A chain of drafted tokens, to follow the pending token.

    tokens: n target ids, n may be 0
    probs: [n, V]  the distribution q that each token was really drawn from, on the
        target's device; None when the tokens were chosen without chance, so that q is
        1 at each of them (always so at temperature 0)

    [Paper, section 2.1]
    """

    tokens: tuple[int, ...]
    probs: Tensor | None = None


NOTHING = Proposal(())


class Drafter(Protocol):
    """Proposes tokens for one request at a time. [Ours]

    The engine calls `start` once, then in each cycle `observe` with the tokens that
    were committed since, then `propose`.
    """

    cache_length: int  # positions in the drafter's own cache, for the trace

    def start(self, max_length: int) -> None:
        """Forget the last request and make room for `max_length` positions."""

    def observe(self, token_ids: Sequence[int], features: Tensor) -> None:
        """Take note of committed tokens and what the target computed on them.

        token_ids: n ids      features: [1, n, taps * k]
        """

    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> Proposal:
        """Draft at most `limit` tokens that follow `pending`.

        pending: the newest token, chosen by the target and not yet committed
        """

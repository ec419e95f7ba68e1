"""Prompt lookup: draft what followed the same words earlier in the text.

There is no draft model. If the last few tokens occurred before, the tokens that
followed them then are proposed. It costs nothing and pays where answers repeat their
prompt: summaries, edits, code. [Ours, after transformers' prompt lookup decoding]
"""

from collections.abc import Sequence

import torch

from eagle3.sampling import SamplingParams
from eagle3.target import TargetOutput
from eagle3.tree import NOTHING, DraftTree


class PromptLookupDrafter:
    """Proposes up to `length` tokens that followed the longest repeated ending.

    length: tokens per cycle      max_ngram: longest ending that is looked for

    Raises ValueError when one of them is below 1. [Ours]
    """

    cache_length = 0

    def __init__(self, length: int = 5, max_ngram: int = 3):
        if length < 1 or max_ngram < 1:
            raise ValueError(
                f"prompt lookup of {length} tokens after endings of {max_ngram}: "
                "both must be at least 1."
            )
        self.max_nodes, self.max_ngram = length, max_ngram

    def start(self, max_length: int) -> None:
        """Forget the last request."""
        self.seen: list[int] = []

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        """Remember the committed tokens."""
        self.seen += token_ids

    def propose(
        self,
        pending: int,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """The continuation of the latest earlier occurrence, longest ending first."""
        text, count = [*self.seen, pending], min(limit, self.max_nodes)
        for size in range(min(self.max_ngram, len(text) - 1), 0, -1):
            ending = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == ending:
                    return DraftTree.chain(text[start + size :][: max(0, count)])
        return NOTHING

"""Five engines with one small fault each, to be found from their traces.

`Chain` is the chain engine in the form that chapter 7 builds: a draft that catches up,
guesses and forgets, and a target that verifies and commits. Each suspect changes a line
or two of it. `examine` runs one and returns what an engine's log would show: the tokens
and the trace. Readers of the chapter: the answers stand below. [Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagle3.drafters import EagleDrafter
from eagle3.sampling import ChainDecision, verify_chain_greedy
from eagle3.target import Target, TargetOutput


@dataclass(frozen=True)
class Step:
    """One cycle of a suspect, as its log has it.

    pending: the token that it starts from      drafted: the guesses
    num_accepted: how many the engine kept      next_token: its own token after them
    emitted: the new tokens of the answer
    target_cache, draft_cache: cached positions after the cycle
    """

    pending: int
    drafted: tuple[int, ...]
    num_accepted: int
    next_token: int
    emitted: tuple[int, ...]
    target_cache: int
    draft_cache: int


class Chain:
    """Greedy decoding with a chain of guesses, without a fault.

    target: runs the text        draft: an `Eagle3Draft`
    length: guesses per cycle

    Same tokens and same trace as `eagle3.generate`. [Paper, section 3.1]
    """

    def __init__(self, target: Target, draft: Any, length: int = 3):
        self.target, self.length = target, length
        self.draft = EagleDrafter(target, draft).draft  # prepacked where it can be

    @torch.inference_mode()
    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> list[Step]:
        """Answer a prompt; no token ends the answer early.

        Returns the cycles; the first pending token is the answer's first. [Ours]
        """
        end = len(prompt_ids) + max_new_tokens
        # A faulty engine may fill its caches faster than it writes.
        self.cache = self.target.new_cache(min(3 * end, self.target.max_positions))
        self.draft_cache = self.draft.new_cache(4 * end)
        output = self.target.forward(torch.tensor([list(prompt_ids)]), self.cache)
        self.ids, self.features = list(prompt_ids), output.features
        self.pending = int(output.logits[0, -1].argmax())
        text, steps = [*prompt_ids, self.pending], []
        while len(text) < end:
            steps.append(self.cycle(end - len(text)))
            text += steps[-1].emitted
        return steps

    def cycle(self, room: int) -> Step:
        """One cycle that emits at most `room` tokens."""
        pending, count = self.pending, min(self.length, room - 1)
        drafted = self.guess(self.catch_up(), count) if count else []
        block = [pending, *drafted]
        output = self.target.forward(torch.tensor([block]), self.cache)
        decision = self.decide(drafted, output.logits[0])
        emitted = (*drafted[: decision.num_accepted], decision.next_token)
        self.commit(block, output, decision)
        return Step(
            pending,
            tuple(drafted),
            decision.num_accepted,
            decision.next_token,
            emitted,
            self.cache.length,
            self.draft_cache.length,
        )

    def catch_up(self) -> Tensor:
        """Run the draft over all unseen features; the last a: [1, 1, k]."""
        g = self.draft.fuse(self.features)  # [1, m, k]
        first = self.draft_cache.length
        positions = torch.arange(first, first + len(self.ids))
        next_ids = torch.tensor([self.paired()])
        return self.draft(next_ids, g, positions, self.draft_cache)[:, -1:]

    def paired(self) -> list[int]:
        """The token that each unseen feature is paired with."""
        return [*self.ids[1:], self.pending]

    def guess(self, a: Tensor, count: int) -> list[int]:
        """A chain of guesses, each from the a [1, 1, k] of the one before."""
        known, drafted = self.draft_cache.length, []
        for step in range(count):
            best = self.draft.logits(a)[0, -1].argmax()
            drafted.append(int(self.draft.d2t[best]))
            if step + 1 < count:
                position = torch.tensor([self.draft_cache.length])
                newest = torch.tensor([drafted[-1:]])
                a = self.draft(newest, a, position, self.draft_cache)
        self.restore(known)
        return drafted

    def restore(self, known: int) -> None:
        """Leave nothing in the draft's cache that came from a guess."""
        self.draft_cache.rollback(self.draft_cache.length - known)

    def decide(self, drafted: list[int], logits: Tensor) -> ChainDecision:
        """logits: [n + 1, V], row 0 that of the pending token."""
        return verify_chain_greedy(drafted, logits.argmax(-1))

    def commit(
        self, block: list[int], output: TargetOutput, decision: ChainDecision
    ) -> None:
        """Keep the rows of committed tokens, in the cache and for the draft."""
        kept = 1 + decision.num_accepted
        self.cache.rollback(len(block) - kept)
        self.ids, self.features = block[:kept], output.features[:, :kept]
        self.pending = decision.next_token


class _OwnRow(Chain):
    """Judges each guess with its own row, which says what comes after it."""

    def decide(self, drafted: list[int], logits: Tensor) -> ChainDecision:
        best = logits.argmax(-1)
        return verify_chain_greedy(drafted, torch.cat([best[1:], best[-1:]]))


class _LastRows(Chain):
    """Hands the draft as many rows as were kept, but the last ones of the block."""

    def commit(
        self, block: list[int], output: TargetOutput, decision: ChainDecision
    ) -> None:
        super().commit(block, output, decision)
        self.features = output.features[:, -len(self.ids) :]


class _KeepsGuesses(Chain):
    """Never restores the draft's cache."""

    def restore(self, known: int) -> None:
        pass


class _KeepsOneRejected(Chain):
    """Forgets one rejected row too few of the target's cache."""

    def commit(
        self, block: list[int], output: TargetOutput, decision: ChainDecision
    ) -> None:
        before = self.cache.length
        super().commit(block, output, decision)
        self.cache.advance(min(1, before - self.cache.length))


class _Unshifted(Chain):
    """Pairs each feature with its own token."""

    def paired(self) -> list[int]:
        return self.ids


FAULTS = {
    "own row": "each guess is judged by its own row of the target's scores",
    "last rows": "the draft is given the last rows of features, not the kept ones",
    "keeps guesses": "the draft's cache keeps the rows of its guesses",
    "keeps rejected": "the target's cache keeps the row of a rejected guess",
    "unshifted": "the draft pairs each feature with its own token, not the next one",
    "no refresh": "accepted guesses keep their rows in the draft's cache, made from a",
    "no bonus": "when all guesses are accepted, the bonus token is thrown away",
    "stale root": "the draft starts from the last guess, not from the pending token",
}
_SUSPECTS = {
    "A": (_LastRows, "last rows"),
    "B": (_OwnRow, "own row"),
    "C": (_Unshifted, "unshifted"),
    "D": (_KeepsOneRejected, "keeps rejected"),
    "E": (_KeepsGuesses, "keeps guesses"),
}
SUSPECTS = tuple(_SUSPECTS)


def examine(
    suspect: str, target: Target, draft: Any, prompt_ids: Sequence[int], length: int
) -> list[Step]:
    """The trace of a suspect's greedy answer, in chains of three.

    suspect: of `SUSPECTS`        length: tokens of the answer

    Raises ValueError for another name. [Ours]
    """
    return _of(suspect)[0](target, draft).run(prompt_ids, length)


def is_right(suspect: str, fault: str) -> bool:
    """Whether this is the suspect's fault.

    Raises ValueError for a name that is not in `SUSPECTS` or `FAULTS`. [Ours]
    """
    if fault not in FAULTS:
        raise ValueError(f"{fault!r} is none of the faults: {', '.join(FAULTS)}.")
    return _of(suspect)[1] == fault


def _of(suspect: str) -> tuple[type[Chain], str]:
    if suspect not in _SUSPECTS:
        raise ValueError(f"{suspect!r} is none of the suspects {', '.join(SUSPECTS)}.")
    return _SUSPECTS[suspect]

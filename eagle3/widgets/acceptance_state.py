"""The acceptance explorer's state: two rows, a rule, and the draws made so far.

What is accepted and what is owed comes from eagle3/sampling.py; the wrong rules are
here to be seen failing. [Derived] from the acceptance rule of [Paper, section 2.1]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from eagle3.sampling import acceptance_probability, residual, sample, uniforms

RIGHT = "right: draw what is owed"
NO_NORM = "wrong: forget to normalise"
ASKS_P = "wrong: draw from p"
KEEPS_ALL = "wrong: keep every guess"
RULES = (RIGHT, NO_NORM, ASKS_P, KEEPS_ALL)
BY_HAND = "by hand"
MIN_TOKENS, MAX_TOKENS = 4, 8
MAX_DRAWS = 1_000_000

_SPARE = ("do", "get", "that", "?", "now", "go", "to", "so")


@dataclass(frozen=True)
class Rows:
    """Target and draft over the same few tokens.

    labels: V texts, 4 to 8     p, q: [V]  anything that sums to 1
    Raises ValueError for rows of another size, or that are no distributions. [Ours]
    """

    labels: Sequence[str]
    p: Sequence[float]
    q: Sequence[float]

    def __post_init__(self) -> None:
        _check_size(len(self.labels))
        for name in ("p", "q"):
            row = tuple(float(x) for x in getattr(self, name))
            object.__setattr__(self, name, row)
            if len(row) != len(self.labels) or min(row) < 0 or abs(sum(row) - 1) > 1e-3:
                raise ValueError(
                    f"{name} is no distribution over {len(self.labels)} tokens; give "
                    "each a number of at least 0, with a sum of 1."
                )

    def resized(self, count: int) -> "Rows":
        """The first `count` tokens, or more of them; shares are scaled up."""
        _check_size(count)
        spare = [word for word in _SPARE if word not in self.labels]
        labels = [*self.labels, *spare][:count]
        more = [0.0] * (count - len(self.labels))
        p, q = (_scaled([*row, *more][:count]) for row in (self.p, self.q))
        return Rows(tuple(labels), p, q)


def _check_size(count: int) -> None:
    if not MIN_TOKENS <= count <= MAX_TOKENS:
        raise ValueError(
            f"{count} tokens are out of range; take {MIN_TOKENS} to {MAX_TOKENS}."
        )


def _scaled(row: Sequence[float], total: float = 1.0) -> tuple[float, ...]:
    """The row with that sum, its proportions kept; a row of zeros becomes even."""
    if sum(row) < 1e-9:
        return tuple(total / len(row) for _ in row)
    return tuple(total * x / sum(row) for x in row)


EXAMPLE = {
    "after 'How can'": Rows(
        ("I", "we", "you", "it"), (0.60, 0.20, 0.15, 0.05), (0.80, 0.10, 0.10, 0.0)
    ),
}


@dataclass(frozen=True)
class AcceptanceState:
    """Rows under a rule, with what has come out of it so far.

    presets: named rows to begin with      preset: the chosen one, or "by hand"
    hand: the rows where they were changed by hand
    rule: one of RULES
    counts: [V] how often each token came out; empty before the first draw
    accepted: how many of these were guesses that were kept
    story: the last draw in words, if it was a single one

    Raises ValueError for a rule that there isn't.
    """

    presets: Mapping[str, Rows] = field(default_factory=lambda: EXAMPLE)
    preset: str = ""
    hand: Rows | None = None
    rule: str = RIGHT
    counts: tuple[int, ...] = ()
    accepted: int = 0
    story: str = ""

    def __post_init__(self) -> None:
        if not self.preset:
            object.__setattr__(self, "preset", next(iter(self.presets)))
        if self.rule not in RULES:
            raise ValueError(f"{self.rule!r} is no rule; take one of {RULES}.")

    @property
    def rows(self) -> Rows:
        """The rows that are shown."""
        return self.hand or self.presets[self.preset]

    @property
    def tokens(self) -> int:
        """V, how many tokens there are."""
        return len(self.rows.labels)

    @cached_property
    def p(self) -> Tensor:
        """[V] float64"""
        return torch.tensor(self.rows.p, dtype=torch.float64)

    @cached_property
    def q(self) -> Tensor:
        """[V] float64"""
        return torch.tensor(self.rows.q, dtype=torch.float64)

    @cached_property
    def chance(self) -> Tensor:
        """[V] how likely a guess is kept, under the rule; 0 where it never comes."""
        if self.rule == KEEPS_ALL:
            return (self.q > 0).double()
        chances = [
            acceptance_probability(self.p, self.q, x) if self.q[x] > 0 else 0.0
            for x in range(self.tokens)
        ]
        return torch.tensor(chances, dtype=torch.float64)

    @cached_property
    def replacement(self) -> Tensor:
        """[V] what is drawn from after a rejection, under the rule."""
        if self.rule == ASKS_P:
            return self.p
        if self.rule == NO_NORM:
            # The pieces laid on the line from 0 to 1 do not reach its end, and a
            # uniform number that lands behind them takes the last token.
            owed = (self.p - self.q).clamp(min=0)
            owed[-1] += 1 - owed.sum()
            return owed
        return residual(self.p, self.q)

    @property
    def acceptance(self) -> float:
        """The share of guesses that is kept."""
        return float((self.q * self.chance).sum())

    @cached_property
    def law(self) -> Tensor:
        """[V] what the rule emits: kept guesses and replacements."""
        return self.q * self.chance + (1 - self.acceptance) * self.replacement

    @property
    def shares(self) -> Tensor | None:
        """[V] what has come out so far, or None."""
        if not self.counts:
            return None
        return torch.tensor(self.counts, dtype=torch.float64) / sum(self.counts)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        bias = _distance(self.law, self.p)
        words = f"{self.acceptance:.0%} of the guesses are kept. "
        if bias < 5e-4:
            words += "What comes out follows p exactly. "
        else:
            words += f"What comes out is {bias:.2f} away from p, for ever. "
        if self.counts:
            off = _distance(self.shares, self.p)
            words += (
                f"{sum(self.counts):,} drawn so far, {self.accepted:,} of them kept: "
                f"{off:.3f} away from p. "
            )
        return f"{words}{self.story}".strip()

    def changed(self, name: str, value: Any) -> "AcceptanceState":
        """The state after one thing was moved; draws under another law are forgotten.

        name: "preset", "rule", "tokens" (how many), "p0", "q3" ... (a share, in
            percent; the others keep their proportions), "forget", or "draw_" and how
            many more to draw
        Raises ValueError with a sentence for the reader.
        """
        if name.startswith("draw_"):
            return self._drawn(int(name.removeprefix("draw_")))
        fresh = replace(self, counts=(), accepted=0, story="")
        if name == "forget":
            return fresh
        if name == "rule":
            return replace(fresh, rule=value)
        if name == "preset":
            if value == BY_HAND:
                return replace(self, preset=value, hand=self.rows)
            return replace(fresh, preset=value, hand=None)
        if name == "tokens":
            rows = self.rows.resized(value)
        else:
            rows = self._moved(name[0], int(name[1:]), value / 100)
        return replace(fresh, preset=BY_HAND, hand=rows)

    def _moved(self, which: str, token: int, share: float) -> Rows:
        row = list(getattr(self.rows, which))
        others = _scaled([x for i, x in enumerate(row) if i != token], 1 - share)
        moved = (*others[:token], share, *others[token:])
        return replace(self.rows, **{which: moved})

    def _drawn(self, count: int) -> "AcceptanceState":
        total = sum(self.counts)
        if total + count > MAX_DRAWS:
            raise ValueError(
                f"{total:,} draws are enough to see what there is to see; press Start "
                "again to begin anew."
            )
        generator = torch.Generator().manual_seed(total)  # new draws, the same ones
        guesses = sample(self.q.expand(count, -1), generator)  # [count]
        drawn = torch.tensor(uniforms(count, self.q, generator), dtype=torch.float64)
        kept = drawn < self.chance[guesses]
        instead = sample(self.replacement.expand(count, -1), generator)
        emitted = torch.where(kept, guesses, instead)
        counts = torch.bincount(emitted, minlength=self.tokens).tolist()
        if self.counts:
            counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        accepted = self.accepted + int(kept.sum())
        story = ""
        if count == 1:
            guess, out = (self.rows.labels[int(x)] for x in (guesses[0], emitted[0]))
            story = f"The draft says '{guess}': "
            story += "kept." if kept[0] else f"refused, and '{out}' is drawn instead."
        return replace(self, counts=tuple(counts), accepted=accepted, story=story)


def _distance(a: Tensor, b: Tensor) -> float:
    """Total variation distance."""
    return 0.5 * float((a - b).abs().sum())

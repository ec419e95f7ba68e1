"""When speculation pays on a server: the time of a cycle, with a batch in it.

B requests share every pass. A plain step runs B rows through the target and gives B
tokens. A cycle drafts n tokens for each request, one draft pass after the other, and
runs B (n + 1) rows through the target; it gives B tau tokens. So

    speedup = tau * (a plain step) / (a cycle)

and the batch enters through what the passes cost. That cost is a function of the pass:
either the roofline's (what a machine allows) or a straight line through measured times
(what an engine does). Everything here is pure: numbers in, a prediction out. [Derived;
the EAGLE-3 paper, section 4.3, says in words that the gain shrinks with the batch]

Left out: prefill, and requests of unequal length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
import scipy.optimize

from eagle3.bench.roofline import Machine, ModelShape, Pass, work_of
from eagle3.draft import NUM_TAPS, DraftConfig

PassCost = Callable[[Pass], float]  # a pass -> seconds


def expected_tokens(n_alpha: Sequence[float]) -> float:
    """tau of a chain: 1 + a_0 + a_0 a_1 + ..., the target's own token included.

    n_alpha: chance that a drafted token is kept, given that the n before it were; one
        for each token of the chain, none for plain decoding
    [Derived from the definition of n-alpha in the paper's section 4.2]
    """
    return 1.0 + sum(accumulate(n_alpha, mul))


@dataclass(frozen=True)
class DraftShape(ModelShape):
    """A draft as sizes: a plain decoder layer and what it has beyond one. [Code]

    extra_products: weights of its layer that a plain layer of these sizes lacks
    vocab_size: rows of the head that scores its guesses
    """

    extra_products: int = 0

    @property
    def layer_products(self) -> int:
        """Weights in the matrices of the layer, the extra ones included."""
        return super().layer_products + self.extra_products


def eagle3_shape(config: DraftConfig, fuses: bool) -> DraftShape:
    """EAGLE-3's draft: q, k and v read two streams; its own head. [Paper, 3.1; Code]

    fuses: with the layer that fuses three features, which only the first pass of a
        cycle needs, for the tokens that the target has just confirmed
    """
    c = config
    streams = c.hidden_size * c.head_dim * (c.num_heads + 2 * c.num_kv_heads)
    fusion = NUM_TAPS * c.target_hidden_size * c.hidden_size
    return DraftShape(
        num_layers=1,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        vocab_size=c.draft_vocab_size,
        extra_products=streams + fuses * fusion,
    )


def eagle1_shape(target: ModelShape) -> DraftShape:
    """EAGLE-1's draft: a layer of the target's sizes behind a joining layer.

    The joining layer makes k numbers of 2k, and the head is the target's, all of it.
    [Paper, section 2.2; Code]
    """
    return DraftShape(
        num_layers=1,
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        vocab_size=target.vocab_size,
        extra_products=2 * target.hidden_size**2,
    )


def roofline_cost(
    shape: ModelShape, machine: Machine, number_bytes: int = 2
) -> PassCost:
    """The least time of a pass on a machine: fetching or computing. [Derived]

    number_bytes: bytes of one weight or cached number
    """

    def seconds(step: Pass) -> float:
        return work_of(shape, step, number_bytes).seconds(machine)

    return seconds


@dataclass(frozen=True)
class LinearCost:
    """A straight line: what a pass costs anyway, and what each row and position adds.

    fixed: seconds of any pass: reading the weights, launching
    per_row: seconds of each row, whosever it is
    per_cached: seconds of each cached position that is read, of all requests together

    It is a `PassCost`. [Ours]
    """

    fixed: float
    per_row: float
    per_cached: float

    def __call__(self, step: Pass) -> float:
        return float(np.dot(_terms(step), (self.fixed, self.per_row, self.per_cached)))


def _terms(step: Pass) -> tuple[float, float, float]:
    return 1.0, step.rows * step.batch, step.batch * (step.context + step.rows)


def fit_linear(steps: Sequence[Pass], seconds: Sequence[float]) -> LinearCost:
    """The line that misses measured times least, each in relation to its size.

    steps, seconds: the measured passes and their times, in the same order

    No part of it is negative. Raises ValueError for fewer than three passes. [Ours]
    """
    if len(steps) < 3:
        raise ValueError(
            f"{len(steps)} passes don't fix a line: measure three or more."
        )
    terms = np.array([_terms(step) for step in steps])
    times = np.array(seconds)
    fitted, _ = scipy.optimize.nnls(terms / times[:, None], np.ones(len(times)))
    return LinearCost(*map(float, fitted))


@dataclass(frozen=True)
class Load:
    """What a server works at: requests in the batch, cached positions of each."""

    batch: int = 1
    context: int = 0


@dataclass(frozen=True)
class CycleCost:
    """Seconds of one cycle by part."""

    draft: float
    target: float
    other: float

    @property
    def total(self) -> float:
        """All of them together."""
        return self.draft + self.target + self.other


@dataclass(frozen=True)
class CostModel:
    """What the passes of a cycle cost on one server. [Derived]

    target: a pass of the target
    catch_up: the draft's first pass of a cycle, over what the target has confirmed
    step: each later pass of the draft, one row for each request
    other: seconds of every cycle, plain ones too, that no model takes part in
    """

    target: PassCost
    catch_up: PassCost
    step: PassCost
    other: float = 0.0

    def plain(self, load: Load) -> float:
        """Seconds of a plain step, which gives each request one token."""
        return self.target(Pass(1, load.batch, load.context)) + self.other

    def cycle(self, length: int, load: Load) -> CycleCost:
        """Seconds of a cycle with chains of `length` tokens; 0 is a plain step.

        The catch-up pass has length + 1 rows, as in an engine of fixed shapes.
        """
        rows, draft = length + 1, 0.0
        if length:
            first = Pass(rows, load.batch, load.context, last_only=True)
            draft = self.catch_up(first) + (length - 1) * self.step(
                Pass(1, load.batch, load.context)
            )
        target = self.target(Pass(rows, load.batch, load.context))
        return CycleCost(draft, target, self.other)

    def steps_per_cycle(self, length: int, load: Load) -> float:
        """A cycle in plain steps: the tau at which speculation breaks even."""
        return self.cycle(length, load).total / self.plain(load)

    def speedup(self, n_alpha: Sequence[float], load: Load) -> float:
        """Tokens per second over those of plain decoding, at the same load.

        n_alpha: one for each token of the chain, see `expected_tokens`
        """
        return expected_tokens(n_alpha) / self.steps_per_cycle(len(n_alpha), load)

    def best_length(self, n_alpha: Sequence[float], load: Load) -> tuple[int, float]:
        """The chain length of most tokens per second, and its speedup.

        n_alpha: of the longest chain that may be chosen; (0, 1.0) means not to draft
        """
        options = [
            (n, self.speedup(n_alpha[:n], load)) for n in range(len(n_alpha) + 1)
        ]
        return max(options, key=lambda option: option[1])

    def time_per_token(self, n_alpha: Sequence[float], load: Load) -> float:
        """Seconds per token of one request, in the mean."""
        return self.cycle(len(n_alpha), load).total / expected_tokens(n_alpha)

    def throughput(self, n_alpha: Sequence[float], load: Load) -> float:
        """Tokens per second of all requests together."""
        return load.batch / self.time_per_token(n_alpha, load)


def roofline_model(
    target: ModelShape,
    draft: tuple[DraftShape, DraftShape],
    machine: Machine,
    number_bytes: int = 2,
) -> CostModel:
    """The model that knows a machine's two speeds and nothing else: an upper bound.

    draft: in the first pass of a cycle, and in the later ones
    """
    costs = [roofline_cost(s, machine, number_bytes) for s in (target, *draft)]
    return CostModel(*costs)


def break_even(batches: Sequence[int], speedups: Sequence[float]) -> float | None:
    """The batch size at which the speedup first falls below 1, on straight lines.

    batches: ascending      speedups: at each of them
    Returns None where it never does, and the first batch size where it starts below.
    A later return above 1 does not count. [Derived]
    """
    points = list(zip(batches, speedups, strict=True))
    if points[0][1] < 1:
        return float(points[0][0])
    for (left, high), (right, low) in pairwise(points):
        if low < 1:
            return left + (right - left) * (high - 1) / (high - low)
    return None


def last_gain(batches: Sequence[int], speedups: Sequence[float]) -> int | None:
    """The largest batch size with a speedup above 1, whatever lies before. [Derived]"""
    gaining = [b for b, s in zip(batches, speedups, strict=True) if s > 1]
    return max(gaining, default=None)

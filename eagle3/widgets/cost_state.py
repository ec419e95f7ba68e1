"""The cost explorer's state: a server, a chain, and what the cost model foretells.

All predictions come from eagle3/cost_model.py; measured points are shown beside them
and enter nothing. [Derived]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eagle3.bench.roofline import Pass
from eagle3.cost_model import (
    CostModel,
    CycleCost,
    Load,
    PassCost,
    break_even,
    expected_tokens,
)

BATCHES = tuple(2**i for i in range(11))
MAX_LENGTH, MAX_CONTEXT, MAX_DRAFT = 10, 100_000, 400

Points = tuple[Sequence[int], Sequence[float]]  # batch sizes, speedups


@dataclass(frozen=True)
class Server:
    """A machine as a cost model, and what somebody measured there.

    model: what passes cost        source: who measured, in a few words
    points: method -> batch sizes and speedups, up to two
    length, alpha: the chains that were measured, and n-alpha in percent, to begin with
    """

    model: CostModel
    source: str = ""
    points: Mapping[str, Points] = field(default_factory=dict)
    length: int = 3
    alpha: int = 80


@dataclass(frozen=True)
class CostState:
    """A server and a way to speculate on it.

    servers: name -> what it costs there        server: the chosen one
    alpha: chance that a guess is kept, in percent, the same at every place
    length: guesses of a chain; 0 is plain decoding
    draft: price of the draft's passes, in percent of the model's
    context: cached positions of each request        batch: requests, one of BATCHES

    Raises ValueError where a knob is out of its range.
    """

    servers: Mapping[str, Server]
    server: str = ""
    alpha: int = -1
    length: int = -1
    draft: int = 100
    context: int = 512
    batch: int = 8

    def __post_init__(self) -> None:
        if not self.server:
            first = next(iter(self.servers))
            object.__setattr__(self, "server", first)
            object.__setattr__(self, "alpha", self.servers[first].alpha)
            object.__setattr__(self, "length", self.servers[first].length)
        limits = (
            ("n-alpha is", self.alpha, 0, 100, "%"),
            ("The chain is", self.length, 0, MAX_LENGTH, ""),
            ("The draft's price is", self.draft, 0, MAX_DRAFT, "%"),
            ("The context is", self.context, 0, MAX_CONTEXT, ""),
        )
        for name, value, low, high, unit in limits:
            if not low <= value <= high:
                raise ValueError(f"{name} {value}{unit}; take {low} to {high}{unit}.")
        if self.batch not in BATCHES:
            raise ValueError(
                f"A batch of {self.batch} is not drawn; take a power of 2."
            )

    @property
    def at(self) -> Server:
        """The chosen server."""
        return self.servers[self.server]

    @cached_property
    def model(self) -> CostModel:
        """The server's cost model with the draft's price as chosen."""
        model = self.at.model
        scaled = [
            _scaled(cost, self.draft / 100) for cost in (model.catch_up, model.step)
        ]
        return replace(model, catch_up=scaled[0], step=scaled[1])

    @property
    def n_alpha(self) -> list[float]:
        """One for each guess of the chain."""
        return [self.alpha / 100] * self.length

    @property
    def tau(self) -> float:
        """Tokens per cycle and request: what a cycle yields."""
        return expected_tokens(self.n_alpha)

    @property
    def load(self) -> Load:
        """The chosen batch and context."""
        return Load(self.batch, self.context)

    @cached_property
    def price(self) -> CycleCost:
        """A cycle by part, in plain steps at the same load."""
        cycle, plain = (
            self.model.cycle(self.length, self.load),
            self.model.plain(self.load),
        )
        return CycleCost(cycle.draft / plain, cycle.target / plain, cycle.other / plain)

    @property
    def speedup(self) -> float:
        """Yield over price at the chosen batch."""
        return self.tau / self.price.total

    @cached_property
    def curve(self) -> tuple[float, ...]:
        """The chain's speedup at each of BATCHES."""
        loads = [Load(size, self.context) for size in BATCHES]
        return tuple(self.model.speedup(self.n_alpha, load) for load in loads)

    @cached_property
    def best(self) -> tuple[tuple[int, float], ...]:
        """The best chain's length and speedup at each of BATCHES."""
        longest = [self.alpha / 100] * MAX_LENGTH
        loads = [Load(size, self.context) for size in BATCHES]
        return tuple(self.model.best_length(longest, load) for load in loads)

    def measured(self, method: str) -> float | None:
        """What somebody measured at the chosen batch, if anybody did."""
        batches, values = self.at.points[method]
        return dict(zip(batches, values, strict=True)).get(self.batch)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        price, meets = self.price, break_even(BATCHES, self.curve)
        where = f"at {meets:.0f}" if meets else f"nowhere up to {BATCHES[-1]}"
        length, gain = self.best[BATCHES.index(self.batch)]
        best = f"The best chain here has {length}: {gain:.2f}."
        best = best if length else "The best here is not to draft."
        guesses = "1 guess" if self.length == 1 else f"{self.length} guesses"
        requests = "1 request" if self.batch == 1 else f"{self.batch} requests"
        found = {name: self.measured(name) for name in self.at.points}
        seen = ", ".join(
            f"{name} {x:.2f}" for name, x in found.items() if x is not None
        )
        seen = f" Measured there: {seen} ({self.at.source})." if seen else ""
        return (
            f"{self.server}, {requests}: a cycle of {guesses} yields {self.tau:.2f} "
            f"tokens and costs {price.total:.2f} plain steps ({price.target:.2f} "
            f"target, {price.draft:.2f} draft): speedup {self.speedup:.2f}. Break-even "
            f"{where} requests. {best}{seen}"
        )

    def changed(self, name: str, value: Any) -> "CostState":
        """The state after one knob was turned.

        name: a field, or "power": the batch as a power of 2; another server brings its
            own chain and n-alpha
        Raises ValueError with a sentence for the reader.
        """
        if name == "power":
            return replace(self, batch=2**value)
        if name == "server":
            new = self.servers[value]
            return replace(self, server=value, alpha=new.alpha, length=new.length)
        return replace(self, **{name: value})


def _scaled(cost: PassCost, factor: float) -> PassCost:
    def seconds(step: Pass) -> float:
        return factor * cost(step)

    return seconds

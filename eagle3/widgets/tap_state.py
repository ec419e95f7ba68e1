"""The tap picker's state: three layers among those whose probes were measured.

A probe is a linear map that names a token from the states of some layers; what each
named was measured by tools/probes.py. Nothing is fitted here. [Ours]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

NAMES = ("low", "middle", "high")
LETTERS = ("l", "m", "h")


@dataclass(frozen=True)
class Probes:
    """Shares of right tokens, layer by layer and for triples of layers.

    layers: probed ones, ascending; each stands for the state that enters it
    next: of the next token, from that state alone
    after: of the one after, from that state and the embedding of the next token
    triples: three layers, ascending -> both shares for the three states together
    rule: the three layers of the official rule
    examples: how many tokens each share is a share of
    """

    layers: tuple[int, ...]
    next: tuple[float, ...]
    after: tuple[float, ...]
    triples: Mapping[tuple[int, int, int], tuple[float, float]]
    rule: tuple[int, int, int]
    examples: int

    @classmethod
    def from_results(cls, stored: Mapping[str, Any]) -> "Probes":
        """What figures/results/probes.json holds; the top feature is no layer's input.

        Raises ValueError if the rule's layers are not among the triples.
        """
        single = stored["singles"]
        triples = {
            tuple(map(int, row[:3])): (row[3], row[4])
            for row in stored["triples"]["rows"]
        }
        rule = tuple(stored["taps"])
        if rule not in triples:
            raise ValueError(f"the taps {rule} were not measured; probe them first.")
        probed = {layer for triple in triples for layer in triple}
        kept = [i for i, layer in enumerate(single["layers"]) if layer in probed]

        def of(column: Sequence[float]) -> tuple[float, ...]:
            return tuple(column[i] for i in kept)

        return cls(
            layers=tuple(int(single["layers"][i]) for i in kept),
            next=of(single["next"]),
            after=of(single["after_next_with_token"]),
            triples=triples,
            rule=rule,
            examples=stored["data"]["test_examples"],
        )


@dataclass(frozen=True)
class TapState:
    """Three layers to tap, counted as the probed layers are.

    probes: what was measured
    low, middle, high: the layers whose inputs are tapped; the rule's, if not given

    Raises ValueError unless they are three probed layers, ascending.
    """

    probes: Probes
    low: int = -1
    middle: int = -1
    high: int = -1

    def __post_init__(self) -> None:
        if self.taps == (-1, -1, -1):
            for name, layer in zip(NAMES, self.probes.rule, strict=True):
                object.__setattr__(self, name, layer)
        for name, layer in zip(NAMES, self.taps, strict=True):
            if layer not in self.probes.layers:
                measured = ", ".join(map(str, self.probes.layers))
                raise ValueError(
                    f"Layer {layer} was not probed as the {name} tap; take one of "
                    f"{measured}."
                )
        if not self.low < self.middle < self.high:
            raise ValueError(
                f"{self.low}, {self.middle}, {self.high} don't ascend; take three "
                "different layers, the low one lowest."
            )

    @property
    def taps(self) -> tuple[int, int, int]:
        """The three layers."""
        return self.low, self.middle, self.high

    @property
    def shares(self) -> tuple[float, float]:
        """What the three together name: of the next token, and of the one after."""
        return self.probes.triples[self.taps]

    @cached_property
    def place(self) -> int:
        """How many triples name the token after next as well or better, this included.

        1 is the best. Equal ones share a place.
        """
        own = self.shares[1]
        return 1 + sum(after > own for _, after in self.probes.triples.values())

    @cached_property
    def best(self) -> tuple[int, int, int]:
        """The three layers that name the token after next best."""
        triples = self.probes.triples
        return max(triples, key=lambda taps: triples[taps][1])

    @property
    def chance(self) -> float:
        """One standard error of the share about the token after next. [Derived]"""
        share = self.shares[1]
        return (share * (1 - share) / self.probes.examples) ** 0.5

    def index(self, name: str) -> int:
        """Where a tap stands among the probed layers, counted from 0."""
        return self.probes.layers.index(getattr(self, name))

    @property
    def sentence(self) -> str:
        """The picture in words."""
        probes, (soon, later) = self.probes, self.shares
        taps = ", ".join(map(str, self.taps))
        rule = " (the rule's)" if self.taps == probes.rule else ""
        words = (
            f"Taps {taps}{rule}: a probe on the three is right about the next token in "
            f"{soon:.1%}, about the one after in {later:.1%}, place {self.place} of "
            f"{len(probes.triples)}. "
        )
        lead = self.probes.triples[self.best][1] - later
        if self.taps == self.best:
            return f"{words}No other three do better."
        best = ", ".join(map(str, self.best))
        within = "within" if lead <= 2 * self.chance else "beyond"
        return (
            f"{words}The best, {best}, are {lead:.1%} ahead, {within} twice the "
            f"{self.chance:.1%} that chance moves it."
        )

    def changed(self, name: str, value: Any) -> "TapState":
        """The state after one tap was moved.

        name: "low", "middle" or "high", with a layer; or "at low" and so on, with its
            place among the probed layers; or "rule", which goes back to the rule's
        Raises ValueError with a sentence for the reader.
        """
        if name == "rule":
            return TapState(self.probes)
        if name.startswith("at "):
            layer = self.probes.layers[value]
            return replace(self, **{name.removeprefix("at "): layer})
        return replace(self, **{name: value})

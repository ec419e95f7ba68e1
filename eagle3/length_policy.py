"""How many tokens to draft next: an engine that looks at its own acceptance.

The best chain length depends on the text and on the load, and both change while a
server runs. A policy counts, for every position of the chain, how often a token got
there and how often it was kept, forgets old cycles slowly, and asks the cost model for
the best length. Any length is correct; only the speed changes. [Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from eagle3.cost_model import CostModel, Load
from eagle3.growth import Runner, chain
from eagle3.sampling import SamplingParams
from eagle3.tree import NOTHING, DraftTree


@dataclass
class LengthPolicy:
    """Chooses the length of the next chain from the n-alpha that it has seen.

    model: what cycles cost       start: n-alpha to believe in at first; its length is
        the longest chain
    memory: cycles that count; an older one fades       weight: cycles that `start`
        counts for
    probe: after so many plain steps in a row one token is drafted all the same, or the
        policy would never notice that the text has become easy

    Raises ValueError for a memory or a probe below 1, or a weight that isn't above 0.
    """

    model: CostModel
    start: Sequence[float]
    memory: float = 50.0
    weight: float = 10.0
    probe: int = 16
    kept: list[float] = field(init=False)
    reached: list[float] = field(init=False)
    idle: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.memory < 1 or self.probe < 1 or self.weight <= 0:
            raise ValueError(
                f"memory is {self.memory}, probe {self.probe}, weight {self.weight}: "
                "take a memory and a probe of 1 or more, and a weight above 0."
            )
        self.kept = [self.weight * alpha for alpha in self.start]
        self.reached = [self.weight] * len(self.start)

    @property
    def n_alpha(self) -> list[float]:
        """What the policy believes now."""
        return [k / r for k, r in zip(self.kept, self.reached, strict=True)]

    def choose(self, load: Load) -> int:
        """The length of the next chain at this load; 0 means not to draft."""
        length, _ = self.model.best_length(self.n_alpha, load)
        if length == 0 and self.idle + 1 >= self.probe:
            return 1
        return length

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from a cycle: tokens that were drafted, and kept, of one request.

        Only places that were reached have something to tell: all kept ones and the
        first rejected one.
        """
        self.idle = 0 if drafted else self.idle + 1
        fade = 1 - 1 / self.memory
        for place in range(min(drafted, accepted + 1)):
            self.kept[place] = fade * self.kept[place] + (place < accepted)
            self.reached[place] = fade * self.reached[place] + 1


@dataclass(frozen=True)
class ChosenChain:
    """A growth that asks a policy for the length of every chain. [Ours]

    policy: learns from the caller, who sees the cycles      load: what the server is at
    """

    policy: LengthPolicy
    load: Load

    @property
    def depth(self) -> int:
        """Levels of the longest chain."""
        return len(self.policy.start)

    @property
    def max_nodes(self) -> int:
        """Drafted tokens at most."""
        return self.depth

    @property
    def max_rows(self) -> int:
        """Rows that the draft runs at most: all but the last token."""
        return self.depth - 1

    def grow(
        self,
        runner: Runner,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """A chain of the length that the policy wants, or nothing."""
        length = min(self.policy.choose(self.load), limit)
        if length == 0:
            return NOTHING
        return chain(length).grow(runner, limit, params, generator)

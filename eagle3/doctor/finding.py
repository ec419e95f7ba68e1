"""What a diagnosis says: one part of the wiring, what was found, what to do. [Ours]"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

Verdict = Literal["ok", "warning", "fault"]
STRUCTURAL = float("inf")  # weight of a fault that is seen, not measured

# A change counts when it is unlikely to be chance and large enough to be felt, and when
# what it leads to is more than nothing.
MIN_T, MIN_GAIN, MIN_KEPT = 3.0, 0.01, 0.05


@dataclass(frozen=True)
class Finding:
    """One row of the doctor's table.

    part: what was looked at, as "taps"
    found: in words and numbers      remedy: what to do, where there is something
    weight: how much acceptance the fault costs, to find the main cause

    [Ours]
    """

    part: str
    found: str
    verdict: Verdict = "ok"
    remedy: str = ""
    weight: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """All findings on one draft.

    cause: the finding that explains most: the fault that costs most, else the first
        warning, else None, for a healthy draft

    [Ours]
    """

    findings: tuple[Finding, ...]

    @property
    def cause(self) -> Finding | None:
        """What explains most: see the class."""
        faults = [found for found in self.findings if found.verdict == "fault"]
        if faults:
            return max(faults, key=lambda found: found.weight)
        warnings = [found for found in self.findings if found.verdict == "warning"]
        return warnings[0] if warnings else None


class Change(NamedTuple):
    """What one changed wiring does to the rows of a reading, compared row by row.

    words: the change      kept: the mean with it
    gain: by how much that is more      t: gain over its standard error
    """

    words: str
    kept: float
    gain: float
    t: float

    @classmethod
    def of(cls, words: str, before: Tensor, after: Tensor) -> "Change":
        """Compare two readings of the same rows: before, after [R]. [Ours]"""
        difference = (after.float() - before.float()).double()
        error = (difference.std() / len(difference) ** 0.5).item()
        gain = difference.mean().item()
        return cls(words, after.float().mean().item(), gain, gain / max(error, 1e-9))

    @property
    def is_better(self) -> bool:
        """Whether the draft does better with it, beyond doubt."""
        return self.t >= MIN_T and self.gain >= MIN_GAIN and self.kept >= MIN_KEPT

    @property
    def is_worse(self) -> bool:
        """Whether the draft does worse with it, beyond doubt."""
        return self.t <= -MIN_T

    def __str__(self) -> str:
        return f"{self.words} {self.kept:.1%}"


def best(changes: list[Change]) -> Change:
    """The change that gains most. [Ours]"""
    return max(changes, key=lambda change: change.gain)

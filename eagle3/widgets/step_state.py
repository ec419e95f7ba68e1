"""The step-through's state: a recorded run, one of its cycles, one moment of that.

What happens in a moment is told by eagle3/step_through.py. [Ours]
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from eagle3.step_through import Frame, frames
from eagle3.target import Target
from eagle3.watch import Recording, record

MAX_NEW_TOKENS = 12


def watcher(
    target: Target, draft: Any, max_new_tokens: int = MAX_NEW_TOKENS
) -> Callable[[str], Recording]:
    """A function that goes on with a text and records how, by chains of three. [Ours]

    It raises ValueError, in one sentence, for a text that can't be gone on with.
    """

    def watch(text: str) -> Recording:
        if not text.strip():
            raise ValueError("There is nothing to go on with; write a few words.")
        _, recording = record(target, draft, target.encode(text), max_new_tokens)
        if not _drafting(recording):
            raise ValueError("The text ended before anything was drafted; write more.")
        return recording

    return watch


def _drafting(recording: Recording) -> list[int]:
    """The cycles that drafted something, counted from 1."""
    return [c.row.cycle for c in recording.cycles if c.row.drafted]


@dataclass(frozen=True)
class StepState:
    """A recording with one moment of one cycle chosen.

    recording: the run        watch: text -> its recording, or None: no other text
    text: what was gone on with, as far as the reader wrote it
    cycle, moment: counted from 1        film: the moments of the cycle, made here

    Raises ValueError for a cycle or a moment that isn't there.
    """

    recording: Recording
    watch: Callable[[str], Recording] | None = field(default=None, compare=False)
    text: str = ""
    cycle: int = 1
    moment: int = 1
    film: tuple[Frame, ...] = ()

    def __post_init__(self) -> None:
        if not self.film:
            object.__setattr__(self, "film", frames(self.recording, self.cycle))
        if not 1 <= self.moment <= len(self.film):
            raise ValueError(
                f"There is no moment {self.moment}; the cycle has {len(self.film)}, "
                "counted from 1."
            )

    @property
    def frame(self) -> Frame:
        """The chosen moment."""
        return self.film[self.moment - 1]

    @property
    def sentence(self) -> str:
        """The picture in words."""
        total = len(self.recording.cycles)
        return f"Cycle {self.cycle} of {total}, {self.frame.alt}"

    def changed(self, name: str, value: Any) -> "StepState":
        """The state after another moment, cycle or text was chosen.

        name: "moment", "cycle" or "text"
        Raises ValueError with a sentence for the reader.
        """
        if name == "text":
            if self.watch is None:
                raise ValueError("This run is fixed; choose another cycle instead.")
            recording = self.watch(value)
            cycle = _drafting(recording)[0]
            return StepState(recording, self.watch, value, cycle)
        if name == "cycle":
            return StepState(self.recording, self.watch, self.text, value)
        return replace(self, moment=value)

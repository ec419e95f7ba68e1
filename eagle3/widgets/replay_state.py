"""The training replay's state: recorded runs, and the evaluation that is looked at.

What a recording holds is described in eagle3/training/replay.py. [Ours]
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Shown:
    """A token of the answer: its text, whose it is, and the cycle that brought it.

    kept: a guess that the target kept; otherwise the target's own token
    cycle: counted from 1; 0 is the prefill
    """

    text: str
    kept: bool
    cycle: int


@dataclass(frozen=True)
class ReplayState:
    """A run with one of its evaluations chosen.

    stored: what figures/results/training_replay.json holds
    run: name of the run; the first one, if not given
    frame: the evaluation, counted from 1; the first is of the untrained draft

    Raises ValueError for a frame that the run doesn't have.
    """

    stored: Mapping[str, Any]
    run: str = ""
    frame: int = 1

    def __post_init__(self) -> None:
        if not self.run:
            object.__setattr__(self, "run", next(iter(self.stored["runs"])))
        if not 1 <= self.frame <= len(self.frames):
            raise ValueError(
                f"There is no evaluation {self.frame}; the run has "
                f"{len(self.frames)}, counted from 1."
            )

    @property
    def replay(self) -> Mapping[str, Any]:
        """The chosen run."""
        return self.stored["runs"][self.run]

    @property
    def frames(self) -> list[Mapping[str, Any]]:
        """Its evaluations."""
        return self.replay["frames"]

    @property
    def at(self) -> Mapping[str, Any]:
        """The chosen evaluation."""
        return self.frames[self.frame - 1]

    @property
    def step(self) -> int:
        """Optimizer steps done there."""
        return self.at["step"]

    @cached_property
    def losses(self) -> list[tuple[int, list[float]]]:
        """Steps and losses, at most 100 of them, evenly thinned out."""
        every = self.replay["losses"]
        skip = -(-len(every) // 100)
        return [(entry["step"], entry["per_step"]) for entry in every[:: skip or 1]]

    @property
    def loss(self) -> list[float] | None:
        """Losses of the last log entry before the evaluation; None before the first."""
        before = [e for e in self.replay["losses"] if e["step"] <= self.step]
        return before[-1]["per_step"] if before and self.step else None

    @cached_property
    def tokens(self) -> list[Shown]:
        """The answer, token by token, with who brought each."""
        texts = self.stored["texts"]
        shown = [Shown(texts[str(self.stored["answer"][0])], False, 0)]
        for number, cycle in enumerate(self.at["cycles"], start=1):
            for i, token in enumerate(cycle["emitted"]):
                kept = i < cycle["kept"]
                shown.append(Shown(texts[str(token)], kept, number))
        return shown

    @property
    def passes(self) -> int:
        """Target passes behind the prefill's."""
        return len(self.at["cycles"])

    @property
    def tau(self) -> float:
        """Tokens from each of these passes."""
        return (len(self.tokens) - 1) / max(1, self.passes)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        alphas, count = self.at.get("n_alpha"), len(self.tokens) - 1
        words = f"{self.run}, after {self.step:,} of {self.replay['steps']:,} steps: "
        if alphas:
            last = len(alphas) - 1
            words += f"0-alpha {alphas[0]:.2f}, {last}-alpha {alphas[-1]:.2f}. "
        words += (
            f"The same {count} tokens take {self.passes} passes of the target, "
            f"{self.tau:.2f} from each"
        )
        if self.frame > 1:
            words += f" (untrained {replace(self, frame=1).tau:.2f})"
        if self.loss:
            last = len(self.loss) - 1
            words += f"; loss of step 0 {self.loss[0]:.2f}"
            words += f", of step {last} {self.loss[-1]:.2f}" if last else ""
        return f"{words}."

    def changed(self, name: str, value: Any) -> "ReplayState":
        """The state after another evaluation or run was chosen.

        name: "frame" or "run"; another run is shown where it had done as many steps
        Raises ValueError with a sentence for the reader.
        """
        if name == "frame":
            return replace(self, frame=value)
        frames = self.stored["runs"][value]["frames"]
        near = min(range(len(frames)), key=lambda i: abs(frames[i]["step"] - self.step))
        return replace(self, run=value, frame=near + 1)

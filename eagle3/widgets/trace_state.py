"""The engine trace's state: one run, and the cycle that is looked at. [Ours]"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from eagle3.engine import generate
from eagle3.target import Target
from eagle3.trace import TraceRow, trace_rows


@dataclass(frozen=True)
class Run:
    """A prompt and what the engine did with it.

    prompt: the text         rows: the cycles, in order
    text: the answer         tau: tokens per target pass
    prefill: positions in the target's cache before the first cycle
    seconds: of each cycle (draft, target, other)
    """

    prompt: str
    rows: tuple[TraceRow, ...]
    text: str
    tau: float
    prefill: int
    seconds: tuple[tuple[float, float, float], ...]


def recorder(
    target: Target, draft: Any, max_new_tokens: int = 48
) -> Callable[[str], Run]:
    """A function that answers a prompt with chains of three and returns the run. [Ours]

    It raises ValueError, in one sentence, for a prompt that can't be run.
    """

    def record(prompt: str) -> Run:
        if not prompt.strip():
            raise ValueError("There is nothing to answer; write a prompt.")
        result = generate(target, draft, prompt, max_new_tokens=max_new_tokens)
        if not result.cycles:
            raise ValueError("The answer ended with its first token; write another.")
        rows = trace_rows(result, lambda ids: target.decode(ids, keep_special=True))
        seconds = tuple(
            (cycle.draft_seconds, cycle.target_seconds, cycle.other_seconds)
            for cycle in result.cycles
        )
        return Run(
            prompt=prompt,
            rows=tuple(rows),
            text=result.text,
            tau=result.acceptance_length,
            prefill=result.prefill.target_cache,
            seconds=seconds,
        )

    return record


@dataclass(frozen=True)
class TraceState:
    """A run with one of its cycles chosen.

    record: prompt -> run        run: the run that is shown
    cycle: counted from 1

    Raises ValueError for a cycle that the run doesn't have.
    """

    record: Callable[[str], Run] = field(compare=False)
    run: Run
    cycle: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.cycle <= len(self.run.rows):
            raise ValueError(
                f"There is no cycle {self.cycle}; the run has {len(self.run.rows)}, "
                "counted from 1."
            )

    @property
    def prompt(self) -> str:
        """The prompt that was answered."""
        return self.run.prompt

    @property
    def row(self) -> TraceRow:
        """The chosen cycle."""
        return self.run.rows[self.cycle - 1]

    @property
    def caches(self) -> dict[str, tuple[int, int, int]]:
        """Cached positions of each model before, after its passes and at the end.

        The target runs the pending token and all drafted ones. The draft catches up
        with what was committed, then runs its own tokens but the last.
        """
        before = self.run.rows[self.cycle - 2] if self.cycle > 1 else None
        target = before.target_cache if before else self.run.prefill
        draft = before.draft_cache if before else 0
        drafted, row = len(self.row.drafted), self.row
        found = {"target": (target, target + 1 + drafted, row.target_cache)}
        if row.draft_cache:
            full = row.draft_cache + max(0, drafted - 1)
            found["draft"] = (draft, full, row.draft_cache)
        return found

    @property
    def sentence(self) -> str:
        """The picture in words."""
        caches = "; ".join(
            f"the {name}'s cache grows from {a} to {b} and rolls back to {c}"
            for name, (a, b, c) in self.caches.items()
        )
        total = len(self.run.rows)
        return (
            f"{self.row.words}; {caches}. The whole run: {total} target passes, "
            f"{self.run.tau:.2f} tokens from each."
        )

    @property
    def times(self) -> str:
        """Where the time of this cycle went."""
        draft, target, other = self.run.seconds[self.cycle - 1]
        return (
            f"time of this cycle: draft {1e3 * draft:.1f} ms, target "
            f"{1e3 * target:.1f} ms, rest {1e3 * other:.1f} ms"
        )

    def changed(self, name: str, value: Any) -> "TraceState":
        """The state after another prompt was given or another cycle chosen.

        name: "prompt" or "cycle"
        Raises ValueError with a sentence for the reader.
        """
        if name == "prompt":
            return replace(self, run=self.record(value), cycle=1)
        return replace(self, cycle=value)

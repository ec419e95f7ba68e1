"""A run told cycle by cycle, in words: rows that a table, a picture or JSON can take.

The engine's trace holds token ids; a reader wants to see the tokens and to know which
one was pending when a cycle began. [Ours]
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eagle3.engine import GenerationResult


@dataclass(frozen=True)
class TraceRow:
    """One cycle as texts.

    cycle: its number, from 1        pending: the token that the cycle starts from
    drafted: the proposed tokens     num_accepted: how many the target kept
    next_token: the target's own     kind: "replacement", "bonus" or "target"
    emitted: new tokens of the answer, fewer than num_accepted + 1 where it ended
    target_cache, draft_cache: cached positions after the cycle
    """

    cycle: int
    pending: str
    drafted: tuple[str, ...]
    num_accepted: int
    next_token: str
    kind: str
    emitted: int
    target_cache: int
    draft_cache: int

    @property
    def words(self) -> str:
        """The cycle as a sentence: what was drafted, kept and added."""
        own = {"bonus": "a bonus token", "replacement": "a replacement"}
        tokens = "1 token" if self.emitted == 1 else f"{self.emitted} tokens"
        return (
            f"Cycle {self.cycle}: {len(self.drafted)} drafted, {self.num_accepted} "
            f"accepted, then {own.get(self.kind, 'one token of the target')}; "
            f"{tokens} from one target pass"
        )


def trace_rows(
    result: GenerationResult, decode: Callable[[Sequence[int]], str]
) -> list[TraceRow]:
    """The cycles of a run as texts, in order; the prefill is not one of them.

    decode: token ids to text, special tokens kept, as
        `lambda ids: target.decode(ids, keep_special=True)`
    """
    rows, pending = [], result.prefill.next_token
    for cycle in result.cycles:
        rows.append(
            TraceRow(
                cycle=cycle.index,
                pending=decode([pending]),
                drafted=tuple(decode([token]) for token in cycle.drafted),
                num_accepted=cycle.num_accepted,
                next_token=decode([cycle.next_token]),
                kind=cycle.kind,
                emitted=len(cycle.emitted),
                target_cache=cycle.target_cache,
                draft_cache=cycle.draft_cache,
            )
        )
        pending = cycle.next_token
    return rows


def rows_to_json(rows: Sequence[TraceRow]) -> list[dict[str, Any]]:
    """The rows as plain dictionaries; `rows_from_json` reads them back."""
    return [asdict(row) for row in rows]


def rows_from_json(items: Sequence[dict[str, Any]]) -> list[TraceRow]:
    """The inverse of `rows_to_json`, also after a way through a JSON file."""
    return [TraceRow(**{**item, "drafted": tuple(item["drafted"])}) for item in items]

"""eagle3.trace: cycles as texts. Right values are read off a made-up trace by hand."""

import json

import pytest

from eagle3.engine import Cycle, GenerationResult
from eagle3.trace import TraceRow, rows_from_json, rows_to_json, trace_rows

LETTERS = "abcdefghij"


def cycle(index: int, drafted: tuple[int, ...], **fields) -> Cycle:
    tokens = (*(drafted[i] for i in fields.get("path", ())), fields["next_token"])
    defaults = {
        "draft_probs": (1.0,) * len(drafted),
        "parents": tuple(range(-1, len(drafted) - 1)),
        "path": (),
        "emitted": tokens,
        "target_cache": 0,
        "draft_cache": 0,
    }
    times = {f"{part}_seconds": 0.0 for part in ("draft", "target", "other")}
    return Cycle(index=index, drafted=drafted, **{**defaults, **fields}, **times)


def made_up_run() -> GenerationResult:
    prefill = cycle(0, (), next_token=0, kind="prefill", target_cache=4)
    first = cycle(
        1,
        (1, 2),
        path=(0, 1),
        next_token=3,
        kind="bonus",
        target_cache=7,
        draft_cache=4,
    )
    second = cycle(
        2,
        (4, 5),
        path=(0,),
        next_token=6,
        kind="replacement",
        emitted=(4,),
        target_cache=8,
        draft_cache=7,
    )
    return GenerationResult((9,) * 4, (0, 1, 2, 3, 4), "", "length", prefill,
                            (first, second), 1.0)  # fmt: skip


def rows() -> list[TraceRow]:
    return trace_rows(made_up_run(), lambda ids: "".join(LETTERS[i] for i in ids))


def test_a_row_starts_from_the_token_that_the_target_chose_last() -> None:
    first, second = rows()
    assert (first.pending, first.drafted, first.next_token) == ("a", ("b", "c"), "d")
    assert (second.pending, second.drafted, second.next_token) == ("d", ("e", "f"), "g")
    assert [row.cycle for row in rows()] == [1, 2]
    assert [(row.target_cache, row.draft_cache) for row in rows()] == [(7, 4), (8, 7)]


def test_words_count_what_was_emitted() -> None:
    first, second = rows()
    assert first.words == (
        "Cycle 1: 2 drafted, 2 accepted, then a bonus token; 3 tokens from one "
        "target pass"
    )
    # The answer ended inside the second cycle, so its replacement was not emitted.
    assert second.emitted == 1
    assert second.words.endswith("then a replacement; 1 token from one target pass")


@pytest.mark.parametrize("kind", ["bonus", "replacement", "target"])
def test_every_kind_of_ending_has_words(kind: str) -> None:
    row = TraceRow(1, "a", (), 0, "b", kind, 1, 1, 0)
    assert "None" not in row.words


def test_rows_survive_the_way_through_json() -> None:
    text = json.dumps(rows_to_json(rows()))
    assert rows_from_json(json.loads(text)) == rows()

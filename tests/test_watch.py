"""eagle3.watch: what is recorded is what the engine did.

The engine's trace says how many rows each call must have had; vectors are computed
again in one pass over the whole text.
"""

import pytest
import torch
from helpers import PROMPT, toy, trained_draft

from eagle3.drafters import EagleDrafter
from eagle3.engine import generate
from eagle3.growth import chain
from eagle3.watch import SKETCH_SIZE, Scripted, record, sketch

LENGTH = 16


@pytest.fixture(scope="module")
def recorded():
    return record(toy(), trained_draft(), PROMPT, LENGTH)


def test_being_watched_changes_nothing(recorded):
    result, _ = recorded
    plain = generate(toy(), trained_draft(), list(PROMPT), max_new_tokens=LENGTH)
    assert result.token_ids == plain.token_ids
    assert [c.drafted for c in result.cycles] == [c.drafted for c in plain.cycles]


def test_calls_come_in_the_order_of_the_moves(recorded):
    result, recording = recorded
    unread = len(PROMPT)
    for cycle, watched in zip(result.cycles, recording.cycles, strict=True):
        n = len(cycle.drafted)
        kinds = ["fuse", "layer", "head"] * bool(n) + ["layer", "head"] * max(0, n - 1)
        assert [call.kind for call in watched.calls] == [*kinds, "target"]
        verify = watched.calls[-1]
        assert verify.given == (1, n + 1)
        assert verify.made == (1, n + 1, 3 * 64)
        assert verify.cached == verify.first + n + 1
        if n:
            (fuse,), layers = watched.of("fuse"), watched.of("layer")
            assert fuse.given == (1, unread, 192) and fuse.made == (1, unread, 64)
            assert [call.made for call in layers] == [
                (1, unread, 64),
                *[(1, 1, 64)] * (n - 1),
            ]
            assert layers[0].ids[-1] == verify.ids[0]  # the pending token
            assert [call.ids for call in layers[1:]] == [
                (t,) for t in cycle.drafted[:-1]
            ]
            ends = [call.first + len(call.ids) for call in layers]
            assert [call.cached for call in layers] == ends
            says = [call.choices[-1] for call in watched.of("head")]
            assert says == list(map(str, cycle.drafted))
        unread = len(cycle.emitted)
        assert watched.row.drafted == tuple(map(str, cycle.drafted))


def test_sketches_and_choices_are_those_of_the_text_read_at_once(recorded):
    result, recording = recorded
    ids = torch.tensor([[*result.prompt_ids, *result.token_ids]])
    whole = toy().forward(ids)
    draft = EagleDrafter(toy(), trained_draft()).draft
    with torch.inference_mode():
        g = draft.fuse(whole.features)[0]  # [T, k]
    position = 0
    for watched in recording.cycles:
        for fuse in watched.of("fuse"):
            for seen in fuse.sketches:
                assert seen == sketch(g[position])
                position += 1
    assert position > len(PROMPT)
    best = whole.logits[0].argmax(-1).tolist()
    for watched in recording.cycles:
        call, kept = watched.calls[-1], watched.row.emitted
        says = [str(best[call.first + i]) for i in range(kept)]
        assert list(call.choices[:kept]) == says
    assert recording.prefill.cached == len(PROMPT) == recording.prompt_length
    assert recording.texts == tuple(str(token) for token in ids[0].tolist())
    assert recording.sizes == (64, 96, 96)


def test_a_script_is_said_once_and_its_rows_are_the_drafts_own():
    plain = generate(toy(), None, list(PROMPT), max_new_tokens=LENGTH).token_ids
    script = [plain[1], 7, 9]
    result, recording = record(
        toy(), trained_draft(), PROMPT, LENGTH, Scripted(script, chain(2))
    )
    assert result.token_ids == plain  # lossless, whatever is said
    first, second = result.cycles[:2]
    assert first.drafted == tuple(script) and first.num_accepted == 1
    assert len(second.drafted) == 2
    layers = recording.cycles[0].of("layer")
    assert [call.ids for call in layers[1:]] == [(script[0],), (script[1],)]
    # The same tokens with positions and features at hand, in one causal pass each.
    draft = EagleDrafter(toy(), trained_draft()).draft
    with torch.inference_mode():
        ids = torch.tensor([[*PROMPT, plain[0], *script]])
        g = draft.fuse(toy().forward(ids[:, : len(PROMPT)]).features)
        a = draft(ids[:, 1 : len(PROMPT) + 1], g, torch.arange(len(PROMPT)))
        x = torch.cat([g, a[:, -1:]], dim=1)
        again = draft(ids[:, 1 : len(PROMPT) + 2], x, torch.arange(len(PROMPT) + 1))
    assert layers[1].sketches[0] == sketch(again[0, -1])


def test_a_sketch_tells_vectors_apart_and_bears_what_is_no_number():
    vector = torch.arange(-32.0, 32.0)
    assert len(sketch(vector)) == SKETCH_SIZE
    assert sketch(vector) == sketch(3 * vector)  # the size doesn't count
    assert sketch(vector) == (-2, -1, -1, 0, 0, 1, 1, 2)
    assert sketch(torch.full((8,), torch.nan)) == (0,) * SKETCH_SIZE


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="prompt is empty"):
        record(toy(), trained_draft(), [], 4)

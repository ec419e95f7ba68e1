"""The engine trace without a page: what it shows is the engine's own trace."""

from xml.etree import ElementTree

import pytest
from helpers import talking_toy, trained_draft

from eagle3.engine import generate
from eagle3.widgets.engine_trace import draw_trace, engine_trace
from eagle3.widgets.trace_state import Run, TraceState, recorder

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def models():
    return talking_toy(), trained_draft()


@pytest.fixture(scope="module")
def state(models):
    record = recorder(*models, max_new_tokens=24)
    return TraceState(record, record("Why?"))


def test_the_run_is_the_engines(models, state):
    result = generate(*models, "Why?", max_new_tokens=24)
    assert state.run.text == result.text
    assert state.run.tau == result.acceptance_length
    assert len(state.run.rows) == len(result.cycles)
    for number, cycle in enumerate(result.cycles, start=1):
        shown = state.changed("cycle", number)
        assert shown.row.num_accepted == cycle.num_accepted
        assert shown.row.emitted == len(cycle.emitted)


def test_caches_grow_and_roll_back_by_the_rejected_tokens(models, state):
    # [Derived] A chain of d: the target runs d + 1 rows and keeps the accepted ones and
    # the pending token; the draft runs d - 1 rows on its own outputs and keeps none.
    prompt = len(generate(*models, "Why?", max_new_tokens=24).prompt_ids)
    known = prompt
    for number, row in enumerate(state.run.rows, start=1):
        caches = state.changed("cycle", number).caches
        d = len(row.drafted)
        after = known + 1 + row.num_accepted
        assert caches["target"] == (known, known + 1 + d, after)
        if d:
            assert caches["draft"][1:] == (known + d - 1, known)
        known = after


def test_the_picture_shows_verdicts_and_caches(state):
    number = next(
        number
        for number, row in enumerate(state.run.rows, start=1)
        if row.num_accepted < len(row.drafted)
    )
    shown = state.changed("cycle", number)
    root = ElementTree.fromstring(draw_trace(shown).svg)
    texts = [str(node.text) for node in root.iter(f"{SVG}text")]
    assert texts.count("✗ rejected") == 1
    assert texts.count("✓ accepted") == shown.row.num_accepted
    assert shown.row.kind in texts
    before, full, after = shown.caches["target"]
    assert f"{before} positions" in texts
    assert f"{full} positions, {full - after} go" in texts
    assert shown.times in texts
    assert root.get("aria-label") == shown.sentence
    assert shown.row.words in shown.sentence


def test_what_cannot_be_run_or_shown_is_refused_in_one_sentence(models, state):
    for text, says in (
        ("  ", "There is nothing to answer; write a prompt."),
        ("x" * 5000, "context"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            state.changed("prompt", text)
        assert "\n" not in str(error.value)
    last = len(state.run.rows)
    for number in (0, last + 1):
        with pytest.raises(ValueError, match=f"There is no cycle {number}"):
            state.changed("cycle", number)


def test_a_new_prompt_starts_at_its_first_cycle(models):
    explorer = engine_trace(*models, "Why?")
    prompt, cycle = explorer._controls.values()
    explorer.view._handle_custom_msg({"name": "cycle", "to": 3}, [])
    assert cycle.value == 3
    prompt.value = "How <b>long</b>?"
    assert explorer.state.run.prompt == "How <b>long</b>?"
    assert cycle.value == 1
    prompt.value = ""
    assert "write a prompt" in explorer.view.trouble
    assert explorer.state.run.prompt == "How <b>long</b>?"


def test_tokens_are_escaped(state):
    rows = tuple(
        type(row)(**{**vars(row), "pending": "<script>", "next_token": "</svg>"})
        for row in state.run.rows
    )
    run = Run(**{**vars(state.run), "rows": rows})
    svg = draw_trace(TraceState(state.record, run)).svg
    assert "<script" not in svg
    ElementTree.fromstring(svg)

"""The acceptance explorer without a page: laws by algebra, draws against their law."""

from xml.etree import ElementTree

import pytest
import scipy.stats
import torch

from eagle3.widgets import acceptance_state as module
from eagle3.widgets.acceptance_explorer import acceptance_explorer, draw_acceptance
from eagle3.widgets.acceptance_state import (
    ASKS_P,
    BY_HAND,
    KEEPS_ALL,
    NO_NORM,
    RIGHT,
    RULES,
    AcceptanceState,
    Rows,
)

SVG = "{http://www.w3.org/2000/svg}"
# By hand, for p = .6 .2 .15 .05 and q = .8 .1 .1 0: shared .6 .1 .1 0, owed 0 .1 .05
# .05, a fifth of the guesses rejected.
LAWS = {
    RIGHT: (0.60, 0.20, 0.15, 0.05),
    NO_NORM: (0.60, 0.12, 0.11, 0.17),  # the last token takes what is missing of 1
    ASKS_P: (0.72, 0.14, 0.13, 0.01),
    KEEPS_ALL: (0.80, 0.10, 0.10, 0.00),
}


def texts(svg: str) -> list[str]:
    return [str(node.text) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("rule", RULES)
def test_the_law_of_each_rule_is_what_one_gets_by_hand(rule):
    state = AcceptanceState().changed("rule", rule)
    wanted = torch.tensor(LAWS[rule], dtype=torch.float64)
    assert torch.allclose(state.law, wanted, rtol=0, atol=1e-9)
    assert state.acceptance == pytest.approx(1.0 if rule == KEEPS_ALL else 0.8)


@pytest.mark.parametrize("rule", RULES)
def test_draws_follow_the_law_of_the_rule(rule):
    state = AcceptanceState().changed("rule", rule).changed("draw_20000", None)
    wanted = state.law * 20_000
    some = wanted > 0
    seen = torch.tensor(state.counts, dtype=torch.float64)
    assert float(seen[~some].sum()) == 0
    test = scipy.stats.chisquare(seen[some].numpy(), wanted[some].numpy())
    assert test.pvalue > 1e-3
    assert state.accepted / 20_000 == pytest.approx(state.acceptance, abs=0.02)


def test_the_bias_is_said_in_words():
    right = AcceptanceState()
    assert right.sentence == (
        "80% of the guesses are kept. What comes out follows p exactly."
    )
    wrong = right.changed("rule", ASKS_P).changed("draw_100", None)
    assert "What comes out is 0.12 away from p, for ever." in wrong.sentence
    assert "100 drawn so far" in wrong.sentence


def test_one_draw_tells_its_story():
    state, stories = AcceptanceState(), set()
    for _ in range(40):
        state = state.changed("draw_1", None)
        stories.add(state.story)
        assert state.story in state.sentence
    assert sum(state.counts) == 40
    assert "The draft says 'I': kept." in stories
    assert any("refused, and '" in story for story in stories)


def test_moving_a_bar_keeps_the_sum_and_the_proportions_of_the_others():
    state = AcceptanceState().changed("draw_100", None).changed("p0", 20)
    assert state.rows.p == pytest.approx((0.2, 0.4, 0.3, 0.1))
    assert state.rows.q == AcceptanceState().rows.q
    assert (state.counts, state.preset) == ((), BY_HAND)
    full = state.changed("q1", 100)
    assert full.rows.q == pytest.approx((0, 1, 0, 0))
    assert full.changed("q1", 40).rows.q == pytest.approx((0.2, 0.4, 0.2, 0.2))
    assert full.changed("preset", "after 'How can'").rows == AcceptanceState().rows


def test_a_draft_that_is_the_target_is_never_refused():
    same = Rows(("a", "b", "c", "d"), (0.25,) * 4, (0.25,) * 4)
    state = AcceptanceState({"same": same})
    assert state.acceptance == pytest.approx(1)
    assert torch.equal(state.replacement, state.p)  # nothing is owed


def test_more_and_fewer_tokens():
    state = AcceptanceState()
    more = state.changed("tokens", 6)
    assert more.rows.labels == ("I", "we", "you", "it", "do", "get")
    assert more.rows.p == pytest.approx((*state.rows.p, 0, 0))
    labels = tuple("abcde")
    five = Rows(labels, (0.5, 0.2, 0.1, 0.1, 0.1), (0.2,) * 5)
    fewer = AcceptanceState({"five": five}).changed("tokens", 4)
    assert fewer.rows.p == pytest.approx((5 / 9, 2 / 9, 1 / 9, 1 / 9))


@pytest.mark.parametrize("value", [-1, 3, 9, 200])
def test_a_number_of_tokens_out_of_range_is_refused(value):
    says = f"{value} tokens are out of range; take 4 to 8."
    with pytest.raises(ValueError, match=says):
        AcceptanceState().changed("tokens", value)


def test_rows_and_rules_that_are_none_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="q is no distribution over 4 tokens"):
        Rows(tuple("abcd"), (0.25,) * 4, (0.5,) * 4)
    with pytest.raises(ValueError, match="'luck' is no rule"):
        AcceptanceState().changed("rule", "luck")
    monkeypatch.setattr(module, "MAX_DRAWS", 150)
    state = AcceptanceState().changed("draw_100", None)
    with pytest.raises(ValueError, match=r"100 draws are enough .* Start again"):
        state.changed("draw_100", None)


def test_the_picture_says_what_the_state_holds():
    state = AcceptanceState().changed("rule", ASKS_P)
    picture = draw_acceptance(state)
    drawn = texts(picture.svg)
    assert "p 0.60  q 0.80" in drawn
    assert "keep 75%" in drawn
    assert "never drawn" in drawn  # 'it': q is 0
    assert "+0.12" in drawn  # 'I' comes out too often
    assert drawn.count("◆") == 4
    right = texts(draw_acceptance(AcceptanceState()).svg)
    assert right.count("= p") == 4
    assert len(picture.handles) == 8
    first = picture.handles[0]
    assert (first.label, first.value, first.grows) == ("target p of I", 60, "up")


def test_the_share_drawn_is_the_height_of_its_bar():
    state = AcceptanceState().changed("draw_100", None)
    root = ElementTree.fromstring(draw_acceptance(state).svg)
    grey = [b for b in root.iter(f"{SVG}rect") if b.get("fill") == "#767676"]
    heights = [float(bar.get("height")) for bar in grey]
    assert heights == pytest.approx([1.5 * n for n in state.counts], abs=0.06)


def test_a_token_that_looks_like_a_page_is_a_word():
    labels = ("<script>alert(1)</script>", "b", "c", "d")
    rows = Rows(labels, (0.25,) * 4, (0.7, 0.1, 0.1, 0.1))
    svg = draw_acceptance(AcceptanceState({"<b>": rows})).svg
    assert "<script" not in svg
    assert "<script>aler" in texts(svg)


def test_controls_buttons_and_bars_work_together():
    explorer = acceptance_explorer()
    preset, tokens, rule = explorer._controls.values()
    explorer.view._handle_custom_msg({"name": "p0", "by": -10}, [])
    assert explorer.state.rows.p[0] == pytest.approx(0.5)
    assert preset.value == BY_HAND
    tokens.value = 5
    assert len(explorer.view.handles) == 10
    tokens.value = 9
    assert "9 tokens are out of range" in explorer.view.trouble
    rule.value = ASKS_P
    assert tokens.value == 5
    assert explorer.view.trouble == ""
    preset.value = "after 'How can'"
    assert explorer.state.rule == ASKS_P
    assert tokens.value == 4

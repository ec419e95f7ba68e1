"""The cost explorer without a page: prices by hand, on a simple server."""

import math
from xml.etree import ElementTree

import pytest
from cost_example import MODEL, SERVERS

from eagle3.widgets.cost_explorer import cost_explorer, draw_cost
from eagle3.widgets.cost_state import BATCHES, CostState, Server

SVG = "{http://www.w3.org/2000/svg}"


def test_yield_price_and_speedup_by_hand():
    state = CostState(SERVERS)
    assert (state.batch, state.length, state.alpha) == (8, 2, 50)
    assert state.tau == 1.75  # 1 + 0.5 + 0.25
    # A plain step: 10 + 8 rows = 18. A cycle: 2 of the draft, and 10 + 24 rows.
    assert math.isclose(state.price.draft, 2 / 18)
    assert math.isclose(state.price.target, 34 / 18)
    assert math.isclose(state.speedup, 1.75 / 2.0)
    assert math.isclose(state.curve[BATCHES.index(8)], state.speedup)
    assert state.sentence.startswith(
        "small, 8 requests: a cycle of 2 guesses yields 1.75 tokens and costs 2.00 "
        "plain steps (1.89 target, 0.11 draft): speedup 0.88. Break-even at "
    )
    assert state.sentence.endswith(
        "Measured there: EAGLE 1.20, EAGLE-3 1.60 (Table 0)."
    )


def test_the_best_chain_is_found_by_trying_all():
    state = CostState(SERVERS)
    for batch, (length, gain) in zip(BATCHES, state.best, strict=True):
        tried = []
        for n in range(11):
            tau = sum(0.5**i for i in range(n + 1))
            tried.append(tau * (10 + batch) / (n + 10 + batch * (n + 1)))
        assert math.isclose(gain, max(tried))
        assert math.isclose(tried[length], gain)


def test_a_free_draft_costs_nothing_and_a_dear_one_more():
    state = CostState(SERVERS)
    assert state.changed("draft", 0).price.draft == 0
    assert math.isclose(state.changed("draft", 400).price.draft, 8 / 18)


def test_no_guesses_is_plain_decoding():
    state = CostState(SERVERS).changed("length", 0)
    assert (state.tau, state.price.draft, state.speedup) == (1.0, 0.0, 1.0)


def test_another_server_brings_its_chain_and_its_marks():
    state = CostState(SERVERS).changed("power", 1).changed("server", "bare <b>")
    assert (state.length, state.alpha, state.batch) == (3, 80, 2)
    assert "Measured" not in state.sentence
    assert CostState(SERVERS).changed("power", 2).batch == 4
    assert "Measured" not in CostState(SERVERS).changed("power", 2).sentence


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("alpha", 101, "n-alpha is 101%; take 0 to 100%."),
        ("alpha", -1, "n-alpha is -1%"),
        ("length", 11, "The chain is 11; take 0 to 10."),
        ("draft", 401, "The draft's price is 401%; take 0 to 400%."),
        ("context", 200_000, "The context is 200000; take 0 to 100000."),
        ("batch", 3, "A batch of 3 is not drawn"),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_sentence(name, value, says):
    with pytest.raises(ValueError) as error:
        CostState(SERVERS).changed(name, value)
    assert says in str(error.value)


def test_the_picture_has_a_mark_for_every_measured_point():
    state = CostState(SERVERS)
    picture = draw_cost(state)
    root = ElementTree.fromstring(picture.svg)
    marks = [n for n in root.iter(f"{SVG}rect") if n.get("stroke-width") == "0.8"]
    assert len(marks) == 4 + 2  # and the legend's
    texts = [str(node.text) for node in root.iter(f"{SVG}text")]
    assert "1.75 tokens ✗ loses" in texts and "target 1.89" in texts
    paying = draw_cost(state.changed("power", 0))
    assert "✓ pays" in paying.svg
    (handle,) = picture.handles
    assert (handle.low, handle.high, handle.value) == (0, 10, 3)
    assert root.get("aria-label") == state.sentence


def test_a_mark_lies_on_the_line_that_has_its_value():
    # Measured exactly as foretold: then the curve runs through its marks.
    curve = CostState(SERVERS).curve
    exact = Server(MODEL, "us", {"us": (BATCHES, curve)}, length=2, alpha=50)
    root = ElementTree.fromstring(draw_cost(CostState({"exact": exact})).svg)
    line = list(root.iter(f"{SVG}polyline"))[-1].get("points").split()
    marks = [n for n in root.iter(f"{SVG}rect") if n.get("width") == "10.0"]
    for corner, mark in zip(line, marks, strict=False):
        x, y = map(float, corner.split(","))
        assert abs(x - 5 - float(mark.get("x"))) < 0.2
        assert abs(y - 5 - float(mark.get("y"))) < 0.2


def test_names_are_words_and_nothing_else():
    explorer = cost_explorer({"<script>": SERVERS["small"]})
    assert "<script" not in explorer.picture.svg
    assert explorer.view.left_behind["walked"] == "power"


def test_where_drafting_never_pays_the_words_say_so():
    state = CostState(SERVERS).changed("power", 10).changed("alpha", 10)
    assert "The best here is not to draft." in state.sentence

"""The tap picker without a page: it says what figures/results/probes.json says."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eagle3.bench.environment import read_results
from eagle3.widgets.tap_picker import draw_taps, tap_picker
from eagle3.widgets.tap_state import Probes, TapState

RESULTS = Path(__file__).parents[1] / "figures" / "results"
SVG = "{http://www.w3.org/2000/svg}"
STORED = {
    "taps": [1, 2, 4],
    "data": {"test_examples": 100},
    "singles": {
        "layers": [1, 2, 4, 6, 8],  # 8 stands for the top feature: in no triple
        "next": [0.1, 0.2, 0.3, 0.6, 0.9],
        "after_next_with_token": [0.15, 0.17, 0.2, 0.19, 0.1],
    },
    "triples": {
        "columns": ["low", "middle", "high", "next", "after_next_with_token"],
        "rows": [
            [1, 2, 4, 0.31, 0.20],
            [1, 2, 6, 0.61, 0.24],
            [1, 4, 6, 0.62, 0.32],
            [2, 4, 6, 0.63, 0.24],
        ],
    },
}
PROBES = Probes.from_results(STORED)


def test_the_top_feature_is_no_tap():
    assert PROBES.layers == (1, 2, 4, 6)
    assert PROBES.next == (0.1, 0.2, 0.3, 0.6)
    assert PROBES.after == (0.15, 0.17, 0.2, 0.19)


def test_it_begins_with_the_rules_taps():
    state = TapState(PROBES)
    assert (state.taps, state.shares, state.place) == ((1, 2, 4), (0.31, 0.20), 4)
    # A share of 0.2 among 100: one standard error is sqrt(0.2 * 0.8 / 100) = 0.04.
    assert math.isclose(state.chance, 0.04)
    assert state.sentence == (
        "Taps 1, 2, 4 (the rule's): a probe on the three is right about the next token "
        "in 31.0%, about the one after in 20.0%, place 4 of 4. The best, 1, 4, 6, are "
        "12.0% ahead, beyond twice the 4.0% that chance moves it."
    )


def test_the_best_three_and_equal_places():
    best = TapState(PROBES, 1, 4, 6)
    assert best.place == 1 and best.sentence.endswith("No other three do better.")
    assert TapState(PROBES, 1, 2, 6).place == TapState(PROBES, 2, 4, 6).place == 2
    assert ", within twice the" in TapState(PROBES, 1, 2, 6).sentence


def test_taps_move_by_layer_or_by_place():
    state = TapState(PROBES).changed("high", 6)
    assert state.taps == (1, 2, 6)
    assert state.changed("at middle", 2).taps == (1, 4, 6)
    assert state.changed("rule", "").taps == (1, 2, 4)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("low", 4, "4, 2, 4 don't ascend; take three different layers"),
        ("middle", 1, "1, 1, 4 don't ascend"),
        ("high", 5, "Layer 5 was not probed as the high tap; take one of 1, 2, 4, 6."),
        ("high", 8, "Layer 8 was not probed"),
    ],
)
def test_what_was_not_measured_is_refused_in_one_sentence(name, value, says):
    with pytest.raises(ValueError) as error:
        TapState(PROBES).changed(name, value)
    assert says in str(error.value)


def test_a_rule_that_was_not_measured_is_refused():
    with pytest.raises(ValueError, match="were not measured"):
        Probes.from_results(STORED | {"taps": [1, 2, 3]})


def test_the_picture_marks_the_taps_and_its_knobs_never_meet():
    state = TapState(PROBES, 1, 4, 6)
    picture = draw_taps(state)
    root = ElementTree.fromstring(picture.svg)
    texts = [str(node.text) for node in root.iter(f"{SVG}text")]
    # Both panels, in percent: the next token, then the one after.
    assert {"◆ l 10", "◆ m 30", "◆ h 60"} <= set(texts)
    assert {"◆ l 15", "◆ m 20", "◆ h 19"} <= set(texts)
    assert {"62.0%", "32.0%"} <= set(texts)
    assert root.get("aria-label") == state.sentence
    low, middle, high = picture.handles
    assert (low.low, low.high, low.value) == (0, 1, 0)
    assert (middle.low, middle.high, middle.value) == (1, 2, 2)
    assert (high.low, high.high, high.value) == (3, 3, 3)
    assert high.text == "layer 6"


def test_every_triple_of_the_measured_file_can_be_shown():
    stored = read_results("probes", RESULTS)
    explorer = tap_picker(stored)
    assert explorer.state.taps == tuple(stored["taps"])
    assert explorer.view.left_behind["walked"] == "at middle"
    layers = explorer.state.probes.layers
    assert math.comb(len(layers), 3) == len(stored["triples"]["rows"])
    rows = {tuple(row[:3]): row[3:] for row in stored["triples"]["rows"]}
    for taps in list(rows)[::40]:
        state = TapState(explorer.state.probes, *taps)
        assert list(state.shares) == rows[taps]
        ElementTree.fromstring(draw_taps(state).svg)

"""eagle3.measure_plots: counts, costs and pictures, on cycles and runs made by hand.

Right values are sums done by hand; texts and places are read back from the SVG.
"""

import xml.etree.ElementTree as ElementTree

import pytest

from eagle3 import figures
from eagle3.bench.environment import read_results
from eagle3.measure_plots import (
    CycleCost,
    anatomy_svg,
    anatomy_words,
    cycle_cost,
    cycle_counts,
    pick,
    picked_svg,
    speed_steps,
)
from eagle3.trace import TraceRow

ROWS = [
    TraceRow(1, "I", ("do", "it", "now"), 3, "!", "bonus", 4, 9, 5),
    TraceRow(2, "!", ("No", "one", "can"), 0, "Yes", "replacement", 1, 10, 9),
    TraceRow(3, "Yes", ("you", "may"), 1, "can", "replacement", 2, 12, 10),
]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [node.text for node in root if node.tag.endswith("text")]


def test_a_guess_behind_a_miss_is_drafted_and_not_judged():
    assert [list(cycle_counts(row).values()) for row in ROWS] == [
        [3, 3, 3, 4],
        [3, 1, 0, 1],
        [2, 2, 1, 2],
    ]


def test_the_words_hold_every_metric():
    assert anatomy_words(ROWS) == (
        "3 cycles: 8 guesses drafted, 6 judged, 4 accepted, 7 tokens emitted; "
        "acceptance length 2.33 with the target's own token, 1.33 without; 0.50 of the "
        "drafted and 0.67 of the judged guesses accepted"
    )


def test_the_anatomy_marks_every_token_and_adds_up():
    svg = anatomy_svg(ROWS)
    assert ElementTree.fromstring(svg).get("aria-label") == anatomy_words(ROWS)
    words = texts(svg)
    assert {"do ✓", "now ✓", "No ✗", "one –", "may ✗", "can +1"} <= set(words)
    assert words[-4:] == ["8", "6", "4", "7"]


def test_a_token_past_the_end_is_marked_as_cut():
    ended = TraceRow(1, "I", ("do", "it"), 2, "now", "bonus", 2, 9, 5)
    assert "now cut" in texts(anatomy_svg([ended]))


def run(method: str, seconds: float, passes: int, **more) -> dict:
    shares = {"target_share": 1.0, "draft_share": 0.0, "other_share": 0.0}
    row = {"method": method, "seconds": seconds, "target_passes": passes}
    return row | {"num_tokens": 21} | shares | more


def test_a_cycle_is_priced_in_plain_passes():
    """A pass costs 0.1 s; the draft's cycle 0.2 s, of it 0.12 verify, 0.06 draft."""
    shares = {"target_share": 0.6, "draft_share": 0.3, "other_share": 0.1}
    runs = [run("vanilla", 2.0, 20), run("fast", 1.6, 8, **shares)]
    cost = cycle_cost(runs, "fast")
    assert cost.tau == 2.5
    parts = (cost.target, cost.draft, cost.other)
    assert parts == pytest.approx((1.2, 0.6, 0.2))
    assert cost.speedup == pytest.approx(2.0 / 1.6)  # the times themselves
    steps = [2.5, 2.5 / 1.2, 2.5 / 1.8, 1.25]
    assert list(cost.steps.values()) == pytest.approx(steps)
    with pytest.raises(ValueError, match="target passes of 'library'"):
        cycle_cost([*runs, run("library", 1.0, 0)], "library")


def test_the_steps_go_down_from_tau_to_the_speedup():
    figure = speed_steps(CycleCost(2.5, 1.2, 0.6, 0.2))
    (axes,) = figure.axes
    says = [text.get_text().split("\n")[0] for text in axes.texts]
    assert says == ["2.50", "2.08", "1.39", "1.25"]
    assert next(t.get_text() for t in axes.get_xticklabels()) == "tau"


def test_every_measured_run_can_be_picked():
    measured = read_results("methods", figures.RESULTS)
    for temperature, summary in measured["temperatures"].items():
        for label, row in summary.items():
            picked = pick(measured, label, float(temperature))
            ratios = [ratio for _, ratio in picked.ratios]
            mean = sum(ratios) / len(ratios)
            assert mean == pytest.approx(row["speedup"], rel=2e-3)
            svg = picked_svg(picked)
            assert ElementTree.fromstring(svg).get("aria-label") == picked.words
            assert svg.count("<circle") == len(ratios)
            known = "its passes and times are not known" not in texts(svg)
            assert known == bool(row["acceptance_length"])
    with pytest.raises(ValueError, match="'Magic' was not measured"):
        pick(measured, "Magic", 0.0)
    with pytest.raises(ValueError, match=r"at temperature 0\.5"):
        pick(measured, "Vanilla", 0.5)

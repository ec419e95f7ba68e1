"""eagle3.tap_plots: the pictures of chapter 5 say what their data say.

Texts, line data and looks are read back from the figures; right values are the data
that went in, and the results file for what the picker shows.
"""

from itertools import combinations
from pathlib import Path

from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from eagle3 import tap_plots
from eagle3.bench.environment import read_results
from eagle3.drawing import ACCEPTED, DRAFT, NEUTRAL, TARGET

RESULTS = Path(__file__).parents[1] / "figures" / "results"


def texts(figure) -> list[str]:
    found = [text.get_text() for text in figure.axes[0].texts]
    return [text for text in found if text]  # an arrow has an empty one


def boxes(figure) -> list[FancyBboxPatch]:
    return [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]


def test_lens_grid_marks_what_the_answer_will_be():
    rows = {"enters 0": ["a", "x$y$"], "enters 1": ["b", "y"], "answer": ["b", "x$y$"]}
    figure = tap_plots.lens_grid(["A", "B"], rows)
    said = texts(figure)
    assert said[:2] == ["A", "B"]
    cells = [text for text in said[2:] if text not in rows]
    assert cells == ["a", "x$y$ ✓", "b ✓", "y", "b ✓", "x$y$ ✓"]
    edges = [to_hex(b.get_edgecolor()).upper() for b in boxes(figure)]
    want = [ACCEPTED if cell.endswith("✓") else NEUTRAL for cell in cells]
    assert edges == want


def test_depth_curves_draws_curves_taps_and_the_live_run():
    curves = {"one": [0.1, 0.2, 0.3, 0.4, 0.5], "two": [0.5, 0.4, 0.3, 0.2, 0.1]}
    figure = tap_plots.depth_curves(
        (0, 1, 2, 3, 9), curves, (1, 2, 3), {"two": {0: 0.45, 9: 0.05}}
    )
    (axes,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert {name: drawn[name] for name in curves} == curves
    places = [
        list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) > 2
    ]
    assert places == [[0, 1, 2, 3, 9]] * 2
    assert texts(figure) == ["l (1)", "m (2)", "h (3)"]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in hollow] == [
        (0, 0.45),
        (9, 0.05),
    ]
    looks = {
        (line.get_marker(), line.get_linestyle())
        for line in axes.lines
        if line.get_label() in curves
    }
    assert len(looks) == len(curves)  # told apart without colour
    assert axes.get_xticklabels()[-1].get_text() == "top\nfeature"


def test_triple_cloud_has_a_point_for_each_triple():
    rows = [[0, 1, 2, 0.1, 0.2], [0, 1, 3, 0.3, 0.1], [1, 2, 3, 0.5, 0.4]]
    figure = tap_plots.triple_cloud(rows, {"best": rows[2]})
    cloud, mark = figure.axes[0].lines
    assert list(cloud.get_xdata()) == [0.1, 0.3, 0.5]
    assert list(cloud.get_ydata()) == [0.2, 0.1, 0.4]
    assert (mark.get_xdata(), mark.get_ydata()) == ([0.5], [0.4])
    assert mark.get_label() == "best (1, 2, 3)"
    assert cloud.get_label() == "all 3 triples"


def test_fusion_names_taps_lengths_and_shares():
    figure = tap_plots.fusion((2, 15, 27), (30.4, 60.0, 99.6), (1.0, 2.0, 3.25), 576)
    said = texts(figure)
    for part in (
        "l: enters layer 2\nlength 30",
        "h: enters layer 27\nlength 100",
        "its block\n576 x 576",
        "adds 3.2",
        "side by side, 1728",
    ):
        assert part in said, part
    edges = [to_hex(b.get_edgecolor()).upper() for b in boxes(figure)]
    assert (edges.count(TARGET), edges.count(DRAFT)) == (6, 4)


def test_knocked_out_draws_a_bar_for_each_guess():
    figure = tap_plots.knocked_out({"none": (0.7, 0.5), "l": (0.6, 0.4)}, ["1", "2"])
    bars = [bar.get_width() for bar in figure.axes[0].patches]
    assert bars == [0.7, 0.5, 0.6, 0.4]
    assert texts(figure) == ["0.70", "0.50", "0.60", "0.40"]
    hatches = [bar.get_hatch() for bar in figure.axes[0].patches]
    assert hatches == ["", "//", "", "//"]


def test_the_results_hold_every_triple_once_and_sane_shares():
    """Right values: combinatorics, and a head that names its own feature's token."""
    stored = read_results("probes", RESULTS)
    *layers, top = stored["singles"]["layers"]
    assert top == 30 and set(stored["taps"]) < set(layers)
    found = [tuple(row[:3]) for row in stored["triples"]["rows"]]
    assert found == list(combinations(layers, 3))
    singles = stored["singles"]
    for name in ("next", "after_next", "after_next_with_token"):
        assert len(singles[name]) == len(layers) + 1
        assert all(0 <= share <= 1 for share in singles[name])
    # On the top feature the probe for the next token is nearly the identity.
    covered = stored["data"]["tokens_cover"]
    assert 0.95 * covered < singles["next"][-1] <= covered + 1e-4

"""eagle3.feature_plots: the pictures of chapter 4 say what their data say.

Texts, line data and looks are read back from the figures; right values are the data
that went in, and the alignment rule of the paper's section 2.2.
"""

import json
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from eagle3 import feature_plots
from eagle3.plots import DRAFT, TARGET

PAPER = Path(__file__).parents[1] / "figures" / "paper"
BRANCHES = [(" am", 0.25, " a"), (" $x$", 0.125, " b"), (" go", 0.0625, " c")]


def texts(figure) -> list[str]:
    found = [text.get_text() for text in figure.axes[0].texts]
    return [text for text in found if text]  # an arrow has an empty one


def boxes(figure) -> list[FancyBboxPatch]:
    return [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]


def test_ambiguity_draws_one_feature_and_a_row_for_each_branch():
    figure = feature_plots.ambiguity(" I", BRANCHES)
    said = texts(figure)
    assert said.count("feature of\n␣I") == 1
    for token, share, following in BRANCHES:
        word = token.replace(" ", "␣")
        assert f"{word}  {share:.3f}" in said
        assert f"feature of {word}" in said
        assert following.replace(" ", "␣") in said
    edges = [to_hex(box.get_edgecolor()).upper() for box in boxes(figure)]
    assert edges.count(TARGET) == 1 + len(BRANCHES)  # all features are the target's


def test_step_pairs_feature_i_with_token_i_plus_1():
    words = ["A", "B", "C", "D", "E"]
    said = texts(feature_plots.step(words, known=2))
    first = said.index("0: A")
    columns = [said[first + 5 * i : first + 5 * (i + 1)] for i in range(4)]
    assert columns == [
        ["0: A", "f of A", "e of B", "f̂ of B", "(C is known)"],
        ["1: B", "f of B", "e of C", "f̂ of C", "D"],
        ["2: C", "f̂ of C", "e of D", "f̂ of D", "E"],
        ["3: D", "f̂ of D", "e of E", "f̂ of E", "next"],
    ]


def test_step_marks_estimates_by_colour_and_by_a_dash():
    figure = feature_plots.step(["A", "B", "C", "D", "E"], known=2)
    features = boxes(figure)[1::3]  # after the layer: feature, token, output
    looks = [
        (to_hex(box.get_edgecolor()).upper(), box.get_linestyle()) for box in features
    ]
    assert looks == [(TARGET, "-")] * 2 + [(DRAFT, "--")] * 2


def test_shares_draws_and_writes_each_share():
    figure = feature_plots.shares({"one": 0.25, "two": 0.5}, "right")
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.25, 0.5]
    assert texts(figure) == [" 25%", " 50%"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["one", "two"]


@pytest.fixture
def curves():
    return {
        name: ([10, 20], [[0.1 * i, 0.2, 0.9], [0.3, 0.1 * i, 0.9]])
        for i, name in enumerate(("a", "b", "c", "d"))
    }


def test_alpha_curves_draws_ours_in_two_panels_and_the_paper_apart(curves):
    figure = feature_plots.alpha_curves(curves, {"x": (0.2, 0.3), "y": (0.7, 0.78)})
    ours = figure.axes[:2]
    for n, axes in enumerate(ours):
        drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
        assert drawn == {
            name: [row[n] for row in alphas] for name, (_, alphas) in curves.items()
        }
        assert axes.get_title() == f"{n}-alpha, our runs"
    paper = figure.axes[2]
    assert not paper.lines
    bars = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in paper.patches]
    assert bars == [pytest.approx((0.2, 0.3)), pytest.approx((0.7, 0.78))]
    assert "paper" in paper.get_title()


def test_alpha_curves_tells_runs_apart_without_colour(curves):
    axes = feature_plots.alpha_curves(curves, {"x": (0, 1)}).axes[0]
    looks = {(line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(curves)


def test_the_papers_ranges_say_where_they_come_from():
    figure4 = json.loads((PAPER / "figure4.json").read_text(encoding="utf-8"))
    assert "2503.01840" in figure4["source"]
    assert "read off the plot" in figure4["how"]
    # The source document's readings of Figure 4.
    assert figure4["one_alpha"] == {
        "EAGLE without feature loss": [0.2, 0.3],
        "EAGLE-3": [0.7, 0.78],
    }

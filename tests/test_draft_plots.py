"""eagle3.draft_plots: the pictures of chapter 6 say what their data say.

Texts, line data and looks are read back from the figures; right values are the data
that went in, and the shapes of a config.
"""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from eagle3 import draft_plots
from eagle3.draft import DraftConfig
from eagle3.drawing import ACCEPTED, DRAFT, NEUTRAL, REJECTED, TARGET
from eagle3.rope import RopeConfig

CONFIG = DraftConfig(
    hidden_size=64,
    target_hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    vocab_size=9600,
    draft_vocab_size=4800,
    rms_norm_eps=1e-5,
    rope=RopeConfig(10_000.0),
    max_positions=512,
    taps=(2, 4, 5),
)


def texts(figure) -> list[str]:
    return [t.get_text() for t in figure.axes[0].texts if t.get_text()]


def test_block_writes_the_sizes_of_its_config():
    said = texts(draft_plots.block(CONFIG))
    for part in (
        "features l, m, h: 3 x 64",
        "fc: 192 to 64",
        "embedding: 9,600 x 64",
        "side by side, e first: 128",
        "q, k, v: 128 to 64, 32, 32",
        "attention, 4 heads, then o: 64 to 64",
        "MLP: 64 to 128 to 64",
        "own head: 4,800",
        "d2t, into 9,600",
    ):
        assert part in said, part
    wider = texts(draft_plots.block(replace(CONFIG, num_heads=8)))
    assert "q, k, v: 128 to 128, 32, 32" in wider


def test_block_shows_whose_each_part_is():
    figure = draft_plots.block(CONFIG)
    boxes = [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]
    edges = [to_hex(b.get_edgecolor()).upper() for b in boxes]
    assert edges.count(TARGET) == 3  # features, embedding, e
    assert edges.count(NEUTRAL) == 2  # side by side, d2t
    assert edges.count(DRAFT) == len(edges) - 5


def test_spectrum_fills_both_sides_of_the_limit():
    figure = draft_plots.spectrum([5.0, 4.0, 2.0, 1.0], 3)
    curve, limit = figure.axes[0].lines
    assert list(curve.get_ydata()) == [5.0, 4.0, 2.0, 1.0]
    assert limit.get_xdata()[0] == 3
    assert "the first 3: one FC carries them" in texts(figure)


def test_parameter_bars_cut_each_draft_into_its_parts():
    counts = {"a": {"head": 30, "embedding (frozen)": 10}}
    counts["b"] = {"head": 5_000_000, "embedding (frozen)": 15_000_000}
    figure = draft_plots.parameter_bars(counts)
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.75, 0.25, 0.25, 0.75]
    assert [bar.get_x() for bar in bars] == [0, 0.75, 0, 0.25]
    assert [bar.get_hatch() for bar in bars] == ["", "//", "", "//"]
    frozen = {to_hex(bar.get_facecolor()).upper() for bar in bars[1::2]}
    assert frozen == {TARGET}
    assert {"5.0M", "15.0M", "20.0M"} <= set(texts(figure))


def test_coverage_curve_draws_both_texts_and_the_choice():
    curves = {"counted": [0.5, 0.75, 1.0], "held out": [0.4, 0.7, 0.9]}
    figure = draft_plots.coverage_curve([100, 200, 400], curves, 200)
    *lines, chosen = figure.axes[0].lines
    assert {line.get_label(): list(line.get_ydata()) for line in lines} == curves
    assert chosen.get_xdata()[0] == 200
    assert texts(figure) == [" the shipped draft: 200"]
    looks = {(line.get_marker(), line.get_linestyle()) for line in lines}
    assert len(looks) == 2


def test_two_guesses_marks_the_one_without_mistake():
    figure = draft_plots.two_guesses({"fine": (0.7, 0.5), "bad": (0.7, 0.1)}, "fine")
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.7, 0.5, 0.7, 0.1]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in bars]
    assert colours == [ACCEPTED, ACCEPTED, REJECTED, REJECTED]
    assert texts(figure) == ["0.70", "0.50", "0.70", "0.10"]


def test_shapes_svg_says_shape_and_weights():
    stations = [("in", (3, 8), 0), ("g = fc", (3, 4), 2_000_000), ("a", (3, 4), 500)]
    tree = ElementTree.fromstring(draft_plots.shapes_svg("tiny", stations))
    said = [element.text for element in tree.iter() if element.text]
    words = "tiny: 2.00 million weights are read for one pass"
    assert words in said and tree.get("aria-label") == words
    assert {"in", "[3, 8]", "2M", "0.0005M"} <= set(said)
    bars = [e for e in tree.iter() if e.tag.endswith("rect")][1:]
    assert [float(b.get("width")) for b in bars] == pytest.approx([290, 1])

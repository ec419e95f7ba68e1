"""The pictures of chapter 1 hold the numbers that they were given.

Right values: lengths and places are read back from the figure or the SVG text and
compared with the data, and with the roofline's own formula.
"""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from eagle3 import plots
from eagle3.bench.roofline import Machine, Work

MACHINE = Machine(bandwidth=2e9, peak=40e9)  # ridge at 20 FLOP per byte


def test_computed_and_cached_positions_are_told_apart():
    panels = {"none": [(0, 2), (0, 3)], "cache": [(0, 2), (2, 3)]}
    figure = plots.computed_positions(["a", "b", "c"], panels)
    drawn = [
        [
            (bars.patches[0].get_hatch(), len(bars.patches))
            for bars in axes.containers
            if bars.patches
        ]
        for axes in figure.axes
    ]
    assert drawn == [[("", 2), ("", 3)], [("", 2), ("///", 2), ("", 1)]]
    assert figure.axes[0].yaxis_inverted()


def test_shares_lie_end_to_end():
    (axes,) = plots.shares({"a": 3.0, "b": 1.5, "c": 0.5}, "MB").axes
    bars = [bar for bars in axes.containers for bar in bars]
    assert [bar.get_width() for bar in bars] == [3.0, 1.5, 0.5]
    assert [bar.get_x() for bar in bars] == [0.0, 3.0, 4.5]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["a: 3.0 MB", "b: 1.5 MB", "c: 0.5 MB"]


def test_curves_draw_each_series_with_a_look_of_its_own():
    series = {"ours": [1.0, 2.0], "theirs": [3.0, 5.0]}
    (axes,) = plots.curves([1, 4], series, ("rows", "ms")).axes
    assert [list(line.get_ydata()) for line in axes.lines] == list(series.values())
    looks = {(line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 2
    assert axes.get_ylim()[0] == 0
    (logarithmic,) = plots.curves([1, 4], series, ("rows", "ms"), log=True).axes
    assert (logarithmic.get_xscale(), logarithmic.get_yscale()) == ("log", "log")


def test_the_roof_bends_at_the_ridge_and_points_lie_where_they_were_measured():
    points = {"decode": (0.5, 0.4e9), "prefill": (100.0, 30e9)}
    (axes,) = plots.roofline(MACHINE, points).axes
    roof, ridge, *drawn = axes.lines
    x, y = roof.get_data()
    assert np.allclose(y, np.minimum(40, 2 * x))  # GFLOP per second
    assert ridge.get_xdata()[0] == 20
    places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn]
    assert places == [(0.5, 0.4), (100.0, 30.0)]


def test_the_widgets_bars_are_times_and_its_dots_sit_on_the_roof():
    works = {"plain": Work(8e9, 4e9), "block <6>": Work(160e9, 4e9)}  # 2 s, 4 s
    svg = plots.cost_svg(MACHINE, works, "a & b")
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "a & b"
    bars = [
        float(node.get("width"))
        for node in root
        if node.tag.endswith("rect") and node.get("stroke")
    ]
    # fetch 2 s and compute 0.2 s, then fetch 2 s and compute 4 s; 180 pixels for 4 s
    assert bars == pytest.approx([90, 9, 90, 180], abs=0.05)
    texts = [node.text for node in root if node.tag.endswith("text")]
    assert {"fetch 2.00 s", "compute 200.00 ms", "compute 4.00 s"} <= set(texts)
    (line,) = re.findall(r'polyline points="([^"]+)"', svg)
    (_, low_y), (ridge_x, top_y), _ = (
        tuple(map(float, corner.split(","))) for corner in line.split()
    )
    dots = [
        (float(node.get("cx")), float(node.get("cy")))
        for node in root
        if node.tag.endswith("circle")
    ]
    (x1, y1), (x2, y2) = dots
    assert x1 < ridge_x < x2  # 2 FLOP per byte, 40 FLOP per byte
    assert top_y < y1 < low_y
    assert y2 == top_y
    assert svg == plots.cost_svg(MACHINE, works, "a & b")


@pytest.mark.parametrize("intensity", [0.0001, 1e9])
def test_a_pass_off_the_scale_stays_in_the_picture(intensity):
    svg = plots.cost_svg(MACHINE, {"x": Work(intensity, 1.0)}, "words")
    x, y = map(float, re.search(r'cx="([\d.]+)" cy="([\d.]+)"', svg).groups())
    assert 0 < x < 340
    assert 0 < y < 260

"""eagle3.paper_plots: the pictures of chapter 13 show the paper's cells, and no more.

Right values are the committed tables, read back from the figures.
"""

import re
import xml.etree.ElementTree as ElementTree

from eagle3 import paper_plots
from eagle3.paper import cells, gains, read_paper, table1
from eagle3.plots import DRAFT

CELLS = cells(table1())


def points(axes) -> list[tuple[float, float]]:
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_marker() not in ("None", None)
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def test_every_cell_is_a_point_of_the_papers_panel_and_ours_has_its_own():
    ours = {"EAGLE-3 chain": [(1.8, 1.5), (2.0, 1.6)], "Medusa": [(1.5, 1.2)]}
    figure = paper_plots.speedup_against_tau(CELLS, ours)
    left, right = figure.axes
    assert points(left) == [(c.tau, c.speedup) for c in CELLS]
    assert sorted(points(right)) == sorted(p for v in ours.values() for p in v)
    assert "paper" in left.get_title() and "our" in right.get_title()


def test_without_runs_the_panel_says_so():
    figure = paper_plots.speedup_against_tau(CELLS, {})
    said = [text.get_text() for text in figure.axes[1].texts]
    assert "not yet measured" in said
    assert not points(figure.axes[1])


def test_methods_have_markers_of_their_own():
    figure = paper_plots.speedup_against_tau(CELLS, {})
    marks = {
        line.get_label(): line.get_marker()
        for line in figure.axes[0].lines
        if not line.get_label().startswith("_")
    }
    assert len(set(marks.values())) == len(marks) == 5


def test_the_scatter_svg_has_a_mark_for_each_cell_and_labels_the_best():
    chosen = [c for c in CELLS if c.method == "EAGLE-3" and c.temperature == 0]
    svg = paper_plots.scatter_svg(chosen, "20 cells")
    ElementTree.fromstring(svg)
    circles = re.findall(rf'<circle [^>]*fill="{DRAFT}"', svg)
    assert len(circles) == len(chosen) + 1  # and one in the key
    assert ">HumanEval 6.47x<" in svg
    assert 'aria-label="20 cells"' in svg


def test_the_scatter_svg_of_nothing_is_a_picture_all_the_same():
    ElementTree.fromstring(paper_plots.scatter_svg([], "no cell"))


def test_the_bars_of_figure_2_carry_its_labels():
    data = read_paper("figure2")
    figure = paper_plots.labelled_bars(data)
    for axes, (model, bars) in zip(figure.axes, data["speedup"].items(), strict=True):
        assert [bar.get_height() for bar in axes.patches] == list(bars.values())
        said = [text.get_text() for text in axes.texts]
        assert said == [f"{value:.1f}" for value in bars.values()]
        assert axes.get_title().startswith(model)


def test_the_grid_marks_what_lies_outside_of_the_text():
    found = gains(table1(), "EAGLE-3", "EAGLE-2")
    figure = paper_plots.gain_grid(found, (1.2, 1.4))
    said = [text.get_text() for text in figure.axes[0].texts]
    assert len(said) == 40
    assert sum(text.endswith((" ^", " v")) for text in said) == 15
    assert "1.00 v" in said and "1.65 ^" in said

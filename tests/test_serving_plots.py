"""eagle3.serving_plots: the pictures of chapter 14 show what they were given.

Right values are the data that went in, read back from lines, texts and SVG.
"""

from eagle3.paper import read_paper
from eagle3.serving_plots import (
    against_batch,
    frontier,
    throughput_ratio,
)

TABLES = {"SGLang": read_paper("table3"), "vLLM": read_paper("table5")}


def lines_of(axes) -> dict:
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines
        if not line.get_label().startswith("_")
    }


def test_each_table_has_a_panel_with_both_methods():
    figure = throughput_ratio(TABLES)
    for axes, (title, table) in zip(figure.axes, TABLES.items(), strict=True):
        assert axes.get_title() == title
        drawn = lines_of(axes)
        assert drawn == {
            method: (table["batches"], ratios)
            for method, ratios in table["throughput"].items()
        }
        markers = {line.get_marker() for line in axes.lines}
        assert {"s", "o"} <= markers


def test_a_models_lines_stand_beside_the_points():
    models = {"vLLM": {"a machine": ([1, 64], [2.0, 0.5])}}
    figure = throughput_ratio(TABLES, models)
    assert "a machine" not in lines_of(figure.axes[0])
    assert lines_of(figure.axes[1])["a machine"] == ([1, 64], [2.0, 0.5])


def test_ticks_are_powers_of_two():
    axes = throughput_ratio(TABLES).axes[0]
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["2", "4", "8", "16", "32", "64"]


def test_against_batch_draws_its_curves_and_the_level():
    figure = against_batch({"left": {"a": ([1, 2], [3, 4])}}, "steps", level=1)
    (axes,) = figure.axes
    assert lines_of(axes) == {"a": ([1, 2], [3, 4])}
    assert list(axes.lines[-1].get_ydata()) == [1, 1]
    assert axes.get_ylabel() == "steps"


def test_the_frontier_labels_batches_and_draws_the_limit():
    figure = frontier({"plain": [(1, 5.0, 200.0), (8, 7.0, 1100.0)]}, limit=6.0)
    (axes,) = figure.axes
    assert lines_of(axes)["plain"] == ([5.0, 7.0], [200.0, 1100.0])
    said = [text.get_text() for text in axes.texts]
    assert said == ["1", "8", "limit 6 ms"]

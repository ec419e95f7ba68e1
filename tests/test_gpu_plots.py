"""eagle3.gpu_plots: bars as long as the times, and words where there are none.

Right values are numbers chosen by hand and read back from the figures.
"""

from dataclasses import fields

import pytest
from matplotlib.colors import to_hex

from eagle3.gpu.memory import Ledger
from eagle3.gpu_plots import (
    LOOKS,
    NOT_MEASURED,
    ledger_figure,
    stages_figure,
    throughput_figure,
    timeline_svg,
    waterfall,
)
from eagle3.plots import ACCEPTED, REJECTED, TARGET

STAGES = {"draft": 0.01, "target": 0.05, "accept": 0.002, "copy": 0.0, "host": 0.003}
WAYS = {"plain": STAGES, "better": {**STAGES, "target": 0.04}, "graphs": None}


def texts(axes) -> list[str]:
    return [text.get_text().strip() for text in axes.texts]


def test_a_bar_is_cut_into_its_stages():
    (axes,) = stages_figure(WAYS).axes
    widths = [round(bar.get_width(), 6) for bar in axes.patches]
    assert widths == [10, 50, 2, 0, 3, 10, 40, 2, 0, 3]
    lefts = [round(bar.get_x(), 6) for bar in axes.patches[:5]]
    assert lefts == [0, 10, 60, 62, 62]
    assert texts(axes) == ["65.0 ms", "55.0 ms", NOT_MEASURED]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(WAYS)
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == list(LOOKS)


def test_each_stage_has_a_hatch_of_its_own():
    assert len({hatch for _, hatch in LOOKS.values()}) == len(LOOKS)


def test_a_waterfall_falls_and_rises():
    totals = {"plain": 0.065, "first": 0.055, "second": 0.058, "graphs": None}
    (axes,) = waterfall(totals).axes
    bars = [(round(b.get_y(), 6), round(b.get_height(), 6)) for b in axes.patches]
    assert bars == [(0, 65), (65, -10), (55, 3), (0, 58)]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    assert colours == [TARGET, ACCEPTED, REJECTED, TARGET]
    assert texts(axes) == ["65.0", "-10.0", "+3.0", NOT_MEASURED, "58.0"]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["plain", "first", "second", "graphs", "in all:\nsecond"]


def test_a_timeline_says_what_it_shows():
    svg = timeline_svg(WAYS, "cycle 3 <of> 9")
    assert 'role="img"' in svg and 'aria-label="cycle 3 &lt;of&gt; 9"' in svg
    assert svg.count("<rect") == 1 + 2 * len(LOOKS) + len(LOOKS)
    for word in ("65.0 ms", "55.0 ms", NOT_MEASURED, *LOOKS, *WAYS):
        assert f">{word}<" in svg


def row(method, scale, predicted):
    batches = [1, 2, 4]
    return {
        "method": method,
        "batches": batches,
        "tokens_per_second": [scale * b for b in batches],
        "speedup": [scale, scale, 1.0],
        "predicted": predicted,
    }


def test_throughput_and_speedup_stand_side_by_side():
    methods = {
        "Vanilla": row("vanilla", 10.0, [1, 1, 1]),
        "EAGLE-1 chain 2": row("eagle1-chain-2", 15.0, [1.2, 1, 0.9]),
        "EAGLE-3 chain 3": row("eagle3-chain-3", 20.0, [2, 1.8, 1.1]),
    }
    left, right = throughput_figure(methods).axes
    drawn = [list(line.get_ydata()) for line in left.lines]
    assert drawn == [[10, 20, 40], [15, 30, 60], [20, 40, 80]]
    drawn = [list(line.get_ydata()) for line in right.lines]
    assert drawn == [[15, 15, 1], [1.2, 1, 0.9], [20, 20, 1], [2, 1.8, 1.1], [1, 1]]
    looks = {(line.get_color(), line.get_marker()) for line in left.lines}
    assert len(looks) == 3
    assert [text.get_text() for text in left.get_legend().get_texts()] == list(methods)


def test_a_ledger_adds_up():
    ledgers = {"a": {"weights": 2**30, "kv": 2**29}, "b": {"weights": 2**31, "kv": 0}}
    (axes,) = ledger_figure(ledgers).axes
    assert [bar.get_width() for bar in axes.patches] == [1, 2, 0.5, 0]
    assert texts(axes) == ["1.5", "2.0"]


def test_every_purpose_of_a_ledger_has_a_look_of_its_own():
    purposes = [field.name for field in fields(Ledger)]
    (axes,) = ledger_figure({"all": dict.fromkeys(purposes, 2**30)}).axes
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(looks) == len(purposes)


@pytest.mark.parametrize("name", ["stages", "waterfall"])
def test_what_was_not_measured_has_no_bar(name):
    if name == "stages":
        (axes,) = stages_figure({"a": STAGES, "b": None}).axes
        assert len(axes.patches) == len(LOOKS)
    else:
        (axes,) = waterfall({"a": 1.0, "b": None}).axes
        assert len(axes.patches) == 2

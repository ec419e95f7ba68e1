"""eagle3.plots: the pictures hold the numbers they were given, and words beside them.

Right values come from the data that goes in: bar heights are read back from the figure
or from the SVG text and compared with it.
"""

import xml.etree.ElementTree as ElementTree

import ipywidgets
import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

from eagle3 import plots

WORDS = ["I", "we", "a $b$ <c>"]
P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.8, 0.0, 0.2])


def heights(axes) -> dict[str, list[float]]:
    return {
        bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers
    }


def test_overlap_splits_each_bar_into_shared_owed_and_rejected():
    figure = plots.overlap({"one": (WORDS, P, Q), "two $": (WORDS, Q, P)})
    first, second = (heights(axes) for axes in figure.axes)
    assert first["both: accepted"] == pytest.approx([0.6, 0.0, 0.1])
    assert first["target only: owed"] == pytest.approx([0.0, 0.3, 0.0])
    assert first["draft only: rejected"] == pytest.approx([0.2, 0.0, 0.1])
    assert second["target only: owed"] == pytest.approx([0.2, 0.0, 0.1])


def test_bars_repayment_and_deviations_draw_what_they_get():
    (axes,) = plots.bars(WORDS, {"p": P, "q": Q}, ["blue", "red"]).axes
    assert heights(axes) == {"p": pytest.approx(P), "q": pytest.approx(Q)}
    served, owed = np.minimum(P, Q), np.maximum(P - Q, 0)
    (axes,) = plots.repayment(WORDS, served, {"residual": owed}, P).axes
    drawn = heights(axes)
    assert drawn["accepted"] == pytest.approx(served)
    assert drawn["resampled"] == pytest.approx(owed)
    assert drawn["target p"] == pytest.approx(P)
    off = P + np.array([0.1, -0.1, 0])
    (axes,) = plots.deviations(WORDS, P, {"far off": off}, 10_000).axes
    inside, outside = (line.get_xdata().tolist() for line in axes.lines[:2])
    assert (inside, outside) == ([2], [0, 1])


def test_overlap_svg_shows_the_shared_height_and_says_its_words():
    svg = plots.overlap_svg(WORDS, P, Q, "shared: 70% & more")
    root = ElementTree.fromstring(svg)  # also proves that every text is escaped
    assert root.get("role") == "img"
    assert root.get("aria-label") == "shared: 70% & more"
    rects = [node.attrib for node in root if node.tag.endswith("rect")]
    tall = [float(r["height"]) for r in rects if r["fill"] == plots.ACCEPTED]
    unit = 170  # pixels for a probability of 1; the last green one is the key's
    assert tall[:3] == pytest.approx([0.6 * unit, 0.0, 0.1 * unit], abs=0.05)
    assert svg == plots.overlap_svg(WORDS, P, Q, "shared: 70% & more")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" do", "␣do"),
        ("a\nb\t", "a\\nb\\t"),
        ("naïve", "naïve"),
        ("今", "\\u4eca"),
        ("\x00", "\\x00"),
    ],
)
def test_token_label_makes_every_token_visible(text, label):
    assert plots.token_label(text) == label


def test_a_figure_is_shown_with_its_words(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(
        plots, "display", lambda data, raw, metadata: shown.append((data, metadata))
    )
    plots.show(plots.overlap({"one": (WORDS, P, Q)}), "they share 0.70")
    ((data, metadata),) = shown
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"] == "Figure: they share 0.70"
    assert metadata == {"image/png": {"alt": "they share 0.70"}}
    assert capsys.readouterr().out == "Figure: they share 0.70\n"


def test_a_widget_leaves_a_still_picture_and_words(monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "display", lambda data, raw: shown.append(data))
    plots.show_with_still(ipywidgets.HTML("x"), "<svg/>", "a still")
    still, live = shown
    assert still == {"image/svg+xml": "<svg/>", "text/plain": "Figure: a still"}
    assert live["text/plain"] == "Run this cell to use the controls."
    assert "application/vnd.jupyter.widget-view+json" in live


def test_drawing_leaves_matplotlibs_global_state_alone():
    before = dict(matplotlib.rcParams)
    plots.overlap({"one": (WORDS, P, Q)})
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.pyplot.get_fignums() == []

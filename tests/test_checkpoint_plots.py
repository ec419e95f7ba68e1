"""eagle3.checkpoint_plots: the pictures of chapter 15 say what their data say.

Texts, colours and places are read back from the figures; right values are the data that
went in.
"""

import re
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from eagle3 import checkpoint_plots
from eagle3.checkpoint_plots import PARTS, Key
from eagle3.plots import ACCEPTED, DRAFT, INK, NEUTRAL, REJECTED, TARGET

FORMATS = ["here", "there"]
KEYS = [
    Key("fusion", {"here": "fc", "there": "fc"}, "[4, 12]"),
    Key("head", {"here": "head <V>", "there": "lm_head"}, "[9, 4]", "a & b"),
    Key("vocabulary map", {"here": "d2t", "there": "d2t"}, "[9]"),
    Key("vocabulary map", {"here": "", "there": "t2d"}, "[20]"),
]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def colour_of(axes) -> list[str]:
    return [to_hex(line.get_color()).upper() for line in axes.lines]


def test_the_map_has_each_name_once_and_marks_those_that_change():
    (axes,) = checkpoint_plots.key_map(KEYS, FORMATS).axes
    said = texts(axes)
    for key in KEYS:
        for name in key.names.values():
            assert (name or "not stored") in said
    assert said.count("vocabulary map") == 1  # one band for its two tensors
    # One stroke a line between the two columns; only the head's name changes. A tensor
    # that isn't stored on one side has no name that could change.
    assert colour_of(axes) == [NEUTRAL, DRAFT, NEUTRAL, NEUTRAL]
    assert said.count("≠") == 1


def test_a_card_marks_one_part_and_gives_all_names():
    svg = checkpoint_plots.key_svg(KEYS[1])
    root = ElementTree.fromstring(svg)
    said = [
        "".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")
    ]
    assert {"head <V>", "lm_head", "shape [9, 4]", "a & b"} <= set(said)
    assert [text for text in said if text.startswith("▶")] == ["▶ head"]
    boxes = re.findall(r'<rect x="\d+" y="\d+" [^>]*stroke="([^"]+)"', svg)
    assert len(boxes) == len(PARTS) and boxes.count(DRAFT) == 1
    assert root.get("role") == "img" and root.get("aria-label") == KEYS[1].words
    assert KEYS[1].words == "head, shape [9, 4]: head <V> in here; lm_head in there"


def test_parts_of_a_card_do_not_overlap_and_unknown_ones_are_refused():
    places = list(PARTS.values())
    for i, (x, y, w, h) in enumerate(places):
        for u, v, a, b in places[i + 1 :]:
            assert x + w <= u or u + a <= x or y + h <= v or v + b <= y
    with pytest.raises(ValueError, match="no part of the draft is called 'tail'"):
        Key("tail", {}, "[1]")


def test_numberings_differ_by_one_and_taps_are_bold():
    (axes,) = checkpoint_plots.numberings(8, (2, 4, 5)).axes
    bold = [t.get_text() for t in axes.texts if t.get_fontweight() == "bold"]
    assert bold == ["2", "1", "4", "3", "5", "4"]  # input above, output below
    plain = [t.get_text() for t in axes.texts if t.get_text() == "embedding"]
    assert plain == ["embedding"]  # what enters layer 0 is no layer's output
    boxes = [p for p in axes.patches if isinstance(p, FancyBboxPatch)]
    assert len(boxes) == 8
    right = max(box.get_extents().x1 for box in boxes)
    assert right <= axes.get_window_extent().x1  # nothing is cut off


def test_the_grid_tells_outcomes_apart_by_colour_and_mark():
    row = dict(zip("abcd", checkpoint_plots.OUTCOMES, strict=True))
    (axes,) = checkpoint_plots.loader_grid({"file 1": row, "file 2": row}).axes
    boxes = [p for p in axes.patches if isinstance(p, FancyBboxPatch)]
    edges = [to_hex(box.get_edgecolor()).upper() for box in boxes]
    assert edges == [ACCEPTED, REJECTED, TARGET, NEUTRAL] * 2
    said = texts(axes)
    for text in ("✓ right", "✗ silent", "■ refused", "–"):
        assert said.count(text) == 2
    assert {"a", "b", "c", "d", "file 1", "file 2"} <= set(said)


def test_damage_draws_the_right_reading_in_its_own_colour():
    shares = {"right": 0.72, "close": 0.7, "lost": 0.0}
    (axes,) = checkpoint_plots.damage(shares, "right").axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == list(shares.values())
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    assert colours == [ACCEPTED, REJECTED, REJECTED]
    assert [bar.get_hatch() for bar in axes.patches] == ["", "//", "//"]
    assert texts(axes) == ["0.72", "0.70", "0.00"]
    at = {t.get_text(): t.get_position()[0] for t in axes.texts}
    assert at["0.70"] > 0.72 > at["0.00"]  # no number lies under the dashed line


def test_parity_marks_what_is_beyond_its_limit():
    errors = {"g": (0.0, 2e-5), "a": (1e-6, 2e-5), "logits": (3e-4, 1e-4)}
    (axes,) = checkpoint_plots.parity(errors).axes
    dots = [line for line in axes.lines if line.get_marker() in ("o", "X")]
    assert [dot.get_marker() for dot in dots] == ["o", "o", "X"]
    assert [dot.get_xdata()[0] for dot in dots] == [1e-8, 1e-6, 3e-4]
    looks = [to_hex(dot.get_color()).upper() for dot in dots]
    assert looks == [ACCEPTED, ACCEPTED, REJECTED]
    bars = [line for line in axes.lines if to_hex(line.get_color()).upper() == INK]
    assert [bar.get_xdata()[0] for bar in bars] == [2e-5, 2e-5, 1e-4]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == list(errors)


def test_drawing_leaves_matplotlibs_global_state_alone():
    before = dict(matplotlib.rcParams)
    checkpoint_plots.key_map(KEYS, FORMATS)
    checkpoint_plots.numberings(8, (2, 4, 5))
    checkpoint_plots.damage({"right": 0.5}, "right")
    checkpoint_plots.parity({"g": (0.0, 2e-5)})
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.pyplot.get_fignums() == []

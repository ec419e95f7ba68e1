"""eagle3.drawing: what all pictures are drawn with.

Right values: an XML parser that reads the SVG back, and the positions that went in.
"""

from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.colors import to_hex

from eagle3 import drawing
from eagle3.drawing import DRAFT, INK, PALE, TARGET

HARD = "a < b & \"c\" 'd'"


def test_a_sheet_of_svg_holds_its_parts_and_says_what_it_shows():
    parts = [
        drawing.svg_rect((1, 2, 30, 4), PALE[TARGET], TARGET),
        drawing.svg_block(5, 6, 7.25, 8, DRAFT),
        drawing.svg_text(9, 10, HARD, 11, text_anchor="end", font_weight="bold"),
        drawing.svg_label(12, 13, HARD, "start", size=9, bold=True),
    ]
    tree = ElementTree.fromstring(drawing.svg_sheet(parts, (300, 200), HARD))
    assert (tree.get("viewBox"), tree.get("width")) == ("0 0 300 200", "300")
    assert (tree.get("role"), tree.get("aria-label")) == ("img", HARD)
    paper, rect, block, text, label = tree
    assert (paper.get("width"), paper.get("height")) == ("300", "200")
    assert (rect.get("x"), rect.get("height"), rect.get("stroke")) == (
        "1.0",
        "4.0",
        TARGET,
    )
    assert (block.get("width"), block.get("fill")) == ("7.2", DRAFT)
    assert (text.text, text.get("font-size"), text.get("text-anchor")) == (
        HARD,
        "11",
        "end",
    )
    assert (label.text, label.get("font-size"), label.get("text-anchor")) == (
        HARD,
        "9",
        "start",
    )
    assert text.get("font-weight") == label.get("font-weight") == "bold"
    assert text.get("fill") == label.get("fill") == INK


def test_a_sheet_counts_in_tenths_of_an_inch():
    figure, axes = drawing.sheet(7.2, 3.0)
    assert figure.get_size_inches().tolist() == [7.2, 3.0]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 72), (0, 30))
    assert not axes.axison


def test_boxes_and_arrows_do_as_they_are_told():
    _, axes = drawing.sheet(5, 5)
    drawing.box(axes, (1, 2, 10, 4), "$x$", TARGET)
    drawing.box(axes, (1, 8, 10, 4), "top", DRAFT, at="top", dashed=True, filled=False)
    full, empty = axes.patches
    assert to_hex(full.get_facecolor()).upper() == PALE[TARGET]
    assert to_hex(empty.get_facecolor()) == "#ffffff"
    assert (full.get_linestyle(), empty.get_linestyle()) == ("-", "--")
    middle, top = axes.texts
    assert middle.get_position() == (6, 4) and top.get_position() == (2, 11.2)
    assert not middle.get_parse_math()
    drawing.arrow(axes, (0, 0), (3, 4), DRAFT, dashed=True)
    tip = axes.texts[-1]
    assert (tip.xy, tip.get_position()) == ((3, 4), (0, 0))
    assert tip.arrow_patch.get_linestyle() == "--"


def test_the_style_stays_inside_its_block():
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.grid"]
    with pytest.raises(KeyError), drawing.style():
        assert matplotlib.rcParams["axes.grid"]
        raise KeyError
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.grid"]) == (
        before
    )

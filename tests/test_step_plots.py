"""eagle3.step_plots: a frame's picture says what the frame says.

Texts, dashes and widths are read back from the SVG; the frames are Figure 5's example,
made by hand.
"""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

from step_example import RECORDING

from eagle3.plots import ACCEPTED, REJECTED
from eagle3.step_plots import frame_svg
from eagle3.step_through import ROWS, frames

FILM = {frame.title: frame for frame in frames(RECORDING, 1)}


def parse(title: str):
    root = ElementTree.fromstring(frame_svg(FILM[title]))
    boxes = [node for node in root if node.tag.endswith("rect") and node.get("rx")]
    texts = [node.text for node in root if node.tag.endswith("text")]
    return root, boxes, texts


def test_the_picture_speaks():
    root, _, texts = parse("guess 2")
    assert root.get("aria-label") == FILM["guess 2"].alt
    assert root.get("role") == "img"
    assert texts[0] == "5 of 11: guess 2"
    assert set(ROWS) <= set(texts)


def test_one_box_for_each_tile_and_cache():
    for title, frame in FILM.items():
        _, boxes, _ = parse(title)
        trial = sum(bool(trial) for _, trial in frame.caches.values())
        assert len(boxes) == len(frame.tiles) + len(frame.caches) + trial


def test_what_stands_in_is_dashed_and_what_is_missing_is_dotted():
    def dashes(title: str) -> list[str]:
        return sorted(
            b.get("stroke-dasharray")
            for b in parse(title)[1]
            if b.get("stroke-dasharray")
        )

    assert dashes("catch up") == ["2 3", "2 3"]  # no g, no l, m, h of the pending token
    assert dashes("guess 2") == ["2 3", "4 3", "7 3"]  # and one row on trial
    gone = [t for t in parse("restore the draft's cache")[2] if t.endswith(" gone")]
    assert "a of do gone" in gone


def test_verdicts_have_a_colour_and_a_mark():
    _, boxes, texts = parse("decide")
    edges = [box.get("stroke") for box in boxes]
    assert edges.count(ACCEPTED) == 2 and edges.count(REJECTED) == 1
    assert {"do ✓", "it ✓", "now ✗"} <= set(texts)
    assert "I …" in parse("verify")[2] and "do ?" in parse("verify")[2]


def test_sketches_have_eight_squares():
    root, _, _ = parse("fuse")
    squares = [n for n in root if n.tag.endswith("rect") and n.get("height") == "9"]
    sketched = [
        t for t in FILM["fuse"].tiles.values() if t.sketch and t.state != "gone"
    ]
    assert len(squares) == 8 * len(sketched) == 16


def test_caches_say_how_far_they_reach():
    texts = parse("verify")[2]
    assert "2 positions" in texts and "4 on trial" in texts


def test_text_of_tokens_is_escaped():
    frame = FILM["guess 1"]
    tile = replace(frame.tiles["token", 2], label="<b>&")
    svg = frame_svg(replace(frame, tiles={("token", 2): tile}, words="<i>"))
    assert "<b>" not in svg and "&lt;b&gt;&amp;" in svg
    ElementTree.fromstring(svg)

"""eagle3.chain_plots: the pictures of chapter 3 show what they were given.

Right values come from a chain of three, drawn by hand; texts, colours and dashes are
read back from the figure or the SVG text.
"""

import xml.etree.ElementTree as ElementTree

from helpers import PROMPT, toy, trained_draft
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from eagle3.chain_plots import CacheMoment, best_chains, block_mask, cache_strips_svg
from eagle3.engine import generate
from eagle3.plots import TARGET
from eagle3.trace import TraceRow, trace_rows

# Four tokens are committed and "I" is pending; "do" is right, "get" is wrong.
ROW = TraceRow(1, "I", ("do", "get", "that"), 1, "it", "replacement", 2, 6, 5)
MOMENT = CacheMoment(["to", "swim", "How", "can"], 4, ROW)


def svg_parts(svg: str):
    root = ElementTree.fromstring(svg)
    tiles = [n for n in root if n.tag.endswith("rect") and n.get("rx")]
    return root, tiles, [n.text for n in root if n.tag.endswith("text")]


def test_the_mask_is_causal_and_each_row_judges_the_next_token():
    figure = block_mask(["How", "can"], ["I", "do", "it"])
    (axes,) = figure.axes
    cells = [p for p in axes.patches if isinstance(p, Rectangle)]
    seen = [to_hex(c.get_facecolor()) != "#ffffff" for c in cells]
    # cached, cached, then the block: a row sees itself and what is before it
    assert [seen[5 * i : 5 * i + 5] for i in range(3)] == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]
    own = [to_hex(c.get_facecolor()).upper() == TARGET for c in cells]
    assert [own[5 * i : 5 * i + 5].count(True) for i in range(3)] == [1, 2, 3]
    words = [text.get_text() for text in axes.texts]
    assert words.count("✓") == 6 and words.count("–") == 3
    assert words.count("cached") == 6
    told = [word for word in words if word.startswith(("judges", "gives"))]
    assert told == ["judges do", "judges it", "gives the bonus token"]
    assert [t.get_text() for t in axes.get_xticklabels()][-3:] == ["I", "do", "it"]


def test_the_caches_grow_in_the_passes_and_shrink_in_the_rollback():
    """The target ran on I, do, get, that; the draft on I, do, get.

    Kept are I and do. The module's draft forgets all that it drafted.
    """
    assert MOMENT.lengths == {"target": (4, 8, 6), "draft": (4, 7, 5)}
    assert MOMENT.words == (
        "Cycle 1: 3 drafted, 1 accepted, then a replacement; 2 tokens from one target "
        "pass; the target's cache goes from 4 to 8 and back to 6 positions, the "
        "draft's cache goes from 4 to 7 and back to 5 positions"
    )
    root, tiles, words = svg_parts(cache_strips_svg(MOMENT))
    assert root.get("role") == "img" and root.get("aria-label") == MOMENT.words
    assert [w for w in words if w.isdecimal()] == ["4", "4", "8", "7", "6", "5"]
    assert words.count("… 1") == 6  # "to" is one token, counted in each strip
    assert {"do ✓", "get ✗", "that –"} <= set(words)
    dashed = [tile.get("stroke-dasharray") is not None for tile in tiles]
    # before: "… 1" and three cached, I pending; twice
    # passes: all but the draft's last token; end: it is pending, do unseen by the draft
    assert dashed == [
        *([False] * 4 + [True]) * 2,
        *[False] * 8,
        *[False] * 7 + [True],
        *[False] * 6 + [True],
        *[False] * 5 + [True] * 2,
    ]


def test_a_drafter_without_a_cache_has_no_strip():
    row = TraceRow(1, "I", (), 0, "do", "target", 1, 5, 0)
    moment = CacheMoment(["a", "b", "c", "d"], 0, row)
    assert moment.lengths == {"target": (4, 5, 5)}
    _, tiles, words = svg_parts(cache_strips_svg(moment))
    assert "draft's cache" not in words and words.count("target's cache") == 3
    assert len(tiles) == 5 + 5 + 6


def test_words_are_escaped_and_long_tokens_cut():
    row = TraceRow(1, "<b>", ("&" * 40,), 0, "x", "replacement", 1, 5, 5)
    svg = cache_strips_svg(CacheMoment(['"'] * 4, 4, row))
    _, tiles, words = svg_parts(svg)
    assert "<b>" in words
    width = float(tiles[0].get("width"))
    assert max(len(w) for w in words if "&" in w) * 7 < width + 4 + 14


def test_lengths_agree_with_a_real_trace():
    """Before a cycle the target's cache holds what it held after the last one."""
    result = generate(toy(), trained_draft(), list(PROMPT), max_new_tokens=20)
    rows = trace_rows(result, lambda ids: " ".join(map(str, ids)))
    text = [str(token) for token in (*PROMPT, *result.token_ids)]
    before, drafts = result.prefill.target_cache, 0
    for row in rows:
        moment = CacheMoment(text[:before], drafts, row)
        a, full, c = moment.lengths["target"]
        assert (a, full, c) == (before, before + 1 + len(row.drafted), row.target_cache)
        assert text[before] == row.pending
        assert cache_strips_svg(moment).count("<svg") == 1
        before, drafts = row.target_cache, row.draft_cache


def test_the_map_writes_length_and_gain_and_leaves_no_gain_white():
    best = [[(1, 1.25), (4, 2.5)], [(0, 1.0), (2, 1.5)]]
    across, up = ("alpha", [0.5, 0.9]), ("cost", [0.0, 0.5])
    (axes,) = best_chains(across, up, best).axes
    assert [t.get_text() for t in axes.texts] == [
        "n = 1\n1.25x",
        "n = 4\n2.50x",
        "don't\ndraft",
        "n = 2\n1.50x",
    ]
    (image,) = axes.images
    assert to_hex(image.cmap(image.norm(1.0))) == "#ffffff"
    assert image.norm(1.0) < image.norm(1.25) < image.norm(2.5) < 1
    assert image.get_array().tolist() == [[1.25, 2.5], [1.0, 1.5]]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0", "0.5"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0.5", "0.9"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("alpha", "cost")

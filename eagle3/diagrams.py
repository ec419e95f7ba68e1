"""Diagrams: how the parts hang together, and what one run did. Data in, figure out.

Colours mean what they mean in plots.py: blue the target, amber the draft, green what is
accepted, vermillion what is rejected. Every box carries its name, so that nothing is
told by colour alone. Source: [Ours]; what a diagram says is tagged at its function.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    NEUTRAL,
    REJECTED,
    TARGET,
    Place,
    arrow,
    box,
    sheet,
    style,
)
from eagle3.plots import token_label
from eagle3.trace import TraceRow

_METHODS = (
    ("speculative\nsampling", "a small\nlanguage model\ndrafts a chain"),
    ("EAGLE", "one layer reads\nthe target's\ntop feature"),
    ("EAGLE-2", "the same layer,\na tree that grows\nwhere it is sure"),
    ("EAGLE-3", "three features,\ntrained on its\nown outputs"),
)


def serving_stack() -> Figure:
    """Where EAGLE-3 sits: server, engine, decode phase, speculative decoding.

    The line from method to method is [Paper, sections 1 and 2]; the nesting is
    [Interpretation].
    """
    with style():
        figure, axes = sheet(7.2, 3.9)
        box(axes, (0.5, 0.5, 71, 38), "", NEUTRAL)
        axes.text(1.5, 37.3, "serving system", va="top", fontweight="bold")
        axes.text(16, 37.3, "which requests run together, where caches lie", va="top")
        box(axes, (2, 2, 68, 31.5), "", NEUTRAL, filled=False)
        axes.text(3, 32.5, "engine", va="top", fontweight="bold")
        axes.text(16, 32.5, "the loop around one request", va="top")
        prefill = "prefill\n\nthe whole\nprompt in\none pass"
        box(axes, (3.5, 3.5, 10, 24.5), prefill, TARGET)
        box(axes, (16, 3.5, 52.5, 24.5), "", TARGET)
        axes.text(17, 27.2, "decode", va="top", fontweight="bold")
        axes.text(25, 27.2, "plain: one token for each target pass", va="top")
        arrow(axes, (13.5, 15), (16, 15))
        box(axes, (17, 4.5, 50.5, 19), "", DRAFT)
        axes.text(18, 22.7, "speculative decoding", va="top", fontweight="bold")
        axes.text(37, 22.7, "draft tokens, check all in one pass", va="top")
        for i, (name, what) in enumerate(_METHODS):
            place = (18 + 12.4 * i, 5.5, 11.3, 13.5)
            ours = i == len(_METHODS) - 1
            box(axes, place, "", DRAFT, bold=ours, filled=False)
            middle = place[0] + place[2] / 2
            bold = {"ha": "center", "va": "center", "fontweight": "bold"}
            axes.text(middle, 16.2, name, fontsize=8, **bold)
            axes.text(middle, 9.8, what, ha="center", va="center", fontsize=7.2)
            if i:
                arrow(axes, (place[0] - 1.1, 12.2), (place[0], 12.2))
    return figure


# name in the diagram -> where its box lies, and whose it is
_TENSORS: Mapping[str, tuple[Place, str]] = {
    "l": ((19, 8.5, 5, 4), TARGET),
    "m": ((19, 16, 5, 4), TARGET),
    "h": ((19, 23.5, 5, 4), TARGET),
    "p": ((6.5, 37, 5, 4), TARGET),
    "g": ((40, 16, 5, 4), DRAFT),
    "e": ((40, 8.5, 5, 4), DRAFT),
    "a": ((60.5, 16, 5, 4), DRAFT),
    "q": ((60.5, 37, 5, 4), DRAFT),
}


def dataflow(names: Mapping[str, str], taps: Sequence[int], num_layers: int) -> Figure:
    """What flows where in one cycle, with a box for every tensor that has a letter.

    names: what to write into the boxes l, m, h, p (target) and g, e, a, q (draft)
    taps: the three tapped layers      num_layers: L of the target
    Source: [Paper, section 3.1, Figure 5]; tap positions and own head [Code].
    """
    low, middle, high = taps
    stages = (
        f"layers 0 to {low - 1}",
        f"layers {low} to {middle - 1}",
        f"layers {middle} to {high - 1}",
        f"layers {high} to {num_layers - 1}",
    )
    with style():
        figure, axes = sheet(7.2, 4.3)
        axes.text(9, 0.2, "target, frozen", ha="center", color=TARGET, weight="bold")
        axes.text(
            52, 0.2, "draft, trained", ha="center", color="#8A5F00", weight="bold"
        )
        box(axes, (2, 2.5, 14, 2.8), "token embedding", TARGET)
        for i, text in enumerate(stages):
            bottom = 6.3 + 7.5 * i - (1.5 if i == 3 else 0)
            box(axes, (2, bottom, 14, 3.2 if i < 3 else 3.0), text, TARGET)
        box(axes, (2, 32.2, 14, 2.6), "norm, head", TARGET)
        for start, end in ((5.3, 6.3), (9.5, 13.8), (17, 21.3), (24.5, 27.3)):
            arrow(axes, (9, start), (9, end))
        arrow(axes, (9, 30.3), (9, 32.2))
        arrow(axes, (9, 34.8), (9, 37))
        for bottom in (10.5, 18, 25.5):
            arrow(axes, (9, bottom), (19, bottom))
            arrow(axes, (24, bottom), (28.5, 18), DRAFT)
        box(axes, (28.5, 14.5, 8, 7), "concat,\nFC:\n3k to k", DRAFT)
        arrow(axes, (36.5, 18), (40, 18), DRAFT)
        box(axes, (48.5, 9, 8.5, 10.5), "one\ndecoder\nlayer", DRAFT)
        arrow(axes, (45, 18), (48.5, 18), DRAFT)
        arrow(axes, (45, 10.5), (48.5, 10.5), DRAFT)
        arrow(axes, (57, 18), (60.5, 18), DRAFT)
        box(axes, (57.5, 27, 11, 5), "norm,\nown head", DRAFT)
        arrow(axes, (63, 20), (63, 27), DRAFT)
        arrow(axes, (63, 32), (63, 37), DRAFT)
        arrow(axes, (61, 20), (44.5, 20), DRAFT, dashed=True, bend=0.35)
        axes.text(51, 24.6, "next step: a for g", ha="center", fontsize=7.5)
        arrow(axes, (16, 3.7), (42.5, 8.5), dashed=True, bend=0.15)
        axes.text(31, 1.9, "of the next token", ha="center", fontsize=7.5)
        for letter, (place, colour) in _TENSORS.items():
            box(axes, place, names[letter], colour, bold=True, size=11)
    return figure


def alignment(words: Sequence[str], known: int = 2) -> Figure:
    """Which feature meets which token in the draft, and what it predicts from them.

    words: the tokens, at least known + 2     known: how many the target has run on
    One column for each draft position i: its feature, the embedding of token i+1, the
    output named after that token, and the prediction of token i+2. Tokens are filled
    blue where the target has run, outlined where one is pending, amber where drafted.
    Source: [Paper, section 3.1, Figure 5]; columns and wording [Interpretation].
    """
    count = len(words) - 1
    step = 62 / count
    with style():
        figure, axes = sheet(7.2, 3.2)
        for name, y in _ALIGNMENT_ROWS.items():
            axes.text(0.3, y, name, va="center", fontweight="bold", fontsize=8)
        for i in range(count):
            place = (9.5 + step * i, 0.8 * step)
            _alignment_column(axes, i, words, known, place)
            if i >= known:  # the output of the column before comes over
                start = (place[0] - 0.2 * step, 9)
                end = (place[0] - 0.1, 23.5)
                arrow(axes, start, end, DRAFT, dashed=True, bend=0.25)
        wide = step * (count - 0.2)
        box(axes, (9.5, 12.7, wide, 3.6), "", DRAFT, bold=True)
        axes.text(11, 14.5, "one decoder layer, causal attention", va="center")
    return figure


_ALIGNMENT_ROWS = {
    "position": 29.5,
    "feature": 23.9,
    "token i+1": 20,
    "draft layer": 14.5,
    "output": 9,
    "predicts": 3,
}


def _alignment_column(
    axes: Axes, i: int, words: Sequence[str], known: int, place: tuple[float, float]
) -> None:
    """Position i from top to bottom. place: left edge and width."""
    left, wide = place
    middle, real = left + wide / 2, i < known
    seen = TARGET if i <= known else DRAFT
    box(axes, (left, 28, wide, 3.2), f"{i}: {words[i]}", seen, filled=i != known)
    feature = f"g of {words[i]}" if real else f"a of {words[i]}"
    where = (left, 22.1, wide, 3.6)
    box(axes, where, feature, DRAFT, dashed=not real, filled=real)
    box(axes, (left, 18.2, wide, 3.6), f"e of {words[i + 1]}", NEUTRAL)
    box(axes, (left, 7.2, wide, 3.6), f"a of {words[i + 1]}", DRAFT)
    for start, end in ((18.2, 16.3), (12.7, 10.8), (7.2, 4.8)):
        arrow(axes, (middle, start), (middle, end))
    unused = i + 1 < known  # the target has said that token already
    says = words[i + 2] if i + 2 < len(words) else "next"
    look = {"color": NEUTRAL} if unused else {"fontweight": "bold"}
    says = f"({says} is known)" if unused else says
    axes.text(middle, 3, says, ha="center", va="center", **look)


_ENDINGS = {"replacement": "instead", "bonus": "bonus", "target": "alone"}


def run_of_cycles(rows: Sequence[TraceRow]) -> Figure:
    """The cycles of a run below each other, one target pass in each line.

    rows: about ten cycles, of chains of up to five tokens
    Source: [Ours], the engine's trace.
    """
    longest = max(len(row.drafted) for row in rows)
    width, height = 11.0, 3.0
    with style():
        figure, axes = sheet(7.2, 0.3 * len(rows) + 0.55)
        top = 3 * len(rows) + 3
        heads = ["pending", *(f"draft {i + 1}" for i in range(longest)), "target's own"]
        for i, head in enumerate(heads):
            x = 5 + (width + 0.6) * i + width / 2
            axes.text(x, top, head, ha="center", va="center", fontweight="bold")
        axes.text(71, top, "emitted", ha="right", va="center", fontweight="bold")
        for i, row in enumerate(rows):
            bottom = top - 2 - height * (i + 1) + 0.6
            y = bottom + 1.2
            axes.text(3.5, y, str(row.cycle), ha="right", va="center")
            tiles = [(row.pending, TARGET, "")]
            tiles += [(text, *verdict(row, j)) for j, text in enumerate(row.drafted)]
            tiles.append((row.next_token, TARGET, _ENDINGS[row.kind]))
            for j, (text, colour, mark) in enumerate(tiles):
                last = j == len(tiles) - 1
                column = longest + 1 if last else j
                place = (5 + (width + 0.6) * column, bottom, width, 2.4)
                words = f"{token_label(text)[:12]} {mark}".strip()
                box(axes, place, words, colour, filled=j > 0, size=7.5)
            axes.text(71, y, f"{row.emitted}", ha="right", va="center")
    return figure


def verdict(row: TraceRow, index: int) -> tuple[str, str]:
    """Colour and mark of a drafted token: ✓, ✗, or – for one not looked at. [Ours]"""
    if index < row.num_accepted:
        return ACCEPTED, "✓"
    return (REJECTED, "✗") if index == row.num_accepted else (NEUTRAL, "–")

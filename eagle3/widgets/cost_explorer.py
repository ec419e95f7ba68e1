"""The cost explorer: what speculation yields on a server, and what it costs there.

A blue line is foretold for the chosen chain, a dashed one for the best chain of each
batch; marks are measured, circles EAGLE-3 and squares the other. [Derived]; the marks
are [Paper, Tables 3 and 5] or ours, as the caller says.
"""

from collections.abc import Mapping
from math import log2

import ipywidgets

from eagle3.drawing import ACCEPTED, DRAFT, INK, NEUTRAL, PALE, REJECTED, TARGET
from eagle3.widgets.cost_state import BATCHES, CostState, Server
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.svg import Handle, Picture, line, paragraph, polyline, rect, text

_WIDTH, _LEFT, _WIDE, _TALL = 700, 50, 506, 200
_STEP = _WIDE / len(BATCHES)
_MARKS = ((NEUTRAL, 0), (DRAFT, 5))  # colour, roundness: squares and circles


def cost_explorer(servers: Mapping[str, Server]) -> Explorer:
    """Turn acceptance, chain, draft and batch, and see where speculation pays. [Ours]

    servers: name -> what passes cost there; the first one is shown at once
    """
    controls = {
        "server": ipywidgets.Dropdown(options=list(servers), description="Server"),
        "alpha": ipywidgets.IntText(description="n-alpha in %"),
        "length": ipywidgets.IntText(description="Chain"),
        "draft": ipywidgets.IntText(description="Draft's price in %"),
        "context": ipywidgets.IntText(description="Context"),
    }
    widths = {"alpha": "155px", "length": "105px", "draft": "190px", "context": "145px"}
    for name, control in controls.items():
        control.layout = ipywidgets.Layout(width=widths.get(name, "auto"))
    return Explorer(CostState(servers), draw_cost, controls, walked="power")


def draw_cost(state: CostState) -> Picture:
    """Speedup against the batch, and the chosen batch's cycle as a bar. [Ours]"""
    parts = paragraph(14, 24, state.sentence, 86, font_weight="bold")
    top = 18.0 * len(parts) + 34
    more, handle = _curves(state, top)
    parts += more + _bar(state, top + _TALL + 80)
    return Picture(_WIDTH, top + _TALL + 146, parts, state.sentence, (handle,))


def _x(batch: float) -> float:
    return _LEFT + (log2(batch) + 0.5) * _STEP


def _curves(state: CostState, top: float) -> tuple[list[str], Handle]:
    best = [gain for _, gain in state.best]
    seen = [x for _, values in state.at.points.values() for x in values]
    most = max(2.0, *best, *state.curve, *seen) * 1.08
    base, unit = top + _TALL, _TALL / most
    parts = [text(14, top - 10, "speedup over plain decoding", 11)]
    for level in range(int(most) + 1):
        y, even = base - unit * level, level == 1
        colour, width = (REJECTED, 1.5) if even else ("#DDDDDD", 1)
        parts.append(line((_LEFT, y), (_LEFT + _WIDE, y), colour, stroke_width=width))
        parts.append(text(_LEFT - 8, y + 4, f"{level}x", 11, text_anchor="end"))
    x = _x(state.batch)
    place = (x - _STEP / 2, top, _STEP, _TALL)
    parts.append(rect(place, "#F3F3F3", INK, stroke_width=1, fill_opacity=0.6))
    for size in BATCHES:
        bold = "bold" if size == state.batch else "normal"
        look = {"text_anchor": "middle", "font_weight": bold}
        parts.append(text(_x(size), base + 16, f"{size}", 11, **look))
    middle = {"text_anchor": "middle"}
    parts.append(
        text(_LEFT + _WIDE / 2, base + 40, "requests in the batch", 11, **middle)
    )
    dash = {"stroke_dasharray": "6 4", "stroke_width": 1.5}
    for values, colour, look in (
        (best, INK, dash),
        (state.curve, TARGET, {"stroke_width": 2.5}),
    ):
        pairs = zip(BATCHES, values, strict=True)
        corners = [(_x(size), base - unit * value) for size, value in pairs]
        parts.append(polyline(corners, colour, **look))
    for (batches, values), (colour, round_) in zip(
        state.at.points.values(), _MARKS, strict=False
    ):
        for size, value in zip(batches, values, strict=True):
            at = (_x(size) - 5, base - unit * value - 5, 10, 10)
            parts.append(rect(at, colour, INK, rx=round_, stroke_width=0.8))
    y = base - unit * state.speedup
    parts.append(rect((x - 6, y - 6, 12, 12), "white", TARGET, rx=6, stroke_width=3))
    handle = Handle(
        name="power",
        label="requests in the batch",
        text=f"{state.batch}, speedup {state.speedup:.2f}",
        place=(_LEFT, top, _WIDE, _TALL + 22),
        low=0,
        high=len(BATCHES) - 1,
        value=BATCHES.index(state.batch),
        grows="right",
        big_step=3,
    )
    return parts + _legend(state, top + 6), handle


def _legend(state: CostState, top: float) -> list[str]:
    left, parts = _LEFT + _WIDE + 12, []
    lines = (
        (f"chain of {state.length}", TARGET, {"stroke_width": 2.5}),
        ("best chain", INK, {"stroke_width": 1.5, "stroke_dasharray": "6 4"}),
        ("no gain, no loss", REJECTED, {"stroke_width": 1.5}),
    )
    for i, (name, colour, look) in enumerate(lines):
        y = top + 20 * i
        parts.append(line((left, y), (left + 22, y), colour, **look))
        parts.append(text(left + 28, y + 4, name, 11))
    for i, (name, (colour, round_)) in enumerate(
        zip(state.at.points, _MARKS, strict=False)
    ):
        y = top + 60 + 20 * i
        place = (left + 6, y - 5, 10, 10)
        parts.append(rect(place, colour, INK, rx=round_, stroke_width=0.8))
        parts.append(text(left + 28, y + 4, f"{name}*"[:16], 11))
    if state.at.points:
        parts.append(text(left, top + 102, "* measured", 11))
    return parts


def _bar(state: CostState, top: float) -> list[str]:
    """What the cycle costs, part by part, and what it yields, on one scale."""
    price = state.price
    unit = (_WIDE + 90) / max(price.total, state.tau, 1.0)
    parts = [
        text(14, top - 8, "one cycle, in plain steps: what it costs and yields", 11)
    ]
    left = float(_LEFT + 20)
    for name, amount, colour in (
        ("target", price.target, TARGET),
        ("draft", price.draft, DRAFT),
        ("other", price.other, NEUTRAL),
    ):
        wide = unit * amount
        if wide:
            parts.append(rect((left, top, wide, 22), PALE[colour], colour))
        if wide > 70:
            middle = {"text_anchor": "middle"}
            says = f"{name} {amount:.2f}"
            parts.append(text(left + wide / 2, top + 15, says, 11, **middle))
        left += wide
    parts.append(text(14, top + 15, "costs", 11))
    parts.append(text(14, top + 45, "yields", 11))
    gains = state.tau >= price.total
    colour, sign = (ACCEPTED, "✓ pays") if gains else (REJECTED, "✗ loses")
    place = (_LEFT + 20.0, top + 30, unit * state.tau, 22)
    parts.append(rect(place, PALE[colour], colour))
    says = f"{state.tau:.2f} tokens {sign}"
    parts.append(text(_LEFT + 28, top + 45, says, 11, font_weight="bold"))
    return parts

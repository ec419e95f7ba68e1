"""The tap picker: three layers, and what a probe on them knows of the next two tokens.

Blue is what the target's states say, amber with ◆ what is tapped. [Ours], measured by
tools/probes.py; the rule is the official one [Code].
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets

from eagle3.drawing import DRAFT, INK, NEUTRAL, PALE, TARGET
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text
from eagle3.widgets.tap_state import LETTERS, NAMES, Probes, TapState

_WIDTH, _LEFT, _WIDE, _TALL = 700, 60, 620, 120


def tap_picker(stored: Mapping[str, Any]) -> Explorer:
    """Choose three layers by mouse, arrow keys or list. [Ours]

    stored: what figures/results/probes.json holds
    """
    state = TapState(Probes.from_results(stored))
    layout = ipywidgets.Layout(width="150px")
    controls = {
        name: ipywidgets.Dropdown(
            options=state.probes.layers, description=f"{name.title()} tap"
        )
        for name in NAMES
    }
    for control in controls.values():
        control.layout = layout
    wide = ipywidgets.Layout(width="auto")
    rule = ipywidgets.Button(description="Back to the rule's taps", layout=wide)
    return Explorer(state, draw_taps, controls, {"rule": rule}, walked="at middle")


def draw_taps(state: TapState) -> Picture:
    """Two rows of bars, a bar for each probed layer; below them the three rails."""
    parts = paragraph(14, 24, state.sentence, 86, font_weight="bold")
    top = 18.0 * len(parts) + 28
    probes = state.probes
    panels = (
        ("the next token, from one state alone", probes.next, state.shares[0]),
        ("the token after, the next one known", probes.after, state.shares[1]),
    )
    for i, (title, shares, together) in enumerate(panels):
        parts += _panel(state, top + i * (_TALL + 60), (title, shares, together))
    top += 2 * (_TALL + 60) - 6
    more, handles = _rails(state, top)
    return Picture(_WIDTH, top + 116, parts + more, state.sentence, handles)


def _step(state: TapState) -> float:
    return _WIDE / len(state.probes.layers)


def _panel(
    state: TapState, top: float, panel: tuple[str, tuple[float, ...], float]
) -> list[str]:
    """Bars of single states, and a line as high as the three are together."""
    title, shares, together = panel
    most = max(*shares, together)
    unit, base, step = _TALL / most, top + 14 + _TALL, _step(state)
    parts = [text(14, top, title, 12)]
    for i, (layer, share) in enumerate(zip(state.probes.layers, shares, strict=True)):
        chosen = layer in state.taps
        left, tall = _LEFT + (i + 0.15) * step, unit * share
        place = (left, base - tall, 0.7 * step, tall)
        parts.append(rect(place, DRAFT if chosen else PALE[TARGET], TARGET))
        middle, look = left + 0.35 * step, {"text_anchor": "middle"}
        bold = "bold" if chosen else "normal"
        name = f"◆ {LETTERS[state.taps.index(layer)]} " if chosen else ""
        says = f"{name}{100 * share:.0f}"
        parts.append(text(middle, base + 14, says, 11, **look, font_weight=bold))
    y = base - unit * together
    dash = {"stroke_dasharray": "6 4", "stroke_width": 1.5}
    parts.append(line((_LEFT, y), (_LEFT + _WIDE, y), INK, **dash))
    parts.append(text(14, y + 4, f"{together:.1%}", 12, font_weight="bold"))
    parts.append(line((_LEFT, base), (_LEFT + _WIDE, base), INK))
    look = {"text_anchor": "end"}
    says = "dashed: the three together; bars: single states, in %"
    parts.append(text(_LEFT + _WIDE, top, says, 11, **look))
    return parts


def _rails(state: TapState, top: float) -> tuple[list[str], list[Handle]]:
    """A rail for each tap, with a knob at its layer."""
    layers, step = state.probes.layers, _step(state)
    parts, handles = [], []
    for i, layer in enumerate(layers):
        x, rule = _LEFT + (i + 0.5) * step, layer in state.probes.rule
        bold = "bold" if rule else "normal"
        says = f"{layer}*" if rule else f"{layer}"
        look = {"text_anchor": "middle", "font_weight": bold}
        parts.append(text(x, top + 6, says, 12, **look))
    parts.append(text(14, top + 6, "layer", 12))
    for i, (name, letter) in enumerate(zip(NAMES, LETTERS, strict=True)):
        y, at = top + 26 + 26 * i, state.index(name)
        low = state.index(NAMES[i - 1]) + 1 if i else 0
        high = state.index(NAMES[i + 1]) - 1 if i < 2 else len(layers) - 1
        parts.append(text(14, y + 4, f"{letter}, {name}"[:10], 11))
        ends = (_LEFT + low * step, y), (_LEFT + (high + 1) * step, y)
        parts.append(line(*ends, NEUTRAL, stroke_width=2))
        x = _LEFT + (at + 0.5) * step
        knob = (x - 11, y - 11, 22, 22)
        parts.append(rect(knob, PALE[DRAFT], INK, rx=11, stroke_width=1.8))
        parts.append(text(x, y + 4, letter, 12, text_anchor="middle"))
        handles.append(
            Handle(
                name=f"at {name}",
                label=f"{name} tap",
                text=f"layer {layers[at]}",
                place=(ends[0][0], y - 12, (high - low + 1) * step, 24),
                low=low,
                high=high,
                value=at,
                grows="right",
                big_step=3,
            )
        )
    says = (
        "* the rule's layers: 2, half of all, all but three. Drag a knob on its line."
    )
    parts.append(text(14, top + 104, says, 11))
    return parts, handles

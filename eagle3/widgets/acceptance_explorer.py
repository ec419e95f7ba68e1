"""The acceptance explorer: drag p and q, see what is kept, owed and emitted.

Green is what both rows share, blue what the target has beyond it, amber what the draft
brings too much; each part says its name where it is tall enough. [Derived] from the
acceptance rule of [Paper, section 2.1]
"""

from collections.abc import Mapping

import ipywidgets

from eagle3.drawing import ACCEPTED, DRAFT, INK, NEUTRAL, REJECTED, TARGET
from eagle3.plots import token_label
from eagle3.widgets.acceptance_state import (
    BY_HAND,
    EXAMPLE,
    RULES,
    AcceptanceState,
    Rows,
)
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text

_WIDTH, _LEFT = 700, 30
_TALL, _SMALL = 150, 60  # pixels of a probability of 1, in the large and small panels
_DRAWS = (1, 100, 10_000)


def acceptance_explorer(presets: Mapping[str, Rows] | None = None) -> Explorer:
    """Drag two distributions, choose a rule, and draw until its law shows. [Ours]

    presets: named rows to begin with, the first one shown at once
    """
    state = AcceptanceState(presets or EXAMPLE)
    number = ipywidgets.Layout(width="130px")
    wide = ipywidgets.Layout(width="auto")
    controls = {
        "preset": ipywidgets.Dropdown(
            options=[*state.presets, BY_HAND], description="Rows", layout=wide
        ),
        "tokens": ipywidgets.IntText(description="Tokens", layout=number),
        "rule": ipywidgets.Dropdown(options=RULES, description="Rule", layout=wide),
    }
    small = ipywidgets.Layout(width="auto")
    buttons = {
        f"draw_{count}": ipywidgets.Button(description=f"Draw {count:,}", layout=small)
        for count in _DRAWS
    }
    buttons["forget"] = ipywidgets.Button(description="Start again", layout=small)
    return Explorer(state, draw_acceptance, controls, buttons)


def draw_acceptance(state: AcceptanceState) -> Picture:
    """Three panels: both rows, what a rejection draws from, what comes out. [Ours]"""
    parts = paragraph(14, 24, state.sentence, font_weight="bold")
    top = 18.0 * len(parts) + 26
    step = (_WIDTH - _LEFT - 20) / state.tokens
    more, handles = _rows(state, top, step)
    parts += more
    parts += _replacement(state, top + _TALL + 84, step)
    parts += _outcome(state, top + _TALL + _SMALL + 148, step)
    height = top + 2 * _TALL + _SMALL + 196
    return Picture(_WIDTH, height, parts, state.sentence, handles)


def _rows(
    state: AcceptanceState, top: float, step: float
) -> tuple[list[str], list[Handle]]:
    title = "p (left) and q (right) of each token: drag a bar, or use the arrow keys"
    parts, handles = [text(14, top, title)], []
    base = top + 14 + _TALL
    for i, label in enumerate(state.rows.labels):
        p, q = float(state.p[i]), float(state.q[i])
        left, wide = _LEFT + (i + 0.1) * step, 0.4 * step
        for name, share, x in (("p", p, left), ("q", q, left + wide)):
            parts += _bar((x, base, wide), name, share, min(p, q))
            whose = "target p" if name == "p" else "draft q"
            handles.append(
                Handle(
                    name=f"{name}{i}",
                    label=f"{whose} of {label}",
                    text=f"{share:.2f}",
                    place=(x, base - _TALL, wide, _TALL),
                    low=0,
                    high=100,
                    value=round(100 * share),
                    grows="up",
                )
            )
        middle = {"text_anchor": "middle"}
        x = left + wide
        parts.append(text(x, base + 16, f"p {p:.2f}  q {q:.2f}", 10, **middle))
        name = token_label(label)[:12]
        parts.append(text(x, base + 33, name, 13, font_weight="bold", **middle))
        keep = f"keep {float(state.chance[i]):.0%}" if q > 0 else "never drawn"
        parts.append(text(x, base + 49, keep, 11, **middle))
    parts.append(line((_LEFT, base), (_WIDTH - 20, base), INK))
    return parts, handles


def _bar(
    place: tuple[float, float, float], name: str, share: float, shared: float
) -> list[str]:
    """One bar: what is shared, then what this side has beyond it.

    place: left, base line, width
    """
    left, base, wide = place
    parts = [rect((left, base - _TALL, wide, _TALL), "#F7F7F7")]
    both, over = _TALL * shared, _TALL * (share - shared)
    parts.append(rect((left, base - both, wide, both), ACCEPTED, "white"))
    colour, word = (TARGET, "owed") if name == "p" else (DRAFT, "too much")
    parts.append(rect((left, base - both - over, wide, over), colour, "white"))
    x, look = left + wide / 2, {"text_anchor": "middle"}
    if over > 14 and wide > 24:
        fill = {"style": "fill:white"} if name == "p" else {}
        size = 10 if wide > 50 or name == "p" else 8
        if wide > 34 or name == "p":
            middle = base - both - over / 2 + 4
            parts.append(text(x, middle, word, size, **look, **fill))
    top = base - both - over
    parts.append(line((left, top), (left + wide, top), INK, stroke_width=2))
    return parts


def _replacement(state: AcceptanceState, top: float, step: float) -> list[str]:
    rejected = 1 - state.acceptance
    title = f"after a rejection ({rejected:.0%} of the guesses) this is drawn from:"
    parts, base = [text(14, top, title)], top + 12 + _SMALL
    for i, share in enumerate(state.replacement.tolist()):
        left, tall = _LEFT + (i + 0.1) * step, _SMALL * share
        parts.append(rect((left, base - tall, 0.8 * step, tall), TARGET))
        x, look = left + 0.4 * step, {"text_anchor": "middle"}
        parts.append(text(x, base + 14, f"{share:.2f}", 10, **look))
    parts.append(line((_LEFT, base), (_WIDTH - 20, base), INK))
    return parts


def _outcome(state: AcceptanceState, top: float, step: float) -> list[str]:
    """Shares of the draws in grey, p as a blue frame, the rule's law as a diamond."""
    title = "what comes out: grey the draws, blue frame p, ◆ where the rule leads"
    parts, base = [text(14, top, title)], top + 14 + _TALL
    shares = state.shares
    for i in range(state.tokens):
        p, law = float(state.p[i]), float(state.law[i])
        left, wide = _LEFT + (i + 0.1) * step, 0.8 * step
        if shares is not None:
            tall = _TALL * float(shares[i])
            place = (left + 0.15 * wide, base - tall, 0.7 * wide, tall)
            parts.append(rect(place, NEUTRAL))
        frame = (left, base - _TALL * p, wide, _TALL * p)
        parts.append(rect(frame, "none", TARGET, stroke_width=2.5))
        off = law - p
        x, y = left + wide / 2, base - _TALL * law
        look = {"text_anchor": "middle"}
        colour = REJECTED if abs(off) > 5e-4 else ACCEPTED
        mark = {"style": f"fill:{colour};stroke:white;stroke-width:0.8"}
        parts.append(text(x, y + 6, "◆", 17, **look, **mark))
        says = f"{off:+.2f}" if abs(off) > 5e-4 else "= p"
        bold = "bold" if abs(off) > 5e-4 else "normal"
        parts.append(text(x, base + 15, says, 11, **look, font_weight=bold))
        parts.append(text(x, base + 31, token_label(state.rows.labels[i])[:12], **look))
    parts.append(line((_LEFT, base), (_WIDTH - 20, base), INK))
    return parts

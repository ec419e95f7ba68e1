"""The engine trace: any prompt on a real target, cycle by cycle.

Green with ✓ was accepted, vermillion with ✗ refused, grey with – never looked at; a
blue frame is the target's own token. [Ours], the engine's trace.
"""

from typing import Any

import ipywidgets

from eagle3.diagrams import verdict
from eagle3.drawing import DRAFT, INK, NEUTRAL, PALE, TARGET
from eagle3.plots import token_label
from eagle3.target import Target
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text
from eagle3.widgets.trace_state import TraceState, recorder

_WIDTH, _LEFT, _WIDE = 700, 20, 660
_PACE = 1500  # milliseconds from cycle to cycle
_BEFORE, _PASS, _AFTER = "before", "after the passes", "after the rollback"


def engine_trace(target: Target, draft: Any, prompt: str) -> Explorer:
    """Type a prompt and walk through the cycles of its answer. [Ours]

    draft: whatever `generate` takes        prompt: the first one
    Raises ValueError for a prompt that can't be run.
    """
    record = recorder(target, draft)
    wide = ipywidgets.Layout(width="420px")
    controls = {
        "prompt": ipywidgets.Text(
            description="Prompt", continuous_update=False, layout=wide
        ),
        "cycle": ipywidgets.IntText(
            description="Cycle", layout=ipywidgets.Layout(width="130px")
        ),
    }
    state = TraceState(record, record(prompt))
    return Explorer(state, draw_trace, controls, walked="cycle")


def draw_trace(state: TraceState) -> Picture:
    """Tokens of all cycles, the tokens of one, and both caches around it. [Ours]"""
    parts = paragraph(14, 24, state.sentence, font_weight="bold")
    top = 18.0 * len(parts) + 26
    more, handle = _emitted(state, top)
    parts += more + _tiles(state, top + 108)
    parts.append(text(14, top + 196, state.times, 12))
    y = top + 222
    for i, (name, colour) in enumerate((("target", TARGET), ("draft", DRAFT))):
        if name in state.caches:
            parts += _caches(state, (name, colour), y + 92 * i)
    height = y + 92 * len(state.caches) + 4
    return Picture(_WIDTH, height, parts, state.sentence, (handle,))


def _emitted(state: TraceState, top: float) -> tuple[list[str], Handle]:
    """A column for each cycle, as tall as the tokens that it emitted."""
    rows = state.run.rows
    step, most = _WIDE / len(rows), max(row.emitted for row in rows)
    base, unit = top + 70, 56 / max(1, most)
    title = "new tokens of each cycle: choose one by mouse or arrow keys"
    parts = [text(14, top, title)]
    for i, row in enumerate(rows):
        chosen = i + 1 == state.cycle
        place = (
            _LEFT + i * step + 0.1 * step,
            base - unit * row.emitted,
            0.8 * step,
            unit * row.emitted,
        )
        fill = TARGET if chosen else PALE[TARGET]
        parts.append(rect(place, fill, INK if chosen else TARGET, stroke_width=1.2))
        if step > 13:
            x, look = _LEFT + (i + 0.5) * step, {"text_anchor": "middle"}
            says = f"▲ {row.emitted}" if chosen and step > 24 else f"{row.emitted}"
            bold = "bold" if chosen else "normal"
            parts.append(text(x, base + 14, says, 11, **look, font_weight=bold))
    handle = Handle(
        name="cycle",
        label="cycle of the run",
        text=f"cycle {state.cycle}, {state.row.emitted} tokens",
        place=(_LEFT, top + 8, _WIDE, 78),
        low=1,
        high=len(rows),
        value=state.cycle,
        grows="right",
        big_step=5,
        pace=_PACE,
    )
    return parts, handle


def _tiles(state: TraceState, top: float) -> list[str]:
    """The tokens of the cycle: pending, drafted with their verdicts, the target's."""
    row = state.row
    names = {"✓": "accepted", "✗": "rejected", "–": "not looked at"}
    tiles = [(row.pending, TARGET, "pending", "white")]
    for i, word in enumerate(row.drafted):
        colour, mark = verdict(row, i)
        tiles.append((word, colour, f"{mark} {names[mark]}", PALE[colour]))
    tiles.append((row.next_token, TARGET, row.kind, PALE[TARGET]))
    step, parts = _WIDE / len(tiles), []
    for i, (word, colour, below, fill) in enumerate(tiles):
        place = (_LEFT + step * i, top, step - 12, 38)
        parts.append(rect(place, fill, colour, rx=5, stroke_width=1.8))
        x, look = place[0] + place[2] / 2, {"text_anchor": "middle"}
        label = token_label(word)[: max(3, int(step / 8.5))]
        parts.append(text(x, top + 24, label, 13, **look))
        parts.append(text(x, top + 56, below, 11, **look))
    return parts


def _caches(state: TraceState, who: tuple[str, str], top: float) -> list[str]:
    """One cache at three moments, as strips of the run's length; dashed what goes."""
    name, colour = who
    longest = max(max(lengths) for lengths in state.caches.values())
    longest = max(longest, state.run.rows[-1].target_cache)
    unit = 420 / longest
    parts = [text(14, top + 4, f"{name}'s cache", 12, font_weight="bold")]
    before, full, after = state.caches[name]
    lengths = ((_BEFORE, before), (_PASS, full), (_AFTER, after))
    for i, (moment, length) in enumerate(lengths):
        y = top + 12 + 24 * i
        parts.append(text(136, y + 13, moment, 11, text_anchor="end"))
        stays = min(length, after)
        parts.append(rect((144, y, unit * stays, 17), PALE[colour], colour))
        if length > stays:
            place = (144 + unit * stays, y, unit * (length - stays), 17)
            parts.append(rect(place, "white", colour, stroke_dasharray="3 2"))
        says = f"{length} positions"
        if length > after:
            says += f", {length - after} go"
        parts.append(text(152 + unit * length, y + 13, says, 11))
    y = top + 12
    x = 144 + unit * before
    parts.append(line((x, y), (x, y + 65), NEUTRAL, stroke_dasharray="2 2"))
    return parts

"""The step-through: one cycle of a real run, moment by moment. [Paper, Figure 5]

Blue is the target's, amber the draft's; a bold edge is new, a dashed one stands in for
a feature that isn't there, a dotted one is missing or thrown away.
"""

from collections.abc import Callable

import ipywidgets

from eagle3.drawing import DRAFT, INK, NEUTRAL, PALE, TARGET
from eagle3.step_plots import frame_parts
from eagle3.watch import Recording
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.step_state import StepState
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text

_WIDTH, _LEFT, _WIDE = 700, 16, 668
_PACE = 2500  # milliseconds: time to read a sentence or two


def step_explorer(
    recording: Recording, watch: Callable[[str], Recording] | None = None
) -> Explorer:
    """Walk through a recorded cycle by button, mouse or key; or go on with any text.

    recording: as `eagle3.watch.record` makes it
    watch: text -> recording, as `watcher` makes it; without one the run is fixed
    Raises ValueError for a recording whose first cycle drafted nothing. [Ours]
    """
    number, wide = ipywidgets.Layout(width="130px"), ipywidgets.Layout(width="420px")
    controls = {
        "cycle": ipywidgets.IntText(description="Cycle", layout=number),
        "moment": ipywidgets.IntText(description="Moment", layout=number),
    }
    if watch:
        controls["text"] = ipywidgets.Text(
            description="Your text", continuous_update=False, layout=wide
        )
    state = StepState(recording, watch)
    return Explorer(state, draw_step, controls, walked="moment")


def draw_step(state: StepState) -> Picture:
    """The moments in a row, what there is in the chosen one, and what is new in it."""
    frame = state.frame
    parts, handle = _moments(state)
    title = f"{frame.number} of {frame.total}: {frame.title}"
    parts.append(text(16, 72, title, 15, font_weight="bold"))
    words = paragraph(16, 94, frame.words)
    more, bottom = frame_parts(frame, 94 + 18.0 * len(words) - 32)
    parts += words + more
    for i, note in enumerate(frame.notes):
        y = bottom + 22 + 20 * i
        parts.append(text(16, y, "new" if i == 0 else "", 12, font_weight="bold"))
        parts.append(text(60, y, note.name, 12, font_weight="bold"))
        parts.append(text(116, y, f"{list(note.shape)}", 12))
        parts.append(text(236, y, f"from {note.source}", 12))
    if not frame.notes:
        parts.append(text(16, bottom + 22, "no new tensor", 12, font_weight="bold"))
    # As tall as the longest moment of the cycle, so that nothing below it jumps.
    tall = max(2, *(len(one.notes) for one in state.film))
    lines = 1 + max(len(one.words) for one in state.film) // 85
    height = bottom + 18 * (lines - len(words)) + 20 * tall + 16
    return Picture(_WIDTH, height, parts, state.sentence, (handle,))


def _moments(state: StepState) -> tuple[list[str], Handle]:
    """A mark for each moment; what lies behind is blue, the chosen one amber."""
    total = len(state.film)
    step = _WIDE / total
    parts = [line((_LEFT, 34), (_LEFT + _WIDE, 34), NEUTRAL)]
    for i in range(total):
        chosen, x = i + 1 == state.moment, _LEFT + step * (i + 0.5)
        fill = PALE[DRAFT] if chosen else PALE[TARGET] if i < state.moment else "white"
        edge, width = (INK, 2.5) if chosen else (NEUTRAL, 1)
        place = (x - 13, 21, 26, 26)
        parts.append(rect(place, fill, edge, rx=13, stroke_width=width))
        bold = "bold" if chosen else "normal"
        look = {"text_anchor": "middle", "font_weight": bold}
        parts.append(text(x, 38, f"{i + 1}", 12, **look))
    handle = Handle(
        name="moment",
        label="moment of the cycle",
        text=f"{state.moment} of {total}, {state.frame.title}",
        place=(_LEFT, 14, _WIDE, 40),
        low=1,
        high=total,
        value=state.moment,
        grows="right",
        big_step=3,
        pace=_PACE,
    )
    return parts, handle

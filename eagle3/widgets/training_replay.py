"""The training replay: a recorded run from the untrained draft to the last step.

Green with ✓ are guesses that the target kept, blue its own tokens. The text is the
same at every moment; what changes is how many passes it takes. [Ours]
"""

from collections.abc import Mapping
from typing import Any

import ipywidgets

from eagle3.drawing import ACCEPTED, DRAFT, INK, NEUTRAL, PALE, TARGET
from eagle3.plots import token_label
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.replay_state import ReplayState
from eagle3.widgets.svg import Handle, Picture, line, paragraph, polyline, rect, text

_WIDTH, _LEFT, _WIDE, _TALL = 700, 44, 400, 130
_RIGHT, _BARS = 480, 200  # left end and width of the n-alpha panel
_PACE = 900


def training_replay(stored: Mapping[str, Any]) -> Explorer:
    """Scrub through recorded training runs by button, mouse or key. [Ours]

    stored: what figures/results/training_replay.json holds
    """
    controls = {
        "run": ipywidgets.Dropdown(
            options=list(stored["runs"]),
            description="Run",
            layout=ipywidgets.Layout(width="auto"),
        ),
        "frame": ipywidgets.IntText(
            description="Evaluation", layout=ipywidgets.Layout(width="150px")
        ),
    }
    return Explorer(ReplayState(stored), draw_replay, controls, walked="frame")


def draw_replay(state: ReplayState) -> Picture:
    """Losses with the chosen moment, n-alpha there, and the answer as drafted then."""
    parts = paragraph(14, 24, state.sentence, 86, font_weight="bold")
    top = 18.0 * max(3, len(parts)) + 34
    more, handle = _losses(state, top)
    parts += more + _alphas(state, top)
    answer, bottom = _answer(state, top + _TALL + 66)
    return Picture(_WIDTH, bottom, parts + answer, state.sentence, (handle,))


def _place(state: ReplayState, step: float) -> float:
    """Where a step lies: evaluations are evenly spaced, all else between them."""
    steps, unit = [f["step"] for f in state.frames], _WIDE / len(state.frames)
    at = len(steps) - 1.0
    for i in range(1, len(steps)):
        if step <= steps[i]:
            at = i - (steps[i] - step) / max(1, steps[i] - steps[i - 1])
            break
    return _LEFT + unit * (at + 0.5)


def _losses(state: ReplayState, top: float) -> tuple[list[str], Handle]:
    base, unit = top + _TALL, _WIDE / len(state.frames)
    curves = state.losses
    most = max((max(per_step) for _, per_step in curves), default=1.0)
    parts = [text(14, top - 10, "loss, in nats", 11)]
    for level in range(0, int(most) + 1, 1 + int(most) // 5):
        y = base - _TALL * level / most
        parts.append(line((_LEFT, y), (_LEFT + _WIDE, y), "#DDDDDD"))
        parts.append(text(_LEFT - 6, y + 4, f"{level}", 11, text_anchor="end"))
    x = _LEFT + unit * (state.frame - 0.5)
    place = (x - unit / 2, top, unit, _TALL)
    parts.append(rect(place, PALE[DRAFT], "none", fill_opacity=0.7))
    parts.append(line((x, top), (x, base), INK, stroke_width=2))
    last = len(curves[0][1]) - 1 if curves else 0
    looks = [(0, TARGET, {}), (last, DRAFT, {"stroke_dasharray": "5 3"})]
    for i, (which, colour, dash) in enumerate(looks if last else looks[:1]):
        corners = [
            (_place(state, s), base - _TALL * losses[which] / most)
            for s, losses in curves
        ]
        parts.append(polyline(corners, colour, stroke_width=2, **dash))
        left = 160 + 120 * i
        ends = (left, top - 14), (left + 22, top - 14)
        parts.append(line(*ends, colour, stroke_width=2, **dash))
        parts.append(text(left + 28, top - 10, f"step {which}", 11))
    for i, frame in enumerate(state.frames):
        tick = _LEFT + unit * (i + 0.5)
        parts.append(line((tick, base), (tick, base + 4), NEUTRAL))
        if i in (0, len(state.frames) - 1) or i + 1 == state.frame:
            bold = "bold" if i + 1 == state.frame else "normal"
            row = base + (30 if i + 1 == state.frame else 16)
            look = {"text_anchor": "middle", "font_weight": bold}
            parts.append(text(tick, row, f"{frame['step']:,}", 11, **look))
    handle = Handle(
        name="frame",
        label="moment of the training",
        text=f"step {state.step}, {state.tau:.2f} tokens from each pass",
        place=(_LEFT, top, _WIDE, _TALL + 36),
        low=1,
        high=len(state.frames),
        value=state.frame,
        grows="right",
        big_step=5,
        pace=_PACE,
    )
    return parts, handle


def _alphas(state: ReplayState, top: float) -> list[str]:
    """n-alpha of the chosen moment as bars, that of the last one as frames."""
    now, end = state.at.get("n_alpha") or (), state.frames[-1].get("n_alpha") or ()
    parts = [text(_RIGHT, top - 10, "n-alpha; frames: at the end", 11)]
    base, step = top + _TALL, _BARS / max(1, len(now), len(end))
    for i, share in enumerate(end):
        place = (_RIGHT + step * i + 2, base - _TALL * share, step - 4, _TALL * share)
        parts.append(rect(place, "none", INK, stroke_dasharray="3 2"))
    for i, share in enumerate(now):
        place = (_RIGHT + step * i + 4, base - _TALL * share, step - 8, _TALL * share)
        parts.append(rect(place, DRAFT))
        look = {"text_anchor": "middle"}
        x = _RIGHT + step * (i + 0.5)
        parts.append(text(x, base + 16, f"{i}", 11, **look))
        parts.append(text(x, base + 30, f"{share:.2f}"[1:], 11, **look))
    parts.append(line((_RIGHT, base), (_RIGHT + _BARS, base), INK))
    return parts


def _answer(state: ReplayState, top: float) -> tuple[list[str], float]:
    """The answer's tokens in rows; a bar before the first one of each pass."""
    says = "a held-out answer: ✓ guessed and kept, the others are the target's own"
    parts = [text(14, top, says, 11)]
    x, y, before = 14.0, top + 10, 0
    for token in state.tokens:
        label = token_label(token.text)[:14]
        label += " ✓" if token.kept else ""
        wide = 7.2 * len(label) + 10
        if x + wide > _WIDTH - 14:
            x, y = 14.0, y + 28
        if token.cycle != before:
            parts.append(line((x, y), (x, y + 22), INK, stroke_width=2.5))
            before = token.cycle
        colour = ACCEPTED if token.kept else TARGET
        parts.append(rect((x + 3, y, wide, 22), PALE[colour], colour, rx=4))
        parts.append(text(x + 3 + wide / 2, y + 15, label, 11, text_anchor="middle"))
        x += wide + 6
    return parts, y + 36

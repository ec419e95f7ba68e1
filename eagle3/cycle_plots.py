"""Pictures of the chain engine: what hands what to whom, and how far the caches reach.

Colours mean what they mean in plots.py. Data in, figure out. Source: [Ours].
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import arrow, box, sheet
from eagle3.plots import (
    DRAFT,
    INK,
    NEUTRAL,
    REJECTED,
    TARGET,
    canvas,
    style,
    token_label,
)
from eagle3.watch import Recording, WatchedCycle


def cycle_dataflow(cycle: WatchedCycle) -> Figure:
    """One cycle from left to right: who computes, and what goes from whom to whom.

    cycle: one that drafted one to five tokens
    The upper lane is the target's, the lower one the draft's. Source: [Paper, section
    3.1] for the moves; [Ours] for order and wording.
    """
    row, layers = cycle.row, cycle.of("layer")
    known = len(layers[0].ids)
    count = len(row.drafted)
    with style():
        figure, axes = sheet(7.2, 2.9)
        axes.text(0.4, 27.3, "target", color=TARGET, weight="bold")
        axes.text(0.4, 1.0, "draft", color="#8A5F00", weight="bold")
        box(axes, (0.4, 19.5, 9.2, 5.5), "last pass\n(or prefill)", TARGET)
        step = (46 - 11.5) / (count + 1)
        wide = step - 1.6
        box(axes, (11.5, 4, wide, 5.5), f"catch up\n{_rows(known)}", DRAFT)
        arrow(axes, (6, 19.5), (11.5 + 0.4 * wide, 9.5), TARGET)
        axes.text(0.6, 14, "features,\npending", fontsize=7.5, color=TARGET)
        for i, token in enumerate(row.drafted):
            left = 11.5 + step * (i + 1)
            text = f"guess\n{token_label(token)[:9]}"
            box(axes, (left, 4, wide, 5.5), text, DRAFT)
            arrow(axes, (left - 1.6, 6.7), (left, 6.7), DRAFT)
            axes.text(left - 0.8, 8.0, "a", ha="center", fontsize=7.5)
            arrow(axes, (left + wide / 2, 9.5), (49, 19.5), DRAFT, bend=-0.05)
        axes.text(26, 15.6, "tokens", fontsize=7.5, color="#8A5F00")
        box(axes, (46, 19.5, 10, 5.5), f"verify\n{_rows(count + 1)}", TARGET)
        box(axes, (58.5, 19.5, 11.5, 5.5), _decided(cycle), NEUTRAL)
        arrow(axes, (56, 22.2), (58.5, 22.2), TARGET)
        axes.text(57.2, 23.1, "p", ha="center", fontsize=7.5)
        box(axes, (50, 4, 20, 5.5), _committed(cycle), NEUTRAL)
        arrow(axes, (64, 19.5), (64, 9.5))
        axes.annotate(
            "",
            (5, 25.2),
            (66, 25.2),
            arrowprops={
                "arrowstyle": "-|>",
                "color": INK,
                "linestyle": "--",
                "connectionstyle": "arc3,rad=0.09",
            },
        )
        axes.text(35, 28.5, "the next cycle begins", ha="center", fontsize=7.5)
    return figure


def _decided(cycle: WatchedCycle) -> str:
    row = cycle.row
    own = token_label(row.next_token)[:9]
    return f"{row.num_accepted} accepted,\nthen {own}"


def _committed(cycle: WatchedCycle) -> str:
    row = cycle.row
    forgotten = len(row.drafted) + 1 - row.emitted
    restored = max(0, len(row.drafted) - 1)
    return f"target forgets {_rows(forgotten)}\ndraft forgot {_rows(restored)}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


@dataclass(frozen=True)
class CacheLevel:
    """Both caches at one moment of a run. [Ours]

    cycle: its number        what: "catch up", "guess", "restore", "verify", "commit"
    target, draft: cached positions after it
    settled: positions whose token is committed
    """

    cycle: int
    what: str
    target: int
    draft: int
    settled: int


def cache_levels(recording: Recording, last: int) -> list[CacheLevel]:
    """How far the caches reach after each move of cycles 1 to `last`. [Ours]"""
    found: list[CacheLevel] = []
    target, draft = recording.prompt_length, 0
    for cycle in recording.cycles[:last]:
        number, settled = cycle.row.cycle, target
        for i, call in enumerate(cycle.of("layer")):
            draft = call.cached
            what = "guess" if i else "catch up"
            found.append(CacheLevel(number, what, target, draft, settled))
        if draft != cycle.row.draft_cache:
            draft = cycle.row.draft_cache
            found.append(CacheLevel(number, "restore", target, draft, settled))
        verified = cycle.calls[-1].cached
        found.append(CacheLevel(number, "verify", verified, draft, settled))
        target = cycle.row.target_cache
        found.append(CacheLevel(number, "commit", target, draft, target))
    return found


def cache_timeline(levels: Sequence[CacheLevel]) -> Figure:
    """Both caches over the moves of a few cycles; what rises above settled must fall.

    levels: of `cache_levels`
    Source: [Ours], a recorded run.
    """
    x = range(len(levels))
    with style():
        figure, (axes,) = canvas(size=(7.2, 3.2))
        series = (
            ("target's cache", [v.target for v in levels], TARGET, "-", "s"),
            ("draft's cache", [v.draft for v in levels], DRAFT, "--", "o"),
        )
        for name, values, colour, dash, marker in series:
            look = {"ls": dash, "color": colour, "marker": marker, "ms": 4}
            axes.plot(x, values, drawstyle="steps-post", label=name, **look)
        settled = [v.settled for v in levels]
        axes.plot(
            x,
            settled,
            color=INK,
            lw=1,
            ls=":",
            drawstyle="steps-post",
            label="committed",
        )
        _mark_falls(axes, levels)
        axes.set_xticks(x, [v.what for v in levels], rotation=60, ha="right")
        axes.tick_params(axis="x", labelsize=7)
        low = min(v.draft for v in levels[1:])
        axes.set_ylim(low - 1, max(v.target for v in levels) + 1.5)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("cached positions")
        axes.legend(loc="upper left")
    return figure


def _mark_falls(axes: Axes, levels: Sequence[CacheLevel]) -> None:
    """Borders between cycles, and how much is forgotten at each fall."""
    for i in range(1, len(levels)):
        before, after = levels[i - 1], levels[i]
        if before.cycle != after.cycle:
            axes.axvline(i - 0.5, color="#D0D0D0", lw=0.8)
        for high, low in ((before.target, after.target), (before.draft, after.draft)):
            if low < high:
                text = f"−{high - low}"
                look = {"ha": "left", "va": "top", "fontsize": 8, "color": REJECTED}
                axes.text(i + 0.1, high, text, **look)

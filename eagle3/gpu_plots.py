"""Pictures of the engine's time: a cycle by stage, what each change saves, batches.

Colours mean what they mean in plots.py: blue the target, amber the draft, green what
accepts; what belongs to the machine is grey, and hatches say all of it again. Data in,
figure out. Source: [Ours].
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    REJECTED,
    TARGET,
    canvas,
    style,
    svg_block,
    svg_label,
)

NOT_MEASURED = "not yet measured"
# stage -> colour and hatch
LOOKS = {
    "draft": (DRAFT, "//"),
    "target": (TARGET, ""),
    "accept": (ACCEPTED, ".."),
    "copy": (NEUTRAL, "xx"),
    "host": ("#BBBBBB", "--"),
}
Stages = Mapping[str, float]  # stage -> seconds


def stages_figure(ways: Mapping[str, Stages | None]) -> Figure:
    """An average cycle of each way as a bar, cut into its stages.

    ways: name -> seconds by stage, None where it was not measured
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.5 * len(ways) + 1.1))
        for row, stages in enumerate(ways.values()):
            if stages is None:
                axes.text(0, row, f" {NOT_MEASURED}", va="center", color=NEUTRAL)
                continue
            left = 0.0
            for name, seconds in stages.items():
                colour, hatch = LOOKS[name]
                look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
                label = name if row == 0 else None
                axes.barh(row, 1000 * seconds, 0.6, left, label=label, **look)
                left += 1000 * seconds
            axes.text(left, row, f" {left:.1f} ms", va="center")
        axes.set_yticks(range(len(ways)), list(ways))
        axes.invert_yaxis()
        axes.grid(False)
        axes.margins(x=0.15)
        axes.set_xlabel("ms per cycle")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(LOOKS))
    return figure


def waterfall(totals: Mapping[str, float | None]) -> Figure:
    """Milliseconds per cycle, and what each change adds to it or takes away.

    totals: way -> seconds of a cycle, in the order of the changes; None where it was
        not measured
    The first and the last bar are whole cycles. Between them a green bar with a minus
    is time saved, a vermillion one with a plus is time lost.
    Source: [Ours].
    """
    known = {name: 1000 * s for name, s in totals.items() if s is not None}
    (start, *_), (*_, end) = known, known
    with style():
        figure, (axes,) = canvas(size=(7.0, 2.9))
        _column(axes, 0, (0, known[start]), TARGET, f"{known[start]:.1f}")
        changes = list(totals)[1:]
        level = known[start]
        for x, name in enumerate(changes, start=1):
            if name not in known:
                axes.text(x, level / 2, NOT_MEASURED, ha="center", rotation=90)
                continue
            change = known[name] - level
            colour = ACCEPTED if change <= 0 else REJECTED
            _column(axes, x, (level, change), colour, f"{change:+.1f}")
            level = known[name]
        last = len(changes) + 1
        _column(axes, last, (0, level), TARGET, f"{level:.1f}")
        names = [start, *changes, f"in all: {end}"]
        axes.set_xticks(range(last + 1), [_two_lines(name) for name in names])
        axes.set_ylim(0, 1.15 * max(known.values()))
        axes.set_ylabel("ms per cycle")
    return figure


def _column(
    axes: Axes, x: int, span: tuple[float, float], colour: str, text: str
) -> None:
    """span: where it begins and how tall it is"""
    bottom, height = span
    hatch = "" if colour == TARGET else "//"
    axes.bar(x, height, 0.6, bottom, color=colour, hatch=hatch, edgecolor="white")
    axes.text(x, max(bottom, bottom + height), text, ha="center", va="bottom")


def _two_lines(name: str) -> str:
    head, _, tail = name.rpartition(" ")
    return f"{head}\n{tail}" if head else name


def throughput_figure(methods: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Tokens per second, and speed relative to plain decoding, against batch size.

    methods: label -> row of `eagle3.bench.throughput.summarise`, vanilla among them
    Dotted lines are what the measured roofline predicts.
    Source: [Ours]; the form of the paper's Tables 3 and 5.
    """
    colours = {"vanilla": TARGET, "eagle1": NEUTRAL, "eagle3": DRAFT}
    with style():
        figure, (left, right) = canvas(2, (7.0, 3.2))
        for label, row in methods.items():
            family, _, length = row["method"].partition("-chain-")
            look = {"color": colours.get(family, INK), "ms": 4}
            look["marker"] = {"2": "s", "3": "^"}.get(length, "o")
            look["ls"] = "--" if length == "2" else "-"
            left.plot(row["batches"], row["tokens_per_second"], label=label, **look)
            if family == "vanilla":
                continue
            right.plot(row["batches"], row["speedup"], label=label, **look)
            look |= {"ls": ":", "ms": 0, "lw": 1}
            right.plot(row["batches"], row["predicted"], **look)
        right.axhline(1, color=INK, lw=1.2)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(row["batches"], [str(b) for b in row["batches"]])
            axes.set_xlabel("requests at once")
            axes.set_ylim(bottom=0)
        left.set_ylabel("tokens per second, all together")
        right.set_ylabel("times plain decoding")
        left.legend()
        right.set_title("dotted: the roofline's prediction", loc="right", fontsize=8)
    return figure


def timeline_svg(ways: Mapping[str, Stages | None], words: str) -> str:
    """One cycle of each way on a common axis of time, as SVG text for a widget.

    ways: name -> seconds by stage, None where it was not measured
    words: one line above the picture, which is also its description
    Source: [Ours].
    """
    longest = max(sum(stages.values()) for stages in ways.values() if stages)
    unit = 430 / longest  # pixels of a second
    parts = [svg_label(20, 22, words, "start", bold=True)]
    for row, (name, stages) in enumerate(ways.items()):
        y = 42 + 38 * row
        parts.append(svg_label(20, y + 17, name, "start"))
        if stages is None:
            parts.append(svg_label(150, y + 17, NOT_MEASURED, "start"))
            continue
        edges = [0.0]
        for seconds in stages.values():
            edges.append(edges[-1] + seconds)
        for stage, (left, right) in zip(stages, pairwise(edges), strict=True):
            width = max(unit * (right - left), 1)  # a trace of it is always seen
            parts.append(svg_block(150 + unit * left, y, width, 24, LOOKS[stage][0]))
        label = f"{1000 * edges[-1]:.1f} ms"
        parts.append(svg_label(156 + unit * edges[-1], y + 17, label, "start"))
    bottom = 42 + 38 * len(ways)
    for i, (stage, (colour, _)) in enumerate(LOOKS.items()):
        parts.append(svg_block(150 + 90 * i, bottom + 4, 12, 12, colour))
        parts.append(svg_label(168 + 90 * i, bottom + 15, stage, "start"))
    body, height = "\n".join(parts), bottom + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" '
        f'width="680" font-family="sans-serif" role="img" '
        f'aria-label="{escape(words)}">\n'
        f'<rect width="680" height="{height}" fill="white"/>\n{body}\n</svg>'
    )


def ledger_figure(ledgers: Mapping[str, Mapping[str, int]]) -> Figure:
    """What each configuration takes, cut by purpose, in GiB.

    ledgers: name of a configuration -> purpose -> bytes
    Source: [Ours].
    """
    purposes: Sequence[str] = list(next(iter(ledgers.values())))
    palette = (TARGET, DRAFT, "#5BA3D0", "#F2C879", ACCEPTED, NEUTRAL, "#BBBBBB", INK)
    palette = (*palette, REJECTED)
    hatches = ("", "", "//", "//", "..", "xx", "--", "", "++")
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.5 * len(ledgers) + 1.6))
        lefts = [0.0] * len(ledgers)
        for i, purpose in enumerate(purposes):
            amounts = [ledger[purpose] / 2**30 for ledger in ledgers.values()]
            look = {"color": palette[i], "hatch": hatches[i], "edgecolor": "white"}
            label = purpose.replace("_", " ")
            axes.barh(range(len(ledgers)), amounts, 0.6, lefts, label=label, **look)
            lefts = [left + a for left, a in zip(lefts, amounts, strict=True)]
        for row, total in enumerate(lefts):
            axes.text(total, row, f" {total:.1f}", va="center")
        axes.set_yticks(range(len(ledgers)), list(ledgers))
        axes.invert_yaxis()
        axes.grid(False)
        axes.margins(x=0.1)
        axes.set_xlabel("GiB")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    return figure

"""Pictures of measuring: what a metric counts, where speed goes, one run picked out.

Colours mean what they mean in plots.py, and a mark, a hatch or a number says each of
them again. Data in, figure or SVG text out. Source: [Ours].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.figure import Figure

from eagle3.diagrams import verdict
from eagle3.drawing import PALE, svg_rect, svg_text
from eagle3.plots import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    TARGET,
    canvas,
    style,
    token_label,
)
from eagle3.trace import TraceRow

_COUNTS = ("drafted", "judged", "accepted", "emitted")


def cycle_counts(row: TraceRow) -> dict[str, int]:
    """What one cycle of a chain adds to each count.

    A guess is judged if all guesses before it were accepted. [Ours]
    """
    return {
        "drafted": len(row.drafted),
        "judged": min(row.num_accepted + 1, len(row.drafted)),
        "accepted": row.num_accepted,
        "emitted": row.emitted,
    }


def anatomy_words(rows: Sequence[TraceRow]) -> str:
    """The sums of some cycles, and the metrics that follow, in one line. [Ours]"""
    total = _total(rows)
    return (
        f"{len(rows)} cycles: {total['drafted']} guesses drafted, {total['judged']} "
        f"judged, {total['accepted']} accepted, {total['emitted']} tokens emitted; "
        f"acceptance length {total['emitted'] / len(rows):.2f} with the target's own "
        f"token, {total['accepted'] / len(rows):.2f} without; "
        f"{total['accepted'] / max(1, total['drafted']):.2f} of the drafted and "
        f"{total['accepted'] / max(1, total['judged']):.2f} of the judged guesses "
        "accepted"
    )


def _total(rows: Sequence[TraceRow]) -> dict[str, int]:
    counts = [cycle_counts(row) for row in rows]
    return {name: sum(count[name] for count in counts) for name in _COUNTS}


def anatomy_svg(rows: Sequence[TraceRow]) -> str:
    """A few cycles of chains, with what each adds to each count, and the sums.

    rows: of `trace_rows`, up to about eight
    Source: [Ours], the engine's trace.
    """
    longest = max(len(row.drafted) for row in rows)
    width = min(92.0, 400 / (longest + 2))
    right = 60 + width * (longest + 2)
    step = (684 - right) / len(_COUNTS)
    parts = [svg_text(16, 34, "cycle", 11)]
    heads = ["pending", *(f"guess {i + 1}" for i in range(longest)), "target's own"]
    for i, head in enumerate(heads):
        parts.append(_middle(60 + width * (i + 0.5) - 3, 34, head, 10.5))
    for i, name in enumerate(_COUNTS):
        parts.append(_middle(right + step * (i + 0.5), 34, name, 11, bold=True))
    for line, row in enumerate(rows):
        y = 44 + 34 * line
        parts.append(svg_text(24, y + 19, str(row.cycle), 12))
        parts += _cycle_tiles(row, y, width, longest)
        for i, count in enumerate(cycle_counts(row).values()):
            parts.append(_middle(right + step * (i + 0.5), y + 19, str(count), 12))
    bottom = 44 + 34 * len(rows)
    parts.append(
        f'<line x1="{right}" y1="{bottom + 3}" x2="684" y2="{bottom + 3}" '
        f'stroke="{INK}"/>'
    )
    for i, count in enumerate(_total(rows).values()):
        middle = right + step * (i + 0.5)
        parts.append(_middle(middle, bottom + 22, str(count), 13, bold=True))
    return _svg(parts, bottom + 34, anatomy_words(rows))


def _cycle_tiles(row: TraceRow, y: float, width: float, longest: int) -> list[str]:
    own = TARGET if row.emitted > row.num_accepted else NEUTRAL
    tiles = [(0, row.pending, TARGET, "")]
    tiles += [(i + 1, text, *verdict(row, i)) for i, text in enumerate(row.drafted)]
    tiles.append((longest + 1, row.next_token, own, "+1" if own == TARGET else "cut"))
    parts = []
    for column, text, colour, mark in tiles:
        x = 60 + width * column
        fill = "white" if column == 0 else PALE[colour]
        parts.append(svg_rect((x, y, width - 6, 27), fill, colour))
        label = token_label(text)[: max(3, int(width / 8) - len(mark))]
        middle = x + width / 2 - 3
        parts.append(_middle(middle, y + 18, f"{label} {mark}".strip(), 10.5))
    return parts


def _middle(x: float, y: float, text: str, size: float, bold: bool = False) -> str:
    look = {"text_anchor": "middle"} | ({"font_weight": "bold"} if bold else {})
    return svg_text(x, y, text, size, **look)


def _svg(parts: Sequence[str], height: float, words: str) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {height:.0f}" '
        f'width="700" font-family="sans-serif" role="img" '
        f'aria-label="{escape(words)}">\n'
        f'<rect width="700" height="{height:.0f}" fill="white"/>\n{body}\n</svg>'
    )


@dataclass(frozen=True)
class CycleCost:
    """Where a method's speed goes, in passes of plain decoding.

    tau: tokens per cycle of the method
    target, draft, other: what a cycle costs; a plain pass costs 1

    [Ours]
    """

    tau: float
    target: float
    draft: float
    other: float

    @property
    def speedup(self) -> float:
        """Tokens per unit of time, plain decoding being 1."""
        return self.tau / (self.target + self.draft + self.other)

    @property
    def steps(self) -> dict[str, float]:
        """The speedup as one cost after the other is taken into account."""
        return {
            "tau": self.tau,
            "after verifying": self.tau / self.target,
            "after drafting": self.tau / (self.target + self.draft),
            "speedup": self.speedup,
        }


def cycle_cost(runs: Sequence[Mapping[str, Any]], method: str) -> CycleCost:
    """Split a method's cycle into its parts, from the runs of a bench.

    runs: of one temperature, with vanilla among them; each has seconds and
        target_passes, and shares of draft, target and other
    Prefill is spread over the cycles of both sides. Raises ValueError for a method
    whose passes are not known. [Ours]
    """
    plain = [run for run in runs if run["method"] == "vanilla"]
    mine = [run for run in runs if run["method"] == method]
    if not mine or not all(run["target_passes"] for run in mine):
        raise ValueError(f"the runs don't tell the target passes of {method!r}.")
    unit = _sum(plain, "seconds") / _sum(plain, "target_passes")
    seconds, passes = _sum(mine, "seconds"), _sum(mine, "target_passes")
    parts = [
        sum(run["seconds"] * run[f"{part}_share"] for run in mine) / passes / unit
        for part in ("target", "draft", "other")
    ]
    written = _sum(mine, "num_tokens") - len(mine)  # the first is prefill's
    scale = seconds / passes / unit / sum(parts)  # shares are rounded
    return CycleCost(written / passes, *(part * scale for part in parts))


def _sum(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(run[name] for run in runs)


def speed_steps(cost: CycleCost) -> Figure:
    """From tau down to the speedup, one cost after the other.

    Source: [Derived]; the numbers are a bench's.
    """
    colours = (ACCEPTED, TARGET, DRAFT, NEUTRAL)
    hatches = ("", "//", "..", "xx")
    names = ("tokens per pass", "verifying", "drafting", "everything else")
    values = list(cost.steps.values())
    with style():
        figure, (axes,) = canvas(size=(7.0, 2.9))
        for i, value in enumerate(values):
            solid = {"color": colours[0], "edgecolor": INK, "lw": 0.6}
            axes.bar(i, value, 0.6, **solid)
            if i:
                lost = {"color": colours[i], "hatch": hatches[i], "edgecolor": "white"}
                axes.bar(i, values[i - 1] - value, 0.6, value, **lost)
            text = f"{value:.2f}" if not i else f"{value:.2f}\n({names[i]})"
            axes.text(
                i, max(values[max(0, i - 1)], value), text, ha="center", va="bottom"
            )
        axes.axhline(1, color=INK, lw=1, ls="--")
        axes.set_xticks(range(len(values)), list(cost.steps))
        axes.set_ylim(0, 1.3 * max(values))
        axes.set_ylabel("times plain decoding")
    return figure


@dataclass(frozen=True)
class Picked:
    """One method of a bench at one temperature, question by question.

    label: the method's name        temperature: of the runs
    ratios: (kind, speedup) of each question
    mean, low, high: of the speedups, with the ends of a 95% interval
    tau: tokens per target pass; 0 where passes are not known
    shares: name -> share of the time in cycles; empty where not known

    [Ours]
    """

    label: str
    temperature: float
    ratios: tuple[tuple[str, float], ...]
    mean: float
    low: float
    high: float
    tau: float
    shares: Mapping[str, float]

    @property
    def words(self) -> str:
        """The picture in one line."""
        passes = f"{self.tau:.2f} tokens per target pass" if self.tau else "tau unknown"
        values = [ratio for _, ratio in self.ratios]
        return (
            f"{self.label} at temperature {self.temperature:g}: speedup {self.mean:.2f}"
            f" (95% interval {self.low:.2f} to {self.high:.2f}), {passes}; the "
            f"{len(values)} questions reach from {min(values):.2f} to {max(values):.2f}"
        )


def pick(measured: Mapping[str, Any], label: str, temperature: float) -> Picked:
    """Take one method out of a bench's results.

    measured: as `methods.json` holds it        label: of its summary

    Raises ValueError for a method or temperature that was not measured. [Ours]
    """
    summary = measured["temperatures"].get(f"{temperature:g}", {})
    if label not in summary:
        raise ValueError(f"{label!r} was not measured at temperature {temperature:g}.")
    row = summary[label]
    runs = [run for run in measured["runs"] if run["temperature"] == temperature]
    plain = {_key(run): _per_token(run) for run in runs if run["method"] == "vanilla"}
    mine = [run for run in runs if run["method"] == row["method"]]
    shares = {part: row[f"{part}_share"] for part in ("target", "draft", "other")}
    return Picked(
        label,
        temperature,
        tuple((run["kind"], plain[_key(run)] / _per_token(run)) for run in mine),
        row["speedup"],
        *row["speedup_interval_95"],
        row["acceptance_length"],
        shares if any(shares.values()) else {},
    )


def _key(run: Mapping[str, Any]) -> tuple[str, str, int]:
    return run["kind"], run["question"], run["round"]


def _per_token(run: Mapping[str, Any]) -> float:
    return run["seconds"] / run["num_tokens"]


def picked_svg(picked: Picked) -> str:
    """One method as SVG text: a mark for each question, mean, interval, time shares.

    Source: [Ours], a bench.
    """
    top = max(2.0, *(ratio for _, ratio in picked.ratios), picked.high) * 1.08
    unit, left = 520 / top, 130
    kinds = list(dict.fromkeys(kind for kind, _ in picked.ratios))
    parts = [
        svg_text(16, 26, f"{picked.label}, temperature {picked.temperature:g}", 15)
    ]
    for line, kind in enumerate(kinds):
        y = 58 + 30 * line
        parts.append(svg_text(16, y + 4, kind, 12))
        for _, ratio in (pair for pair in picked.ratios if pair[0] == kind):
            x = left + unit * ratio
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{DRAFT}" stroke="{INK}"/>'
            )
    bottom = 58 + 30 * len(kinds)
    parts.append(svg_text(16, bottom + 6, "mean", 12, font_weight="bold"))
    low, high = left + unit * picked.low, left + unit * picked.high
    parts.append(
        svg_rect((low, bottom - 5, max(2, high - low), 12), PALE[DRAFT], DRAFT)
    )
    x = left + unit * picked.mean
    parts.append(svg_rect((x - 2, bottom - 9, 4, 20), INK, INK))
    parts.append(svg_text(high + 8, bottom + 6, f"{picked.mean:.2f}", 13))
    one = left + unit
    parts.append(
        f'<line x1="{one:.1f}" y1="40" x2="{one:.1f}" y2="{bottom + 14}" '
        f'stroke="{INK}" stroke-dasharray="4 3"/>'
    )
    parts.append(_middle(one, bottom + 28, "plain decoding", 10.5))
    parts += _share_bar(picked, bottom + 46)
    return _svg(parts, bottom + 92, picked.words)


def _share_bar(picked: Picked, y: float) -> list[str]:
    if not picked.shares:
        return [svg_text(16, y + 15, "its passes and times are not known", 12)]
    colours = {"target": TARGET, "draft": DRAFT, "other": NEUTRAL}
    total, x, parts = (
        sum(picked.shares.values()),
        130.0,
        [svg_text(16, y + 15, "time", 12)],
    )
    for name, share in picked.shares.items():
        width = 520 * share / total
        parts.append(svg_rect((x, y, width, 22), PALE[colours[name]], colours[name]))
        if width > 70:
            parts.append(_middle(x + width / 2, y + 15, f"{name} {share:.0%}", 11))
        x += width
    return [
        *parts,
        svg_text(130, y + 40, f"{picked.tau:.2f} tokens per target pass", 12),
    ]

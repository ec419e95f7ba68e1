"""Pictures of the paper's main results: speedup against tau, gains, bars with labels.

The paper's cells stand alone; measurements of ours have panels of their own. Method and
colour go together, and a marker says the same again. Source: [Paper, Table 1 and Figure
2]; lines of equal cost are [Derived].
"""

from collections.abc import Mapping, Sequence
from html import escape
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
    svg_label,
)
from eagle3.paper import Cell

# method -> colour and marker; all others are grey crosses
LOOKS = {
    "EAGLE-3": (DRAFT, "o"),
    "EAGLE-2": (TARGET, "s"),
    "EAGLE": (ACCEPTED, "^"),
    "HASS": (REJECTED, "D"),
}
OTHER = (NEUTRAL, "x")
_TOP = 8.0  # end of both axes
_PALE = {"": "#CDEBE1", " ^": "#FBE9C6", " v": "#F8DFCC"}  # inside, above, below


def speedup_against_tau(cells: Sequence[Cell], ours: Mapping[str, Any]) -> Figure:
    """Every cell of Table 1 as a point; ours, by method, in a panel beside it.

    ours: label -> [(tau, speedup), ...] of our own measurement, maybe empty
    On a dashed line a cycle costs the same number of plain steps; the solid one is the
    limit, where it costs a single step. Source: [Paper, Table 1]; right panel [Ours].
    """
    with style():
        figure, (left, right) = canvas(2, (7.6, 3.4))
        seen: set[str] = set()
        for cell in cells:
            colour, marker = LOOKS.get(cell.method, OTHER)
            name = cell.method if cell.method in LOOKS else "other methods"
            label = None if name in seen else name
            seen.add(name)
            left.plot(
                cell.tau,
                cell.speedup,
                marker,
                color=colour,
                ms=4,
                label=label,
            )
        left.set_title("the paper, Table 1")
        for i, (name, points) in enumerate(ours.items()):
            marker = "os^Dvx*"[i % 7]
            colour = DRAFT if "EAGLE-3" in name else NEUTRAL
            tau, speedup = zip(*points, strict=True)
            right.plot(tau, speedup, marker, color=colour, ms=5, label=name)
        right.set_title("our runs (another target, a CPU)")
        if not ours:
            middle = {"ha": "center", "va": "center", "transform": right.transAxes}
            right.text(0.5, 0.5, "not yet measured", **middle)
        tallest = [max((t for p in ours.values() for t, _ in p), default=2.5), _TOP]
        for axes, top in ((left, _TOP), (right, max(2.5, 1.15 * tallest[0]))):
            _cost_lines(axes, top)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="upper left", fontsize=7.5)
    return figure


def _cost_lines(axes: Axes, top: float) -> None:
    axes.plot((0, top), (0, top), color=INK, lw=1)
    for cost in (1.25, 1.5, 2.0):
        axes.plot((0, top), (0, top / cost), color=NEUTRAL, lw=0.7, ls="--")
        axes.annotate(
            f"{cost:g} steps", (top, top / cost), fontsize=7, ha="right", va="top"
        )
    axes.set_xlim(0.8, top)
    axes.set_ylim(0.5, top)
    axes.set_xlabel("tau: tokens per cycle")
    axes.set_ylabel("speedup")


def scatter_svg(cells: Sequence[Cell], words: str) -> str:
    """Speedup against tau as SVG text, for a picture that a reader filters.

    cells: those to draw      words: one line above, which is also the description
    The highest point is labelled. Source: [Paper, Table 1].
    """
    parts = [svg_label(20, 22, words, "start", bold=True)]
    parts += _svg_axes()
    best = max(cells, key=lambda cell: cell.speedup, default=None)
    for cell in cells:
        x, y = _place(cell.tau, cell.speedup)
        parts.append(_svg_mark(x, y, cell.method))
    if best is not None:
        x, y = _place(best.tau, best.speedup)
        label = f"{best.task} {best.speedup:.2f}x"
        parts.append(svg_label(x, y - 9, label, "middle", size=10))
    for i, (name, _) in enumerate((*LOOKS.items(), ("other methods", OTHER))):
        parts.append(_svg_mark(560, 60 + 20 * i, name))
        parts.append(svg_label(572, 64 + 20 * i, name, "start", size=11))
    body = "\n".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 340" width="680" '
        f'font-family="sans-serif" role="img" aria-label="{escape(words)}">\n'
        f'<rect width="680" height="340" fill="white"/>\n{body}\n</svg>'
    )


def _place(tau: float, speedup: float) -> tuple[float, float]:
    return 50 + 480 * tau / _TOP, 300 - 260 * speedup / _TOP


def _svg_axes() -> list[str]:
    parts = []
    for cost in (1.0, 1.25, 1.5, 2.0):
        (x1, y1), (x2, y2) = _place(0, 0), _place(_TOP, _TOP / cost)
        dash = "" if cost == 1 else ' stroke-dasharray="4 3"'
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        parts.append(f'<line {ends} stroke="{NEUTRAL}"{dash}/>')
        parts.append(svg_label(x2 + 3, y2 + 4, f"{cost:g}", "start", size=9))
    for value in range(0, 9, 2):
        x, y = _place(value, value)
        parts.append(svg_label(x, 316, f"{value}", size=10))
        parts.append(svg_label(40, y + 4, f"{value}", "end", size=10))
    parts.append(svg_label(290, 334, "tau: tokens per cycle", size=11))
    parts.append(svg_label(8, 44, "speedup", "start", size=11))
    parts.append(svg_label(534, 24, "cost of a cycle in plain steps", "start", size=9))
    return parts


def _svg_mark(x: float, y: float, method: str) -> str:
    """A circle, square, triangle, diamond or cross: the method without its colour."""
    colour, marker = LOOKS.get(method, OTHER)
    shapes = {
        "o": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>',
        "s": f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" '
        f'fill="{colour}"/>',
        "^": f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>',
        "D": f'<path d="M{x:.1f} {y - 6:.1f}l5 6l-5 6l-5 -6z" fill="{colour}"/>',
        "x": f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" fill="none" '
        f'stroke="{colour}" stroke-width="2"/>',
    }
    return shapes[marker]


def labelled_bars(figure2: Mapping[str, Any]) -> Figure:
    """Figure 2 as the paper prints it: one group of bars for each target.

    figure2: figures/paper/figure2.json      Source: [Paper, Figure 2].
    """
    models = figure2["speedup"]
    with style():
        figure, all_axes = canvas(
            len(models),
            (8.8, 2.9),
            sharey=True,
            width_ratios=list(map(len, models.values())),
        )
        for axes, (model, bars) in zip(all_axes, models.items(), strict=True):
            for i, (method, label) in enumerate(bars.items()):
                colour = LOOKS.get(method, OTHER)[0]
                hatch = {"EAGLE-3": "", "EAGLE-2": "//", "EAGLE": ".."}.get(
                    method, "xx"
                )
                axes.bar(i, label, 0.7, color=colour, hatch=hatch, edgecolor="white")
                axes.text(
                    i, label, f"{label:.1f}", ha="center", va="bottom", fontsize=8
                )
            axes.set_xticks(range(len(bars)), list(bars), rotation=40, ha="right")
            axes.set_title(f"{model}\n{figure2['tasks'][model]}")
        all_axes[0].set_ylabel("speedup")
    return figure


def gain_grid(found: Mapping[tuple, float], limits: tuple[float, float]) -> Figure:
    """Gains of one method over another, one number for each cell of Table 1.

    found: of `eagle3.paper.gains`      limits: what the text says; cells below it are
        marked with v, cells above it with ^, after rounding to two decimals
    Source: [Derived] from [Paper, Table 1].
    """
    rows = list(dict.fromkeys((t, model) for t, model, _ in found))
    tasks = list(dict.fromkeys(task for _, _, task in found))
    low, high = limits
    with style():
        figure, (axes,) = canvas(size=(7.4, 0.36 * len(rows) + 0.9))
        for i, (temperature, model) in enumerate(rows):
            for j, task in enumerate(tasks):
                gain = round(found[temperature, model, task], 2)
                mark = " ^" if gain > high else " v" if gain < low else ""
                axes.barh(i, 0.94, 0.88, j + 0.03, color=_PALE[mark])
                axes.text(j + 0.5, i, f"{gain:.2f}{mark}", ha="center", va="center")
        axes.set_xticks([j + 0.5 for j in range(len(tasks))], tasks)
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), [f"{m}, T = {t}" for t, m in rows])
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure

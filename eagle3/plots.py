"""Pictures as functions: data in, figure out. One meaning per colour, all book long.

What they are drawn with, palette and all, is in drawing.py. The functions draw on
figures of their own and leave pyplot's global state alone. Source: [Ours].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    HATCHES,
    INK,
    NEUTRAL,
    REJECTED,
    TARGET,
    canvas,
    png,
    style,
    svg_block,
    svg_label,
    svg_sheet,
)

if TYPE_CHECKING:  # a picture needs no measuring code to be drawn
    from eagle3.bench.roofline import Machine, Work


def show(figure: Figure, alt: str) -> None:
    """Show a figure as PNG together with its words, and print the words below it.

    alt: one line that says what the picture shows, numbers included; static pages use
        it as the alt text, and a test can compare it where it cannot compare pixels
    Source: [Ours].
    """
    words = f"Figure: {alt}"
    bundle = {"image/png": png(figure), "text/plain": words}
    display(bundle, raw=True, metadata={"image/png": {"alt": alt}})
    print(words)


# JupyterLab shows outputs in a row; the still one hides while the next one is alive.
_HIDE_STILL = """<style>.jp-OutputArea-child:has(.jp-RenderedSVG):has(
+ .jp-OutputArea-child .eagle3-live) { display: none; }</style>"""


def show_with_still(widget: Any, svg: str, alt: str) -> None:
    """Show a widget that leaves a still picture and words where no kernel runs.

    They are two outputs. In one, JupyterLab would prefer the widget even where its
    kernel is gone, and a notebook that is opened again would show no picture at all.
    widget: any ipywidgets widget
    svg: the picture of its first state
    alt: one line that says what the picture shows
    Source: [Ours].
    """
    import ipywidgets  # whoever has a widget has it; other pictures don't need it

    display({"image/svg+xml": svg, "text/plain": f"Figure: {alt}"}, raw=True)
    live = ipywidgets.VBox([widget, ipywidgets.HTML(_HIDE_STILL)])
    live.add_class("eagle3-live")
    bundle = live._repr_mimebundle_()  # ipywidgets has no public name for it
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/plain": "Run this cell to use the controls."}, raw=True)


def token_label(text: str) -> str:
    """A token's text made visible: spaces and line ends shown, rare letters escaped.

    Letters beyond those of the plotting font come out as \\u escapes instead of boxes.
    Source: [Ours].
    """
    visible = text.replace(" ", "␣").replace("\n", "\\n").replace("\t", "\\t")
    if any(ord(letter) >= 0x2E80 or ord(letter) < 32 for letter in visible):
        return visible.encode("unicode_escape").decode("ascii")
    return visible


def _label_words(axes: Axes, labels: Sequence[str], rotation: float = 0) -> None:
    side = "right" if rotation else "center"
    axes.set_xticks(
        range(len(labels)), labels, rotation=rotation, ha=side, parse_math=False
    )


# ------------------------------------------------------- chapter 2: accept or resample


def bars(
    labels: Sequence[str], series: Mapping[str, Sequence[float]], colours: Sequence[str]
) -> Figure:
    """Distributions over the same few tokens, side by side.

    labels: [V]  token texts
    series: name -> [V]  one distribution each
    colours: one for each series; hatches repeat the distinction
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas()
        width = 0.8 / len(series)
        for i, (name, values) in enumerate(series.items()):
            x = np.arange(len(labels)) + (i - (len(series) - 1) / 2) * width
            axes.bar(
                x,
                list(values),
                width,
                label=name,
                color=colours[i],
                hatch=HATCHES[i],
                edgecolor="white",
            )
        _label_words(axes, labels)
        axes.set_ylabel("probability")
        axes.legend()
    return figure


def overlap(panels: Mapping[str, tuple[Sequence[str], Any, Any]]) -> Figure:
    """The area that p and q share is the chance that a drafted token is accepted.

    panels: title -> (labels [V], p [V], q [V]); one panel of the row each
    Source: [Derived] from the acceptance rule of [Paper] section 2.1.
    """
    many = len(panels) > 1
    size = (3.0 * len(panels), 3.2) if many else (7.0, 3.2)
    with style():
        figure, all_axes = canvas(len(panels), size, sharey=True)
        for axes, (title, (labels, p, q)) in zip(all_axes, panels.items(), strict=True):
            _overlap_bars(axes, np.asarray(p), np.asarray(q))
            axes.set_title(title, parse_math=False)
            _label_words(axes, labels, rotation=40 if many else 0)
        all_axes[0].set_ylabel("probability")
        all_axes[-1].legend()
    return figure


def _overlap_bars(axes: Axes, p: np.ndarray, q: np.ndarray) -> None:
    """Each token's bar: the shared part, then what either side has beyond it."""
    shared, x = np.minimum(p, q), np.arange(len(p))
    parts = [
        (shared, 0 * shared, "both: accepted", ACCEPTED, "//"),
        (p - shared, shared, "target only: owed", TARGET, ""),
        (q - shared, shared, "draft only: rejected", DRAFT, ".."),
    ]
    for height, bottom, name, colour, hatch in parts:
        axes.bar(
            x,
            height,
            0.75,
            bottom,
            label=name,
            color=colour,
            hatch=hatch,
            edgecolor="white",
        )


def repayment(
    labels: Sequence[str], served: Any, repaid: Mapping[str, Any], p: Any
) -> Figure:
    """Where the probability of each token comes from, under several ways to resample.

    labels: [V]  token texts
    served: [V]  what acceptance already gave
    repaid: title -> [V]  what the resampling adds; one panel each
    p: [V]  the target, drawn as a black outline that the sum must meet
    Source: [Derived] from the acceptance rule of [Paper] section 2.1.
    """
    with style():
        figure, all_axes = canvas(len(repaid), (7.0, 2.9), sharey=True)
        x = np.arange(len(labels))
        for axes, (title, added) in zip(all_axes, repaid.items(), strict=True):
            axes.bar(
                x,
                served,
                0.75,
                label="accepted",
                color=ACCEPTED,
                hatch="//",
                edgecolor="white",
            )
            axes.bar(x, added, 0.75, served, label="resampled", color=TARGET)
            axes.bar(x, p, 0.85, fill=False, edgecolor=INK, lw=1.6, label="target p")
            axes.set_title(title)
            _label_words(axes, labels)
        all_axes[0].set_ylabel("probability")
        all_axes[-1].legend()
    return figure


def deviations(
    labels: Sequence[str], p: Any, shares: Mapping[str, Any], trials: int
) -> Figure:
    """How far counted shares lie from p, against what chance alone would do.

    labels: [V]  token texts
    p: [V]  expected shares
    shares: title -> [V]  share of the trials in which each token came out; one panel
        each
    trials: number of trials behind each share; the grey band is two standard deviations
    Source: [Ours].
    """
    p, x = np.asarray(p), np.arange(len(labels))
    band = 2 * np.sqrt(p * (1 - p) / trials)
    with style():
        figure, all_axes = canvas(len(shares), (7.0, 2.8))
        for axes, (title, share) in zip(all_axes, shares.items(), strict=True):
            axes.bar(x, 2 * band, 0.8, -band, color="#D0D0D0", label="chance (2 sd)")
            off = np.asarray(share) - p
            inside = np.abs(off) <= np.maximum(band * 1.5, 1e-9)
            for mask, colour, marker in (
                (inside, ACCEPTED, "o"),
                (~inside, REJECTED, "X"),
            ):
                axes.plot(x[mask], off[mask], marker, color=colour, ms=7)
            axes.axhline(0, color=INK, lw=0.8)
            axes.set_title(title)
            _label_words(axes, labels)
        all_axes[0].set_ylabel("share minus p")
        all_axes[0].legend(loc="lower right")
    return figure


def overlap_svg(labels: Sequence[str], p: Any, q: Any, words: str) -> str:
    """`overlap` as SVG text, for pictures that a widget redraws many times a second.

    labels: [V]  token texts
    p, q: [V]  target and draft distribution
    words: one line above the bars, which is also the picture's description
    Source: [Derived] from the acceptance rule of [Paper] section 2.1.
    """
    p, q = [float(v) for v in p], [float(v) for v in q]
    step = 620 / len(labels)
    parts = [svg_label(20, 22, words, "start", bold=True)]
    for i, label in enumerate(labels):
        parts += _svg_bar(40 + i * step, step * 0.7, p[i], q[i])
        parts.append(svg_label(40 + (i + 0.35) * step, 262, label))
    keys = [("both: accepted", ACCEPTED), ("target only: owed", TARGET)]
    keys.append(("draft only: rejected", DRAFT))
    for i, (name, colour) in enumerate(keys):
        parts.append(svg_block(40 + 200 * i, 278, 12, 12, colour))
        parts.append(svg_label(58 + 200 * i, 289, name, "start"))
    return svg_sheet(parts, (680, 300), words)


def _svg_bar(x: float, width: float, p: float, q: float) -> list[str]:
    """One token: the shared part from the base line up, the excess on top of it."""
    shared, larger = min(p, q), max(p, q)
    excess = TARGET if p > q else DRAFT
    base, unit = 230, 170  # pixels: the base line, and a probability of 1
    top = base - unit * larger
    middle = base - unit * shared
    numbers = f"p {p:.2f} q {q:.2f}"
    return [
        svg_block(x, middle, width, base - middle, ACCEPTED),
        svg_block(x, top, width, middle - top, excess),
        svg_label(x + width / 2, 245, numbers, size=9),
    ]


# ------------------------------------------------------ chapter 1: why decoding is slow


def computed_positions(
    labels: Sequence[str], panels: Mapping[str, Sequence[tuple[int, int]]]
) -> Figure:
    """Which positions each pass computes, and which it takes from the cache.

    labels: [T]  token texts
    panels: title -> (first, end) of the computed positions, one pair for each pass
    Source: [Derived].
    """
    with style():
        figure, all_axes = canvas(len(panels), (7.0, 2.7), sharey=True)
        for axes, (title, passes) in zip(all_axes, panels.items(), strict=True):
            for i, (first, end) in enumerate(passes):
                _tiles(axes, i, range(first), "#D9E8F2", "///")
                _tiles(axes, i, range(first, end), TARGET, "")
            axes.set_title(title)
            axes.grid(False)
            axes.set_xlim(-0.6, len(labels) - 0.4)
            axes.set_yticks(
                range(len(passes)), [f"pass {i + 1}" for i in range(len(passes))]
            )
            _label_words(axes, labels, rotation=55)
        all_axes[0].invert_yaxis()
    return figure


def _tiles(axes: Axes, row: int, columns: range, colour: str, hatch: str) -> None:
    look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
    axes.bar(columns, [0.8] * len(columns), 0.9, row - 0.4, **look)


def shares(parts: Mapping[str, float], unit: str) -> Figure:
    """One bar cut into named parts: what makes up a total.

    parts: name -> amount        unit: printed behind each amount
    Source: [Ours].
    """
    colours = (TARGET, "#5BA3D0", "#A9CCE3", NEUTRAL)
    with style():
        figure, (axes,) = canvas(size=(7.0, 1.5))
        left = 0.0
        for i, (name, amount) in enumerate(parts.items()):
            look = {"color": colours[i % 4], "hatch": HATCHES[i], "edgecolor": "white"}
            label = f"{name}: {amount:,.1f} {unit}"
            axes.barh([0], [amount], 0.6, left, label=label, **look)
            left += amount
        axes.set_yticks([])
        axes.grid(False)
        axes.set_xlabel(unit)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts))
    return figure


_CURVES = ((TARGET, "o", "-"), (NEUTRAL, "s", "--"), (INK, "^", ":"))


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
    log: bool = False,
) -> Figure:
    """Measured curves over the same x; markers and dashes repeat the colours.

    series: name -> [len(x)]  up to three, the book's own first
    labels: of the two axes        log: both axes in powers of 2
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.2))
        for (name, values), look in zip(series.items(), _CURVES, strict=False):
            colour, marker, dash = look
            axes.plot(x, values, dash, color=colour, marker=marker, ms=4, label=name)
        if log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.legend()
    return figure


def roofline(machine: Machine, points: Mapping[str, tuple[float, float]]) -> Figure:
    """What a machine allows at each intensity, and what passes reach of it.

    points: name -> (intensity in FLOP per byte, reached FLOP per second)
    Source: [Derived]; the form is Williams, Waterman and Patterson's (2009).
    """
    intensities = [intensity for intensity, _ in points.values()]
    low = min(*intensities, machine.ridge) / 2
    high = max(*intensities, machine.ridge) * 3
    x = np.geomspace(low, high, 200)
    roof = np.array([machine.attainable(value) for value in x]) / 1e9
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.6))
        axes.loglog(x, roof, color=INK, lw=1.5)
        axes.axvline(machine.ridge, color=NEUTRAL, lw=0.8, ls="--")
        axes.fill_between(x, roof, roof.min() / 4, color="#F0F0F0", zorder=0)
        for (name, (at, rate)), marker in zip(points.items(), "osD^v", strict=False):
            axes.plot(at, rate / 1e9, marker, color=TARGET, ms=8)
            axes.annotate(name, (at, rate / 1e9), (8, -14), textcoords="offset points")
        axes.set_ylim(roof.min() / 4, roof.max() * 2)
        for side, x_text in (("memory-bound", 0.02), ("compute-bound", 0.98)):
            edge = "left" if side.startswith("memory") else "right"
            axes.text(x_text, 0.93, side, ha=edge, transform=axes.transAxes)
        axes.set_xlabel("arithmetic intensity (FLOP per byte)")
        axes.set_ylabel("GFLOP/s")
    return figure


def cost_svg(machine: Machine, works: Mapping[str, Work], words: str) -> str:
    """Passes on the roofline and as times, as SVG text for a widget.

    works: name -> Work of a pass, two or three
    words: one line above the picture, which is also its description
    Left, each pass sits on the roof; right, two bars a pass: fetching the bytes and
    doing the arithmetic. The longer bar is the time of the pass.
    Source: [Derived].
    """
    parts = [svg_label(20, 22, words, "start", bold=True)]
    parts += _svg_roof(machine, list(works.values()))
    longest = max(work.seconds(machine) for work in works.values())
    for i, (name, work) in enumerate(works.items()):
        y = 70 + 80 * i
        times = (
            ("fetch", work.num_bytes / machine.bandwidth, TARGET),
            ("compute", work.flops / machine.peak, NEUTRAL),
        )
        parts.append(svg_label(360, y - 8, f"{i + 1}: {name}", "start"))
        for j, (what, seconds, colour) in enumerate(times):
            width = 180 * seconds / longest
            parts.append(svg_block(360, y + 22 * j, width, 18, colour))
            label = f"{what} {_readable(seconds)}"
            parts.append(
                svg_label(366 + width, y + 14 + 22 * j, label, "start", size=11)
            )
    return svg_sheet(parts, (680, 300), words)


def _svg_roof(machine: Machine, works: Sequence[Work]) -> list[str]:
    """A log-log roof in the left half, with a numbered dot for each pass on it."""
    low, high = 0.1, 10_000.0  # FLOP per byte
    depth = np.log10(machine.ridge / low)  # decades from the left end to the peak

    def place(intensity: float) -> tuple[float, float]:
        inside = min(max(intensity, low), high)
        along = np.log10(inside / low) / np.log10(high / low)
        below = np.log10(machine.peak / machine.attainable(inside)) / depth
        return 40 + 280 * float(along), 60 + 170 * float(below)

    corners = " ".join(
        f"{x:.1f},{y:.1f}" for x, y in map(place, (low, machine.ridge, high))
    )
    ridge_x, ridge_y = place(machine.ridge)
    parts = [
        f'<polyline points="{corners}" fill="none" stroke="{INK}" stroke-width="2"/>',
        f'<line x1="{ridge_x:.1f}" y1="{ridge_y:.1f}" x2="{ridge_x:.1f}" y2="245" '
        f'stroke="{NEUTRAL}" stroke-dasharray="4 3"/>',
        svg_label(ridge_x, 262, f"ridge {machine.ridge:.0f} FLOP per byte"),
        svg_label(180, 284, "arithmetic intensity, in powers of ten"),
    ]
    for i, work in enumerate(works):
        x, y = place(work.intensity)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{TARGET}"/>')
        parts.append(svg_label(x + 4, y + 22, str(i + 1), bold=True))
    return parts


def _readable(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


if __name__ == "__main__":  # draws all figures of the repository; see figures.py
    from eagle3.figures import main

    main()

"""Pictures as functions: data in, figure out. One meaning per colour, all book long.

Blue is the target, amber the draft, green what is accepted, vermillion what is
rejected; the palette is Okabe and Ito's, which colour-blind readers can tell apart.
A hatch or a label says the same again, so that no reader depends on colour. The
functions draw on figures of their own and leave pyplot's global state alone.
Source: [Ours].
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

TARGET = "#0072B2"  # blue
DRAFT = "#E69F00"  # amber
ACCEPTED = "#009E73"  # green-blue
REJECTED = "#D55E00"  # vermillion
NEUTRAL = "#767676"
INK = "#222222"
HATCHES = ("", "//", "..", "xx", "\\\\", "--")

_STYLE = {
    "axes.edgecolor": NEUTRAL,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#E3E3E3",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "savefig.facecolor": "white",
    "text.color": INK,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the book's style inside this block, and nowhere else. Source: [Ours]."""
    with matplotlib.rc_context(_STYLE):
        yield


def canvas(
    columns: int = 1, size: tuple[float, float] = (7.0, 2.8), **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure with a row of axes; call it inside `style()`.

    size: width and height in inches, fixed so that saved pictures never move
    options: passed to Figure.subplots, as sharey=True
    Source: [Ours].
    """
    figure = Figure(figsize=size)
    return figure, list(figure.subplots(1, columns, squeeze=False, **options)[0])


def show(figure: Figure, alt: str) -> None:
    """Show a figure as PNG together with its words, and print the words below it.

    alt: one line that says what the picture shows, numbers included; static pages use
        it as the alt text, and a test can compare it where it cannot compare pixels
    Source: [Ours].
    """
    png = io.BytesIO()
    with style():
        figure.savefig(png, format="png")
    words = f"Figure: {alt}"
    bundle = {"image/png": png.getvalue(), "text/plain": words}
    display(bundle, raw=True, metadata={"image/png": {"alt": alt}})
    print(words)


def show_with_still(widget: Any, svg: str, alt: str) -> None:
    """Show a widget that leaves a still picture and words where no kernel runs.

    widget: any ipywidgets widget
    svg: the picture of its first state
    alt: one line that says what the picture shows
    Source: [Ours].
    """
    bundle = widget._repr_mimebundle_()  # ipywidgets has no public name for it
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    still = {"image/svg+xml": svg, "text/plain": f"Figure: {alt}"}
    display({**data, **still}, raw=True)


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
    parts = [_svg_text(20, 22, words, "start", bold=True)]
    for i, label in enumerate(labels):
        parts += _svg_bar(40 + i * step, step * 0.7, p[i], q[i])
        parts.append(_svg_text(40 + (i + 0.35) * step, 262, label))
    keys = [("both: accepted", ACCEPTED), ("target only: owed", TARGET)]
    keys.append(("draft only: rejected", DRAFT))
    for i, (name, colour) in enumerate(keys):
        parts.append(_svg_rect(40 + 200 * i, 278, 12, 12, colour))
        parts.append(_svg_text(58 + 200 * i, 289, name, "start"))
    body = "\n".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 300" width="680" '
        f'font-family="sans-serif" role="img" aria-label="{escape(words)}">\n'
        f'<rect width="680" height="300" fill="white"/>\n{body}\n</svg>'
    )


def _svg_bar(x: float, width: float, p: float, q: float) -> list[str]:
    """One token: the shared part from the base line up, the excess on top of it."""
    shared, larger = min(p, q), max(p, q)
    excess = TARGET if p > q else DRAFT
    base, unit = 230, 170  # pixels: the base line, and a probability of 1
    top = base - unit * larger
    middle = base - unit * shared
    numbers = f"p {p:.2f} q {q:.2f}"
    return [
        _svg_rect(x, middle, width, base - middle, ACCEPTED),
        _svg_rect(x, top, width, middle - top, excess),
        _svg_text(x + width / 2, 245, numbers, size=9),
    ]


def _svg_rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="white"/>'
    )


def _svg_text(
    x: float, y: float, text: str, anchor: str = "middle", **look: Any
) -> str:
    weight = ' font-weight="bold"' if look.get("bold") else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-size="{look.get("size", 12)}" fill="{INK}"{weight}>{escape(text)}</text>'
    )

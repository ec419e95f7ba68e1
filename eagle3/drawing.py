"""What all pictures are drawn with: the palette, empty paper, boxes, arrows, SVG text.

One meaning per colour, all book long: blue is the target, amber the draft, green what
is accepted, vermillion what is rejected. The palette is Okabe and Ito's, which
colour-blind readers can tell apart; a hatch or a label says the same again. The figures
are in plots.py, diagrams.py and the `*_plots.py`. Source: [Ours].
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

TARGET = "#0072B2"  # blue
DRAFT = "#E69F00"  # amber
ACCEPTED = "#009E73"  # green-blue
REJECTED = "#D55E00"  # vermillion
NEUTRAL = "#767676"
INK = "#222222"
HATCHES = ("", "//", "..", "xx", "\\\\", "--")

PALE = {TARGET: "#D9E8F2", DRAFT: "#FBE9C6", NEUTRAL: "#F1F1F1", ACCEPTED: "#CDEBE1"}
PALE |= {REJECTED: "#F8DFCC"}

Place = tuple[float, float, float, float]  # left, bottom (SVG: top), width, height

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


@dataclass(frozen=True)
class Drawn:
    """A figure with its title and, in `words`, all that a reader should see in it."""

    figure: Figure
    title: str
    words: str


@contextmanager
def style() -> Iterator[None]:
    """Draw in the book's style inside this block, and nowhere else. Source: [Ours]."""
    with matplotlib.rc_context(_STYLE):
        yield


def png(
    figure: Figure,
    dots_per_inch: int | None = None,
    texts: Mapping[str, str] | None = None,
) -> bytes:
    """The figure as PNG with 256 colours: a third of the bytes, and no eye can tell.

    texts: what the file says of itself, as its title
    Source: [Ours].
    """
    full, small, notes = io.BytesIO(), io.BytesIO(), PngInfo()
    with style():
        figure.savefig(full, format="png", dpi=dots_per_inch or "figure")
    image = Image.open(full).convert("RGB")
    few = image.quantize(
        256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )
    for name, text in (texts or {}).items():
        notes.add_itxt(name, text)
    few.save(small, format="png", optimize=True, pnginfo=notes)
    return small.getvalue()


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


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """Empty paper of that many inches, in units of a tenth of an inch. [Ours]"""
    figure, (axes,) = canvas(size=(width, height))
    axes.set_axis_off()
    axes.set_xlim(0, 10 * width)
    axes.set_ylim(0, 10 * height)
    return figure, axes


def box(axes: Axes, place: Place, text: str, colour: str, **look: object) -> None:
    """A rounded box, pale inside, with a text in it.

    look: at "middle" or "top", bold, dashed, filled (default), size of the text
    Source: [Ours].
    """
    left, bottom, width, height = place
    filled = look.get("filled", True)
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.7",
            facecolor=PALE[colour] if filled else "white",
            edgecolor=colour,
            linewidth=1.6 if look.get("bold") else 1.0,
            linestyle="--" if look.get("dashed") else "-",
        )
    )
    at_top = look.get("at") == "top"
    axes.text(
        left + (1.0 if at_top else width / 2),
        bottom + (height - 0.8 if at_top else height / 2),
        text,
        ha="left" if at_top else "center",
        va="top" if at_top else "center_baseline",
        fontweight="bold" if look.get("bold") else "normal",
        fontsize=look.get("size", 8.5),
        linespacing=1.3,
        parse_math=False,
    )


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    **look: object,
) -> None:
    """An arrow from start to end. look: dashed, bend (0 is straight). [Ours]"""
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linestyle": "--" if look.get("dashed") else "-",
            "connectionstyle": f"arc3,rad={look.get('bend', 0)}",
            "shrinkA": 1,
            "shrinkB": 1,
        },
    )


# ---------------------------------------- SVG as text, which a widget redraws quickly


def svg_sheet(parts: Sequence[str], size: tuple[int, int], words: str) -> str:
    """A whole picture of that many pixels. words: what it shows, in a line. [Ours]"""
    (width, height), body = size, "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" font-family="sans-serif" role="img" '
        f'aria-label="{escape(words)}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>'
    )


def svg_rect(place: Place, fill: str, edge: str) -> str:
    """A rounded box with a rim. [Ours]"""
    x, y, width, height = place
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="5" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
    )


def svg_block(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A piece of a bar: square corners, one colour. [Ours]"""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="white"/>'
    )


def svg_text(x: float, y: float, text: str, size: int, **look: str) -> str:
    """Text from (x, y) on. look: attributes of the element, with _ for -. [Ours]"""
    more = "".join(f' {key.replace("_", "-")}="{look[key]}"' for key in look)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}"{more}>'
        f"{escape(text)}</text>"
    )


def svg_label(
    x: float, y: float, text: str, anchor: str = "middle", **look: Any
) -> str:
    """Text set around (x, y). look: size, bold. [Ours]"""
    weight = ' font-weight="bold"' if look.get("bold") else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-size="{look.get("size", 12)}" fill="{INK}"{weight}>{escape(text)}</text>'
    )

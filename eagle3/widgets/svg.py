"""SVG as text: the few shapes that the explorers are drawn from.

Every text is escaped, so that a token like <script> is a word in the picture and
nothing else. Source: [Ours].
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from eagle3.drawing import INK, Place, svg_sheet, svg_text


def rect(place: Place, fill: str, edge: str = "none", **look: object) -> str:
    """A rectangle. look: more attributes, with _ for - (stroke_width=2). [Ours]"""
    left, top, width, height = place
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" fill="{fill}" stroke="{edge}"{_attributes(look)}/>'
    )


def line(
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    **look: object,
) -> str:
    """A straight line. look: more attributes, with _ for -. [Ours]"""
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}"{_attributes(look)}/>'
    )


def polyline(
    corners: Sequence[tuple[float, float]], colour: str = INK, **look: object
) -> str:
    """A line through all corners. look: more attributes, with _ for -. [Ours]"""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}"'
        f"{_attributes(look)}/>"
    )


def text(x: float, y: float, words: str, size: float = 12, **look: object) -> str:
    """One line of text, its left end at x, its base line at y, escaped.

    look: more attributes, with _ for - (text_anchor="middle"). [Ours]
    """
    return svg_text(x, y, words, round(size, 1), **look)


def paragraph(
    x: float, y: float, words: str, columns: int = 92, **look: object
) -> list[str]:
    """Words broken into lines of at most so many letters, 18 pixels apart. [Ours]"""
    lines = textwrap.wrap(words, columns) or [""]
    return [text(x, y + 18 * i, part, 13, **look) for i, part in enumerate(lines)]


def _attributes(look: dict[str, object]) -> str:
    return "".join(
        f' {name.replace("_", "-")}="{escape(str(value))}"'
        for name, value in look.items()
    )


@dataclass(frozen=True)
class Handle:
    """A part of a picture that a hand can move: a slider over some area of it.

    name: the field of the state that it changes
    label: what it is, for those who don't see it      text: where it stands, in words
    place: its area in the picture's pixels: pointing there sets the value
    low, high, value: whole numbers
    grows: where larger values lie: "down" for the rows of a list, "up" for a height,
        "right" for columns
    big_step: what the page keys change
    pace: milliseconds from step to step where the page plays it; 0 means that the page
        gives it no Back, Play and Forward
    """

    name: str
    label: str
    text: str
    place: Place
    low: int
    high: int
    value: int
    grows: Literal["down", "up", "right"] = "down"
    big_step: int = 10
    pace: int = 0


@dataclass(frozen=True)
class Picture:
    """What a renderer returns: the picture, its words, and what can be moved in it.

    width, height: in pixels      parts: SVG elements, back to front
    words: all that a reader should see in it, in a sentence or two
    """

    width: float
    height: float
    parts: Sequence[str]
    words: str
    handles: Sequence[Handle] = ()

    @property
    def svg(self) -> str:
        """The picture as one SVG element that says its words. [Ours]"""
        size = (round(self.width), round(self.height))
        return svg_sheet(self.parts, size, self.words)

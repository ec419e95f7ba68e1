"""Pictures of a cycle's moments, as SVG text. Data in, text out.

Colours mean what they mean in plots.py, and a mark, a dash or a word says each of them
again. Source: [Ours]; what is drawn is tagged in step_through.py.
"""

from eagle3.drawing import PALE, Place, svg_rect, svg_sheet, svg_text
from eagle3.plots import ACCEPTED, DRAFT, NEUTRAL, REJECTED, TARGET
from eagle3.step_through import ROWS, Frame, Tile

_LEFT, _TOP, _STEP = 104, 58, 44
_SHADES = {-2: "#0B4F7A", -1: "#7FB2D1", 0: "#F4F4F4", 1: "#E8B36B", 2: "#9C5A00"}
_TOKEN_LOOK = {
    "committed": (TARGET, True, ""),
    "pending": (TARGET, False, "…"),
    "drafted": (DRAFT, True, "?"),
    "accepted": (ACCEPTED, True, "✓"),
    "rejected": (REJECTED, True, "✗"),
}


def frame_svg(frame: Frame) -> str:
    """A frame as SVG text: tokens and tensors by position, and both caches.

    Small squares are sketches of vectors: equal ones are equal vectors. A new tile has
    a bold edge, a dashed one stands in for a feature, a dotted one is missing or thrown
    away. Source: see `eagle3.step_through.frames`.
    """
    title = f"{frame.number} of {frame.total}: {frame.title}"
    parts, height = frame_parts(frame)
    parts.insert(0, svg_text(16, 24, title, 15, font_weight="bold"))
    return svg_sheet(parts, (700, round(height)), frame.alt)


def frame_parts(frame: Frame, top: float = 0.0) -> tuple[list[str], float]:
    """What `frame_svg` shows below its title, `top` pixels further down.

    Returns SVG elements, and where the picture goes on below them. [Ours]
    """
    width = min(96, 590 / len(frame.positions))
    first, rows = frame.positions[0], top + _TOP
    parts = [svg_text(16, top + 45, f"columns from position {first} on", 10.5)]
    for i, name in enumerate(ROWS):
        parts.append(svg_text(16, rows + _STEP * i + 22, name, 11.5))
    for (row, position), tile in frame.tiles.items():
        x = _LEFT + width * (position - first)
        y = rows + _STEP * ROWS.index(row)
        draw = _token_tile if row == "token" else _tensor_tile
        parts += draw((x, y, width - 6, _STEP - 8), tile)
    bottom = rows + _STEP * len(ROWS) + 6
    for i, name in enumerate(frame.caches):
        parts += _cache_bar(frame, name, width, bottom + 26 * i)
    return parts, bottom + 26 * len(frame.caches) + 6


def _token_tile(place: Place, tile: Tile) -> list[str]:
    colour, filled, mark = _TOKEN_LOOK[tile.state]
    x, y, width, _ = place
    label = f"{tile.label[: int(width / 9)]} {mark}".strip()
    look = {"text_anchor": "middle", "font_weight": "bold"}
    return [
        svg_rect(place, PALE[colour] if filled else "white", colour),
        svg_text(x + width / 2, y + 23, label, 12, **look),
    ]


def _tensor_tile(place: Place, tile: Tile) -> list[str]:
    x, y, width, height = place
    there = tile.state in ("new", "there")
    colour = (TARGET if tile.side == "target" else DRAFT) if there else NEUTRAL
    box = svg_rect(place, PALE[colour] if there else "white", colour)
    if tile.state == "new":
        box = box.replace('stroke-width="1.5"', 'stroke-width="3"')
    dashes = "7 3" if tile.stand_in and there else "" if there else "2 3"
    if dashes:
        box = box.replace("/>", f' stroke-dasharray="{dashes}"/>')
    label = f"{tile.label} gone" if tile.state == "gone" else tile.label
    label, sketched = label[: int(width / 5.6)], bool(tile.sketch) and there
    middle, base = x + width / 2, y + (15 if sketched else 23)
    parts = [box, svg_text(middle, base, label, 10.5, text_anchor="middle")]
    return parts + (_squares(middle, y + height - 15, tile, width) if sketched else [])


def _squares(middle: float, y: float, tile: Tile, width: float) -> list[str]:
    """The sketch of a vector, value by value."""
    side = min(9.0, (width - 10) / len(tile.sketch))
    left = middle - side * len(tile.sketch) / 2
    return [
        f'<rect x="{left + side * i:.1f}" y="{y:.1f}" width="{side - 1:.1f}" '
        f'height="9" fill="{_SHADES[value]}"/>'
        for i, value in enumerate(tile.sketch)
    ]


def _cache_bar(frame: Frame, name: str, width: float, y: float) -> list[str]:
    """Cached positions under the columns that they belong to."""
    settled, trial = frame.caches[name]
    colour = TARGET if name == "target" else DRAFT
    inside = width * max(0, settled - frame.positions[0])
    parts = [svg_text(16, y + 14, f"{name}'s cache", 11)]
    parts.append(svg_rect((_LEFT - 3, y, 3 + inside, 18), PALE[colour], colour))
    end = _LEFT + inside
    if trial:
        box = svg_rect((end, y, width * trial, 18), "white", colour)
        parts.append(box.replace("/>", ' stroke-dasharray="4 3"/>'))
        says = f"{trial} on trial"
        look = {"text_anchor": "middle"}
        parts.append(svg_text(end + width * trial / 2, y + 13, says, 10, **look))
    look = {"text_anchor": "end"} if inside > 60 else {}
    at = end - 6 if inside > 60 else end + width * trial + 8
    return [*parts, svg_text(at, y + 13, f"{settled} positions", 10.5, **look)]

"""Pictures of a chain that is drafted and verified: its mask, its caches, its worth.

Colours mean what they mean in plots.py, and a mark, a dash or a number says each of
them again. Data in, figure out. Source: [Ours].
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from eagle3.diagrams import verdict
from eagle3.drawing import (
    DRAFT,
    NEUTRAL,
    PALE,
    TARGET,
    canvas,
    style,
    svg_rect,
    svg_sheet,
    svg_text,
)
from eagle3.plots import token_label
from eagle3.trace import TraceRow

_SHOWN = 3  # committed tokens in a strip; the ones before are counted in one tile
_LEFT = 112  # pixels: where strips begin


def block_mask(cached: Sequence[str], block: Sequence[str]) -> Figure:
    """What each row of a verified block may attend to, and which token it judges.

    cached: texts of the last tokens in the cache, two or three
    block: the pending token and the drafted ones
    Source: [Derived] from causal attention; [Paper, section 2.1] has the pass.
    """
    columns, rows = [*cached, *block], len(block)
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.42 * rows + 1.0))
        for i in range(rows):
            for j in range(len(columns)):
                _mask_cell(axes, i, j, len(cached))
            judged = block[i + 1] if i + 1 < rows else None
            says = "gives the bonus token" if judged is None else f"judges {judged}"
            axes.text(len(columns) + 0.2, i + 0.5, says, va="center", parse_math=False)
        axes.set_xlim(0, len(columns) + 3.5)
        axes.set_ylim(rows, 0)
        middles = [j + 0.5 for j in range(len(columns))]
        axes.set_xticks(middles, columns, parse_math=False)
        axes.set_yticks(middles[:rows], [f"row of {word}" for word in block])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def _mask_cell(axes: Axes, row: int, column: int, num_cached: int) -> None:
    sees = column <= num_cached + row
    in_cache = column < num_cached
    colour = PALE[TARGET] if in_cache else TARGET
    axes.add_patch(
        Rectangle(
            (column + 0.04, row + 0.04),
            0.92,
            0.92,
            facecolor=colour if sees else "white",
            edgecolor="#E3E3E3",
        )
    )
    mark = "cached" if in_cache else "✓" if sees else "–"
    look = {"color": "white" if sees and not in_cache else NEUTRAL}
    axes.text(
        column + 0.5, row + 0.5, mark, ha="center", va="center", fontsize=7, **look
    )


@dataclass(frozen=True)
class CacheMoment:
    """One cycle with the text and the caches that it found. [Ours]

    text: the committed tokens before the cycle, all of them in the target's cache
    draft_cache: positions that the draft's cache held before the cycle
    row: the cycle
    """

    text: Sequence[str]
    draft_cache: int
    row: TraceRow

    @property
    def lengths(self) -> dict[str, tuple[int, int, int]]:
        """Cached positions before, after the passes, and after the rollback.

        A draft without a cache is left out. It never runs on its own last token.
        """
        known, row = len(self.text), self.row
        found = {"target": (known, known + 1 + len(row.drafted), row.target_cache)}
        if row.draft_cache:
            full = known + max(1, len(row.drafted))
            found["draft"] = (self.draft_cache, full, row.draft_cache)
        return found

    @property
    def words(self) -> str:
        """The cycle and its caches in one sentence."""
        caches = ", ".join(
            f"the {name}'s cache goes from {a} to {b} and back to {c} positions"
            for name, (a, b, c) in self.lengths.items()
        )
        return f"{self.row.words}; {caches}"


def cache_strips_svg(moment: CacheMoment) -> str:
    """Both caches before a cycle, after its passes and after the rollback, as SVG text.

    A solid tile is cached, a dashed one is known but not cached.
    Source: [Ours], the engine's trace.
    """
    parts = [svg_text(20, 24, moment.row.words, 13, font_weight="bold")]
    titles = ("before", "after the passes", "after the rollback")
    for time, title in enumerate(titles):
        y = 46 + 34 * len(moment.lengths) * time + 26 * time
        parts.append(svg_text(20, y + 8, title, 11, font_style="italic"))
        for strip, (name, lengths) in enumerate(moment.lengths.items()):
            top = y + 16 + 34 * strip
            parts.append(svg_text(20, top + 18, f"{name}'s cache", 11))
            parts += _strip(moment, name, time, top)
            parts.append(svg_text(640, top + 18, f"{lengths[time]}", 12))
    height = 46 + 3 * (34 * len(moment.lengths) + 26)
    return svg_sheet(parts, (700, height), moment.words)


def _strip(moment: CacheMoment, name: str, time: int, top: float) -> list[str]:
    """The tiles of one cache. time: 0 before, 1 after the passes, 2 at the end."""
    known, row = len(moment.text), moment.row
    tiles = [(text, None) for text in (*moment.text, row.pending)]
    if time == 1:
        tiles += [(text, verdict(row, i)) for i, text in enumerate(row.drafted)]
    elif time == 2:
        tiles += [(text, None) for text in row.drafted[: row.num_accepted]]
        tiles.append((row.next_token, None))
    first = max(0, known - _SHOWN)
    width = 510 / (_SHOWN + 3 + len(row.drafted))
    colour = TARGET if name == "target" else DRAFT
    parts = (
        _tile((_LEFT, top, width), f"… {first}", colour, cached=True) if first else []
    )
    for position in range(first, len(tiles)):
        text, judged = tiles[position]
        edge, mark = judged or (colour, "")
        place = (_LEFT + width * (position - first + 1), top, width)
        label = f"{token_label(text)[: int(width / 7)]} {mark}".strip()
        cached = position < moment.lengths[name][time]
        parts += _tile(place, label, edge, cached=cached)
    return parts


def _tile(
    place: tuple[float, float, float], label: str, colour: str, cached: bool
) -> list[str]:
    """place: left, top, width"""
    left, top, width = place
    inside = PALE[colour] if cached else "white"
    tile = svg_rect((left, top, width - 4, 26), inside, colour)
    if not cached:
        tile = tile.replace("/>", ' stroke-dasharray="4 3"/>')
    middle = left + width / 2 - 2
    return [tile, svg_text(middle, top + 17, label, 11, text_anchor="middle")]


def best_chains(
    across: tuple[str, Sequence[float]],
    up: tuple[str, Sequence[float]],
    best: Sequence[Sequence[tuple[int, float]]],
) -> Figure:
    """The best chain at each place of a grid: its length, and what it gains.

    across, up: what changes from column to column and from row to row, by name
    best: [rows, columns] pairs of chain length and speedup; length 0: don't draft
    Source: [Derived].
    """
    gains = [[gain for _, gain in line] for line in best]
    shades = LinearSegmentedColormap.from_list("gain", ["white", TARGET])
    top = max(1.01, *(gain for line in gains for gain in line))
    (column_name, columns), (row_name, rows) = across, up
    with style():
        figure, (axes,) = canvas(size=(7.2, 0.48 * len(rows) + 1.0))
        look = {"cmap": shades, "vmin": 1.0, "vmax": 1.4 * top}
        axes.imshow(gains, aspect="auto", origin="lower", **look)
        for i, line in enumerate(best):
            for j, (length, gain) in enumerate(line):
                says = f"n = {length}\n{gain:.2f}x" if length else "don't\ndraft"
                axes.text(j, i, says, ha="center", va="center", fontsize=7.5)
        axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
        axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
        axes.set_xlabel(column_name)
        axes.set_ylabel(row_name)
        axes.tick_params(length=0)
        axes.grid(False)
    return figure

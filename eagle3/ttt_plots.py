"""Pictures of training-time test: its mask, its tree, and what its attention costs.

The mask pictures are SVG text made from a `MaskScene`, so that a widget can redraw them
many times a second. Colours mean what they mean in drawing.py: blue stands for the
target's features, amber for the draft's own outputs, and a dot or a dash says each of
them again. Data in, picture out. Source: [Ours]; what a picture says is tagged at its
function.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from eagle3.drawing import (
    DRAFT,
    INK,
    NEUTRAL,
    PALE,
    TARGET,
    canvas,
    style,
    svg_rect,
    svg_sheet,
    svg_text,
)

_LEFT, _NODE = 70, (50.0, 22.0)  # pixels: room for row names; size of a tree's node


@dataclass(frozen=True)
class MaskScene:
    """One step of training-time test: which keys its rows may see.

    words: for each step 0..s the names of its T rows, which are its keys, too
    mask: [T, (s + 1) * T] bool, True = may attend; the rows are those of step s
    row: the one to follow; None for none       title: what is written above

    Raises ValueError when the shapes do not agree, or for a row that isn't there.
    [Ours]
    """

    words: Sequence[Sequence[str]]
    mask: Tensor
    row: int | None = None
    title: str = ""

    def __post_init__(self) -> None:
        want = (self.length, len(self.words) * self.length)
        if tuple(self.mask.shape) != want:
            raise ValueError(
                f"the mask has shape {list(self.mask.shape)}, but {len(self.words)} "
                f"steps of {self.length} rows need {list(want)}."
            )
        if self.row is not None and not 0 <= self.row < self.length:
            raise ValueError(f"there is no row {self.row} among {self.length}.")

    @property
    def length(self) -> int:
        """T, the number of rows."""
        return len(self.words[0])

    @property
    def step(self) -> int:
        """s, the step that the rows belong to."""
        return len(self.words) - 1

    def seen(self, row: int) -> list[tuple[int, int]]:
        """(step, position) of every key that a row sees."""
        columns = self.mask[row].nonzero().flatten().tolist()
        return [divmod(column, self.length) for column in columns]

    @property
    def sentence(self) -> str:
        """The picture in one sentence, for those who don't see it."""
        title = self.title or f"step {self.step}"
        rows = range(self.length) if self.row is None else [self.row]
        told = []
        for row in rows:
            keys = [self.words[step][place] for step, place in self.seen(row)]
            told.append(f"'{self.words[-1][row]}' sees {', '.join(keys) or 'nothing'}")
        return f"{title}: " + "; ".join(told)


def scenes_svg(scenes: Sequence[MaskScene]) -> str:
    """Masks below each other, each with its tree at the right, as SVG text.

    A row of a mask is a query, a column a key; a dot marks what is seen. In the tree
    every token hangs below the one that it follows. Where one row is followed, only
    what that row sees is filled. Source: [Paper, Figure 6]; the picture [Ours].
    """
    parts: list[str] = []
    top, wide = 8.0, 0.0
    for scene in scenes:
        drawn, (width, height) = _scene(scene, top)
        parts += drawn
        top, wide = top + height + 16, max(wide, width)
    words = ". ".join(scene.sentence for scene in scenes)
    return svg_sheet(parts, (round(wide), round(top)), words)


def show_scenes(scenes: Sequence[MaskScene]) -> None:
    """Show masks and trees in a notebook, with words for static pages. [Ours]"""
    words = ". ".join(scene.sentence for scene in scenes)
    still = {"image/svg+xml": scenes_svg(scenes), "text/plain": f"Figure: {words}"}
    display(still, raw=True)


def _scene(scene: MaskScene, top: float) -> tuple[list[str], tuple[float, float]]:
    """What to draw for a scene, and its width and height."""
    cell = min(32.0, 400.0 / (len(scene.words) * scene.length))
    mask_wide = _LEFT + len(scene.words) * (scene.length * cell + 8)
    title = scene.title or f"step {scene.step}"
    parts = [svg_text(8, top + 14, title, 13, font_weight="bold")]
    parts += _mask_parts(scene, top + 76, cell)
    parts += _tree_parts(scene, (mask_wide + 14, top + 30))
    mask_tall = 80 + scene.length * cell
    tree_tall = 40 + 40 * len(scene.words)
    wide = mask_wide + 14 + scene.length * (_NODE[0] + 12)
    return parts, (wide, max(mask_tall, tree_tall))


def _mask_parts(scene: MaskScene, top: float, cell: float) -> list[str]:
    """The grid with names, its first row at `top`."""
    parts = []
    for step, words in enumerate(scene.words):
        left = _LEFT + step * (scene.length * cell + 8)
        parts.append(svg_text(left, top - 44, f"keys of step {step}", 10))
        for place, word in enumerate(words):
            x = left + (place + 0.62) * cell
            turn = f"rotate(-40 {x:.1f} {top - 6:.1f})"
            parts.append(svg_text(x, top - 6, word, 10, transform=turn))
            for row in range(scene.length):
                place_of = (left + place * cell, top + row * cell)
                parts += _cell(scene, (row, step, place), place_of, cell)
    for row, word in enumerate(scene.words[-1]):
        weight = "bold" if row == scene.row else "normal"
        y = top + (row + 0.5) * cell + 4
        look = {"text_anchor": "end", "font_weight": weight}
        parts.append(svg_text(_LEFT - 8, y, word, 11, **look))
    if scene.row is not None:
        wide = len(scene.words) * (scene.length * cell + 8) - 8
        parts.append(
            f'<rect x="{_LEFT - 1:.1f}" y="{top + scene.row * cell - 1:.1f}" '
            f'width="{wide + 2:.1f}" height="{cell + 2:.1f}" fill="none" '
            f'stroke="{INK}" stroke-width="2"/>'
        )
    return parts


def _cell(
    scene: MaskScene, at: tuple[int, int, int], corner: tuple[float, float], cell: float
) -> list[str]:
    """One cell of a mask. at: row, and step and position of the key"""
    row, step, place = at
    seen = bool(scene.mask[row, step * scene.length + place])
    pale = PALE[TARGET if step == 0 else DRAFT]
    x, y = corner
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
        f'fill="{pale if seen else "white"}" stroke="#BBBBBB"/>'
    ]
    if seen:
        middle = f'cx="{x + cell / 2:.1f}" cy="{y + cell / 2:.1f}"'
        parts.append(f'<circle {middle} r="{min(3.0, cell / 4):.1f}" fill="{INK}"/>')
    return parts


def _tree_parts(scene: MaskScene, corner: tuple[float, float]) -> list[str]:
    """Step 0 in a line from left to right, and below each token what follows it."""
    (left, top), (wide, tall) = corner, _NODE
    follow = scene.row is not None
    seen = set(scene.seen(scene.row)) if follow else None
    edges, nodes = [], []
    for step, words in enumerate(scene.words):
        for place, word in enumerate(words):
            x, y = left + place * (wide + 12), top + 40 * step
            if step:
                middle = x + wide / 2
                edges.append(_line(middle, y - 40 + tall, middle, y))
            elif place:
                edges.append(_line(x - 12, y + tall / 2, x, y + tall / 2))
            filled = seen is None or (step, place) in seen
            own = follow and (step, place) == (scene.step, scene.row)
            nodes += _node((x, y), word, step == 0, (filled, own))
    return edges + nodes


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{NEUTRAL}"/>'


def _node(
    corner: tuple[float, float], word: str, real: bool, state: tuple[bool, bool]
) -> list[str]:
    """A token of the tree. state: is it seen, and is it the row that looks?"""
    filled, own = state
    colour = TARGET if real else DRAFT
    box = svg_rect((*corner, *_NODE), PALE[colour] if filled else "white", colour)
    if not filled:
        box = box.replace("/>", ' stroke-dasharray="4 3"/>')
    look = {"text_anchor": "middle", "font_weight": "bold" if own else "normal"}
    x, y = corner[0] + _NODE[0] / 2, corner[1] + _NODE[1] / 2 + 4
    return [box, svg_text(x, y, word, 11, **look)]


# ----------------------------------------------------------------------------- its cost

_LOOKS = {
    "diagonal": (DRAFT, "o", "-"),
    "diagonal, whole": (DRAFT, "P", "--"),
    "dense": (NEUTRAL, "s", "--"),
    "fused": (INK, "^", ":"),
    "flex": (INK, "D", "-."),
    "flex, compiled": (TARGET, "v", "--"),
}
_PANELS = {"forward": "forward alone", "training": "forward and backward"}


def cost_curves(rows: Iterable[Mapping[str, Any]], steps: int) -> Figure:
    """Speed and peak memory of each form over the length of the sequence.

    rows: of `eagle3.bench.ttt_cost`; those of this number of steps are drawn, and a
        form that has no backward pass is drawn where it runs, in the first panel
    Source: [Ours].
    """
    rows = [row for row in rows if row["steps"] == steps]
    with style():
        figure, all_axes = canvas(3, (8.4, 3.3))
        for axes, (kind, title) in zip(all_axes, _PANELS.items(), strict=False):
            _curves(axes, rows, lambda row, kind=kind: _rate(row, kind))
            axes.set_title(title)
        all_axes[0].set_ylabel("tokens per second")
        _curves(all_axes[2], rows, _megabytes)
        all_axes[2].set_title("peak memory")
        all_axes[2].set_ylabel("MB, forward and backward")
        handles, names = all_axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5)
    return figure


def _rate(row: Mapping[str, Any], kind: str) -> float | None:
    return row[kind] and row[kind]["tokens_per_second"]


def _megabytes(row: Mapping[str, Any]) -> float | None:
    return row["peak_bytes"] / 1e6 if row["memory_of"] == "training" else None


def _curves(axes: Axes, rows: Sequence[Mapping[str, Any]], value_of: Any) -> None:
    """One line for each form that has values; both axes in powers of ten and two."""
    for form, (colour, marker, dash) in _LOOKS.items():
        found = [(row["length"], value_of(row)) for row in rows if row["form"] == form]
        points = [(x, y) for x, y in found if y is not None]
        if points:
            look = {"color": colour, "marker": marker, "ms": 4, "label": form}
            axes.plot(*zip(*points, strict=True), dash, **look)
    lengths = sorted({row["length"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlabel("tokens")


def advantage(
    steps: Sequence[int], ratios: Mapping[str, Sequence[float]], length: int
) -> Figure:
    """How many times cheaper the diagonal form is than the dense mask, over the steps.

    ratios: what is compared -> one number for each of the steps, up to three
    Source: [Ours]; the count is [Derived].
    """
    looks = ((DRAFT, "o", "-"), (INK, "^", "--"), (NEUTRAL, "s", ":"))
    with style():
        figure, (axes,) = canvas(size=(6.4, 3.0))
        for (name, values), look in zip(ratios.items(), looks, strict=False):
            colour, marker, dash = look
            axes.plot(steps, values, dash, color=colour, marker=marker, label=name)
        axes.axhline(1, color=INK, lw=0.8)
        axes.set_ylim(bottom=0)
        axes.set_xticks(list(steps))
        axes.set_xlabel("steps of training-time test")
        axes.set_ylabel(f"dense mask / diagonal form\nat {length:,} tokens")
        axes.legend()
    return figure

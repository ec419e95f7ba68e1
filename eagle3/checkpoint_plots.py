"""Pictures of checkpoints: who calls a tensor what, and what a wrong reading costs.

Colours mean what they mean in plots.py, and a mark or a hatch says each of them again.
Data in, figure out. Source: [Ours].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    PALE,
    REJECTED,
    TARGET,
    arrow,
    box,
    canvas,
    sheet,
    style,
    svg_label,
    svg_sheet,
)

# ------------------------------------------------------------------ the map of the keys


@dataclass(frozen=True)
class Key:
    """One tensor of a draft and its names.

    part: where it sits, a name of PARTS
    names: format -> what the tensor is called there, "" where it isn't stored
    shape: its sizes, as text
    note: what else is to know of it

    Raises ValueError for a part that the picture doesn't have. [Ours]
    """

    part: str
    names: Mapping[str, str]
    shape: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise ValueError(
                f"no part of the draft is called {self.part!r}: take one of "
                f"{', '.join(PARTS)}."
            )

    @property
    def words(self) -> str:
        """The card in one sentence, for those who don't see it."""
        said = [f"{name} in {where}" for where, name in self.names.items() if name]
        return f"{self.part}, shape {self.shape}: {'; '.join(said)}"


# part of the draft -> left, top, width, height of its box, in pixels of `key_svg`
PARTS: Mapping[str, tuple[int, int, int, int]] = {
    "fusion": (20, 268, 102, 26),
    "embedding": (130, 268, 102, 26),
    "norm of the feature": (20, 224, 102, 26),
    "norm of the token": (130, 224, 102, 26),
    "attention in": (20, 180, 212, 26),
    "attention out": (20, 146, 212, 26),
    "norm before the MLP": (20, 112, 102, 26),
    "MLP": (130, 112, 102, 26),
    "final norm": (20, 78, 102, 26),
    "head": (130, 78, 102, 26),
    "vocabulary map": (20, 44, 212, 26),
}


def key_map(keys: Sequence[Key], formats: Sequence[str]) -> Figure:
    """All tensors of a draft, one line each, with their names in several formats.

    formats: the columns, names of the keys' `names`
    A line between two columns is amber where the name changes and grey where it stays.
    Bands group the tensors by part. Source: [Code], the loaders of the formats.
    """
    step, wide = 2.1, 29.5  # tenths of an inch: from line to line, of a column
    left = 15.5
    height = step * (len(keys) + 1) + 1.5
    with style():
        figure, axes = sheet((left + wide * len(formats)) / 10, height / 10)
        _bands(axes, keys, (step, height, left + wide * len(formats)))
        for column, name in enumerate(formats):
            x = left + wide * column
            axes.text(x, height - 1.4, name, fontweight="bold", va="center")
            for line, key in enumerate(keys):
                y = height - 1.4 - step * (line + 1)
                mine = key.names[name]
                look = {"va": "center", "fontsize": 7, "family": "DejaVu Sans Mono"}
                axes.text(x, y, mine or "not stored", parse_math=False, **look)
                if column:
                    before = key.names[formats[column - 1]]
                    _link(axes, x, y, before and mine and before != mine)
    return figure


def _link(axes: Axes, x: float, y: float, differs: object) -> None:
    """The stroke that leads to a name from the column before."""
    look = {"color": DRAFT, "lw": 1.6} if differs else {"color": NEUTRAL, "lw": 0.6}
    axes.plot([x - 2.6, x - 0.5], [y, y], **look)
    if differs:
        axes.text(x - 1.5, y + 0.15, "≠", color=DRAFT, ha="center", fontsize=7)


def _bands(axes: Axes, keys: Sequence[Key], size: tuple[float, float, float]) -> None:
    """A pale band with its name behind the lines of each part of the draft."""
    step, height, width = size
    start, number = 0, 0
    for i, key in enumerate(keys):
        if i + 1 < len(keys) and keys[i + 1].part == key.part:
            continue
        top = height - 1.4 - step * (start + 0.5)
        tall, middle = step * (i + 1 - start), step * (i + 1 - start) / 2
        if number % 2 == 0:
            place = (0, top - tall), width, tall
            axes.add_patch(Rectangle(*place, facecolor=PALE[NEUTRAL], lw=0))
        axes.text(0.6, top - middle, key.part, va="center", fontsize=7.5)
        start, number = i + 1, number + 1


def key_svg(key: Key) -> str:
    """One tensor: where it sits in the draft, its shape, and its names. [Ours]"""
    parts = [svg_label(20, 24, "from below up: how a draft is built", "start", size=11)]
    for name, (x, y, width, height) in PARTS.items():
        here = name == key.part
        fill, edge = (PALE[DRAFT], DRAFT) if here else ("white", NEUTRAL)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" '
            f'fill="{fill}" stroke="{edge}" stroke-width="{2.5 if here else 1}"/>'
        )
        label = f"▶ {name}" if here else name
        size = 8.5 if width < 200 else 11
        parts.append(
            svg_label(x + width / 2, y + 17, label, "middle", size=size, bold=here)
        )
    parts.append(svg_label(262, 24, f"shape {key.shape}", "start", bold=True))
    y = 54
    for where, name in key.names.items():
        parts.append(svg_label(262, y, where, "start", size=10))
        parts.append(
            f'<text x="262" y="{y + 15}" font-family="monospace" font-size="12" '
            f'fill="{INK}">{escape(name or "not stored")}</text>'
        )
        y += 38
    parts.append(svg_label(262, y + 4, key.note, "start", size=11))
    return svg_sheet(parts, (700, 310), key.words)


# ------------------------------------------------------------------------- the taps


def numberings(num_layers: int, taps: Sequence[int]) -> Figure:
    """The vectors between the layers of a target, and the two ways to number them.

    num_layers: L        taps: as inputs of layers
    Source: [Code], the two families of engines.
    """
    step = 7.4
    width = step * num_layers + 14.5
    with style():
        figure, axes = sheet(width / 10, 1.9)
        axes.text(0.2, 16.6, "input of layer", fontsize=7.5, va="center")
        axes.text(0.2, 3.6, "output of layer", fontsize=7.5, va="center")
        for i in range(num_layers):
            x = 14.5 + step * i
            box(axes, (x + 1.8, 8.0, 4.4, 4.2), f"layer\n{i}", TARGET, size=7)
            chosen = i in taps
            arrow(axes, (x - 1.2, 10.1), (x + 1.8, 10.1), DRAFT if chosen else INK)
            _number(axes, (x, 16.6), str(i), chosen)
            below = "embedding" if i == 0 else str(i - 1)
            _number(axes, (x, 3.6), below, chosen)
            if chosen:
                axes.plot([x, x], [5.0, 15.2], color=DRAFT, lw=1.4, ls=":")
                axes.plot([x], [10.1], "D", color=DRAFT, ms=5)
    return figure


def _number(axes: Axes, at: tuple[float, float], text: str, chosen: bool) -> None:
    look = {"ha": "center", "va": "center", "fontsize": 9 if len(text) < 3 else 6}
    axes.text(*at, text, fontweight="bold" if chosen else "normal", **look)


# ------------------------------------------------------------------ loaders and damage

# what a loader did -> mark, colour
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "right": ("✓ right", ACCEPTED),
    "silently wrong": ("✗ silent", REJECTED),
    "refused": ("■ refused", TARGET),
    "not its format": ("–", NEUTRAL),
}


def loader_grid(outcomes: Mapping[str, Mapping[str, str]]) -> Figure:
    """What each loader makes of each file.

    outcomes: file -> loader -> a key of OUTCOMES; the same loaders for every file
    Source: [Ours], after the loaders' code.
    """
    loaders = list(next(iter(outcomes.values())))
    left, wide, tall = 33.0, 11.0, 2.6
    width, height = left + wide * len(loaders), tall * (len(outcomes) + 1)
    with style():
        figure, axes = sheet(width / 10, height / 10)
        for column, loader in enumerate(loaders):
            x = left + wide * (column + 0.5)
            middle = {"ha": "center", "va": "center", "fontweight": "bold"}
            axes.text(x, height - tall / 2, loader, fontsize=8, **middle)
        for line, (name, row) in enumerate(outcomes.items()):
            y = height - tall * (line + 2)
            axes.text(0.3, y + tall / 2, name, va="center", fontsize=8)
            for column, loader in enumerate(loaders):
                text, colour = OUTCOMES[row[loader]]
                place = (left + wide * column + 0.3, y + 0.2, wide - 0.6, tall - 0.4)
                bold = row[loader] == "silently wrong"
                box(axes, place, text, colour, size=8, bold=bold)
    return figure


def damage(shares: Mapping[str, float], right: str) -> Figure:
    """How many of the draft's first guesses are still right under each wrong reading.

    shares: reading -> share of right guesses      right: the reading without a mistake
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.28 * len(shares) + 0.8))
        for line, (name, share) in enumerate(shares.items()):
            fine = name == right
            colour, hatch = (ACCEPTED, "") if fine else (REJECTED, "//")
            look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
            axes.barh(line, share, 0.7, **look)
            # A number beside the dashed line, not under it.
            end = shares[right] if share > shares[right] - 0.08 else share
            axes.text(end + 0.008, line, f"{share:.2f}", va="center", fontsize=8)
        axes.axvline(shares[right], color=INK, lw=0.8, ls="--")
        axes.set_yticks(range(len(shares)), list(shares), parse_math=False)
        axes.invert_yaxis()
        axes.grid(False)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of first guesses that the target would make")
    return figure


# --------------------------------------------------------------------------- parity


def parity(errors: Mapping[str, tuple[float, float]]) -> Figure:
    """The largest difference to somebody else's numbers, tensor by tensor.

    errors: tensor -> (largest difference, what is allowed)
    Green dots keep to what is allowed, vermillion crosses don't; a bar marks the limit.
    Source: [Ours].
    """
    floor = 1e-8  # where a difference of exactly 0 is drawn
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.24 * len(errors) + 0.8))
        for line, (error, limit) in enumerate(errors.values()):
            fine = error <= limit
            look = ("o", ACCEPTED) if fine else ("X", REJECTED)
            axes.plot([floor, max(error, floor)], [line, line], color="#D0D0D0", lw=1)
            axes.plot(max(error, floor), line, look[0], color=look[1], ms=6)
            axes.plot([limit, limit], [line - 0.35, line + 0.35], color=INK, lw=1.4)
        axes.set_xscale("log")
        axes.set_xlim(floor / 2, 10 * max(max(pair) for pair in errors.values()))
        axes.set_yticks(range(len(errors)), list(errors), parse_math=False)
        axes.invert_yaxis()
        axes.grid(False)
        axes.set_xlabel("largest difference (dot) and limit (bar); 0 is drawn at 1e-8")
    return figure

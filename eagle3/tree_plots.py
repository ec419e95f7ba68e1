"""Pictures of draft trees: the nodes by level, and who sees whom.

Colours mean what they mean in plots.py, and a mark or a dash says each of them again.
Data in, figure out. Source: [Ours].
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    PALE,
    REJECTED,
    TARGET,
    Place,
    box,
    sheet,
    style,
)
from eagle3.tree import DraftTree

_STEP, _WIDTH = 11.5, 8.3  # tenths of an inch: from level to level, and of a box


@dataclass(frozen=True)
class TreePicture:
    """A draft tree with all that is to be seen of it.

    pending: text of the root        labels: text of each of the n nodes
    parents: of each node the one that it follows, -1 for the root
    confidence: of each node, written into its box; None writes nothing
    cut: nodes that were scored and did not make it into the tree
    path: the accepted nodes from the root down; None where nothing was verified yet

    Raises ValueError for a path that doesn't hang together, and what DraftTree
    raises. [Ours]
    """

    pending: str
    labels: Sequence[str]
    parents: Sequence[int]
    confidence: Sequence[float] | None = None
    cut: Collection[int] = ()
    path: Sequence[int] | None = None

    def __post_init__(self) -> None:
        path = tuple(self.path or ())
        if path and self.tree.path(path[-1]) != path:
            raise ValueError(
                f"{path} is no path of this tree: name nodes from below the root "
                "down, each the parent of the next."
            )

    @property
    def tree(self) -> DraftTree:
        """The shape alone."""
        return DraftTree(tuple(range(len(self.labels))), tuple(self.parents))

    @property
    def words(self) -> str:
        """The picture in one sentence, for those who don't see it."""
        total, depths = len(self.labels), self.tree.depths
        levels = max(depths, default=0)
        text = f"a tree of {total} drafted tokens in {levels} levels behind "
        text += f"'{self.pending}'"
        if self.cut:
            text += f", {total - len(self.cut)} of them kept and {len(self.cut)} cut"
        if self.path is None:
            return text
        said = " ".join(f"'{self.labels[node]}'" for node in self.path)
        return f"{text}; the target accepts {said or 'none of them'}"

    def look(self, node: int) -> tuple[str, str]:
        """Colour and mark of a node. [Ours]"""
        if node in self.cut:
            return NEUTRAL, ""
        if self.path is None:
            return DRAFT, ""
        if node in self.path:
            return ACCEPTED, "✓"
        looked_at = self.parents[node] in (-1, *self.path)
        return (REJECTED, "✗") if looked_at else (DRAFT, "")


def node_places(tree: DraftTree) -> list[float]:
    """The line on which each node is drawn: leaves below each other, parents between.

    Returns n + 1 numbers, the root's last; a leaf's is a whole number. [Ours]
    """
    lines = [0.0] * (len(tree) + 1)
    free = 0

    def place(node: int) -> float:
        nonlocal free
        children = tree.children[node]
        if children:
            of_children = [place(child) for child in children]
            lines[node] = (of_children[0] + of_children[-1]) / 2
        else:
            lines[node], free = float(free), free + 1
        return lines[node]

    place(-1)
    return lines


def tree_figure(picture: TreePicture) -> Figure:
    """A draft tree from left to right, one column for each level.

    Blue is the pending token, amber a drafted one, green with ✓ an accepted one,
    vermillion with ✗ a sibling that was looked at and refused; dashed grey was cut.
    Source: [Ours].
    """
    tree = picture.tree
    places, columns = node_places(tree), [*tree.depths, 0]
    tall = 2.3 if picture.confidence is None else 3.2  # of a box, in tenths of an inch
    height = (tall + 0.7) * (1 + max(places)) + 2
    with style():
        figure, axes = sheet(0.1 * _STEP * (1 + max(columns)), 0.1 * height)
        spot = [
            (0.4 + _STEP * column, height - 1 - tall - (tall + 0.7) * line)
            for column, line in zip(columns, places, strict=True)
        ]
        for node, parent in enumerate(picture.parents):
            _edge(axes, picture, node, (spot[parent], spot[node], tall))
        for node, label in enumerate(picture.labels):
            colour, mark = picture.look(node)
            text = f"{label[:10]} {mark}".strip()
            if picture.confidence is not None:
                text += f"\n{picture.confidence[node]:.3f}"
            place = (*spot[node], _WIDTH, tall)
            _node(axes, place, text, colour, node in picture.cut)
        place = (*spot[-1], _WIDTH, tall)
        _node(axes, place, picture.pending[:12], TARGET, False)
    return figure


def _node(axes: Axes, place: Place, text: str, colour: str, cut: bool) -> None:
    look = {"size": 6.8, "dashed": cut, "filled": not cut, "bold": colour == ACCEPTED}
    box(axes, place, text, colour, **look)


def _edge(axes: Axes, picture: TreePicture, node: int, ends: tuple) -> None:
    """ends: corners of the parent's box and of its own, and the height of both."""
    (left, bottom), (right, top), tall = ends
    accepted = node in (picture.path or ())
    axes.plot(
        [left + _WIDTH, right],
        [bottom + tall / 2, top + tall / 2],
        color=ACCEPTED if accepted else NEUTRAL,
        lw=2.0 if accepted else 0.8,
        ls="--" if node in picture.cut else "-",
    )


def mask_figure(labels: Sequence[str], mask: Tensor) -> Figure:
    """Who may attend to whom in the block that is verified.

    labels: n + 1 texts, the pending token's first
    mask: [n + 1, n + 1] bool, True = may attend; a row for each query
    A blue column is the pending token, amber ones are drafted tokens; a dot marks what
    is seen. At the right stands how far behind the context each token lies.
    Source: [Paper, section 2.2]; the picture [Ours].
    """
    rows = mask.tolist()
    size = len(labels)
    distance = [sum(row) - 1 for row in rows]
    with style():
        figure, axes = sheet(0.32 * size + 1.9, 0.26 * size + 0.8)
        axes.set_xlim(-3.6, size + 2.3)
        axes.set_ylim(size + 0.2, -2.2)
        look = {"va": "center", "fontsize": 8, "parse_math": False}
        for i, label in enumerate(labels):
            axes.text(-0.2, i + 0.5, f"{i}  {label[:10]}", ha="right", **look)
            axes.text(size + 0.5, i + 0.5, f"T + {distance[i]}", **look)
            axes.text(
                i + 0.5,
                -0.15,
                label[:10],
                ha="center",
                va="bottom",
                rotation=55,
                fontsize=8,
                parse_math=False,
            )
            for j, seen in enumerate(rows[i]):
                _cell(axes, i, j, seen)
        axes.text(size + 0.5, -0.4, "position", fontsize=8)
    return figure


def _cell(axes: Axes, row: int, column: int, seen: bool) -> None:
    owner = TARGET if column == 0 else DRAFT
    face = PALE[owner] if seen else "white"
    axes.add_patch(
        Rectangle((column, row), 1, 1, facecolor=face, edgecolor="#BBBBBB", lw=0.7)
    )
    if seen:
        axes.plot(column + 0.5, row + 0.5, "o", color=INK, ms=3)

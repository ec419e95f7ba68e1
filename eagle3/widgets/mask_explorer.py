"""The mask explorer: who may attend to whom, query by query. [Paper, Figure 6]

Blue keys hold the target's features, amber ones the draft's own outputs. A dot marks
what is seen, a cross what inference will not see.
"""

import ipywidgets

from eagle3.drawing import DRAFT, INK, NEUTRAL, PALE, REJECTED, TARGET
from eagle3.plots import token_label
from eagle3.tree_plots import node_places
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.mask_state import CAUSAL, NAIVE, TREE, TTT, VIEWS, MaskState
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text

_WIDTH, _LEFT, _GRID = 700, 96, "#BBBBBB"


def mask_explorer(state: MaskState | None = None) -> Explorer:
    """Choose a mask and a query, and see whom it attends to and why. [Ours]

    state: where to begin; the paper's Figure 6 by default
    """
    number, wide = ipywidgets.Layout(width="110px"), ipywidgets.Layout(width="170px")
    controls = {
        "view": ipywidgets.ToggleButtons(options=VIEWS, description="Mask"),
        "step": ipywidgets.IntText(description="Simulated steps", layout=wide),
        "length": ipywidgets.IntText(description="Words", layout=number),
        "text": ipywidgets.Text(description="Your words", continuous_update=False),
    }
    return Explorer(state or MaskState(), draw_mask, controls, walked="row")


def draw_mask(state: MaskState) -> Picture:
    """The mask, the tree behind it and the sentence about the chosen query. [Ours]"""
    grid = _Grid(state)
    parts = paragraph(14, 24, state.sentence, font_weight="bold")
    grid.top = 18.0 * len(parts) + 74
    parts += grid.headings() + grid.cells() + grid.labels()
    tree_width = _tree_size(state)[0]
    beside = grid.right + 40 + tree_width <= _WIDTH
    corner = (grid.right + 40, grid.top) if beside else (20, grid.bottom + 30)
    parts += _tree(state, corner)
    bottom = max(grid.bottom, corner[1] + _tree_size(state)[1])
    parts += _legend(state.view, bottom + 28)
    handle = Handle(
        name="row",
        label="query: the row of the mask",
        text=f"row {state.row}, {state.queries[state.row]}",
        place=(4, grid.top, grid.right - 4, grid.bottom - grid.top),
        low=0,
        high=len(state.mask) - 1,
        value=state.row,
        big_step=3,
    )
    return Picture(_WIDTH, bottom + 44, parts, state.sentence, (handle,))


class _Grid:
    """The cells of a mask: where each lies, and what is drawn into it."""

    def __init__(self, state: MaskState) -> None:
        self.state, self.top = state, 0.0
        self.rows, self.columns = state.mask.shape
        self.wide = min(26.0, (_WIDTH - _LEFT - 8) / self.columns)
        self.tall = min(26.0, max(16.0, self.wide))
        # Keys of the target's features come first; in a tree it is the pending token.
        self.first = 1 if state.view == TREE else state.length

    @property
    def right(self) -> float:
        return _LEFT + self.columns * self.wide

    @property
    def bottom(self) -> float:
        return self.top + self.rows * self.tall

    def headings(self) -> list[str]:
        """Names of the blocks of keys, and of the columns where there is room."""
        state, parts = self.state, []
        if state.view not in (TREE, CAUSAL):
            for step in range(state.step + 1):
                left = _LEFT + step * state.length * self.wide
                wide = state.length * self.wide
                words = f"step {step}" if wide > 34 else f"{step}"
                middle = {"text_anchor": "middle"}
                parts.append(text(left + wide / 2, self.top - 50, words, 11, **middle))
        if self.wide < 13:
            return parts
        for j, name in enumerate(state.keys):
            x, y = _LEFT + (j + 0.6) * self.wide, self.top - 5
            bold = "bold" if state.mask[state.row, j] else "normal"
            look = {"transform": f"rotate(-50 {x:.1f} {y:.1f})", "font_weight": bold}
            parts.append(text(x, y, token_label(name)[:7], 11, **look))
        return parts

    def cells(self) -> list[str]:
        state = self.state
        area = (_LEFT, self.top, self.right - _LEFT, self.bottom - self.top)
        parts = [rect(area, "white", _GRID)]
        for i, j in state.mask.nonzero().tolist():
            parts += self._cell(i, j)
        for j in range(1, self.columns):
            x = _LEFT + j * self.wide
            parts.append(line((x, self.top), (x, self.bottom), _GRID, stroke_width=0.5))
        for i in range(1, self.rows):
            y = self.top + i * self.tall
            parts.append(line((_LEFT, y), (self.right, y), _GRID, stroke_width=0.5))
        return parts + self._blocks()

    def _cell(self, i: int, j: int) -> list[str]:
        state = self.state
        wrong, chosen = bool(state.wrong[i, j]), i == state.row
        owner = REJECTED if wrong else TARGET if j < self.first else DRAFT
        left, top = _LEFT + j * self.wide, self.top + i * self.tall
        fill = owner if chosen else PALE[owner]
        box = rect((left, top, self.wide, self.tall), fill)
        mark = {"text_anchor": "middle", "font_weight": "bold"}
        if chosen and not wrong and owner == TARGET:
            mark["style"] = "fill:white"  # ink would be too dark on the blue
        sign = "×" if wrong else "●"
        size = min(12.0, 1.2 * self.wide) * (1.2 if wrong else 0.8)
        middle = (left + self.wide / 2, top + self.tall / 2 + size / 3)
        return [box, text(*middle, sign, size, **mark)]

    def _blocks(self) -> list[str]:
        """Frames around the steps' blocks; dashed where a block is diagonal."""
        state = self.state
        if state.view in (TREE, CAUSAL):
            return []
        wide, parts = state.length * self.wide, []
        for step in range(state.step + 1):
            dash = {"stroke_dasharray": "5 3"} if step and not state.wrong.any() else {}
            place = (_LEFT + step * wide, self.top, wide, self.bottom - self.top)
            parts.append(rect(place, "none", INK, stroke_width=1.5, **dash))
        return parts

    def labels(self) -> list[str]:
        """Names of the rows, and the frame around the chosen one."""
        state, parts = self.state, []
        for i, name in enumerate(state.queries):
            y, chosen = self.top + (i + 0.5) * self.tall + 4, i == state.row
            words = f"{'▶ ' if chosen else ''}{i}  {token_label(name)[:9]}"
            look = {"text_anchor": "end", "font_weight": "bold" if chosen else "normal"}
            parts.append(text(_LEFT - 8, y, words, 12, **look))
        top = self.top + state.row * self.tall
        place = (_LEFT, top, self.right - _LEFT, self.tall)
        return [*parts, rect(place, "none", INK, stroke_width=2.5)]


_STEP_X, _STEP_Y, _BOX = 56, 34, (50, 22)  # from node to node, and of a node's box


def _tree_size(state: MaskState) -> tuple[float, float]:
    spots = [spot for spot, _ in _nodes(state)]
    wide = max(x for x, _ in spots) + 1
    tall = max(y for _, y in spots) + 1
    return wide * _STEP_X, tall * _STEP_Y + 10


def _nodes(state: MaskState) -> list[tuple[tuple[float, float], int]]:
    """Of each key its place in the tree, in steps, and the key that it follows or -1.

    A word follows the one before; an output of the draft follows, in its own row, the
    output or the word of the step before. [Paper, Figure 6]
    """
    if state.view == TREE:
        tree = state.block.tree
        *lines, root = node_places(tree)
        depths = [0, *tree.depths]
        parents = [-1, *(parent + 1 for parent in tree.parents)]
        return [
            ((1.4 * depth, place), parent)
            for depth, place, parent in zip(
                depths, [root, *lines], parents, strict=True
            )
        ]
    length = state.length
    return [
        ((j % length, j // length), j - 1 if j < length else j - length)
        for j in range(len(state.keys))
    ]


def _tree(state: MaskState, corner: tuple[float, float]) -> list[str]:
    """The tree that the mask must follow; what the query sees is filled."""
    nodes, seen = _nodes(state), state.mask[state.row].tolist()
    query = len(state.keys) - len(state.mask) + state.row
    spots = [
        (corner[0] + _STEP_X * x, corner[1] + 10 + _STEP_Y * y) for (x, y), _ in nodes
    ]
    parts = []
    for j, (_, parent) in enumerate(nodes):
        if parent >= 0:
            strong = seen[j] and seen[parent] and not state.wrong[state.row, j]
            colour, width = (INK, 2) if strong else (_GRID, 1)
            centres = [
                (spots[at][0] + _BOX[0] / 2, spots[at][1] + _BOX[1] / 2)
                for at in (parent, j)
            ]
            parts.append(line(*centres, colour, stroke_width=width))
    first = 1 if state.view == TREE else state.length
    for j, name in enumerate(state.keys):
        owner = TARGET if j < first else DRAFT
        says = token_label(name)[:7]
        if state.wrong[state.row, j]:
            owner, says = REJECTED, f"× {says}"
        look = {"stroke_width": 3 if j == query else 1.5, "rx": 4}
        if not seen[j]:
            owner, look = NEUTRAL, {"stroke_dasharray": "3 3", "rx": 4}
        fill, edge = (PALE[owner], owner) if seen[j] else ("white", NEUTRAL)
        edge = INK if j == query else edge
        parts.append(rect((*spots[j], *_BOX), fill, edge, **look))
        x, y = spots[j][0] + _BOX[0] / 2, spots[j][1] + 15
        parts.append(text(x, y, says, 11, text_anchor="middle"))
    return parts


def _legend(view: str, y: float) -> list[str]:
    keys = {TARGET: "● the target's feature", DRAFT: "● the draft's output"}
    if view == CAUSAL:
        del keys[DRAFT]
    elif view == NAIVE:
        keys[REJECTED] = "× not seen at inference"
    elif view == TREE:
        keys = {TARGET: "● the pending token", DRAFT: "● a drafted token"}
    parts = []
    for i, (colour, words) in enumerate(keys.items()):
        left = 20 + 175 * i
        parts.append(rect((left, y - 10, 12, 12), PALE[colour], colour))
        parts.append(text(left + 18, y, words, 11))
    if view == TTT:
        look = {"stroke_dasharray": "5 3", "stroke_width": 1.5}
        parts.append(rect((370, y - 10, 12, 12), "none", INK, **look))
        words = "a diagonal block: one dot product for each row"
        parts.append(text(388, y, words, 11))
    return parts

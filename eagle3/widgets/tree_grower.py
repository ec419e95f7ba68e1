"""The tree grower: depth, top-k and budget, and the tree that a draft makes of them.

Blue is the pending token, amber a drafted one, dashed grey one that was scored and cut;
green with ✓ is what the target accepts. [Paper, section 2.2]
"""

from collections.abc import Mapping

import ipywidgets

from eagle3.drawing import ACCEPTED, DRAFT, INK, NEUTRAL, PALE, TARGET
from eagle3.plots import token_label
from eagle3.tree_plots import node_places
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.forest import Place
from eagle3.widgets.grower_state import GrowerState
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text

_WIDTH, _LEFT, _GRID = 700, 14, "#BBBBBB"
_DRAWN = 40  # nodes that are drawn with those that were cut; of more only the kept ones
_LABELS = 120  # pixels left of the mask


def tree_grower(places: Mapping[str, Place]) -> Explorer:
    """Turn the knobs of EAGLE-2's tree and see what the target makes of it. [Ours]

    places: name -> where to grow, as `plant` makes them; the first is shown at once
    """
    number = ipywidgets.Layout(width="150px")
    controls = {
        "place": ipywidgets.Dropdown(options=list(places), description="Place"),
        "depth": ipywidgets.IntText(description="Depth", layout=number),
        "top_k": ipywidgets.IntText(description="Top-k", layout=number),
        "budget": ipywidgets.IntText(description="Budget", layout=number),
    }
    return Explorer(GrowerState(places), draw_tree, controls, walked="row")


def draw_tree(state: GrowerState) -> Picture:
    """The grown tree, and below it the mask of the block that is verified. [Ours]"""
    parts = paragraph(14, 24, state.sentence, font_weight="bold")
    top = 18.0 * len(parts) + 24
    more, bottom = _tree(state, top)
    parts += more
    top, size = bottom + 30, len(state.kept) + 1
    cell = min(18.0, 420 / size)
    parts += _mask(state, top, cell)
    place = (4, top, _LABELS + size * cell - 4, size * cell)
    handle = Handle(
        name="row",
        label="row of the block",
        text=f"row {state.row}, {_row_texts(state)[state.row]}",
        place=place,
        low=0,
        high=size - 1,
        value=state.row,
        big_step=5,
    )
    return Picture(_WIDTH, top + size * cell + 14, parts, state.sentence, (handle,))


def _tree(state: GrowerState, top: float) -> tuple[list[str], float]:
    """The nodes by level, and where the picture goes on below them."""
    all_fit = len(state.scored) <= _DRAWN
    tree = state.scored if all_fit else state.kept
    kept = {path: i for i, path in enumerate(state.token_paths(state.kept))}
    numbers = [kept.get(path) for path in state.token_paths(tree)]
    *lines, root = node_places(tree)
    pitch = 28 if max(lines) < 16 else 21
    across = (_WIDTH - 2 * _LEFT) / (1 + max(3, state.depth))
    box = (across - 14, pitch - 5)
    spots = [
        (_LEFT + across * depth, top + pitch * place)
        for depth, place in zip((0, *tree.depths), (root, *lines), strict=True)
    ]
    parts = []
    for node, parent in enumerate(tree.parents):
        (x1, y1), (x2, y2) = spots[parent + 1], spots[node + 1]
        ends = (x1 + box[0], y1 + box[1] / 2), (x2, y2 + box[1] / 2)
        colour, width = _edge(state, numbers[node])
        parts.append(line(*ends, colour, stroke_width=width))
    letters = int(box[0] / 8) - 4
    names = zip(state.texts(tree), state.confidences(tree), strict=True)
    for node, (name, sure) in enumerate(names):
        words = f"{token_label(name)[:letters]} {f'{sure:.2f}'.lstrip('0')}"
        parts += _node(state, (*spots[node + 1], *box), words, numbers[node])
    parts += _node(state, (*spots[0], *box), token_label(state.at.pending)[:9], -1)
    return parts, top + pitch * (max(lines) + 1)


def _edge(state: GrowerState, number: int | None) -> tuple[str, float]:
    if number is None:
        return _GRID, 1
    return (ACCEPTED, 2.5) if number in state.decision.path else (NEUTRAL, 1)


def _node(
    state: GrowerState, place: tuple[float, ...], words: str, number: int | None
) -> list[str]:
    """number: of the node in the kept tree, -1 for the pending token, None if cut."""
    left, top, wide, tall = place
    colour, fill, look = DRAFT, PALE[DRAFT], {"rx": 4, "stroke_width": 1.3}
    if number is None:
        colour, fill, look = NEUTRAL, "white", {"rx": 4, "stroke_dasharray": "3 3"}
    elif number == -1:
        colour, fill = TARGET, PALE[TARGET]
    elif number in state.decision.path:
        colour, fill, words = ACCEPTED, PALE[ACCEPTED], f"{words} ✓"
    if number is not None and number + 1 == state.row:
        colour, look = INK, {"rx": 4, "stroke_width": 3}
    box = rect((left, top, wide, tall), fill, colour, **look)
    middle = (left + wide / 2, top + tall / 2 + 4)
    return [box, text(*middle, words, 11, text_anchor="middle")]


def _row_texts(state: GrowerState) -> list[str]:
    return [state.at.pending, *state.texts(state.kept)]


def _mask(state: GrowerState, top: float, cell: float) -> list[str]:
    """Who sees whom in the block; the chosen row has a frame."""
    mask, left = state.kept.mask(), float(_LABELS)
    size = len(mask)
    accepted = {0, *(node + 1 for node in state.decision.path)}
    parts = [text(14, top - 8, "the block's mask: row by row what a token sees", 12)]
    parts.append(rect((left, top, size * cell, size * cell), "white", _GRID))
    for i, j in mask.nonzero().tolist():
        owner = TARGET if j == 0 else ACCEPTED if {i, j} <= accepted else DRAFT
        place = (left + j * cell, top + i * cell, cell, cell)
        parts.append(rect(place, owner if i == state.row else PALE[owner], "white"))
        if cell >= 9:
            middle = (place[0] + cell / 2, place[1] + cell / 2 + 3)
            parts.append(text(*middle, "●", 8, text_anchor="middle"))
    for i, name in enumerate(_row_texts(state)):
        chosen = i == state.row
        if cell >= 9 or chosen:
            words = f"{'▶ ' if chosen else ''}{i}  {token_label(name)[:9]}"
            words += " ✓" if i in accepted and i else ""
            bold = "bold" if chosen else "normal"
            look = {"text_anchor": "end", "font_weight": bold}
            parts.append(text(left - 6, top + (i + 0.5) * cell + 4, words, 11, **look))
    frame = (left, top + state.row * cell, size * cell, cell)
    parts.append(rect(frame, "none", INK, stroke_width=2))
    words = f"{int(mask.sum())} of {size * size} pairs may attend"
    parts.append(text(left + size * cell + 16, top + 14, words, 12))
    return parts

"""Figures 3, 5 and 6 of the paper redrawn: three designs, one cycle, three masks.

Drawn from what they say, not from how they look, on the book's running example: the
target has run on "How can" and chose "I", the draft adds "do" and "it". Blue is the
target, amber the draft; what the draft made of its own outputs has a dashed rim. Data
in, figure out. Source: [Paper, sections 1 and 3]; layout and wording [Ours].
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    sheet,
    style,
)
from eagle3.masks import ttt_mask


@dataclass(frozen=True)
class Design:
    """One way to train and use a draft, as a row of `designs`. [Paper, section 1]

    own: the letter of the draft's output
    losses: of step 1, one below the output and one below the token
    fed_back: what is said of that output as an input of step 2
    trained: step 2 is trained, too            right: step 2 says the right token
    """

    name: str
    own: str
    losses: tuple[str, str]
    fed_back: str
    trained: bool
    right: bool


DESIGNS = (
    Design(
        "EAGLE",
        "f̂",
        ("feature loss", "token loss"),
        "held close to f by its loss",
        trained=False,
        right=True,
    ),
    Design(
        "EAGLE without\nfeature loss",
        "â",
        ("", "token loss"),
        "far from f, never seen",
        trained=False,
        right=False,
    ),
    Design(
        "EAGLE-3",
        "a",
        ("", "token loss"),
        "seen in training",
        trained=True,
        right=True,
    ),
)


def designs(rows: Sequence[Design] = DESIGNS) -> Figure:
    """What each design is trained on, and what its second step meets.

    Token embeddings are left out, as in the paper. Source: [Paper, Figure 3].
    """
    with style():
        figure, axes = sheet(8.6, 1.05 * len(rows) + 0.45)
        top = 10.5 * len(rows)
        axes.text(29, top + 2.3, "step 1, in training and in use", ha="center")
        axes.text(66, top + 2.3, "step 2", ha="center")
        axes.plot((47, 47), (0.5, top + 3), color=NEUTRAL, ls="--", lw=1)
        for i, design in enumerate(rows):
            _design(axes, design, top - 10.5 * (i + 1))
    return figure


def _design(axes: Axes, design: Design, bottom: float) -> None:
    y, own = bottom + 4, design.own
    axes.text(0.5, y + 2, design.name, va="center", fontweight="bold")
    end = {"": NEUTRAL, "right": ACCEPTED, "wrong": REJECTED}
    verdict = "right" if design.right else "wrong"
    first = ("f of How\nf of can", TARGET), f"{own} of I", ("do", end["right"])
    _chain(axes, (13, y), *first)
    says = "it ✓" if design.right else "? ✗"
    known = f"f of How, f of can\n{own} of I"
    _chain(axes, (49, y), (known, DRAFT), f"{own} of do", (says, end[verdict]))
    for x, loss in zip((33.7, 43.2), design.losses, strict=True):
        axes.text(x, bottom + 2, loss, ha="center", va="center", fontsize=7.5)
    axes.text(55.5, bottom + 2, design.fed_back, ha="center", va="center", fontsize=7.5)
    loss = "token loss, too" if design.trained else "not trained"
    axes.text(79, bottom + 2, loss, ha="center", va="center", fontsize=7.5)


def _chain(
    axes: Axes,
    start: tuple[float, float],
    given: tuple[str, str],
    output: str,
    token: tuple[str, str],
) -> None:
    """Input, draft, output and token in a line. given, token: text and colour."""
    x, y = start
    wide = 9 if given[1] == TARGET else 13
    box(axes, (x, y, wide, 4.4), given[0], given[1], size=7.5)
    x += wide + 1.5
    box(axes, (x, y, 5, 4.4), "draft", DRAFT, bold=True, size=7.5)
    box(axes, (x + 6.7, y, 6.5, 4.4), output, DRAFT, dashed=True, filled=False)
    box(axes, (x + 17, y, 5, 4.4), *token)
    middle = y + 2.2
    for a, b in ((-1.5, 0), (5, 6.7)):
        arrow(axes, (x + a, middle), (x + b, middle))
    arrow(axes, (x + 13.2, middle), (x + 17, middle))
    axes.text(x + 15, middle + 0.8, "head", ha="center", fontsize=6.5)


def pipeline(words: Sequence[str] = ("How", "can", "I", "do", "it")) -> Figure:
    """One drafting phase: from the target's three features to the third guess.

    words: two tokens that the target has run on, the one it chose, two guesses
    Pairs of an earlier step are outlined: the draft keeps their keys and values.
    Source: [Paper, Figure 5]; that they are kept [Code].
    """
    with style():
        figure, axes = sheet(8.8, 4.3)
        _target_side(axes, words)
        pairs = _pairs(words)
        for step in range(3):
            left = 36 + 17.5 * step
            if step:
                axes.plot((left - 2, left - 2), (1, 42), color=NEUTRAL, ls="--", lw=1)
            _draft_step(axes, pairs[: step + 2], words[2 + step], left)
            said = words[3 + step] if step < 2 else "next"
            box(axes, (left + 3.5, 35.2, 7, 3.6), said, DRAFT, bold=True)
            axes.text(left + 7, 40.8, f"step {step + 1}", ha="center", weight="bold")
            if step < 2:  # the output takes the place of a feature at the next step
                end = (left + 17.4, 2.8 + 4.2 * (step + 2))
                start = (left + 11.5, 24)
                arrow(axes, start, end, DRAFT, dashed=True, bend=-0.25)
    return figure


def _target_side(axes: Axes, words: Sequence[str]) -> None:
    """The frozen target with its three features, and what fuses them."""
    seen = f"{words[0]}, {words[1]}"
    box(axes, (1, 1, 12, 3.4), seen, NEUTRAL)
    names = ("embedding,\nfirst layers", "layers", "layers", "last layers,\nhead")
    for i, name in enumerate(names):
        y = 6.8 + 7 * i
        box(axes, (1, y, 12, 4.2), name, TARGET)
        arrow(axes, (7, y - (2.4 if i == 0 else 2.8)), (7, y))
    for i, letter in enumerate("lmh"):
        y = 12.4 + 7 * i
        arrow(axes, (7, y), (15, y))
        box(axes, (15, y - 1.6, 4, 3.2), letter, TARGET, bold=True)
        arrow(axes, (19, y), (22, 19.4), DRAFT)
    arrow(axes, (7, 32), (7, 35.2))
    box(axes, (3.5, 35.2, 7, 3.6), words[2], TARGET, bold=True)
    axes.text(7, 40.8, "target, frozen", ha="center", weight="bold")
    box(axes, (22, 16.4, 5.5, 6), "concat,\nFC", DRAFT, size=7.5)
    arrow(axes, (27.5, 19.4), (30, 19.4), DRAFT)
    box(axes, (30, 17.8, 3, 3.2), "g", DRAFT, bold=True)
    arrow(axes, (31.5, 17.8), (35.7, 9.2), DRAFT, bend=0.2)
    note = "outlined: kept in the draft's\ncache from the step before"
    axes.text(16, 3, note, va="center", fontsize=7.5)


def _pairs(words: Sequence[str]) -> list[str]:
    """The draft's inputs, by position: feature and embedding of the next token."""
    letters = ("g", "g", "a", "a")
    return [
        f"{letter} of {words[i]}, e of {words[i + 1]}"
        for i, letter in enumerate(letters)
    ]


def _draft_step(axes: Axes, pairs: Sequence[str], newest: str, left: float) -> None:
    """One step of the draft. newest: the token whose output a comes out."""
    first = len(pairs) == 2
    for i, pair in enumerate(pairs):
        new = first or i == len(pairs) - 1
        own = pair.startswith("a")
        place = (left, 1 + 4.2 * i, 14, 3.4)
        box(axes, place, pair, DRAFT, dashed=own, filled=new, size=7.5)
    top = 1 + 4.2 * (len(pairs) - 1) + 3.4
    arrow(axes, (left + 7, top), (left + 7, 18.2))
    box(axes, (left, 18.2, 14, 2.6), "one decoder layer", DRAFT)
    arrow(axes, (left + 7, 20.8), (left + 7, 22.2))
    box(axes, (left + 2.5, 22.2, 9, 3.6), f"a of {newest}", DRAFT, dashed=True)
    arrow(axes, (left + 7, 25.8), (left + 7, 28))
    box(axes, (left + 2, 28, 10, 3), "norm, own head", DRAFT, size=7.5)
    arrow(axes, (left + 7, 31), (left + 7, 35.2))


ROUNDS = (("How", "can", "I"), ("are", "we", "do"), ("you", "help", "it"))
_CELL = 2.5


def masks(rounds: Sequence[Sequence[str]] = ROUNDS) -> Figure:
    """Who may look at whom in each step of training-time test, and why: the trees.

    rounds: [steps, T]  the tokens of the data, then what the draft says in each round
    The masks are `eagle3.masks.ttt_mask`. Source: [Paper, Figure 6].
    """
    length = len(rounds[0])
    with style():
        figure, axes = sheet(8.6, 3.7)
        left = 6.0
        for step in range(len(rounds)):
            shown = rounds[: step + 1]
            title = ("native step", "first simulated step", "second simulated step")
            axes.text(left - 4, 35.2, title[step], fontweight="bold", fontsize=8.5)
            _mask(axes, shown, (left, 20.5))
            _tree(axes, shown, (left - 4, 12))
            left += max((step + 1) * length * _CELL, 7 * length - 3) + 8
    return figure


def _mask(
    axes: Axes, rounds: Sequence[Sequence[str]], corner: tuple[float, float]
) -> None:
    """Queries are the rows, those of the last round; keys of all rounds the columns."""
    step, length = len(rounds) - 1, len(rounds[0])
    allowed = ttt_mask(length, step)
    left, bottom = corner
    for row in range(length):
        y = bottom + _CELL * (length - 1 - row)
        name = rounds[-1][row]
        axes.text(left - 0.6, y + _CELL / 2, name, ha="right", va="center", fontsize=8)
        for column in range((step + 1) * length):
            x = left + _CELL * column
            sees = bool(allowed[row, column])
            colour = TARGET if column < length else DRAFT
            face = PALE[colour] if sees else "white"
            square = Rectangle((x, y), _CELL, _CELL, fc=face, ec=NEUTRAL, lw=0.7)
            axes.add_patch(square)
            if sees:
                axes.plot(x + _CELL / 2, y + _CELL / 2, "o", color=INK, ms=3.5)
    keys = [word for words in rounds for word in words]
    for column, word in enumerate(keys):
        x, y = left + _CELL * (column + 0.5), bottom + _CELL * length + 0.7
        axes.text(x, y, word, ha="center", va="bottom", rotation=90, fontsize=8)
    for edge in range(length, len(keys), length):  # between the rounds
        x = left + _CELL * edge
        ends = (bottom, bottom + _CELL * length)
        axes.plot((x, x), ends, color=INK, lw=1.6)


def _tree(
    axes: Axes, rounds: Sequence[Sequence[str]], corner: tuple[float, float]
) -> None:
    """The data in a line; below each of its tokens the chain that was said from it."""
    left, top = corner
    for column in range(len(rounds[0])):
        x = left + 7 * column
        for step, words in enumerate(rounds):
            y = top - 4.8 * step
            colour = TARGET if step == 0 else DRAFT
            box(axes, (x, y, 5.2, 3), words[column], colour, size=7.5, dashed=step > 0)
            if step:
                arrow(axes, (x + 2.6, y + 4.8), (x + 2.6, y + 3))
        if column:
            arrow(axes, (x - 1.8, top + 1.5), (x, top + 1.5))

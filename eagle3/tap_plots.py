"""Pictures of taps: what the depths of a target know, and how three become one.

Colours mean what they mean in plots.py, and a mark, a dash or a letter says each of
them again. Data in, figure out. Source: [Ours]; what a picture says is tagged at its
function.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    TARGET,
    arrow,
    box,
    canvas,
    sheet,
    style,
)

LETTERS = ("l", "m", "h")


def lens_grid(words: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Figure:
    """Which token each depth would name at each position.

    words: the text, a column each
    rows: depth -> a token for each column; the last row is the target's answer
    Green with ✓ is what the answer will be. Source: [Ours].
    """
    left, wide, tall = 15.0, 11.0, 2.5
    answer = list(rows.values())[-1]
    height = tall * (len(rows) + 1.4)
    with style():
        figure, axes = sheet((left + wide * len(words)) / 10, height / 10)
        middle = {"ha": "center", "va": "center", "parse_math": False}
        for column, word in enumerate(words):
            x = left + wide * (column + 0.5)
            axes.text(x, height - 0.7 * tall, word, fontweight="bold", **middle)
        for line, (depth, named) in enumerate(rows.items()):
            y = height - tall * (line + 2.3)
            axes.text(0.3, y + tall / 2, depth, va="center", fontsize=8)
            for column, token in enumerate(named):
                right = token == answer[column]
                text = f"{token[:10]} ✓" if right else token[:12]
                place = (left + wide * column + 0.3, y + 0.15, wide - 0.6, tall - 0.3)
                colour = ACCEPTED if right else NEUTRAL
                box(axes, place, text, colour, size=7.5, bold=right)
    return figure


_LOOKS = ((TARGET, "o", "-"), (DRAFT, "s", "--"), (INK, "^", ":"))


def depth_curves(
    layers: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    taps: Sequence[int],
    live: Mapping[str, Mapping[int, float]],
) -> Figure:
    """How often a probe is right, by the layer that its hidden state enters.

    layers: probed ones, ascending, and last L for the top feature
    curves: what it names -> a share for each of these; up to three
    taps: three layers, drawn as lines with their letters
    live: name of a curve -> layer -> share, hollow marks of a second measurement
    Source: [Ours].
    """
    top = layers[-1]
    with style():
        figure, (axes,) = canvas(size=(7.6, 3.6))
        for letter, tap in zip(LETTERS, taps, strict=True):
            axes.axvline(tap, color=DRAFT, lw=1.2, ls=":")
            axes.text(tap, 1.02, f"{letter} ({tap})", ha="center", fontweight="bold")
        for (name, shares), look in zip(curves.items(), _LOOKS, strict=False):
            colour, marker, dash = look
            look = {"color": colour, "marker": marker, "ms": 4, "label": name}
            axes.plot(layers, shares, dash, **look)
            for layer, share in live.get(name, {}).items():
                hollow = {"mfc": "white", "mec": colour, "ms": 8, "zorder": 1}
                axes.plot(layer, share, marker, **hollow)
        axes.set_xticks(
            [*range(0, top, 3), top], [*map(str, range(0, top, 3)), "top\nfeature"]
        )
        axes.set_ylim(0, 1)
        axes.set_xlabel("the hidden state that enters layer ...")
        axes.set_ylabel("share of right tokens")
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        figure.legend(loc="outside lower center", ncols=len(curves))
    return figure


def triple_cloud(
    rows: Sequence[Sequence[float]], marked: Mapping[str, Sequence[float]]
) -> Figure:
    """All triples of layers: how well a probe on each names two tokens.

    rows: [low, middle, high, share of the next token, share of the one after] each
    marked: name -> such a row, up to three, drawn larger
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.6))
        x, y = zip(*(row[3:5] for row in rows), strict=True)
        axes.plot(x, y, ".", color="#BBBBBB", ms=3, label=f"all {len(rows)} triples")
        marks = ((DRAFT, "D"), (ACCEPTED, "o"), (INK, "^"))
        for (name, row), (colour, mark) in zip(marked.items(), marks, strict=False):
            low, middle, high = map(int, row[:3])
            label = f"{name} ({low}, {middle}, {high})"
            look = {"color": colour, "mec": INK, "ms": 8, "ls": "none"}
            axes.plot(row[3], row[4], mark, label=label, **look)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("right about the next token")
        axes.set_ylabel("right about the token after\n(the next one known)")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def fusion(
    taps: Sequence[int], lengths: Sequence[float], shares: Sequence[float], k: int
) -> Figure:
    """Three taps side by side, and the three blocks of the matrix that fuses them.

    taps: layers whose inputs are taken        lengths: of the three vectors
    shares: length of what each block contributes to g        k: width of one tap
    Source: [Paper, section 3.1]; the blocks [Derived].
    """
    with style():
        figure, axes = sheet(7.4, 2.6)
        heads = ((8, "tapped"), (25, f"side by side, {3 * k}"), (44, "FC"))
        for x, head in (*heads, (66, f"fused, {k}")):
            axes.text(x, 24.6, head, ha="center", fontweight="bold")
        for i, letter in enumerate(LETTERS):
            y = 16.6 - 7.2 * i
            text = f"{letter}: enters layer {taps[i]}\nlength {lengths[i]:.0f}"
            box(axes, (0.5, y, 15.5, 5.2), text, TARGET, size=8)
            arrow(axes, (16, y + 2.6), (21, y + 2.6), DRAFT)
            box(axes, (21, y - 1.0, 8, 7.2), letter, TARGET, bold=True, size=11)
            arrow(axes, (29, y + 2.6), (37, y + 2.6), DRAFT)
            text = f"its block\n{k} x {k}"
            box(axes, (37, y - 0.6, 14, 6.4), text, DRAFT, size=8)
            arrow(axes, (51, y + 2.6), (62, 12), DRAFT)
            at = (19.8, 12.6, 3.6)[i]  # above, on and below the bundle of arrows
            axes.text(51.6, at, f"adds {shares[i]:.1f}", size=7.5)
        box(axes, (62, 9.0, 8, 6), "+\ng", DRAFT, bold=True, size=11)
    return figure


def knocked_out(shares: Mapping[str, Sequence[float]], labels: Sequence[str]) -> Figure:
    """What a trained draft loses when a part of its input is put out.

    shares: what was put out -> shares of right guesses, one for each label
    labels: which guess, up to two        Source: [Ours].
    """
    looks = ((DRAFT, ""), ("#F3D9A4", "//"))
    tall = 0.8 / len(labels)
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.5 * len(shares) + 0.9))
        for line, values in enumerate(shares.values()):
            for i, value in enumerate(values):
                y = line + (i - (len(labels) - 1) / 2) * tall
                colour, hatch = looks[i]
                look = {"color": colour, "hatch": hatch, "edgecolor": INK, "lw": 0.5}
                name = labels[i] if line == 0 else None
                axes.barh(y, value, tall, label=name, **look)
                _beside(axes, value, y)
        axes.set_yticks(range(len(shares)), list(shares), parse_math=False)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of right guesses")
        axes.legend(loc="lower right")
    return figure


def _beside(axes: Axes, value: float, y: float) -> None:
    axes.text(value + 0.01, y, f"{value:.2f}", va="center", fontsize=8)

"""Pictures of the draft model: its layer, its weights, its vocabulary.

Colours mean what they mean in plots.py, and a label, a dash or a hatch says each of
them again. Data in, figure out. Source: [Ours]; what a picture says is tagged at its
function.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.draft import NUM_TAPS, DraftConfig
from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    HATCHES,
    INK,
    NEUTRAL,
    REJECTED,
    TARGET,
    arrow,
    box,
    canvas,
    sheet,
    style,
    svg_block,
    svg_label,
    svg_sheet,
)

Station = tuple[str, tuple[int, ...], int]  # name, shape, weights read to make it


def block(config: DraftConfig) -> Figure:
    """The draft from below up, every box with the sizes of this config.

    Blue is the target's and frozen, amber is trained; the thick line is the residual
    stream. Source: [Code: eagle/model/cnets.py]; the picture [Ours].
    """
    c, k = config, config.hidden_size
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    qkv = f"q, k, v: {2 * k} to {wide}, {narrow}, {narrow}"
    attention = f"attention, {c.num_heads} heads, then o: {wide} to {k}"
    mlp = f"MLP: {k} to {c.intermediate_size} to {k}"
    with style():
        figure, axes = sheet(7.4, 5.6)
        box(axes, (8, 1, 21, 3.4), f"features l, m, h: {NUM_TAPS} x {k}", TARGET)
        box(axes, (8, 6, 21, 3.4), f"fc: {NUM_TAPS * k} to {k}", DRAFT)
        box(axes, (8, 11, 21, 3.4), f"x: g, or a; {k}", DRAFT, bold=True)
        box(axes, (45, 6, 21, 3.4), f"embedding: {c.vocab_size:,} x {k}", TARGET)
        box(axes, (45, 11, 21, 3.4), f"e of token i+1; {k}", TARGET, bold=True)
        box(axes, (17, 17, 15, 3.2), "norm of x", DRAFT)
        box(axes, (45, 17, 21, 3.2), "norm of e", DRAFT)
        box(axes, (24, 22, 42, 3.2), f"side by side, e first: {2 * k}", NEUTRAL)
        box(axes, (24, 26.6, 42, 3.2), qkv, DRAFT)
        box(axes, (24, 31, 42, 3.2), attention, DRAFT)
        box(axes, (24, 38.2, 18, 3), "norm", DRAFT)
        box(axes, (44, 38.2, 22, 3), mlp, DRAFT, size=7.5)
        box(axes, (8, 44.4, 21, 3.4), f"a; {k}", DRAFT, bold=True)
        box(axes, (33, 44.4, 8, 3.4), "norm", DRAFT)
        box(axes, (44, 44.4, 22, 3.4), f"own head: {c.draft_vocab_size:,}", DRAFT)
        box(axes, (44, 50.4, 22, 3.4), f"d2t, into {c.vocab_size:,}", NEUTRAL)
        _block_arrows(axes)
        axes.text(3.2, 29, "fed back as the next x", rotation=90, va="center")
    return figure


def _block_arrows(axes: Axes) -> None:
    stream = 11  # where the residual runs
    axes.plot([stream, stream], [14.4, 43.4], color=DRAFT, lw=3.5)
    arrow(axes, (stream, 42), (stream, 44.6), DRAFT)
    axes.text(stream + 0.8, 24, "residual:\nx, un-normed", fontsize=7.5)
    for x, start, end in (
        *((18.5, 4.4, 6), (18.5, 9.4, 11), (55.5, 9.4, 11), (55.5, 14.4, 17)),
        *((26, 14.4, 17), (28, 20.2, 22), (55.5, 20.2, 22), (45, 25.2, 26.6)),
        *((45, 29.8, 31), (55, 47.8, 50.4)),
    ):
        arrow(axes, (x, start), (x, end))
    for y in (32.6, 42.6):  # what attention and MLP found is added
        axes.plot(stream, y, "o", color="white", mec=INK, ms=12, zorder=4)
        axes.text(stream, y, "+", ha="center", va="center_baseline", zorder=5)
    arrow(axes, (24, 32.6), (stream + 1.2, 32.6))
    axes.plot([stream, 24], [39.7, 39.7], color=INK, lw=1)
    arrow(axes, (22, 39.7), (24, 39.7))
    arrow(axes, (42, 39.7), (44, 39.7))
    axes.plot([55, 55], [41.2, 42.6], color=INK, lw=1)
    arrow(axes, (55, 42.6), (stream + 1.2, 42.6))
    arrow(axes, (29, 46.1), (33, 46.1))
    arrow(axes, (41, 46.1), (44, 46.1))
    axes.plot([8, 5.2, 5.2], [46.1, 46.1, 12.7], color=DRAFT, ls="--", lw=1.2)
    arrow(axes, (5.2, 12.7), (8, 12.7), DRAFT, dashed=True)


def spectrum(values: Sequence[float], limit: int) -> Figure:
    """Singular values, falling, and which of them a matrix of rank `limit` keeps.

    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 2.8))
        axes.plot(range(len(values)), values, color=INK, lw=1.5)
        axes.fill_between(range(limit), values[:limit], color=DRAFT, alpha=0.35)
        beyond = range(limit, len(values))
        look = {"color": REJECTED, "alpha": 0.5, "hatch": "//"}
        axes.fill_between(beyond, values[limit:], **look)
        axes.axvline(limit, color=INK, lw=0.8, ls="--")
        middle = (limit + len(values)) / 2
        top = max(values)
        text = f"the first {limit}: one FC carries them"
        axes.text(limit / 2, top * 0.8, text, ha="center")
        axes.text(middle, top * 0.5, "beyond", ha="center")
        axes.set_xlim(0, len(values))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("singular value of q, k and v stacked")
        axes.set_ylabel("size")
    return figure


_PART_LOOKS = {"embedding (frozen)": (TARGET, "//")}
_AMBERS = (DRAFT, "#F3C766", "#C98A00", "#F9E3B4", "#8A5F00")


def parameter_bars(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """What a draft is made of: a bar for each draft, cut into parts.

    counts: draft -> part -> number of weights; the same parts for each draft
    Amber is trained, hatched blue the target's. Bars are cut to one length.
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.4, 0.75 * len(counts) + 1.1))
        for line, parts in enumerate(counts.values()):
            total, left = sum(parts.values()), 0.0
            for i, (part, count) in enumerate(parts.items()):
                plain = (_AMBERS[i % len(_AMBERS)], HATCHES[0])
                colour, hatch = _PART_LOOKS.get(part, plain)
                look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
                label = part if line == 0 else None
                width = count / total
                axes.barh(line, width, 0.6, left, label=label, **look)
                if width > 0.055:
                    text = f"{count / 1e6:.1f}M"
                    _on_bar(axes, (left + width / 2, line), text)
                left += width
            axes.text(1.01, line, f"{total / 1e6:.1f}M", va="center", fontsize=8)
        axes.set_yticks(range(len(counts)), list(counts))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.1)
        axes.set_xticks([])
        axes.grid(visible=False)
        figure.legend(loc="outside lower center", ncols=len(parts))
    return figure


def _on_bar(axes: Axes, at: tuple[float, float], text: str) -> None:
    look = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}
    axes.text(*at, text, ha="center", va="center", fontsize=7.5, bbox=look)


_COVER_LOOKS = ((DRAFT, "o", "-"), (INK, "s", "--"))


def coverage_curve(
    sizes: Sequence[int], curves: Mapping[str, Sequence[float]], chosen: int
) -> Figure:
    """How much of a text the most frequent tokens cover, by how many they are.

    curves: text -> a share for each size, up to two      chosen: a size to mark
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.2))
        for (name, shares), look in zip(curves.items(), _COVER_LOOKS, strict=False):
            colour, mark, dash = look
            axes.plot(sizes, shares, dash, color=colour, marker=mark, ms=4, label=name)
        axes.axvline(chosen, color=NEUTRAL, lw=0.9, ls=":")
        axes.text(chosen, 0.42, f" the shipped draft: {chosen:,}", va="bottom")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=40)
        axes.set_xlabel("tokens in the draft vocabulary")
        axes.set_ylabel("share of answer tokens")
        axes.set_ylim(0.4, 1.01)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
        axes.legend(loc="upper left")
    return figure


def two_guesses(shares: Mapping[str, Sequence[float]], right: str) -> Figure:
    """How often a first and a second guess are right under each mistake.

    shares: mistake -> (share from g, share from a)     right: the one without mistake
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.4, 0.42 * len(shares) + 0.9))
        for line, (name, pair) in enumerate(shares.items()):
            colour = ACCEPTED if name == right else REJECTED
            for i, (value, hatch) in enumerate(zip(pair, ("", "//"), strict=True)):
                y = line + 0.38 * (i - 0.5)
                label = ("first guess, from g", "second, from a")[i]
                look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
                axes.barh(y, value, 0.36, label=None if line else label, **look)
                axes.text(value + 0.01, y, f"{value:.2f}", va="center", fontsize=7.5)
        axes.set_yticks(range(len(shares)), list(shares), parse_math=False)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of right guesses")
        axes.legend(loc="lower right")
    return figure


def shapes_svg(title: str, stations: Sequence[Station]) -> str:
    """The tensors on the way through a draft, with shapes and weights, as SVG text.

    stations: in order, from the features to the whole vocabulary
    A bar for each station says how many weights are read to make it. [Ours]
    """
    total = sum(weights for _, _, weights in stations)
    most = max(1, *(weights for _, _, weights in stations))
    words = f"{title}: {total / 1e6:.2f} million weights are read for one pass"
    parts = [svg_label(20, 24, words, "start", bold=True)]
    for line, (name, shape, weights) in enumerate(stations):
        y = 54 + 23 * line
        parts.append(svg_label(20, y, name, "start"))
        parts.append(svg_label(185, y, str(list(shape)), "start"))
        if weights:
            width = 290 * weights / most
            parts.append(svg_block(320, y - 12, max(width, 1), 15, DRAFT))
            text = f"{weights / 1e6:.3g}M"
            parts.append(svg_label(326 + width, y, text, "start", size=11))
    return svg_sheet(parts, (700, 54 + 23 * len(stations)), words)

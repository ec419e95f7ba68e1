"""Pictures of drafting on features: who reads what, and what a lost loss does.

Colours mean what they mean in plots.py; where several drafts are compared, markers and
dashes tell them apart. Data in, figure out. Source: [Ours]; what a picture says is
tagged at its function.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
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
from eagle3.plots import token_label

Branch = tuple[str, float, str]  # sampled token, its probability, what follows it


def ambiguity(word: str, branches: Sequence[Branch]) -> Figure:
    """One feature, several tokens that may be sampled from it, a next feature for each.

    word: the last token that the target has run on
    branches: sampled token, its probability, the likeliest word after it
    Source: [Paper, section 2.2]
    """
    step = 7.0
    with style():
        figure, axes = sheet(7.2, 0.7 * len(branches) + 0.7)
        top = step * len(branches) + 1.5
        heads = ((8, "known"), (29.5, "sampled"), (49, "next feature"))
        for x, head in (*heads, (65, "target says")):
            axes.text(x, top + 2.2, head, ha="center", weight="bold")
        middle = top - step * len(branches) / 2
        feature = f"feature of\n{token_label(word)}"
        box(axes, (2, middle - 2.5, 12, 5), feature, TARGET)
        for i, (token, share, following) in enumerate(branches):
            y = top - step * (i + 0.5)
            label = token_label(token)
            box(axes, (22, y - 2, 15, 4), f"{label}  {share:.3f}", NEUTRAL)
            box(axes, (42, y - 2, 14, 4), f"feature of {label}", TARGET)
            box(axes, (61, y - 2, 9, 4), token_label(following), NEUTRAL)
            arrow(axes, (14, middle), (22, y))
            arrow(axes, (37, y), (42, y))
            arrow(axes, (56, y), (61, y))
    return figure


def step(words: Sequence[str], known: int) -> Figure:
    """Which feature meets which token in EAGLE-1's draft, and what comes of it.

    words: the tokens, at least known + 2     known: how many the target has run on
    One column for each position i: its feature, the embedding of token i+1, the
    estimate of the next feature, and token i+2, which the target's head makes of it.
    A dashed box is the draft's own estimate in a feature's place.
    Source: [Paper, section 2.2]; columns and wording [Interpretation].
    """
    count = len(words) - 1
    width = 60 / count
    with style():
        figure, axes = sheet(7.2, 2.7)
        for name, y in _STEP_ROWS.items():
            axes.text(0.3, y, name, va="center", fontweight="bold", fontsize=8)
        box(axes, (11, 10.3, width * (count - 0.2), 3.4), "", DRAFT, bold=True)
        axes.text(12, 12, "joining layer, one decoder layer", va="center")
        for i in range(count):
            _step_column(axes, i, words, known, (11 + width * i, 0.8 * width))
    return figure


_STEP_ROWS = {
    "position": 25.5,
    "feature": 21,
    "token i+1": 17,
    "draft": 12,
    "output": 7,
    "head says": 2,
}


def _step_column(
    axes: Axes, i: int, words: Sequence[str], known: int, place: tuple[float, float]
) -> None:
    """Position i from top to bottom. place: left edge and width."""
    left, wide = place
    middle, real = left + wide / 2, i < known
    axes.text(middle, 25.5, f"{i}: {words[i]}", ha="center", va="center")
    name = f"f of {words[i]}" if real else f"f̂ of {words[i]}"
    colour = TARGET if real else DRAFT
    box(axes, (left, 19.2, wide, 3.5), name, colour, dashed=not real, filled=real)
    box(axes, (left, 15.2, wide, 3.5), f"e of {words[i + 1]}", NEUTRAL)
    box(axes, (left, 5.2, wide, 3.5), f"f̂ of {words[i + 1]}", DRAFT, dashed=True)
    for start, end in ((15.2, 13.7), (10.3, 8.7), (5.2, 3.4)):
        arrow(axes, (middle, start), (middle, end))
    says = words[i + 2] if i + 2 < len(words) else "next"
    new = i + 1 >= known
    look = {"fontweight": "bold"} if new else {"color": NEUTRAL}
    says = says if new else f"({says} is known)"
    axes.text(middle, 2, says, ha="center", va="center", **look)
    if not real:  # the output of the column before comes over
        start = (left - 0.2 * wide, 7)
        arrow(axes, start, (left - 0.1, 21), DRAFT, dashed=True, bend=0.3)


def shares(values: Mapping[str, float], label: str) -> Figure:
    """One bar for each kind of input, its share written beside it.

    values: name -> share, 0 to 1      label: what is counted
    Source: [Ours].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 0.42 * len(values) + 0.7))
        for i, value in enumerate(values.values()):
            axes.barh(i, value, 0.6, color=DRAFT, edgecolor=INK, lw=0.6)
            axes.text(value, i, f" {value:.0%}", va="center")
        axes.set_yticks(range(len(values)), list(values))
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlim(0, 1.2 * max(values.values()))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
        axes.set_xlabel(label)
    return figure


_LOOKS = ((DRAFT, "o", "-"), (INK, "s", "--"), (NEUTRAL, "^", ":"), (INK, "D", "-."))
Curve = tuple[Sequence[int], Sequence[Sequence[float]]]  # sequences, n-alphas of each


def alpha_curves(
    curves: Mapping[str, Curve], paper: Mapping[str, Sequence[float]]
) -> Figure:
    """0-alpha and 1-alpha while data grow, and what the paper's plot shows of 1-alpha.

    curves: name -> (sequences seen [m], n-alphas [m, at least 2]), up to four
    paper: name -> (low, high), ranges read off the paper's plot
    The paper measured another target, so it has a panel of its own.
    Source: [Ours]; right panel [Paper, Figure 4].
    """
    top = max(max(row[:2]) for _, alphas in curves.values() for row in alphas)
    with style():
        figure, all_axes = canvas(3, (8.2, 3.3), width_ratios=(2, 2, 1.3))
        for n, axes in enumerate(all_axes[:2]):
            for (name, (seen, alphas)), look in zip(
                curves.items(), _LOOKS, strict=False
            ):
                colour, marker, dash = look
                values = [row[n] for row in alphas]
                axes.plot(seen, values, dash, color=colour, marker=marker, label=name)
            axes.set_title(f"{n}-alpha, our runs")
            axes.set_xlabel("training sequences")
            axes.set_xticks(list(next(iter(curves.values()))[0]))
            axes.set_ylim(0, 1.1 * top)  # both alike, to be compared
        all_axes[0].set_ylabel("share accepted")
        _paper_ranges(all_axes[2], paper)
        handles, names = all_axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
    return figure


def _paper_ranges(axes: Axes, ranges: Mapping[str, Sequence[float]]) -> None:
    for i, (name, (low, high)) in enumerate(ranges.items()):
        axes.bar(i, high - low, 0.6, low, color="#D0D0D0", edgecolor=INK, hatch="//")
        words = name.replace(" without", "\nwithout").replace(" feature", "\nfeature")
        axes.text(i, high + 0.02, words, ha="center", va="bottom", fontsize=7.5)
    axes.set_title("1-alpha, the paper\n(another target)")
    axes.set_xticks([])
    axes.set_xlim(-0.7, len(ranges) - 0.3)
    axes.set_ylim(0, 1)

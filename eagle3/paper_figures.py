"""Figures 1 to 7 of the paper in the book's style, each with its title and its words.

Redrawn from their meaning and from figures/paper/, not traced. Where a value was read
off a plot, its file says so, and so do the picture's words. [Paper: EAGLE-3,
arXiv:2503.01840; the NeurIPS version swaps Figures 1 and 2]
"""

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes

from eagle3 import paper_diagrams, paper_plots, study_plots
from eagle3.drawing import INK, NEUTRAL, Drawn, arrow, canvas, style
from eagle3.paper import read_paper

_READ_OFF = "read off the plot, so approximate"


def figure1() -> Drawn:
    """Speedup and acceptance length while the training data grow."""
    paper = read_paper("figure1")
    with style():
        figure, axes = canvas(2, (7.4, 3.0))
        for panel, what in zip(axes, ("speedup", "tau"), strict=True):
            study_plots.paper_scaling(panel, paper, what)
            panel.set_title({"tau": "acceptance length tau"}.get(what, what))
        axes[0].legend(loc="lower right")
    first, last = paper["data_scale"][0], paper["data_scale"][-1]
    told = "; ".join(
        f"{method}: {values[0]:.2f} to {values[-1]:.2f} times, "
        f"tau {paper['tau'][method][0]:.2f} to {paper['tau'][method][-1]:.2f}"
        for method, values in paper["speedup"].items()
    )
    return Drawn(
        figure,
        "The paper's Figure 1: more training data",
        f"two panels, from {first} to {last} times the data of ShareGPT, on MT-bench "
        f"with LLaMA-Instruct 3.1 8B. {told}. Hollow points are {_READ_OFF}; solid "
        "ones are taken from the tables",
    )


def figure2() -> Drawn:
    """Speedups of all methods on four targets."""
    paper = read_paper("figure2")
    told = "; ".join(
        f"{model} ({paper['tasks'][model]}): "
        + ", ".join(f"{method} {value:.1f}" for method, value in bars.items())
        for model, bars in paper["speedup"].items()
    )
    return Drawn(
        paper_plots.labelled_bars(paper),
        "The paper's Figure 2: speedup on four targets",
        f"bars of speedup over plain decoding at temperature 0, {told}. The values are "
        "printed on the paper's bars",
    )


def figure3() -> Drawn:
    """Three designs of a draft."""
    return Drawn(
        paper_diagrams.designs(),
        "The paper's Figure 3: three designs of a draft",
        "three rows. EAGLE guesses the next feature, a feature loss holds the guess "
        "close to the true one, and step 2 says the right token. EAGLE without that "
        "loss gives an output far from any feature; step 2 has never seen such an "
        "input and says a wrong token. EAGLE-3 feeds its output back in training, too, "
        "with the token loss at both steps, and step 2 says the right token",
    )


def figure4() -> Drawn:
    """Acceptance at the first and at the second drafted token."""
    paper = read_paper("figure4")
    with style():
        figure, (left, right) = canvas(2, (7.0, 3.0), width_ratios=(1.2, 1))
        _order_alone(left)
        for i, (name, ends) in enumerate(paper["one_alpha"].items()):
            study_plots.range_bar(right, i, ends, name)
        right.set_title("1-alpha, ranges read off the plot")
        right.set_xticks([])
        right.set_xlim(-0.8, len(paper["one_alpha"]) - 0.2)
        right.set_ylim(0, 1)
    told = " and ".join(
        f"{low:g} to {high:g} for {name}"
        for name, (low, high) in paper["one_alpha"].items()
    )
    return Drawn(
        figure,
        "The paper's Figure 4: without the feature loss",
        f"left, 0-alpha: {paper['zero_alpha']}, no values are known; right, 1-alpha: "
        f"{told}. The ranges are {_READ_OFF}",
    )


def _order_alone(axes: Axes) -> None:
    """Two names, one above the other: all that is known of 0-alpha."""
    for y, name in ((0.7, "EAGLE without feature loss"), (0.3, "EAGLE")):
        axes.text(0.5, y, name, ha="center", va="center")
    arrow(axes, (0.5, 0.36), (0.5, 0.64), INK)
    axes.text(0.53, 0.5, "higher", va="center", color=NEUTRAL)
    axes.set_title("0-alpha, only the order is known")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_axis_off()


def figure5() -> Drawn:
    """One drafting phase."""
    return Drawn(
        paper_diagrams.pipeline(),
        "The paper's Figure 5: one drafting phase",
        "the frozen target runs on How can, hands over l, m and h at both positions "
        "and chooses I. A fully connected layer makes g of them. Step 1 reads (g of "
        "How, e of can) and (g of can, e of I), gives a of I and says do. Step 2 adds "
        "(a of I, e of do), since there is no g of I yet, and says it. Step 3 adds (a "
        "of do, e of it)",
    )


def figure6() -> Drawn:
    """Masks of training-time test."""
    return Drawn(
        paper_diagrams.masks(),
        "The paper's Figure 6: masks of training-time test",
        "three masks with their trees. Native step, How can I: each sees itself and "
        "all before it. First simulated step: are sees How and itself; we sees How, "
        "can and itself; do sees How, can, I and itself. Second: you sees How, are, "
        "you; help sees How, can, we, help; it sees How, can, I, do, it. Nobody sees "
        "what was said from another position",
    )


def figure7() -> Drawn:
    """Acceptance against the number of own outputs among the inputs."""
    paper = read_paper("figure7")
    with style():
        figure, (axes,) = canvas(1, (5.6, 3.0))
        study_plots.paper_alphas(axes, paper["n_alpha"])
        axes.set_xlabel("n: own outputs among the draft's inputs")
        axes.set_ylabel("n-alpha")
        axes.set_xticks(range(8))
        axes.set_ylim(0, 1)
    old = ", ".join(
        f"{low:g} at n = {point['n'][0]}"
        if low == high
        else f"{low:g} to {high:g} at n = {point['n'][0]}"
        for point in paper["n_alpha"]["EAGLE"]
        for low, high in [point["range"]]
    )
    (new,) = paper["n_alpha"]["EAGLE-3"]
    low, high = new["range"]
    return Drawn(
        figure,
        "The paper's Figure 7: acceptance over n",
        f"EAGLE falls: {old}. EAGLE-3 stays within {low:g} to {high:g} from n = "
        f"{new['n'][0]} to {new['n'][1]}. All values are {_READ_OFF}; points that "
        "nobody read are left out",
    )


PAPER_FIGURES: Mapping[str, Callable[[], Drawn]] = {
    f"paper_figure{i + 1}": draw
    for i, draw in enumerate(
        (figure1, figure2, figure3, figure4, figure5, figure6, figure7)
    )
}

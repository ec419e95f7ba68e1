"""Pictures of training: losses of each step, n-alpha of several drafts, curves of runs.

Data in, figure out. Runs are rows of the study of recipes, as in study_plots.py, which
says how each is drawn. Source: [Ours].
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import DRAFT, INK, NEUTRAL, TARGET, canvas, style
from eagle3.study_plots import ARMS, MIN_CHAINS, NOT_YET, Run, largest

_MARKERS = "osD^vPX"
_DASHES = ("-", "--", "-.", ":")
_COLOURS = (NEUTRAL, INK, DRAFT, TARGET)


def losses(points: Sequence[Mapping[str, Any]]) -> Figure:
    """Cross-entropy of each step of training-time test along a run.

    points: in order, each with step, of the optimizer, and per_step [S] of S steps
    """
    x = [point["step"] for point in points]
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.0))
        for s, values in enumerate(zip(*(p["per_step"] for p in points), strict=True)):
            name = "step 0, features of the target" if s == 0 else f"step {s}, its own"
            look = {"color": DRAFT, "alpha": 1 - 0.13 * s, "marker": _MARKERS[s % 7]}
            axes.plot(x, values, _DASHES[s % 4], ms=4, label=name, **look)
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel("cross-entropy, nats")
        axes.legend(fontsize=7.5)
    return figure


def alphas(drafts: Mapping[str, Sequence[float]]) -> Figure:
    """n-alpha of up to four drafts, the one that counts third.

    drafts: name -> n-alpha from n = 0
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.0))
        for i, (name, values) in enumerate(drafts.items()):
            look = {"color": _COLOURS[i % 4], "marker": _MARKERS[i % 7]}
            axes.plot(range(len(values)), values, _DASHES[i % 4], label=name, **look)
        _alpha_axes(axes)
    return figure


def arms_by_n(runs: Sequence[Run], arms: Sequence[str], budget: int) -> Figure:
    """n-alpha of several recipes at one budget, lowest seed. [Paper, Figure 7; Ours]

    Places that few chains came to are left out, and arms that were not run, too.
    """
    mine = [run for run in runs if run["budget"] == budget]
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.2))
        for arm in arms:
            if run := largest(mine, arm):
                name, colour, marker, dash = ARMS[arm]
                pairs = zip(run["n_alpha"], run["chains"], strict=True)
                values = [share for share, count in pairs if count >= MIN_CHAINS]
                look = {"color": colour, "marker": marker, "label": name}
                axes.plot(range(len(values)), values, dash, **look)
        _alpha_axes(axes)
    return figure


def _alpha_axes(axes: Axes) -> None:
    axes.set_xlabel("n: own outputs among the draft's inputs")
    axes.set_ylabel("n-alpha")
    axes.set_xticks(range(8))
    axes.set_ylim(0, 1)
    _legend(axes)


def _legend(axes: Axes) -> None:
    if axes.lines:
        axes.legend(fontsize=7.5)
    else:
        axes.text(0.5, 0.5, NOT_YET, ha="center", va="center", transform=axes.transAxes)


def learning(runs: Sequence[Run], arms: Sequence[str], budget: int) -> Figure:
    """0-alpha and 1-alpha of recipes while they train, at one budget, lowest seed."""
    mine = [run for run in runs if run["budget"] == budget]
    with style():
        figure, panels = canvas(2, (8.4, 3.1), sharey=True)
        for n, axes in enumerate(panels):
            for arm in arms:
                if run := largest(mine, arm):
                    name, colour, marker, dash = ARMS[arm]
                    each = run["answer_tokens"] / run["steps"] / 1000
                    x = [each * point["step"] for point in run["curve"]]
                    y = [point["n_alpha"][n] for point in run["curve"]]
                    look = {"color": colour, "marker": marker, "ms": 4, "label": name}
                    axes.plot(x, y, dash, **look)
            axes.set_title(f"{n}-alpha on held-out answers")
            axes.set_xlabel("answer tokens seen, thousands")
            axes.set_ylim(0, 1)
        _legend(panels[0])
    return figure


def rates(steps: Sequence[int], values: Sequence[float]) -> Figure:
    """The learning rate over a run."""
    with style():
        figure, (axes,) = canvas(size=(7.0, 2.0))
        axes.plot(steps, values, color=INK)
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel("learning rate")
        axes.set_ylim(bottom=0)
    return figure

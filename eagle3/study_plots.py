"""The paper's training figures redrawn, and the same of our own runs beside them.

Paper and ours never share a panel: they measured other targets on other data. A panel
without data says "not yet measured"; nothing is made up. Points that somebody read off
the paper's plot are hollow, printed ones are solid, and ranges are bars.

Runs are rows of a study of recipes (arms): dictionaries with arm, budget (in units of
answer tokens), seed, n_alpha [8] and chains [8], how many drafts came to each place.
Source: [Paper] and [Ours], as each title says.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.cost_model import expected_tokens
from eagle3.plots import ACCEPTED, DRAFT, INK, NEUTRAL, canvas, style

Run = Mapping[str, Any]
Value = Callable[[Run], float | None]  # None: not measured of this run

CHAIN = 3  # tokens of the chain that our acceptance lengths are computed for
MIN_CHAINS = 200  # a share of fewer chains is not drawn: they run through few texts
NOT_YET = "not yet measured"

# arm -> name, colour, marker, dashes
ARMS = {
    "eagle1": ("EAGLE-1", NEUTRAL, "s", "--"),
    "eagle1-no-feature-loss": ("EAGLE-1 without feature loss", INK, "^", ":"),
    "eagle3-no-fusion": ("EAGLE-3 without fusion", ACCEPTED, "D", "-."),
    "eagle3-one-step": ("EAGLE-3, one step", INK, "v", ":"),
    "eagle3": ("EAGLE-3", DRAFT, "o", "-"),
    "hass": ("HASS", NEUTRAL, "P", "-."),
    "eagle3-own-tokens": ("EAGLE-3, own tokens", DRAFT, "X", "--"),
    "eagle3-from-target": ("EAGLE-3, from the last layer", DRAFT, "*", ":"),
}
FIGURE_4_ARMS = ("eagle1", "eagle1-no-feature-loss", "eagle3-no-fusion")
FIGURE_7_ARMS = ("eagle1", "eagle3-one-step", "eagle3")
TABLE_2_ARMS = ("eagle1", "eagle3-no-fusion", "eagle3")


def tau_of(run: Run, length: int = CHAIN) -> float:
    """Tokens per cycle of a chain, computed from the run's n-alpha. [Derived]"""
    return expected_tokens(run["n_alpha"][:length])


def foreseen(row: Mapping[str, Any]) -> Value:
    """The speedup that a run's chain would have at a known price of a cycle. [Derived]

    row: speedup and acceptance_length that a chain of `CHAIN` had when it was measured
    """
    price = row["acceptance_length"] / row["speedup"]
    return lambda run: tau_of(run) / price


def measured(rows: Sequence[Run], growth: str = "chain") -> Value:
    """The speedup at temperature 0 that a run's draft had on the machine. [Ours]

    rows: of figures/results/study_speed.json      growth: "chain" or "tree"
    """
    known = {_key(row): row["temperatures"]["0"][growth]["speedup"] for row in rows}
    return lambda run: known.get(_key(run))


def _key(run: Run) -> tuple[str, int, int]:
    return run["arm"], run["budget"], run["seed"]


def by_budget(
    runs: Sequence[Run], arm: str, value: Value
) -> list[tuple[int, float, float, float]]:
    """(budget, mean, least, most) over the seeds of an arm, by budget.

    Runs of which nothing was measured are left out. [Ours]
    """
    found: dict[int, list[float]] = {}
    for run in runs:
        if run["arm"] == arm and (known := value(run)) is not None:
            found.setdefault(run["budget"], []).append(known)
    return [(b, fmean(v), min(v), max(v)) for b, v in sorted(found.items())]


def scaling(
    paper: Mapping[str, Any],
    runs: Sequence[Run],
    speedup: Value | None = None,
    title: str = "speedup, foreseen",
) -> Figure:
    """Speedup and acceptance length against training data. [Paper, Figure 1; Ours]

    paper: figures/paper/figure1.json      runs: of the study, empty if there are none
    speedup: of a run, measured or foretold, as `title` says; without it that panel
        stays empty
    """
    with style():
        figure, axes = canvas(4, (9.6, 2.9))
        for place, what in enumerate(("speedup", "tau")):
            paper_scaling(axes[place], paper, what)
        ours = ((title, speedup), ("tau", tau_of))
        for place, (what, value) in enumerate(ours, start=2):
            known = runs if value else ()
            _ours_against_data(axes[place], known, ("eagle1", "eagle3"), value)
            axes[place].set_ylim(bottom=min(1, axes[place].get_ylim()[0]))
            axes[place].set_title(f"{what}\nour runs")
        axes[0].legend()
    return figure


def paper_scaling(axes: Axes, paper: Mapping[str, Any], what: str) -> None:
    """Curves of speedup or tau against data, as the paper plots them. [Paper]"""
    looks = {"EAGLE-2": (NEUTRAL, "s", "--"), "EAGLE-3": (DRAFT, "o", "-")}
    scale = paper["data_scale"]
    for method, values in paper[what].items():
        colour, marker, dash = looks[method]
        look = {"color": colour, "marker": marker, "mfc": "white"}
        axes.plot(scale, values, dash, label=method, **look)
        exact = scale.index(paper["exact"][method])
        axes.plot(scale[exact], values[exact], marker, color=colour)
    axes.set_xscale("log", base=2)
    axes.set_xticks(scale, [f"{x}x" for x in scale])
    axes.set_ylim(1, 1.07 * max(map(max, paper[what].values())))
    axes.set_title(f"{what}\nthe paper")
    axes.set_xlabel("training data (ShareGPT = 1x)")


def _ours_against_data(
    axes: Axes, runs: Sequence[Run], arms: Sequence[str], value: Value | None
) -> None:
    """One curve for each arm; a bar spans the seeds where there are several."""
    budgets = set()
    for arm in arms:
        points = by_budget(runs, arm, value) if value else []
        if not points:
            continue
        name, colour, marker, dash = ARMS[arm]
        x, mean, low, high = zip(*points, strict=True)
        budgets |= set(x)
        axes.vlines(x, low, high, color=colour, lw=3, alpha=0.4)
        axes.plot(x, mean, dash, color=colour, marker=marker, label=name)
    if not budgets:
        _empty(axes)
        return
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(budgets), [f"{x}x" for x in sorted(budgets)])
    axes.minorticks_off()
    axes.set_xlabel("training data (our smallest = 1x)")
    axes.legend()


def _empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, NOT_YET, ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def early_alphas(paper: Mapping[str, Any], runs: Sequence[Run]) -> Figure:
    """0-alpha and 1-alpha against data for three recipes. [Paper, Figure 4; Ours]

    paper: figures/paper/figure4.json, which holds ranges of 1-alpha and no points
    """
    with style():
        figure, axes = canvas(3, (9.0, 3.1), width_ratios=(1.2, 2, 2))
        for i, (name, (low, high)) in enumerate(paper["one_alpha"].items()):
            range_bar(axes[0], i, (low, high), name)
        axes[0].set_xticks([])
        axes[0].set_xlim(-0.8, len(paper["one_alpha"]) - 0.2)
        axes[0].set_title("1-alpha, the paper\n(ranges read off)")
        for n, panel in enumerate(axes[1:]):
            _ours_against_data(panel, runs, FIGURE_4_ARMS, _alpha(n))
            panel.set_title(f"{n}-alpha, our runs")
        for panel in axes:
            panel.set_ylim(0, 1)
    return figure


def _alpha(n: int) -> Value:
    return lambda run: run["n_alpha"][n]


def range_bar(axes: Axes, x: float, ends: tuple[float, float], name: str) -> None:
    """A hatched bar over all that a value may be, with a name above it. [Ours]"""
    low, high = ends
    axes.bar(x, high - low, 0.6, low, color="#D0D0D0", edgecolor=INK, hatch="//")
    words = name.replace(" without ", "\nwithout\n")
    axes.text(x, high + 0.02, words, ha="center", va="bottom", fontsize=7.5)


def alpha_by_n(paper: Mapping[str, Any], runs: Sequence[Run]) -> Figure:
    """n-alpha against n: does a draft bear its own outputs? [Paper, Figure 7; Ours]

    paper: figures/paper/figure7.json      runs: drawn at the largest budget that the
        arms have in common, lowest seed
    """
    with style():
        figure, axes = canvas(2, (8.2, 3.2), sharey=True)
        paper_alphas(axes[0], paper["n_alpha"])
        for run in same_budget(runs, FIGURE_7_ARMS):
            _our_alphas(axes[1], run)
        if axes[1].lines:
            axes[1].legend()
        else:
            _empty_shared(axes[1])
        for panel, who in zip(axes, ("the paper", "our runs"), strict=True):
            panel.set_title(f"n-alpha, {who}")
            panel.set_xlabel("n: own outputs among the draft's inputs")
        axes[0].set_xticks(range(8))
        axes[0].set_ylim(0, 1)
    return figure


def _empty_shared(axes: Axes) -> None:
    """As `_empty`, but leaves the ticks that another panel shares."""
    axes.text(0.5, 0.5, NOT_YET, ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])


def paper_alphas(axes: Axes, curves: Mapping[str, Sequence[Any]]) -> None:
    """n-alpha as read off the paper's plot, ranges and gaps included. [Paper]"""
    looks = {"EAGLE": (NEUTRAL, "s"), "EAGLE-3": (DRAFT, "o")}
    for method, points in curves.items():
        colour, marker = looks[method]
        for i, point in enumerate(points):
            first, last = point["n"]
            low, high = point["range"]
            name = method if i == 0 else None
            if first != last:
                axes.fill_between(
                    (first, last), low, high, color=colour, alpha=0.5, label=name
                )
                continue
            axes.vlines(first, low, high, color=colour, lw=3)
            middle = (low + high) / 2
            axes.plot(first, middle, marker, color=colour, mfc="white", label=name)
    axes.legend()


def largest(runs: Sequence[Run], arm: str) -> Run | None:
    """Of an arm the run with the largest budget; of several the lowest seed. [Ours]"""
    mine = [run for run in runs if run["arm"] == arm]
    return max(mine, key=lambda run: (run["budget"], -run["seed"]), default=None)


def _our_alphas(axes: Axes, run: Run) -> None:
    name, colour, marker, dash = ARMS[run["arm"]]
    values = [
        share
        for share, count in zip(run["n_alpha"], run["chains"], strict=True)
        if count >= MIN_CHAINS
    ]
    look = {"color": colour, "marker": marker}
    axes.plot(
        range(len(values)), values, dash, label=f"{name}, {run['budget']}x", **look
    )


def ablation(paper: Mapping[str, Any], runs: Sequence[Run]) -> Figure:
    """What each change adds to tau, step by step. [Paper, Table 2; Ours]

    paper: figures/paper/table2.json. Of our arms the largest budget that all three
    have is drawn, and tau is that of a chain computed from n-alpha.
    """
    names = ("before", "no feature loss,\ntraining-time test", "fusion as well")
    with style():
        tasks = paper["tasks"]
        figure, axes = canvas(len(tasks) + 1, (8.6, 3.0))
        for i, task in enumerate(tasks):
            taus = [row["tau"][i] for row in paper["rows"]]
            _stairs(axes[i], names, taus)
            axes[i].set_title(f"tau on {task}, the paper")
        ours = at_one_budget(runs, TABLE_2_ARMS)
        axes[-1].set_title(f"tau of a chain of {CHAIN}, our runs")
        if ours:
            _stairs(axes[-1], names, [fmean(map(tau_of, group)) for group in ours])
        else:
            _empty(axes[-1])
    return figure


def same_budget(runs: Sequence[Run], arms: Sequence[str]) -> list[Run]:
    """Of each arm that was run the lowest seed, at the largest common budget. [Ours]"""
    present = [arm for arm in arms if any(run["arm"] == arm for run in runs)]
    groups = at_one_budget(runs, present) if present else []
    return [min(group, key=lambda run: run["seed"]) for group in groups]


def at_one_budget(runs: Sequence[Run], arms: Sequence[str]) -> list[list[Run]]:
    """Of each arm the runs at the largest budget that all arms have. [Ours]"""
    budgets = [{run["budget"] for run in runs if run["arm"] == arm} for arm in arms]
    common = set.intersection(*budgets)
    if not common:
        return []
    most = max(common)
    return [
        [run for run in runs if run["arm"] == arm and run["budget"] == most]
        for arm in arms
    ]


def _stairs(axes: Axes, names: Sequence[str], values: Sequence[float]) -> None:
    """Bars that stand on the one before: its height grey, what is new in amber."""
    for i, value in enumerate(values):
        before = values[i - 1] if i else value
        axes.bar(i, min(before, value), 0.6, color="#D0D0D0", edgecolor=INK, lw=0.6)
        if value > before:
            look = {"color": DRAFT, "hatch": "//", "edgecolor": "white"}
            axes.bar(i, value - before, 0.6, before, **look)
        label = f"{value:.2f}" if i == 0 else f"{value:.2f}\n({value - before:+.2f})"
        axes.text(i, max(before, value), label, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(values)), names, fontsize=7)
    axes.set_ylim(0, 1.25 * max(values))

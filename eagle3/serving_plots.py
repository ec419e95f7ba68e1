"""Pictures of serving: throughput against batch, and speed under a limit.

The paper's points are marks, a cost model's curves are lines, and measurements of ours
have pictures of their own. Data in, figure out. Source: [Paper, Tables 3 and 5],
[Derived], [Ours], as each function says.
"""

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eagle3.drawing import (
    ACCEPTED,
    DRAFT,
    INK,
    NEUTRAL,
    REJECTED,
    TARGET,
    canvas,
    style,
)

Points = tuple[Sequence[float], Sequence[float]]  # batch sizes, values

_METHODS = {"EAGLE": (NEUTRAL, "s"), "EAGLE-3": (DRAFT, "o")}
_LINES = ((TARGET, "-"), (INK, "--"), (ACCEPTED, "-."), (NEUTRAL, ":"))


def throughput_ratio(
    tables: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Points]] | None = None,
) -> Figure:
    """Throughput over that of the same engine without speculation, against the batch.

    tables: title -> figures/paper/table3.json or table5.json; one panel each
    models: title -> name -> batch sizes and speedups that a model foretells, as lines
    Source: [Paper, Tables 3 and 5]; lines [Derived].
    """
    with style():
        figure, all_axes = canvas(len(tables), (8.6, 3.3), sharey=True)
        for axes, (title, table) in zip(all_axes, tables.items(), strict=True):
            for method, ratios in table["throughput"].items():
                colour, marker = _METHODS[method]
                look = {"color": colour, "marker": marker}
                ls = ":" if models else "-"
                axes.plot(table["batches"], ratios, ls=ls, label=method, **look)
            lines = (models or {}).get(title, {})
            for (name, (x, y)), (colour, dash) in zip(
                lines.items(), _LINES, strict=False
            ):
                axes.plot(x, y, dash, color=colour, lw=1.2, label=name)
            axes.axhline(1, color=INK, lw=0.8)
            axes.set_title(title)
            _batch_axis(axes, table["batches"])
            axes.legend(fontsize=7.5)
        all_axes[0].set_ylabel("throughput, plain decoding = 1")
        all_axes[0].set_ylim(bottom=0)
    return figure


def _batch_axis(axes: Axes, batches: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    ticks = [b for b in batches if log2(b).is_integer()]
    axes.set_xticks(ticks, [str(b) for b in ticks])
    axes.minorticks_off()
    axes.set_xlabel("requests in the batch")


def against_batch(
    panels: Mapping[str, Mapping[str, Points]], label: str, level: float | None = None
) -> Figure:
    """Curves over the batch size, one panel for each group.

    panels: title -> name -> batch sizes and values      label: of the upright axis
    level: where a thin line is drawn, as 1 for break-even
    Source: [Derived] or [Ours]: the caller says which.
    """
    with style():
        figure, all_axes = canvas(len(panels), (8.4, 3.1), sharey=True)
        for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
            known: set[float] = set()
            for i, (name, (x, y)) in enumerate(curves.items()):
                colour, dash = _LINES[i % 4]
                axes.plot(x, y, dash, color=colour, marker="osD^"[i % 4], label=name)
                known |= set(x)
            if level is not None:
                axes.axhline(level, color=REJECTED, lw=0.9)
            axes.set_title(title)
            _batch_axis(axes, sorted(known))
            axes.legend(fontsize=7.5)
        all_axes[0].set_ylabel(label)
        all_axes[0].set_ylim(bottom=0)
    return figure


def frontier(
    curves: Mapping[str, Sequence[tuple[int, float, float]]], limit: float
) -> Figure:
    """Throughput against time per token while the batch grows: what a limit allows.

    curves: name -> (batch, milliseconds per token, tokens per second) in order
    limit: milliseconds per token that were promised; what lies left of it keeps it
    Source: [Derived].
    """
    with style():
        figure, (axes,) = canvas(size=(7.0, 3.4))
        for i, (name, points) in enumerate(curves.items()):
            colour, dash = ((TARGET, "-"), (DRAFT, "--"))[i % 2]
            batches, times, rates = zip(*points, strict=True)
            axes.plot(times, rates, dash, color=colour, marker="os"[i % 2], label=name)
            for batch, x, y in zip(batches, times, rates, strict=True):
                axes.annotate(
                    f"{batch}", (x, y), (4, -9), textcoords="offset points", fontsize=7
                )
        axes.axvline(limit, color=REJECTED, lw=1.2)
        place = {"va": "top", "ha": "right", "transform": axes.get_xaxis_transform()}
        axes.text(limit, 0.98, f"limit {limit:g} ms", rotation=90, **place)
        axes.set_xlabel("milliseconds per token of a request (numbers: batch size)")
        axes.set_ylabel("tokens per second of all")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend()
    return figure

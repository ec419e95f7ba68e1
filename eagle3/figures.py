"""The figures of this repository: from data files to pictures with words.

`python -m eagle3.plots`, which is `make figures`, draws every figure again. What is
measured comes from figures/results/, what the paper reports from figures/paper/; no
number is written here. Each picture is saved as SVG and PNG, and its SVG says in words
what it shows. The SVG text depends on nothing but the data and the version of
matplotlib, so a test can tell whether a saved figure is up to date. [Ours]
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from eagle3 import diagrams, plots, serving_plots, study_plots, ttt_plots
from eagle3.bench.environment import read_results, results_path
from eagle3.bench.ttt_cost import common_length, find
from eagle3.drawing import DRAFT, INK, NEUTRAL, TARGET, Drawn, png
from eagle3.paper import read_paper
from eagle3.paper_figures import PAPER_FIGURES
from eagle3.target import tap_layers
from eagle3.trace import rows_from_json

FOLDER = Path(__file__).parents[1] / "figures"
RESULTS = FOLDER / "results"

_SVG_STYLE = {"svg.hashsalt": "eagle3", "svg.fonttype": "path"}
_PNG_DPI = 160


def serving_stack() -> Drawn:
    """Where EAGLE-3 sits. Source: see `diagrams.serving_stack`."""
    return Drawn(
        diagrams.serving_stack(),
        "Where EAGLE-3 sits",
        "nested boxes: a serving system holds an engine, the engine holds prefill and "
        "decode, decode holds speculative decoding, and that holds a line of four "
        "methods, from speculative sampling to EAGLE, EAGLE-2 and EAGLE-3",
    )


def dataflow() -> Drawn:
    """One cycle's tensors, for a target of SmolLM2's 30 layers."""
    letters = {letter: letter for letter in "lmhpgeaq"}
    return Drawn(
        diagrams.dataflow(letters, tap_layers(30), 30),
        "What flows where",
        "the target's layers hand over l, m and h; a fully connected layer fuses them "
        "to g; one decoder layer reads g and the embedding e of the next token and "
        "gives a; the draft's own head turns a into q; at the next step a takes the "
        "place of g; the target's head gives p",
    )


def alignment() -> Drawn:
    """Which feature meets which token, on the book's example."""
    return Drawn(
        diagrams.alignment(["How", "can", "I", "do", "it"]),
        "The alignment rule",
        "four draft positions: position i pairs the feature of token i with the "
        "embedding of token i+1 and predicts token i+2; How and can have features g "
        "of the target, I and do have the draft's own outputs a in their place",
    )


def trace() -> Drawn:
    """The first cycles of a recorded run."""
    recorded = read_results("trace", RESULTS)
    rows = rows_from_json(recorded["rows"])[:10]
    tokens = sum(row.emitted for row in rows)
    return Drawn(
        diagrams.run_of_cycles(rows),
        "A run, cycle by cycle",
        f"the first {len(rows)} cycles of the answer to {recorded['prompt']!r}: the "
        f"target keeps {sum(row.num_accepted for row in rows)} of "
        f"{sum(len(row.drafted) for row in rows)} drafted tokens and adds one of its "
        f"own in each pass, {tokens} tokens in {len(rows)} passes",
    )


def speedup() -> Drawn:
    """What a draft is worth on the measured machine."""
    measured = read_results("methods", RESULTS)
    summary, machine = measured["temperatures"]["0"], measured["environment"]
    best = best_chain(summary)
    library = summary["transformers generate"]["speedup"]
    prompts = measured["config"]["num_questions"]
    return Drawn(
        speedups(summary),
        "Speed against plain decoding",
        f"{best} makes {summary[best]['speedup']:.2f} times as many tokens per second "
        f"as plain decoding with the same engine, in the mean over {prompts} prompts, "
        f"on {machine['cpu']} with {machine['threads']} threads; the loop of "
        f"transformers makes {library:.2f} times as many, without a draft",
    )


def block_cost() -> Drawn:
    """What a block of several tokens costs against one."""
    block = read_results("block_cost", RESULTS)["block"]
    series = {
        name: [seconds / values[0] for seconds in values]
        for name, values in block["seconds"].items()
        if name in ("eagle3", "library")
    }
    at = block["rows"].index(4)
    return Drawn(
        plots.curves(block["rows"], series, ("tokens in the block", "one token = 1")),
        "The cost of a block",
        f"a block of 4 tokens costs {series['eagle3'][at]:.2f} times one token with "
        f"prepacked layers and {series['library'][at]:.2f} times with stock ones",
    )


def ttt_cost() -> Drawn:
    """What the attention of training-time test costs in each form."""
    measured = read_results("ttt_cost", RESULTS)
    rows, machine = measured["rows"], measured["environment"]
    at = common_length(rows, steps=7)
    dense, ours = (find(rows, form, at, 7) for form in ("dense", "diagonal"))
    faster = dense["training"]["seconds"] / ours["training"]["seconds"]
    smaller = dense["peak_bytes"] / ours["peak_bytes"]
    return Drawn(
        ttt_plots.cost_curves(rows, 7),
        "The cost of training-time test's attention",
        "three panels over the length of the text, at 7 steps: tokens per second "
        f"forward, the same with the backward pass, and peak memory; at {at:,} tokens "
        f"the diagonal form is {faster:.1f} times as fast as the dense mask and its "
        f"memory {smaller:.1f} times smaller, on {machine['cpu']}, threads: "
        f"{machine['threads']}",
    )


def study_scaling() -> Drawn:
    """The paper's Figure 1, and ours."""
    paper, runs = read_paper("figure1"), _rows("study")
    if speeds := _rows("study_speed"):
        speedup, title = study_plots.measured(speeds), "speedup of a chain of 3"
    else:
        methods = read_results("methods", RESULTS)["temperatures"]["0"]
        speedup = study_plots.foreseen(methods["EAGLE-3 chain 3"])
        title = "speedup, foreseen"
    ends = {
        name: f"{name} from {values[0]:.2f} to {values[-1]:.2f}"
        for name, values in paper["tau"].items()
    }
    return Drawn(
        study_plots.scaling(paper, runs, speedup, title),
        "More data, the paper's Figure 1 and ours",
        "four panels over the amount of training data. The paper's two: speedup and "
        f"tau, read off, tau of {' and '.join(ends.values())} with eight times the "
        f"data. Our two: {title}, and tau of a chain of three; tau: "
        + _ours_over_data(runs, ("eagle1", "eagle3"), study_plots.tau_of),
    )


def study_alphas() -> Drawn:
    """The paper's Figure 4, and ours."""
    paper, runs = read_paper("figure4"), _rows("study")
    ranges = [f"{name} {a} to {b}" for name, (a, b) in paper["one_alpha"].items()]
    arms = study_plots.FIGURE_4_ARMS
    told = _ours_over_data(runs, arms, lambda run: run["n_alpha"][1])
    return Drawn(
        study_plots.early_alphas(paper, runs),
        "The first and the second guess, the paper's Figure 4 and ours",
        f"the paper's 1-alpha as ranges: {', '.join(ranges)}. Beside it our 0-alpha "
        f"and 1-alpha over the data for three recipes; 1-alpha: {told}",
    )


def study_by_n() -> Drawn:
    """The paper's Figure 7, and ours."""
    paper, runs = read_paper("figure7"), _rows("study")
    drawn = study_plots.same_budget(runs, study_plots.FIGURE_7_ARMS)
    told = [
        f"{study_plots.ARMS[run['arm']][0]} at {run['budget']}x from "
        f"{run['n_alpha'][0]:.2f} to {run['n_alpha'][4]:.2f} at n = 4"
        for run in drawn
    ]
    return Drawn(
        study_plots.alpha_by_n(paper, runs),
        "n-alpha against n, the paper's Figure 7 and ours",
        "two panels of n-alpha over n. In the paper's EAGLE falls and EAGLE-3 stays "
        f"level. In ours: {', '.join(told) or study_plots.NOT_YET}",
    )


def study_ablation() -> Drawn:
    """The paper's Table 2 as steps, and ours."""
    paper, runs = read_paper("table2"), _rows("study")
    tasks = [
        f"on {task} {', '.join(str(row['tau'][i]) for row in paper['rows'])}"
        for i, task in enumerate(paper["tasks"])
    ]
    ours = study_plots.at_one_budget(runs, study_plots.TABLE_2_ARMS)
    taus = [fmean(map(study_plots.tau_of, group)) for group in ours]
    told = ", ".join(f"{tau:.2f}" for tau in taus) or study_plots.NOT_YET
    return Drawn(
        study_plots.ablation(paper, runs),
        "What each change adds, the paper's Table 2 and ours",
        f"tau in three steps: before, then with training-time test and no feature "
        f"loss, then with fusion as well. The paper's {' and '.join(tasks)}; ours, of "
        f"a chain of {study_plots.CHAIN}: {told}",
    )


def _rows(name: str) -> list[dict[str, Any]]:
    """The rows of the study, or of another file of runs; none if there is no file."""
    if not results_path(name, RESULTS).exists():
        return []
    return read_results(name, RESULTS)["runs"]


def _ours_over_data(
    runs: Sequence[study_plots.Run], arms: Sequence[str], value: study_plots.Value
) -> str:
    """In words: each arm's mean at its least and its largest budget."""
    told = []
    for arm in arms:
        if points := study_plots.by_budget(runs, arm, value):
            (first, start, *_), (last, end, *_) = points[0], points[-1]
            words = f"{study_plots.ARMS[arm][0]} {start:.2f} at {first}x"
            told.append(words + (f", {end:.2f} at {last}x" if last > first else ""))
    return "; ".join(told) or study_plots.NOT_YET


def throughput() -> Drawn:
    """What a draft is worth when several requests share a pass."""
    measured = read_results("throughput", RESULTS)
    rows = measured["methods"]
    panels: dict[str, dict[str, serving_plots.Points]] = {}
    for name, row in rows.items():
        title, found, length = name.partition(" chain ")
        if found:
            points = row["batches"], row["speedup"]
            panels.setdefault(title, {})[f"chain of {length}"] = points
    told = [
        f"{name} {row['speedup'][0]:.2f} with {row['batches'][0]} request and "
        f"{row['speedup'][-1]:.2f} with {row['batches'][-1]}"
        for name, row in rows.items()
        if "chain" in name
    ]
    machine = measured["environment"]
    label = "throughput, plain decoding = 1"
    return Drawn(
        serving_plots.against_batch(panels, label, level=1),
        "What a draft is worth in a batch",
        "throughput over that of the same batch engine without a draft, against the "
        f"number of requests, on {machine['cpu']} with {machine['threads']} threads: "
        + "; ".join(told),
    )


FIGURES: Mapping[str, Callable[[], Drawn]] = {
    "serving_stack": serving_stack,
    "dataflow": dataflow,
    "alignment": alignment,
    "trace": trace,
    "block_cost": block_cost,
    "speedup": speedup,
    "ttt_cost": ttt_cost,
    "study_scaling": study_scaling,
    "study_alphas": study_alphas,
    "study_by_n": study_by_n,
    "study_ablation": study_ablation,
    "throughput": throughput,
    **PAPER_FIGURES,
}


def best_chain(summary: Mapping[str, Any]) -> str:
    """The speculative method with the largest mean speedup in a speedup summary."""
    chains = [name for name in summary if "chain" in name]
    return max(chains, key=lambda name: summary[name]["speedup"])


def speedups(summary: Mapping[str, Any]) -> Figure:
    """Bars of speed relative to plain decoding, one for each method.

    summary: of `eagle3.bench.speedup.summarise`; whiskers are its 95% intervals, marks
        the five kinds of prompts; the library's own methods are grey
    Source: [Ours].
    """
    names = [name for name in summary if name != "Vanilla"]
    with plots.style():
        figure, (axes,) = plots.canvas(size=(7.0, 0.5 * len(names) + 1.3))
        for i, name in enumerate(names):
            row = summary[name]
            low, high = row["speedup_interval_95"]
            mean = row["speedup"]
            colour = NEUTRAL if name.startswith("transformers") else DRAFT
            axes.barh(i, mean, 0.55, color=colour, edgecolor=INK, lw=0.6)
            axes.plot([low, high], [i, i], color=INK, lw=1.4)
            for (kind, value), marker in zip(
                row["speedup_by_kind"].items(), "osD^v", strict=False
            ):
                label = kind if i == 0 else None
                look = {"mfc": "white", "mec": TARGET, "ls": "", "ms": 4}
                axes.plot(value, i + 0.38, marker, label=label, **look)
            tau = row["acceptance_length"]
            text = f" {mean:.2f} times" + (f", tau {tau:.2f}" if tau else "")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(high, i, text, va="center", fontsize=8, bbox=box)
        axes.axvline(1, color=INK, lw=1.2, ls="--")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_xlim(
            0, 1.35 * max(summary[n]["speedup_interval_95"][1] for n in names)
        )
        axes.set_xlabel("tokens per second, relative to plain decoding (dashed: 1)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5)
    return figure


def svg_text(drawn: Drawn) -> str:
    """The figure as SVG that carries its title and its words."""
    text = StringIO()
    with plots.style(), matplotlib.rc_context(_SVG_STYLE):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        drawn.figure.savefig(text, format="svg", metadata=metadata)
    svg = text.getvalue()
    start = svg.index("<svg ")
    end = svg.index(">", start) + 1
    head = svg[start : end - 1] + ' role="img" aria-labelledby="title desc">'
    words = (
        f'\n <title id="title">{escape(drawn.title)}</title>'
        f'\n <desc id="desc">{escape(drawn.words)}</desc>'
    )
    return re.sub(r" +$", "", head + words + svg[end:], flags=re.MULTILINE)


def save(name: str, drawn: Drawn, folder: Path) -> None:
    """Write name.svg and name.png into the folder."""
    (folder / f"{name}.svg").write_text(svg_text(drawn), encoding="utf-8")
    told = {"Title": drawn.title, "Description": drawn.words}
    (folder / f"{name}.png").write_bytes(png(drawn.figure, _PNG_DPI, told))


def main() -> None:
    """Draw all figures, and list their words in figures/figures.json."""
    listed = {}
    for name, draw in FIGURES.items():
        drawn = draw()
        save(name, drawn, FOLDER)
        listed[name] = {"title": drawn.title, "words": drawn.words}
        print(f"figures/{name}.svg: {drawn.words}")
    text = json.dumps(listed, indent=1, ensure_ascii=False)
    (FOLDER / "figures.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

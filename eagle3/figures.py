"""The figures of this repository: from data files to pictures with words.

`python -m eagle3.plots`, which is `make figures`, draws every figure again. What is
measured comes from figures/results/, what the paper reports from figures/paper/; no
number is written here. Each picture is saved as SVG and PNG, and its SVG says in words
what it shows. The SVG text depends on nothing but the data and the version of
matplotlib, so a test can tell whether a saved figure is up to date. [Ours]
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from eagle3 import diagrams, plots, ttt_plots
from eagle3.bench.environment import read_results
from eagle3.bench.ttt_cost import common_length, find
from eagle3.plots import DRAFT, INK, NEUTRAL, TARGET
from eagle3.target import tap_layers
from eagle3.trace import rows_from_json

FOLDER = Path(__file__).parents[1] / "figures"
RESULTS = FOLDER / "results"

_SVG_STYLE = {"svg.hashsalt": "eagle3", "svg.fonttype": "path"}
_PNG_DPI = 160


@dataclass(frozen=True)
class Drawn:
    """A figure with its title and, in `words`, all that a reader should see in it."""

    figure: Figure
    title: str
    words: str


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


FIGURES: Mapping[str, Callable[[], Drawn]] = {
    "serving_stack": serving_stack,
    "dataflow": dataflow,
    "alignment": alignment,
    "trace": trace,
    "block_cost": block_cost,
    "speedup": speedup,
    "ttt_cost": ttt_cost,
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
    with plots.style():
        metadata = {"Software": None, "Title": drawn.title, "Description": drawn.words}
        drawn.figure.savefig(
            folder / f"{name}.png", dpi=_PNG_DPI, format="png", metadata=metadata
        )


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

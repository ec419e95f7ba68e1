"""Writes the parts of README.md and notebooks/README.md that must not be typed.

Chapter tables come from the list below and from the notebooks that exist, measured
results from figures/results/, pictures and their words from figures/. A test compares
the files with what this writes. `make figures` calls it.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from section_map import QUESTIONS, SECTIONS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MAP = ROOT / "notebooks" / "README.md"

CHAPTERS: Mapping[str, tuple[str, str]] = {
    "00_start_here": (
        "Start here",
        "set-up, the map, one real run cycle by cycle, the notation",
    ),
    "01_why_decoding_is_slow": (
        "Why decoding is slow",
        "the decoding loop, the KV cache, what a pass costs and why",
    ),
    "02_accept_or_resample": (
        "Accept or resample",
        "the acceptance rule, proved in three ways and broken in six",
    ),
    "03_draft_then_verify": (
        "Draft, then verify",
        "two models in one loop, parallel scoring, cache rollback",
    ),
    "04_eagle_features": (
        "EAGLE and its features",
        "EAGLE-1's head, its two losses, and what happens without one",
    ),
    "05_taps_and_fusion": (
        "Taps and fusion",
        "which hidden states the draft reads, and what they know",
    ),
    "06_draft_model": (
        "The draft model",
        "two streams, one layer, an own head, a draft vocabulary",
    ),
    "07_chain_engine": (
        "The chain engine",
        "catch up, draft, verify, commit, with both caches",
    ),
    "08_training_time_test": (
        "Training-time test",
        "the attention mask, and its diagonal shortcut",
    ),
    "09_training": (
        "Training",
        "data from the target's own answers, loss, n-alpha, ablations",
    ),
    "10_draft_trees": (
        "Draft trees",
        "growing, reranking, tree attention, sampling on a tree",
    ),
    "11_gpu_engine": (
        "The GPU engine",
        "fixed shapes, CUDA graphs, no waiting for the host",
    ),
    "12_measuring": (
        "Measuring",
        "honest timing, both acceptance lengths, intervals",
    ),
    "13_reading_the_results": (
        "Reading the results",
        "the paper's tables and figures from data, ours beside them",
    ),
    "14_serving": (
        "Serving",
        "batches, break-even, memory, draft-length policies",
    ),
    "15_real_checkpoints": (
        "Real checkpoints",
        "official files in, vLLM and SGLang out",
    ),
    "A_notation": ("Appendix A: notation", "every name and symbol in one table"),
    "B_shapes": ("Appendix B: shapes", "every tensor of a live run"),
    "C_single_file": ("Appendix C: one file", "the method on one page"),
    "D_reproduce": (
        "Appendix D: configurations and reproduction",
        "every configuration and command",
    ),
}


def chapter_table(from_folder: str) -> str:
    """A row for each chapter; those that exist are linked and have a run time.

    from_folder: prefix of the links, "notebooks/" or ""
    """
    seconds = _results("chapters")["seconds"]
    lines = ["| chapter | what it is about | status | run time |", "|---|---|---|---|"]
    for name, (title, subject) in CHAPTERS.items():
        number = name.split("_")[0].lstrip("0") or "0"
        label = title if title.startswith("Appendix") else f"{number}. {title}"
        status, time = "planned", ""
        if (ROOT / "notebooks" / f"{name}.ipynb").is_file():
            label = f"[{label}]({from_folder}{name}.ipynb)"
            status = "ready"
            time = f"{seconds[name]:.0f} s" if name in seconds else "not timed yet"
        lines.append(f"| {label} | {subject} | {status} | {time} |")
    machine = _machine(_results("chapters")["environment"])
    lines += ["", f"Run times are those of all cells in order, on {machine}."]
    return "\n".join(lines)


def section_table() -> str:
    """A row for each section of the outline, with the headings that it lives under."""
    lines = ["| section | where it is |", "|---|---|"]
    for section in SECTIONS:
        homes = ", ".join(_home(*home) for home in section.homes)
        lines.append(f"| {section.number} {section.title} | {homes} |")
    return "\n".join(lines)


def question_table() -> str:
    """A row for each question that people keep asking, with the chapters' boxes."""
    lines = ["| question | answered in a box of |", "|---|---|"]
    for question in QUESTIONS:
        numbers = dict.fromkeys(number for number, _ in question.boxes)
        lines.append(f"| {question.asks} | {', '.join(map(_chapter, numbers))} |")
    return "\n".join(lines)


def _home(number: str, heading: str) -> str:
    """Chapter and heading, as far as it is needed to find it."""
    return f"{_chapter(number)}, *{heading}*"


def _chapter(number: str) -> str:
    """A chapter or appendix, linked if it exists."""
    name = next(name for name in CHAPTERS if name.split("_")[0] == number)
    label = f"appendix {number}" if number.isalpha() else f"chapter {int(number)}"
    if (ROOT / "notebooks" / f"{name}.ipynb").is_file():
        label = f"[{label}]({name}.ipynb)"
    return label


def measured() -> str:
    """The speedup table, with all that makes it comparable."""
    results = _results("methods")
    config, summary = results["config"], results["temperatures"]["0"]
    kinds = len(summary["Vanilla"]["speedup_by_kind"])
    lines = [
        f"SmolLM2-135M-Instruct in float32 on {_machine(results['environment'])}, one "
        f"request at a time, temperature 0, {config['num_questions']} prompts of "
        f"{kinds} kinds, up to "
        f"{config['max_new_tokens']} new tokens. All methods take turns on each "
        "prompt.",
        "",
        "| method | speed | 95% interval | tokens per target pass | same tokens |",
        "|---|---|---|---|---|",
    ]
    for name, row in summary.items():
        label = "vanilla (our engine, no draft)" if name == "Vanilla" else name
        low, high = row["speedup_interval_95"]
        interval = "" if name == "Vanilla" else f"{low:.2f} to {high:.2f}"
        same = "yes" if row["same_tokens"] else _differing(row)
        tau = f"{row['acceptance_length']:.2f}" if row["acceptance_length"] else ""
        lines.append(
            f"| {label} | {row['speedup']:.2f} | {interval} | {tau} | {same} |"
        )
    lines += ["", _against_the_library(summary)]
    return "\n".join(lines)


def _against_the_library(summary: Mapping[str, Any]) -> str:
    chains = [name for name in summary if "chain" in name]
    best = max(chains, key=lambda name: summary[name]["speedup"])
    ratio = summary[best]["speedup"] / summary["transformers generate"]["speedup"]
    return (
        "Speed is tokens per second relative to vanilla, in the mean over the prompts; "
        "below 1 is slower. The library doesn't tell its passes. Its own plain loop is "
        f"a baseline too: against it the speed of {best} is {ratio:.2f}. The prompts "
        "are few and the intervals are wide."
    )


def methods() -> str:
    """All methods side by side: one table for each temperature, as in Table 1."""
    results = _results("methods")
    config = results["config"]
    lines = [
        f"{config['num_questions']} prompts, up to {config['max_new_tokens']} new "
        f"tokens, on {_machine(results['environment'])}. Each cell has the speed "
        "relative to vanilla and the acceptance length, tokens per target pass."
    ]
    for temperature, summary in results["temperatures"].items():
        kinds = list(summary["Vanilla"]["speedup_by_kind"])
        titles = ["method", *kinds, "mean", "95% interval of the speed"]
        lines += ["", f"Temperature {temperature}:", "", _row(titles)]
        lines.append(_row(["---"] * len(titles)))
        for label, row in summary.items():
            low, high = row["speedup_interval_95"]
            by_kind = [
                _speed_and_tau(
                    row["speedup_by_kind"][kind], row["acceptance_length_by_kind"][kind]
                )
                for kind in kinds
            ]
            mean = _speed_and_tau(row["speedup"], row["acceptance_length"])
            interval = "" if label == "Vanilla" else f"{low:.2f} to {high:.2f}"
            lines.append(_row([label, *by_kind, mean, interval]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _speed_and_tau(speed: float, tau: float) -> str:
    return f"{speed:.2f}, {tau:.2f}" if tau else f"{speed:.2f}"


def _differing(row: Mapping[str, Any]) -> str:
    return f"no, on {len(row['differing_questions'])} prompts"


def picture(name: str) -> str:
    """A figure as Markdown, with its words as alt text and as a caption."""
    words = json.loads((ROOT / "figures" / "figures.json").read_text("utf-8"))[name]
    sentence = words["words"][0].upper() + words["words"][1:]
    alt = f"{words['title']}: {words['words']}".replace("[", "(").replace("]", ")")
    return f"![{alt}](figures/{name}.svg)\n\n*{words['title']}. {sentence}.*"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "chapters": lambda: chapter_table("notebooks/"),
    "map": lambda: chapter_table(""),
    "sections": section_table,
    "questions": question_table,
    "measured": measured,
    "methods": methods,
    "picture trace": lambda: picture("trace"),
    "picture speedup": lambda: picture("speedup"),
}


def filled(text: str) -> str:
    """The text with every block between `<!-- name -->` and `<!-- end -->` renewed.

    Raises KeyError for a block that nobody writes.
    """
    return re.sub(
        r"(<!-- (?!end)([a-z ]+) -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}",
        text,
        flags=re.DOTALL,
    )


def _results(name: str) -> dict[str, Any]:
    path = ROOT / "figures" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _machine(environment: Mapping[str, Any]) -> str:
    place = environment["accelerator"] or environment["cpu"]
    return (
        f"{place} ({environment['threads']} threads, torch {environment['torch']}, "
        f"{environment['date']})"
    )


if __name__ == "__main__":
    for path in (README, MAP):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{path.relative_to(ROOT)} is up to date")

"""Measures what the drafts of the study are worth: acceptance length and speedup.

Each draft drafts a chain and a tree, the same for all, and takes turns with plain
decoding on questions of all kinds, at both temperatures (A B A B). So a draft's speedup
is that over the plain decoding beside it, and drafts that came weeks apart can be
measured weeks apart. The harness is the one of `python -m eagle3 bench`.

    python tools/study_bench.py DATA RUNS [RUN ...]

DATA, RUNS: those of tools/study.py. RUN: names of folders in RUNS, as eagle3_1x_seed0;
all finished ones if none is named. Nothing else should run on the machine. Run it again
to go on: what is measured is kept in the run's folder, question by question, and
figures/results/study_speed.json has the rows of all runs:

    runs  [{arm, budget, seed, temperatures}]  temperatures: "0" or "1" -> "vanilla",
          "chain" or "tree" -> speedup and acceptance_length, both also by kind, and
          all else that eagle3.bench.speedup.summarise tells
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import study
import training_replay
from torch import Tensor, nn

from eagle3.bench import speedup
from eagle3.bench.environment import write_results
from eagle3.bench.questions import Question, evaluation_questions
from eagle3.bench.run_log import RunLog
from eagle3.drafters import Drafter, EagleDrafter, VanillaDrafter
from eagle3.engine import Request, run
from eagle3.growth import chain
from eagle3.methods import SMALL_DYNAMIC_TREE
from eagle3.target import Target, load_target
from eagle3.training.data import load_data

GROWTHS = {"chain": chain(3), "tree": SMALL_DYNAMIC_TREE}
CONFIG = speedup.SpeedupConfig(
    methods=(), temperatures=(0.0, 1.0), max_new_tokens=64, rounds=1
)
PER_KIND = 2  # questions
BENCH_FILE = "bench.json"
STATE_FILE = "state.json"
PARTIAL_FILE = "bench.partial.jsonl"


def draft_of(folder: Path, target: Target, vocabulary: Tensor) -> nn.Module:
    """The draft of a run, as its last checkpoint has it. [Ours]"""
    named = training_replay.run_of(folder)
    state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    recipe = study.ARMS[named.arm](target, vocabulary, named.seed)
    recipe.load(folder / state["checkpoint"])
    return recipe.model


def decoders(target: Target, draft: nn.Module) -> dict[str, speedup.Decoder]:
    """Plain decoding, and the draft with each growth. [Ours]"""

    def decoder(drafter: Drafter) -> speedup.Decoder:
        def decode(request: Request) -> speedup.Answer:
            result = run(target, drafter, request)
            return speedup.Answer(result.text, result.token_ids, result.seconds, result)

        return decode

    drafters = {name: EagleDrafter(target, draft, g) for name, g in GROWTHS.items()}
    whole = {speedup.VANILLA: VanillaDrafter()} | drafters
    return {name: decoder(drafter) for name, drafter in whole.items()}


def circumstances(config: speedup.SpeedupConfig, asked: Sequence[Question]) -> dict:
    """What rows must share to stand in one file, in the form that JSON returns."""
    facts = {"config": asdict(config), "questions": [asdict(q) for q in asked]}
    return json.loads(json.dumps(facts))


def measure(
    folder: Path,
    target: Target,
    vocabulary: Tensor,
    config: speedup.SpeedupConfig,
    asked: Sequence[Question],
) -> None:
    """Measure one run's draft, unless its folder holds that already. [Ours]"""
    path, facts = folder / BENCH_FILE, circumstances(config, asked)
    if path.exists() and _read(path)["facts"] == facts:
        return
    log = RunLog(folder / PARTIAL_FILE, config, asked)
    methods = decoders(target, draft_of(folder, target, vocabulary))
    measured = speedup.measure_speedup(target, methods, asked, config, log)
    found = {
        f"{t:g}": speedup.summarise(measured, t, config.seed, named=str)
        for t in config.temperatures
    }
    row = asdict(training_replay.run_of(folder)) | {"temperatures": found}
    path.write_text(json.dumps({"facts": facts, "row": row}), encoding="utf-8")
    log.close()


def collect(runs: Path, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of all runs that were measured like this, in order. [Ours]"""
    found = map(_read, runs.glob(f"*/{BENCH_FILE}"))
    rows = [one["row"] for one in found if one["facts"] == facts]
    return sorted(rows, key=lambda row: (row["arm"], row["budget"], row["seed"]))


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def finished(runs: Path, names: Sequence[str]) -> list[Path]:
    """The folders of these runs, or of all that are through.

    Raises ValueError for one that isn't. [Ours]
    """
    folders = [runs / name for name in names]
    if not names:
        folders = sorted(path.parent for path in runs.glob(f"*/{study.ROW_FILE}"))
    for folder in folders:
        if not (folder / study.ROW_FILE).exists():
            raise ValueError(f"{folder} holds no finished run: train it first.")
    return folders


def main() -> None:
    """Measure what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("names", nargs="*", metavar="run")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    args = parser.parse_args()
    folders = finished(args.runs, args.names)
    asked = evaluation_questions(args.per_kind, CONFIG.seed)
    target = load_target()
    _, vocabulary = study.vocabulary_of(load_data(args.data), target)
    facts = circumstances(CONFIG, asked)
    for folder in folders:
        print(folder.name, flush=True)
        measure(folder, target, vocabulary, CONFIG, asked)
        rows = collect(args.runs, facts)
        content = {"what": "drafts of the study beside plain decoding", "runs": rows}
        config = facts["config"] | {"num_questions": len(asked)}
        print(write_results("study_speed", content | {"config": config}, study.RESULTS))


if __name__ == "__main__":
    main()

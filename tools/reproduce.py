"""The chain that the book's numbers come from: every command, in order, with its hours.

    python tools/reproduce.py FOLDER            run it; days on a laptop
    python tools/reproduce.py FOLDER --list     only say what it does, and the hours
                                                that it took here, or else took us
    python tools/reproduce.py FOLDER --hours    write the hours to figures/results/
    python tools/reproduce.py FOLDER --short    features and two runs on a few answers
                                                that ship: a minute or two

`make reproduce` is the first of them, with FOLDER reproduced/. Data, features and runs
go into FOLDER, which needs about 10 GB; the drafts that ship, measurements, figures and
chapters are written where they stand in the repository. Killed at any time, the chain
goes on where it was: a stage that is through is not run again, and every command takes
up what it finds. The short chain leaves the repository alone.

A stage's hours are those that it took here, or else the time from the first file that
it left to the last. Hours of one machine say little of another's; their ratios do.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import study
from final_drafts import ANSWERS, HELD_OUT

from eagle3.bench.environment import read_results, write_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "figures" / "results"
HOURS_FILE = "hours.json"
TRAINING = ANSWERS / "training.safetensors"

PYTHON = (sys.executable,)
EAGLE3 = (*PYTHON, "-m", "eagle3")
Command = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One part of the chain.

    commands: run in order in the repository; {folder} stands for FOLDER
    leaves: patterns of the files in FOLDER that tell its hours, where it leaves any
    """

    name: str
    what: str
    commands: tuple[Command, ...]
    leaves: tuple[str, ...] = ()


def _tool(name: str, *arguments: str) -> Command:
    return (*PYTHON, f"tools/{name}.py", *arguments)


def _study(*choice: str) -> Command:
    folders = ("{folder}/data", "{folder}/held_out", "{folder}/runs")
    return _tool("study", *folders, *choice)


_DATA = ("{folder}/data", "{folder}/held_out")

STAGES = (
    Stage(
        "training answers",
        "the target answers 7,296 prompts, half of them greedily",
        ((*EAGLE3, "generate-data", "{folder}/data", "--num-prompts", "7296",
          "--workers", "2", "--dtype", "bfloat16"),),
        ("data/shard-*.safetensors",),
    ),
    Stage(
        "held-out answers",
        "300 greedy answers on topics kept apart",
        ((*EAGLE3, "generate-data", "{folder}/held_out", "--num-prompts", "300",
          "--held-out", "--workers", "2"),),
        ("held_out/shard-*.safetensors",),
    ),
    Stage(
        "study: recipes",
        "the target looks at all answers; every recipe at the smallest budget",
        (_study(),),
        ("runs/features/*.safetensors", "runs/*_1x_seed0/row.json"),
    ),
    Stage(
        "study: seeds",
        "EAGLE-1 and EAGLE-3 twice more, to see what is chance",
        (_study("--arms", "eagle1", "eagle3", "--seeds", "1", "2"),),
        ("runs/*_1x_seed[12]/row.json",),
    ),
    Stage(
        "study: more data",
        "EAGLE-1 and EAGLE-3 at two, four and eight times the data",
        (_study("--arms", "eagle1", "eagle3", "--budgets", "2", "4", "8"),),
        ("runs/*_[248]x_seed0/row.json",),
    ),
    Stage(
        "vocabulary size",
        "one draft, its head cut smaller and smaller, on an idle machine",
        (_tool("vocabulary_size", *_DATA, "{folder}/runs"),),
        ("runs/vocabulary_*/log.jsonl",),
    ),
    Stage(
        "replay",
        "losses and drafts of two runs, to look at again",
        (_tool("training_replay", *_DATA, "{folder}/runs/eagle3_1x_seed0",
               "{folder}/runs/eagle3-one-step_1x_seed0"),),
    ),
    Stage(
        "speed of the study's drafts",
        "every draft beside plain decoding, on an idle machine",
        (_tool("study_bench", "{folder}/data", "{folder}/runs"),),
        ("runs/*/bench.json",),
    ),
    Stage(
        "final drafts",
        "one of each method, on the answers that ship; written into eagle3/data/",
        (_tool("final_drafts", "{folder}/runs"),),
        ("runs/final_*.json",),
    ),
    Stage(
        "measurements",
        "the shipped drafts against other methods, batches, costs; an idle machine",
        (
            (*EAGLE3, "bench", "--temperature", "0,1", "--rounds", "1",
             "--max-new-tokens", "96", "--methods",
             "prompt-lookup,draft-lm,medusa,eagle1,hass,eagle2,eagle3-chain-2,"
             "eagle3-chain,eagle3-chain-4,eagle3-static,eagle3,transformers,"
             "transformers-lookup,transformers-assisted"),
            (*EAGLE3, "throughput"),
            _tool("ttt_cost"),
            _tool("probes", *_DATA),
            _tool("token_coverage", *_DATA),
            _tool("record_trace"),
        ),
    ),
    Stage(
        "figures",
        "all figures and the READMEs from the results",
        ((*PYTHON, "-m", "eagle3.plots"), _tool("readme")),
    ),
    Stage(
        "chapters",
        "every chapter runs, and its time is taken",
        (
            _tool("execute_notebooks", *sorted(
                f"notebooks/{path.name}" for path in ROOT.glob("notebooks/*.ipynb")
            )),
            _tool("time_chapters"),
        ),
    ),
)  # fmt: skip


def hours_here(folder: Path) -> dict[str, float]:
    """Stage -> hours that it took in this folder, in all its calls. [Ours]"""
    path = folder / HOURS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def hours_of_files(stage: Stage, folder: Path) -> float | None:
    """Hours from the first file that a stage left to the last.

    None for fewer than two files, or where a pattern has none: the stage has only
    begun. A pause between two calls counts as if it had been work. [Ours]
    """
    groups = [list(folder.glob(pattern)) for pattern in stage.leaves]
    times = sorted(path.stat().st_mtime for group in groups for path in group)
    if not all(groups) or len(times) < 2:
        return None
    return (times[-1] - times[0]) / 3600


def hours(stages: Sequence[Stage], folder: Path) -> list[dict]:
    """What is known of each stage: {name, what, hours or None}. [Ours]"""
    here = hours_here(folder)
    return [
        {
            "name": stage.name,
            "what": stage.what,
            "hours": here.get(stage.name, hours_of_files(stage, folder)),
        }
        for stage in stages
    ]


def filled(rows: Sequence[dict], known: Sequence[dict]) -> list[dict]:
    """Rows of `hours`, with the hours of another machine where this one has none."""
    theirs = {row["name"]: row["hours"] for row in known}
    return [
        row | {"hours": theirs.get(row["name"])} if row["hours"] is None else row
        for row in rows
    ]


def run(
    stages: Sequence[Stage],
    folder: Path,
    call: Callable[[Command], None],
) -> None:
    """Run what isn't through yet, in order; what fails stops the chain.

    call: runs one command, and raises when it fails
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    done.mkdir(exist_ok=True)
    for stage in stages:
        mark = done / stage.name.replace(" ", "_").replace(":", "")
        if mark.exists():
            continue
        print(f"{stage.name}: {stage.what}", flush=True)
        started = time.perf_counter()
        try:
            for command in stage.commands:
                call(tuple(part.format(folder=folder) for part in command))
        finally:
            _add_hours(folder, stage.name, (time.perf_counter() - started) / 3600)
        mark.touch()


def _add_hours(folder: Path, name: str, hours: float) -> None:
    whole = hours_here(folder)
    whole[name] = whole.get(name, 0.0) + hours
    (folder / HOURS_FILE).write_text(json.dumps(whole), encoding="utf-8")


def call(command: Command) -> None:
    """Run a command in the repository. Raises CalledProcessError when it fails."""
    print("  " + " ".join(("python", *command[1:])), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def told(rows: Sequence[dict]) -> str:
    """The stages as lines: name, hours, what."""
    lines = []
    for row in rows:
        known = row["hours"] is not None
        time_taken = f"{row['hours']:7.2f} h" if known else "        -"
        lines.append(f"{row['name']:<28}{time_taken}  {row['what']}")
    return "\n".join(lines)


# ------------------------------------------------------------------ the chain in short

SHORT_UNIT = 1000  # answer tokens of budget 1
SHORT_HELD_OUT = 5  # answers
SHORT_RUNS = (
    study.Run("eagle3-from-target", 1, 0),
    study.Run("eagle3-from-target", 4, 0),
)


def short(folder: Path) -> dict:
    """Features and two runs on the first of the answers that ship, inside `folder`.

    Returns what study.json has: a row for each run. Like the long chain it takes up
    what it finds. [Ours]
    """
    given, facts = study.gather(TRAINING, HELD_OUT, SHORT_UNIT)
    given = replace(given, held_out=given.held_out[:SHORT_HELD_OUT], looks=1)
    facts |= {"held_out_answers": len(given.held_out)}
    runs, results = folder / "runs", folder / "results"
    study.run_all(
        list(SHORT_RUNS), given, runs, lambda: study.collect(facts, runs, results)
    )
    return read_results("study", results)


def trend(rows: Sequence[dict]) -> str:
    """0-alpha and last loss of each run, in words."""
    return "\n".join(
        f"{row['arm']} on {row['answer_tokens']} answer tokens: loss "
        f"{row['curve'][-1]['loss']:.2f}, 0-alpha {row['n_alpha'][0]:.3f}"
        for row in rows
    )


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    how = parser.add_mutually_exclusive_group()
    for name in ("list", "hours", "short"):
        how.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.short:
        print(trend(short(folder)["runs"]))
    elif args.list:
        ours = read_results("reproduce", RESULTS)["stages"]
        print(told(filled(hours(STAGES, folder), ours)))
    elif args.hours:
        known = {"what": "hours of the chain that the book's numbers come from"}
        print(write_results("reproduce", known | {"stages": hours(STAGES, folder)},
                            RESULTS))  # fmt: skip
    else:
        run(STAGES, folder, call)
        print(told(hours(STAGES, folder)))


if __name__ == "__main__":
    main()

"""Makes the replay of training runs: figures/results/training_replay.json.

    python tools/training_replay.py DATA HELD_OUT RUN [RUN ...]

DATA, HELD_OUT: those of the study (see tools/study.py). RUN: folders of its runs, as
RUNS/eagle3_1x_seed0 and RUNS/eagle3-one-step_1x_seed0; all must have watched the same
answer. A run that goes on may be replayed, too: what it has
logged so far is taken. The log begins with the first evaluation, so the untrained draft
is made again from its seed and drafts the answer before all others.

What is in the file is described in eagle3/training/replay.py.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import study
from torch import Tensor

from eagle3.bench.environment import write_results
from eagle3.target import Target, load_target
from eagle3.training import replay
from eagle3.training.data import Sequence as Answer
from eagle3.training.data import load_data
from eagle3.training.features import FeatureStore
from eagle3.training.trainer import LOG_FILE

LONGEST = 49  # tokens of the answer that are replayed: the prefill's and 48 more
FEATURES = "features"


@dataclass(frozen=True)
class Given:
    """What the study's runs share, as far as a replay needs it.

    vocabulary: [Vd] target ids of all drafts
    """

    target: Target
    vocabulary: Tensor
    held_out: list[Answer]


def run_of(folder: Path) -> study.Run:
    """Which run of the study a folder holds: its name tells.

    Raises ValueError for another name. [Ours]
    """
    found = re.fullmatch(r"(.+)_(\d+)x_seed(\d+)", folder.name)
    if not found or found[1] not in study.ARMS:
        raise ValueError(
            f"{folder.name} is no run of the study: name a folder such as "
            f"{study.Run('eagle3', 1, 0).folder}."
        )
    return study.Run(found[1], int(found[2]), int(found[3]))


def watched(entries: Sequence[replay.Entry], held_out: Sequence[Answer]) -> Answer:
    """The held-out answer that the logged cycles draft.

    Raises ValueError where no answer is the one, or nothing was logged yet. [Ours]
    """
    logged = [entry["cycles"] for entry in entries if "cycles" in entry]
    if not logged:
        raise ValueError("the log has no evaluation yet: wait for the first one.")
    for answer in held_out:
        start = answer.num_prompt + 1  # the first token is the prefill's
        text = answer.token_ids[start:].tolist()
        ours = replay.committed(logged[0])[: len(text)]
        if ours == text[: len(ours)]:
            return answer
    raise ValueError(
        "no held-out answer is the one that the log drafts: name the held-out answers "
        "that the study was run with."
    )


def untrained(
    given: Given, run: study.Run, answer: Answer, features: Path
) -> list[dict[str, Any]]:
    """Log entries of step 0: the draft as it was before its first step. [Ours]"""
    recipe = study.ARMS[run.arm](given.target, given.vocabulary, run.seed)
    few = given.held_out[: study.NUM_WATCHED]
    views = FeatureStore(given.target, few, features)
    batches = (recipe.make_batch([s], [views[i]]) for i, s in enumerate(few))
    alphas, cycles = recipe.evaluate(batches), study.cycles_on(recipe, answer)
    return [{"step": 0, "n_alpha": alphas}, {"step": 0, "cycles": cycles}]


def collect(given: Given, folders: Sequence[Path]) -> dict[str, Any]:
    """The replays of runs that watched one answer.

    Raises ValueError when they watched several, or for what is no run. [Ours]
    """
    runs, answer = {}, None
    for folder in folders:
        run = run_of(folder)
        entries = replay.read_log(folder / LOG_FILE)
        mine = watched(entries, given.held_out)
        answer = answer or mine
        if mine is not answer:
            raise ValueError(f"{folder.name} watched another answer: leave it out.")
        told = answer.token_ids[answer.num_prompt :][:LONGEST].tolist()
        before = untrained(given, run, answer, folder.parent / FEATURES)
        facts = vars(run) | {"steps": entries[-1]["step"]}
        runs[run.folder] = facts | replay.replay(before + entries, told)
    decode = partial(given.target.decode, keep_special=True)
    return {
        "what": "training runs and, at each evaluation, one held-out answer drafted",
        "question": question(decode(answer.token_ids[: answer.num_prompt].tolist())),
        "answer": told,
        "texts": {t: decode([t]) for t in sorted(replay.tokens_of(runs) | set(told))},
        "runs": runs,
    }


def question(prompt: str) -> str:
    """The user's words in a prompt of the chat template. [Ours]"""
    return prompt.rpartition("user\n")[2].partition("<|im_end|>")[0].strip()


def main() -> None:
    """Replay what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "held_out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    args = parser.parse_args()
    for folder in args.runs:
        run_of(folder)
    target = load_target()
    _, vocabulary = study.vocabulary_of(load_data(args.data), target)
    content = collect(Given(target, vocabulary, load_data(args.held_out)), args.runs)
    print(write_results("training_replay", content, study.RESULTS))


if __name__ == "__main__":
    main()

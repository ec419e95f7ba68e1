"""Trains the drafts that ship with the package, on all of its training answers.

Every draft has the same answers, order and seed, and one pass over them. EAGLE-3,
EAGLE-1 and HASS are the study's own runs at the largest budget. EAGLE-3 is the one that
starts as a copy of the target's last layer; EAGLE-1 and HASS learn on the study's
vocabulary and draft with the target's whole head.

    python tools/final_drafts.py RUNS [--drafts eagle3 eagle1 hass medusa draft-lm]

Run it again to go on. RUNS is the study's folder, whose features and runs are used.
A finished draft is written into eagle3/data, and its row into
figures/results/final_drafts.json.
"""

import argparse
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import study
import torch

import eagle3
from eagle3.bench.environment import write_results
from eagle3.target import library_model
from eagle3.training.features import FeatureStore
from eagle3.training.recipe import Start
from eagle3.training.recipes import new_recipe
from eagle3.training.trainer import Trainer

BUDGET = 8  # of the study: every answer there is
DATA = Path(eagle3.__file__).parent / "data"
ANSWERS = DATA / "smollm2_answers"
HELD_OUT = ANSWERS / "held.safetensors"
NAMES = {
    "eagle3": "smollm2_eagle3",
    "eagle1": "smollm2_eagle1",
    "hass": "smollm2_hass",
    "medusa": "smollm2_medusa",
    "draft-lm": "smollm2_draft_lm",
}
ARMS = {"eagle3": "eagle3-from-target", "eagle1": "eagle1", "hass": "hass"}
LEARNING_RATE = {"medusa": 3e-4, "draft-lm": 1e-3}


def train(name: str, given: study.Material, runs: Path) -> Trainer:
    """Train one draft to its end, or go on with it."""
    if name in ARMS:
        return study.train(study.Run(ARMS[name], BUDGET, 0), given, runs)
    sequences = study.within(given.sequences, BUDGET)
    start = Start(given.target, given.sequences, library_model().state_dict())
    trainer = study.WatchedTrainer(
        given.looking,
        new_recipe(name, start, {}),
        (sequences, given.held_out[: study.NUM_WATCHED]),
        runs / f"final_{name}",
        replace(
            study.settings(len(sequences), seed=0), learning_rate=LEARNING_RATE[name]
        ),
    )
    trainer.train()
    return trainer


def ship(trainer: Trainer, folder: Path) -> None:
    """Write the draft's weights as the package carries them, in float16."""
    trainer.recipe.save(folder, torch.float16)
    for path in folder.iterdir():
        path.chmod(0o644)


def row_of(name: str, trainer: Trainer, given: study.Material, runs: Path) -> dict:
    """What the book tells about a finished draft."""
    recipe, answers = trainer.recipe, given.held_out
    weights = DATA / NAMES[name] / "model.safetensors"
    views = FeatureStore(recipe.target, answers, runs / "features")
    batches = (recipe.make_batch([a], [views[i]]) for i, a in enumerate(answers))
    return {
        "draft": name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "training": asdict(trainer.config),
        "sequences": len(trainer.sequences),
        "answer_tokens": sum(int(s.natural_mask().sum()) for s in trainer.sequences),
        "steps": trainer.num_steps,
        "n_alpha": recipe.evaluate(batches),
        "curve": study.curve(trainer.folder / study.LOG_FILE),
    }


def main() -> None:
    """Train what is asked for, ship it and collect the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--drafts", nargs="+", choices=NAMES, default=list(NAMES))
    args = parser.parse_args()
    given, facts = study.gather(ANSWERS / "training.safetensors", HELD_OUT)
    for name in args.drafts:
        trainer = train(name, given, args.runs)
        ship(trainer, DATA / NAMES[name])
        row = row_of(name, trainer, given, args.runs)
        path = args.runs / f"final_{name}.json"
        path.write_text(json.dumps(row), encoding="utf-8")
    rows = [json.loads(p.read_text("utf-8")) for p in args.runs.glob("final_*.json")]
    facts = {key: facts[key] for key in ("coverage", "held_out_answers")} | {
        "what": "the drafts that ship: training, and n-alpha on held-out answers",
        "draft_vocabulary": study.VOCAB_SIZE,
        "drafts": sorted(rows, key=lambda row: list(NAMES).index(row["draft"])),
    }
    write_results("final_drafts", facts, study.RESULTS, seed=0)


if __name__ == "__main__":
    main()

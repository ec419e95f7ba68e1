"""Trains EAGLE-1's draft with and without its loss on features, and in several steps.

Three small runs on the same data, in the same order, from the same random weights, as
the papers start. n-alpha on held-out answers is measured along the way, so that one
pass over the data shows how a draft fares with more of it. The head is cut down to the
tokens that are frequent in the data: it would take most of the time. Chapter 4 shows
the result, figures/results/feature_loss.json.

    python tools/feature_loss.py DATA HELD_OUT RUNS [name of a run ...]

Run it again to go on; runs may go side by side. The results are written as soon as all
runs are through.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from eagle3.bench.environment import write_results
from eagle3.target import load_target
from eagle3.training.ablations import SmallHeadRecipe, small_headed
from eagle3.training.data import load_data
from eagle3.training.eagle1 import FeatureLossConfig
from eagle3.training.trainer import LOG_FILE, TrainConfig, Trainer
from eagle3.training.vocabulary import choose_draft_vocabulary, count_answer_tokens

VARIANTS = {
    "feature and token loss": FeatureLossConfig(),
    "token loss only": FeatureLossConfig(feature_weight=0),
    "three steps, token loss only": FeatureLossConfig(steps=3, feature_weight=0),
}
NUM_SEQUENCES = 640
VOCAB_SIZE = 8192
TRAINING = TrainConfig(
    epochs=1,
    batch_size=2,
    learning_rate=1e-3,
    warmup_steps=40,
    log_every=16,
    evaluate_every=80,
)
RESULTS = Path(__file__).parents[1] / "figures" / "results"


def run_folder(runs: Path, name: str) -> Path:
    """Where a run keeps its files."""
    return runs / ("feature_loss_" + name.replace(",", "").replace(" ", "_"))


def learning_curve(folder: Path) -> list[dict]:
    """What the log says of n-alpha, and of the losses just before."""
    if not (folder / LOG_FILE).exists():
        return []
    points, seen = [], []
    for line in (folder / LOG_FILE).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "n_alpha" not in entry:
            seen.append(entry)
            continue
        points.append(
            {
                "sequences": entry["step"] * TRAINING.batch_size,
                "n_alpha": entry["n_alpha"],
                "feature_loss": sum(e["feature"][0] for e in seen) / len(seen),
                "token_loss": sum(e["token"][0] for e in seen) / len(seen),
            }
        )
        seen = []
    return points


def main(data: Path, held_out: Path, runs: Path, names: list[str]) -> None:
    """Train what is named and not finished, and write the results if all is there."""
    everything = load_data(data)
    sequences, evaluation = everything[:NUM_SEQUENCES], load_data(held_out)[::2]
    target = load_target()
    counts = count_answer_tokens(everything, target.vocab_size)
    vocabulary = choose_draft_vocabulary(counts, VOCAB_SIZE)
    for name in names:
        draft = small_headed(target, vocabulary, TRAINING.seed)
        recipe = SmallHeadRecipe(target, draft, VARIANTS[name])
        folder = run_folder(runs, name)
        Trainer(target, recipe, (sequences, evaluation), folder, TRAINING).train()
    curves = {name: learning_curve(run_folder(runs, name)) for name in VARIANTS}
    num_points = TRAINING.evaluate_every * TRAINING.batch_size
    if any(len(c) < NUM_SEQUENCES // num_points for c in curves.values()):
        print("not all runs are through yet")
        return
    answers = sum(int(s.natural_mask().sum()) for s in sequences)
    content = {
        "what": "n-alpha of EAGLE-1's draft on held-out answers, along one pass",
        "data": {
            "sequences": len(sequences),
            "answer_tokens": answers,
            "held_out_sequences": len(evaluation),
        },
        "training": asdict(TRAINING)
        | {
            "head_tokens": VOCAB_SIZE,
            "coverage": float(counts[vocabulary].sum() / counts.sum()),
            "start": "random weights",
        },
        "losses": {name: asdict(config) for name, config in VARIANTS.items()},
        "curves": curves,
    }
    print(write_results("feature_loss", content, RESULTS, TRAINING.seed))


if __name__ == "__main__":
    *folders, runs = map(Path, sys.argv[1:4])
    main(*folders, runs, sys.argv[4:] or list(VARIANTS))

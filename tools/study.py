"""Trains drafts by every recipe and budget, to see what the paper's parts are worth.

All runs share data, vocabulary, order, learning rate and start; they differ in one
thing at a time. An arm is a recipe: EAGLE-1 with and without its loss on features,
EAGLE-3 whole, without fusion, with one step only, fed with its own tokens, and begun
as a copy of the target's last layer, and HASS. A budget is a number of answer tokens,
each seen once. The smallest budget is run with three seeds, which show what is chance.

    python tools/study.py DATA HELD_OUT RUNS [--arms ...] [--budgets ...] [--seeds ...]

Run it again to go on: finished runs are kept. Calls with other arms or seeds may go
side by side, on a thread each. Every run leaves its weights, log and row in RUNS, and
figures/results/study.json, which chapters 9 and 13 read, has the rows of all.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from eagle3.bench.environment import write_results
from eagle3.engine import generate
from eagle3.feature_draft import FeatureDraft
from eagle3.target import Target, library_model, load_target
from eagle3.training.ablations import SmallHeadRecipe, plain_start, small_headed
from eagle3.training.data import Sequence, load_data
from eagle3.training.eagle1 import FeatureLossConfig
from eagle3.training.eagle3 import Eagle3Recipe
from eagle3.training.features import FeatureStore
from eagle3.training.initialise import initialise_from_target
from eagle3.training.losses import TttConfig
from eagle3.training.metrics import NUM_ALPHAS, count_chains, shares
from eagle3.training.recipe import Recipe
from eagle3.training.trainer import LOG_FILE, TrainConfig, Trainer
from eagle3.training.vocabulary import (
    choose_draft_vocabulary,
    count_answer_tokens,
    coverage,
)

UNIT = 125_000  # answer tokens of budget 1
VOCAB_SIZE = 5000
WARMUP_STEPS = 100
STEPS = 5  # of training-time test, as the paper has it in its NeurIPS version
NUM_WATCHED = 60  # held-out answers that are scored along the way; at the end all are
NUM_LOOKS = 8
ROW_FILE = "row.json"
RESULTS = Path(__file__).parents[1] / "figures" / "results"


def _eagle1(**losses) -> Callable[[Target, Tensor, int], Recipe]:
    def build(target: Target, vocabulary: Tensor, seed: int) -> Recipe:
        draft = small_headed(target, vocabulary, seed)
        return SmallHeadRecipe(target, draft, FeatureLossConfig(**losses))

    return build


def _eagle3(fused: bool = True, **ttt) -> Callable[[Target, Tensor, int], Recipe]:
    def build(target: Target, vocabulary: Tensor, seed: int) -> Recipe:
        draft = plain_start(target, vocabulary, seed, fused)
        return Eagle3Recipe(target, draft, TttConfig(**{"steps": STEPS} | ttt))

    return build


def _from_target(target: Target, vocabulary: Tensor, seed: int) -> Recipe:
    recipe = _eagle3()(target, vocabulary, seed)
    initialise_from_target(recipe.model, library_model().state_dict())
    return recipe


# name -> function (target, vocabulary [Vd], seed) -> recipe
ARMS: dict[str, Callable[[Target, Tensor, int], Recipe]] = {
    "eagle1": _eagle1(),
    "eagle1-no-feature-loss": _eagle1(feature_weight=0.0),
    "hass": _eagle1(steps=3, top_k=10),
    "eagle3": _eagle3(),
    "eagle3-no-fusion": _eagle3(fused=False),
    "eagle3-one-step": _eagle3(steps=1),
    "eagle3-own-tokens": _eagle3(tokens="own"),
    "eagle3-from-target": _from_target,
}


@dataclass(frozen=True)
class Material:
    """What all runs share.

    looking: the target in bfloat16, which looks at the training text
    vocabulary: [Vd] target ids, of all arms
    unit: answer tokens of budget 1, UNIT if not given
    looks: how often each run is measured on the way, its end included
    """

    target: Target
    looking: Target
    sequences: list[Sequence]
    held_out: list[Sequence]
    vocabulary: Tensor
    unit: int | None = None
    looks: int = NUM_LOOKS


@dataclass(frozen=True)
class Run:
    """One run of the study.

    arm: of ARMS      budget: answer tokens in units of UNIT
    seed: of the start and of the order of the answers
    """

    arm: str
    budget: int
    seed: int

    @property
    def folder(self) -> str:
        """Name of the folder that the run keeps its files in."""
        return f"{self.arm}_{self.budget}x_seed{self.seed}"


def settings(num_sequences: int, seed: int, looks: int = NUM_LOOKS) -> TrainConfig:
    """One pass, some looks at the held-out answers on the way."""
    steps = num_sequences // TrainConfig.batch_size
    return TrainConfig(
        epochs=1,
        learning_rate=1e-3,
        warmup_steps=min(WARMUP_STEPS, steps // 4),
        rounded_products=True,
        log_every=max(1, min(TrainConfig.log_every, steps // looks)),
        evaluate_every=max(1, steps // looks),
        seed=seed,
    )


def within(
    sequences: list[Sequence], budget: int, unit: int | None = None
) -> list[Sequence]:
    """The first sequences whose answers have `budget` units of tokens together.

    unit: in tokens, UNIT if not given

    Raises ValueError when there are fewer. [Ours]
    """
    unit = unit or UNIT
    room, taken = budget * unit, []
    for sequence in sequences:
        if room <= 0:
            return taken
        taken.append(sequence)
        room -= int(sequence.natural_mask().sum())
    if room > 0:
        raise ValueError(
            f"the data have {budget * unit - room} answer tokens, and a budget of "
            f"{budget} takes {budget * unit}: generate more, or take a smaller one."
        )
    return taken


class WatchedTrainer(Trainer):
    """Logs beside every n-alpha how the draft does on one answer, cycle by cycle."""

    def evaluate(self) -> list[float]:
        """n-alpha on the held-out answers. [Paper, section 4.2]"""
        alphas = super().evaluate()
        if isinstance(self.recipe.model, FeatureDraft):
            self.log({"cycles": cycles_on(self.recipe, watched(self.held_out))})
        return alphas


def watched(held_out: list[Sequence]) -> Sequence:
    """The answer that is drafted along the way: the first one of a chat."""
    chats = [answer for answer in held_out if answer.kind == "chat"]
    return (chats or held_out)[0]


def cycles_on(recipe: Recipe, sequence: Sequence) -> list[dict]:
    """What the draft proposes and the target keeps on the answer's beginning."""
    result = generate(
        recipe.target,
        recipe.model,
        sequence.token_ids[: sequence.num_prompt].tolist(),
        max_new_tokens=48,
        chain_length=4,
    )
    return [
        {"drafted": c.drafted, "kept": c.num_accepted, "next": c.next_token}
        for c in result.cycles
    ]


def train(run: Run, given: Material, runs: Path) -> Trainer:
    """Train one run to its end, or go on with it."""
    sequences = within(given.sequences, run.budget, given.unit)
    trainer = WatchedTrainer(
        given.looking,
        ARMS[run.arm](given.target, given.vocabulary, run.seed),
        (sequences, given.held_out[:NUM_WATCHED]),
        runs / run.folder,
        settings(len(sequences), run.seed, given.looks),
    )
    trainer.train()
    return trainer


def row_of(run: Run, trainer: Trainer, held_out: list[Sequence]) -> dict:
    """What a finished run has to tell: n-alpha on all held-out answers, its curve."""
    recipe = trainer.recipe
    views = FeatureStore(recipe.target, held_out, trainer.folder.parent / "features")
    batches = (
        recipe.make_batch([answer], [views[i]]) for i, answer in enumerate(held_out)
    )
    counts = count_chains(recipe.model, batches, NUM_ALPHAS)
    return asdict(run) | {
        "answer_tokens": sum(int(s.natural_mask().sum()) for s in trainer.sequences),
        "sequences": len(trainer.sequences),
        "steps": trainer.num_steps,
        "n_alpha": shares(counts.right, counts.reached),
        "fresh_alpha": shares(counts.fresh, counts.reached),
        "chains": counts.reached,
        "curve": curve(trainer.folder / LOG_FILE),
    }


def curve(log: Path) -> list[dict]:
    """n-alpha along the way and the mean loss of step 0 just before."""
    points, losses = [], []
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "n_alpha" in entry:
            n_alpha = entry["n_alpha"][:4]
            loss = sum(losses) / max(1, len(losses))
            points.append({"step": entry["step"], "n_alpha": n_alpha, "loss": loss})
            losses = []
        elif "cycles" not in entry:
            losses.append((entry.get("per_step") or entry["token"])[0])
    return points


def collect(facts: dict, runs: Path, out: Path = RESULTS) -> Path:
    """Write the results of all runs that are through: study.json in `out`."""
    rows = [json.loads(path.read_text("utf-8")) for path in runs.glob(f"*/{ROW_FILE}")]
    rows.sort(key=lambda row: (row["arm"], row["budget"], row["seed"]))
    return write_results("study", facts | {"runs": rows}, out, seed=0)


def vocabulary_of(
    sequences: list[Sequence], target: Target, size: int = VOCAB_SIZE
) -> tuple[Tensor, Tensor]:
    """How often the answers have each token [V], and the drafts' tokens [Vd]."""
    counts = count_answer_tokens(sequences, target.vocab_size)
    return counts, choose_draft_vocabulary(counts, size)


def gather(
    data: Path, held_out: Path, unit: int = UNIT, size: int = VOCAB_SIZE
) -> tuple[Material, dict]:
    """What all runs share, and what the results say of it.

    unit: answer tokens of budget 1      size: of the draft vocabulary
    """
    sequences, answers, target = load_data(data), load_data(held_out), load_target()
    counts, vocabulary = vocabulary_of(sequences, target, size)
    looking = load_target(dtype=torch.bfloat16)
    facts = {
        "what": "n-alpha on held-out greedy answers, by arm, budget and seed",
        "unit_answer_tokens": unit,
        "draft_vocabulary": size,
        "coverage": coverage(counts, vocabulary),
        "held_out_answers": len(answers),
        "training": asdict(settings(len(sequences), 0)),
    }
    return Material(target, looking, sequences, answers, vocabulary, unit), facts


def run_all(
    runs: list[Run], given: Material, folder: Path, report: Callable[[], object]
) -> None:
    """Train and measure what is not there yet.

    report: is called after every run
    """
    for run in runs:
        path = folder / run.folder / ROW_FILE
        if not path.exists():
            print(run, flush=True)
            row = row_of(run, train(run, given, folder), given.held_out)
            path.write_text(json.dumps(row), encoding="utf-8")
        report()


def main() -> None:
    """Train what is asked for and not there yet."""
    args = _arguments()
    given, facts = gather(args.data, args.held_out)
    runs = [
        Run(arm, budget, seed)
        for budget in args.budgets
        for seed in args.seeds
        for arm in args.arms
    ]
    run_all(runs, given, args.runs, lambda: collect(facts, args.runs))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "held_out", "runs"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--budgets", nargs="+", type=int, default=[1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""How many tokens should the draft know? One draft, its head cut smaller and smaller.

A larger draft vocabulary misses fewer tokens and makes every drafted token dearer. One
draft is trained with the largest head, by the recipe of the draft that ships at the
study's smallest budget. Its head is then cut to the most frequent tokens, which needs
no training, and all sizes draft chains of three beside plain decoding, taking turns.

    python tools/vocabulary_size.py DATA HELD_OUT RUNS

DATA, HELD_OUT, RUNS: those of tools/study.py, whose features are used. The training can
be killed and goes on; the race after it takes a minute or two, on an idle machine.
figures/results/vocabulary_size.json has one row for each size:

    sizes  [{size, coverage, n_alpha, draft_ms, acceptance_length, speedup}]
           coverage: of the held-out answers' tokens      draft_ms: of a chain, median
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import study
from torch import Tensor

from eagle3.bench import tune
from eagle3.bench.environment import write_results
from eagle3.draft import Eagle3Draft
from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.growth import chain
from eagle3.target import Target
from eagle3.training.features import FeatureStore
from eagle3.training.losses import TttBatch
from eagle3.training.metrics import n_alpha
from eagle3.training.prompts import Prompt, training_prompts
from eagle3.training.trainer import Trainer
from eagle3.training.vocabulary import (
    choose_draft_vocabulary,
    count_answer_tokens,
    coverage,
    shrink_vocabulary,
)

ARM = "eagle3-from-target"
SIZES = (10_000, 5000, 2500, 1250)
CONFIG = tune.TuneConfig()
NUM_PROMPTS = 10


def train(given: study.Material, runs: Path) -> Trainer:
    """Train the draft with the largest head, or go on with it.

    given: with that head's vocabulary
    """
    sequences = study.within(given.sequences, 1, given.unit)
    trainer = study.WatchedTrainer(
        given.looking,
        study.ARMS[ARM](given.target, given.vocabulary, 0),
        (sequences, given.held_out[: study.NUM_WATCHED]),
        runs / f"vocabulary_{len(given.vocabulary)}",
        study.settings(len(sequences), 0, given.looks),
    )
    trainer.train()
    return trainer


def drafts_of(
    draft: Eagle3Draft, counts: Tensor, sizes: Sequence[int]
) -> list[Eagle3Draft]:
    """The draft with its head cut to each size. counts: [V] of the answers' tokens"""
    return [
        shrink_vocabulary(draft, choose_draft_vocabulary(counts, size))
        for size in sizes
    ]


def race(
    target: Target,
    drafts: Sequence[Eagle3Draft],
    prompts: Sequence[Prompt],
    config: tune.TuneConfig,
) -> list[tune.Racer]:
    """Plain decoding, then each draft's chains of three, all over the same prompts."""
    racers = [tune.Racer(tune.VANILLA, None, VanillaDrafter())]
    for draft in drafts:
        drafter = EagleDrafter(target, draft, chain(3))
        racers.append(tune.Racer(str(len(draft.d2t)), chain(3), drafter))
    decode = tune.decoder(target, config)
    for prompt in prompts:
        for racer in racers:
            decode(racer, prompt.text)
    return racers


def rows_of(
    trainer: Trainer,
    given: study.Material,
    drafts: Sequence[Eagle3Draft],
    racers: Sequence[tune.Racer],
) -> list[dict]:
    """What the results say of each size."""
    target, recipe, answers = given.target, trainer.recipe, given.held_out
    unseen = count_answer_tokens(answers, target.vocab_size)
    views = FeatureStore(recipe.target, answers, trainer.folder.parent / "features")

    def batches() -> Iterator[TttBatch]:
        for i, answer in enumerate(answers):
            yield recipe.make_batch([answer], [views[i]])

    vanilla, *others = racers
    return [
        {
            "size": len(draft.d2t),
            "coverage": coverage(unseen, draft.d2t),
            "n_alpha": n_alpha(draft, batches(), study.STEPS),
            "draft_ms": racer.milliseconds("draft"),
            "acceptance_length": racer.acceptance_length,
            "speedup": racer.speedup(vanilla),
        }
        for draft, racer in zip(drafts, others, strict=True)
    ]


def main() -> None:
    """Train what is not there yet, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "held_out", "runs"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    given, _ = study.gather(args.data, args.held_out, size=max(SIZES))
    trainer = train(given, args.runs)
    counts = count_answer_tokens(given.sequences, given.target.vocab_size)
    drafts = drafts_of(trainer.recipe.model, counts, SIZES)
    prompts = training_prompts(NUM_PROMPTS, CONFIG.seed)
    racers = race(given.target, drafts, prompts, CONFIG)
    rows = rows_of(trainer, given, drafts, racers)
    what = "one draft with its head cut to fewer tokens, beside plain decoding"
    facts = {"what": what, "arm": ARM, "budget": 1, "prompts": NUM_PROMPTS}
    facts |= {"max_new_tokens": CONFIG.max_new_tokens, "sizes": rows}
    print(write_results("vocabulary_size", facts, study.RESULTS, seed=CONFIG.seed))


if __name__ == "__main__":
    main()

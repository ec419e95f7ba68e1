"""Short training runs on the toy, alone or as one of the processes of torchrun.

`python process_runs.py FOLDER NAME...` trains these runs under FOLDER, one after the
other. A name is a run of `RUNS`, with "/killed" behind it for one whose process 1 ends
by force in the middle, but not when it is resumed.
"""

import os
import sys
from pathlib import Path

import helpers
import torch
from helpers import toy

from eagle3.training import features as features_module
from eagle3.training import processes
from eagle3.training.data import Sequence
from eagle3.training.eagle3 import Eagle3Recipe
from eagle3.training.losses import TttConfig
from eagle3.training.recipe import Start
from eagle3.training.recipes import new_recipe
from eagle3.training.trainer import TrainConfig, Trainer

# Of different lengths, so that shares of a batch differ in what counts; the last one
# has no answer, so that a process can have nothing to count at all.
SEQUENCES = [helpers.greedy_sequence((i, 3 * i + 2, 7), 4 + 5 * i) for i in range(6)]
SEQUENCES.append(Sequence(torch.tensor([5, 6, 7, 8]), 4, "chat", 0.0))
HELD_OUT = [helpers.greedy_sequence((40 + i, 2), 9) for i in range(9)]
CONFIG = TrainConfig(
    epochs=2,
    batch_size=3,  # shared by two processes as two and one
    learning_rate=1e-3,
    warmup_steps=1,
    log_every=1,
    evaluate_every=2,
)
KILLED_AT = 3

# name -> recipe and its options
RUNS = {
    "eagle3": ("eagle3", {"draft_vocab_size": 60, "ttt_steps": 3}),
    "eagle3-official-mean": ("eagle3", {"draft_vocab_size": 60, "ttt_steps": 3}),
    "eagle1": ("eagle1", {}),
    "hass": ("hass", {"ttt_steps": 2}),
    "medusa": ("medusa", {"num_heads": 2, "num_common": 30}),
    "draft-lm": ("draft-lm", {"num_layers": 1, "num_common": 30}),
}


def new_run(name: str, folder: Path) -> Trainer:
    method, options = RUNS[name]
    start = Start(toy(), SEQUENCES, helpers.library_toy().state_dict())
    recipe = new_recipe(method, start, options)
    if name == "eagle3-official-mean":
        recipe = Eagle3Recipe(toy(), recipe.model, TttConfig(3, mean_over="all"))
    return Trainer(toy(), recipe, (SEQUENCES, HELD_OUT), folder, CONFIG)


class KilledTrainer(Trainer):
    """Process 1 is gone at step 3 of a run that began at step 0."""

    def _resume(self):
        super()._resume()
        self.began = self.step

    def _update(self, batch):
        if (self.began, self.step, processes.rank()) == (0, KILLED_AT, 1):
            os._exit(9)
        return super()._update(batch)


def _main(folder: Path, names: list[str]) -> None:
    looks, look = [], features_module.look
    features_module.look = lambda *args: looks.append(1) or look(*args)
    features_module.SEQUENCES_PER_FILE = 2
    for name in names:
        run = new_run(name.removesuffix("/killed"), folder / name.replace("/", "-"))
        if name.endswith("/killed"):
            run.__class__ = KilledTrainer
        run.train()
        told = folder / f"looks-{processes.rank()}"
        told.write_text(str(len(looks)), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    _main(Path(sys.argv[1]), sys.argv[2:])

"""Train a draft by any recipe, and resume exactly after a kill.

Optimizer and clipping are the paper's (AdamW 0.9/0.95, gradient norm 0.5). [Paper,
section 4] The learning rate fits a small draft and a short run. [Ours] Everything
random is a function of the seed and the step, and checkpoints hold the optimizer's
state, so a killed run that is started again ends with the same weights bit for bit
(same machine, same threads).

Several processes share one run when torchrun or accelerate starts them:

    torchrun --nproc-per-node 2 -m eagle3 train --data ... --held-out ... --out ...
    accelerate launch --multi_gpu --num_processes 2 -m eagle3 train ...

with `--device cuda` for a GPU each. They need one common folder, on several machines a
shared one. The batch is split between them, the sequences and their order are those of
one process, and so are losses and weights up to rounding: see `processes`.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from eagle3.target import Target
from eagle3.training import processes
from eagle3.training.data import Sequence
from eagle3.training.features import FeatureStore
from eagle3.training.recipe import Recipe, digest

_OPTIMIZER_FILE = "optimizer.safetensors"
_STATE_FILE = "state.json"
LOG_FILE = "log.jsonl"


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    epochs: passes over the data
    batch_size: sequences per optimizer step, of all processes together
    learning_rate, warmup_steps: see `learning_rate_at`
    max_grad_norm: gradients are clipped to this norm
    rounded_products: matrix products take their factors in bfloat16 and add up in
        float32, where the processor knows how (AMX, tensor cores); weights and
        optimizer stay float32
    log_every, evaluate_every: in optimizer steps; a checkpoint follows an evaluation
    seed: of the order of the sequences

    Raises ValueError for a value that is out of range. [Paper, section 4; Ours]
    """

    epochs: int = 3
    batch_size: int = 2
    learning_rate: float = 4e-4
    warmup_steps: int = 100
    max_grad_norm: float = 0.5
    rounded_products: bool = False
    log_every: int = 20
    evaluate_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "log_every", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: take at least 1.")
        for name in ("learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} is {getattr(self, name)}: take a positive number."
                )
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps is {self.warmup_steps}: take 0 or more.")

    def learning_rate_at(self, step: int, num_steps: int) -> float:
        """The rate of a step, counted from 0, of a run of `num_steps`.

        Linear warm-up to `learning_rate`, then half a cosine down to a tenth. [Ours]
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, num_steps - self.warmup_steps)
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class Trainer:
    """Trains a recipe's model, from its last checkpoint if there is one.

    target: looks at every training sequence once, see `FeatureStore`. The recipe's, or
        the same in bfloat16 to be faster; held-out answers are the recipe's own to see
    recipe: the method, with the model that is trained in place
    data: the training sequences, and held-out greedy answers for n-alpha
    folder: for checkpoints and the log. The target's features go beside it, into
        `features`, where other runs find them.

    step: optimizer steps done      num_steps: of the whole run

    Raises ValueError when the data don't fill one batch, when a batch doesn't give
    every process a sequence, or when none or all of the tokens are answers. [Paper,
    section 4; Ours]
    """

    def __init__(
        self,
        target: Target,
        recipe: Recipe,
        data: tuple[list[Sequence], list[Sequence]],
        folder: Path,
        config: TrainConfig,
    ):
        processes.join()
        self.recipe, self.folder = recipe, folder
        self.config = config
        self.sequences, self.held_out = data
        self.step = 0
        self.steps_per_epoch = len(self.sequences) // config.batch_size
        self.num_steps = self.steps_per_epoch * config.epochs
        _check_sequences(self.sequences, config.batch_size)
        features = folder.parent / "features"
        self.views = FeatureStore(target, self.sequences, features)
        self.held_out_views = FeatureStore(recipe.target, self.held_out, features)
        self.parameters = {
            name: p for name, p in recipe.model.named_parameters() if p.requires_grad
        }
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=recipe.target.device.type == "cpu",  # a CPU's default is a slow loop
        )

    def train(self) -> None:
        """Run from the last checkpoint in `folder`, if there is one, to the end.

        Raises ValueError when `folder` holds a run with other settings, data or
        recipe, FloatingPointError when the loss is not finite. [Ours]
        """
        self._resume()
        processes.copy_from_first(self.parameters.values())
        with tqdm(
            total=self.num_steps,
            initial=self.step,
            desc="training",
            disable=processes.rank() != 0,
        ) as bar:
            for batch in self._batches():
                told = self._update(batch)
                self.step += 1
                bar.update()
                if self.step % self.config.log_every == 0:
                    self.log({name: _total(told[name]) for name in told})
                if self._is_time(self.config.evaluate_every):
                    alphas = self.evaluate()
                    self.log({"n_alpha": alphas})
                    self._save()
                    bar.set_postfix_str(
                        "n-alpha " + " ".join(f"{alpha:.3f}" for alpha in alphas)
                    )

    def evaluate(self) -> list[float]:
        """n-alpha on the held-out greedy answers, which the processes share out.

        [Paper, section 4.2]
        """
        return self.recipe.evaluate(self._held_out_batches())

    def _is_time(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.num_steps

    def _update(self, batch: Any) -> dict[str, list[float]]:
        rate = self.config.learning_rate_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with _products(self.config.rounded_products):
            return self._descend(batch)

    def _descend(self, batch: Any) -> dict[str, list[float]]:
        loss, told = self.recipe.loss(batch, self.step)
        whole = processes.total(loss)
        if not torch.isfinite(whole):
            raise FloatingPointError(
                f"the loss is {whole.item()} at step {self.step}: start again "
                "from the last checkpoint with a smaller learning rate."
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for parameter in self.parameters.values():
            parameter.grad = processes.total(parameter.grad)
        torch.nn.utils.clip_grad_norm_(
            self.parameters.values(), self.config.max_grad_norm
        )
        self.optimizer.step()
        return told

    def _batches(self) -> Iterator[Any]:
        """The batches from `self.step` on: the order depends on seed and epoch."""
        size = self.config.batch_size
        for epoch in range(self.step // self.steps_per_epoch, self.config.epochs):
            generator = torch.Generator().manual_seed(self.config.seed * 1000 + epoch)
            order = torch.randperm(len(self.sequences), generator=generator).tolist()
            first = self.step - epoch * self.steps_per_epoch
            for number in range(first, self.steps_per_epoch):
                chosen = order[number * size : (number + 1) * size]
                share = chosen[processes.rank() :: processes.world_size()]
                yield self._batch(self.sequences, self.views, share)

    def _held_out_batches(self) -> Iterator[Any]:
        size = 4
        first, every = processes.rank() * size, processes.world_size() * size
        for i in range(first, len(self.held_out), every):
            chosen = list(range(i, min(i + size, len(self.held_out))))
            yield self._batch(self.held_out, self.held_out_views, chosen)

    def _batch(self, sequences, views, chosen: list[int]) -> Any:
        return self.recipe.make_batch(
            [sequences[i] for i in chosen], [views[i] for i in chosen]
        )

    def log(self, entry: dict) -> None:
        """Add a line to the run's log, which a resumed run takes back to its step."""
        if processes.rank() != 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step} | entry) + "\n")

    def _save(self) -> None:
        """Process 0 writes a checkpoint; no other goes on before it is there."""
        if processes.rank() == 0:
            self._write_checkpoint()
        processes.wait()

    def _write_checkpoint(self) -> None:
        """Write a checkpoint folder, then point the state file at it."""
        name = f"step-{self.step:06d}"
        self.recipe.save(self.folder / name, torch.float32)
        save_file(self._optimizer_tensors(), self.folder / name / _OPTIMIZER_FILE)
        state = {"checkpoint": name, "step": self.step} | self._identity()
        temporary = self.folder / (_STATE_FILE + ".tmp")
        temporary.write_text(json.dumps(state), encoding="utf-8")
        temporary.replace(self.folder / _STATE_FILE)
        for old in self.folder.glob("step-*"):
            if old.name != name:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()

    def _resume(self) -> None:
        path = self.folder / _STATE_FILE
        if path.exists():
            state = json.loads(path.read_text(encoding="utf-8"))
            self._require_same_run(state)
            checkpoint = self.folder / state["checkpoint"]
            self.recipe.load(checkpoint)
            self._load_optimizer(load_file(checkpoint / _OPTIMIZER_FILE))
            self.step = state["step"]
        self._forget_log()

    def _identity(self) -> dict:
        """What a run must share with its checkpoint, in the form that JSON returns."""
        facts = [(s.num_prompt, s.token_ids) for s in self.sequences]
        return {
            "config": asdict(self.config),
            "recipe": self.recipe.identity(),
            "data": digest(*(fact for pair in facts for fact in pair)),
            "number of processes": processes.world_size(),
        }

    def _require_same_run(self, state: dict) -> None:
        for name, ours in self._identity().items():
            if state.get(name) != ours:
                raise ValueError(
                    f"{self.folder} holds a run with another {name}: finish it as it "
                    "was begun, or train into a new folder."
                )

    def _forget_log(self) -> None:
        """Drop log entries of steps that a kill has undone: they will come again."""
        path = self.folder / LOG_FILE
        if processes.rank() == 0 and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if _is_entry_until(line, self.step)]
            path.write_text("".join(kept), encoding="utf-8")

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        state = self.optimizer.state
        return {
            f"{name}.{key}": state[parameter][key].contiguous()
            for name, parameter in self.parameters.items()
            for key in ("exp_avg", "exp_avg_sq", "step")
        }

    def _load_optimizer(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            self.optimizer.state[parameter] = {
                "exp_avg": tensors[f"{name}.exp_avg"].to(parameter.device),
                "exp_avg_sq": tensors[f"{name}.exp_avg_sq"].to(parameter.device),
                "step": tensors[f"{name}.step"],  # AdamW counts on the CPU
            }


@contextmanager
def _products(rounded: bool) -> Iterator[None]:
    """Set how float32 matrices are multiplied, and set it back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if rounded else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _total(numbers: list[float]) -> list[float]:
    """Sums over all processes: what a recipe tells of its share adds up."""
    return processes.total(torch.tensor(numbers, dtype=torch.float64)).tolist()


def _is_entry_until(line: str, step: int) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except ValueError:  # the kill came while this line was written
        return False


def _check_sequences(sequences: list[Sequence], batch_size: int) -> None:
    if len(sequences) < batch_size:
        raise ValueError(
            f"{len(sequences)} sequences don't fill one batch of {batch_size}: "
            "generate more data."
        )
    if batch_size < processes.world_size():
        raise ValueError(
            f"a batch of {batch_size} can't be shared by {processes.world_size()} "
            "processes: start fewer, or set a batch_size of one sequence for each."
        )
    num_tokens = sum(len(sequence.token_ids) for sequence in sequences)
    num_answer = sum(int(sequence.natural_mask().sum()) for sequence in sequences)
    if num_answer in (0, num_tokens):
        raise ValueError(
            f"{num_answer} of {num_tokens} training tokens belong to answers: the loss "
            "mask must be set on answers and on nothing else, so look at `num_prompt`."
        )

"""Train a draft by training-time test, and resume exactly after a kill.

Optimizer and clipping are the paper's (AdamW 0.9/0.95, gradient norm 0.5). [Paper,
section 4] The learning rate fits a small draft and a short run. [Ours] Everything
random is a function of the seed and the step, and checkpoints hold the optimizer's
state, so a killed run that is started again ends with the same weights bit for bit
(same machine, same threads).
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from eagle3.checkpoint import load_draft, save_draft
from eagle3.draft import Eagle3Draft
from eagle3.target import Target
from eagle3.training.data import Sequence
from eagle3.training.features import FeatureStore, make_batch
from eagle3.training.losses import TttBatch, TttConfig, ttt_loss
from eagle3.training.metrics import n_alpha

_OPTIMIZER_FILE = "optimizer.safetensors"
_STATE_FILE = "state.json"
LOG_FILE = "log.jsonl"


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    steps: simulated steps of training-time test, and decay of their weights
    batch_size: sequences per optimizer step
    """

    epochs: int = 3
    batch_size: int = 2
    learning_rate: float = 4e-4
    warmup_steps: int = 100
    max_grad_norm: float = 0.5
    ttt_steps: int = 4
    ttt_decay: float = 0.8
    log_every: int = 20
    evaluate_every: int = 250
    seed: int = 0

    def learning_rate_at(self, step: int, num_steps: int) -> float:
        """Linear warm-up to `learning_rate`, then half a cosine down to a tenth."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, num_steps - self.warmup_steps)
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class Trainer:
    """Trains `draft` on stored target features; everything it writes is in `folder`.

    held_out: greedy answers to evaluation prompts, for n-alpha
    """

    def __init__(
        self,
        target: Target,
        draft: Eagle3Draft,
        data: tuple[list[Sequence], list[Sequence]],
        folder: Path,
        config: TrainConfig,
    ):
        self.target, self.draft, self.folder, self.config = (
            target,
            draft,
            folder,
            config,
        )
        self.sequences, self.held_out = data
        self.views = FeatureStore(target, self.sequences, folder.parent / "features")
        self.held_out_views = FeatureStore(
            target, self.held_out, folder.parent / "features"
        )
        self.head_rows = target.head[draft.d2t].float()
        self.parameters = {
            name: p for name, p in draft.named_parameters() if p.requires_grad
        }
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), betas=(0.9, 0.95), weight_decay=0.0
        )
        self.steps_per_epoch = len(self.sequences) // config.batch_size
        if self.steps_per_epoch < 1:
            raise ValueError(
                f"{len(self.sequences)} sequences don't fill one batch of "
                f"{config.batch_size}: generate more data."
            )
        self.num_steps = self.steps_per_epoch * config.epochs
        self.step = 0

    def train(self) -> None:
        """Run from the last checkpoint in `folder`, if there is one, to the end."""
        self._resume()
        with tqdm(total=self.num_steps, initial=self.step, desc="training") as bar:
            for batch in self._batches():
                losses = self._update(batch)
                self.step += 1
                bar.update()
                if self.step % self.config.log_every == 0:
                    self._log(
                        {"per_step": losses.per_step.tolist()}
                        | {"accuracy": losses.accuracy.tolist()}
                    )
                if self._is_time(self.config.evaluate_every):
                    alphas = self.evaluate()
                    self._log({"n_alpha": alphas})
                    self._save()
                    bar.set_postfix_str(
                        "n-alpha " + " ".join(f"{alpha:.3f}" for alpha in alphas)
                    )

    def evaluate(self) -> list[float]:
        """n-alpha on the held-out greedy answers, n = 0 .. ttt_steps - 1."""
        return n_alpha(self.draft, self._held_out_batches(), self.config.ttt_steps)

    def _is_time(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.num_steps

    def _update(self, batch: TttBatch):
        rate = self.config.learning_rate_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        ttt = TttConfig(self.config.ttt_steps, self.config.ttt_decay)
        losses = ttt_loss(self.draft, batch, ttt)
        if not torch.isfinite(losses.total):
            raise FloatingPointError(
                f"the loss is {losses.total.item()} at step {self.step}: start again "
                "from the last checkpoint with a smaller learning rate."
            )
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(
            self.parameters.values(), self.config.max_grad_norm
        )
        self.optimizer.step()
        return losses

    def _batches(self) -> Iterator[TttBatch]:
        """The batches from `self.step` on: the order depends on seed and epoch."""
        size = self.config.batch_size
        for epoch in range(self.step // self.steps_per_epoch, self.config.epochs):
            generator = torch.Generator().manual_seed(self.config.seed * 1000 + epoch)
            order = torch.randperm(len(self.sequences), generator=generator).tolist()
            first = self.step - epoch * self.steps_per_epoch
            for number in range(first, self.steps_per_epoch):
                chosen = order[number * size : (number + 1) * size]
                yield self._batch(self.sequences, self.views, chosen)

    def _held_out_batches(self) -> Iterator[TttBatch]:
        for i in range(0, len(self.held_out), 4):
            chosen = list(range(i, min(i + 4, len(self.held_out))))
            yield self._batch(self.held_out, self.held_out_views, chosen)

    def _batch(self, sequences, views, chosen: list[int]) -> TttBatch:
        return make_batch(
            [sequences[i] for i in chosen],
            [views[i] for i in chosen],
            self.draft,
            self.head_rows,
        )

    def _log(self, entry: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step} | entry) + "\n")

    def _save(self) -> None:
        """Write a checkpoint folder, then point the state file at it."""
        name = f"step-{self.step:06d}"
        save_draft(self.draft, self.folder / name, torch.float32)
        save_file(self._optimizer_tensors(), self.folder / name / _OPTIMIZER_FILE)
        state = {"checkpoint": name, "step": self.step, "config": asdict(self.config)}
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
        if not path.exists():
            return
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["config"] != asdict(self.config):
            raise ValueError(
                f"{self.folder} holds a run with another configuration: finish it "
                "with its own settings, or train into a new folder."
            )
        checkpoint = self.folder / state["checkpoint"]
        saved = load_draft(checkpoint, self.target)
        self.draft.load_state_dict(saved.state_dict())
        self._load_optimizer(load_file(checkpoint / _OPTIMIZER_FILE))
        self.step = state["step"]

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
                key: tensors[f"{name}.{key}"]
                for key in ("exp_avg", "exp_avg_sq", "step")
            }

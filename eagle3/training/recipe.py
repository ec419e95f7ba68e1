"""What the trainer asks of a method: a model, its batches, its loss, its measure.

The trainer knows steps, learning rates, checkpoints and logs, and nothing of EAGLE.
A method is a recipe in a file of its own over the same trainer and the same data.
[Ours]
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from eagle3.checkpoint import load_draft, save_draft
from eagle3.target import Target
from eagle3.training.data import Sequence
from eagle3.training.features import TargetView
from eagle3.training.metrics import NUM_ALPHAS, n_alpha


class Recipe(Protocol):
    """How one method is trained.

    name: of the method, as the command line knows it
    target: that the model is made for
    model: is trained in place; its parameters with requires_grad are the optimizer's

    [Ours]
    """

    name: str
    target: Target
    model: nn.Module

    def make_batch(self, sequences: list[Sequence], views: list[TargetView]) -> Any:
        """A batch of whole sequences on the model's device, B of each. [Ours]"""

    def loss(self, batch: Any, step: int) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss [] with its gradient, and numbers for the log.

        step: optimizer steps done so far. Whatever is drawn at random must follow from
        it, so that a resumed run draws the same.

        With several processes, loss and numbers are this one's parts: they are divided
        by counts of the whole batch and add up to its own. [Ours]
        """

    def evaluate(self, batches: Iterable[Any]) -> list[float]:
        """n-alpha on held-out greedy answers, n = 0 and up. [Paper, section 4.2]"""

    def identity(self) -> str:
        """A digest of all that a resumed run must share, weights apart. [Ours]"""

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the model's weights, without the optimizer's state. [Ours]"""

    def load(self, folder: Path) -> None:
        """Read what `save` wrote into `model`. [Ours]"""


@dataclass(frozen=True)
class Start:
    """What a recipe may make a new model from.

    sequences: the training data, to count tokens
    weights: the target's state dict under the library's names, matrices [out, in] and
        norms [k], to start from

    [Ours]
    """

    target: Target
    sequences: list[Sequence]
    weights: dict[str, Tensor]


def digest(*facts: object) -> str:
    """A short text that differs when a fact's repr or a tensor's values do.

    facts: tensors [...] of any shape, or values whose repr says all. [Ours]
    """
    found = hashlib.sha256()
    for fact in facts:
        is_tensor = isinstance(fact, Tensor)
        found.update(fact.cpu().numpy().tobytes() if is_tensor else repr(fact).encode())
        found.update(b"|")
    return found.hexdigest()[:20]


class FeatureDraftRecipe:
    """What the recipes of all feature drafts share: files and n-alpha.

    target: the one that the draft is made for
    draft: trained in place
    settings: whatever else makes one run differ from another, by its repr

    [Ours]
    """

    name: ClassVar[str]

    def __init__(self, target: Target, draft: nn.Module, settings: object):
        self.target, self.model, self.settings = target, draft, settings

    def evaluate(self, batches: Iterable[Any]) -> list[float]:
        """n-alpha for n = 0 .. 7. [Paper, section 4.2]"""
        return n_alpha(self.model, batches, NUM_ALPHAS)

    def identity(self) -> str:
        """Of name, settings, sizes and draft vocabulary. [Ours]"""
        draft = self.model
        return digest(self.name, self.settings, draft.config, draft.d2t)

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the draft as `eagle3.checkpoint` does. [Ours]"""
        save_draft(self.model, folder, dtype)

    def load(self, folder: Path) -> None:
        """Read a checkpoint of the same draft.

        Raises ValueError when the folder holds another one. [Ours]
        """
        self.model.load_state_dict(load_draft(folder, self.target).state_dict())

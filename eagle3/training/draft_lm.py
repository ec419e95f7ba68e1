"""The draft language model's recipe: distillation from the target, token by token.

The draft reads the same tokens as the target and learns its whole distribution for the
next one, by cross-entropy, on the positions of the answers. [Paper, section 2.1 takes
such a draft as given; the recipe: Ours] The softmax runs over the common tokens and a
sample of the others.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
import transformers
from torch import Tensor

from eagle3.draft_lm import (
    DraftLmConfig,
    copy_target_layers,
    draft_lm_model,
    new_draft_lm,
    save_draft_lm,
)
from eagle3.target import Target
from eagle3.training.batches import FeatureBatch, feature_batch
from eagle3.training.data import Sequence
from eagle3.training.distillation import (
    NUM_OTHERS,
    ChainCount,
    HeadRows,
    common_tokens,
    sample_rows,
    shift,
    soft_cross_entropy,
    target_distribution,
)
from eagle3.training.features import TargetView
from eagle3.training.recipe import Start, digest

NUM_ALPHAS = 4  # how many n-alphas an evaluation tells
# States after the first layers are not what the head expects: it would be sure and
# wrong. A smaller final norm makes it unsure: 7 nats to begin with instead of 14.
NORM_SCALE = 0.3


def draft_lm_loss(
    model: transformers.LlamaForCausalLM, batch: FeatureBatch, rows: HeadRows
) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the target, and how often the best tokens agree.

    batch: its features are the target's top-layer states, [B, T, k]
    rows: of the target's head, which is the model's too
    Returns the mean loss [] in nats with its gradient, and the share [].

    Row i counts where token i+1 belongs to the answer. Pads stand on the right, where
    no row sees them. [Ours]
    """
    mask = batch.loss_mask.bool()
    probs = target_distribution(batch.features[mask], rows)
    states = _states(model, batch.input_ids)[mask]
    return soft_cross_entropy(rows.logits(states), probs)


@torch.no_grad()
def draft_lm_alphas(
    model: transformers.LlamaForCausalLM, batches: Iterable[FeatureBatch], num: int
) -> list[float]:
    """n-alpha of the draft's greedy chains, n = 0 .. num - 1.

    batches: greedy answers [B, T]. After n right guesses the draft has read the text
    itself, so one pass over it tells the guesses of all chains. [Paper, section 4.2;
    the parallel way: Ours]
    """
    count = ChainCount(num)
    for batch in batches:
        mask = batch.loss_mask.bool()
        best = model.lm_head(_states(model, batch.input_ids)[mask]).argmax(-1)
        right = torch.zeros_like(mask)  # row i guesses token i+1
        right[mask] = best == shift(batch.input_ids, 1)[mask]
        count.add(lambda n, alive, right=right: shift(right, n + 1), mask)
    return count.alphas()


def _states(model: transformers.LlamaForCausalLM, input_ids: Tensor) -> Tensor:
    """What enters the head: [B, T] -> [B, T, k]."""
    return model.model(input_ids=input_ids, use_cache=False).last_hidden_state


class DraftLmRecipe:
    """Distils the target into a draft language model.

    target: whose head rebuilds the teacher      model: trained in place
    common: [C] ids of C tokens that are in every step's softmax, see `sample_rows`;
        None for the whole vocabulary

    [Ours]
    """

    name = "draft-lm"

    def __init__(
        self,
        target: Target,
        model: transformers.LlamaForCausalLM,
        common: Tensor | None = None,
    ):
        self.target, self.model = target, model
        self.common = torch.arange(target.vocab_size) if common is None else common

    def make_batch(
        self, sequences: list[Sequence], views: list[TargetView]
    ) -> FeatureBatch:
        """Pad B sequences; features are the top-layer states [B, T, k]. [Ours]"""
        return feature_batch(sequences, views, "hidden", self.model.device)

    def loss(
        self, batch: FeatureBatch, step: int
    ) -> tuple[Tensor, dict[str, list[float]]]:
        """The cross-entropy [] with the target's distributions. [Ours]"""
        head = self.model.lm_head.weight
        rows = sample_rows(head, self.common, NUM_OTHERS, step)
        loss, accuracy = draft_lm_loss(self.model, batch, rows)
        return loss, {"per_step": [loss.item()], "accuracy": [accuracy.item()]}

    def evaluate(self, batches: Iterable[FeatureBatch]) -> list[float]:
        """n-alpha of greedy chains. [Paper, section 4.2]"""
        return draft_lm_alphas(self.model, batches, NUM_ALPHAS)

    def identity(self) -> str:
        """Of name, sizes and common tokens. [Ours]"""
        sizes = DraftLmConfig.of(self.model.config)
        return digest(self.name, sizes, NUM_OTHERS, self.common)

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the trained layers as `save_draft_lm` does. [Ours]"""
        save_draft_lm(self.model, folder, dtype)

    def load(self, folder: Path) -> None:
        """Read a checkpoint of the same draft.

        Raises ValueError when the folder holds another one. [Ours]
        """
        saved = draft_lm_model(folder, self.target)
        self.model.load_state_dict(saved.state_dict())


def new_recipe(
    start: Start, num_layers: int = 2, num_common: int = 4096
) -> DraftLmRecipe:
    """A draft that starts as the target's first layers, and its recipe.

    num_layers: how many
    num_common: the data's most frequent tokens, which are in every step's softmax

    Raises ValueError for none, or for a target that isn't a Llama. [Ours]
    """
    target = start.target
    model = new_draft_lm(target, num_layers).float()
    copy_target_layers(model, start.weights, tuple(range(num_layers)))
    model.model.norm.weight.data *= NORM_SCALE
    return DraftLmRecipe(target, model, common_tokens(start, num_common))

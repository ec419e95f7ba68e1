"""EAGLE-1's recipe: a loss on features and one on tokens, in one step. [Paper, 2.2]

Row i reads f_i and the embedding of token i+1. Its output is compared with the
target's next feature f_(i+1) by smooth L1, and what the head makes of the two by
cross-entropy, at a tenth of the weight. A little noise on the features that go in
stands for the errors of the draft's own, which training never shows it.
[Code: eagle/train/main.py of EAGLE-1]

HASS keeps both losses and runs several steps, so steps are counted here already. With
feature_weight 0 only the tokens teach: the paper's first step from EAGLE-1 to EAGLE-3.
[Paper, section 3]
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.layers import KeyValue
from eagle3.target import Target
from eagle3.training import processes
from eagle3.training.batches import FeatureBatch, feature_batch
from eagle3.training.data import Sequence
from eagle3.training.features import TargetView
from eagle3.training.losses import shift
from eagle3.training.recipe import FeatureDraftRecipe, Start

_TINY = 1e-5  # the official code adds it to the number of rows


@dataclass(frozen=True)
class FeatureLossConfig:
    """The losses and their weights; the defaults are EAGLE-1's.

    steps: on features of the target first, then on the draft's own, see `ttt_mask`
    feature_weight, token_weight: of smooth L1, and of cross-entropy
    noise: width of the uniform noise on features, for a text of 512 tokens
    top_k, top_k_weight: cross-entropy over the target's top_k tokens alone, once
        more; top_k 0 for none

    Raises ValueError for a value out of range. [Code: eagle/train/main.py, HASS]
    """

    steps: int = 1
    feature_weight: float = 1.0
    token_weight: float = 0.1
    noise: float = 0.2
    top_k: int = 0
    top_k_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"Training needs at least 1 step, not {self.steps}.")
        for name in ("feature_weight", "token_weight", "noise", "top_k_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(
                    f"{name} is {getattr(self, name)}: take 0 or a positive number."
                )
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: take 0 or more tokens.")


@dataclass(frozen=True)
class Eagle1Batch(FeatureBatch):
    """One batch of sequences with the target's top features, right-padded.

    features: [B, T, k]   input_ids, loss_mask: [B, T]
    lengths: [B] int64, tokens of each sequence

    [Ours]
    """

    lengths: Tensor


class FeatureLosses(NamedTuple):
    """The loss and what to watch; all but `total` are without gradient.

    total: []  weighted sum of the losses of all steps
    feature, token, top_k: [S]  the losses of S steps before they are weighted
    accuracy: [S]  share of rows where the draft's best token is the target's
    """

    total: Tensor
    feature: Tensor
    token: Tensor
    top_k: Tensor
    accuracy: Tensor


def feature_losses(
    draft: Eagle1Draft,
    batch: Eagle1Batch,
    config: FeatureLossConfig,
    noise: Tensor | None = None,
) -> FeatureLosses:
    """Compare the draft's features, and what the head makes of them, with the target's.

    draft: gradients reach the joining layer and the decoder layer
    noise: [B, T, k]  added to the features that the first step reads

    At step s, row i reads the embedding of token i+1+s and the output of step s-1; it
    is compared at i+1+s, and counts where the loss mask is set at i+s. The features
    that a step reads are constants to it, as in HASS. [Code: eagle/train/main.py, HASS]
    """
    rows = _counting_rows(draft, batch)
    columns = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    ids, x = shift(batch.input_ids), draft.fuse(batch.features)
    if noise is not None:
        x = x + noise.to(x)
    keys: list[KeyValue] = []
    scores = []
    for s in range(config.steps):
        x = draft.forward_ttt(ids, x, columns + s, keys)
        scores.append(_score(draft, x, rows, s, config.top_k))
        # Keys of this step stay in the graph: they lead to weights, not to features.
        x, ids = x.detach(), shift(ids)
    feature, token, top_k, correct = map(torch.stack, zip(*scores, strict=True))
    total = config.feature_weight * feature + config.token_weight * token
    total = (total + config.top_k_weight * top_k).sum()
    return FeatureLosses(
        total, feature.detach(), token.detach(), top_k.detach(), correct
    )


class _Rows(NamedTuple):
    """The R positions that count, with what the target has one position later.

    batch, column: [R]   feature: [R, k]   probs: [R, V]
    """

    batch: Tensor
    column: Tensor
    feature: Tensor
    probs: Tensor


@torch.no_grad()
def _counting_rows(draft: Eagle1Draft, batch: FeatureBatch) -> _Rows:
    # The last column has no next feature.
    b, j = batch.loss_mask[:, :-1].bool().nonzero(as_tuple=True)
    feature = draft.fuse(batch.features[b, j + 1])
    # The head covers the whole vocabulary: it runs on the rows that count only.
    return _Rows(b, j, feature, draft.logits(feature).float().softmax(-1))


def _score(
    draft: Eagle1Draft, x: Tensor, rows: _Rows, step: int, top_k: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Position j is scored by row j - s; the first s positions have no row.
    if step:
        rows = _Rows(*(values[rows.column >= step] for values in rows))
    # Of the whole batch: several processes divide by the same number.
    count = processes.total(torch.tensor(len(rows.batch))).item() + _TINY
    guess = x[rows.batch, rows.column - step]  # [R, k]
    distance = F.smooth_l1_loss(guess, rows.feature, reduction="none").mean(-1)
    log_q = draft.logits(guess).float().log_softmax(-1)
    token = -(rows.probs * log_q).sum()
    best, which = rows.probs.topk(max(1, top_k), dim=-1)
    top = -(best * log_q.gather(-1, which)).sum() if top_k else torch.zeros_like(token)
    correct = (log_q.argmax(-1) == which[:, 0]).sum()
    return distance.sum() / count, token / count, top / count, correct / count


def feature_noise(batch: Eagle1Batch, width: float, step: int) -> Tensor:
    """Uniform noise for the features of a batch: [B, T, k], on the CPU.

    A sequence's noise follows from the step and its place in the batch of all
    processes, so that padding and the number of processes change nothing. Its width is
    `width` at 512 tokens, and more where a text is shorter. [Code; the draws: Ours]
    """
    noise = torch.zeros(batch.features.shape)
    for row, length in enumerate(batch.lengths.tolist()):
        place = processes.rank() + row * processes.world_size()
        generator = torch.Generator().manual_seed(step * 1_000_003 + place)
        drawn = torch.rand(length, noise.shape[-1], generator=generator) - 0.5
        noise[row, :length] = drawn * (width * 512 / length)
    return noise


class Eagle1Recipe(FeatureDraftRecipe):
    """Trains an `Eagle1Draft` on the target's top features.

    target: the one that the draft is made for      draft: trained in place
    config: losses, steps and noise

    [Paper, section 2.2; Code: eagle/train/main.py]
    """

    name: ClassVar[str] = "eagle1"

    def __init__(self, target: Target, draft: Eagle1Draft, config: FeatureLossConfig):
        super().__init__(target, draft, config)
        self.config = config

    def make_batch(
        self, sequences: list[Sequence], views: list[TargetView]
    ) -> Eagle1Batch:
        """Pad B sequences with their top features [B, T, k]. [Ours]"""
        device = self.model.d2t.device
        base = feature_batch(sequences, views, self.model.reads, device)
        lengths = torch.tensor([len(s.token_ids) for s in sequences], device=device)
        return Eagle1Batch(**vars(base), lengths=lengths)

    def loss(
        self, batch: Eagle1Batch, step: int
    ) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss [] of one batch; its noise follows from `step` alone. [Code]"""
        noise = feature_noise(batch, self.config.noise, step)
        losses = feature_losses(self.model, batch, self.config, noise)
        told = losses._asdict()
        del told["total"]
        return losses.total, {name: value.tolist() for name, value in told.items()}


def new_draft(target: Target) -> Eagle1Draft:
    """A random draft with the target's embedding and head.

    A copy of the target's last layer would be no help, as it is for EAGLE-3: it writes
    onto a stream far larger than the normed feature. Raises ValueError for a target
    that is not of the Llama kind. [Code: eagle/model/cnets1.py; Ours]
    """
    config = Eagle1Config.for_target(target.config)
    return Eagle1Draft(config, target.embedding, target.head).to(target.device)


def new_recipe(start: Start, feature_weight: float = 1.0) -> Eagle1Recipe:
    """A new draft and EAGLE-1's recipe.

    feature_weight: 0 drops the loss on features

    Raises ValueError for a weight that is out of range. [Paper, section 3]
    """
    config = FeatureLossConfig(feature_weight=feature_weight)
    return Eagle1Recipe(start.target, new_draft(start.target), config)

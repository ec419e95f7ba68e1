"""Medusa's recipe: every head learns the token at its own place.

At row i the state of token i yields the pending token i+1. Head j learns what the
target said about token i+1+j, at row i+j, when it knew the tokens between. The heads'
losses are added with weights 0.8 ** j. [Code: Medusa-1]

The labels are the target's whole distributions, not the text's tokens as in Medusa: a
head has to guess over all ways in which the text may go on, and one distribution per
row says more about them than one token does. The softmax of a position is computed
once and serves all heads. It runs over the common tokens and a sample of the others.
The heads start from least squares, where a head of Medusa starts as the target's and
needs a thousand steps to become as unsure as it has to be. [Ours]
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from eagle3.medusa import MedusaConfig, MedusaHeads, load_medusa, save_medusa
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

DECAY = 0.8  # weight of head j is DECAY ** j [Code: Medusa]

NUM_TO_START = 300  # answers that the least squares see
RIDGE = 1e-3  # in units of the mean square of a state's entries


@torch.no_grad()
def least_squares_mix(states: Iterable[Tensor], num_heads: int) -> Tensor:
    """The matrices that best turn a state into the one j places later.

    states: of each answer [T, k], the target's in order
    Returns [K, k, k], for K places: matrix j - 1 minimises the sum of
    |U x_i - x_{i+j}|^2. [Ours]
    """
    squares, products = 0.0, 0.0
    for x in states:
        x = x.double()
        pairs = [(x[:-j], x[j:]) for j in range(1, num_heads + 1)]
        squares = squares + torch.stack([now.T @ now for now, _ in pairs])
        products = products + torch.stack([now.T @ later for now, later in pairs])
    diagonal = squares.diagonal(dim1=-2, dim2=-1)  # [K, k]
    ridge = RIDGE * diagonal.mean(-1)[:, None].expand_as(diagonal).diag_embed()
    return torch.linalg.solve(squares + ridge, products).mT.float()


def medusa_losses(
    heads: MedusaHeads, batch: FeatureBatch, rows: HeadRows
) -> tuple[Tensor, list[float], list[float]]:
    """The loss of all heads on one batch.

    batch: its features are the target's top-layer states, [B, T, k]
    rows: of the target's head, which is the heads' too
    Returns the weighted sum [] with its gradient, and for each head without gradient:
    its cross-entropy in nats, and how often its best token is the target's.

    Head j counts rows i where tokens i+1 and i+1+j belong to the answer. [Code:
    Medusa-1]
    """
    mask, hidden = batch.loss_mask.bool(), batch.features
    b, column = mask.nonzero(as_tuple=True)  # where the target's word counts
    probs = target_distribution(hidden[b, column], rows)  # [R, Vs]
    states = heads(hidden)  # [K, B, T, k]
    total, losses, accuracies = 0.0, [], []
    for j, state in enumerate(states, start=1):
        start = (column - j).clamp(min=0)
        counts = (column >= j) & mask[b, start]
        logits = rows.logits(state[b[counts], start[counts]])
        loss, accuracy = soft_cross_entropy(logits, probs[counts])
        total = total + DECAY**j * loss
        losses.append(loss.item())
        accuracies.append(accuracy.item())
    return total, losses, accuracies


@torch.no_grad()
def medusa_alphas(heads: MedusaHeads, batches: Iterable[FeatureBatch]) -> list[float]:
    """n-alpha of the chain of all heads' best tokens, n = 0 .. K - 1.

    batches: greedy answers, features [B, T, k] the target's top-layer states. Head
    n + 1 at row i guesses token i+2+n, whatever the heads before it said. [Paper,
    section 4.2]
    """
    count = ChainCount(heads.config.num_heads)
    for batch in batches:
        states = heads(batch.features)

        def guess(n: int, alive: Tensor, batch=batch, states=states) -> Tensor:
            right = torch.zeros_like(alive)
            best = heads.logits(states[n][alive]).argmax(-1)
            right[alive] = best == shift(batch.input_ids, n + 2)[alive]
            return right

        count.add(guess, batch.loss_mask)
    return count.alphas()


class MedusaRecipe:
    """Trains `MedusaHeads` on stored hidden states.

    target: whose head rebuilds the teacher      heads: trained in place
    common: [C] ids of C tokens that are in every step's softmax, see `sample_rows`;
        None for the whole vocabulary

    [Code: Medusa-1]
    """

    name = "medusa"

    def __init__(
        self, target: Target, heads: MedusaHeads, common: Tensor | None = None
    ):
        self.target, self.model = target, heads
        self.common = torch.arange(target.vocab_size) if common is None else common

    def make_batch(
        self, sequences: list[Sequence], views: list[TargetView]
    ) -> FeatureBatch:
        """Pad B sequences; features are the top-layer states [B, T, k]. [Ours]"""
        device = self.model.weight.device
        return feature_batch(sequences, views, "hidden", device)

    def loss(
        self, batch: FeatureBatch, step: int
    ) -> tuple[Tensor, dict[str, list[float]]]:
        """The weighted loss [] of all heads. [Code: Medusa-1]"""
        head = self.model.lm_head.weight
        rows = sample_rows(head, self.common, NUM_OTHERS, step)
        total, losses, accuracies = medusa_losses(self.model, batch, rows)
        return total, {"per_step": losses, "accuracy": accuracies}

    def evaluate(self, batches: Iterable[FeatureBatch]) -> list[float]:
        """n-alpha of the heads' chain. [Paper, section 4.2]"""
        return medusa_alphas(self.model, batches)

    def identity(self) -> str:
        """Of name, sizes, weights of the losses and common tokens. [Ours]"""
        return digest(self.name, self.model.config, DECAY, NUM_OTHERS, self.common)

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the heads as `save_medusa` does. [Ours]"""
        save_medusa(self.model, folder, dtype)

    def load(self, folder: Path) -> None:
        """Read a checkpoint of the same heads.

        Raises ValueError when the folder holds others. [Ours]
        """
        saved = load_medusa(folder, self.target)
        self.model.load_state_dict(saved.state_dict())


def new_recipe(
    start: Start, num_heads: int = 4, num_common: int = 4096
) -> MedusaRecipe:
    """Heads that start from least squares, and their recipe.

    num_heads: K, tokens guessed at once
    num_common: the data's most frequent tokens, which are in every step's softmax

    The target reads some hundred answers for it. Raises ValueError for no heads or no
    tokens. [Ours]
    """
    target = start.target
    common = common_tokens(start, num_common)
    config = MedusaConfig(target.hidden_size, target.vocab_size, num_heads)
    heads = MedusaHeads(config, target.head.float())
    answers = start.sequences[:NUM_TO_START]
    states = (_answer_states(target, sequence) for sequence in answers)
    heads.mix.data = least_squares_mix(states, num_heads)
    return MedusaRecipe(target, heads.to(target.device), common)


def _answer_states(target: Target, sequence: Sequence) -> Tensor:
    """The states from which an answer's tokens are foretold: [T, k]."""
    output = target.forward(sequence.token_ids[None].to(target.device))
    return output.hidden[0, sequence.num_prompt - 1 :]

"""EAGLE-3's recipe: training-time test, and no loss on features.

[Paper, section 3.2] The loss is in `eagle3.training.losses`; here the target's views
become its teacher.
"""

import torch
from torch import Tensor

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.target import Target
from eagle3.training.batches import feature_batch, pad_rows
from eagle3.training.data import Sequence
from eagle3.training.features import TargetView
from eagle3.training.initialise import initialise_from_target
from eagle3.training.losses import Teacher, TttBatch, TttConfig, ttt_loss
from eagle3.training.recipe import FeatureDraftRecipe, Start
from eagle3.training.vocabulary import choose_draft_vocabulary, count_answer_tokens


class Eagle3Recipe(FeatureDraftRecipe):
    """Trains an `Eagle3Draft` by training-time test.

    target: whose head rebuilds the teacher      draft: trained in place
    ttt: the steps of training-time test

    [Paper, section 3.2]
    """

    name = "eagle3"

    def __init__(self, target: Target, draft: Eagle3Draft, ttt: TttConfig):
        super().__init__(target, draft, ttt)
        self.ttt = ttt
        self.head_rows = target.head[draft.d2t].float()  # [Vd, k]

    def make_batch(
        self, sequences: list[Sequence], views: list[TargetView]
    ) -> TttBatch:
        """Pad B sequences and rebuild the teacher [B, T, Vd] for this draft. [Ours]"""
        device = self.head_rows.device
        base = feature_batch(sequences, views, self.model.reads, device)
        hidden = pad_rows([view.hidden for view in views], device).float()
        logits = hidden @ self.head_rows.T  # [B, T, Vd]
        log_normaliser = pad_rows([view.log_normaliser for view in views], device)
        teacher = Teacher(
            logits,
            pad_rows([view.argmax for view in views], device).long(),
            logits.logsumexp(-1) - log_normaliser,
        )
        return TttBatch(**vars(base), teacher=teacher)

    def loss(self, batch: TttBatch, step: int) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss [] over all steps of training-time test. [Paper, section 3.2]"""
        losses = ttt_loss(self.model, batch, self.ttt)
        told = ("per_step", "accuracy")
        return losses.total, {name: getattr(losses, name).tolist() for name in told}


@torch.no_grad()
def new_recipe(
    start: Start, draft_vocab_size: int = 4096, ttt_steps: int = 4
) -> Eagle3Recipe:
    """A draft that starts from the target's last layer, and its recipe.

    start: target, data and weights to make it from
    draft_vocab_size: tokens that the draft knows, the most frequent ones of the data

    Raises ValueError when a size is out of range or the target has no such layer.
    [Ours]
    """
    target = start.target
    counts = count_answer_tokens(start.sequences, target.vocab_size)
    vocabulary = choose_draft_vocabulary(counts, draft_vocab_size)
    config = DraftConfig.for_target(target.config, draft_vocab_size, target.taps)
    draft = Eagle3Draft(config, target.embedding, vocabulary)
    initialise_from_target(draft, start.weights)
    return Eagle3Recipe(target, draft.to(target.device), TttConfig(ttt_steps))

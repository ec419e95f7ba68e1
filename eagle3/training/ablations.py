"""Drafts that lack one part of a method, to see what the part is worth.

The paper's Table 2 takes EAGLE-3 apart into training-time test and fusion, and its
Figure 4 takes the loss on features from EAGLE-1. For such a comparison all drafts have
one vocabulary and begin alike: the head as the target's, everything else at random.
[Paper, section 4.3; the common start: Ours]
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.checkpoint import load_draft
from eagle3.draft import NUM_TAPS, DraftConfig, Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.packed import linear_from
from eagle3.target import Target
from eagle3.training.eagle1 import Eagle1Recipe


class TopFeatureDraft(Eagle3Draft):
    """EAGLE-3's draft without its fusion: it reads EAGLE-1's feature.

    It stands where the highest tap would; the two others are 0, so that its files are
    those of an `Eagle3Draft`. [Paper, Table 2]
    """

    reads = "hidden"

    @property
    def feature_width(self) -> int:
        """How many numbers per position `fuse` takes: kt."""
        return self.config.target_hidden_size

    def fuse(self, features: Tensor) -> Tensor:
        """The target's top feature [B, T, kt] through a linear layer: [B, T, k]."""
        others = (NUM_TAPS - 1) * self.feature_width
        return super().fuse(F.pad(features, (others, 0)))


@torch.no_grad()
def plain_start(
    target: Target, vocabulary: Tensor, seed: int, fused: bool = True
) -> Eagle3Draft:
    """An EAGLE-3 draft whose head is the target's and whose other weights are random.

    vocabulary: [Vd] target ids, ascending      seed: of the random weights
    fused: reads three taps; without, the top feature alone. [Ours]
    """
    config = DraftConfig.for_target(target.config, len(vocabulary), target.taps)
    kind = Eagle3Draft if fused else TopFeatureDraft
    draft = kind(config, target.embedding, vocabulary)
    draft.reset_parameters(torch.Generator().manual_seed(seed))
    draft.lm_head.weight.copy_(target.head[vocabulary])
    return draft


def small_headed(target: Target, vocabulary: Tensor, seed: int) -> Eagle1Draft:
    """An EAGLE-1 draft with the rows of the target's head for `vocabulary` alone.

    vocabulary: [Vd] target ids, ascending      seed: of the random weights. [Ours]
    """
    draft = Eagle1Draft(
        Eagle1Config.for_target(target.config), target.embedding, target.head
    )
    draft.reset_parameters(torch.Generator().manual_seed(seed))
    draft.lm_head = linear_from(target.head[vocabulary].float())
    draft.d2t = vocabulary
    return draft


class SmallHeadRecipe(Eagle1Recipe):
    """EAGLE-1's recipe for a draft whose head is cut down. [Ours]"""

    def load(self, folder: Path) -> None:
        """Read all that is stored; embedding and head are not. [Ours]"""
        stored = load_draft(folder, self.target).state_dict()
        del stored["lm_head.weight"]  # the whole head of the target
        self.model.load_state_dict(stored, strict=False)

"""HASS's recipe: EAGLE-1's draft and losses, trained in several steps.

"Learning Harmonized Representations for Speculative Sampling" trains EAGLE-1's draft
the way that it is used: after the first step it reads its own features, and attends to
the target's features up to where it started and to its own after that. That is the mask
of training-time test, so `eagle3.training.eagle1` runs it with more steps. (HASS counts
a step's rows from where they end, we from where they start: the same pairs.)

Its second idea is here, too: one more cross-entropy over the ten tokens that the target
likes best, at weight 1. As in its code, all steps weigh the same, and the features that
a step reads are constants to it. Left out: clipping by value, and training on from a
finished EAGLE-1 draft. [Code: HASS]
"""

from typing import ClassVar

from eagle3.training.eagle1 import Eagle1Recipe, FeatureLossConfig, new_draft
from eagle3.training.recipe import Start

TOP_K = 10


class HassRecipe(Eagle1Recipe):
    """Trains an `Eagle1Draft` in several steps on its own features. [Code: HASS]"""

    name: ClassVar[str] = "hass"


def new_recipe(
    start: Start, ttt_steps: int = 3, feature_weight: float = 1.0
) -> HassRecipe:
    """A new draft and HASS's recipe.

    feature_weight: 0 drops the loss on features

    Raises ValueError for a value that is out of range. [Code: HASS]
    """
    config = FeatureLossConfig(ttt_steps, feature_weight, top_k=TOP_K)
    return HassRecipe(start.target, new_draft(start.target), config)

"""Drafters: each proposes tokens in its own way, one engine verifies them all."""

from eagle3.drafters.base import Drafter
from eagle3.drafters.draft_lm import DraftLMDrafter
from eagle3.drafters.eagle import EagleDrafter
from eagle3.drafters.medusa import MedusaDrafter
from eagle3.drafters.prompt_lookup import PromptLookupDrafter
from eagle3.drafters.vanilla import VanillaDrafter

__all__ = [
    "DraftLMDrafter",
    "Drafter",
    "EagleDrafter",
    "MedusaDrafter",
    "PromptLookupDrafter",
    "VanillaDrafter",
]

"""Drafters: each proposes tokens in its own way, one engine verifies them all."""

from eagle3.drafters.base import Drafter, Proposal
from eagle3.drafters.eagle3 import Eagle3Drafter
from eagle3.drafters.vanilla import VanillaDrafter

__all__ = ["Drafter", "Eagle3Drafter", "Proposal", "VanillaDrafter"]

"""EAGLE-3 speculative decoding, built step by step in the book's notebooks.

from eagle3 import load_target, load_draft, generate

target = load_target()  # SmolLM2-135M-Instruct
draft = load_draft(target=target)  # the EAGLE-3 draft that ships for it
print(generate(target, draft, "How can I cook rice?").text)
"""

from eagle3.checkpoint import load_draft, save_draft
from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.engine import GenerationResult, generate
from eagle3.sampling import SamplingParams
from eagle3.target import Target, load_target, tap_layers, toy_target

__all__ = [
    "DraftConfig",
    "Eagle3Draft",
    "GenerationResult",
    "SamplingParams",
    "Target",
    "generate",
    "load_draft",
    "load_target",
    "save_draft",
    "tap_layers",
    "toy_target",
]

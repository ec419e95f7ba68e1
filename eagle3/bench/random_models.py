"""Models with random weights, for what does not depend on the weights: time, memory.

Nothing is downloaded. A small target gets a draft that is fitted to a few of its
answers in seconds: right often enough that tokens are accepted, and wrong often enough
that they are refused. [Ours]
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import transformers
from torch import nn

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.engine import generate
from eagle3.target import Target
from eagle3.training.data import Sequence as TrainingSequence
from eagle3.training.eagle3 import Eagle3Recipe
from eagle3.training.features import look
from eagle3.training.losses import TttConfig


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama, and of its draft's vocabulary. [Ours]

    sharpness: factor on the head's weights; 8 makes distributions as peaked as a
        language model's
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    draft_vocab_size: int
    sharpness: float = 1.0

    def config(self) -> transformers.LlamaConfig:
        """As transformers has it."""
        own = ("draft_vocab_size", "sharpness")
        sizes = {name: size for name, size in vars(self).items() if name not in own}
        return transformers.LlamaConfig(
            **sizes, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None
        )


# Llama-3.1-8B, whose EAGLE-3 draft knows 32,000 tokens. [Code: its config.json]
LLAMA_8B = Sizes(128256, 4096, 14336, 32, 32, 8, 131072, 32000)
SMALL = Sizes(96, 64, 128, 8, 4, 2, 512, 96, sharpness=8.0)


def random_model(
    sizes: Sizes, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> nn.Module:
    """transformers' Llama with random weights, made where it will run. [Ours]"""
    used = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=used), device:
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(
            sizes.config(), dtype=dtype
        )
    model = model.eval().requires_grad_(False)
    model.lm_head.weight.mul_(sizes.sharpness)
    return model


def moved(model: nn.Module, device: torch.device, dtype: torch.dtype) -> Target:
    """A copy of a model on this device as a target. [Ours]"""
    return Target(copy.deepcopy(model).to(device, dtype))


def random_draft(target: Target, size: int) -> Eagle3Draft:
    """An unfitted draft of the shape of one of the target's layers.

    size: Vd, its vocabulary, spread over the target's
    """
    config = DraftConfig.for_target(target.config, size, target.taps)
    vocab = torch.arange(0, target.vocab_size, target.vocab_size // size)[:size]
    return Eagle3Draft(config, target.embedding.cpu(), vocab)


def fitted_draft(
    target: Target, prompts: Sequence[Sequence[int]], num_updates: int = 40
) -> Eagle3Draft:
    """A draft that has learned the target's answers to these prompts, 24 tokens each.

    target: in float32 on the CPU
    """
    draft = random_draft(target, target.vocab_size)
    sequences = []
    for prompt in prompts:
        answer = generate(target, None, list(prompt), max_new_tokens=24).token_ids
        ids = torch.tensor([*prompt, *answer])
        sequences.append(TrainingSequence(ids, len(prompt), "chat", 0.0))
    views = [look(target, sequence.token_ids) for sequence in sequences]
    recipe = Eagle3Recipe(target, draft, TttConfig(4))
    batch = recipe.make_batch(sequences, views)
    parameters = [p for p in draft.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.0)
    for step in range(num_updates):
        loss, _ = recipe.loss(batch, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return draft

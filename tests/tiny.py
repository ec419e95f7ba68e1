"""Small random models of transformers, and what their own forward says about a text.

The weights are large (standard deviation 0.12) so that a wrong mask, position or norm
moves the outputs by far more than rounding does.
"""

import torch
import transformers
from torch import Tensor, nn

SIZES = {
    "vocab_size": 120,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.12,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}

ROPES = {
    "plain": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def tiny_model(family: str = "Llama", seed: int = 0, **overrides) -> nn.Module:
    """A random model of a family, by the name of its config class."""
    config = getattr(transformers, f"{family}Config")(**SIZES | overrides)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
    return model.eval().requires_grad_(False)


def tokens(*shape: int, seed: int = 1, vocab: int = 120) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, shape, generator=generator)


def library_says(
    model: nn.Module, ids: Tensor, taps: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, features and last hidden state by the library's own forward, no cache."""
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
    features = torch.cat([out.hidden_states[tap] for tap in taps], dim=-1)
    return out.logits, features, out.hidden_states[-1]

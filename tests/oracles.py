"""Right values from other people's code, and how to load them.

Each folder of tests/data/oracles has inputs and outputs of the official EAGLE code or
of SpecForge, run on one tiny target, with a README on what they mean. All float32.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaForCausalLM

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.rope import RopeConfig

FOLDER = Path(__file__).parent / "data" / "oracles"
TAPS = (2, 4, 5)  # (2, L // 2, L - 3) of the 8-layer target

# Tolerances of the set, from its README: absolute, float32.
ATOL_HIDDEN, ATOL_LOGITS, ATOL_LOSS, ATOL_GRAD = 2e-5, 1e-4, 1e-5, 1e-5

# The RoPE that each folder was made with. Official code that is given a scaling uses
# base 10,000 whatever the config says, which is why linear has 10,000 here.
ROPES = {
    "draft_forward_theta10000": RopeConfig(10_000.0),
    "draft_forward_theta500000": RopeConfig(500_000.0),
    "draft_forward_rope_linear": RopeConfig(10_000.0, "linear", 4.0),
    "draft_forward_rope_llama3": RopeConfig(500_000.0, "llama3", 8.0, 1.0, 4.0, 64),
}

# official name -> ours
_LAYER = {
    "self_attn.q_proj.weight": "layer.q.weight",
    "self_attn.k_proj.weight": "layer.k.weight",
    "self_attn.v_proj.weight": "layer.v.weight",
    "self_attn.o_proj.weight": "layer.o.weight",
    "post_attention_layernorm.weight": "layer.post_norm.weight",
    "mlp.gate_proj.weight": "layer.gate.weight",
    "mlp.up_proj.weight": "layer.up.weight",
    "mlp.down_proj.weight": "layer.down.weight",
}
NAMES = {f"midlayer.{theirs}": ours for theirs, ours in _LAYER.items()} | {
    "fc.weight": "fc.weight",
    "midlayer.input_layernorm.weight": "layer.input_norm.weight",
    "midlayer.hidden_norm.weight": "layer.hidden_norm.weight",
    "norm.weight": "norm.weight",
    "lm_head.weight": "lm_head.weight",
}
EAGLE1_NAMES = {f"layers.0.{theirs}": ours for theirs, ours in _LAYER.items()} | {
    "fc.weight": "fc.weight",
    "fc.bias": "fc.bias",
}


@cache
def tensors(folder: str, file: str = "data.safetensors") -> dict[str, Tensor]:
    return load_file(FOLDER / folder / file)


def meta(folder: str) -> dict[str, Any]:
    return json.loads((FOLDER / folder / "meta.json").read_text(encoding="utf-8"))


def official_draft(rope: RopeConfig) -> Eagle3Draft:
    """The trained draft of the set in our names."""
    official = tensors("draft_official", "model.safetensors")
    embedding = tensors("target", "model.safetensors")["model.embed_tokens.weight"]
    hf = json.loads((FOLDER / "draft_official/config.json").read_text("utf-8"))
    config = DraftConfig(
        **_sizes(hf),
        target_hidden_size=hf["hidden_size"],
        draft_vocab_size=hf["draft_vocab_size"],
        rope=rope,
        taps=TAPS,
    )
    offsets = official["d2t"]  # the official file stores target id - draft id
    draft = Eagle3Draft(config, embedding, torch.arange(len(offsets)) + offsets)
    assert torch.equal(draft.in_draft, official["t2d"])
    weights = {ours: official[theirs] for theirs, ours in NAMES.items()}
    left = draft.load_state_dict(weights, strict=False)
    assert set(left.missing_keys) == {"d2t", "embed.weight"}
    assert not left.unexpected_keys
    return draft


def official_eagle1_draft() -> Eagle1Draft:
    """The EAGLE-1 draft of the set in our names. Its weights are random."""
    official = tensors("draft_eagle1", "model.safetensors")
    target = tensors("target", "model.safetensors")
    hf = json.loads((FOLDER / "draft_eagle1/config.json").read_text("utf-8"))
    draft = Eagle1Draft(
        Eagle1Config(**_sizes(hf), rope=RopeConfig(10_000.0)),
        target["model.embed_tokens.weight"],
        target["lm_head.weight"],
    )
    assert set(official) == set(EAGLE1_NAMES)
    weights = {ours: official[theirs] for theirs, ours in EAGLE1_NAMES.items()}
    left = draft.load_state_dict(weights, strict=False)
    assert set(left.missing_keys) == {"embed.weight", "lm_head.weight"}
    assert not left.unexpected_keys
    return draft


def _sizes(hf: dict[str, Any]) -> dict[str, Any]:
    return {
        "hidden_size": hf["hidden_size"],
        "num_heads": hf["num_attention_heads"],
        "num_kv_heads": hf["num_key_value_heads"],
        "head_dim": hf["hidden_size"] // hf["num_attention_heads"],
        "intermediate_size": hf["intermediate_size"],
        "vocab_size": hf["vocab_size"],
        "rms_norm_eps": hf["rms_norm_eps"],
        "max_positions": hf["max_position_embeddings"],
    }


@cache
def target_model() -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(FOLDER / "target", dtype=torch.float32)


def run_target(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Features [B, T, 3k] and logits [B, T, V] of the target of the set."""
    with torch.no_grad():
        out = target_model()(
            input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
    return torch.cat([out.hidden_states[i] for i in TAPS], dim=-1), out.logits

"""Start a draft from the target instead of from noise.

The draft's layer does the work of the target's last ones, so it starts as a copy of
the very last: its MLP, its attention on the feature stream, the final norm and the
rows of the head; the fusion starts as the identity on the high tap. The paper starts
from random weights and has a thousand times our data. [Ours]
"""

import torch
from torch import Tensor

from eagle3.draft import Eagle3Draft

_LAYERS = "model.layers."
_LAYER = {
    "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
    "post_attention_layernorm": "post_norm",
    "input_layernorm": "hidden_norm",
}
_ON_FEATURE_STREAM = {"self_attn.q_proj": "q", "self_attn.k_proj": "k"} | {
    "self_attn.v_proj": "v"
}


@torch.no_grad()
def initialise_from_target(draft: Eagle3Draft, weights: dict[str, Tensor]) -> None:
    """Copy the last layer, final norm and head rows of a Llama-like target.

    weights: the target's state dict under the library's names: matrices [out, in],
        norms [k], and lm_head.weight or model.embed_tokens.weight [V, k]

    Raises ValueError when a tensor is missing or doesn't have the draft's shape. [Ours]
    """
    layers = [name.split(".")[2] for name in weights if name.startswith(_LAYERS)]
    last = max(map(int, layers), default=0)
    k = draft.config.hidden_size
    for source, name in _LAYER.items():
        parameter = draft.get_parameter(f"layer.{name}.weight")
        _copy(weights, f"{_LAYERS}{last}.{source}.weight", parameter)
    for source, name in _ON_FEATURE_STREAM.items():
        # The input is [e ; x]: the target's projection goes on x, e starts at random.
        parameter = draft.get_parameter(f"layer.{name}.weight")[:, k:]
        _copy(weights, f"{_LAYERS}{last}.{source}.weight", parameter)
    _copy(weights, "model.norm.weight", draft.norm.weight)
    head = (
        "lm_head.weight" if "lm_head.weight" in weights else "model.embed_tokens.weight"
    )
    draft.lm_head.weight.copy_(weights[head][draft.d2t])
    draft.fc.weight.zero_()
    draft.fc.weight[:, -k:].copy_(torch.eye(k))


def _copy(weights: dict[str, Tensor], name: str, parameter: Tensor) -> None:
    if name not in weights or weights[name].shape != parameter.shape:
        found = list(weights[name].shape) if name in weights else "missing"
        raise ValueError(
            f"the draft can't start from this target: {name} is {found}, needed "
            f"{list(parameter.shape)}; train from random weights instead."
        )
    parameter.copy_(weights[name])

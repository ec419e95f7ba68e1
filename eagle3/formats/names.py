"""The tables of tensor names: ours beside those of everyone else.

All formats hold the same tensors of an EAGLE-3 draft. They differ in the prefix of the
layer: the official code and SpecForge say `midlayer.`, speculators says `layers.0.`,
and vLLM takes both. SGLang skips `layers.0.` without a word, so the prefix decides
whether a draft has weights there. [Code: the four loaders]
"""

MIDLAYER, LAYERS_0 = "midlayer.", "layers.0."

# our name, without "layer." -> theirs, without the prefix
_LAYER = {
    "q.weight": "self_attn.q_proj.weight",
    "k.weight": "self_attn.k_proj.weight",
    "v.weight": "self_attn.v_proj.weight",
    "o.weight": "self_attn.o_proj.weight",
    "input_norm.weight": "input_layernorm.weight",  # of the token embedding
    "hidden_norm.weight": "hidden_norm.weight",  # of the feature
    "post_norm.weight": "post_attention_layernorm.weight",
    "gate.weight": "mlp.gate_proj.weight",
    "up.weight": "mlp.up_proj.weight",
    "down.weight": "mlp.down_proj.weight",
}
# our name -> theirs; a name that is in no table is the same on both sides
_OUTSIDE = {"embed.weight": "embed_tokens.weight"}

# Buffers of the frozen target that leak into files of DeepSpeed: rotary tables.
IGNORED = "target_model."


def their_name(ours: str, prefix: str) -> str:
    """The name of one of our tensors in a file with this prefix. [Code]"""
    if ours.startswith("layer."):
        return prefix + _LAYER[ours.removeprefix("layer.")]
    return _OUTSIDE.get(ours, ours)


def prefix_of(names: set[str]) -> str:
    """Which prefix a file uses: that of most of its layer's tensors. [Ours]"""
    count = {p: sum(n.startswith(p) for n in names) for p in (MIDLAYER, LAYERS_0)}
    return max(count, key=lambda prefix: count[prefix])

"""Which tensors a draft has, under our names, and the two layouts of our own. [Ours]"""

from eagle3.draft import NUM_TAPS, DraftConfig
from eagle3.eagle1 import Eagle1Config
from eagle3.layers import LayerConfig
from eagle3.model_files import Layout
from eagle3.weight_files import Shapes


def eagle3_shapes(config: DraftConfig) -> Shapes:
    """Name and shape of every tensor of an EAGLE-3 draft. [Ours]"""
    c, k = config, config.hidden_size
    shapes = _layer_shapes(c, 2 * k) | {
        "fc.weight": (k, NUM_TAPS * c.target_hidden_size),
        "layer.input_norm.weight": (k,),
        "layer.hidden_norm.weight": (k,),
        "norm.weight": (k,),
        "lm_head.weight": (c.draft_vocab_size, k),
        "d2t": (c.draft_vocab_size,),
    }
    if c.fc_norm:
        for i in range(NUM_TAPS):
            shapes[f"fc_norm.{i}.weight"] = (c.target_hidden_size,)
    if c.own_embedding:
        shapes["embed.weight"] = (c.vocab_size, k)
    return shapes


def eagle1_shapes(config: Eagle1Config) -> Shapes:
    """Name and shape of every tensor of an EAGLE-1 draft. [Ours]"""
    k = config.hidden_size
    return _layer_shapes(config, k) | {"fc.weight": (k, 2 * k), "fc.bias": (k,)}


def _layer_shapes(config: LayerConfig, input_width: int) -> Shapes:
    c, k, inner = config, config.hidden_size, config.intermediate_size
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {
        "layer.q.weight": (wide, input_width),
        "layer.k.weight": (narrow, input_width),
        "layer.v.weight": (narrow, input_width),
        "layer.o.weight": (k, wide),
        "layer.post_norm.weight": (k,),
        "layer.gate.weight": (inner, k),
        "layer.up.weight": (inner, k),
        "layer.down.weight": (k, inner),
    }


EAGLE3 = Layout(
    "eagle3-draft",
    DraftConfig,
    eagle3_shapes,
    whole_numbers=("d2t",),
    added=("fc_norm", "feed_normed", "own_embedding"),
)
EAGLE1 = Layout("eagle1-draft", Eagle1Config, eagle1_shapes)
LAYOUTS = (EAGLE3, EAGLE1)

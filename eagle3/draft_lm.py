"""A small language model as the draft: vanilla speculative sampling.

The draft is a Llama of one or two layers over the target's own tokens, with no sight of
the target's features. Its embedding and its head are the target's, frozen and shared
with it, so that training has only the layers between to fit and the file stays small.
[Paper, section 2.1; the shared ends: Ours]

It comes in two forms: as a `Target` without taps, which runs like any target here, and
as the library's own model, for transformers' assisted generation.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn

from eagle3.model_files import Layout, Shapes, read_config, read_tensors, save_model

if TYPE_CHECKING:
    from eagle3.target import Target

SHIPPED_DRAFT_LM = Path(__file__).parent / "data" / "smollm2_draft_lm"

# our field -> key in a Hugging Face config
_HF_SIZES = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
}


@dataclass(frozen=True)
class DraftLmConfig:
    """The sizes of a draft language model: the target's, but for the number of layers.

    hidden_size: k   vocab_size: V   num_layers: of the draft
    All else (RoPE, eps of the norms, context window) is the target's too.

    Raises ValueError when one isn't positive. [Ours]
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(
                    f"{name} of the draft language model is {value}: take at least 1."
                )

    @classmethod
    def of(cls, hf: Any) -> "DraftLmConfig":
        """The sizes in a Hugging Face config.

        Raises ValueError for anything but a Llama without biases. [Ours]
        """
        biased = getattr(hf, "attention_bias", False) or getattr(hf, "mlp_bias", False)
        if hf.model_type != "llama" or biased:
            kind = f"{hf.model_type}{' with biases' if biased else ''}"
            raise ValueError(
                f"a draft language model has layers like its target's, and this target "
                f"is of the kind {kind}: use a Llama without biases."
            )
        return cls(**{ours: getattr(hf, key) for ours, key in _HF_SIZES.items()})


def new_draft_lm(target: "Target", num_layers: int) -> transformers.LlamaForCausalLM:
    """An untrained draft language model between the target's embedding and head.

    Layers and final norm are random from a fixed seed and take gradients; both ends
    share the target's memory and take none. Device and dtype are the target's. Raises
    ValueError for a target that isn't a Llama, or for no layers. [Ours]
    """
    hf = copy.deepcopy(target.config)
    hf.num_hidden_layers = num_layers
    DraftLmConfig.of(hf)  # refuses
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(hf).to(target.device, target.dtype)
    ends = [nn.Parameter(target.embedding, requires_grad=False)]
    if not hf.tie_word_embeddings:
        ends.append(nn.Parameter(target.head, requires_grad=False))
    model.model.embed_tokens.weight, model.lm_head.weight = ends[0], ends[-1]
    model.generation_config.eos_token_id = list(target.eos_token_ids) or None
    return model.eval()


@torch.no_grad()
def copy_target_layers(
    model: transformers.LlamaForCausalLM,
    weights: dict[str, Tensor],
    layers: tuple[int, ...],
) -> None:
    """Start the draft's layers as these of the target, its norm as the target's.

    weights: the target's state dict under the library's names, matrices [out, in],
        norms [k]
    layers: for each layer of the draft, which one of the target's

    Raises ValueError when a tensor isn't there. [Ours]
    """
    for name, shape in _shapes(DraftLmConfig.of(model.config)).items():
        part = name.split(".")
        if part[1] == "layers":
            part[2] = str(layers[int(part[2])])
        source = weights.get(".".join(part))
        if source is None or tuple(source.shape) != shape:
            raise ValueError(
                f"the draft language model can't start from this target: "
                f"{'.'.join(part)} is missing or not {list(shape)}; name layers that "
                "the target has."
            )
        model.get_parameter(name).copy_(source)


def save_draft_lm(
    model: transformers.LlamaForCausalLM,
    folder: str | Path,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write layers and final norm so that `draft_lm_model` reads them back.

    dtype: of the weights on disk

    Raises CheckpointError, before a file is touched, for another dtype or for a
    weight that is not finite in it. [Ours]
    """
    config = DraftLmConfig.of(model.config)
    save_model(_LAYOUT, config, model.state_dict(), folder, dtype)


def draft_lm_model(
    path: str | Path | None = None, target: "Target | None" = None
) -> transformers.LlamaForCausalLM:
    """The draft as the library's own model, frozen, for assisted generation.

    path: a folder written by `save_draft_lm`; None for the one that ships with the
        package
    target: the one that it was trained for, whose embedding and head it shares; None
        loads the default

    Raises ValueError with one sentence when a file or tensor doesn't fit, or when the
    draft was made for another target. [Paper, section 2.1; Ours]
    """
    folder = SHIPPED_DRAFT_LM if path is None else Path(path)
    config = read_config(_LAYOUT, folder)
    target = _default_target() if target is None else target
    _require_fit(config, target)
    tensors = read_tensors(_LAYOUT, folder, config)
    model = new_draft_lm(target, config.num_layers)
    model.load_state_dict(tensors, strict=False)  # names are checked above
    return model.requires_grad_(False)


def load_draft_lm(
    path: str | Path | None = None, target: "Target | None" = None
) -> "Target":
    """The draft as a `Target` without taps, with the target's tokenizer.

    path, target: see `draft_lm_model`, and so for the errors. It runs with packed
    layers where a target does. Raises ValueError like `draft_lm_model`. [Paper,
    section 2.1; Ours]
    """
    from eagle3.target import Target  # here: it imports this package's helpers

    target = _default_target() if target is None else target
    return Target(draft_lm_model(path, target), target.tokenizer, taps=())


def _default_target() -> "Target":
    from eagle3.target import load_target

    return load_target()


def _shapes(config: DraftLmConfig) -> Shapes:
    k, inner = config.hidden_size, config.intermediate_size
    wide = config.num_heads * config.head_dim
    narrow = config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm": (k,),
        "self_attn.q_proj": (wide, k),
        "self_attn.k_proj": (narrow, k),
        "self_attn.v_proj": (narrow, k),
        "self_attn.o_proj": (k, wide),
        "post_attention_layernorm": (k,),
        "mlp.gate_proj": (inner, k),
        "mlp.up_proj": (inner, k),
        "mlp.down_proj": (k, inner),
    }
    shapes = {
        f"model.layers.{i}.{name}.weight": shape
        for i in range(config.num_layers)
        for name, shape in layer.items()
    }
    return shapes | {"model.norm.weight": (k,)}


_LAYOUT = Layout("draft-lm", DraftLmConfig, _shapes)


def _require_fit(config: DraftLmConfig, target: "Target") -> None:
    theirs = vars(DraftLmConfig.of(target.config))
    for name, ours in vars(config).items():
        if name != "num_layers" and ours != theirs[name]:
            raise ValueError(
                f"the draft language model was made for a target with {name} {ours}, "
                f"but this target has {theirs[name]}: load the target that it was "
                "trained for."
            )

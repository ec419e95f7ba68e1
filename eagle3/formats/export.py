"""Write a draft for other engines: the same tensors bit for bit, and a whole config.

What a format can't say is refused by name rather than dropped: an engine that is not
told of a norm or a tap runs on and accepts little. Every export writes down what
engines would otherwise guess: the RoPE base, one hidden layer, untied embeddings, the
size of the draft vocabulary. Only safetensors is written. [Ours]
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from eagle3.formats.embedding import is_rounded_copy
from eagle3.formats.facts import size_misfits
from eagle3.formats.names import LAYERS_0, MIDLAYER, their_name
from eagle3.formats.ropes import mirrored_rope, new_rope, official_rope
from eagle3.formats.shapes import EAGLE1, EAGLE3
from eagle3.formats.stored import Stored
from eagle3.formats.taps import Taps, as_outputs, depth_of
from eagle3.formats.vocabulary import to_offsets
from eagle3.model_files import save_model, write_files
from eagle3.weight_files import CheckpointError, refuse

_IDS = "eagle_aux_hidden_state_layer_ids"


def write_stored(
    stored: Stored, folder: str | Path, format_name: str, target: Any = None
) -> None:
    """Write a draft that was opened, in a format of FORMAT_NAMES.

    folder: made if it is missing; its config.json and model.safetensors are replaced
    target: the target, or its `TargetSizes`, where the draft leaves something to it:
        taps that the file doesn't name, an embedding to compare. None for none

    Each tensor keeps its dtype and its bits. Raises CheckpointError, before a file is
    touched, when the format can't express the draft or the draft is refused. [Ours]
    """
    if format_name not in FORMAT_NAMES:
        raise CheckpointError(
            f"there is no format '{format_name}': take one of "
            f"{', '.join(FORMAT_NAMES)}."
        )
    if target is not None:
        refuse(size_misfits(stored, target), "name the target of this draft")
    if format_name == "eagle3":
        _write_ours(stored, folder, target)
        return
    if stored.method == "eagle1":
        tensors, config = _eagle1(stored, format_name)
    else:
        tensors = stored.read()
        config = _WRITERS[format_name](stored, tensors, _known_taps(stored), target)
        tensors = _their_tensors(stored, tensors, format_name)
    write_files(tensors, config, folder)


def _write_ours(stored: Stored, folder: str | Path, target: Any) -> None:
    config = stored.config(None if target is None else target.num_layers)
    tensors = stored.read()
    if stored.method == "eagle1" and stored.own_embedding:
        _drop_embedding(tensors, target)
    layout = EAGLE1 if stored.method == "eagle1" else EAGLE3
    save_model(layout, config, tensors, folder, dtype=None)


def _known_taps(stored: Stored) -> Taps | None:
    """The taps, as inputs of layers, if the file says them in one way."""
    taps = stored.settings.taps
    if taps.numbering == "unknown":
        raise CheckpointError(
            f"The checkpoint {taps.said}; convert it to 'eagle3' first and name the "
            "target, which settles it."
        )
    return None if taps.ids is None else taps.resolve(None)


def _their_tensors(
    stored: Stored, tensors: dict[str, Tensor], format_name: str
) -> dict[str, Tensor]:
    prefix = LAYERS_0 if format_name == "speculators" else MIDLAYER
    d2t, t2d = to_offsets(tensors["d2t"], stored.settings.sizes["vocab_size"])
    theirs = {their_name(name, prefix): value for name, value in tensors.items()}
    return theirs | {"d2t": d2t, "t2d": t2d}


def _eagle1(stored: Stored, format_name: str) -> tuple[dict[str, Tensor], dict]:
    if format_name != "official":
        raise CheckpointError(
            f"An EAGLE-1 draft can't be written as '{format_name}', which is for "
            "EAGLE-3; take 'official' or 'eagle3'."
        )
    tensors = stored.read()
    config = _layer(stored, tensors) | official_rope(stored.settings.sizes["rope"])
    config |= {"architectures": ["LlamaForCausalLM"], "bias": True}
    return {their_name(n, LAYERS_0): t for n, t in tensors.items()}, config


def _layer(stored: Stored, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The keys that say the same in every format."""
    size = stored.settings.sizes
    kinds = Counter(t.dtype for t in tensors.values() if t.is_floating_point())
    dtype = str(kinds.most_common(1)[0][0]).removeprefix("torch.")
    return {
        "model_type": "llama",
        "hidden_size": size["hidden_size"],
        "intermediate_size": size["intermediate_size"],
        "num_attention_heads": size["num_heads"],
        "num_key_value_heads": size["num_kv_heads"],
        "head_dim": size["head_dim"],
        "num_hidden_layers": 1,
        "vocab_size": size["vocab_size"],
        "max_position_embeddings": size["max_positions"],
        "rms_norm_eps": size["rms_norm_eps"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
    }


def _flat(stored: Stored, tensors: dict[str, Tensor]) -> dict[str, Any]:
    size = stored.settings.sizes
    config = _layer(stored, tensors) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": size["draft_vocab_size"],
    }
    if size["target_hidden_size"] != size["hidden_size"]:
        # Only then: engines ask whether the key is there, not whether it is null.
        config["target_hidden_size"] = size["target_hidden_size"]
    return config


def _refuse_switches(stored: Stored, format_name: str, *switches: str) -> None:
    words = {
        "fc_norm": "a norm on each tap (fc_norm)",
        "feed_normed": "a normed output that is fed back (feed_normed)",
    }
    for switch in switches:
        if stored.settings.sizes[switch]:
            raise CheckpointError(
                f"The draft has {words[switch]}, which the format '{format_name}' "
                "can't say in a way that all its readers understand; take "
                "'speculators'."
            )


def _official(
    stored: Stored, tensors: dict[str, Tensor], taps: Taps | None, target: Any
) -> dict[str, Any]:
    _refuse_switches(stored, "official", "fc_norm", "feed_normed")
    size = stored.settings.sizes
    if size["num_heads"] * size["head_dim"] != size["hidden_size"]:
        raise CheckpointError(
            f"The official code has heads of hidden_size / num_heads, not of head_dim "
            f"{size['head_dim']}; choose another format."
        )
    if not _is_default(taps, target):
        raise CheckpointError(
            f"The official code always taps (2, L // 2, L - 3), but the draft reads "
            f"{taps}; choose another format."
        )
    return _flat(stored, tensors) | official_rope(size["rope"])


def _is_default(taps: Taps | None, target: Any) -> bool:
    """Whether an engine that is told no taps takes these."""
    if taps is None:
        return True
    depth = depth_of(taps)
    return depth is not None and (target is None or depth == target.num_layers)


def _specforge(
    stored: Stored, tensors: dict[str, Tensor], taps: Taps | None, target: Any
) -> dict[str, Any]:
    _refuse_switches(stored, "specforge", "feed_normed")
    config = _flat(stored, tensors) | mirrored_rope(stored.settings.sizes["rope"])
    if stored.settings.sizes["fc_norm"]:
        config["fc_norm"] = True
    if not _is_default(taps, target):
        config[_IDS] = list(taps)  # inputs of layers: vLLM
        outputs = {"use_aux_hidden_state": True, _IDS: list(as_outputs(taps))}
        config["eagle_config"] = outputs  # SpecForge, SGLang
    return config


def _sglang(
    stored: Stored, tensors: dict[str, Tensor], taps: Taps | None, target: Any
) -> dict[str, Any]:
    _refuse_switches(stored, "sglang", "fc_norm", "feed_normed")
    size = stored.settings.sizes
    if not _is_default(taps, target) and taps[0] != 2:
        raise CheckpointError(
            f"SGLang's versions number taps that don't begin with layer 2 in two ways, "
            f"so {taps} can't be written for it; use vLLM."
        )
    if stored.own_embedding and size["hidden_size"] == size["target_hidden_size"]:
        _drop_embedding(tensors, target)
    return _specforge(stored, tensors, taps, target)


def _drop_embedding(tensors: dict[str, Tensor], target: Any) -> None:
    embedding = getattr(target, "embedding", None)
    if embedding is None or not is_rounded_copy(tensors["embed.weight"], embedding):
        why = "name the target to compare it" if embedding is None else "but differs"
        raise CheckpointError(
            "The embedding of such a draft is taken from the target when it is loaded; "
            f"'embed_tokens.weight' is in the file, {why}."
        )
    del tensors["embed.weight"]


def _speculators(
    stored: Stored, tensors: dict[str, Tensor], taps: Taps | None, target: Any
) -> dict[str, Any]:
    size = stored.settings.sizes
    wide = size["target_hidden_size"]
    proposal = {
        "accept_tolerance": 0.0,
        "proposal_type": "greedy",
        "speculative_tokens": 3,
        "verifier_accept_k": 1,
    }
    verifier = {
        "name_or_path": getattr(target, "name", None),
        "architectures": list(getattr(target, "architectures", ())),
    }
    layer = _layer(stored, tensors)
    layer |= {"attention_dropout": 0.0, "rope_parameters": new_rope(size["rope"])}
    dtype = layer.pop("torch_dtype")
    return {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": size["draft_vocab_size"],
        "dtype": dtype,
        _IDS: None if taps is None else list(taps),
        "embed_requires_grad": False,
        "fc_norm": size["fc_norm"],
        "norm_before_fc": False,
        "norm_before_residual": False,  # vLLM takes a missing one for true
        "norm_output": size["feed_normed"],
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": verifier,
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "target_hidden_size": None if wide == size["hidden_size"] else wide,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
    }


_Writer = Callable[[Stored, dict[str, Tensor], Taps | None, Any], dict[str, Any]]
_WRITERS: dict[str, _Writer] = {
    "official": _official,
    "specforge": _specforge,
    "sglang": _sglang,
    "speculators": _speculators,
}
FORMAT_NAMES = (*_WRITERS, "eagle3")

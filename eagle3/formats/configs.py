"""What a config.json of another project means for a draft, read key by key.

Every key is read, or known to mean nothing for the draft's numbers, or must have the
one value that our draft computes; any other key is refused by name. A flag that nobody
read is how drafts come to accept nothing. [Ours]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eagle3.formats.ropes import read_rope
from eagle3.formats.taps import StoredTaps
from eagle3.weight_files import CheckpointError, refuse

# our field -> key of the Hugging Face config; each must be a positive number
_SIZES = {
    "hidden_size": ("hidden_size", int),
    "num_heads": ("num_attention_heads", int),
    "intermediate_size": ("intermediate_size", int),
    "vocab_size": ("vocab_size", int),
    "rms_norm_eps": ("rms_norm_eps", float),
    "max_positions": ("max_position_embeddings", int),
}
_OPTIONAL_SIZES = (
    "num_key_value_heads",
    "head_dim",
    "draft_vocab_size",
    "target_hidden_size",
)
_READ = {key for key, _ in _SIZES.values()} | {
    *_OPTIONAL_SIZES,
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "eagle_aux_hidden_state_layer_ids",
    "eagle_config",
    "fc_norm",
    "norm_output",
    "layer_types",
}
# key -> the values that our draft computes; a key that is not there has the first one
_FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "qkv_bias": (False, None),
    "mlp_bias": (False, None),
    "norm_before_fc": (False, None),
    "norm_before_residual": (False, None),
    "use_sliding_window": (False, None),
    "sliding_window": (None,),
    "logit_scale": (None, 1.0),
    "is_causal": (True,),
    "quantization_config": (None,),
    "compression_config": (None,),
}
# speculators: keys of the draft, not of its layer
_TOP_ONLY = {
    "draft_vocab_size",
    "target_hidden_size",
    "eagle_aux_hidden_state_layer_ids",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
}
# What describes files, training, text generation or the target, not the draft's maths.
# `bias` is EAGLE-1's: it is read there. `num_hidden_layers` is ignored by the official
# code and wrong in a published file; how many layers there are is seen in the tensors.
_NEUTRAL = frozenset(
    """
    architectures auto_map model_type name_or_path _name_or_path transformers_version
    torch_dtype dtype has_no_defaults_at_init unsloth_version use_cache
    bias num_hidden_layers tie_word_embeddings max_window_layers pretraining_tp
    bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id
    initializer_range attention_dropout hidden_dropout embed_requires_grad
    speculators_version speculators_model_type speculators_config
    transformer_layer_config
    attn_implementation _attn_implementation _attn_implementation_autoset
    output_attentions output_hidden_states return_dict torchscript use_bfloat16
    chunk_size_feed_forward is_encoder_decoder is_decoder add_cross_attention
    cross_attention_hidden_size tie_encoder_decoder pruned_heads prefix problem_type
    finetuning_task task_specific_params tokenizer_class id2label label2id
    tf_legacy_loss keys_to_ignore_at_inference
    max_length min_length do_sample early_stopping num_beams num_beam_groups
    diversity_penalty temperature top_k top_p typical_p repetition_penalty
    length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate forced_bos_token_id
    forced_eos_token_id remove_invalid_values exponential_decay_length_penalty
    suppress_tokens begin_suppress_tokens
    """.split()  # noqa: SIM905  a table of eighty names
)
# NVIDIA's way to say what EAGLE-3 is; any other value is another draft
_EAGLE_CONFIG: dict[str, tuple[Any, ...]] = {
    "use_aux_hidden_state": (True, None),
    "use_input_layernorm_in_first_layer": (True, None),
    "use_last_layernorm": (True, None),
    "use_mtp_layernorm": (False, None),
    "norm_before_fc": (False, None),
}
_IDS = "eagle_aux_hidden_state_layer_ids"
# SpecForge#879 turned the flag round; no key of the file says which is meant. [Code]
_DOUBLE_MEANING = (
    "'norm_output' is set, which SpecForge took for 'norm before the head' until "
    "September 2026 and SGLang and later SpecForge take for 'feed the normed output "
    "back'; delete the key if it is a plain EAGLE-3 draft, and store an EAGLE-3.1 "
    "draft in the speculators format, where the flag has one meaning"
)


@dataclass(frozen=True)
class Settings:
    """What a config.json says about a draft.

    is_nested: the layer's sizes stand in a part of their own, as speculators does it
    sizes: the fields of a DraftConfig or Eagle1Config but for taps and own_embedding
    taps: as the file names them
    rope_source: in words, where base and scaling come from
    notes: what a reader should know although nothing is wrong

    [Ours]
    """

    is_nested: bool
    sizes: dict[str, Any]
    taps: StoredTaps
    rope_source: str
    notes: tuple[str, ...] = field(default=())


def read_eagle3(raw: Mapping[str, Any]) -> Settings:
    """What the config.json of an EAGLE-3 draft says, flat or nested.

    Raises CheckpointError, with all that is wrong in one sentence, for a size that is
    missing, a flag that another draft has, or a key that is not known; ValueError for a
    RoPE that is not supported. [Code: the four loaders]
    """
    nested = raw.get("transformer_layer_config")
    if nested is not None and not isinstance(nested, dict):
        raise CheckpointError("'transformer_layer_config' is no table; restore it.")
    flat = dict(raw) | (nested or {})
    found = _faults(flat)
    if nested is not None:
        found += _speculators_faults(raw, nested)
    elif flat.get("norm_output") is not None:
        found.append(_DOUBLE_MEANING)
    if found:
        refuse(found, "use the config.json that belongs to the weights")
    sizes = _sizes(flat) | {
        "draft_vocab_size": flat.get("draft_vocab_size") or flat["vocab_size"],
        "target_hidden_size": flat.get("target_hidden_size") or flat["hidden_size"],
        "fc_norm": bool(flat.get("fc_norm")),
        "feed_normed": bool(raw.get("norm_output")),  # flat ones were refused above
    }
    rope = read_rope(flat if nested is None else nested)
    return Settings(
        nested is not None,
        sizes | {"rope": rope.rope},
        read_taps(raw),
        rope.source,
        tuple(_notes(flat)),
    )


def read_eagle1(raw: Mapping[str, Any]) -> Settings:
    """What the config.json of an official EAGLE-1 draft says.

    Raises as `read_eagle3`. [Code: eagle/model/cnets1.py]
    """
    found = _faults(raw)
    if raw.get("bias") is False:
        found.append(
            "'bias' is false, but the joining layer of our EAGLE-1 draft has a bias"
        )
    refuse(found, "use the config.json that belongs to the weights")
    rope = read_rope(raw)
    sizes = _sizes(raw) | {"rope": rope.rope}
    return Settings(False, sizes, StoredTaps(), rope.source, tuple(_notes(raw)))


def read_taps(raw: Mapping[str, Any]) -> StoredTaps:
    """The taps as a config.json names them.

    Raises CheckpointError for ids that are no three numbers, or named twice and
    differently. [Code: vLLM, SGLang, SpecForge]
    """
    top = _ids(raw.get(_IDS))
    inner = _ids((raw.get("eagle_config") or {}).get(_IDS))
    if inner is None:
        return StoredTaps(top)
    taps = StoredTaps(inner, "output" if inner[0] == 1 else "unknown")
    if top is None:
        return taps
    if top not in (inner, tuple(i + 1 for i in inner)):
        raise CheckpointError(
            f"the config names taps {top} as inputs of layers and {inner} in "
            "'eagle_config'; keep those that the draft was trained on."
        )
    return StoredTaps(top)


def _ids(value: Any) -> tuple[int, ...] | None:
    if not value:  # no key, null or an empty list: the default
        return None
    if not isinstance(value, list) or [type(i) for i in value] != [int] * 3:
        raise CheckpointError(
            f"'{_IDS}' is {value!r}, but a draft reads three layers; name three."
        )
    return tuple(value)


def _faults(flat: Mapping[str, Any]) -> list[str]:
    found = []
    for key, kind in _SIZES.values():
        value = flat.get(key)
        if type(value) not in {int, kind} or not 0 < value < math.inf:
            said = "is missing" if value is None else f"is {value!r}"
            found.append(f"'{key}' {said}, but must be a positive number")
    for key in _OPTIONAL_SIZES:
        value = flat.get(key)
        if value is not None and (type(value) is not int or value < 1):
            found.append(f"'{key}' is {value!r}, but must be a positive number or null")
    for key in ("rope_scaling", "rope_parameters", "eagle_config"):
        if flat.get(key) is not None and not isinstance(flat[key], dict):
            return [*found, f"'{key}' is {flat[key]!r}, but must be a table or null"]
    found += _rope_faults(flat)
    for key in ("fc_norm", "norm_output"):
        if flat.get(key) not in (None, True, False):
            found.append(f"'{key}' is {flat[key]!r}, but must be true or false")
    kinds = flat.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        found.append(f"'layer_types' is {kinds}, but a draft's attention is full")
    found += _fixed(flat, _FIXED, "")
    inner = flat.get("eagle_config") or {}
    found += _fixed(inner, _EAGLE_CONFIG, "eagle_config.")
    unknown = sorted(flat.keys() - _READ - _FIXED.keys() - _NEUTRAL)
    unknown += [
        f"eagle_config.{k}" for k in sorted(inner.keys() - {_IDS, *_EAGLE_CONFIG})
    ]
    found += [f"'{key}' is a key that this reader doesn't know" for key in unknown]
    return found


def _rope_faults(flat: Mapping[str, Any]) -> list[str]:
    values = {"rope_theta": flat.get("rope_theta")}
    for table in ("rope_scaling", "rope_parameters"):
        for key, value in (flat.get(table) or {}).items():
            if key not in ("rope_type", "type"):
                values[f"{table}.{key}"] = value
    return [
        f"'{key}' is {value!r}, but must be a number"
        for key, value in values.items()
        if value is not None and type(value) not in (int, float)
    ]


def _fixed(
    part: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], where: str
) -> list[str]:
    return [
        f"'{where}{key}' is {part[key]!r}, but our draft computes only {values[0]!r}"
        for key, values in allowed.items()
        if key in part and part[key] not in values
    ]


def _speculators_faults(raw: Mapping[str, Any], nested: Mapping[str, Any]) -> list[str]:
    found = [
        f"'{key}' is {raw[key]!r} at the top, but {nested[key]!r} in "
        "'transformer_layer_config'"
        for key in sorted(raw.keys() & nested.keys() & (_READ | _FIXED.keys()))
        if raw[key] != nested[key]
    ]
    found += [
        f"'{key}' stands in 'transformer_layer_config', where no engine reads it"
        for key in sorted(nested.keys() & _TOP_ONLY)
    ]
    kind = raw.get("speculators_model_type")
    if kind != "eagle3":
        found.append(f"'speculators_model_type' is {kind!r}, but must be 'eagle3'")
    if "norm_before_residual" not in raw:
        found.append(
            "'norm_before_residual' is missing, which vLLM takes for true and the "
            "speculators package for false"
        )
    return found


def _sizes(flat: Mapping[str, Any]) -> dict[str, Any]:
    size = {ours: flat[key] for ours, (key, _) in _SIZES.items()}
    heads = size["num_heads"]
    if flat.get("head_dim") is None and size["hidden_size"] % heads:
        raise CheckpointError(
            f"hidden_size {size['hidden_size']} does not divide into {heads} heads; "
            "name 'head_dim'."
        )
    return size | {
        "num_kv_heads": flat.get("num_key_value_heads") or heads,
        "head_dim": flat.get("head_dim") or size["hidden_size"] // heads,
    }


def _notes(flat: Mapping[str, Any]) -> list[str]:
    notes = []
    if flat.get("tie_word_embeddings"):
        notes.append(
            "tie_word_embeddings is true: the official code does not read it, SGLang "
            "would use the target-sized embedding as head; exports say false"
        )
    if "draft_vocab_size" in flat and flat["draft_vocab_size"] is None:
        notes.append(
            "draft_vocab_size is null, the whole vocabulary: SGLang would take the "
            "target's head in place of the draft's; exports name the number"
        )
    if flat.get("num_hidden_layers") not in (None, 1):
        notes.append(
            f"num_hidden_layers is {flat['num_hidden_layers']}, but the file holds one "
            "layer, as official code assumes; exports say 1"
        )
    return notes

"""RoPE at the border: which base and scaling a config.json means, and how to say it.

Three traps. A config that names no base means 10,000 in all official EAGLE-3 training,
whatever the target's base is. The official code ignores `rope_theta` as soon as a
scaling is set: its base is 10,000 then. [Code: eagle/model/cnets.py] And transformers 5
moved both settings into `rope_parameters`, where a reader of the old keys finds
nothing.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from eagle3.rope import RopeConfig
from eagle3.weight_files import CheckpointError

OFFICIAL_THETA = 10_000.0


class ReadRope(NamedTuple):
    """A draft's RoPE and, in words, how the file says it. [Ours]"""

    rope: RopeConfig
    source: str


def read_rope(raw: Mapping[str, Any]) -> ReadRope:
    """The RoPE that a config.json means.

    raw: the config, or the part of it that describes the layer

    Raises ValueError for a scaling that is not supported or lacks a value, and
    CheckpointError for old and new keys that contradict each other.
    [Code; Ours: the refusals]
    """
    theta, old, new = (raw.get(f"rope_{k}") for k in ("theta", "scaling", "parameters"))
    if new is not None:
        rope = _read_new(raw, dict(new))
        if old and RopeConfig.from_hf({"rope_theta": rope.theta, **_old(old)}) != rope:
            raise CheckpointError(
                f"'rope_scaling' says {old}, but 'rope_parameters' {new}; keep the one "
                "that the draft was trained with."
            )
        return ReadRope(rope, "rope_parameters")
    if old and _is_official(old):
        rope = RopeConfig.from_hf({"rope_theta": OFFICIAL_THETA, **_old(old)})
        if theta not in (None, OFFICIAL_THETA):
            ignored = f"base 10,000: beside a scaling, official code ignores {theta:g}"
            return ReadRope(rope, ignored)
        return ReadRope(rope, "rope_scaling; base 10,000 as in official code")
    if theta is None:
        theta = (old or {}).get("rope_theta")
    source = "rope_theta" if theta is not None else "config names none: 10,000"
    base = OFFICIAL_THETA if theta is None else theta
    return ReadRope(RopeConfig.from_hf({**raw, "rope_theta": base}), source)


def _read_new(raw: Mapping[str, Any], new: dict[str, Any]) -> RopeConfig:
    bases = {new.get("rope_theta"), raw.get("rope_theta")} - {None}
    if len(bases) > 1:
        raise CheckpointError(
            f"the config names two RoPE bases, {min(bases)} and {max(bases)}; "
            "keep the one that the draft was trained with."
        )
    base = bases.pop() if bases else OFFICIAL_THETA
    partial = raw.get("partial_rotary_factor")
    return RopeConfig.from_hf(
        {"rope_parameters": {"partial_rotary_factor": partial, **new}}
        | {"rope_theta": base}
    )


def _old(scaling: Mapping[str, Any]) -> dict[str, Any]:
    return {"rope_scaling": {k: v for k, v in scaling.items() if k != "rope_theta"}}


def _is_official(scaling: Mapping[str, Any]) -> bool:
    # Its config class takes exactly these two keys. [Code: eagle/model/configs.py]
    return set(scaling) == {"type", "factor"}


def official_rope(rope: RopeConfig) -> dict[str, Any]:
    """The keys that the official code reads.

    Raises CheckpointError for what it can't express: llama3 frequencies, and a linear
    scaling with another base than 10,000. [Code: eagle/model/cnets.py]
    """
    if rope.scaling == "none":
        return {"rope_theta": rope.theta}
    if rope.scaling != "linear" or rope.theta != OFFICIAL_THETA or rope.factor <= 1:
        raise CheckpointError(
            f"the official code has no RoPE with {rope.scaling} scaling by "
            f"{rope.factor:g} and base {rope.theta:g}: it knows only linear scaling "
            "above 1, with base 10,000; choose another format."
        )
    return {"rope_scaling": {"type": "linear", "factor": float(rope.factor)}}


def new_rope(rope: RopeConfig) -> dict[str, Any]:
    """The value of transformers 5's `rope_parameters`. [Code: transformers]"""
    if rope.scaling == "none":
        return {"rope_type": "default", "rope_theta": rope.theta}
    values = {"rope_type": rope.scaling, "factor": rope.factor}
    if rope.scaling == "llama3":
        values |= {
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_max_positions,
        }
    return values | {"rope_theta": rope.theta}


def mirrored_rope(rope: RopeConfig) -> dict[str, Any]:
    """Old and new keys side by side, as SpecForge writes them for SGLang. [Code]"""
    new = new_rope(rope)
    keys = {"rope_parameters": new, "rope_theta": rope.theta}
    if rope.scaling != "none":
        keys["rope_scaling"] = {k: v for k, v in new.items() if k != "rope_theta"}
    return keys

"""Rotary position embedding: plain, linear and llama3 frequencies.

A pair of channels (i, i + d/2) of a query or key is turned by the angle
position * frequency_i, so that a dot product depends on the distance between two
positions only. The draft of EAGLE-3 [Paper, section 3.1] is a LLaMA decoder layer and
turns its queries and keys in this way. [Code: transformers, rotate-half layout]

The maths here takes the base as it is given. Which base a checkpoint means is a
question for the code that reads the checkpoint. Left out: yarn, dynamic and longrope
scaling, and rotation of a part of the channels; they are refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

SCALINGS = ("none", "linear", "llama3")


def is_number(value: object) -> bool:
    """Whether a value of a config is a number, and no larger than a float. [Ours]"""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**63


@dataclass(frozen=True)
class RopeConfig:
    """Which frequencies a model turns its queries and keys by.

    theta: the base; a larger one turns slower.
    scaling: "none", "linear" (all frequencies divided by `factor`) or "llama3"
        (only the slow ones divided, with a smooth passage between).
    low_freq_factor, high_freq_factor, original_max_positions: llama3 only; the two
        bounds of the passage, in turns per original context window.

    Raises ValueError for an unknown scaling or values that are out of range.
    """

    theta: float
    scaling: Literal["none", "linear", "llama3"] = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "scaling" and not is_number(value):
                raise ValueError(
                    f"RoPE's {name} is {value!r:.80}; it must be a number that a "
                    "float can hold."
                )
        if not (math.isfinite(self.theta) and self.theta > 1):
            raise ValueError(f"The RoPE base must be above 1, not {self.theta}.")
        if self.scaling not in SCALINGS:
            raise ValueError(
                f"RoPE scaling '{self.scaling}' is not supported; use a model whose "
                f"scaling is one of {', '.join(SCALINGS)}."
            )
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(
                f"The RoPE scaling factor must be at least 1, not {self.factor}."
            )
        if self.scaling == "llama3" and not (
            0 < self.low_freq_factor < self.high_freq_factor
            and self.original_max_positions > 0
        ):
            raise ValueError(
                "llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor and "
                f"a positive original length, not {self.low_freq_factor}, "
                f"{self.high_freq_factor} and {self.original_max_positions}."
            )

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> "RopeConfig":
        """Read the RoPE settings of a Hugging Face config, old layout or new.

        config: the config as a dict; `rope_parameters` (transformers 5), or
            `rope_theta` with an optional `rope_scaling` (transformers 4). Where the
            kinds of layers have RoPEs of their own, as in Gemma 3, it is that of the
            full-attention layers: the draft sees the whole text, as they do.

        Raises ValueError when no base is named, when the scaling is of a kind that
        is not supported, or when one of its values is missing.
        """
        rope = dict(_table(config, "rope_scaling"))
        rope.update(of_full_attention(_table(config, "rope_parameters")))
        theta = rope.get("rope_theta", config.get("rope_theta"))
        if theta is None:
            raise ValueError(
                "The config names no RoPE base; add 'rope_theta' with the base that "
                "the model was trained with."
            )
        partial = rope.get("partial_rotary_factor")
        partial = partial or config.get("partial_rotary_factor") or 1.0
        if partial != 1.0:
            raise ValueError(
                f"Rotating a part of the channels ({partial!r:.80}) is not supported; "
                "use a model with partial_rotary_factor 1."
            )
        kind = rope.get("rope_type", rope.get("type")) or "default"
        theta = float(theta) if is_number(theta) else theta  # else it is refused
        if kind == "default":
            return cls(theta)
        if kind not in SCALINGS:
            return cls(theta, kind)  # refuses, and names the kind
        return cls(theta, kind, **_scaling_values(kind, rope))


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = config.get(key) or {}
    if not isinstance(table, Mapping):
        raise ValueError(
            f"'{key}' of the config is {table!r:.80}, and must be a table of settings."
        )
    return table


def of_full_attention(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of `rope_parameters` for each kind of layer those of full attention.

    Returns parameters that are not nested as they are. Raises ValueError where no layer
    has full attention. [Code: transformers' Gemma 3]
    """
    if not any(isinstance(value, Mapping) for value in parameters.values()):
        return parameters
    if "full_attention" not in parameters:
        raise ValueError(
            f"The config names RoPEs for {', '.join(sorted(parameters))} and none for "
            "'full_attention', which the draft's layer has; use a model that has such "
            "layers."
        )
    return parameters["full_attention"]


# our field -> key in a Hugging Face config
_KEYS = {
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_positions": "original_max_position_embeddings",
    },
}


def _scaling_values(kind: str, rope: Mapping[str, Any]) -> dict[str, float]:
    missing = [key for key in _KEYS[kind].values() if rope.get(key) is None]
    if missing:
        raise ValueError(
            f"RoPE scaling '{kind}' needs {', '.join(missing)}; add it to the config."
        )
    return {field: rope[key] for field, key in _KEYS[kind].items()}


def inverse_frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """The angle by which each channel pair turns from one position to the next.

    Returns [head_dim / 2] float32, in radians per position, fastest first.
    Raises ValueError when head_dim is odd. [Code: transformers; SpecForge]
    """
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"RoPE needs an even head_dim, not {head_dim}.")
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequency = 1.0 / config.theta**exponent
    if config.scaling == "linear":
        return frequency / config.factor
    if config.scaling == "llama3":
        return _llama3(frequency, config)
    return frequency


def _llama3(frequency: Tensor, config: RopeConfig) -> Tensor:
    # Turns that a pair makes within the context window of pre-training.
    turns = config.original_max_positions * frequency / (2 * math.pi)
    low, high = config.low_freq_factor, config.high_freq_factor
    # keep = 1: fast pair, unchanged; keep = 0: slow pair, divided by the factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * frequency + (1 - keep) * frequency / config.factor


def cos_sin(positions: Tensor, inv_freq: Tensor) -> tuple[Tensor, Tensor]:
    """Tables for `apply_rotation`, one row per position.

    positions: [n] int   inv_freq: [d/2] float32
    Returns cos: [n, d], and sin: [n, d] whose first half carries a minus sign, so
    that turning a vector needs no negation of its own.
    """
    angle = positions.float()[:, None] * inv_freq.to(positions.device)  # [n, d/2]
    sin = angle.sin()
    return angle.cos().repeat(1, 2), torch.cat([-sin, sin], dim=-1)


def apply_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn every channel pair (i, i + d/2) of x by its row of the tables.

    x: [..., n, d]   cos, sin: [n, d] from `cos_sin`, in x's dtype
    Returns [..., n, d]; lengths are unchanged.
    """
    return torch.addcmul(x * cos, torch.roll(x, x.shape[-1] // 2, dims=-1), sin)


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor) -> Tensor:
    """Turn queries or keys by their positions.

    x: [..., n, d]   positions: [n] int   inv_freq: [d/2] float32
    Returns [..., n, d] in x's dtype; the dot product of two turned vectors depends on
    the difference of their positions only.
    """
    cos, sin = cos_sin(positions, inv_freq)
    return apply_rotation(x, cos.to(x.dtype), sin.to(x.dtype))


class RopeTable:
    """The tables of `cos_sin`, kept and grown on demand.

    config, head_dim: as for `inverse_frequencies`.
    """

    def __init__(self, config: RopeConfig, head_dim: int) -> None:
        self.inv_freq = inverse_frequencies(config, head_dim)
        self._cos = self._sin = torch.empty(0, head_dim)

    def rows(
        self, positions: Tensor, length: int, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The rows of the given positions.

        positions: [n] int, each below `length`   like: gives device and dtype
        Returns cos, sin: [n, d] each, for `apply_rotation`.
        """
        old = self._cos
        if len(old) < length or (old.device, old.dtype) != (like.device, like.dtype):
            # The next power of two, so that a growing text rebuilds it rarely.
            every = torch.arange(1 << (length - 1).bit_length(), device=like.device)
            # Computed in float32 and cast once: low precision would lose far angles.
            cos, sin = cos_sin(every, self.inv_freq)
            self._cos, self._sin = cos.to(like.dtype), sin.to(like.dtype)
        return self._cos[positions], self._sin[positions]

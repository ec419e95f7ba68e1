"""What the drafts of EAGLE-1 and EAGLE-3 are built from: parts of a LLaMA layer.

The two drafts differ in what their one decoder layer reads. Its sizes, its norm, its
MLP, its keys and values and the attention of training-time test are here.
[Paper, section 3.1; Code: eagle/model]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from eagle3.masks import causal_mask
from eagle3.rope import RopeConfig, apply_rotation, is_number

NOT_A_COUNT = ("rope", "taps")
MAX_SIZE = 2**40  # more than any model has of anything


@dataclass(frozen=True)
class LayerConfig:
    """The sizes of a draft's decoder layer.

    hidden_size: k   vocab_size: V   max_positions: longest trained context

    Raises ValueError when sizes contradict each other.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope: RopeConfig
    max_positions: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in NOT_A_COUNT or isinstance(value, bool):
                continue
            if not is_number(value) or not 0 < value < MAX_SIZE:
                raise ValueError(
                    f"{name} of the draft must be positive, not {value!r:.80}."
                )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value "
                "heads evenly; choose a divisor."
            )
        if self.head_dim % 2:
            raise ValueError(f"RoPE needs an even head_dim, not {self.head_dim}.")


def layer_sizes(target_config: Any) -> dict[str, Any]:
    """The fields of a `LayerConfig` for a layer shaped like one of the target.

    target_config: a Hugging Face config of the Llama kind, object or dict
    Raises ValueError when the config lacks a size or has an unsupported RoPE.
    """
    hf = target_config
    if not isinstance(hf, Mapping):
        hf = hf.to_dict()
    size = {field: _read(hf, key) for field, key in _HF_SIZES.items()}
    heads = size["num_heads"]
    for key in ("num_attention_heads", "hidden_size"):  # they are divided below
        if not is_number(hf[key]) or not hf[key] > 0:
            raise ValueError(
                f"The target's config has {hf[key]!r:.80} for '{key}'; use a target of "
                "the Llama kind, whose sizes are positive numbers."
            )
    return size | {
        "num_kv_heads": hf.get("num_key_value_heads") or heads,
        "head_dim": hf.get("head_dim") or size["hidden_size"] // heads,
        "rope": RopeConfig.from_hf(hf),
    }


# our field -> key in a Hugging Face config
_HF_SIZES = {
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
}


def _read(hf: Mapping[str, Any], key: str) -> Any:
    if hf.get(key) is None:
        raise ValueError(
            f"The target's config has no '{key}'; use a target of the Llama kind."
        )
    return hf[key]


class KeyValue(NamedTuple):
    """Keys and values of one training-time-test step, each [B, Hkv, T, d]."""

    key: Tensor
    value: Tensor


class DraftCache:
    """Keys and values of the positions that the draft has run, in fixed buffers.

    keys, values: [B, Hkv, max_length, d]; the first `length` positions are valid.
    Nothing is copied when it grows or shrinks. Made by a draft's `new_cache`.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.length = 0

    @property
    def max_length(self) -> int:
        """How many positions fit."""
        return self.keys.shape[2]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write n new positions and return views of all valid ones.

        key, value: [B, Hkv, n, d]
        Returns keys, values: [B, Hkv, length, d], views into the buffers.
        Raises ValueError when the buffers are too short.
        """
        end = self.length + key.shape[2]
        if end > self.max_length:
            raise ValueError(
                f"{end} positions do not fit into a draft cache of "
                f"{self.max_length}; make it with a larger max_length."
            )
        self.keys[:, :, self.length : end] = key
        self.values[:, :, self.length : end] = value
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def rollback(self, count: int) -> None:
        """Forget the last `count` positions.

        Raises ValueError when count is negative or above the length.
        """
        if not 0 <= count <= self.length:
            raise ValueError(
                f"Cannot roll back {count} of {self.length} cached positions; "
                "name a count between 0 and the length."
            )
        self.length -= count


class RMSNorm(nn.Module):
    """Scale each vector to root mean square 1, then by a learned weight.

    width: k   eps: added to the mean square
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., k] -> [..., k] in x's dtype; statistics in float32. [Code]"""
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


def new_linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A layer whose weights are not drawn yet: nn.Linear alone would draw them from
    the global random state."""
    return nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)


class DecoderLayer(nn.Module):
    """A LLaMA decoder layer whose attention may read something wider than its stream.

    config: the sizes   input_width: of what queries, keys and values are made from

    What goes into attention comes ready: an input norm is up to the draft.
    [Code: eagle/model/cnets.py and cnets1.py]
    """

    def __init__(self, config: LayerConfig, input_width: int) -> None:
        super().__init__()
        k, d = config.hidden_size, config.head_dim
        wide, narrow = config.num_heads * d, config.num_kv_heads * d
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = d
        self.q = new_linear(input_width, wide)
        self.k = new_linear(input_width, narrow)
        self.v = new_linear(input_width, narrow)
        self.o = new_linear(wide, k)
        self.post_norm = RMSNorm(k, config.rms_norm_eps)
        self.gate = new_linear(k, config.intermediate_size)
        self.up = new_linear(k, config.intermediate_size)
        self.down = new_linear(config.intermediate_size, k)

    def project(
        self, inputs: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values.

        inputs: [B, n, input_width]   cos, sin: [n, d]
        Returns query [B, H, n, d], key and value [B, Hkv, n, d], the first two turned.
        """
        query = self._heads(self.q(inputs), self.num_heads)
        key = self._heads(self.k(inputs), self.num_kv_heads)
        value = self._heads(self.v(inputs), self.num_kv_heads)
        return apply_rotation(query, cos, sin), apply_rotation(key, cos, sin), value

    def _heads(self, flat: Tensor, num: int) -> Tensor:
        # [B, n, num * d] -> [B, num, n, d]
        return flat.unflatten(-1, (num, self.head_dim)).transpose(1, 2)

    def finish(self, stream: Tensor, attended: Tensor) -> Tensor:
        """Output projection, residual and MLP.

        stream: [B, n, k], the residual one   attended: [B, H, n, d]
        Returns [B, n, k], before any final norm.
        """
        r = stream + self.o(attended.transpose(1, 2).flatten(2))
        h = self.post_norm(r)
        return r + self.down(F.silu(self.gate(h)) * self.up(h))


ROWS_AT_ONCE = 256  # a longer sequence is attended from in pieces of so many rows


def ttt_attention(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """Attention of training-time test, without building its mask.

    A row sees step 0's keys causally and, of each later step, only its own key: one
    dot product instead of a matrix. [Paper, section 3.2; Code: eagle/traineagle3]

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d].

    A long sequence goes in pieces of rows. No piece computes keys to its right, and
    its weights are computed again in the backward pass instead of being kept, so that
    memory grows with T and not with T * T. [Ours]
    """
    first, later = steps[0], steps[1:]
    if query.shape[2] <= ROWS_AT_ONCE:
        return attend_rows(query, first, later)
    queries = query.split(ROWS_AT_ONCE, dim=2)
    later = [[t.split(ROWS_AT_ONCE, dim=2) for t in kv] for kv in later]
    pieces, end = [], 0
    for i, rows in enumerate(queries):
        end += rows.shape[2]
        seen = KeyValue(*(t[:, :, :end] for t in first))
        own = [KeyValue(key[i], value[i]) for key, value in later]
        piece = checkpoint(
            attend_rows, rows, seen, own, use_reentrant=False, preserve_rng_state=False
        )
        pieces.append(piece)
    return torch.cat(pieces, dim=2)


def attend_rows(query: Tensor, seen: KeyValue, own: list[KeyValue]) -> Tensor:
    """Attention of n rows, the last of which sees all of m keys of step 0.

    query: [B, H, n, d]   seen: of step 0, [B, Hkv, m, d], m >= n
    own: the rows' own keys and values of each later step, [B, Hkv, n, d]
    Returns [B, H, n, d]. [Paper, section 3.2]
    """
    batch, num_kv, length, d = seen.key.shape
    num_rows = query.shape[2]
    # Query heads that share a key head become one block: [B, Hkv, H/Hkv, n, d].
    q = query.reshape(batch, num_kv, -1, num_rows, d) / math.sqrt(d)
    scores = q @ seen.key.unsqueeze(2).mT  # [B, Hkv, H/Hkv, n, m]
    hidden = ~causal_mask(num_rows, length, query.device)
    scores = scores.float().masked_fill(hidden, -math.inf)
    dots = [(q * kv.key.unsqueeze(2)).sum(-1, keepdim=True).float() for kv in own]
    weights = torch.cat([scores, *dots], dim=-1).softmax(-1).to(query.dtype)
    # Split at once: the gradient of every slice would be a matrix of its own.
    weights, *of_own = weights.split([length] + [1] * len(own), dim=-1)
    out = weights @ seen.value.unsqueeze(2)
    for weight, kv in zip(of_own, own, strict=True):
        out = out + weight * kv.value.unsqueeze(2)
    return out.reshape(query.shape)

"""The EAGLE-3 draft: one decoder layer that reads features and tokens together.

Position i reads the fused feature g_i of the target and the embedding e of token i+1,
and predicts token i+2. At drafted positions, where the target has not run yet, the
draft's own output a takes the place of g. [Paper, section 3.1]

Two forward paths share one set of weights: `forward` is causal attention with a cache,
for inference; `forward_ttt` is the attention of training-time test, for training.
Layer, names of the norms and order of the streams follow the official code
[Code: eagle/model/cnets.py], except that head_dim comes from the config and the draft
vocabulary is kept as absolute target ids. Left out: several layers, biases, and norms
before the fusion, which EAGLE-3 does not have.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle3.masks import causal_mask
from eagle3.rope import RopeConfig, RopeTable, apply_rotation

NUM_TAPS = 3


@dataclass(frozen=True)
class DraftConfig:
    """The sizes of a draft.

    hidden_size: k, the draft's width   target_hidden_size: kt, a tapped feature's
    vocab_size: V   draft_vocab_size: Vd   max_positions: longest trained context
    taps: the three layers i whose input `hidden_states[i]` the target hands over

    Raises ValueError when sizes contradict each other.
    """

    hidden_size: int
    target_hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    rope: RopeConfig
    max_positions: int
    taps: tuple[int, int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "taps", tuple(self.taps))
        for name, value in vars(self).items():
            if name not in ("rope", "taps") and not value > 0:
                raise ValueError(f"{name} of the draft must be positive, not {value}.")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value "
                "heads evenly; choose a divisor."
            )
        if self.head_dim % 2:
            raise ValueError(f"RoPE needs an even head_dim, not {self.head_dim}.")
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"A draft vocabulary of {self.draft_vocab_size} does not fit into the "
                f"target's {self.vocab_size} tokens; make it smaller."
            )
        ascending = sorted(set(self.taps)) == list(self.taps) and min(self.taps) >= 0
        if len(self.taps) != NUM_TAPS or not ascending:
            raise ValueError(
                f"The draft needs {NUM_TAPS} ascending taps, not {self.taps}; name "
                "distinct layers, lowest first."
            )

    @classmethod
    def for_target(
        cls, target_config: Any, draft_vocab_size: int, taps: tuple[int, int, int]
    ) -> "DraftConfig":
        """A draft layer shaped like one layer of the target.

        target_config: a Hugging Face config of the Llama kind, object or dict
        draft_vocab_size: Vd   taps: see the class

        Raises ValueError when the config lacks a size or has an unsupported RoPE.
        """
        hf = target_config
        if not isinstance(hf, Mapping):
            hf = hf.to_dict()
        size = {field: _read(hf, key) for field, key in _HF_SIZES.items()}
        heads, width = size["num_heads"], size["hidden_size"]
        return cls(
            **size,
            target_hidden_size=width,
            num_kv_heads=hf.get("num_key_value_heads") or heads,
            head_dim=hf.get("head_dim") or width // heads,
            draft_vocab_size=draft_vocab_size,
            rope=RopeConfig.from_hf(hf),
            taps=taps,
        )


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


def require_fit(config: DraftConfig, target: Any) -> None:
    """Refuse a draft that was not made for this target.

    target: anything with hidden_size, vocab_size, num_layers and taps, an
        `eagle3.target.Target` for one
    Raises ValueError that names the first size that differs, and the remedy.
    """
    for name, ours in (
        ("hidden_size", config.target_hidden_size),
        ("vocab_size", config.vocab_size),
    ):
        theirs = getattr(target, name)
        if ours != theirs:
            raise ValueError(
                f"The draft was made for a target with {name} {ours}, but this "
                f"target has {theirs}; load the target that the draft was trained for."
            )
    if config.taps[-1] >= target.num_layers:
        raise ValueError(
            f"The draft taps layer {config.taps[-1]}, but the target has only "
            f"{target.num_layers} layers; load the target that it was trained for."
        )
    if tuple(target.taps) != config.taps:
        raise ValueError(
            f"The draft was trained on taps {config.taps}, but the target hands over "
            f"taps {tuple(target.taps)}; load the target with the draft's taps."
        )


class KeyValue(NamedTuple):
    """Keys and values of one training-time-test step, each [B, Hkv, T, d]."""

    key: Tensor
    value: Tensor


class DraftCache:
    """Keys and values of the positions that the draft has run, in fixed buffers.

    keys, values: [B, Hkv, max_length, d]; the first `length` positions are valid.
    Nothing is copied when it grows or shrinks. Made by `Eagle3Draft.new_cache`.
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


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # nn.Linear alone would draw from the global random state
    return nn.utils.skip_init(nn.Linear, inputs, outputs, bias=False)


class DraftLayer(nn.Module):
    """A LLaMA decoder layer whose attention reads two streams. [Paper, Figure 5]

    The residual stream is x alone; the embedding e enters through attention, and each
    stream has its own norm. [Code: eagle/model/cnets.py]
    """

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        k, d = config.hidden_size, config.head_dim
        wide, narrow = config.num_heads * d, config.num_kv_heads * d
        self.num_heads, self.num_kv_heads, self.head_dim = (
            config.num_heads,
            config.num_kv_heads,
            d,
        )
        self.input_norm = RMSNorm(k, config.rms_norm_eps)  # for e
        self.hidden_norm = RMSNorm(k, config.rms_norm_eps)  # for x
        self.q = _linear(2 * k, wide)
        self.k = _linear(2 * k, narrow)
        self.v = _linear(2 * k, narrow)
        self.o = _linear(wide, k)
        self.post_norm = RMSNorm(k, config.rms_norm_eps)
        self.gate = _linear(k, config.intermediate_size)
        self.up = _linear(k, config.intermediate_size)
        self.down = _linear(config.intermediate_size, k)

    def project(
        self, e: Tensor, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of both streams side by side.

        e, x: [B, n, k]   cos, sin: [n, d]
        Returns query [B, H, n, d], key and value [B, Hkv, n, d], the first two turned.
        """
        # [B, n, 2k]: embedding first, feature second
        both = torch.cat([self.input_norm(e), self.hidden_norm(x)], dim=-1)
        query = self._heads(self.q(both), self.num_heads)
        key = self._heads(self.k(both), self.num_kv_heads)
        value = self._heads(self.v(both), self.num_kv_heads)
        return apply_rotation(query, cos, sin), apply_rotation(key, cos, sin), value

    def _heads(self, flat: Tensor, num: int) -> Tensor:
        # [B, n, num * d] -> [B, num, n, d]
        return flat.unflatten(-1, (num, self.head_dim)).transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection, residual and MLP.

        x: [B, n, k]   attended: [B, H, n, d]
        Returns a: [B, n, k], before any final norm.
        """
        r = x + self.o(attended.transpose(1, 2).flatten(2))
        h = self.post_norm(r)
        return r + self.down(F.silu(self.gate(h)) * self.up(h))


def ttt_attention(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """Attention of training-time test, without building its mask.

    A row sees step 0's keys causally and, of each later step, only its own key: one
    dot product instead of a matrix. [Paper, section 3.2; Code: eagle/traineagle3]

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d].
    """
    first, later = steps[0], steps[1:]
    batch, num_kv, length, d = first.key.shape
    # Query heads that share a key head become one block: [B, Hkv, H/Hkv, T, d].
    q = query.reshape(batch, num_kv, -1, length, d) / math.sqrt(d)
    scores = q @ first.key.unsqueeze(2).mT  # [B, Hkv, H/Hkv, T, T]
    hidden = ~causal_mask(length, length, query.device)
    scores = scores.float().masked_fill(hidden, -math.inf)
    own = [(q * kv.key.unsqueeze(2)).sum(-1, keepdim=True).float() for kv in later]
    weights = torch.cat([scores, *own], dim=-1).softmax(-1).to(query.dtype)
    out = weights[..., :length] @ first.value.unsqueeze(2)
    for i, kv in enumerate(later):
        out = out + weights[..., length + i, None] * kv.value.unsqueeze(2)
    return out.reshape(query.shape)


class Eagle3Draft(nn.Module):
    """The draft model with its fusion, its vocabulary and its own head.

    config: the sizes
    embedding: [V, k]  the target's, copied and frozen; None draws random numbers
    draft_vocab: [Vd]  target ids of the draft's tokens, ascending; may be None when
        the draft knows the whole vocabulary

    Weights start random from a fixed seed. Raises ValueError when `embedding` or
    `draft_vocab` does not fit the config.
    """

    reads = "features"  # the field of a target's output that `fuse` takes
    d2t: Tensor  # [Vd] int64  target id of every draft token
    in_draft: Tensor  # [V] bool  is this target id a draft token?

    def __init__(
        self,
        config: DraftConfig,
        embedding: Tensor | None = None,
        draft_vocab: Tensor | None = None,
    ) -> None:
        super().__init__()
        k, vocab = config.hidden_size, config.vocab_size
        d2t = _checked_vocabulary(config, draft_vocab)
        if embedding is not None and tuple(embedding.shape) != (vocab, k):
            raise ValueError(
                f"The draft needs an embedding of {[vocab, k]}, not "
                f"{list(embedding.shape)}; pass the one of the target it is made for."
            )
        self.config = config
        self.fc = _linear(NUM_TAPS * config.target_hidden_size, k)
        generator = torch.Generator().manual_seed(0)
        if embedding is None:
            embedding = torch.randn(vocab, k, generator=generator)
        self.embed = nn.Embedding.from_pretrained(embedding.float().clone())
        self.layer = DraftLayer(config)
        self.norm = RMSNorm(k, config.rms_norm_eps)
        self.lm_head = _linear(k, config.draft_vocab_size)
        self.register_buffer("d2t", d2t)
        in_draft = torch.zeros(vocab, dtype=torch.bool).index_fill(0, d2t, True)
        self.register_buffer("in_draft", in_draft, persistent=False)
        self._rope = RopeTable(config.rope, config.head_dim)
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the weights anew: linear layers uniform as in nn.Linear, norms 1.

        generator: on the draft's device. The embedding is frozen and stays.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                module.weight.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, RMSNorm):
                module.weight.fill_(1.0)

    def require_fit(self, target: Any) -> None:
        """Raise ValueError when this draft was not made for the target."""
        require_fit(self.config, target)

    def fuse(self, features: Tensor) -> Tensor:
        """Fuse the target's three taps into one feature.

        features: [B, T, 3kt] in any float dtype
        Returns g: [B, T, k]. [Paper, section 3.1]
        """
        return self.fc(features.to(self.norm.weight.dtype))

    def forward(
        self,
        token_ids: Tensor,
        x: Tensor,
        positions: Tensor,
        cache: DraftCache | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Run n positions after those in the cache, causally, and append them to it.

        token_ids: [B, n]  position i gets token i+1, whose embedding is e
        x: [B, n, k]  g where the target has run, the draft's own a elsewhere
        positions: [n] int  the i of each row; below the cache's max_length
        cache: keys and values of earlier positions; None for none
        mask: [n, cached + n] bool  True = may attend, instead of the causal one
        Returns a: [B, n, k], before the final norm: what feeds the next step.
        Raises ValueError when the cache is full.
        """
        num_rows = token_ids.shape[1]
        if cache is None:
            length = int(positions.max()) + 1
        else:  # known without asking the device; a full cache is refused by append
            length = max(cache.max_length, cache.length + num_rows)
        cos, sin = self._rope.rows(positions, length, x)
        query, key, value = self.layer.project(self.embed(token_ids), x, cos, sin)
        if cache is not None:
            key, value = cache.append(key, value)
        if mask is None and num_rows > 1:  # a single row sees every key
            mask = causal_mask(num_rows, key.shape[2], x.device)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True
        )
        return self.layer.finish(x, attended)

    def forward_ttt(
        self, token_ids: Tensor, x: Tensor, positions: Tensor, steps: list[KeyValue]
    ) -> Tensor:
        """One step of training-time test over whole sequences.

        token_ids: [B, T]  at step s, row i gets token i+1+s
        x: [B, T, k]  g at step 0, the a of the step before at later ones
        positions: [T] int  row + s
        steps: keys and values of the steps before; this step's are appended
        Returns a: [B, T, k], before the final norm.

        Right padding needs no mask of its own: row i sees nothing right of itself, so
        pads reach only pads. [Paper, section 3.2]
        """
        length = int(positions.max()) + 1
        cos, sin = self._rope.rows(positions, length, x)
        query, key, value = self.layer.project(self.embed(token_ids), x, cos, sin)
        steps.append(KeyValue(key, value))
        return self.layer.finish(x, ttt_attention(query, steps))

    def logits(self, a: Tensor) -> Tensor:
        """Scores over the draft vocabulary. a: [..., k] -> [..., Vd]"""
        return self.lm_head(self.norm(a))

    def new_cache(self, max_length: int, batch_size: int = 1) -> DraftCache:
        """An empty cache for `max_length` positions, on the draft's device.

        Raises ValueError when max_length is below 1.
        """
        if max_length < 1:
            raise ValueError(f"A cache needs room for 1 position, not {max_length}.")
        c = self.config
        shape = (batch_size, c.num_kv_heads, max_length, c.head_dim)
        like = self.norm.weight.detach()
        return DraftCache(like.new_empty(shape), like.new_empty(shape))

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        """Spread draft probabilities over the target's vocabulary.

        probs: [..., Vd] -> [..., V]; tokens outside the draft vocabulary get 0.
        """
        out = probs.new_zeros(*probs.shape[:-1], self.config.vocab_size)
        return out.index_copy_(-1, self.d2t, probs)


def _checked_vocabulary(config: DraftConfig, draft_vocab: Tensor | None) -> Tensor:
    size, vocab = config.draft_vocab_size, config.vocab_size
    if draft_vocab is None:
        if size != vocab:
            raise ValueError(
                f"A draft with {size} of {vocab} tokens needs draft_vocab, the target "
                "ids of its tokens; pass them, or set draft_vocab_size to the "
                "target's."
            )
        return torch.arange(vocab)
    d2t = draft_vocab.to("cpu", torch.int64, copy=True)
    if tuple(d2t.shape) != (size,):
        raise ValueError(
            f"draft_vocab has shape {list(d2t.shape)}, but the config says "
            f"draft_vocab_size {size}; make them agree."
        )
    if not bool((d2t[1:] > d2t[:-1]).all()):
        raise ValueError(
            "draft_vocab must list every target id once, smallest first; sort it."
        )
    if int(d2t[0]) < 0 or int(d2t[-1]) >= vocab:
        raise ValueError(
            f"draft_vocab holds ids from {int(d2t[0])} to {int(d2t[-1])}, but the "
            f"target has ids 0 to {vocab - 1}; count it with this target's tokens."
        )
    return d2t

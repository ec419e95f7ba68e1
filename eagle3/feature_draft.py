"""What every feature draft has: one layer, run in two ways, and its cache.

A feature draft reads a feature of the target next to the embedding of the token after
it, and puts out what takes the feature's place one position later. [Paper, sections 2.2
and 3.1] Two forward paths share one set of weights: `forward` is causal attention with
a cache, for inference; `forward_ttt` is the attention of training-time test, for
training.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle3.layers import (
    DecoderLayer,
    DraftCache,
    KeyValue,
    LayerConfig,
    RMSNorm,
    ttt_attention,
)
from eagle3.masks import causal_mask
from eagle3.rope import RopeTable


class FeatureDraft(nn.Module):
    """The part of a draft that does not depend on what its layer reads.

    A subclass sets `reads`, `embed`, `layer` and `d2t`, and says how a feature enters
    (`fuse`, `enter`) and how it becomes scores (`logits`).
    """

    reads: str  # the field of a target's output that `fuse` takes
    embed: nn.Embedding  # [V, k], frozen
    layer: DecoderLayer
    d2t: Tensor  # [Vd] int64  target id of every draft token

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        self._rope = RopeTable(config.rope, config.head_dim)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the weights anew: linear layers uniform as in nn.Linear, norms 1.

        generator: on the draft's device. What is frozen stays.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                for parameter in module.parameters():
                    if parameter.requires_grad:
                        parameter.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, RMSNorm):
                module.weight.fill_(1.0)

    def enter(self, token_ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """What attention reads and what the residual stream starts from.

        token_ids: [B, n]   x: [B, n, k], features
        Returns [B, n, input width of the layer], and [B, n, k]. Raises
        NotImplementedError here.
        """
        raise NotImplementedError

    def leave(self, a: Tensor) -> Tensor:
        """What of the layer's output a [B, n, k] feeds the next step: a itself."""
        return a

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
        x: [B, n, k]  what `fuse` gave where the target has run, the draft's own a
            elsewhere
        positions: [n] int  the i of each row; below the cache's max_length
        cache: keys and values of earlier positions; None for none
        mask: [n, cached + n] bool  True = may attend, instead of the causal one
        Returns a: [B, n, k]: what feeds the next step.
        Raises ValueError when the cache is full.
        """
        num_rows = token_ids.shape[1]
        if cache is None:
            length = int(positions.max()) + 1
        else:  # known without asking the device; a full cache is refused by append
            length = max(cache.max_length, cache.length + num_rows)
        cos, sin = self._rope.rows(positions, length, x)
        inputs, stream = self.enter(token_ids, x)
        query, key, value = self.layer.project(inputs, cos, sin)
        if cache is not None:
            key, value = cache.append(key, value)
        if mask is None and num_rows > 1:  # a single row sees every key
            mask = causal_mask(num_rows, key.shape[2], x.device)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True
        )
        return self.leave(self.layer.finish(stream, attended))

    def forward_ttt(
        self, token_ids: Tensor, x: Tensor, positions: Tensor, steps: list[KeyValue]
    ) -> Tensor:
        """One step of training-time test over whole sequences.

        token_ids: [B, T]  at step s, row i gets token i+1+s
        x: [B, T, k]  from `fuse` at step 0, the a of the step before at later ones
        positions: [T] int  row + s
        steps: keys and values of the steps before; this step's are appended
        Returns a: [B, T, k].

        Right padding needs no mask of its own: row i sees nothing right of itself, so
        pads reach only pads. [Paper, section 3.2]
        """
        length = int(positions.max()) + 1
        cos, sin = self._rope.rows(positions, length, x)
        inputs, stream = self.enter(token_ids, x)
        query, key, value = self.layer.project(inputs, cos, sin)
        steps.append(KeyValue(key, value))
        return self.leave(self.layer.finish(stream, ttt_attention(query, steps)))

    def new_cache(self, max_length: int, batch_size: int = 1) -> DraftCache:
        """An empty cache for `max_length` positions, on the draft's device.

        Raises ValueError when max_length is below 1.
        """
        if max_length < 1:
            raise ValueError(f"A cache needs room for 1 position, not {max_length}.")
        c = self.config
        shape = (batch_size, c.num_kv_heads, max_length, c.head_dim)
        like = self.layer.post_norm.weight.detach()
        return DraftCache(like.new_empty(shape), like.new_empty(shape))

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        """Spread draft probabilities over the target's vocabulary.

        probs: [..., Vd] -> [..., V]; tokens outside the draft vocabulary get 0.
        """
        out = probs.new_zeros(*probs.shape[:-1], self.config.vocab_size)
        return out.index_copy_(-1, self.d2t, probs)


def require_same_sizes(hidden_size: int, vocab_size: int, target: Any) -> None:
    """Refuse a draft that was made for a target of other sizes.

    target: anything with hidden_size and vocab_size
    Raises ValueError that names the first size that differs, and the remedy.
    """
    for name, ours in (("hidden_size", hidden_size), ("vocab_size", vocab_size)):
        theirs = getattr(target, name)
        if ours != theirs:
            raise ValueError(
                f"The draft was made for a target with {name} {ours}, but this "
                f"target has {theirs}; load the target that the draft was trained for."
            )

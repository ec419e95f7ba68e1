"""The EAGLE-3 draft: one decoder layer that reads features and tokens together.

Position i reads the fused feature g_i of the target and the embedding e of token i+1,
and predicts token i+2. At drafted positions, where the target has not run yet, the
draft's own output a takes the place of g. [Paper, section 3.1]

Layer, names of the norms and order of the streams follow the official code
[Code: eagle/model/cnets.py], except that head_dim comes from the config and the draft
vocabulary is kept as absolute target ids. Two switches, both off, make it the draft
that engines call EAGLE-3.1: a norm on each tap before the fusion, and a normed output
fed back. [Code: speculators, models/eagle3/core.py] Left out: several layers, biases,
and one norm over all taps together.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eagle3.feature_draft import FeatureDraft, require_same_sizes
from eagle3.layers import DecoderLayer, LayerConfig, RMSNorm, layer_sizes, new_linear

NUM_TAPS = 3


@dataclass(frozen=True)
class DraftConfig(LayerConfig):
    """The sizes of a draft.

    hidden_size: k, the draft's width   target_hidden_size: kt, a tapped feature's
    vocab_size: V   draft_vocab_size: Vd   max_positions: longest trained context
    taps: the three layers i whose input `hidden_states[i]` the target hands over
    fc_norm: each tapped feature has a norm of its own before the fusion
    feed_normed: what feeds the next step is the output after the final norm
    own_embedding: the draft's embedding is not the target's; always so where their
        widths differ

    Raises ValueError when sizes contradict each other.
    """

    target_hidden_size: int
    draft_vocab_size: int
    taps: tuple[int, int, int]
    fc_norm: bool = False
    feed_normed: bool = False
    own_embedding: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "taps", tuple(self.taps))
        if self.hidden_size != self.target_hidden_size:
            object.__setattr__(self, "own_embedding", True)
        super().__post_init__()
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
        size = layer_sizes(target_config)
        return cls(
            **size,
            target_hidden_size=size["hidden_size"],
            draft_vocab_size=draft_vocab_size,
            taps=taps,
        )


def require_fit(config: DraftConfig, target: Any) -> None:
    """Refuse a draft that was not made for this target.

    target: anything with hidden_size, vocab_size, num_layers and taps, an
        `eagle3.target.Target` for one
    Raises ValueError that names the first size that differs, and the remedy.
    """
    require_same_sizes(config.target_hidden_size, config.vocab_size, target)
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


class TwoStreamLayer(DecoderLayer):
    """A LLaMA decoder layer whose attention reads two streams. [Paper, Figure 5]

    The residual stream is x alone; the embedding e enters through attention, and each
    stream has its own norm. [Code: eagle/model/cnets.py]
    """

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config, 2 * config.hidden_size)
        self.input_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)  # for e
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)  # for x

    def side_by_side(self, e: Tensor, x: Tensor) -> Tensor:
        """Embedding first, feature second: e, x [B, n, k] -> [B, n, 2k]."""
        return torch.cat([self.input_norm(e), self.hidden_norm(x)], dim=-1)


class Eagle3Draft(FeatureDraft):
    """The draft model with its fusion, its vocabulary and its own head.

    config: the sizes
    embedding: [V, k]  the target's, copied and frozen; None draws random numbers
    draft_vocab: [Vd]  target ids of the draft's tokens, ascending; may be None when
        the draft knows the whole vocabulary

    Weights start random from a fixed seed. Raises ValueError when `embedding` or
    `draft_vocab` does not fit the config.
    """

    reads = "features"  # the field of a target's output that `fuse` takes
    d2t: Tensor
    in_draft: Tensor  # [V] bool  is this target id a draft token?

    def __init__(
        self,
        config: DraftConfig,
        embedding: Tensor | None = None,
        draft_vocab: Tensor | None = None,
    ) -> None:
        super().__init__(config)
        k, vocab = config.hidden_size, config.vocab_size
        d2t = _checked_vocabulary(config, draft_vocab)
        if embedding is not None and tuple(embedding.shape) != (vocab, k):
            raise ValueError(
                f"The draft needs an embedding of {[vocab, k]}, not "
                f"{list(embedding.shape)}; pass the one of the target it is made for."
            )
        self.fc = new_linear(NUM_TAPS * config.target_hidden_size, k)
        if config.fc_norm:
            width, eps = config.target_hidden_size, config.rms_norm_eps
            self.fc_norm = nn.ModuleList(RMSNorm(width, eps) for _ in range(NUM_TAPS))
        generator = torch.Generator().manual_seed(0)
        if embedding is None:
            embedding = torch.randn(vocab, k, generator=generator)
        self.embed = nn.Embedding.from_pretrained(embedding.float().clone())
        self.layer = TwoStreamLayer(config)
        self.norm = RMSNorm(k, config.rms_norm_eps)
        self.lm_head = new_linear(k, config.draft_vocab_size)
        self.register_buffer("d2t", d2t)
        no_token = torch.zeros(vocab, dtype=torch.bool, device=d2t.device)
        in_draft = no_token.index_fill(0, d2t, True)
        self.register_buffer("in_draft", in_draft, persistent=False)
        self.reset_parameters(generator)

    def require_fit(self, target: Any) -> None:
        """Raise ValueError when this draft was not made for the target."""
        require_fit(self.config, target)

    @property
    def feature_width(self) -> int:
        """How many numbers per position `fuse` takes: 3kt."""
        return NUM_TAPS * self.config.target_hidden_size

    def fuse(self, features: Tensor) -> Tensor:
        """Fuse the target's three taps into one feature.

        features: [B, T, 3kt] in any float dtype
        Returns g: [B, T, k]. [Paper, section 3.1]
        """
        features = features.to(self.norm.weight.dtype)
        if self.config.fc_norm:
            taps = features.chunk(NUM_TAPS, dim=-1)  # [B, T, kt] each
            normed = [norm(tap) for norm, tap in zip(self.fc_norm, taps, strict=True)]
            features = torch.cat(normed, dim=-1)
        return self.fc(features)

    def enter(self, token_ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Attention reads both streams, the residual one is x: see the base class.

        token_ids: [B, n]   x: [B, n, k]  g, or the draft's own a
        Returns [B, n, 2k] and x.
        """
        return self.layer.side_by_side(self.embed(token_ids), x), x

    def leave(self, a: Tensor) -> Tensor:
        """What feeds the next step: a, or with `feed_normed` its norm. [B, n, k]"""
        return self.norm(a) if self.config.feed_normed else a

    def logits(self, a: Tensor) -> Tensor:
        """Scores over the draft vocabulary. a: [..., k] -> [..., Vd]"""
        return self.lm_head(a if self.config.feed_normed else self.norm(a))


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

"""The draft of EAGLE-1 and EAGLE-2: the next feature from this one and a token.

Position i reads the target's top feature f_i, which its head would turn into scores,
and the embedding of token i+1. It puts out an estimate of f_(i+1), and the target's own
frozen head turns that into scores for token i+2. [Paper, section 2.2] EAGLE-2 has the
same draft and another tree; HASS trains the same draft in several steps.

Layer as in the official code [Code: eagle/model/cnets1.py]: the two inputs are joined
by a linear layer with a bias, the decoder layer has no input norm, and no norm comes
after it, because the top feature is past the target's final norm already. Left out:
biases in attention, several layers, and a joining layer without bias.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eagle3.feature_draft import FeatureDraft, require_same_sizes
from eagle3.layers import DecoderLayer, LayerConfig, layer_sizes, new_linear
from eagle3.packed import linear_from


@dataclass(frozen=True)
class Eagle1Config(LayerConfig):
    """The sizes of a draft. Its width is the target's, because it shares its head.

    hidden_size: k   vocab_size: V   max_positions: longest trained context

    Raises ValueError when sizes contradict each other.
    """

    @classmethod
    def for_target(cls, target_config: Any) -> "Eagle1Config":
        """A draft layer shaped like one layer of the target.

        target_config: a Hugging Face config of the Llama kind, object or dict

        Raises ValueError when the config lacks a size or has an unsupported RoPE.
        """
        return cls(**layer_sizes(target_config))


def require_fit(config: Eagle1Config, target: Any) -> None:
    """Refuse a draft that was not made for this target.

    target: anything with hidden_size and vocab_size, a `Target` for one
    Raises ValueError that names the first size that differs, and the remedy.
    """
    require_same_sizes(config.hidden_size, config.vocab_size, target)


class Eagle1Draft(FeatureDraft):
    """Joins feature and embedding, runs one layer, and borrows the target's head.

    config: the sizes
    embedding, head: [V, k]  the target's, frozen and not copied where float32 is
        asked for anyway; None draws random numbers

    Weights start random from a fixed seed. Raises ValueError when `embedding` or
    `head` does not fit the config.
    """

    reads = "hidden"  # the target's output before its head
    d2t: Tensor  # [V]  the draft knows every token

    def __init__(
        self,
        config: Eagle1Config,
        embedding: Tensor | None = None,
        head: Tensor | None = None,
    ) -> None:
        super().__init__(config)
        k = config.hidden_size
        generator = torch.Generator().manual_seed(0)
        embedding = _checked(config, "embedding", embedding, generator)
        head = _checked(config, "head", head, generator)
        self.fc = new_linear(2 * k, k, bias=True)
        self.embed = nn.Embedding.from_pretrained(embedding.float())
        self.layer = DecoderLayer(config, k)
        self.lm_head = linear_from(head.float())
        self.register_buffer("d2t", torch.arange(config.vocab_size), persistent=False)
        self.reset_parameters(generator)

    def require_fit(self, target: Any) -> None:
        """Raise ValueError when this draft was not made for the target."""
        require_fit(self.config, target)

    def fuse(self, features: Tensor) -> Tensor:
        """The top feature as it is: [B, T, k] in any float dtype, to the draft's."""
        return features.to(self.layer.post_norm.weight.dtype)

    def enter(self, token_ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Join embedding and feature; the result is the residual stream, too.

        token_ids: [B, n]   x: [B, n, k]  f, or the draft's own output
        Returns [B, n, k] twice. [Code: cnets1.py: embedding first]
        """
        joined = self.fc(torch.cat([self.embed(token_ids), x], dim=-1))
        return joined, joined

    def logits(self, x: Tensor) -> Tensor:
        """The target's head on a feature, estimated or real. x: [..., k] -> [..., V]"""
        return self.lm_head(x)


def _checked(
    config: Eagle1Config, name: str, given: Tensor | None, generator: torch.Generator
) -> Tensor:
    shape = (config.vocab_size, config.hidden_size)
    if given is None:
        return torch.randn(shape, generator=generator)
    if tuple(given.shape) != shape:
        raise ValueError(
            f"The draft needs {name} of shape {list(shape)}, not {list(given.shape)}; "
            "pass the one of the target it is made for."
        )
    return given.detach()

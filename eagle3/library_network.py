"""A target through transformers' own modules: for every device, dtype and family.

The library's model runs unchanged. It is given our cache, our mask and our positions,
and hooks read the inputs of the tapped layers for the length of one pass. [Ours]
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from eagle3.cache import KVCache
from eagle3.packed import can_pack
from eagle3.rope import of_full_attention


def refuse_unsupported(config: PretrainedConfig) -> None:
    """Refuse a model that can't forget rejected tokens by a count, by its config.

    Full attention and sliding windows run: our cache keeps what a window has passed,
    so it can be rolled back, and the window is in the mask. Raises ValueError for
    chunks, recurrence and attention to later tokens. [Ours]
    """
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    others = sorted(kinds - {"full_attention", "sliding_attention"})
    if others:
        raise ValueError(
            f"this target ({config.model_type}) has layers of the kind '{others[0]}', "
            "which cannot forget rejected tokens; use a model whose layers are all "
            "full or sliding-window attention."
        )
    if getattr(config, "use_bidirectional_attention", None):
        raise ValueError(
            f"this target ({config.model_type}) attends to later tokens, so it can't "
            "write a text token by token; use a causal language model."
        )


def context_length(config: PretrainedConfig) -> int:
    """The context window in tokens.

    LongRoPE turns keys by other angles once a text passes the length that the model
    was first trained with. Keys that are cached by then would be wrong, so the window
    ends there. [Ours]
    """
    rope = of_full_attention(getattr(config, "rope_parameters", None) or {})
    length = config.max_position_embeddings
    if rope.get("rope_type") != "longrope":
        return length
    first = rope.get("original_max_position_embeddings")
    first = first or getattr(config, "original_max_position_embeddings", None)
    return min(length, first or length)


def refuse_unsupported_model(model: nn.Module) -> None:
    """Refuse what only the model's class tells: recurrence, or another structure.

    Raises ValueError; also for an attention that takes no mask of ours. [Ours]
    """
    kind = model.config.model_type
    if getattr(model, "_is_stateful", False):
        raise ValueError(
            f"this target ({kind}) keeps a recurrent state, which cannot forget "
            "rejected tokens; use a full-attention model."
        )
    if not hasattr(model.get_decoder(), "layers"):
        raise ValueError(
            f"this target ({kind}) doesn't name its decoder layers as Llama does, so "
            "they can't be tapped; use a model of a family like Llama, Mistral or Qwen."
        )
    config = model.config.get_text_config()
    attention = config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise ValueError(
            f"this target was loaded with attention '{attention}', which takes no mask "
            "of ours; load it with attn_implementation='sdpa'."
        )
    # Some releases of transformers run it all the same, without the cap.
    if attention == "sdpa" and getattr(config, "attn_logit_softcapping", None):
        raise ValueError(
            f"this target ({kind}) caps its attention scores, which attention 'sdpa' "
            "leaves out; load it with attn_implementation='eager'."
        )


def can_be_lean(model: nn.Module) -> bool:
    """Whether `LeanLlama` computes the same as this model here. [Ours]"""
    config, weight = model.config, model.get_input_embeddings().weight
    return (
        type(model) is transformers.LlamaForCausalLM
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and not config.attention_bias
        and not config.mlp_bias
        and config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
        and can_pack()
    )


class LibraryNetwork:
    """Runs a transformers model with our cache and taps the inputs of its layers.

    model: any that `refuse_unsupported_model` lets through
    taps: layer numbers; () when nobody reads features

    [Ours]
    """

    def __init__(self, model: nn.Module, taps: tuple[int, ...]):
        self.model, self.taps = model.eval(), taps
        config = model.config.get_text_config()
        # Attention in plain operations adds its mask to the scores.
        self.adds_mask = config._attn_implementation == "eager"
        kinds = getattr(config, "layer_types", None)
        slides = kinds is None or "sliding_attention" in kinds
        self.window = getattr(config, "sliding_window", None) if slides else None
        # Where no layer has a kind of its own, they all have the window.
        self.has_kinds = kinds is not None
        # transformers 5.23 renamed the argument.
        names = inspect.signature(type(model).forward).parameters
        self.cache_argument = "cache" if "cache" in names else "past_key_values"

    def forward(
        self,
        input_ids: Tensor,
        cache: KVCache,
        positions: Tensor,
        mask: Tensor | None,
        last_only: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the block through all layers and append its keys and values to `cache`.

        input_ids: [B, n]        positions: [B or 1, n]
        mask: [B or 1, n, cached + n] bool, True = may attend; None = attend to all
        last_only: logits of the last position alone
        Returns logits [B, n or 1, V], features [B, n, taps * k] and the hidden state
        after the final norm [B, n, k]. Raises ValueError when a layer doesn't use the
        cache. [Ours]
        """
        layers = [_CacheLayer(cache, index) for index in range(len(cache.keys))]
        if mask is None and self.window:  # or the library would make one of its own
            seen = cache.length + input_ids.shape[1]
            mask = torch.ones(1, 1, seen, dtype=torch.bool, device=input_ids.device)
        with self._hooks() as kept:
            output = self.model(
                input_ids=input_ids,
                position_ids=positions.expand(input_ids.shape[0], -1),
                attention_mask=self._masks(mask),
                logits_to_keep=1 if last_only else 0,
                use_cache=True,
                **{self.cache_argument: Cache(layers=layers)},
            )
        if None in cache.keys:
            raise ValueError(
                f"this target ({self.model.config.model_type}) has layers that keep no "
                "keys and values, so it cannot forget rejected tokens; use a "
                "full-attention model."
            )
        cache.advance(input_ids.shape[1])
        hidden = kept["hidden"]
        # Without taps the features are [B, n, 0].
        tapped = [hidden[..., :0], *(kept[tap] for tap in self.taps)]
        return output.logits, torch.cat(tapped, dim=-1), hidden

    def _masks(self, mask: Tensor | None) -> Tensor | dict[str, Tensor] | None:
        """The mask as the library wants it: [B, 1, n, S], or one for each kind.

        mask: [B, n, S] bool, without windows; None = attend to all, no windows
        """
        if mask is None or not self.window or mask.shape[-1] <= self.window:
            return self._own_form(mask)
        sliding = self._own_form(windowed(mask, self.window))
        if not self.has_kinds:
            return sliding
        return {"full_attention": self._own_form(mask), "sliding_attention": sliding}

    def _own_form(self, mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        mask = mask[:, None]
        return _additive(mask, self.model.dtype) if self.adds_mask else mask

    @contextmanager
    def _hooks(self) -> Iterator[dict[int | str, Tensor]]:
        """Keeps what passes the taps, for one pass; the model stays as it was."""
        kept: dict[int | str, Tensor] = {}
        decoder, handles = self.model.get_decoder(), []
        for tap in self.taps:
            handles.append(
                decoder.layers[tap].register_forward_pre_hook(
                    lambda _module, inputs, tap=tap: kept.update({tap: inputs[0]})
                )
            )
        handles.append(
            decoder.register_forward_hook(
                lambda _module, _inputs, output: kept.update(
                    hidden=output.last_hidden_state
                )
            )
        )
        # Given a slice [B, 1, k], the head would copy its weight for every text.
        handles.append(
            self.model.get_output_embeddings().register_forward_pre_hook(
                lambda _module, inputs: (inputs[0].contiguous(), *inputs[1:])
            )
        )
        try:
            yield kept
        finally:
            for handle in handles:
                handle.remove()


def windowed(mask: Tensor, window: int) -> Tensor:
    """The mask with a sliding window: a token sees itself and `window` - 1 before it.

    mask: [B, n, S] bool -> [B, n, S]   S keys

    What a row may see is the text on its path, in order. So the distance to a key is
    the number of visible keys after it, in a chain, a padded batch and a tree alike.
    [Ours]
    """
    seen = mask.cumsum(-1)
    return mask & (seen[..., -1:] - seen < window)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill_(~mask, torch.finfo(dtype).min)


class _CacheLayer(CacheLayerMixin):
    """One layer of our KVCache behind the library's interface."""

    def __init__(self, cache: KVCache, index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: KVCache allocates on its first write."""

    def update(self, key_states: Tensor, value_states: Tensor, *_args, **_kwargs):
        return self.cache.write(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length) -> tuple[int, int]:
        return self.cache.length + int(query_length), 0

    def get_seq_length(self, *_args) -> int:
        return self.cache.length

    def get_max_length(self) -> int:
        return self.cache.max_length

    def get_max_cache_shape(self) -> int:  # the name in older 5.x releases
        return self.cache.max_length

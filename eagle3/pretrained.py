"""Models as transformers loads them: the default one from its wheel, or any other.

Here the library's loader is used, its silent faults are made loud (a missing tensor,
which it fills with random values) and its long messages short. What runs the loaded
model is in target.py. [Ours]
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from filelock import FileLock
from safetensors import SafetensorError
from torch import nn
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging as library_logging

from eagle3 import fetch

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
)


def library_model(
    name_or_path: str | Path | None = None, *, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """The target as transformers' own model, untouched: the thing to compare with.

    name_or_path: a folder or hub id; None is the default SmolLM2-135M-Instruct

    Raises FetchError when the default can't be had, ValueError when the model can't be
    read or lacks tensors. [Ours]
    """
    source = source_of(name_or_path)
    options = {"dtype": dtype, "trust_remote_code": False}
    if getattr(load_config(source), "attn_logit_softcapping", None):
        options["attn_implementation"] = "eager"  # the one that has the cap everywhere
    with _reading(source), _quiet_library():
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            source, output_loading_info=True, **options
        )
    missing = sorted(report["missing_keys"])
    if missing:  # the library would go on with random values in their place
        raise ValueError(
            f"the model at {source!r} lacks {len(missing)} of its tensors, such as "
            f"{missing[0]}: its files are damaged or belong to another architecture."
        )
    return model.eval().requires_grad_(False)


def source_of(name_or_path: str | Path | None) -> str:
    """The folder or hub id to load from; None is the default model, fetched. [Ours]"""
    return str(fetch_default_model() if name_or_path is None else name_or_path)


def load_config(source: str) -> PretrainedConfig:
    """The library's config of the text model at this folder or hub id.

    Raises ValueError when it can't be read. [Ours]
    """
    with _reading(source):
        config = transformers.AutoConfig.from_pretrained(
            source, trust_remote_code=False
        )
    return config.get_text_config()


def load_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The model's tokenizer; None for a folder that holds none.

    Raises ValueError when it can't be read. [Ours]
    """
    folder = Path(source)
    if folder.is_dir() and not any((folder / n).is_file() for n in TOKENIZER_FILES):
        return None
    with _reading(source):
        return transformers.AutoTokenizer.from_pretrained(
            source, trust_remote_code=False
        )


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turns the library's many errors and long messages into one clear sentence."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"no target can be loaded from {source!r}: it must be a folder with a "
            "whole causal language model of a kind that transformers knows, or a hub "
            f"id that can be reached from here ({reason[:200]})."
        ) from error


def fetch_default_model() -> Path:
    """The folder of the default model, fetched and converted on first use.

    The conversion (GGUF to float32 safetensors, half a gigabyte) happens in a temporary
    folder that is renamed when it is complete, under a lock: two processes never
    convert into each other, and a killed one leaves nothing that looks finished. A
    conversion whose files have changed or lost bytes is made again.

    Raises FetchError when the model can't be had or the cache can't be written. [Ours]
    """
    folder = fetch.cache_folder() / "SmolLM2-135M-Instruct"
    if fetch.is_sealed(folder, fetch.GGUF_SHA256):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not fetch.is_sealed(folder, fetch.GGUF_SHA256):
                with fetch.FreshFolder(folder) as temporary:
                    _fetch_into(temporary)
    except (OSError, SafetensorError) as error:
        raise fetch.FetchError(
            f"the default model could not be written to {folder.parent} ({error}): "
            "make room there, or set EAGLE3_CACHE to a folder that you may write to."
        ) from error
    return folder


def _fetch_into(folder: Path) -> None:
    gguf = fetch.default_model_gguf(folder)
    _convert_gguf(gguf, folder)
    for leftover in (*folder.glob("*.gguf"), *folder.glob("*.whl")):
        leftover.unlink()
    fetch.seal(folder, fetch.GGUF_SHA256)


def _convert_gguf(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    with _quiet_library():
        quantized = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32
        )
        # A model that came from GGUF refuses to be saved; a clean twin does not.
        vars(quantized.config).pop("quantization_config", None)
        model = transformers.AutoModelForCausalLM.from_config(
            quantized.config, dtype=torch.float32
        )
        model.load_state_dict(quantized.state_dict())
        model.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    # The weights are written for the owner alone; others may share the cache.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Silences the library's progress bars and notices while a model loads."""
    verbosity = library_logging.get_verbosity()
    bars = library_logging.is_progress_bar_enabled()
    library_logging.set_verbosity_error()
    library_logging.disable_progress_bar()
    try:
        yield
    finally:
        library_logging.set_verbosity(verbosity)
        if bars:
            library_logging.enable_progress_bar()

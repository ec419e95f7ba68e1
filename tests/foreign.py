"""Checkpoints of other projects for tests: the oracle set's, and changed copies."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from oracles import FOLDER, tensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle3.formats.export import write_stored
from eagle3.formats.stored import open_stored

OFFICIAL = FOLDER / "draft_official"
EAGLE1 = FOLDER / "draft_eagle1"
TARGET = FOLDER / "target"
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def oracle_target(**changes: Any) -> SimpleNamespace:
    """The set's target as far as a draft needs it."""
    weights = tensors("target", "model.safetensors")
    values = {
        "hidden_size": 64,
        "vocab_size": 256,
        "num_layers": 8,
        "taps": (2, 4, 5),
        "embedding": weights["model.embed_tokens.weight"],
        "head": weights["lm_head.weight"],
        "device": torch.device("cpu"),
    }
    return SimpleNamespace(**values | changes)


def copy(source: Path, folder: Path) -> Path:
    """A copy that may be changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)
    return folder


def as_format(name: str, folder: Path, source: Path = OFFICIAL) -> Path:
    """The set's draft in another format."""
    write_stored(open_stored(source), folder, name, oracle_target())
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def edit(folder: Path, *drop: str, **keys: Any) -> Path:
    """Change keys of a config.json."""
    raw = read_config(folder) | keys
    for key in drop:
        raw.pop(key)
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    return folder


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def put(folder: Path, values: dict[str, Tensor]) -> Path:
    """Replace the tensors of a folder."""
    save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def cast(values: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in values.items()
    }


def assert_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    """Same names, dtypes and bits."""
    assert set(one) == set(two)
    for name, value in one.items():
        assert value.dtype == two[name].dtype, name
        assert torch.equal(value, two[name]), name

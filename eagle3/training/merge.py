"""All shards of a data set as one file, to be shared and committed. [Ours]"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from eagle3.training.data import MADE_FROM, DataConfig, shard_paths


def merge_shards(folder: Path, out: Path) -> int:
    """Write the sequences of all shards under `folder` into the file `out`.

    Returns how many. Raises FileNotFoundError when there are no shards, ValueError when
    some of their configuration are missing or they are of several. [Ours]
    """
    paths = shard_paths(folder)
    config = data_config(paths[0])
    num_missing = len(config.shards()) - len(paths)
    if num_missing or any(data_config(path) != config for path in paths):
        raise ValueError(
            f"{folder} holds {len(paths)} shards of {len(config.shards())} of one "
            "configuration: run `python -m eagle3 generate-data` to its end first."
        )
    shards = [load_file(path) for path in paths]
    whole = {name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    save_file(whole, temporary, {MADE_FROM: json.dumps({"config": asdict(config)})})
    temporary.replace(out)
    return len(whole["lengths"])


def data_config(path: Path) -> DataConfig:
    """What a shard or a merged file was made from: prompts and answers follow from it.

    Raises ValueError for a file that doesn't tell. [Ours]
    """
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(MADE_FROM, "")
    try:
        return DataConfig(**json.loads(text)["config"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{path} doesn't say what it was made from: generate the data anew."
        ) from None

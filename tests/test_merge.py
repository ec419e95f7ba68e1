"""Merged training data: the same sequences as the shards, and what they came from."""

import dataclasses

import pytest
import torch
from safetensors.torch import save_file
from test_data import CONFIG, worker  # noqa: F401  a fixture

from eagle3.training import data
from eagle3.training.data import load_data
from eagle3.training.merge import data_config, merge_shards


def write(folder, config, shards=(0, 1, 2)):
    folder.mkdir(exist_ok=True)
    for shard in shards:
        data._write_shard(shard, folder)


def test_a_merged_file_holds_the_sequences_of_all_shards(worker, tmp_path):  # noqa: F811
    worker(CONFIG)
    write(tmp_path / "shards", CONFIG)
    path = tmp_path / "new" / "all.safetensors"
    assert merge_shards(tmp_path / "shards", path) == 10
    want, got = load_data(tmp_path / "shards"), load_data(path)
    assert len(want) == len(got) == 10
    for one, other in zip(want, got, strict=True):
        assert torch.equal(one.token_ids, other.token_ids)
        assert (one.num_prompt, one.kind, one.temperature) == (
            other.num_prompt,
            other.kind,
            other.temperature,
        )
    assert data_config(path) == CONFIG
    assert [p.name for p in path.parent.iterdir()] == ["all.safetensors"]


def test_a_part_of_the_shards_is_not_merged(worker, tmp_path):  # noqa: F811
    worker(CONFIG)
    write(tmp_path / "shards", CONFIG, (0, 2))
    with pytest.raises(ValueError, match="2 shards of 3 of one configuration"):
        merge_shards(tmp_path / "shards", tmp_path / "all.safetensors")
    assert not (tmp_path / "all.safetensors").exists()


def test_shards_of_two_configurations_are_not_merged(worker, tmp_path):  # noqa: F811
    worker(CONFIG)
    write(tmp_path / "shards", CONFIG, (0, 1))
    worker(dataclasses.replace(CONFIG, seed=1))
    write(tmp_path / "shards", CONFIG, (2,))
    with pytest.raises(ValueError, match="3 shards of 3 of one configuration"):
        merge_shards(tmp_path / "shards", tmp_path / "all.safetensors")


def test_a_file_of_unknown_making_is_refused(tmp_path):
    path = tmp_path / "shard-00000.safetensors"
    save_file({"lengths": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="doesn't say what it was made from"):
        data_config(path)

"""eagle3.checkpoint: what is written comes back, and nothing else is accepted."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagle3 import checkpoint, model_files
from eagle3.checkpoint import CheckpointError, load_draft, save_draft, tensor_shapes
from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.layers import LayerConfig
from eagle3.rope import RopeConfig

CONFIG = DraftConfig(
    hidden_size=12,
    target_hidden_size=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=20,
    vocab_size=30,
    draft_vocab_size=10,
    rms_norm_eps=1e-5,
    rope=RopeConfig(500_000.0, "llama3", 8.0, 1.0, 4.0, 64),
    max_positions=64,
    taps=(2, 4, 5),
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fake_target(**change) -> SimpleNamespace:
    values = {
        "hidden_size": 12,
        "vocab_size": 30,
        "num_layers": 8,
        "taps": (2, 4, 5),
        "embedding": random(30, 12, seed=7),
        "head": random(30, 12, seed=9),
        "device": torch.device("cpu"),
    }
    return SimpleNamespace(**values | change)


def make_draft(config: DraftConfig = CONFIG) -> Eagle3Draft:
    embedding = random(config.vocab_size, config.hidden_size, seed=7)
    draft = Eagle3Draft(config, embedding, torch.arange(0, 30, 3))
    for i, parameter in enumerate(draft.parameters()):  # norms too
        if parameter.requires_grad:
            parameter.data += 0.1 * random(*parameter.shape, seed=i)
    return draft


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_draft(make_draft(), tmp_path / "draft")
    return tmp_path / "draft"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_saved_comes_back(tmp_path, dtype):
    saved = make_draft()
    save_draft(saved, tmp_path, dtype)
    stored = load_file(tmp_path / "model.safetensors")
    assert {t.dtype for name, t in stored.items() if name != "d2t"} == {dtype}
    loaded = load_draft(tmp_path, fake_target())
    assert loaded.config == CONFIG
    assert torch.equal(loaded.in_draft, saved.in_draft)
    want, got = saved.state_dict(), loaded.state_dict()
    assert set(want) == set(got)
    for name, value in want.items():
        rounded = value if name in ("d2t", "embed.weight") else value.to(dtype)
        assert torch.equal(got[name], rounded.to(value.dtype)), name
    trained = [p for p in loaded.parameters() if p.requires_grad]
    assert len(trained) == 13 and not loaded.embed.weight.requires_grad


def test_the_table_of_shapes_is_the_draft(tmp_path):
    state = make_draft().state_dict()
    assert tuple(state.pop("embed.weight").shape) == (30, 12)
    assert {name: tuple(t.shape) for name, t in state.items()} == tensor_shapes(CONFIG)


def test_dtype_in_memory_is_the_one_asked_for(folder):
    draft = load_draft(folder, fake_target(), torch.bfloat16)
    assert {p.dtype for p in draft.parameters()} == {torch.bfloat16}
    assert draft.d2t.dtype == torch.int64


def test_the_embedding_is_the_targets_and_not_stored(folder):
    assert "embed.weight" not in load_file(folder / "model.safetensors")
    target = fake_target(embedding=random(30, 12, seed=8))
    assert torch.equal(load_draft(folder, target).embed.weight, target.embedding)


def test_a_draft_of_another_width_stores_its_own_embedding(tmp_path):
    config = replace(CONFIG, target_hidden_size=18)
    saved = make_draft(config)
    save_draft(saved, tmp_path)
    target = fake_target(hidden_size=18, embedding=random(30, 18))
    assert torch.equal(load_draft(tmp_path, target).embed.weight, saved.embed.weight)


def test_the_default_draft_and_target_are_used(folder, monkeypatch):
    module = SimpleNamespace(load_target=fake_target)
    monkeypatch.setitem(sys.modules, "eagle3.target", module)
    monkeypatch.setattr(checkpoint, "SHIPPED", folder)
    assert load_draft().config == CONFIG


def test_saving_again_replaces_whole_files_and_keeps_others(folder):
    (folder / "README.md").write_text("mine", encoding="utf-8")
    second = make_draft()
    second.fc.weight.data.zero_()
    save_draft(second, folder)
    assert not load_draft(folder, fake_target()).fc.weight.any()
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "config.json", "model.safetensors"}


def test_a_crash_while_writing_leaves_the_old_draft(folder, monkeypatch):
    before = (folder / "model.safetensors").read_bytes()

    def crash(tensors, path, metadata):
        path.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(model_files, "save_file", crash)
    with pytest.raises(OSError, match="disk full"):
        save_draft(make_draft(), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e6])
def test_weights_that_are_not_finite_on_disk_are_not_written(tmp_path, bad):
    draft = make_draft()
    draft.layer.up.weight.data[0, 0] = bad  # 1e6 is too large for float16
    with pytest.raises(CheckpointError, match=r"'layer.up.weight' as torch.float16"):
        save_draft(draft, tmp_path / "draft", torch.float16)
    assert not (tmp_path / "draft").exists()


def test_other_dtypes_and_packed_layers_are_not_written(tmp_path):
    draft = make_draft()
    with pytest.raises(CheckpointError, match=r"float16, not torch\.float64"):
        save_draft(draft, tmp_path / "draft", torch.float64)
    draft.layer.gate = torch.nn.Identity()  # what packing leaves: no weight
    with pytest.raises(CheckpointError, match=r"no 'layer\.gate\.weight'"):
        save_draft(draft, tmp_path / "draft")
    assert not (tmp_path / "draft").exists()


def rewrite(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    stored = load_file(path)
    change(stored)
    save_file(stored, path)


def drop(name):
    return lambda stored: stored.pop(name)


def put(name, value):
    return lambda stored: stored.__setitem__(name, value)


@pytest.mark.parametrize("name", tensor_shapes(CONFIG))
def test_every_tensor_is_required_with_its_shape_and_finite(folder, name):
    whole = load_file(folder / "model.safetensors")
    rewrite(folder, drop(name))
    with pytest.raises(CheckpointError, match=rf"lacks \['{name}'\] and has nothing"):
        load_draft(folder, fake_target())

    rewrite(folder, put(name, whole[name][:-1].clone()))
    with pytest.raises(CheckpointError, match=f"'{name}' in .* has shape"):
        load_draft(folder, fake_target())

    if name == "d2t":
        rewrite(folder, put(name, whole[name].float()))
        message = r"'d2t' in .* has dtype torch\.float32"
    else:
        spoilt = whole[name].clone()
        spoilt.view(-1)[-1] = float("nan")
        rewrite(folder, put(name, spoilt))
        message = f"'{name}' in .* holds NaN"
    with pytest.raises(CheckpointError, match=message):
        load_draft(folder, fake_target())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("fc.bias", torch.zeros(12)), r"has \['fc\.bias'\] left over"),
        (put("embed.weight", torch.zeros(30, 12)), r"has \['embed\.weight'\] left"),
        (put("norm.weight", torch.ones(12).int()), "must be floating point"),
        (put("d2t", torch.arange(9, -1, -1)), "smallest first"),
        (put("d2t", torch.arange(21, 31)), "ids from 21 to 30"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message):
        load_draft(folder, fake_target())


@pytest.mark.parametrize("keep", [0, 4, 100, -4])
def test_truncated_weights_are_refused(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="truncated or not a safetensors file"):
        load_draft(folder, fake_target())


def test_missing_files_are_refused(folder):
    with pytest.raises(CheckpointError, match="There is no draft in"):
        load_draft(folder / "nowhere", fake_target())
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors' is missing"):
        load_draft(folder, fake_target())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.pop("taps"), "missing or unknown fields: taps"),
        (lambda raw: raw.update(bias=True), "missing or unknown fields: bias"),
        (lambda raw: raw.update(version=2), "does not say"),
        (lambda raw: raw.update(format="llama"), "does not say"),
        (lambda raw: raw.update(hidden_size="12"), "'12' for hidden_size"),
        (lambda raw: raw.update(hidden_size=12.0), "12.0 for hidden_size"),
        (lambda raw: raw.update(num_heads=True), "True for num_heads"),
        (lambda raw: raw.update(taps=["a", 1, 2]), "value of the wrong type"),
        (lambda raw: raw.update(rope=None), "'rope' in .* missing or unknown"),
        (lambda raw: raw["rope"].pop("theta"), "missing or unknown fields: theta"),
        (lambda raw: raw["rope"].update(scaling="yarn"), "'yarn' is not supported"),
        (lambda raw: raw.update(intermediate_size=24), r"has shape .* needs \[24, 12"),
    ],
)
def test_configs_that_do_not_fit_are_refused(folder, change, message):
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_draft(folder, fake_target())


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_configs_that_are_not_ours_are_refused(folder, text):
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"not valid JSON|does not say"):
        load_draft(folder, fake_target())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 16}, "hidden_size 12, but this target has 16"),
        ({"vocab_size": 31}, "vocab_size 30, but this target has 31"),
        ({"num_layers": 5}, "only 5 layers"),
        ({"taps": (1, 4, 5)}, "load the target with the draft's taps"),
    ],
)
def test_a_draft_for_another_target_is_refused_before_weights_are_read(
    folder, change, message
):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=message):
        load_draft(folder, fake_target(**change))


# EAGLE-1's drafts


EAGLE1 = Eagle1Config(
    **{field.name: getattr(CONFIG, field.name) for field in fields(LayerConfig)}
)


def make_eagle1() -> Eagle1Draft:
    draft = Eagle1Draft(EAGLE1, random(30, 12, seed=7), random(30, 12, seed=9))
    for i, parameter in enumerate(draft.parameters()):
        if parameter.requires_grad:
            parameter.data += 0.1 * random(*parameter.shape, seed=i)
    return draft


@pytest.fixture
def eagle1_folder(tmp_path: Path) -> Path:
    save_draft(make_eagle1(), tmp_path / "draft")
    return tmp_path / "draft"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_eagle1_draft_comes_back_without_what_is_the_targets(tmp_path, dtype):
    saved = make_eagle1()
    save_draft(saved, tmp_path, dtype)
    stored = load_file(tmp_path / "model.safetensors")
    trained = {n: p for n, p in saved.named_parameters() if p.requires_grad}
    shapes = {name: tuple(p.shape) for name, p in trained.items()}
    assert tensor_shapes(EAGLE1) == shapes and set(stored) == set(shapes)
    target = fake_target()
    loaded = load_draft(tmp_path, target)
    assert type(loaded) is Eagle1Draft and loaded.config == EAGLE1
    for name, value in trained.items():
        assert torch.equal(loaded.get_parameter(name), value.to(dtype).float()), name
    assert torch.equal(loaded.embed.weight, target.embedding)
    assert torch.equal(loaded.lm_head.weight, target.head)
    assert not loaded.lm_head.weight.requires_grad


@pytest.mark.parametrize("name", tensor_shapes(EAGLE1))
def test_every_tensor_of_an_eagle1_draft_is_required(eagle1_folder, name):
    whole = load_file(eagle1_folder / "model.safetensors")
    rewrite(eagle1_folder, drop(name))
    with pytest.raises(CheckpointError, match=rf"lacks \['{name}'\] and has nothing"):
        load_draft(eagle1_folder, fake_target())
    rewrite(eagle1_folder, put(name, whole[name][:-1].clone()))
    with pytest.raises(CheckpointError, match=f"'{name}' in .* has shape"):
        load_draft(eagle1_folder, fake_target())


def test_the_two_kinds_are_not_mixed_up(eagle1_folder, tmp_path):
    other = tmp_path / "eagle3"
    save_draft(make_draft(), other)
    weights = (eagle1_folder / "model.safetensors").read_bytes()
    (other / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match=r"has \['fc\.bias'\] left over"):
        load_draft(other, fake_target())
    path = eagle1_folder / "config.json"
    path.write_text(path.read_text("utf-8").replace("eagle1-", "eagle3-"), "utf-8")
    with pytest.raises(CheckpointError, match="missing or unknown fields: draft_vocab"):
        load_draft(eagle1_folder, fake_target())


def test_an_eagle1_draft_for_another_target_is_refused(eagle1_folder):
    (eagle1_folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="hidden_size 12, but this target has 16"):
        load_draft(eagle1_folder, fake_target(hidden_size=16))


# What came after version 1: switches that older files don't name


NEWER = ("fc_norm", "feed_normed", "own_embedding")


def test_a_config_without_the_newer_switches_means_none_of_them(folder):
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert [raw.pop(name) for name in NEWER] == [False] * 3
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert load_draft(folder, fake_target()).config == CONFIG


@pytest.mark.parametrize("name", NEWER)
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_switch_is_true_or_false(folder, name, value):
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(raw | {name: value}), encoding="utf-8")
    with pytest.raises(
        CheckpointError, match=f"for {name}, which must be of type bool"
    ):
        load_draft(folder, fake_target())


@pytest.mark.parametrize("name", NEWER)
def test_a_newer_draft_comes_back(tmp_path, name):
    saved = make_draft(replace(CONFIG, **{name: True}))
    save_draft(saved, tmp_path)
    target = fake_target(embedding=random(30, 12, seed=8))
    loaded = load_draft(tmp_path, target)
    assert loaded.config == saved.config and getattr(loaded.config, name) is True
    for key, value in saved.state_dict().items():
        same = name == "own_embedding" or key != "embed.weight"
        assert torch.equal(loaded.state_dict()[key], value) is same, key


def test_the_switches_and_the_tensors_must_agree(folder):
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(raw | {"fc_norm": True}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"lacks \['fc_norm\.0\.weight', "):
        load_draft(folder, fake_target())


def test_all_that_is_wrong_with_a_file_is_listed(folder):
    rewrite(folder, drop("norm.weight"))
    rewrite(folder, put("fc.weight", torch.ones(3, 3)))
    rewrite(folder, put("layer.q.weight", torch.ones(32, 24).double()))
    with pytest.raises(CheckpointError) as caught:
        load_draft(folder, fake_target())
    for name in ("norm.weight", "fc.weight", "layer.q.weight"):
        assert f"'{name}'" in str(caught.value)

"""eagle3.formats: official checkpoints in and out, with the official numbers.

Right values: the outputs of the official code and of SpecForge under data/oracles, the
recorded output of the two exporters, and the bits of the file that was read.
"""

import json

import pytest
import torch
from foreign import (
    EAGLE1,
    LLAMA3,
    OFFICIAL,
    TARGET,
    as_format,
    assert_same,
    cast,
    copy,
    edit,
    oracle_target,
    put,
    read_config,
    weights,
)
from oracles import ATOL_HIDDEN, ATOL_LOGITS, FOLDER, ROPES, official_draft, tensors
from oracles import meta as oracle_meta

from eagle3.checkpoint import SHIPPED, CheckpointError, load_draft, save_draft
from eagle3.eagle1 import Eagle1Draft
from eagle3.formats.convert import convert
from eagle3.formats.export import FORMAT_NAMES, write_stored
from eagle3.formats.stored import open_stored

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
OTHERS = [name for name in FORMAT_NAMES if name != "eagle3"]


# What transformers writes and nobody reads
TRANSFORMERS_KEYS = {
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "dtype",
    "initializer_range",
    "pretraining_tp",
    "transformers_version",
    "use_cache",
}


def assert_official_outputs(draft, case: str) -> None:
    """Prefill, then the official chain steps from the cache."""
    want = tensors(case)
    cache, rows = draft.new_cache(32), torch.arange(12)
    g = draft.fuse(want["prefill.features"])
    a = draft(want["prefill.input_ids"], g, rows, cache)
    torch.testing.assert_close(a, want["prefill.a"], rtol=0, atol=ATOL_HIDDEN)
    torch.testing.assert_close(
        draft.logits(a), want["prefill.logits"], rtol=0, atol=ATOL_LOGITS
    )
    for step in range(4):
        ids, x = want[f"step{step}.input_ids"], want[f"step{step}.x"]
        a = draft(ids, x, torch.tensor([12 + step]), cache)
        logits = want[f"step{step}.logits"]
        torch.testing.assert_close(draft.logits(a), logits, rtol=0, atol=ATOL_LOGITS)


# the RoPE keys that the case's config had -> what the draft must compute
CASES = {
    "draft_forward_theta10000": {},
    "draft_forward_theta500000": {"rope_theta": 500_000.0},
    "draft_forward_rope_linear": {
        "rope_theta": 500_000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "draft_forward_rope_llama3": {"rope_theta": 500_000.0, "rope_scaling": LLAMA3},
}


@pytest.mark.parametrize(("case", "keys"), CASES.items())
def test_an_official_folder_gives_the_official_logits(tmp_path, case, keys):
    if "llama3" not in case:  # there the official code was given frequencies
        recorded = oracle_meta(case)["config"]
        named = {"rope_theta", "rope_scaling"} & recorded.keys()
        assert {key: recorded[key] for key in named} == keys
    draft = load_draft(edit(copy(OFFICIAL, tmp_path), **keys), oracle_target())
    assert draft.config.rope == ROPES[case] and draft.config.taps == (2, 4, 5)
    with torch.no_grad():
        assert_official_outputs(draft, case)


def test_specforges_own_llama3_logits_come_out(tmp_path):
    raw = oracle_meta("specforge_draft_llama3")["config"]
    draft = load_draft(edit(copy(OFFICIAL, tmp_path), **raw), oracle_target())
    want = tensors("specforge_draft_llama3")
    with torch.no_grad():
        a = draft(want["input_ids"], draft.fuse(want["features"]), torch.arange(12))
        logits = draft.logits(a)
    torch.testing.assert_close(logits, want["logits"], rtol=0, atol=ATOL_LOGITS)


def test_a_pickled_official_folder_is_the_same_draft(tmp_path):
    stored = weights(copy(OFFICIAL, tmp_path))
    (tmp_path / "model.safetensors").unlink()
    torch.save(stored, tmp_path / "pytorch_model.bin")
    with torch.no_grad():
        assert_official_outputs(
            load_draft(tmp_path, oracle_target()), "draft_forward_theta10000"
        )


def test_official_eagle1_weights_give_the_official_features(tmp_path):
    want = tensors("eagle1_draft_forward")
    plain = load_draft(EAGLE1, oracle_target())
    folder = copy(EAGLE1, tmp_path)
    embedding = oracle_target().embedding.half()  # published files carry a copy
    put(folder, weights(folder) | {"embed_tokens.weight": embedding})
    for draft in (plain, load_draft(folder, oracle_target())):
        assert type(draft) is Eagle1Draft
        with torch.no_grad():
            f = draft.fuse(want["prefill.features"])
            out = draft(want["prefill.input_ids"], f, torch.arange(12))
            logits = draft.logits(out)
        torch.testing.assert_close(out, want["prefill.f_hat"], rtol=0, atol=ATOL_HIDDEN)
        torch.testing.assert_close(
            logits, want["prefill.logits"], rtol=0, atol=ATOL_LOGITS
        )
    other = oracle_target(embedding=torch.randn(256, 64))
    with pytest.raises(
        CheckpointError, match=r"'embed_tokens.weight' .* is not the tar"
    ):
        load_draft(folder, other)


# Round trips


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_every_format_opens_as_the_same_draft(tmp_path, name):
    want = official_draft(ROPES["draft_forward_theta10000"])
    got = load_draft(as_format(name, tmp_path), oracle_target())
    assert got.config == want.config
    assert_same(got.state_dict(), want.state_dict())
    label = "specforge" if name == "sglang" else name  # SGLang loads SpecForge's
    assert open_stored(tmp_path).format == label


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OTHERS)
def test_ours_to_a_format_and_back_is_bit_exact(tmp_path, name, dtype):
    ours, there, back = (tmp_path / n for n in ("ours", "there", "back"))
    save_draft(official_draft(ROPES["draft_forward_theta10000"]), ours, dtype)
    convert(ours, there, name)
    # ours named the taps, a format without them needs the target to get them back
    convert(there, back, "eagle3", str(TARGET))
    assert_same(weights(ours), weights(back))
    assert read_config(ours) == read_config(back)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("middle", [n for n in FORMAT_NAMES if n != "official"])
def test_official_to_a_format_and_back_is_bit_exact(tmp_path, middle, dtype):
    first, there, back = (tmp_path / n for n in ("first", "there", "back"))
    put(copy(OFFICIAL, first), cast(weights(OFFICIAL), dtype))
    convert(first, there, middle, str(TARGET))
    convert(there, back, "official", str(TARGET))
    assert_same(weights(first), weights(back))
    before, after = read_config(first), read_config(back)
    assert after["rope_theta"] == 10_000.0  # what no key meant, now written down
    for key in before.keys() - {"torch_dtype"} - after.keys():
        assert key in (
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "initializer_range",
            "use_cache",
        )
    assert {k: after[k] for k in before if k in after and k != "torch_dtype"} == {
        k: before[k] for k in before if k in after and k != "torch_dtype"
    }


@pytest.mark.parametrize(
    "rope", ["draft_forward_rope_linear", "draft_forward_rope_llama3"]
)
@pytest.mark.parametrize("name", OTHERS)
def test_scaled_rope_survives_or_is_refused(tmp_path, rope, name):
    ours, there = tmp_path / "ours", tmp_path / "there"
    draft = official_draft(ROPES[rope])
    save_draft(draft, ours)
    if name == "official" and "llama3" in rope:
        with pytest.raises(CheckpointError, match="no RoPE with llama3 scaling by 8"):
            convert(ours, there, name)
        assert not there.exists()
        return
    convert(ours, there, name)
    assert load_draft(there, oracle_target()).config.rope == draft.config.rope


def test_an_eagle1_draft_goes_both_ways(tmp_path):
    ours, back = tmp_path / "ours", tmp_path / "back"
    convert(EAGLE1, ours, "eagle3")
    assert read_config(ours)["format"] == "eagle1-draft"
    convert(ours, back, "official")
    assert_same(weights(EAGLE1), weights(back))
    with pytest.raises(CheckpointError, match="EAGLE-1 draft can't be written as 'sgl"):
        convert(ours, tmp_path / "no", "sglang")


def test_a_target_of_another_width_keeps_the_drafts_embedding(tmp_path):
    """The fusion reads the target's width, and the embedding must be in the file."""
    first = edit(copy(OFFICIAL, tmp_path / "first"), target_hidden_size=80)
    values = weights(first)
    values["fc.weight"] = torch.randn(64, 240)
    values["embed_tokens.weight"] = torch.randn(256, 64)
    put(first, values)
    target = oracle_target(hidden_size=80, embedding=torch.zeros(256, 80))
    for name in OTHERS:
        there = tmp_path / name
        write_stored(open_stored(first), there, name, target)
        draft = load_draft(there, target)
        assert torch.equal(draft.embed.weight, values["embed_tokens.weight"]), name
        assert draft.config.target_hidden_size == 80
    del values["embed_tokens.weight"]
    with pytest.raises(CheckpointError, match=r"lacks \['embed_tokens.weight'\]"):
        open_stored(put(first, values))


def test_a_whole_vocabulary_may_come_with_a_map_or_without(tmp_path):
    folder = edit(copy(OFFICIAL, tmp_path), draft_vocab_size=256)
    values = weights(folder)
    values["lm_head.weight"] = torch.randn(256, 64)
    both = {"d2t": torch.zeros(256, dtype=torch.int64), "t2d": torch.ones(256).bool()}
    del values["d2t"], values["t2d"]
    for maps in ({}, both):
        draft = load_draft(put(folder, values | maps), oracle_target())
        assert torch.equal(draft.d2t, torch.arange(256))
    with pytest.raises(CheckpointError, match=r"lacks \['t2d'\]"):
        load_draft(put(folder, values | {"d2t": both["d2t"]}), oracle_target())


# What the two exporters wrote, recorded


def keys_of(folder) -> dict[str, list]:
    text = (folder / "keys.json").read_text(encoding="utf-8")
    return {name: [shape, dtype] for name, (shape, dtype) in json.loads(text).items()}


def header(folder) -> dict[str, list]:
    return {n: [list(t.shape), str(t.dtype)] for n, t in weights(folder).items()}


def test_specforges_export_opens_and_ours_has_its_tensors(tmp_path):
    recorded = FOLDER / "specforge_export" / "sglang_plain"
    want = official_draft(ROPES["draft_forward_theta10000"]).bfloat16()
    got = load_draft(recorded, oracle_target(), torch.bfloat16)
    assert_same(got.state_dict(), want.state_dict())
    convert(recorded, tmp_path, "sglang")
    assert header(tmp_path) == keys_of(recorded)
    assert_same(weights(tmp_path), weights(recorded))


@pytest.mark.parametrize("name", ["sglang_plain", "sglang_llama3"])
def test_ours_says_what_specforges_config_says(tmp_path, name):
    recorded = FOLDER / "specforge_export" / name
    rope = (
        "draft_forward_rope_llama3" if "llama3" in name else "draft_forward_theta10000"
    )
    save_draft(official_draft(ROPES[rope]), tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "out", "sglang")
    ours, theirs = read_config(tmp_path / "out"), read_config(recorded)
    shared = ours.keys() & theirs.keys()
    assert {k: ours[k] for k in shared} == {k: theirs[k] for k in shared}
    assert ours.keys() - shared == {"torch_dtype"}
    assert theirs.keys() - shared == {"attention_dropout"} | TRANSFORMERS_KEYS


@pytest.mark.parametrize("name", ["hf_plain", "hf_llama3"])
def test_specforges_file_with_an_embedding_and_mixed_dtypes(tmp_path, name):
    """Its keys.json says float32 weights and a bfloat16 embedding."""
    recorded = FOLDER / "specforge_export" / name
    embedding = oracle_target().embedding.bfloat16()
    folder = copy(recorded, tmp_path / "in")
    put(folder, weights(OFFICIAL) | {"embed_tokens.weight": embedding})
    assert header(folder) == keys_of(recorded)
    draft = load_draft(folder, oracle_target())
    assert draft.config.own_embedding
    assert (
        draft.config.rope.scaling == {"hf_plain": "none", "hf_llama3": "llama3"}[name]
    )
    assert torch.equal(draft.embed.weight, embedding.float())
    # kept where the engine reads it, dtype and all ...
    convert(folder, tmp_path / "specforge", "specforge")
    assert_same(weights(tmp_path / "specforge"), weights(folder))
    # ... and left out for SGLang, if it is the target's
    with pytest.raises(CheckpointError, match="name the target to compare it"):
        convert(folder, tmp_path / "no", "sglang")
    convert(folder, tmp_path / "sglang", "sglang", str(TARGET))
    assert_same(weights(tmp_path / "sglang"), weights(OFFICIAL))
    put(folder, weights(folder) | {"embed_tokens.weight": embedding + 1})
    with pytest.raises(CheckpointError, match="is in the file, but differs"):
        convert(folder, tmp_path / "no", "sglang", str(TARGET))
    assert not (tmp_path / "no").exists()


def test_ours_has_the_schema_of_speculators_export(tmp_path):
    recorded = FOLDER / "speculators_export" / "converted"
    convert(OFFICIAL, tmp_path, "speculators", str(TARGET))
    assert header(tmp_path) == keys_of(recorded)
    ours, theirs = read_config(tmp_path), read_config(recorded)
    layer, their_layer = (c.pop("transformer_layer_config") for c in (ours, theirs))
    verifier = ours["speculators_config"]["verifier"].pop("name_or_path")
    assert verifier == str(TARGET)
    theirs["speculators_config"]["verifier"].pop("name_or_path")
    assert theirs.pop("auto_map") and theirs.pop("transformers_version")
    assert ours == theirs
    assert their_layer.keys() - layer.keys() == TRANSFORMERS_KEYS
    assert layer == {key: their_layer[key] for key in layer}


def test_the_recorded_speculators_config_opens(tmp_path):
    folder = copy(FOLDER / "speculators_export" / "converted", tmp_path)
    put(folder, weights(as_format("speculators", tmp_path / "ours")))
    draft = load_draft(folder, oracle_target())
    with torch.no_grad():
        assert_official_outputs(draft, "draft_forward_theta10000")


def test_eagle31_gives_the_numbers_of_the_speculators_package(tmp_path):
    """Three steps of training-time test; what a step reads is its predecessor's."""
    folder = as_format("speculators", tmp_path)
    edit(folder, fc_norm=True, norm_output=True)
    new = dict(tensors("speculators_eagle31"))
    want = new.pop("logits")
    put(folder, weights(folder) | new)
    draft = load_draft(folder, oracle_target())
    given = tensors("draft_forward_theta10000")
    ids, x = given["prefill.input_ids"], draft.fuse(given["prefill.features"])
    steps = []
    with torch.no_grad():
        for k in range(3):
            x = draft.forward_ttt(ids.roll(-k, 1), x, torch.arange(12) + k, steps)
            got = draft.logits(x)[0, : 12 - k]
            torch.testing.assert_close(got, want[k, : 12 - k], rtol=0, atol=ATOL_LOGITS)


def test_the_speculators_package_itself_loads_ours(tmp_path):
    """Where it is installed; its schema is compared above in any case."""
    eagle3 = pytest.importorskip("speculators.models.eagle3")
    convert(OFFICIAL, tmp_path, "speculators", str(TARGET))
    config = eagle3.Eagle3SpeculatorConfig.from_pretrained(tmp_path)
    config.transformer_layer_config._attn_implementation = "eager"
    model = eagle3.Eagle3DraftModel.from_pretrained(tmp_path, config=config).float()
    # Its own way to the target's embedding depends on what memory held before.
    model.embed_tokens.weight.data = oracle_target().embedding.clone()
    heard = []
    model.lm_head.register_forward_hook(lambda _, __, logits: heard.append(logits))
    given = tensors("draft_forward_theta10000")
    with torch.no_grad():
        model.eval()(
            hidden_states=given["prefill.features"],
            input_ids=given["prefill.input_ids"],
            document_ids=torch.zeros(1, 12, dtype=torch.long),
            position_ids=torch.arange(12)[None],
            ttt_steps=1,
        )
    torch.testing.assert_close(
        heard[0], given["prefill.logits"], rtol=0, atol=ATOL_LOGITS
    )


@pytest.mark.real
@pytest.mark.parametrize("name", OTHERS)
def test_the_shipped_draft_goes_everywhere_and_comes_back(tmp_path, real_target, name):
    """Its taps are the default of 30 layers, so that every format can say them."""
    want = load_draft(None, real_target)
    write_stored(open_stored(SHIPPED), tmp_path, name, real_target)
    got = load_draft(tmp_path, real_target)
    assert got.config == want.config
    assert_same(got.state_dict(), want.state_dict())
    stored, kept = weights(tmp_path), weights(SHIPPED)
    assert torch.equal(stored["fc.weight"], kept["fc.weight"])  # still float16

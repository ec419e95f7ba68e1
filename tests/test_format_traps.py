"""eagle3.formats: each way in which loaders are known to go wrong without an error.

Right values: what the engines' loaders do, as their code says it.
"""

import re
from dataclasses import replace

import pytest
import torch
import transformers
from foreign import (
    EAGLE1,
    LLAMA3,
    OFFICIAL,
    TARGET,
    as_format,
    assert_same,
    copy,
    edit,
    oracle_target,
    put,
    read_config,
    weights,
)
from oracles import ROPES, official_draft

from eagle3.checkpoint import CheckpointError, load_draft, save_draft
from eagle3.draft import Eagle3Draft
from eagle3.formats.configs import read_taps
from eagle3.formats.convert import convert
from eagle3.formats.export import FORMAT_NAMES
from eagle3.formats.facts import describe
from eagle3.formats.names import LAYERS_0, MIDLAYER
from eagle3.formats.ropes import read_rope
from eagle3.formats.stored import open_stored
from eagle3.formats.taps import StoredTaps, default_taps
from eagle3.rope import RopeConfig

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture
def official(tmp_path):
    return copy(OFFICIAL, tmp_path / "official")


@pytest.fixture
def speculators(tmp_path):
    return as_format("speculators", tmp_path / "speculators")


def refused(folder, message: str, target=None) -> str:
    """Loading says no with this message, on one line."""
    with pytest.raises(ValueError, match=message) as caught:
        load_draft(folder, target or oracle_target())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Names


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_sglang_skips_layers_0_so_only_speculators_has_it(tmp_path, name):
    names = weights(as_format(name, tmp_path))
    prefix = LAYERS_0 if name == "speculators" else MIDLAYER
    wrong = {LAYERS_0: MIDLAYER, MIDLAYER: LAYERS_0}[prefix]
    assert not any(n.startswith(wrong) for n in names)
    if name != "eagle3":
        assert sum(n.startswith(prefix) for n in names) == 10
        assert not {"embed_tokens.weight"} & names.keys()  # the target's


def test_layers_0_under_a_flat_config_is_vllms_alone(official):
    renamed = {n.replace(MIDLAYER, LAYERS_0): t for n, t in weights(official).items()}
    put(official, renamed)
    facts = describe(official)
    assert facts.format == "vllm" and "SGLang would skip" in facts.notes[0]
    draft = load_draft(official, oracle_target())
    assert_same(draft.state_dict(), load_draft(OFFICIAL, oracle_target()).state_dict())


def test_buffers_of_the_target_are_left_out_and_said(official):
    put(official, weights(official) | {"target_model.rotary.inv_freq": torch.ones(8)})
    assert describe(official).notes == (
        "1 buffers of the target, 'target_model.', are left out",
    )
    draft = load_draft(official, oracle_target())
    assert_same(draft.state_dict(), load_draft(OFFICIAL, oracle_target()).state_dict())


def test_every_name_that_does_not_fit_is_listed(official):
    values = weights(official)
    for name in ("midlayer.hidden_norm.weight", "norm.weight"):
        values[name + "s"] = values.pop(name)
    values["midlayer.self_attn.q_norm.weight"] = torch.ones(16)
    values["fc.weight"] = values["fc.weight"][:, :-1].contiguous()
    values["lm_head.weight"][0, 0] = float("nan")
    message = refused(put(official, values), "nothing was loaded")
    for name in (
        "midlayer.hidden_norm.weight",
        "midlayer.hidden_norm.weights",
        "norm.weight",
        "norm.weights",
        "midlayer.self_attn.q_norm.weight",
        "fc.weight",
    ):
        assert f"'{name}'" in message


def test_every_value_that_does_not_fit_is_listed(official):
    values = weights(official)
    for name in ("fc.weight", "norm.weight", "midlayer.mlp.up_proj.weight"):
        values[name].view(-1)[0] = float("inf")
    values["d2t"][0] = 1000
    message = refused(put(official, values), "nothing was loaded")
    assert message.count("holds NaN or infinite values") == 3
    assert "outside the target's 256 ids, such as 0 to 1000" in message


def test_two_files_of_weights_must_be_the_same(official):
    values = weights(official)
    torch.save(values, official / "pytorch_model.bin")
    load_draft(official, oracle_target())
    values["norm.weight"][3] += 1
    torch.save(values, official / "pytorch_model.bin")
    refused(official, "'norm.weight' is not the same in .* 'pytorch_model.bin'")


# Norms


def test_a_missing_norm_before_residual_means_two_things(speculators):
    assert read_config(speculators)["norm_before_residual"] is False
    edit(speculators, "norm_before_residual")
    refused(speculators, "'norm_before_residual' is missing, which vLLM takes for true")
    edit(speculators, norm_before_residual=True)
    refused(
        speculators, "'norm_before_residual' is True, but our draft computes only F"
    )


def test_a_missing_norm_before_residual_means_false_in_the_flat_layout(official):
    load_draft(official, oracle_target())
    edit(official, norm_before_residual=True)
    refused(official, "'norm_before_residual' is True")


@pytest.mark.parametrize("value", [True, False])
def test_norm_output_of_a_flat_config_is_refused(official, value):
    edit(official, norm_output=value)
    refused(official, "'norm_output' is set, which SpecForge took for")


def test_norm_output_of_speculators_feeds_the_normed_state_back(speculators):
    assert not load_draft(speculators, oracle_target()).config.feed_normed
    edit(speculators, norm_output=True)
    assert load_draft(speculators, oracle_target()).config.feed_normed


@pytest.mark.parametrize(
    "key", ["norm_before_fc", "attention_bias", "mlp_bias", "qkv_bias"]
)
def test_drafts_that_ours_is_not_are_refused_by_name(official, speculators, key):
    layer = read_config(speculators)["transformer_layer_config"]
    edit(official, **{key: True})
    edit(speculators, transformer_layer_config=layer | {key: True})
    for folder in (official, speculators):
        refused(folder, f"'{key}' is True, but our draft computes only False")


def test_a_key_that_is_said_twice_and_differently_is_refused(speculators):
    edit(speculators, attention_bias=True)
    refused(speculators, r"'attention_bias' is True at the top, but False in")


def test_a_flag_in_a_place_where_nobody_reads_it_is_refused(speculators):
    layer = read_config(speculators)["transformer_layer_config"]
    edit(speculators, transformer_layer_config=layer | {"norm_output": True})
    refused(speculators, "'norm_output' stands in 'transformer_layer_config', where")


def test_a_flag_that_nobody_knows_is_refused(official):
    edit(official, residual_multiplier=0.5, eagle_config={"rescale": True})
    message = refused(official, "'residual_multiplier' is a key that this reader doesn")
    assert "'eagle_config.rescale' is a key" in message


def eagle31(config_change: dict) -> Eagle3Draft:
    base = official_draft(ROPES["draft_forward_theta10000"])
    draft = Eagle3Draft(
        replace(base.config, **config_change), base.embed.weight, base.d2t
    )
    draft.load_state_dict(base.state_dict(), strict=False)
    for i, parameter in enumerate(draft.parameters()):
        if parameter.requires_grad and parameter.dim() == 1:
            generator = torch.Generator().manual_seed(i)
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return draft


@pytest.mark.parametrize(
    ("change", "able"),
    [
        ({"fc_norm": True}, {"specforge", "speculators"}),
        ({"feed_normed": True}, {"speculators"}),
        ({"fc_norm": True, "feed_normed": True}, {"speculators"}),
    ],
)
def test_eagle31_goes_only_where_it_can_be_said(tmp_path, change, able):
    ours = tmp_path / "ours"
    draft = eagle31(change)
    save_draft(draft, ours)
    assert load_draft(ours, oracle_target()).config == draft.config
    for name in set(FORMAT_NAMES) - {"eagle3"}:
        there = tmp_path / name
        if name not in able:
            with pytest.raises(CheckpointError, match=f"which the format '{name}' can"):
                convert(ours, there, name)
            assert not there.exists()
            continue
        convert(ours, there, name)
        found = load_draft(there, oracle_target())
        assert found.config == draft.config
        assert_same(found.state_dict(), draft.state_dict())


# Taps: we and vLLM count the layer that a tap is the input of, SpecForge and SGLang the
# one that it is the output of.


def test_the_default_taps_are_left_to_the_engine(tmp_path):
    ours = tmp_path / "ours"
    save_draft(official_draft(ROPES["draft_forward_theta10000"]), ours)
    for name in ("official", "specforge", "sglang"):
        convert(ours, tmp_path / name, name)
        raw = read_config(tmp_path / name)
        assert "eagle_config" not in raw and IDS not in raw
    convert(ours, tmp_path / "speculators", "speculators")
    assert read_config(tmp_path / "speculators")[IDS] == [2, 4, 5]


def test_other_taps_are_written_in_each_engines_numbering(tmp_path):
    base = official_draft(ROPES["draft_forward_theta10000"])
    for taps, sglang_can in (((2, 3, 6), True), ((1, 3, 6), False)):
        ours = tmp_path / f"ours{taps[0]}"
        draft = Eagle3Draft(
            replace(base.config, taps=taps), base.embed.weight, base.d2t
        )
        save_draft(draft, ours)
        with pytest.raises(CheckpointError, match=re.escape(f"the draft reads {taps}")):
            convert(ours, tmp_path / "no", "official")
        convert(ours, ours / "s", "speculators")
        assert read_config(ours / "s")[IDS] == list(taps)
        convert(ours, ours / "f", "specforge")
        outputs = [i - 1 for i in taps]
        assert read_config(ours / "f")["eagle_config"][IDS] == outputs
        target = oracle_target(taps=taps)
        assert load_draft(ours / "f", target).config.taps == taps
        if sglang_can:
            convert(ours, ours / "g", "sglang")
            assert read_config(ours / "g")["eagle_config"][IDS] == outputs
        else:
            with pytest.raises(CheckpointError, match=r"number taps .* in two ways"):
                convert(ours, ours / "g", "sglang")


@pytest.mark.parametrize(
    ("raw", "taps"),
    [
        ({}, (2, 4, 5)),
        ({IDS: None, "eagle_config": {IDS: []}}, (2, 4, 5)),
        ({IDS: [2, 4, 5]}, (2, 4, 5)),  # vLLM: inputs
        ({IDS: [1, 3, 4]}, (1, 3, 4)),
        ({"eagle_config": {IDS: [1, 3, 4]}}, (2, 4, 5)),  # first is 1: all add one
        ({"eagle_config": {IDS: [1, 2, 5]}}, (2, 3, 6)),
        ({"eagle_config": {IDS: [2, 4, 5]}}, (2, 4, 5)),  # the target's own, copied
        ({IDS: [1, 3, 4], "eagle_config": {IDS: [0, 2, 3]}}, (1, 3, 4)),
    ],
)
def test_taps_are_read_in_the_numbering_of_their_key(raw, taps):
    assert read_taps(raw).resolve(8) == taps


def test_taps_that_mean_two_things_are_refused(official):
    edit(official, eagle_config={IDS: [0, 2, 3]})
    refused(official, r"taps \(0, 2, 3\) in 'eagle_config', which one engine reads")
    edit(official, eagle_config={IDS: [1, 2, 3]}, **{IDS: [4, 5, 6]})
    refused(official, r"names taps \(4, 5, 6\) as inputs of layers and \(1, 2, 3\)")
    edit(official, eagle_config={IDS: [1, 2]})
    refused(official, r"is \[1, 2\], but a draft reads three layers")
    edit(official, eagle_config={"use_aux_hidden_state": False})
    refused(official, "'eagle_config.use_aux_hidden_state' is False")


def test_taps_off_by_one_do_not_fit_the_target(official):
    edit(official, **{IDS: [1, 3, 4]})
    refused(official, r"trained on taps \(1, 3, 4\), but the target hands over taps")
    assert (
        "load it with the draft's taps"
        in describe(official, oracle_target()).misfits[0]
    )


def test_taps_that_depend_on_the_target_need_it(tmp_path):
    with pytest.raises(CheckpointError, match=r"names no taps, so .* name the target"):
        convert(OFFICIAL, tmp_path / "no", "eagle3")
    with pytest.raises(ValueError, match="too shallow"):
        StoredTaps().resolve(6)
    assert [default_taps(n) for n in (7, 8, 32)] == [(2, 3, 4), (2, 4, 5), (2, 16, 29)]


# RoPE

PLAIN = {"rope_theta": 500_000.0}
NEW = {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
OLD_LLAMA3 = {"rope_theta": 5e5, "rope_scaling": LLAMA3}
NEW_LLAMA3 = {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}
LINEAR = {"type": "linear", "factor": 4.0}
llama3 = RopeConfig(500_000.0, "llama3", 8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize(
    ("raw", "rope"),
    [
        ({}, RopeConfig(10_000.0)),
        ({"rope_theta": None, "rope_scaling": None}, RopeConfig(10_000.0)),
        ({"rope_parameters": {"rope_type": "default"}}, RopeConfig(10_000.0)),
        (PLAIN, RopeConfig(500_000.0)),
        (NEW, RopeConfig(500_000.0)),
        (PLAIN | NEW, RopeConfig(500_000.0)),
        (OLD_LLAMA3, llama3),
        (NEW_LLAMA3, llama3),
        (OLD_LLAMA3 | NEW_LLAMA3, llama3),
        # official code: the base is 10,000 as soon as there is a scaling
        (PLAIN | {"rope_scaling": LINEAR}, RopeConfig(10_000.0, "linear", 4.0)),
        # SpecForge and vLLM: it is not
        (
            PLAIN | {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
            RopeConfig(500_000.0, "linear", 4.0),
        ),
    ],
)
def test_rope_is_read_from_every_layout(raw, rope):
    assert read_rope(raw).rope == rope


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (PLAIN | {"rope_parameters": {"rope_theta": 1e4}}, "names two RoPE bases"),
        (NEW_LLAMA3 | {"rope_scaling": LINEAR}, "'rope_scaling' says"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' is not sup"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "needs low_freq"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "part of the channels"),
    ],
)
def test_rope_that_contradicts_itself_is_refused(official, raw, message):
    with pytest.raises(ValueError, match=message):
        read_rope(raw)
    refused(edit(official, **raw), message)


def test_the_base_that_nobody_named_is_written_down(tmp_path):
    for name in FORMAT_NAMES:
        raw = read_config(as_format(name, tmp_path / name))
        rope = raw.get("rope", raw).get("theta", raw.get("rope_theta"))
        layer = raw.get("transformer_layer_config")
        if layer:
            rope = layer["rope_parameters"]["rope_theta"]
        assert rope == 10_000.0, name


def test_official_linear_scaling_has_one_base(tmp_path):
    base = official_draft(RopeConfig(500_000.0, "linear", 4.0))
    save_draft(base, tmp_path / "ours")
    with pytest.raises(CheckpointError, match="linear scaling by 4 and base 500000"):
        convert(tmp_path / "ours", tmp_path / "no", "official")


# Head, vocabulary, embedding


def test_tied_embeddings_are_not_believed_and_exports_say_false(official, tmp_path):
    edit(official, tie_word_embeddings=True)
    draft = load_draft(official, oracle_target())
    assert_same(draft.state_dict(), load_draft(OFFICIAL, oracle_target()).state_dict())
    assert any("tie_word_embeddings is true" in n for n in describe(official).notes)
    for name in ("specforge", "sglang", "speculators"):
        convert(official, tmp_path / name, name)
        assert read_config(tmp_path / name)["tie_word_embeddings"] is False


def test_a_draft_vocab_size_of_null_is_the_whole_vocabulary(official):
    edit(official, draft_vocab_size=None)
    refused(official, r"'lm_head.weight' .* has shape \[96, 64\].* needs \[256, 64\]")


def test_a_null_draft_vocab_size_is_written_as_a_number(official, tmp_path):
    values = weights(official)
    del values["d2t"], values["t2d"]
    put(official, values | {"lm_head.weight": torch.randn(256, 64)})
    edit(official, draft_vocab_size=None)
    assert "draft_vocab_size is null" in describe(official).notes[0]
    convert(official, tmp_path / "out", "sglang")
    assert read_config(tmp_path / "out")["draft_vocab_size"] == 256


def test_a_wrong_number_of_layers_is_not_believed(official):
    edit(official, num_hidden_layers=40)  # as a published draft has it
    load_draft(official, oracle_target())
    assert "num_hidden_layers is 40" in describe(official).notes[0]


def test_target_hidden_size_is_only_written_where_it_differs(tmp_path):
    """SGLang and vLLM ask whether the key is there, and multiply null by three."""
    for name in ("official", "specforge", "sglang"):
        assert "target_hidden_size" not in read_config(as_format(name, tmp_path / name))


def test_a_draft_for_another_target_is_refused(official):
    refused(
        official,
        "hidden_size 64, but this target has 80",
        oracle_target(hidden_size=80),
    )
    refused(official, "vocab_size 256, but this target", oracle_target(vocab_size=255))
    found = describe(official, oracle_target(hidden_size=80, vocab_size=255)).misfits
    assert len(found) == 2


def test_converting_onto_itself_or_to_no_format_is_refused(official):
    before = weights(official)
    with pytest.raises(CheckpointError, match="is the checkpoint itself"):
        convert(official, official, "specforge")
    with pytest.raises(CheckpointError, match="no format 'gguf': take one of official"):
        convert(official, official.parent / "out", "gguf")
    assert_same(before, weights(official))


def test_facts_of_a_checkpoint():
    facts = describe(OFFICIAL, oracle_target())
    assert (facts.format, facts.method) == ("official", "eagle3")
    assert facts.taps == (2, 4, 5) and facts.taps_as_outputs == (1, 3, 4)
    assert facts.rope == RopeConfig(10_000.0)
    assert facts.rope_source == "config names none: 10,000"
    assert facts.dtypes == {"bool": 1, "float32": 13, "int64": 1}
    values = weights(OFFICIAL).values()
    assert facts.num_parameters == sum(
        v.numel() for v in values if v.dim() and v.is_floating_point()
    )
    assert not facts.own_embedding and not facts.misfits and not facts.notes
    assert describe(OFFICIAL).taps is None
    assert open_stored(TARGET.parent / "draft_eagle1").method == "eagle1"


def test_a_published_eagle1_embedding_is_left_out_only_if_it_is_the_targets(tmp_path):
    folder = copy(EAGLE1, tmp_path / "in")
    embedding = oracle_target().embedding.half()
    put(folder, weights(folder) | {"embed_tokens.weight": embedding})
    with pytest.raises(CheckpointError, match="name the target to compare it"):
        convert(folder, tmp_path / "no", "eagle3")
    convert(folder, tmp_path / "ours", "eagle3", str(TARGET))
    convert(tmp_path / "ours", tmp_path / "back", "official")
    assert_same(weights(tmp_path / "back"), weights(EAGLE1))
    convert(folder, tmp_path / "same", "official")
    assert_same(weights(tmp_path / "same"), weights(folder))
    put(folder, weights(folder) | {"embed_tokens.weight": embedding * 2})
    with pytest.raises(CheckpointError, match="but differs"):
        convert(folder, tmp_path / "no", "eagle3", str(TARGET))


def test_a_target_that_the_draft_was_not_made_for_is_refused(tmp_path):
    folder = edit(copy(OFFICIAL, tmp_path / "in"), vocab_size=255)
    values = weights(folder)
    put(folder, values | {"t2d": values["t2d"][:-1].clone()})
    with pytest.raises(CheckpointError, match="with vocab_size 255, this one has 256"):
        convert(folder, tmp_path / "no", "speculators", str(TARGET))
    assert not (tmp_path / "no").exists()


def test_taps_that_are_another_depths_default_are_written(tmp_path):
    """(2, 3, 4) is the default at 7 layers; at 8 an engine must be told."""
    base = official_draft(ROPES["draft_forward_theta10000"])
    draft = Eagle3Draft(
        replace(base.config, taps=(2, 3, 4)), base.embed.weight, base.d2t
    )
    save_draft(draft, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "seven", "sglang")
    assert "eagle_config" not in read_config(tmp_path / "seven")
    convert(tmp_path / "ours", tmp_path / "eight", "sglang", str(TARGET))
    assert read_config(tmp_path / "eight")["eagle_config"][IDS] == [1, 2, 3]
    with pytest.raises(CheckpointError, match="official code always taps"):
        convert(tmp_path / "ours", tmp_path / "no", "official", str(TARGET))


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_every_key_that_transformers_writes_is_known(official, speculators, family):
    """A config that was saved whole, as old and new versions do."""
    kind = getattr(transformers, f"{family}Config")
    sizes = read_config(speculators)["transformer_layer_config"]
    sizes = {
        k: v for k, v in sizes.items() if k not in ("model_type", "rope_parameters")
    }
    layer = kind(**sizes).to_dict()
    edit(official, **layer)
    edit(speculators, transformer_layer_config=layer)
    for folder in (official, speculators):
        assert load_draft(folder, oracle_target()).config.rope.theta == 10_000.0

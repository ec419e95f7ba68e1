"""Loading a target from a folder or hub id: it works, or one sentence says why not.

Right values: the model that was saved into the folder.
"""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny import library_says, tiny_model, tokens
from transformers.utils import logging as library_logging

from eagle3.target import library_model, load_target


@pytest.fixture
def folder(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def refused(source, *words, load=load_target, **options):
    with pytest.raises(ValueError) as caught:
        load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    for word in words:
        assert word in message, message


# ---- what works


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["text", "path"])
def test_a_folder_is_loaded(folder, kind):
    target, ids = load_target(kind(folder)), tokens(1, 7)
    right = library_says(tiny_model(), ids, target.taps)
    for found, whole in zip(vars(target.forward(ids)).values(), right, strict=True):
        torch.testing.assert_close(found, whole, atol=1e-4, rtol=0)


def test_the_librarys_model_is_loaded_frozen_and_ready(folder):
    model = library_model(folder)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    for found, right in zip(model.parameters(), tiny_model().parameters(), strict=True):
        assert torch.equal(found, right)


def test_options_reach_the_target(folder):
    target = load_target(folder, dtype=torch.bfloat16, taps=(1, 3, 6))
    assert (target.dtype, target.taps) == (torch.bfloat16, (1, 3, 6))


def test_a_folder_without_tokenizer_gives_a_target_for_ids(folder):
    target = load_target(folder)
    assert target.tokenizer is None
    with pytest.raises(ValueError, match="no tokenizer: pass token ids"):
        target.encode("Hi")


def save_tokenizer(folder, template=None):
    """A tokenizer of two words that likes to begin with <s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"How": 3, "can": 5, "?": 0, "<s>": 1}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    assert words.encode("How").ids == [1, 3]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)


def test_a_tokenizer_without_chat_template(folder):
    save_tokenizer(folder)
    target = load_target(folder)
    assert target.encode("How can") == [3, 5]
    with pytest.raises(ValueError, match=r"no chat template: pass token ids"):
        target.encode_chat([{"role": "user", "content": "How can"}])


@pytest.mark.parametrize(
    "messages",
    [[], ["How can"], [{"role": "user"}], [{"content": "How"}], "How can", [None]],
)
def test_messages_that_are_none(folder, messages):
    save_tokenizer(folder, "{% for m in messages %}{{ m.content }}{% endfor %}")
    target = load_target(folder)
    assert target.encode_chat([{"role": "user", "content": "can How"}]) == [5, 3]
    with pytest.raises(ValueError, match=r'at least one dict .*"role" and "content"'):
        target.encode_chat(messages)


# ---- what can't be loaded


def test_a_path_that_does_not_exist(tmp_path):
    source = str(tmp_path / "nothing")
    refused(source, source, "must be a folder", "or a hub id")


@pytest.mark.parametrize("source", ["nobody/nothing-such", "nothing-such", ""])
def test_a_hub_id_that_cannot_be_reached(source):
    refused(source, repr(source), "hub id that can be reached from here")


def test_a_folder_without_a_model(tmp_path):
    refused(tmp_path, str(tmp_path), "must be a folder with a whole")


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, str(folder), "no file named model.safetensors")


def test_a_config_that_is_no_json(folder):
    (folder / "config.json").write_text("{", encoding="utf-8")
    refused(folder, str(folder), "config.json")


def test_cut_off_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    refused(folder, str(folder), "whole causal language model")


def test_a_missing_tensor_is_not_replaced_by_chance(folder):
    name = "model.layers.3.mlp.down_proj.weight"
    change_weights(folder, lambda weights: weights.pop(name))
    refused(folder, str(folder), "lacks 1 of its tensors", name)
    refused(folder, "lacks 1 of its tensors", load=library_model)


def test_a_misshaped_tensor(folder):
    name = "model.layers.3.mlp.down_proj.weight"
    change_weights(
        folder, lambda weights: weights.update({name: weights[name][:8].clone()})
    )
    refused(folder, str(folder))


@pytest.mark.parametrize("kind", ["t5", "clip", "no-such-kind"])
def test_another_kind_of_model(folder, kind):
    config = {"model_type": kind, "num_layers": 12}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused(folder, str(folder), "of a kind that transformers knows")


def test_code_from_a_model_folder_is_never_run(folder, tmp_path):
    shutil.copy(folder / "config.json", tmp_path / "saved.json")
    mark = tmp_path / "it ran"
    code = f"open({str(mark)!r}, 'w').close()\n"
    (folder / "own.py").write_text(code, encoding="utf-8")
    own = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    change_config(folder, model_type="own", auto_map=own)
    refused(folder, str(folder), "custom code")
    assert not mark.exists()


# ---- what is refused by the config alone, before weights are read


def test_a_shallow_model_is_refused_before_its_weights_are_read(tmp_path):
    tiny_model(num_hidden_layers=6).config.save_pretrained(tmp_path)
    refused(tmp_path, "6 layers is too shallow", "L >= 7")


def test_bad_taps_are_refused_before_weights_are_read(tmp_path):
    tiny_model().config.save_pretrained(tmp_path)
    refused(tmp_path, "three ascending layer numbers", taps=(1, 2, 99))


def test_recurrence_is_refused_before_weights_are_read(tmp_path):
    transformers.Qwen3NextConfig(num_hidden_layers=8).save_pretrained(tmp_path)
    refused(tmp_path, "'linear_attention', which cannot forget rejected tokens")


@pytest.mark.parametrize("device", ["no-such-device", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_first(device):
    refused(
        "nobody/nothing", f"the device '{device}'", "use device='cpu'", device=device
    )


# ---- the library's messages


@pytest.mark.parametrize("bars", [True, False])
def test_loading_is_quiet_and_leaves_the_librarys_settings(folder, capfd, bars):
    settings = (
        library_logging.get_verbosity(),
        library_logging.is_progress_bar_enabled(),
    )
    try:
        (
            library_logging.enable_progress_bar
            if bars
            else library_logging.disable_progress_bar
        )()
        library_logging.set_verbosity_info()
        before = library_logging.get_verbosity()
        capfd.readouterr()
        library_model(folder)
        captured = capfd.readouterr()
        assert captured.out + captured.err == ""
        assert library_logging.get_verbosity() == before
        assert library_logging.is_progress_bar_enabled() == bars
    finally:
        library_logging.set_verbosity(settings[0])
        if settings[1]:
            library_logging.enable_progress_bar()

"""Targets of other families: they run, or one sentence says why not.

Right values: the library's own forward over the whole text, without our cache.
"""

import pytest
import torch
from tiny import library_says, tiny_model, tokens

from eagle3.library_network import refuse_unsupported
from eagle3.target import Target

RUN = {
    "Mistral": {"sliding_window": None},
    "Qwen2": {},
    "Qwen3": {"head_dim": 32},
    "Phi3": {"pad_token_id": 0},
    "Olmo2": {},
    "Gemma": {"head_dim": 16},
    "SmolLM3": {},
    "OPT": {"ffn_dim": 96, "pad_token_id": 1},  # learned positions, counted from 0
    "Qwen3Moe": {
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
}

# Family, how it is made, and what the sentence says.
REFUSE = [
    ("Mistral", {"sliding_window": 8}, "layers other than full attention"),
    ("Qwen2", {"use_sliding_window": True, "max_window_layers": 4}, "full attention"),
    ("Phi3", {"sliding_window": 8, "pad_token_id": 0}, "full attention"),
    ("Gemma2", {"head_dim": 16}, "layers other than full attention"),
    ("Gemma3Text", {"head_dim": 16}, "layers other than full attention"),
    ("Mamba", {}, "cannot forget rejected tokens"),
    ("RecurrentGemma", {"num_key_value_heads": 1}, "cannot forget rejected tokens"),
    ("Rwkv", {}, "cannot forget rejected tokens"),
    ("GPT2", {}, "doesn't name its decoder layers as Llama does"),
    ("Bloom", {}, "doesn't name its decoder layers as Llama does"),
]


@pytest.mark.parametrize("family", RUN)
def test_a_family_runs(family):
    """Features bit-equal, then blocks, a rollback and a padded batch, to rounding."""
    model = tiny_model(family, **RUN[family])
    target, ids = Target(model), tokens(2, 16)
    assert not target.is_lean
    right = library_says(model, ids, target.taps)
    for found, whole in zip(vars(target.forward(ids)).values(), right, strict=True):
        assert torch.equal(found, whole)

    cache = target.new_cache(20)
    target.forward(torch.cat([ids[:, :9], tokens(2, 4, seed=7)], dim=1), cache)
    cache.rollback(4)
    for block in (slice(9, 10), slice(10, 16)):
        output = target.forward(ids[:, block], cache)
        for found, whole in zip(vars(output).values(), right, strict=True):
            torch.testing.assert_close(found, whole[:, block], atol=1e-4, rtol=0)

    padded = torch.cat([tokens(2, 3, seed=8), ids], dim=1)
    mask = torch.ones(2, 19, dtype=torch.bool)
    mask[:, :3] = False
    output = target.forward(padded, attention_mask=mask)
    for found, whole in zip(vars(output).values(), right, strict=True):
        torch.testing.assert_close(found[:, 3:], whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("family", "changes", "words"), REFUSE)
def test_a_family_is_refused_in_one_sentence(family, changes, words):
    model = tiny_model(family, **changes)
    with pytest.raises(ValueError, match=words) as caught:
        Target(model).forward(tokens(1, 4))
    assert model.config.model_type in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_that_goes_around_the_cache_is_refused(monkeypatch):
    """As a recurrent layer does that no config speaks of."""
    model = tiny_model()
    attention = model.get_decoder().layers[5].self_attn
    whole = attention.forward

    def without_cache(*args, **options):
        (name,) = {"cache", "past_key_values"} & set(options)  # the name has changed
        return whole(*args, **options | {name: None})

    monkeypatch.setattr(attention, "forward", without_cache)
    cache = Target(model, lean=False).new_cache(9)
    with pytest.raises(ValueError, match=r"llama.*keep no keys and values"):
        Target(model, lean=False).forward(tokens(1, 4), cache)
    assert cache.length == 0


def test_a_sliding_window_is_refused_by_the_config_alone():
    config = tiny_model("Mistral", sliding_window=8).config
    with pytest.raises(ValueError, match=r"mistral.*use a full-attention model"):
        refuse_unsupported(config)


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention", "conv"])
def test_one_layer_of_another_kind_is_enough_to_be_refused(kind):
    config = tiny_model().config
    config.layer_types = ["full_attention"] * 8
    refuse_unsupported(config)
    config.layer_types = ["full_attention"] * 7 + [kind]
    with pytest.raises(ValueError, match=r"llama.*other than full attention"):
        refuse_unsupported(config)

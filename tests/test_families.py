"""Targets of other families: they run, or one sentence says why not.

Right values: the library's own forward over the whole text, without our cache, and its
own greedy answer.
"""

import pytest
import torch
import transformers
from helpers import ScriptDrafter, check_invariants, library_answer, new_draft
from test_lossless_trees import RIGHT, Node, TreeScriptDrafter
from tiny import SIZES, library_says, tiny_model, tokens

from eagle3.engine import Engine, Request, generate
from eagle3.growth import DynamicTree, chain
from eagle3.library_network import refuse_unsupported, windowed
from eagle3.masks import causal_mask
from eagle3.target import Target, load_target
from eagle3.tree import DraftTree

# Windows of 5 tokens are passed by texts of 16 and more.
RUN = {
    "Llama": {"attention_bias": True, "head_dim": 24, "tie_word_embeddings": True},
    "Mistral": {"sliding_window": None, "head_dim": 32},
    "Qwen2": {},
    "Qwen3": {"head_dim": 32},
    "Phi3": {"pad_token_id": 0, "partial_rotary_factor": 0.5},
    "Olmo2": {},
    "Gemma": {"head_dim": 16},
    "SmolLM3": {},
    "OPT": {"ffn_dim": 96, "pad_token_id": 1},  # learned positions, counted from 0
    "Qwen3Moe": {
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    },
    "Mistral, window": {"sliding_window": 5},
    "Qwen2, window": {
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 4,
    },
    "Phi3, window": {"sliding_window": 5, "pad_token_id": 0},
    # Scores and logits are capped hard enough to be seen.
    "Gemma2": {
        "head_dim": 16,
        "sliding_window": 5,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "attn_implementation": "eager",
    },
    "Gemma3Text": {"head_dim": 16, "sliding_window": 5},
}
# Their positions are of a kind that our draft's own layer doesn't have.
NO_DRAFT = {"Phi3", "OPT"}
BIG_WINDOW = ("Mistral", {"sliding_window": 400})

SMALL_EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32}
# Family, how it is made, and what the sentence says.
REFUSE = [
    ("Mamba", {}, "cannot forget rejected tokens"),
    ("Jamba", {}, "cannot forget rejected tokens"),
    ("FalconH1", {}, "cannot forget rejected tokens"),
    (
        "Qwen3Next",
        SMALL_EXPERTS,
        "'linear_attention', which cannot forget rejected tokens",
    ),
    ("RecurrentGemma", {"num_key_value_heads": 1}, "cannot forget rejected tokens"),
    ("Rwkv", {}, "cannot forget rejected tokens"),
    ("Llama4Text", {}, "'chunked_attention', which cannot forget rejected tokens"),
    ("Gemma3Text", {"use_bidirectional_attention": True}, "attends to later tokens"),
    ("GPT2", {}, "doesn't name its decoder layers as Llama does"),
    ("Bloom", {}, "doesn't name its decoder layers as Llama does"),
]


def family_model(name: str) -> torch.nn.Module:
    """A model of the family, with biases and norms that are not 0 and 1 as at first."""
    model = tiny_model(name.split(",")[0], **RUN[name])
    generator = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("family", RUN)
def test_a_family_runs(family):
    """Features bit-equal, then blocks, a rollback and a padded batch, to rounding."""
    model = family_model(family)
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


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention", "conv"])
def test_one_layer_of_another_kind_is_enough_to_be_refused(kind):
    config = tiny_model().config
    config.layer_types = ["full_attention"] * 8
    refuse_unsupported(config)
    config.layer_types = ["full_attention"] * 7 + [kind]
    with pytest.raises(ValueError, match=r"llama.*" + kind):
        refuse_unsupported(config)


def test_layers_with_and_without_a_window_run():
    config = tiny_model().config
    config.layer_types = ["full_attention", "sliding_attention"] * 4
    refuse_unsupported(config)


def script_drafters(answer: list[int]) -> list:
    """One that drafts a chain, right for the most part, and one that drafts trees.

    The second has the right tokens on a branch that is not the first.
    """
    nodes = [Node(0, 7), Node(0, RIGHT), Node(2, RIGHT), Node(2, 9), Node(3, RIGHT)]
    return [
        ScriptDrafter(answer, 4, [True, True, True, False] * 9),
        TreeScriptDrafter(answer, [nodes], 3),
    ]


def lively(model: torch.nn.Module, count: int) -> tuple[list[int], list[int]]:
    """A prompt and the library's answer, one that doesn't repeat one or two tokens."""
    for seed in range(3, 30):
        prompt = tokens(9, seed=seed).tolist()
        answer = library_answer(model, prompt, count, [])
        if len(set(answer)) > 4:
            return prompt, answer
    raise AssertionError("every answer of this model repeats itself")


@pytest.mark.parametrize("family", RUN)
def test_chains_and_trees_give_the_librarys_own_answer(family):
    model, count = family_model(family), 20
    prompt, right = lively(model, count + 8)
    target = Target(model)
    for drafter in script_drafters(right):
        engine = Engine(target, drafter, Request(tuple(prompt), count))
        result = check_invariants(engine)
        assert list(result.token_ids) == right[:count]
        assert result.acceptance_length > 2
    draft = None if family in NO_DRAFT else new_draft(target, 60)
    for growth in (chain(3), DynamicTree(8, 3, 3)) if draft else ():
        found = generate(target, draft, prompt, max_new_tokens=count, growth=growth)
        assert list(found.token_ids) == right[:count]


@pytest.mark.parametrize("family", ["Gemma2", "Mistral, window"])
def test_a_tree_row_sees_what_a_plain_pass_over_its_path_sees(family):
    """Windows on trees: a window counts tokens of the path, not rows of the block."""
    target, ids = Target(family_model(family)), tokens(1, 7)
    tree = DraftTree(tuple(tokens(6, seed=5).tolist()), (-1, -1, 0, 1, 2, 3))
    cache = target.new_cache(40)
    target.forward(ids, cache)
    block = torch.tensor([[3, *tree.tokens]])
    found = target.forward(block, cache, tree_mask=tree.mask())
    for row in range(len(tree) + 1):
        path = [3, *(tree.tokens[node] for node in tree.path(row - 1))]
        alone = target.forward(torch.cat([ids, torch.tensor([path])], dim=1))
        for one, whole in zip(vars(found).values(), vars(alone).values(), strict=True):
            torch.testing.assert_close(one[:, row], whole[:, -1], atol=1e-4, rtol=0)


def test_a_window_counts_the_token_itself():
    """Window 3: the token and the two before it, as transformers counts."""
    rows = ["10000", "11000", "11100", "01110", "00111"]
    expected = torch.tensor([[sign == "1" for sign in row] for row in rows])
    assert torch.equal(windowed(causal_mask(5, 5)[None], 3)[0], expected)


def test_a_window_larger_than_the_text_changes_nothing():
    family, changes = BIG_WINDOW
    model, ids = tiny_model(family, **changes), tokens(1, 40)
    plain = tiny_model(family, sliding_window=None)
    assert torch.equal(
        Target(model).forward(ids).logits, Target(plain).forward(ids).logits
    )


def test_gemma_2_is_loaded_with_its_caps(tmp_path):
    """Whatever attention the library would choose: not all kinds have the cap."""
    model, ids = family_model("Gemma2"), tokens(1, 16)
    model.save_pretrained(tmp_path)
    target = load_target(tmp_path)
    assert torch.equal(target.forward(ids).logits, Target(model).forward(ids).logits)
    config = model.config
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        uncapped = tiny_model("Gemma2", **RUN["Gemma2"] | {cap: None})
        assert not torch.equal(
            Target(uncapped).forward(ids).logits, target.forward(ids).logits
        )
    config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="load it with attn_implementation='eager'"):
        Target(model)


def test_a_draft_cannot_be_trained_on_stored_features_of_a_capped_head():
    with pytest.raises(ValueError, match=r"gemma2.*more to its logits than"):
        _ = Target(family_model("Gemma2")).head


def test_longrope_ends_the_context_where_its_angles_change():
    """Phi-3's long contexts: keys cached before that point would be wrong after it."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [8.0] * 8,
        "original_max_position_embeddings": 32,
    }
    model = tiny_model(
        "Phi3",
        rope_parameters=rope,
        original_max_position_embeddings=32,
        pad_token_id=0,
    )
    target, prompt = Target(model), tokens(9, seed=3).tolist()
    assert (target.max_positions, model.config.max_position_embeddings) == (32, 256)
    right = library_answer(model, prompt, 23, [])
    drafter = ScriptDrafter([*right, *right], 4, [True, True, False])
    engine = Engine(target, drafter, Request(tuple(prompt), 99))
    assert list(check_invariants(engine).token_ids) == right
    assert engine.finish_reason == "context"


def test_gemma_3_with_pictures_runs_on_texts():
    """Its text model lies one level deeper."""
    text = SIZES | {"head_dim": 16, "sliding_window": 5}
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.eval().requires_grad_(False)
    target, prompt = Target(model), tokens(9, seed=3).tolist()
    right = library_answer(model, prompt, 28, [])
    for drafter in script_drafters(right):
        engine = Engine(target, drafter, Request(tuple(prompt), 20))
        assert list(check_invariants(engine).token_ids) == right[:20]

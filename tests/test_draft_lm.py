"""The draft language model: in both of its forms, what it learns, its files.

Right values: the library's own forward of the same network, the loss row by row, and
chains guessed token by token.
"""

import json
import math

import helpers
import pytest
import torch
import transformers
from helpers import toy
from safetensors.torch import load_file, save_file
from tiny import tiny_model, tokens

from eagle3 import draft_lm
from eagle3.draft_lm import (
    DraftLmConfig,
    copy_target_layers,
    draft_lm_model,
    load_draft_lm,
    new_draft_lm,
    save_draft_lm,
)
from eagle3.model_files import CheckpointError
from eagle3.target import Target
from eagle3.training.batches import FeatureBatch
from eagle3.training.distillation import HeadRows
from eagle3.training.draft_lm import (
    DraftLmRecipe,
    draft_lm_alphas,
    draft_lm_loss,
    new_recipe,
)
from eagle3.training.features import look
from eagle3.training.recipe import Start
from eagle3.training.trainer import TrainConfig, Trainer

IDS = (1, 5, 80, 3, 60, 60, 2)


def some_model(num_layers: int = 2, target: Target | None = None):
    """A draft of the toy's first and last layers."""
    model = new_draft_lm(target or toy(), num_layers)
    layers = (0, 7)[-num_layers:]
    copy_target_layers(model, helpers.library_toy().state_dict(), layers)
    return model


@pytest.fixture
def folder(tmp_path):
    save_draft_lm(some_model(), tmp_path / "draft")
    return tmp_path / "draft"


# ---- what it is


@pytest.mark.parametrize("tied", [True, False])
def test_the_ends_are_the_targets_own_memory_and_take_no_gradient(tied):
    target = Target(tiny_model(tie_word_embeddings=tied))
    model = new_draft_lm(target, 1)
    ends = model.model.embed_tokens.weight, model.lm_head.weight
    assert ends[0].data_ptr() == target.embedding.data_ptr()
    assert ends[1].data_ptr() == target.head.data_ptr()
    assert not any(end.requires_grad for end in ends)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained == {n for n in model.state_dict() if "layers.0" in n} | {
        "model.norm.weight"
    }
    assert len(trained) == 10


def test_making_one_leaves_the_global_random_numbers_alone():
    before = torch.random.get_rng_state()
    model = new_draft_lm(toy(), 1)
    assert torch.equal(torch.random.get_rng_state(), before)
    again = new_draft_lm(toy(), 1)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_draft_of_all_layers_is_the_target():
    model = new_draft_lm(toy(), 8)
    copy_target_layers(model, helpers.library_toy().state_dict(), tuple(range(8)))
    ids = torch.tensor([IDS])
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids).logits, helpers.library_toy()(ids).logits, atol=1e-5, rtol=0
        )


@pytest.mark.parametrize(
    ("layers", "missing"), [((0, 8), r"layers\.8\."), ((9, 1), r"layers\.9\.")]
)
def test_layers_that_the_target_lacks_are_refused(layers, missing):
    with pytest.raises(ValueError, match=f"{missing}.* is missing or not"):
        copy_target_layers(
            new_draft_lm(toy(), 2), helpers.library_toy().state_dict(), layers
        )


def test_a_target_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="of the kind qwen2"):
        new_draft_lm(Target(tiny_model("Qwen2")), 1)
    with pytest.raises(ValueError, match="of the kind llama with biases"):
        new_draft_lm(Target(tiny_model(attention_bias=True)), 1)
    with pytest.raises(ValueError, match=r"num_layers .* is 0"):
        new_draft_lm(toy(), 0)


# ---- both forms


@pytest.mark.parametrize("num_layers", [1, 2])
def test_as_a_target_it_computes_what_the_librarys_model_computes(tmp_path, num_layers):
    save_draft_lm(some_model(num_layers), tmp_path)
    model, draft = draft_lm_model(tmp_path, toy()), load_draft_lm(tmp_path, toy())
    assert draft.is_lean and draft.taps == () and draft.num_layers == num_layers
    ids = tokens(1, 30, vocab=96)
    with torch.no_grad():
        right = model(ids).logits
    cache = draft.new_cache(30)
    for start, end in ((0, 20), (20, 21), (21, 26), (26, 30)):
        output = draft.forward(ids[:, start:end], cache)
        torch.testing.assert_close(
            output.logits, right[:, start:end], atol=1e-4, rtol=0
        )
        assert output.features.shape == (1, end - start, 0)


def test_the_packed_form_equals_the_stock_one(folder):
    model = draft_lm_model(folder, toy())
    ids = tokens(2, 9, vocab=96)
    stock, packed = Target(model, taps=(), lean=False), Target(model, taps=())
    assert packed.is_lean and not stock.is_lean
    for a, b in zip(
        vars(stock.forward(ids)).values(),
        vars(packed.forward(ids)).values(),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=0)


def test_transformers_drafts_with_it_and_answers_as_without(folder):
    """The library's own assisted generation is lossless; ours is its assistant."""
    target, ids = helpers.library_toy(), torch.tensor([[5, 17, 80, 3]])
    options = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 20,
        "do_sample": False,
        "pad_token_id": 0,
    }
    assistant = draft_lm_model(folder, toy())
    calls = []
    assistant.model.register_forward_hook(lambda *_: calls.append(1))
    found = target.generate(ids, assistant_model=assistant, **options)
    assert calls
    assert torch.equal(found, target.generate(ids, **options))


def test_tokenizer_and_ends_of_answers_are_the_targets(folder):
    target = helpers.talking_toy()
    target.eos_token_ids = (7, 9)
    assert load_draft_lm(folder, target).tokenizer is target.tokenizer
    assert load_draft_lm(folder, target).eos_token_ids == (7, 9)
    assert load_draft_lm(folder, toy()).eos_token_ids == ()


# ---- training


def test_the_loss_is_the_formula_row_by_row():
    mask = [[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]
    ids, hidden = (
        tokens(2, 6, vocab=96),
        torch.randn(2, 6, 64, generator=torch.Generator().manual_seed(3)),
    )
    model = some_model(1)
    batch = FeatureBatch(hidden, ids, torch.tensor(mask))
    loss, accuracy = draft_lm_loss(model, batch, HeadRows(toy().head))
    log_q = model(ids).logits.log_softmax(-1)
    log_p = (hidden @ toy().head.T).log_softmax(-1)
    terms, agree = [], []
    for b, row in enumerate(mask):
        for i, counts in enumerate(row):
            if counts:
                terms.append(-(log_p[b, i].exp() * log_q[b, i]).sum())
                agree.append(bool(log_p[b, i].argmax() == log_q[b, i].argmax()))
    assert len(terms) == 6
    right = sum(terms) / 6
    torch.testing.assert_close(loss, right)
    assert math.isclose(accuracy, sum(agree) / 6, abs_tol=1e-6)
    weight = model.model.layers[0].mlp.up_proj.weight
    torch.testing.assert_close(
        torch.autograd.grad(loss, weight, retain_graph=True),
        torch.autograd.grad(right, weight),
        atol=1e-5,
        rtol=1e-3,
    )


def test_padding_changes_nothing():
    """A short text beside a long one is scored as it is alone."""
    sequences = [helpers.greedy_sequence((5, 2), 6), helpers.greedy_sequence((9,), 20)]
    views = [look(toy(), s.token_ids) for s in sequences]
    recipe = DraftLmRecipe(toy(), some_model())
    both = recipe.loss(recipe.make_batch(sequences, views), 0)[0]
    alone = [
        recipe.loss(recipe.make_batch([s], [v]), 0)[0]
        for s, v in zip(sequences, views, strict=True)
    ]
    torch.testing.assert_close(both, (6 * alone[0] + 20 * alone[1]) / 26)


def test_n_alpha_is_what_chains_from_every_row_give():
    """Brute force: let the draft write from each row, and stop at the first miss."""
    sequences = [helpers.greedy_sequence((i, 7, 2 * i), 12 + i) for i in range(3)]
    model = new_draft_lm(toy(), 7)  # near enough to be right now and then
    copy_target_layers(model, helpers.library_toy().state_dict(), (0, 1, 2, 3, 4, 6, 7))
    views = [look(toy(), s.token_ids) for s in sequences]
    batch = DraftLmRecipe(toy(), model).make_batch(sequences, views)
    reached, right = [0] * 4, [0] * 4
    for s in sequences:
        ids = s.token_ids.tolist()
        for i in range(s.num_prompt - 1, len(ids) - 1):
            known = ids[: i + 2]  # the pending token is the last one
            for n in range(4):
                if len(known) == len(ids):
                    break
                reached[n] += 1
                with torch.no_grad():
                    guess = int(model(torch.tensor([known])).logits[0, -1].argmax())
                if guess != ids[len(known)]:
                    break
                right[n] += 1
                known.append(guess)
    assert right[1] and reached[0] > right[0]
    wanted = [a / max(1, b) for a, b in zip(right, reached, strict=True)]
    assert draft_lm_alphas(model, [batch], 4) == wanted


def recipe(num_layers: int = 2) -> DraftLmRecipe:
    weights = helpers.library_toy().state_dict()
    return new_recipe(Start(toy(), [], weights), num_layers)


def test_a_new_one_starts_as_the_first_layers_and_unsure():
    state, target = recipe(3).model.state_dict(), helpers.library_toy().state_dict()
    layers = [name for name in state if "layers" in name]
    assert len(layers) == 3 * 9
    assert all(torch.equal(state[name], target[name]) for name in layers)
    norm = "model.norm.weight"
    torch.testing.assert_close(state[norm], 0.3 * target[norm])


SEQUENCES = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(4)]


def test_one_sample_is_learnt_by_heart(tmp_path):
    sequence = helpers.greedy_sequence((1, 2, 7), 16)
    config = TrainConfig(150, 1, 1e-2, 5, log_every=1000, evaluate_every=1000)
    run = Trainer(toy(), recipe(), ([sequence], [sequence]), tmp_path / "r", config)
    run.train()
    assert run.evaluate() == [1.0] * 4
    draft, ids = Target(run.recipe.model, taps=()), sequence.token_ids.tolist()
    assert helpers.vanilla(draft, ids[:6], 10) == tuple(ids[6:16])


class Killed(Exception):
    pass


def test_a_killed_and_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = TrainConfig(2, 2, 3e-3, 1, log_every=1, evaluate_every=1)

    def run(name: str) -> Trainer:
        folder = tmp_path / name / "run"
        return Trainer(toy(), recipe(), (SEQUENCES, SEQUENCES[:1]), folder, config)

    whole, cut = run("whole"), run("cut")
    whole.train()
    update = Trainer._update

    def until_killed(self, batch):
        if self.step == 2:
            raise Killed
        return update(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", until_killed)
        with pytest.raises(Killed):
            cut.train()
    again = run("cut")
    again.train()
    assert again.step == 4
    want, got = whole.recipe.model.state_dict(), again.recipe.model.state_dict()
    assert all(torch.equal(got[name], value) for name, value in want.items())
    assert torch.equal(want["model.embed_tokens.weight"], toy().embedding)


def test_another_number_of_layers_is_another_run():
    assert recipe(1).identity() != recipe(2).identity() == recipe(2).identity()


# ---- files


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_saved_comes_back(tmp_path, dtype):
    saved = some_model()
    save_draft_lm(saved, tmp_path, dtype)
    stored = load_file(tmp_path / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {dtype}
    assert len(stored) == 2 * 9 + 1 and not any("embed" in name for name in stored)
    loaded = draft_lm_model(tmp_path, toy())
    assert not any(p.requires_grad for p in loaded.parameters())
    for name, value in saved.state_dict().items():
        rounded = value.to(dtype).float() if name in stored else value
        assert torch.equal(loaded.state_dict()[name], rounded), name


def test_the_table_of_shapes_is_the_librarys(folder):
    state = some_model().state_dict()
    for end in ("model.embed_tokens.weight", "lm_head.weight"):
        del state[end]
    shapes = draft_lm._shapes(DraftLmConfig.of(some_model().config))
    assert {name: tuple(t.shape) for name, t in state.items()} == shapes


def test_the_default_draft_is_the_packages(folder, monkeypatch):
    monkeypatch.setattr(draft_lm, "SHIPPED_DRAFT_LM", folder)
    monkeypatch.setattr(draft_lm, "_default_target", toy)
    assert type(draft_lm_model()) is transformers.LlamaForCausalLM
    assert load_draft_lm().num_layers == 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"vocab_size": 100}, "vocab_size 96, but this target has 100"),
        ({"intermediate_size": 80}, "intermediate_size 128, but this target has 80"),
        ({"num_key_value_heads": 4}, "num_kv_heads 2, but this target has 4"),
    ],
)
def test_a_draft_of_another_target_is_refused(folder, sizes, message):
    (folder / "model.safetensors").unlink()  # refused before it is read
    same = {"vocab_size": 96, "intermediate_size": 128}
    target = Target(tiny_model(**same | sizes))
    with pytest.raises(ValueError, match=message):
        load_draft_lm(folder, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.norm.weight"), r"lacks \['model.norm.weight'\]"),
        (lambda t: t.update({"lm_head.weight": torch.ones(2)}), "left over"),
        (lambda t: t.update({"model.norm.weight": torch.ones(2)}), r"needs \[64\]"),
        (lambda t: t["model.norm.weight"].fill_(math.inf), "holds NaN or infinite"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(folder, change, message):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        draft_lm_model(folder, toy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 3}, r"lacks \['model.layers.2"),
        ({"num_layers": 0}, "num_layers of the draft language model is 0"),
        ({"num_layers": 2.0}, "2.0 for num_layers"),
        ({"rope": None}, "missing or unknown fields: rope"),
        ({"format": "eagle3-draft"}, "does not say"),
    ],
)
def test_configs_that_do_not_fit_are_refused(folder, change, message):
    path = folder / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8")) | change
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        draft_lm_model(folder, toy())

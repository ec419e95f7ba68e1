"""Training of EAGLE-1 and HASS: losses against the official ones, steps, n-alpha.

Right values are the official objective (oracle), brute-force twins that run the draft's
cached path from one position at a time, and formulas by hand.
"""

import math
from dataclasses import replace

import helpers
import oracles
import pytest
import torch
import torch.nn.functional as F
from helpers import toy
from torch.testing import assert_close

from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.engine import generate
from eagle3.training.eagle1 import (
    Eagle1Batch,
    Eagle1Recipe,
    FeatureLossConfig,
    feature_losses,
)
from eagle3.training.features import look
from eagle3.training.hass import HassRecipe
from eagle3.training.recipe import Start
from eagle3.training.recipes import RECIPES, new_recipe, require_options
from eagle3.training.trainer import TrainConfig, Trainer

SEQUENCES = [helpers.greedy_sequence((i, 3 * i + 2, 7), 8 + i) for i in range(6)]
HASS = FeatureLossConfig(steps=3, top_k=10)


def toy_draft(seed: int = 0) -> Eagle1Draft:
    config = Eagle1Config.for_target(toy().config)
    draft = Eagle1Draft(config, toy().embedding, toy().head)
    draft.reset_parameters(torch.Generator().manual_seed(seed))
    return draft


def toy_batch(config: FeatureLossConfig = HASS) -> tuple[Eagle1Draft, Eagle1Batch]:
    recipe = Eagle1Recipe(toy(), toy_draft(), config)
    views = [look(toy(), s.token_ids) for s in SEQUENCES[:3]]
    return recipe.model, recipe.make_batch(SEQUENCES[:3], views)


# The losses


def official_batch() -> Eagle1Batch:
    want = oracles.tensors("eagle1_losses")
    mask = want["loss_mask"].clone()
    mask[:, -1] = 1  # the official code clears it, and so must we
    lengths = torch.tensor([32, 32])
    return Eagle1Batch(want["features"], want["input_ids"], mask, lengths)


def test_losses_and_gradients_are_the_official_ones():
    want, draft = oracles.tensors("eagle1_losses"), oracles.official_eagle1_draft()
    losses = feature_losses(draft, official_batch(), FeatureLossConfig())
    for ours, theirs in (
        (losses.feature[0], want["vloss"]),
        (losses.token[0], want["ploss"]),
        (losses.total, want["total"]),
    ):
        assert_close(ours, theirs, atol=oracles.ATOL_LOSS, rtol=0)
    losses.total.backward()
    assert_close(
        draft.fc.bias.grad, want["grad_fc_bias"], atol=oracles.ATOL_GRAD, rtol=0
    )
    norms = oracles.meta("eagle1_losses")["grad_norms"]
    assert set(norms) == set(oracles.EAGLE1_NAMES)
    for theirs, norm in norms.items():
        gradient = draft.get_parameter(oracles.EAGLE1_NAMES[theirs]).grad
        assert float(gradient.norm()) == pytest.approx(norm, abs=2e-5), theirs


@pytest.mark.parametrize("name", ["feature", "token", "top_k"])
def test_the_total_is_the_weighted_sum(name):
    draft, batch = toy_batch()
    weights = {"feature_weight": 0.0, "token_weight": 0.0, "top_k_weight": 0.0}
    weights[f"{name}_weight"] = 2.5
    losses = feature_losses(draft, batch, replace(HASS, **weights))
    assert_close(losses.total.detach(), 2.5 * getattr(losses, name).sum())


@torch.no_grad()
def test_each_step_is_the_chain_that_the_draft_would_run():
    """From every row: real features up to it, then its own, in the cached path."""
    draft, batch = toy_batch()
    draft.layer.q.weight *= 20  # sharp attention, so that wrong positions show
    losses = feature_losses(draft, batch, HASS)
    sums, counts = torch.zeros(4, 3), torch.zeros(3)
    for b, length in enumerate(batch.lengths.tolist()):
        ids, real = batch.input_ids[b], batch.features[b]
        for i in range(length - 1):
            cache, x = draft.new_cache(40), real[None, : i + 1]
            at = torch.arange(i + 1)
            for s in range(min(3, length - 1 - i)):
                x = draft(ids[None, at + 1], x, at, cache)[:, -1:]
                at = torch.tensor([i + s + 1])
                if not batch.loss_mask[b, i + s]:
                    continue
                wanted = real[i + s + 1]
                p = (toy().head @ wanted).softmax(-1)
                log_q = (toy().head @ x[0, 0]).log_softmax(-1)
                top = p.argsort(descending=True)[:10]
                sums[:, s] += torch.stack(
                    [
                        F.smooth_l1_loss(x[0, 0], wanted),
                        -(p * log_q).sum(),
                        -(p * log_q)[top].sum(),
                        (p.argmax() == log_q.argmax()).float(),
                    ]
                )
                counts[s] += 1
    found = (losses.feature, losses.token, losses.top_k, losses.accuracy)
    assert_close(torch.stack(found), sums / (counts + 1e-5), atol=1e-4, rtol=1e-4)
    assert counts.min() > 10


def test_what_a_step_reads_is_a_constant_to_it():
    """The gradient of two steps is that of the second one run on given features."""
    draft, batch = toy_batch()
    row = torch.zeros_like(batch.loss_mask)
    row[0, 4] = True  # rows 4 and, at the second step, 3
    batch, config = replace(batch, loss_mask=row), FeatureLossConfig(2)
    draft.layer.k.requires_grad_(False)  # keys of step 0 are shared by both steps
    draft.layer.v.requires_grad_(False)
    draft.fc.requires_grad_(False)
    feature_losses(draft, batch, config).total.backward()
    found = draft.layer.down.weight.grad.clone()

    draft.zero_grad()
    ids, rows, keys = batch.input_ids, torch.arange(batch.input_ids.shape[1]), []
    first = draft.forward_ttt(ids.roll(-1, 1), batch.features, rows, keys)
    second = draft.forward_ttt(ids.roll(-2, 1), first.detach(), rows + 1, keys)
    wanted = batch.features[0, 5]
    p = (wanted @ toy().head.T).softmax(-1)
    for guess in (first[0, 4], second[0, 3]):
        token = -(p * draft.logits(guess).log_softmax(-1)).sum()
        (F.smooth_l1_loss(guess, wanted) + 0.1 * token).backward(retain_graph=True)
    assert_close(found, draft.layer.down.weight.grad, atol=1e-4, rtol=1e-3)


def test_no_feature_loss_leaves_the_tokens_alone_to_teach():
    draft, batch = toy_batch()
    config = FeatureLossConfig(feature_weight=0.0)
    losses = feature_losses(draft, batch, config)
    assert losses.feature[0] > 0  # still told
    assert_close(losses.total.detach(), 0.1 * losses.token[0])


def test_noise_has_the_official_width_and_follows_from_the_step():
    """Uniform within 0.1 * 512 / T on each side, T of the sequence itself."""
    draft, batch = toy_batch()
    seen = []
    draft.forward_ttt = lambda ids, x, at, steps: seen.append(x) or x
    recipe = Eagle1Recipe(toy(), draft, FeatureLossConfig())
    for step in (3, 3, 4):
        recipe.loss(batch, step)
    for b, length in enumerate(batch.lengths.tolist()):
        noise = (seen[0] - batch.features)[b, :length]
        bound = 0.1 * 512 / length
        assert 0.95 * bound < noise.abs().max() <= bound * (1 + 1e-5)
        assert noise.mean().abs() < 0.05 * bound
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": 0}, "at least 1 step, not 0"),
        ({"feature_weight": -1.0}, "feature_weight is -1.0"),
        ({"token_weight": math.nan}, "token_weight is nan"),
        ({"noise": math.inf}, "noise is inf"),
        ({"top_k": -1}, "top_k is -1"),
    ],
)
def test_settings_out_of_range_are_refused(change, told):
    with pytest.raises(ValueError, match=told):
        FeatureLossConfig(**change)


# The recipes


def start() -> Start:
    return Start(toy(), SEQUENCES, helpers.library_toy().state_dict())


def test_the_table_of_recipes():
    eagle1 = new_recipe("eagle1", start(), {})
    assert type(eagle1) is Eagle1Recipe and eagle1.config == FeatureLossConfig()
    bare = new_recipe("eagle1", start(), {"feature_weight": 0.0})
    assert bare.config == FeatureLossConfig(feature_weight=0.0)
    hass = new_recipe("hass", start(), {"ttt_steps": 4})
    assert type(hass) is HassRecipe and hass.config == replace(HASS, steps=4)
    eagle3 = new_recipe("eagle3", start(), {"draft_vocab_size": 9, "ttt_steps": 2})
    assert len(eagle3.model.d2t) == 9 and eagle3.ttt.steps == 2
    assert {name: RECIPES[name](start()).name for name in ("eagle1", "hass")} == {
        "eagle1": "eagle1",
        "hass": "hass",
    }
    with pytest.raises(ValueError, match="no recipe 'eagle4': take one of eagle3"):
        require_options("eagle4", {})
    with pytest.raises(ValueError, match="'eagle1' has no option 'ttt_steps'"):
        require_options("eagle1", {"ttt_steps": 2})


def test_recipes_that_differ_are_told_apart():
    draft = toy_draft()
    kinds = [
        Eagle1Recipe(toy(), draft, FeatureLossConfig()),
        Eagle1Recipe(toy(), draft, FeatureLossConfig(feature_weight=0.0)),
        HassRecipe(toy(), draft, FeatureLossConfig()),
    ]
    assert len({kind.identity() for kind in kinds}) == 3


@pytest.mark.parametrize("kind", [Eagle1Recipe, HassRecipe])
def test_a_killed_and_resumed_run_ends_with_the_same_bits(tmp_path, kind):
    losses = HASS if kind is HassRecipe else FeatureLossConfig()
    config = TrainConfig(
        epochs=2, warmup_steps=2, learning_rate=2e-3, log_every=1, evaluate_every=2
    )

    def run(name: str) -> Trainer:
        recipe = kind(toy(), toy_draft(), losses)
        data = (SEQUENCES, SEQUENCES[:2])
        return Trainer(toy(), recipe, data, tmp_path / name / "run", config)

    whole, cut = run("whole"), run("cut")
    whole.train()
    update = cut._update

    def until_killed(batch):
        if cut.step == 3:
            raise KeyboardInterrupt
        return update(batch)

    cut._update = until_killed
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    again = run("cut")
    again.train()
    a, b = again.recipe.model.state_dict(), whole.recipe.model.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in b)
    assert torch.equal(a["lm_head.weight"], toy().head)  # frozen is frozen


def test_one_sample_is_learnt_by_heart(tmp_path):
    """HASS, so that the draft's own features are trained; tau is then chain + 1."""
    prompt = (60, 2, 50, 4)
    sequence = helpers.greedy_sequence(prompt, 24)
    config = TrainConfig(
        epochs=300,
        batch_size=1,
        learning_rate=3e-3,
        warmup_steps=5,
        evaluate_every=1000,
    )
    losses = FeatureLossConfig(steps=4, token_weight=1.0, noise=0.0)
    recipe = HassRecipe(toy(), toy_draft(), losses)
    trained = Trainer(toy(), recipe, ([sequence], [sequence]), tmp_path / "r", config)
    trained.train()
    assert trained.evaluate()[:4] == [1.0] * 4
    count = 1 + 5 * 4
    result = generate(toy(), recipe.model, prompt, max_new_tokens=count, chain_length=3)
    assert result.token_ids == tuple(sequence.token_ids[4 : 4 + count].tolist())
    assert result.acceptance_length == 4.0

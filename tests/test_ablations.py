"""Drafts without one part: what they compute, where they start, that runs resume.

Right values: the whole head on the same rows, the whole draft with the other taps at
zero, and the formulas of the losses, which are tested elsewhere.
"""

from pathlib import Path

import helpers
import pytest
import torch

from eagle3.drafters import EagleDrafter
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.engine import Request, run
from eagle3.growth import chain
from eagle3.target import toy_target
from eagle3.training.ablations import (
    SmallHeadRecipe,
    plain_start,
    small_headed,
)
from eagle3.training.eagle1 import FeatureLossConfig
from eagle3.training.eagle3 import Eagle3Recipe
from eagle3.training.features import look
from eagle3.training.losses import TttConfig

VOCABULARY = torch.arange(0, 96, 2)


def test_a_cut_down_head_scores_its_tokens_as_the_whole_one_does():
    target = toy_target()
    vocabulary = torch.tensor([3, 7, 8, 90])
    small = small_headed(target, vocabulary, seed=0)
    config = Eagle1Config.for_target(target.config)
    whole = Eagle1Draft(config, target.embedding, target.head)
    x = torch.randn(5, target.hidden_size, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(small.logits(x), whole.logits(x)[:, vocabulary], atol=1e-5)
    assert torch.equal(small.d2t, vocabulary)
    assert not small.lm_head.weight.requires_grad
    for name, weight in small.named_parameters():
        if name != "lm_head.weight":  # the same start for every run
            assert torch.equal(weight, whole.get_parameter(name))


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path):
    target, vocabulary = toy_target(), torch.tensor([3, 7, 8, 90])
    recipes = [
        SmallHeadRecipe(
            target, small_headed(target, vocabulary, seed=0), FeatureLossConfig()
        )
        for _ in range(2)
    ]
    trained, fresh = (recipe.model for recipe in recipes)
    trained.reset_parameters(torch.Generator().manual_seed(5))
    recipes[0].save(tmp_path, torch.float32)
    recipes[1].load(tmp_path)
    for name, weight in trained.state_dict().items():
        assert torch.equal(weight, fresh.state_dict()[name]), name
    assert fresh.lm_head.weight.shape == (4, target.hidden_size)


def test_a_draft_without_fusion_reads_the_top_feature_as_the_whole_one_its_last_tap():
    target = toy_target()
    top = plain_start(target, VOCABULARY, seed=1, fused=False)
    whole = plain_start(target, VOCABULARY, seed=1)
    feature = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))
    others = torch.zeros(2, 5, 128)
    want = whole.fuse(torch.cat([others, feature], dim=-1))
    torch.testing.assert_close(top.fuse(feature), want)
    assert (top.reads, whole.reads) == ("hidden", "features")


def test_all_start_with_the_targets_head_and_else_from_the_seed():
    target = toy_target()
    first, same, other = (plain_start(target, VOCABULARY, seed) for seed in (0, 0, 1))
    torch.testing.assert_close(first.lm_head.weight, target.head[VOCABULARY])
    torch.testing.assert_close(other.lm_head.weight, target.head[VOCABULARY])
    assert torch.equal(first.layer.q.weight, same.layer.q.weight)
    assert not torch.equal(first.layer.q.weight, other.layer.q.weight)


@pytest.mark.parametrize("fused", [True, False])
def test_a_trained_ablation_drafts_losslessly_and_is_read_back(fused, tmp_path):
    target = toy_target()
    draft = plain_start(target, VOCABULARY, seed=0, fused=fused)
    sequences = [helpers.greedy_sequence((3, 1, 4), 20)]
    recipe = Eagle3Recipe(target, draft, TttConfig(3))
    views = [look(target, sequence.token_ids) for sequence in sequences]
    batch = recipe.make_batch(sequences, views)
    before, _ = recipe.loss(batch, 0)
    helpers.overfit(target, draft, sequences, num_updates=8)
    after, _ = recipe.loss(batch, 0)
    assert after < 0.8 * before
    request = Request((3, 1, 4), 20)
    result = run(target, EagleDrafter(target, draft, chain(3)), request)
    assert result.token_ids == tuple(sequences[0].token_ids[3:].tolist())
    recipe.save(tmp_path, torch.float32)
    again = Eagle3Recipe(
        target, plain_start(target, VOCABULARY, seed=7, fused=fused), TttConfig(3)
    )
    again.load(tmp_path)
    for name, weight in draft.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name


def test_unused_columns_of_the_fusion_are_not_trained():
    target = toy_target()
    draft = plain_start(target, VOCABULARY, seed=0, fused=False)
    recipe = Eagle3Recipe(target, draft, TttConfig(2))
    sequences = [helpers.greedy_sequence((3, 1, 4), 12)]
    views = [look(target, sequence.token_ids) for sequence in sequences]
    loss, _ = recipe.loss(recipe.make_batch(sequences, views), 0)
    loss.backward()
    assert not draft.fc.weight.grad[:, :128].any()
    assert draft.fc.weight.grad[:, 128:].any()

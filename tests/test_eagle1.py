"""eagle3.eagle1 against the official draft of EAGLE-1, and its own invariants."""

from dataclasses import replace

import oracles
import pytest
import torch
from helpers import toy
from torch.testing import assert_close
from transformers import LlamaConfig

from eagle3.draft import Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.masks import ttt_mask
from eagle3.rope import RopeConfig

SMALL = Eagle1Config(
    hidden_size=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=20,
    vocab_size=30,
    rms_norm_eps=1e-5,
    rope=RopeConfig(10_000.0),
    max_positions=64,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_draft() -> Eagle1Draft:
    return Eagle1Draft(SMALL, random(30, 12, seed=7), random(30, 12, seed=8))


@torch.no_grad()
def test_prefill_and_chain_are_the_official_ones():
    want, draft = (
        oracles.tensors("eagle1_draft_forward"),
        oracles.official_eagle1_draft(),
    )
    cache = draft.new_cache(16)

    def close(f: torch.Tensor, name: str) -> None:
        assert_close(f, want[f"{name}.f_hat"], atol=oracles.ATOL_HIDDEN, rtol=0)
        scores = draft.logits(f)
        assert_close(scores, want[f"{name}.logits"], atol=oracles.ATOL_LOGITS, rtol=0)

    f = draft.fuse(want["prefill.features"])
    f = draft(want["prefill.input_ids"], f, torch.arange(12), cache)
    close(f, "prefill")
    for s in range(3):
        assert_close(f[:, -1:], want[f"step{s}.x"], atol=oracles.ATOL_HIDDEN, rtol=0)
        f = draft(want[f"step{s}.input_ids"], f[:, -1:], torch.tensor([12 + s]), cache)
        close(f, f"step{s}")
    assert cache.length == 15


@torch.no_grad()
def test_the_first_step_of_training_is_the_official_pass():
    want, draft = (
        oracles.tensors("eagle1_draft_forward"),
        oracles.official_eagle1_draft(),
    )
    f, rows = draft.fuse(want["prefill.features"]), torch.arange(12)
    f = draft.forward_ttt(want["prefill.input_ids"], f, rows, [])
    assert_close(f, want["prefill.f_hat"], atol=oracles.ATOL_HIDDEN, rtol=0)


@torch.no_grad()
def test_training_steps_see_what_the_explicit_mask_shows():
    """Keys of all steps in one cache, and Figure 6's mask over them."""
    draft, x, rows = small_draft(), random(1, 5, 12), torch.arange(5)
    cache, steps, y = draft.new_cache(20), [], x
    for s in range(4):
        ids = torch.arange(s, s + 5)[None]
        x = draft.forward_ttt(ids, x, rows + s, steps)
        y = draft(ids, y, rows + s, cache, ttt_mask(5, s))
        assert_close(x, y, atol=1e-5, rtol=0)


@torch.no_grad()
def test_every_trained_parameter_moves_the_output_and_no_other_is_trained():
    draft = oracles.official_eagle1_draft()
    ids, features = torch.arange(5, 11)[None], random(1, 6, 64)

    def output() -> torch.Tensor:
        return draft(ids, draft.fuse(features), torch.arange(6))

    before = output()
    trained = {n: p for n, p in draft.named_parameters() if p.requires_grad}
    assert set(trained) == set(oracles.EAGLE1_NAMES.values())
    for i, (name, parameter) in enumerate(trained.items()):
        saved = parameter.clone()
        parameter += 0.1 * random(*parameter.shape, seed=i)
        assert (output() - before).abs().max() > 1e-4, name
        parameter.copy_(saved)


@torch.no_grad()
def test_it_reads_the_feature_that_the_targets_head_reads():
    """So that real features give the target's own scores."""
    target = toy()
    config = Eagle1Config.for_target(target.config)
    draft = Eagle1Draft(config, target.embedding, target.head)
    draft.require_fit(target)
    output = target.forward(torch.tensor([[3, 1, 4, 1, 5]]))
    feature = draft.fuse(getattr(output, draft.reads))
    assert_close(draft.logits(feature), output.logits, atol=1e-4, rtol=1e-4)
    assert draft.embed.weight.data_ptr() == target.embedding.data_ptr()  # no copy
    probs = random(2, 96).softmax(-1)
    assert torch.equal(draft.to_target_vocab(probs), probs)
    assert torch.equal(draft.d2t, torch.arange(96))


def test_new_weights_leave_what_is_the_targets():
    draft = small_draft()
    before = {name: value.clone() for name, value in draft.state_dict().items()}
    draft.reset_parameters(torch.Generator().manual_seed(5))
    after = draft.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"embed.weight", "lm_head.weight", "layer.post_norm.weight"}
    assert not draft.lm_head.weight.requires_grad
    assert 0 < after["fc.bias"].abs().max() <= 24**-0.5  # nn.Linear's bound


def test_config_for_a_target():
    hf = LlamaConfig(
        hidden_size=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=20,
        vocab_size=30,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    assert Eagle1Config.for_target(hf) == SMALL


@pytest.mark.parametrize(
    ("embedding", "head", "message"),
    [
        (random(30, 11), None, r"embedding of shape \[30, 12\], not \[30, 11\]"),
        (None, random(29, 12), r"head of shape \[30, 12\], not \[29, 12\]"),
    ],
)
def test_tensors_of_another_target_are_refused(embedding, head, message):
    with pytest.raises(ValueError, match=message):
        Eagle1Draft(SMALL, embedding, head)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 16}, "hidden_size 16, but this target has 64"),
        ({"hidden_size": 64}, "vocab_size 30, but this target has 96"),
        ({"num_kv_heads": 3}, "cannot share 3"),
        ({"head_dim": 7}, "even head_dim"),
        ({"vocab_size": 0}, "vocab_size of the draft must be positive"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Eagle1Draft(replace(SMALL, **change)).require_fit(toy())


def test_the_two_drafts_are_feature_drafts_of_different_features():
    assert (Eagle1Draft.reads, Eagle3Draft.reads) == ("hidden", "features")

"""eagle3.draft against the official draft and SpecForge, and its own invariants."""

from dataclasses import replace

import oracles
import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig, Qwen3Config

from eagle3.draft import DraftConfig, Eagle3Draft, require_fit
from eagle3.layers import RMSNorm
from eagle3.rope import RopeConfig

SMALL = DraftConfig(
    hidden_size=12,
    target_hidden_size=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,  # 4 * 8 is not 12
    intermediate_size=20,
    vocab_size=30,
    draft_vocab_size=10,
    rms_norm_eps=1e-5,
    rope=RopeConfig(10_000.0),
    max_positions=64,
    taps=(2, 4, 5),
)
VOCAB = torch.arange(0, 30, 3)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_draft() -> Eagle3Draft:
    return Eagle3Draft(SMALL, random(30, 12), VOCAB)


def close(draft: Eagle3Draft, a: torch.Tensor, want: dict, part: str) -> None:
    assert_close(a, want[f"{part}.a"], atol=oracles.ATOL_HIDDEN, rtol=0)
    logits = want[f"{part}.logits"]
    assert_close(draft.logits(a), logits, atol=oracles.ATOL_LOGITS, rtol=0)


@pytest.mark.parametrize("name", oracles.ROPES)
@torch.no_grad()
def test_official_prefill_chain_catch_up_and_tree(name):
    want, draft = oracles.tensors(name), oracles.official_draft(oracles.ROPES[name])
    cache = draft.new_cache(16)
    g = draft.fuse(want["prefill.features"])
    assert_close(g, want["prefill.fused_g"], atol=oracles.ATOL_HIDDEN, rtol=0)
    a = draft(want["prefill.input_ids"], g, torch.arange(12), cache)
    close(draft, a, want, "prefill")
    assert_close(cache.keys[:, :, :12], want["prefill.cache_k"], atol=2e-5, rtol=0)

    a = a[:, -1:]  # each step reads the a of the step before
    for s in range(4):
        assert_close(a, want[f"step{s}.x"], atol=oracles.ATOL_HIDDEN, rtol=0)
        a = draft(want[f"step{s}.input_ids"], a, torch.tensor([12 + s]), cache)
        close(draft, a, want, f"step{s}")
    assert_close(cache.keys, want["step3.cache_k"], atol=2e-5, rtol=0)
    assert_close(cache.values, want["step3.cache_v"], atol=2e-5, rtol=0)

    # Four siblings at one position: each sees the prefix and itself.
    cache.rollback(4)
    mask = torch.cat([torch.ones(4, 12), torch.eye(4)], dim=1).bool()
    at = torch.full((4,), 12)
    a = draft(want["tree.input_ids"], want["tree.x"], at, cache, mask)
    close(draft, a, want, "tree")

    # What the chain wrote is gone: real features take its place.
    cache.rollback(4)
    g = draft.fuse(want["catchup.features"])
    a = draft(want["catchup.input_ids"], g, torch.arange(12, 15), cache)
    close(draft, a, want, "catchup")
    assert cache.length == 15


@torch.no_grad()
def test_specforge_prefill_with_llama3_frequencies():
    want = oracles.tensors("specforge_draft_llama3")
    draft = oracles.official_draft(oracles.ROPES["draft_forward_rope_llama3"])
    a = draft(want["input_ids"], draft.fuse(want["features"]), torch.arange(12))
    assert_close(a, want["a"], atol=oracles.ATOL_HIDDEN, rtol=0)
    assert_close(draft.logits(a), want["logits"], atol=oracles.ATOL_LOGITS, rtol=0)


@torch.no_grad()
def test_the_wrong_base_shows_in_the_logits():
    # The oracles would not notice it if a RoPE setting were ignored by both sides.
    want = oracles.tensors("draft_forward_theta500000")
    draft = oracles.official_draft(RopeConfig(10_000.0))
    g = draft.fuse(want["prefill.features"])
    a = draft(want["prefill.input_ids"], g, torch.arange(12))
    assert (draft.logits(a) - want["prefill.logits"]).abs().max() > 0.1


@pytest.mark.parametrize("path", ["cached", "ttt"])
@torch.no_grad()
def test_every_parameter_moves_the_logits(path):
    draft = oracles.official_draft(RopeConfig(10_000.0))
    ids, features = torch.arange(5, 11)[None], random(1, 6, 192)

    def logits() -> torch.Tensor:
        rows, g = torch.arange(6), draft.fuse(features)
        if path == "cached":
            return draft.logits(draft(ids, g, rows, draft.new_cache(6)))
        return draft.logits(draft.forward_ttt(ids, g, rows, []))

    before = logits()
    for i, (name, parameter) in enumerate(draft.named_parameters()):
        saved = parameter.clone()
        parameter += 0.1 * random(*parameter.shape, seed=i)
        assert (logits() - before).abs().max() > 1e-4, name
        parameter.copy_(saved)
    assert torch.equal(logits(), before)


@torch.no_grad()
def test_blocks_of_any_size_give_the_same_output():
    draft, x = small_draft(), random(2, 9, 12)
    ids = torch.arange(18).view(2, 9)
    want = draft(ids, x, torch.arange(9))  # no cache
    cache = draft.new_cache(9, batch_size=2)
    parts = []
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 9)):
        rows = torch.arange(start, stop)
        parts.append(draft(ids[:, start:stop], x[:, start:stop], rows, cache))
    assert_close(torch.cat(parts, dim=1), want, atol=1e-6, rtol=0)
    assert cache.length == 9
    alone = draft(ids[1:], x[1:], torch.arange(9))  # sequences do not mix
    assert_close(want[1:], alone, atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_embedding_stays_out_of_the_residual_stream():
    # With attention's output cut off, a depends on x alone. [Code: cnets.py]
    draft, x = small_draft(), random(1, 3, 12)
    draft.layer.o.weight.zero_()
    one = draft(torch.tensor([[1, 2, 3]]), x, torch.arange(3))
    two = draft(torch.tensor([[7, 8, 9]]), x, torch.arange(3))
    assert torch.equal(one, two)
    draft.layer.down.weight.zero_()
    assert torch.equal(draft(torch.tensor([[1, 2, 3]]), x, torch.arange(3)), x)


def test_generation_then_training_on_one_draft():
    # Tables first built in inference mode must serve autograd later.
    draft = small_draft()
    with torch.inference_mode():
        draft(torch.tensor([[1]]), random(1, 1, 12), torch.tensor([40]))
    a = draft.forward_ttt(torch.tensor([[1]]), random(1, 1, 12), torch.tensor([0]), [])
    draft.logits(a).sum().backward()
    assert draft.layer.q.weight.grad is not None
    assert draft.embed.weight.grad is None


@torch.no_grad()
def test_low_precision_stays_near_float32():
    want, draft = small_draft(), small_draft().to(torch.bfloat16)
    ids, features = torch.arange(6)[None], random(1, 6, 36)  # float32 features
    exact = want.logits(want(ids, want.fuse(features), torch.arange(6)))
    cache = draft.new_cache(6)
    rough = draft.logits(draft(ids, draft.fuse(features), torch.arange(6), cache))
    assert rough.dtype == cache.keys.dtype == torch.bfloat16
    assert draft.d2t.dtype == torch.int64
    assert_close(rough.float(), exact, atol=0.05, rtol=0)


def test_rms_norm_takes_its_statistics_in_float32():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # its square overflows float16
    norm = RMSNorm(4, 1e-5).half()
    assert_close(norm(x), torch.ones(1, 4, dtype=torch.float16))
    # (3, 4) has length 5, so root mean square 5 / sqrt(2).
    want = torch.tensor([0.6, 0.8]) * 2**0.5
    assert_close(RMSNorm(2, 0.0)(torch.tensor([3.0, 4.0])), want)


def test_probabilities_land_on_their_target_ids():
    draft = small_draft()
    probs = random(2, 3, 10).softmax(-1)
    spread = draft.to_target_vocab(probs)
    assert spread.shape == (2, 3, 30)
    assert torch.equal(spread[..., VOCAB], probs)
    assert not spread[..., ~draft.in_draft].any()
    assert draft.in_draft.nonzero().flatten().tolist() == VOCAB.tolist()


def test_the_whole_vocabulary_needs_no_list():
    draft = Eagle3Draft(replace(SMALL, draft_vocab_size=30))
    assert torch.equal(draft.d2t, torch.arange(30)) and draft.in_draft.all()


def test_embedding_is_a_frozen_copy():
    given = random(30, 12)
    draft = Eagle3Draft(SMALL, given, VOCAB)
    given.zero_()
    assert torch.equal(draft.embed.weight, random(30, 12))
    assert not draft.embed.weight.requires_grad
    trained = [name for name, p in draft.named_parameters() if p.requires_grad]
    assert len(trained) == 13


def test_weights_are_drawn_from_a_generator_of_their_own():
    state = torch.random.get_rng_state()
    one, two = small_draft(), small_draft()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    two.reset_parameters(torch.Generator().manual_seed(1))
    assert not torch.equal(one.fc.weight, two.fc.weight)
    bound = 36**-0.5  # nn.Linear: uniform within 1 / sqrt(inputs)
    assert 0.9 * bound < one.fc.weight.abs().max() <= bound


def test_cache_refuses_what_does_not_fit():
    draft = small_draft()
    cache, ids, x = draft.new_cache(2), torch.zeros(1, 3).long(), random(1, 3, 12)
    with pytest.raises(ValueError, match=r"3 positions do not fit .* cache of 2"):
        draft(ids, x, torch.arange(3), cache)
    assert cache.length == 0
    with pytest.raises(ValueError, match="roll back 1 of 0"):
        cache.rollback(1)
    with pytest.raises(ValueError, match="roll back -1 of 0"):
        cache.rollback(-1)
    with pytest.raises(ValueError, match="room for 1 position, not 0"):
        draft.new_cache(0)


@pytest.mark.parametrize(
    ("embedding", "vocab", "message"),
    [
        (random(30, 11), VOCAB, r"embedding of \[30, 12\], not \[30, 11\]"),
        (None, None, "10 of 30 tokens needs draft_vocab"),
        (None, VOCAB[:9], "shape .9., but the config says draft_vocab_size 10"),
        (None, VOCAB.flip(0), "smallest first"),
        (None, VOCAB.clamp(max=24), "every target id once"),
        (None, VOCAB + 10, "ids from 10 to 37, but the target has ids 0 to 29"),
        (None, VOCAB - 1, "ids from -1 to 26"),
    ],
)
def test_what_does_not_fit_the_config_is_refused(embedding, vocab, message):
    with pytest.raises(ValueError, match=message):
        Eagle3Draft(SMALL, embedding, vocab)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 0}, "num_heads of the draft must be positive, not 0"),
        ({"num_heads": 3}, "3 heads cannot share 2"),
        ({"head_dim": 7}, "even head_dim, not 7"),
        ({"draft_vocab_size": 31}, "31 does not fit into the target's 30"),
        ({"taps": (2, 4)}, r"3 ascending taps, not \(2, 4\)"),
        ({"taps": (2, 4, 4)}, "3 ascending taps"),
        ({"taps": (-1, 4, 5)}, "3 ascending taps"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


@pytest.mark.parametrize("as_dict", [False, True])
def test_config_for_a_target(as_dict):
    hf = Qwen3Config(  # a model whose head_dim is not hidden / heads
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=128,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
    )
    config = DraftConfig.for_target(hf.to_dict() if as_dict else hf, 40, (2, 4, 5))
    rope = RopeConfig(1e6, "linear", 2.0)
    want = DraftConfig(
        hidden_size=64,
        target_hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=128,
        draft_vocab_size=40,
        rms_norm_eps=1e-6,
        rope=rope,
        max_positions=512,
        taps=(2, 4, 5),
    )
    assert config == want


def test_config_for_a_target_without_optional_sizes():
    hf = LlamaConfig(hidden_size=64, num_attention_heads=4).to_dict()
    del hf["head_dim"], hf["num_key_value_heads"]
    config = DraftConfig.for_target(hf, 40, (2, 4, 5))
    assert (config.head_dim, config.num_kv_heads) == (16, 4)
    del hf["intermediate_size"]
    with pytest.raises(ValueError, match="no 'intermediate_size'"):
        DraftConfig.for_target(hf, 40, (2, 4, 5))


class FakeTarget:
    hidden_size, vocab_size, num_layers, taps = 12, 30, 8, (2, 4, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 16}, "hidden_size 12, but this target has 16"),
        ({"vocab_size": 31}, "vocab_size 30, but this target has 31"),
        ({"num_layers": 5}, "taps layer 5, but the target has only 5 layers"),
        ({"taps": (1, 4, 5)}, r"trained on taps \(2, 4, 5\), but .* \(1, 4, 5\)"),
    ],
)
def test_a_draft_for_another_target_is_refused(change, message):
    require_fit(SMALL, FakeTarget())
    other = FakeTarget()
    vars(other).update(change)
    with pytest.raises(ValueError, match=message):
        require_fit(SMALL, other)


# EAGLE-3.1: a norm on each tap, and the normed output fed back


def newer(**switches: bool) -> Eagle3Draft:
    draft = Eagle3Draft(replace(SMALL, **switches), random(30, 12), VOCAB)
    for i, parameter in enumerate(draft.parameters()):
        if parameter.dim() == 1:  # norms, so that leaving one out shows
            parameter.data += 0.3 * random(*parameter.shape, seed=i)
    return draft


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMSNorm written out, with the config's epsilon."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


@torch.no_grad()
def test_each_tap_has_a_norm_of_its_own():
    draft, features = newer(fc_norm=True), random(2, 5, 36)
    low, mid, high = features.split(12, dim=-1)
    scales = [norm.weight for norm in draft.fc_norm]
    parts = [normed(x, w) for x, w in zip((low, mid, high), scales, strict=True)]
    want = torch.cat(parts, dim=-1) @ draft.fc.weight.T
    assert_close(draft.fuse(features), want, atol=1e-5, rtol=0)
    # a tap's size is taken out; one norm over all three would not do that
    louder = torch.cat([low, 100 * mid, high], dim=-1)
    assert_close(draft.fuse(louder), want, atol=1e-3, rtol=0)
    plain = newer()
    assert not hasattr(plain, "fc_norm")
    assert_close(plain.fuse(features), features @ plain.fc.weight.T)


@torch.no_grad()
def test_the_normed_output_is_fed_back_and_normed_once():
    """The same weights without the switch give a; with it, norm(a) and its scores."""
    draft, plain = newer(feed_normed=True), newer()
    plain.load_state_dict(draft.state_dict())
    ids, x, rows = torch.arange(4)[None], random(1, 4, 12), torch.arange(4)
    a = plain(ids, x, rows)
    fed = draft(ids, x, rows)
    assert_close(fed, normed(a, draft.norm.weight), atol=1e-5, rtol=0)
    assert_close(draft.logits(fed), plain.logits(a), atol=1e-5, rtol=0)
    assert_close(draft.forward_ttt(ids, x, rows, []), fed, atol=1e-5, rtol=0)


@torch.no_grad()
def test_training_and_inference_agree_with_both_switches():
    """Step k of training-time test at row i is the k-th chained step at i + k."""
    draft = newer(fc_norm=True, feed_normed=True)
    ids, g = torch.arange(9)[None] * 3, draft.fuse(random(1, 9, 36))
    steps, x, rows = [], g[:, :6], torch.arange(6)
    trained = []
    for k in range(3):
        x = draft.forward_ttt(ids[:, k : k + 6], x, rows + k, steps)
        trained.append(draft.logits(x)[0])
    for i in range(6):
        cache = draft.new_cache(9)
        out = draft(ids[:, : i + 1], g[:, : i + 1], torch.arange(i + 1), cache)[:, -1:]
        for k in range(3):
            if k:
                token = ids[:, i + k : i + k + 1]
                out = draft(token, out, torch.tensor([i + k]), cache)
            assert_close(draft.logits(out)[0, 0], trained[k][i], atol=1e-5, rtol=0)


def test_every_parameter_of_the_newer_draft_is_trained():
    draft = newer(fc_norm=True, feed_normed=True)
    ids, steps = torch.arange(4)[None], []
    x = draft.fuse(random(1, 4, 36))
    for k in range(2):
        x = draft.forward_ttt(ids, x, torch.arange(4) + k, steps)
    draft.logits(x).square().sum().backward()
    for name, parameter in draft.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad.abs().max() > 0, name
    assert len([p for p in draft.parameters() if p.requires_grad]) == 16

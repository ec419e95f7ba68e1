"""eagle3.masks, and that training sees what inference will see.

The two checks that matter most for a draft: the diagonal shortcut of training-time
test equals plain attention under the explicit mask, and the logits of (row i, step s)
in training equal those of the drafting chain from i at inference.
"""

import oracles
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from eagle3.draft import Eagle3Draft
from eagle3.layers import KeyValue, ttt_attention
from eagle3.masks import causal_mask, ttt_mask
from eagle3.rope import RopeConfig

STEPS = 4


@pytest.fixture
def draft() -> Eagle3Draft:
    return oracles.official_draft(RopeConfig(10_000.0))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_causal_mask_is_the_lower_triangle():
    want = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    assert torch.equal(causal_mask(3, 3), want)


def test_causal_mask_shows_all_cached_keys():
    want = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    assert torch.equal(causal_mask(2, 4), want)


def test_causal_mask_needs_the_queries_own_keys():
    with pytest.raises(ValueError, match="3 queries need at least as many keys, not 2"):
        causal_mask(3, 2)


def test_ttt_mask_is_figure_6():
    # Step 2 over 3 rows: a triangle, then the diagonal of each later step.
    want = [
        [1, 0, 0, 1, 0, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 1, 0, 0, 1],
    ]
    assert torch.equal(ttt_mask(3, 2), torch.tensor(want, dtype=torch.bool))
    assert torch.equal(ttt_mask(3, 0), causal_mask(3, 3))


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_diagonal_shortcut_equals_masked_attention(num_kv_heads):
    length, d = 7, 8
    query = random(2, 6, length, d).requires_grad_()
    keys = [random(2, num_kv_heads, length, d, seed=s) for s in range(STEPS)]
    values = [random(2, num_kv_heads, length, d, seed=9 + s) for s in range(STEPS)]
    leaves = [query] + [t.requires_grad_() for t in keys + values]
    steps = [KeyValue(k, v) for k, v in zip(keys, values, strict=True)]
    for step in range(STEPS):
        got = ttt_attention(query, steps[: step + 1])
        want = F.scaled_dot_product_attention(
            query,
            torch.cat(keys[: step + 1], dim=2),
            torch.cat(values[: step + 1], dim=2),
            attn_mask=ttt_mask(length, step),
            enable_gqa=True,
        )
        assert_close(got, want, atol=1e-6, rtol=0)
    weight = random(*query.shape, seed=99)
    got_grads = torch.autograd.grad((got * weight).sum(), leaves)
    want_grads = torch.autograd.grad((want * weight).sum(), leaves)
    assert_close(got_grads, want_grads, atol=1e-5, rtol=1e-4)


def unrolled(draft: Eagle3Draft, ids: torch.Tensor, g: torch.Tensor) -> list:
    """a of every step; row i of step s reads token i + 1 + s, 0 past the end."""
    rows, x, keys, out = torch.arange(g.shape[1]), g, [], []
    for s in range(STEPS):
        shifted = F.pad(ids[:, s + 1 :], (0, s + 1))
        x = draft.forward_ttt(shifted, x, rows + s, keys)
        out.append(x)
    return out


def test_training_sees_what_inference_will_see(draft):
    length = 9
    ids = torch.arange(10, 10 + length)[None]
    with torch.no_grad():
        g = draft.fuse(random(1, length, 192))
        training = unrolled(draft, ids, g)
        for i in range(length - STEPS - 1):
            # Inference at row i: real features up to i, then a chain on its own a.
            cache = draft.new_cache(length)
            prefix = torch.arange(i + 1)
            a = draft(ids[:, 1 : i + 2], g[:, : i + 1], prefix, cache)[:, -1:]
            for s in range(STEPS):
                got, want = training[s][:, i : i + 1], a
                assert_close(draft.logits(got), draft.logits(want), atol=1e-5, rtol=0)
                token, at = ids[:, i + 2 + s, None], torch.tensor([i + 1 + s])
                a = draft(token, a, at, cache)


@torch.no_grad()
def test_a_token_moves_its_own_row_and_none_before_it(draft):
    """The shift breaks no causality: at step s row i sees token i + 1 + s at most."""
    length, features = 8, random(1, 8, 192)
    ids, g = torch.arange(20, 20 + length)[None], draft.fuse(features)
    before = unrolled(draft, ids, g)
    for place in range(length):
        changed = ids.clone()
        changed[0, place] = 7
        for s, a in enumerate(unrolled(draft, changed, g)):
            own = place - 1 - s  # the row that reads it at step s
            moved = (a != before[s]).any(-1)[0]
            assert not moved[: max(0, own)].any()
            assert own < 0 or moved[own]


def test_right_padding_reaches_no_real_row(draft):
    # Why forward_ttt takes no padding mask: rows 0..5 are real, 6..8 are pads.
    ids, features = torch.arange(20, 29)[None], random(1, 9, 192)
    with torch.no_grad():
        other_ids, other = ids.clone(), features.clone()
        other_ids[:, 6:], other[:, 6:] = 0, random(1, 3, 192, seed=5) * 100
        one = unrolled(draft, ids, draft.fuse(features))
        two = unrolled(draft, other_ids, draft.fuse(other))
    for s in range(STEPS):
        # At step s the last row that reads a real token is 5 - 1 - s.
        assert_close(one[s][:, : 5 - s], two[s][:, : 5 - s], atol=0, rtol=0)

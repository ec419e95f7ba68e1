"""eagle3.training.attention_forms: other forms of the attention give the same numbers.

The right values are those of `ttt_attention`, which tests/test_masks.py compares with
torch's attention under the explicit mask and with inference.
"""

import pytest
import torch
from torch.testing import assert_close

from eagle3 import layers
from eagle3.layers import KeyValue, ttt_attention
from eagle3.masks import ttt_mask
from eagle3.training.attention_forms import (
    FORMS,
    dense_attention,
    flex_attention_by_rule,
    fused_attention,
    ttt_predicate,
    whole_attention,
)

TRAINABLE = [whole_attention, dense_attention, fused_attention]


def unroll_inputs(length: int, num_steps: int, num_kv: int, seed: int = 0):
    """A query, and keys and values of all steps, all leaves of a graph."""
    g = torch.Generator().manual_seed(seed)

    def leaf(heads: int) -> torch.Tensor:
        return torch.randn(2, heads, length, 8, generator=g).requires_grad_()

    steps = [KeyValue(leaf(num_kv), leaf(num_kv)) for _ in range(num_steps)]
    return leaf(6), steps


@pytest.mark.parametrize("length", [1, 2, 7, 16])
@pytest.mark.parametrize("num_kv", [1, 2, 6])
@pytest.mark.parametrize("form", TRAINABLE)
def test_outputs_and_gradients_equal_the_diagonal_form(form, num_kv, length):
    for num_steps in (1, 2, 4):
        query, steps = unroll_inputs(length, num_steps, num_kv)
        leaves = [query, *(t for kv in steps for t in kv)]
        got, want = form(query, steps), ttt_attention(query, steps)
        assert got.shape == query.shape
        assert_close(got, want, atol=1e-5, rtol=0)
        weight = torch.linspace(-1, 1, query.numel()).reshape(query.shape)
        got_grads = torch.autograd.grad((got * weight).sum(), leaves)
        want_grads = torch.autograd.grad((want * weight).sum(), leaves)
        assert_close(got_grads, want_grads, atol=1e-5, rtol=0)


@pytest.mark.parametrize("length", [4, 5, 8, 11])
def test_a_long_sequence_in_pieces_gives_the_same(length, monkeypatch):
    monkeypatch.setattr(layers, "ROWS_AT_ONCE", 4)
    for num_steps in (1, 3):
        query, steps = unroll_inputs(length, num_steps, 2)
        leaves = [query, *(t for kv in steps for t in kv)]
        got, want = ttt_attention(query, steps), dense_attention(query, steps)
        assert_close(got, want, atol=1e-5, rtol=0)
        weight = torch.linspace(-1, 1, query.numel()).reshape(query.shape)
        got_grads = torch.autograd.grad((got * weight).sum(), leaves)
        want_grads = torch.autograd.grad((want * weight).sum(), leaves)
        assert_close(got_grads, want_grads, atol=1e-5, rtol=0)
        with torch.no_grad():
            assert_close(ttt_attention(query, steps), got, atol=0, rtol=0)


def test_pieces_keep_their_inputs_and_not_their_weights(monkeypatch):
    monkeypatch.setattr(layers, "ROWS_AT_ONCE", 16)
    query, steps = unroll_inputs(64, 3, 2)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ttt_attention(query, steps)
    inputs = sum(t.numel() for t in (query, *(t for kv in steps for t in kv)))
    assert sum(kept.values()) <= 4 * inputs  # a square of weights is twice as large


@pytest.mark.parametrize("num_kv", [1, 3])
def test_flex_attention_gives_the_same_output(num_kv):
    for num_steps in (1, 3):
        query, steps = unroll_inputs(9, num_steps, num_kv)
        query, steps = (
            query.detach(),
            [KeyValue(*map(torch.detach, kv)) for kv in steps],
        )
        got = flex_attention_by_rule(query, steps)
        assert_close(got, ttt_attention(query, steps), atol=1e-5, rtol=0)


def test_flex_attention_says_that_it_has_no_gradient_on_a_cpu():
    query, steps = unroll_inputs(4, 2, 2)
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention_by_rule(query, steps)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_rule_for_a_pair_is_the_mask(length):
    for step in range(4):
        rows = torch.arange(length)[:, None]
        columns = torch.arange((step + 1) * length)[None]
        none = torch.zeros((), dtype=torch.int64)
        said = ttt_predicate(length)(none, none, rows, columns)
        assert torch.equal(said, ttt_mask(length, step))


def test_half_precision_keeps_its_type():
    query, steps = unroll_inputs(5, 2, 2)
    half = [KeyValue(*(t.detach().bfloat16() for t in kv)) for kv in steps]
    for form in (ttt_attention, *TRAINABLE):
        assert form(query.detach().bfloat16(), half).dtype == torch.bfloat16


def test_all_forms_have_a_name():
    assert set(TRAINABLE) | {ttt_attention, flex_attention_by_rule} < set(
        FORMS.values()
    )

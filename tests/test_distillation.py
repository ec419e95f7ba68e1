"""What Medusa's recipe and the draft language model's share.

Right values: formulas written out, PyTorch's own cross-entropy, expectations over all
samples, and `n_alpha`, which is tested against the engine.
"""

import math
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from helpers import greedy_sequence

from eagle3.training.distillation import (
    ChainCount,
    HeadRows,
    common_tokens,
    sample_rows,
    shift,
    soft_cross_entropy,
    target_distribution,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


HEAD = random(9, 4, seed=1)


def test_cross_entropy_is_pytorchs_with_whole_distributions():
    logits, probs = random(5, 9).requires_grad_(), random(5, 9, seed=2).softmax(-1)
    loss, agreement = soft_cross_entropy(logits, probs)
    right = F.cross_entropy(logits, probs)
    torch.testing.assert_close(loss, right)
    torch.testing.assert_close(
        torch.autograd.grad(loss, logits), torch.autograd.grad(right, logits)
    )
    best = zip(logits, probs, strict=True)
    agree = sum(int(z.argmax() == p.argmax()) for z, p in best)
    assert math.isclose(agreement, agree / 5, abs_tol=1e-6)


def test_a_perfect_draft_has_the_targets_entropy():
    probs = random(3, 9).softmax(-1)
    loss, agreement = soft_cross_entropy(probs.log() + 5, probs)
    torch.testing.assert_close(loss, -(probs * probs.log()).sum(-1).mean())
    assert agreement == 1


def test_no_rows_no_loss():
    loss, agreement = soft_cross_entropy(torch.zeros(0, 9), torch.zeros(0, 9))
    assert loss == agreement == 0


def test_the_target_is_rebuilt_from_half_precision_states():
    hidden = random(3, 4).half()
    probs = target_distribution(hidden, HeadRows(HEAD))
    assert probs.dtype == torch.float32
    torch.testing.assert_close(probs, (hidden.float() @ HEAD.T).softmax(-1))


# ---- a sample of the head's rows


def test_the_common_rows_are_always_there_and_the_others_by_the_step():
    common = torch.tensor([1, 4, 5])
    first, again, other = (sample_rows(HEAD, common, 3, step) for step in (7, 7, 8))
    assert torch.equal(first.weight[:3], HEAD[common])
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    drawn = [HEAD.tolist().index(row) for row in first.weight[3:].tolist()]
    assert len(set(drawn)) == 3 and not set(drawn) & {1, 4, 5}
    assert first.log_share[:3].tolist() == [0, 0, 0]
    torch.testing.assert_close(first.log_share[3:].exp(), torch.full((3,), 2.0))


def test_sums_over_the_vocabulary_keep_their_expectation():
    """Over all equally likely samples, the mean of sum exp(z) is the whole sum."""
    common, states = torch.tensor([0, 8]), random(2, 4, seed=6)
    whole = (states @ HEAD.T).exp().sum(-1)
    rest = [v for v in range(9) if v not in (0, 8)]
    sums = []
    for drawn in combinations(rest, 3):
        rows = HeadRows(
            HEAD[[0, 8, *drawn]], torch.tensor([0.0, 0.0] + 3 * [math.log(7 / 3)])
        )
        sums.append(rows.logits(states).exp().sum(-1))
    torch.testing.assert_close(torch.stack(sums).mean(0), whole)
    # and these are the samples that are drawn
    found = sample_rows(HEAD, common, 3, 0).log_share
    torch.testing.assert_close(found, rows.log_share)


def test_every_other_row_is_drawn_equally_often():
    common, counts = torch.tensor([2, 3, 4]), dict.fromkeys(range(9), 0)
    for step in range(600):
        for row in sample_rows(HEAD, common, 2, step).weight[3:].tolist():
            counts[HEAD.tolist().index(row)] += 1
    others = [counts[v] for v in (0, 1, 5, 6, 7, 8)]
    assert sum(others) == 1200
    assert max(abs(n - 200) for n in others) < 5 * math.sqrt(200 * 5 / 6)


@pytest.mark.parametrize("num_common", [7, 9])
def test_nothing_left_to_draw_from_gives_the_whole_head(num_common):
    rows = sample_rows(HEAD, torch.arange(num_common), 2, 0)
    assert torch.equal(rows.weight, HEAD) and rows.log_share is None


def test_common_tokens_are_the_most_frequent_of_the_answers():
    sequence = greedy_sequence((5, 5, 5, 5, 5, 5, 5, 5, 5, 5), 30)
    answer = sequence.token_ids[10:].tolist()
    start = SimpleNamespace(target=SimpleNamespace(vocab_size=96), sequences=[sequence])
    found = common_tokens(start, 4).tolist()
    rest = set(range(96)) - set(found)
    assert min(map(answer.count, found)) >= max(map(answer.count, rest))
    assert common_tokens(start, 1000).tolist() == list(range(96))
    with pytest.raises(ValueError, match="take a size from 1"):
        common_tokens(start, 0)


# ---- n-alpha


def test_chains_are_counted_until_their_first_miss_and_inside_the_answer():
    """Eight tokens, the answer begins at token 3: rows 2 to 6 have a pending token."""
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 0]])
    # is row i's guess for token i+2+n right?   rows:  0  1  2  3  4  5  6  7
    rights = [
        torch.tensor([[1, 1, 1, 0, 1, 1, 1, 1]]).bool(),
        torch.tensor([[1, 1, 1, 1, 0, 1, 1, 1]]).bool(),
        torch.tensor([[1, 1, 1, 1, 1, 1, 1, 1]]).bool(),
    ]
    count, asked = ChainCount(3), []

    def guess(n, alive):
        asked.append(alive.nonzero()[:, 1].tolist())
        return rights[n]

    count.add(guess, mask)
    # Row 6's pending token is the last. Row 3 misses at once. Row 5 has one token left.
    assert asked == [[2, 3, 4, 5], [2, 4], [2]]
    assert count.alphas() == [3 / 4, 1 / 2, 1.0]
    count.add(lambda n, alive: torch.zeros_like(alive), mask)
    assert count.alphas() == [3 / 8, 1 / 2, 1.0]


def test_nothing_counted_is_zero():
    assert ChainCount(2).alphas() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("count", "right"), [(0, [1, 2, 3]), (1, [2, 3, 0]), (3, [0, 0, 0]), (5, [0, 0, 0])]
)
def test_shift_takes_from_the_right_and_fills_with_zero(count, right):
    assert shift(torch.tensor([[1, 2, 3]]), count).tolist() == [right]

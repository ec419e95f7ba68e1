"""eagle3.probes: closed-form probes, and the examples that they are fitted on.

Right values: a map that is known because the data were made with it, torch's own least
squares on an enlarged system, the target's untapped pass, and counting by hand.
"""

import pytest
import torch

from eagle3.probes import (
    Moments,
    Probe,
    columns_of,
    examples,
    fit_probe,
    joined,
    share_named,
    unit_rows,
)
from eagle3.target import toy_target
from eagle3.training.data import Sequence


@pytest.fixture(scope="module")
def target():
    return toy_target()


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def test_a_map_with_a_constant_is_found_again(rng):
    x = torch.randn(400, 5, generator=rng) + 3
    weight, bias = torch.randn(5, 2, generator=rng), torch.tensor([7.0, -2.0])
    probe = fit_probe(x, x @ weight + bias, damping=1e-6)
    assert torch.allclose(probe.weight, weight, atol=1e-3)
    assert torch.allclose(probe(x[:3]), x[:3] @ weight + bias, atol=1e-3)


def test_damping_is_ridge_regression_without_a_penalty_on_the_constant(rng):
    """The same as least squares with rows sqrt(damping N) I, 0 below the examples."""
    x, y = torch.randn(60, 4, generator=rng), torch.randn(60, 3, generator=rng) + 5
    probe = fit_probe(x, y, damping=0.4)
    big = torch.zeros(64, 5, dtype=torch.float64)
    big[:60, :4], big[:60, 4] = x, 1
    big[60:, :4] = torch.eye(4) * (0.4 * 60) ** 0.5
    aim = torch.cat([y.double(), torch.zeros(4, 3, dtype=torch.float64)])
    want = torch.linalg.lstsq(big, aim).solution.float()
    assert torch.allclose(probe.weight, want[:4], atol=1e-4)
    assert torch.allclose(probe.bias, want[4], atol=1e-4)


def test_moments_in_pieces_and_on_a_part_of_the_inputs(rng):
    x, y = torch.randn(50, 6, generator=rng), torch.randn(50, 4, generator=rng)
    moments = Moments(6, 4)
    for piece in range(0, 50, 16):
        moments.add(x[piece : piece + 16], y[piece : piece + 16])
    inputs, outputs = torch.tensor([4, 0, 5]), torch.tensor([2, 1])
    probe = moments.fit(inputs, outputs, 0.1)
    want = fit_probe(x[:, inputs], y[:, outputs], 0.1)
    assert torch.allclose(probe.weight, want.weight, atol=1e-4)
    assert torch.allclose(probe.bias, want.bias, atol=1e-4)


def test_moments_refuse_what_has_no_answer():
    moments, one = Moments(2, 1), torch.arange(1)
    with pytest.raises(ValueError, match="no example"):
        moments.fit(one, one, 0.1)
    moments.add(torch.ones(3, 2), torch.ones(3, 1))
    for damping in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="damping"):
            moments.fit(one, one, damping)


def test_examples_are_what_the_target_computes(target):
    ids = torch.randint(96, (12,), generator=torch.Generator().manual_seed(1))
    found = examples(target, Sequence(ids, 4, "chat", 1.0), range(8))
    output = target.forward(ids[None])
    rows = torch.arange(3, 11)  # token 4 is the first of the answer, 11 the last
    assert found.states.shape == (8, target.num_layers + 1, target.hidden_size)
    tap = unit_rows(output.features[0][rows].split(target.hidden_size, dim=-1)[1])
    assert torch.allclose(found.states[:, target.taps[1]], tap, atol=1e-5)
    assert torch.allclose(found.states[:, -1], unit_rows(output.hidden[0][rows]))
    assert torch.allclose(found.aims[:, 0], output.hidden[0][rows])
    assert torch.allclose(found.aims[:, 1], output.hidden[0][rows + 1])
    best = output.logits[0].argmax(-1)
    assert torch.equal(found.best, torch.stack([best[rows], best[rows + 1]], dim=1))
    assert torch.allclose(found.token, unit_rows(target.embedding[ids[rows + 1]]))


def test_the_first_state_is_the_embedding(target):
    ids = torch.arange(6)
    found = examples(target, Sequence(ids, 2, "chat", 1.0), (0, 5))
    assert found.states.shape == (4, 3, target.hidden_size)
    assert torch.allclose(found.states[:, 0], unit_rows(target.embedding[ids[1:5]]))


def test_unit_rows_have_length_sqrt_k(rng):
    x = unit_rows(torch.randn(5, 9, generator=rng) * 40)
    assert torch.allclose(x.norm(dim=-1), torch.full((5,), 3.0))


def test_joined_keeps_the_order(target):
    parts = [
        examples(target, Sequence(torch.arange(start, start + 8), 3, "chat", 1.0), [4])
        for start in (0, 50)
    ]
    both = joined(parts)
    assert torch.equal(both.best, torch.cat([parts[0].best, parts[1].best]))
    assert torch.equal(both.states[len(parts[0].best) :], parts[1].states)


def test_share_named_counts_right_rows_of_the_head():
    head = torch.eye(3)
    estimate = torch.tensor([[2.0, 1, 0], [0, 0, 5], [0, 9, 1], [1, 2, 3]])
    assert share_named(estimate, torch.tensor([0, 2, 2, -1]), head) == 0.5
    many = torch.tensor([[0.0, 1, 0]]).expand(2500, 3)  # more than one piece
    right = torch.tensor([1] * 2000 + [0] * 500)
    assert share_named(many, right, head) == 0.8


def test_columns_of_layers():
    assert columns_of([2, 0], 3).tolist() == [6, 7, 8, 0, 1, 2]


def test_a_probe_is_a_linear_map():
    probe = Probe(torch.tensor([[2.0], [1.0]]), torch.tensor([10.0]))
    assert probe(torch.tensor([[3.0, 4.0]])).tolist() == [[20.0]]

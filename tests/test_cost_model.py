"""eagle3.cost_model: formulas, limits, and the measured cost of blocks and batches.

Right values: closed forms, counts of parameters at the paper's scale, cases that can be
summed on paper, and figures/results/block_cost.json for the straight line.
"""

from pathlib import Path

import pytest
import torch

from eagle3.bench.environment import read_results
from eagle3.bench.roofline import Machine, ModelShape, Pass, work_of
from eagle3.cost_model import (
    CostModel,
    LinearCost,
    Load,
    break_even,
    eagle1_shape,
    eagle3_shape,
    expected_tokens,
    fit_linear,
    last_gain,
    roofline_cost,
    roofline_model,
)
from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.rope import RopeConfig

RESULTS = Path(__file__).parents[1] / "figures" / "results"
LLAMA_8B = ModelShape(32, 4096, 14336, 32, 8, 128, 128256)


def draft_config(**changes):
    sizes = {
        "hidden_size": 4096,
        "target_hidden_size": 4096,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "draft_vocab_size": 32000,
    }
    rope = RopeConfig(theta=10000.0)
    return DraftConfig(**(sizes | changes), rms_norm_eps=1e-5, rope=rope,
                       max_positions=2048, taps=(2, 16, 29))  # fmt: skip


def unit_model(other=0.0):
    """Target: 1 s and 0.1 s a row; the draft's passes 0.2 s each."""
    return CostModel(
        LinearCost(1.0, 0.1, 0.0),
        LinearCost(0.2, 0.0, 0.0),
        LinearCost(0.2, 0.0, 0.0),
        other,
    )


# -------------------------------------------------------------------- tokens per cycle


def test_expected_tokens_by_hand_and_in_closed_form():
    assert expected_tokens([]) == 1
    assert expected_tokens([0.5, 0.4]) == pytest.approx(1 + 0.5 + 0.2)
    alpha, n = 0.7, 6
    closed = (1 - alpha ** (n + 1)) / (1 - alpha)
    assert expected_tokens([alpha] * n) == pytest.approx(closed)
    assert expected_tokens([1.0] * 4) == 5


# ------------------------------------------------------------------------------ shapes


def test_the_draft_at_the_papers_scale_has_its_424_7_million_weights():
    """fc 50.3, attention 67.1, MLP 176.2, head 131.1 million. [Code]"""
    with_fusion = eagle3_shape(draft_config(), fuses=True)
    without = eagle3_shape(draft_config(), fuses=False)
    assert without.layer_products / 1e6 == pytest.approx(67.1 + 176.2, abs=0.1)
    fusion = with_fusion.layer_products - without.layer_products
    assert fusion / 1e6 == pytest.approx(50.3, abs=0.05)
    total = with_fusion.layer_products + with_fusion.head_products
    assert total / 1e6 == pytest.approx(424.7, abs=0.1)


def test_the_draft_shape_counts_a_real_drafts_matrices():
    config = draft_config(
        hidden_size=64, target_hidden_size=48, num_heads=4, num_kv_heads=2,
        head_dim=16, intermediate_size=96, vocab_size=120, draft_vocab_size=40,
    )  # fmt: skip
    draft = Eagle3Draft(config, draft_vocab=torch.arange(40))
    matrices = sum(
        module.in_features * module.out_features
        for module in draft.modules()
        if hasattr(module, "in_features")
    )
    shape = eagle3_shape(config, fuses=True)
    assert shape.layer_products + shape.head_products == matrices


def test_eagle1_reads_the_targets_whole_head():
    shape = eagle1_shape(LLAMA_8B)
    assert shape.head_products == LLAMA_8B.head_products
    joining = shape.layer_products - LLAMA_8B.layer_products / 32
    assert joining == 2 * 4096**2


# --------------------------------------------------------------------------- the cycle


def test_a_cycle_by_hand():
    model, load = unit_model(other=0.05), Load(batch=4)
    assert model.plain(load) == pytest.approx(1.0 + 0.4 + 0.05)
    cost = model.cycle(3, load)
    assert cost.draft == pytest.approx(3 * 0.2)
    assert cost.target == pytest.approx(1.0 + 0.1 * 4 * 4)
    assert cost.other == 0.05
    assert cost.total == pytest.approx(0.6 + 2.6 + 0.05)
    n_alpha = [0.5, 0.5, 0.5]
    assert model.speedup(n_alpha, load) == pytest.approx(1.875 * 1.45 / 3.25)


def test_length_0_is_plain_decoding():
    model, load = unit_model(0.1), Load(8, 100)
    assert model.cycle(0, load).total == pytest.approx(model.plain(load))
    assert model.speedup([], load) == 1


def test_tau_at_break_even_is_the_cycle_in_plain_steps():
    model, load = unit_model(), Load(16)
    needed = model.steps_per_cycle(2, load)
    # two equal alphas that give exactly this tau: 1 + a + a^2 = needed
    alpha = (-1 + (1 - 4 * (1 - needed)) ** 0.5) / 2
    assert model.speedup([alpha, alpha], load) == pytest.approx(1)


def test_throughput_and_time_per_token_are_two_views_of_a_cycle():
    model, load, n_alpha = unit_model(), Load(8), [0.8, 0.7]
    spent = model.cycle(2, load).total
    tokens = 8 * expected_tokens(n_alpha)
    assert model.throughput(n_alpha, load) == pytest.approx(tokens / spent)
    assert model.time_per_token(n_alpha, load) == pytest.approx(8 * spent / tokens)
    plain = model.throughput([], load)
    assert model.throughput(n_alpha, load) / plain == pytest.approx(
        model.speedup(n_alpha, load)
    )


def test_the_speedup_is_below_tau_and_falls_with_the_batch():
    model = roofline_model(
        LLAMA_8B,
        (eagle3_shape(draft_config(), True), eagle3_shape(draft_config(), False)),
        Machine(3.35e12, 989e12),
    )
    n_alpha = [0.8] * 3
    speedups = [model.speedup(n_alpha, Load(2**i, 512)) for i in range(13)]
    assert all(speedup < expected_tokens(n_alpha) for speedup in speedups)
    assert speedups[-1] < 1 < speedups[0]
    # With arithmetic alone to pay for, a cycle costs (n + 1) plain steps and drafts.
    rows = 4 * work_of(LLAMA_8B, Pass(1, 1, 0)).flops
    endless = model.cycle(3, Load(10**6, 0))
    assert endless.target == pytest.approx(10**6 * rows / 989e12, rel=0.01)


def test_the_best_length_shrinks_with_the_batch_and_is_0_in_the_end():
    model = unit_model()
    n_alpha = [0.8, 0.7, 0.6, 0.5]
    lengths = [model.best_length(n_alpha, Load(2**i))[0] for i in range(9)]
    assert lengths[0] >= 2 and lengths[-1] == 0
    assert lengths == sorted(lengths, reverse=True)
    assert model.best_length(n_alpha, Load(2**8)) == (0, 1.0)


def test_the_roofline_cost_is_the_rooflines():
    machine, step = Machine(1e12, 1e14), Pass(4, 8, 300)
    want = work_of(LLAMA_8B, step, 2).seconds(machine)
    assert roofline_cost(LLAMA_8B, machine)(step) == want


# ------------------------------------------------------------------- a straight line


def test_a_line_is_found_again():
    line = LinearCost(0.05, 0.001, 2e-5)
    steps = [Pass(n, b, c) for n in (1, 4) for b in (1, 8) for c in (64, 512)]
    fitted = fit_linear(steps, [line(step) for step in steps])
    assert fitted.fixed == pytest.approx(line.fixed)
    assert fitted.per_row == pytest.approx(line.per_row)
    assert fitted.per_cached == pytest.approx(line.per_cached)


def test_no_part_of_a_line_is_negative():
    steps = [Pass(1), Pass(2), Pass(4)]
    fitted = fit_linear(steps, [3.0, 2.0, 1.0])
    assert min(fitted.fixed, fitted.per_row, fitted.per_cached) == 0


def test_two_passes_are_refused():
    with pytest.raises(ValueError, match="measure three or more"):
        fit_linear([Pass(1), Pass(2)], [1.0, 2.0])


def test_the_line_meets_the_measured_batches_within_a_fifth():
    """Rows are rows: of one request or of many, the straight line fits both."""
    measured = read_results("block_cost", RESULTS)
    block, batch = measured["block"], measured["batch"]
    steps = [Pass(n, context=block["context"]) for n in block["rows"]]
    seconds = list(block["seconds"]["eagle3"])
    for rows, times in batch["seconds"].items():
        steps += [Pass(int(rows), b, batch["context"]) for b in batch["batches"]]
        seconds += times
    line = fit_linear(steps, seconds)
    errors = [line(s) / t - 1 for s, t in zip(steps, seconds, strict=True)]
    assert sum(map(abs, errors)) / len(errors) < 0.2
    assert max(map(abs, errors)) < 0.6


# -------------------------------------------------------------------------- break-even


def test_break_even_on_straight_lines():
    assert break_even([2, 4, 8], [1.5, 1.2, 0.8]) == pytest.approx(6)
    assert break_even([2, 4], [1.5, 1.0]) is None
    assert break_even([2, 4], [0.9, 1.2]) == 2
    # A return above 1 doesn't count, and a straight fall to 1 is met exactly.
    assert break_even([1, 2, 3, 4], [2.0, 0.5, 1.5, 0.5]) == pytest.approx(1 + 2 / 3)


def test_last_gain_looks_at_the_end_alone():
    assert last_gain([1, 2, 3, 4], [2.0, 0.5, 1.5, 0.5]) == 3
    assert last_gain([1, 2], [1.0, 0.9]) is None

"""eagle3.bench.ttt_cost and memory: what is measured, kept and told.

Times differ, so they are not looked at. Right sizes come from counting the tensors of a
job by hand; what can't run is planted as a form that fails.
"""

import json

import pytest
import torch

from eagle3.bench import ttt_cost
from eagle3.bench.memory import allocated_peak, can_see_resident, resident_peak
from eagle3.bench.ttt_cost import (
    TttCostConfig,
    attention_job,
    common_length,
    find,
    measure,
    reasons,
)
from eagle3.training.attention_forms import FORMS

SMALL = TttCostConfig(4, 2, 8, (1, 2), 2, (24, 2), slow_up_to=16)
FEW = ("diagonal", "dense")
FLOAT = 4  # bytes


@pytest.fixture(autouse=True)
def few_forms(monkeypatch):
    """The compiler takes too long for a test."""
    kept = {name: FORMS[name] for name in (*FEW, "flex")}
    monkeypatch.setattr(ttt_cost, "reasons", lambda config: reasons(config, kept))


def test_the_peak_counts_what_is_held_at_once_and_forgets_what_is_freed():
    def job():
        a = torch.empty(1000)
        b = torch.empty(3000)
        del a
        return torch.empty(500), b

    assert allocated_peak(job) == FLOAT * 4000
    assert allocated_peak(lambda: None) == 0


def test_the_peak_sees_what_a_kernel_takes_inside():
    x = torch.ones(256, 256)
    # The product of transposed slices is copied by the kernel before it multiplies.
    peak = allocated_peak(lambda: x[:, ::2] @ x[:, ::2].T)
    assert peak > FLOAT * 256 * 256


def big_tensor(num_bytes: int):
    return lambda: torch.ones(num_bytes // FLOAT).sum()


@pytest.mark.skipif(not can_see_resident(), reason="only Linux tells")
def test_a_fresh_process_grows_by_what_its_job_takes():
    size = 200_000_000
    grown = resident_peak(big_tensor, size)
    assert 0.98 * size <= grown < 1.1 * size


def test_the_dense_form_holds_the_weights_of_all_steps():
    length, steps = 200, 3
    peaks = {
        form: allocated_peak(attention_job(form, SMALL, length, steps, True))
        for form in FEW
    }
    square = FLOAT * SMALL.num_heads * length**2
    # The backward pass needs the weights: 1 + 2 + 3 squares, or three.
    assert peaks["dense"] > 6 * square
    assert 3 * square < peaks["diagonal"] < peaks["dense"]


def test_forward_alone_keeps_nothing():
    length = 200
    one = allocated_peak(attention_job("dense", SMALL, length, 1, False))
    two = allocated_peak(attention_job("dense", SMALL, length, 2, False))
    square = FLOAT * SMALL.num_heads * length**2
    # The largest step alone decides; it has twice the keys.
    assert two - one < 1.5 * one and one < 5 * square


def test_what_cannot_run_says_why_and_stops_nothing(monkeypatch):
    def breaks(query, steps):
        raise RuntimeError("no such kernel\nand a long trace")

    monkeypatch.setitem(FORMS, "broken", breaks)
    told = reasons(SMALL, ("diagonal", "flex", "broken"))
    assert told["diagonal"] == {"forward": None, "training": None}
    assert told["flex"]["forward"] is None
    assert "does not support backward on CPU" in told["flex"]["training"]
    reason = "RuntimeError: no such kernel"
    assert told["broken"] == {"forward": reason, "training": reason}
    rows = ttt_cost.measure_cell(SMALL, 16, 1, told)
    assert [row["form"] for row in rows] == list(told)
    assert rows[2]["forward"] is rows[2]["training"] is rows[2]["peak_bytes"] is None


def test_results_have_a_row_for_every_form_and_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(ttt_cost, "resident_peak", lambda make, form, *rest: len(form))
    path = measure(SMALL, tmp_path, (16, 24), say=lambda text: None)
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content["rows"]
    assert len(rows) == 2 * (3 + 2)  # the slow one on the short text alone
    assert {"cpu", "torch", "threads", "seed"} <= set(content["environment"])
    assert content["config"]["num_kv_heads"] == 2
    row = find(rows, "dense", 24, 2)
    seconds = row["training"]["seconds"]
    assert row["training"]["tokens_per_second"] == pytest.approx(24 / seconds, rel=1e-3)
    low, high = row["training"]["quartiles"]
    assert low <= seconds <= high
    flex = find(rows, "flex", 16, 2)
    assert flex["training"] is None and flex["forward"] is not None
    assert flex["memory_of"] == "forward"
    if can_see_resident():
        assert content["resident_bytes"] == {form: len(form) for form in FEW}


def test_a_killed_run_goes_on_and_another_one_starts_anew(tmp_path, monkeypatch):
    said: list[str] = []
    measured = ttt_cost.measure_cell

    def killed(config, length, steps, failures):
        if (length, steps) == (24, 1):
            raise KeyboardInterrupt
        return measured(config, length, steps, failures)

    monkeypatch.setattr(ttt_cost, "measure_cell", killed)
    with pytest.raises(KeyboardInterrupt):
        measure(SMALL, tmp_path, (16, 24), said.append)
    assert said == ["16 tokens, 1 steps", "16 tokens, 2 steps"]
    monkeypatch.setattr(ttt_cost, "measure_cell", measured)
    monkeypatch.setattr(ttt_cost, "check_memory", lambda config, failures: {})
    before = json.loads((tmp_path / "ttt_cost.json").read_text(encoding="utf-8"))
    measure(SMALL, tmp_path, (16, 24), said.append)
    assert said[2:] == ["24 tokens, 1 steps", "24 tokens, 2 steps"]
    after = json.loads((tmp_path / "ttt_cost.json").read_text(encoding="utf-8"))
    assert after["rows"][:6] == before["rows"]
    other = TttCostConfig(4, 4, 8, (1,), 2, (24, 2))
    measure(other, tmp_path, (16,), said.append)
    assert said[4:] == ["16 tokens, 1 steps"]


def test_a_cell_that_is_missing_is_named():
    with pytest.raises(ValueError, match="'dense' was not measured at 9 tokens"):
        find([], "dense", 9, 1)


def test_the_common_length_is_the_longest_within_the_limit():
    cells = [(128, 7), (1024, 1), (512, 7), (2048, 7)]
    rows = [{"length": length, "steps": steps} for length, steps in cells]
    assert common_length(rows, 7) == 512
    assert common_length(rows, 7, up_to=4096) == 2048
    with pytest.raises(ValueError, match="up to 256 tokens was measured at 1 steps"):
        common_length(rows, 1, up_to=256)

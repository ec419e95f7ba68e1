"""The GPU check on a CPU: the same code at small sizes, with graphs off.

What can't be seen here are times and graphs. Right values: byte counts by hand, and
parts that fail on purpose.
"""

import json
from dataclasses import replace

import helpers
import pytest
import torch

from eagle3.bench import gpu_check, gpu_parts
from eagle3.bench.gpu_check import NO_GPU, PARTS, cpu_plan, failures, gpu_plan, run
from eagle3.bench.gpu_parts import check_answers, check_graphs, cycle_bytes
from eagle3.bench.random_models import LLAMA_8B, SMALL, random_draft, random_model
from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.gpu.profile import CHANGES, STAGES
from eagle3.growth import chain
from eagle3.target import Target


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All parts, run once, and the file that they wrote."""
    folder = tmp_path_factory.mktemp("check")
    found = run(cpu_plan(), folder)
    saved = json.loads((folder / "gpu_check.json").read_text("utf-8"))
    return found, saved


def test_every_part_runs_and_is_written(results):
    found, saved = results
    assert failures(found) == []
    assert list(found) == list(saved["parts"]) == list(PARTS)
    assert all("result" in part for part in saved["parts"].values())


def test_answers_are_right_in_each_dtype_and_some_drafts_are_accepted(results):
    rows = results[0]["answers"]["result"]
    settings = [(row["dtype"], row["growth"]) for row in rows]
    assert settings == [
        (dtype, growth)
        for dtype in ("float32", "bfloat16")
        for growth in ("chain 3", "tree")
    ]
    for row in rows:
        assert row["answers"] == 5 and row["defects"] == 0
        assert row["accepted"] > 20
    assert rows[0]["rounding"] == rows[1]["rounding"] == 0


def test_without_graphs_there_is_nothing_to_differ(results):
    rows = results[0]["graphs"]["result"]
    assert [row["growth"] for row in rows] == ["vanilla", "chain 3", "tree"]
    assert all(row["equal"] == 8 and not row["graphs"] for row in rows)


def test_cycles_stages_batches_and_memory_have_all_their_numbers(results):
    parts = {name: part["result"] for name, part in results[0].items()}
    bandwidth = parts["device"]["copy_bandwidth"]
    assert [row["growth"] for row in parts["cycles"]] == list(gpu_parts.LARGE_GROWTHS)
    for row in parts["cycles"]:
        assert 0 < row["cycle_ms"] <= row["slowest_ms"]
        assert row["fetch_ms"] == pytest.approx(1000 * row["bytes"] / bandwidth)
    assert list(parts["stages"]) == list(CHANGES)
    assert parts["stages"]["graphs"] is None
    assert tuple(parts["stages"]["device decisions"]) == STAGES
    assert [row["batch"] for row in parts["batches"]] == [1, 2]
    for row in parts["batches"]:
        ratio = row["chain 3"] / row["vanilla"]
        assert row["break_even"] == pytest.approx(ratio)
    ledger = parts["memory"]["ledger"]
    assert parts["memory"]["total"] == sum(ledger.values())
    assert parts["memory"]["engine"] is None  # this allocator does not count


def test_a_part_that_fails_costs_that_part_alone(monkeypatch, tmp_path):
    """Each result is on disk before the next part starts."""
    there = []

    def note(_plan):
        path = tmp_path / "a.json"
        there.append(list(json.loads(path.read_text("utf-8"))["parts"]))
        return []

    def fail(_plan):
        raise RuntimeError("no such kernel\nand more lines")

    parts = {"answers": fail, "graphs": note, "cycles": note}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    found = run(cpu_plan(), tmp_path, "a")
    assert there == [["answers"], ["answers", "graphs"]]
    assert found["answers"]["error"] == "RuntimeError: no such kernel"
    assert failures(found) == ["answers: RuntimeError: no such kernel"]


def test_past_the_budget_no_part_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "PARTS", {"answers": pytest.fail, "graphs": str})
    found = run(replace(cpu_plan(), budget=-1.0), tmp_path)
    assert all("not run" in part["error"] for part in found.values())


def test_float32_has_all_its_bits_while_checks_run(monkeypatch, tmp_path):
    seen = []

    def look(_plan):
        seen.append(torch.get_float32_matmul_precision())
        return []

    monkeypatch.setattr(gpu_check, "PARTS", {"answers": look, "graphs": look})
    torch.set_float32_matmul_precision("high")
    try:
        run(cpu_plan(), tmp_path)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == ["highest", "highest"]


def test_a_wrong_engine_is_found(monkeypatch):
    """One token of one answer is another one; then a graph that repeats a token."""
    plan = replace(cpu_plan(), dtypes=(torch.float32,))
    real = gpu_parts.BatchEngine.run

    def changed(self, requests):
        answers = real(self, requests)
        ids = answers[2].token_ids
        other = (*ids[:5], (ids[5] + 1) % SMALL.vocab_size, *ids[6:])
        answers[2] = replace(answers[2], token_ids=other)
        return answers

    monkeypatch.setattr(gpu_parts.BatchEngine, "run", changed)
    rows = check_answers(plan)
    assert [row["defects"] for row in rows] == [1, 1]
    results = {"answers": {"result": rows}, "graphs": {"result": []}}
    assert len(failures(results)) == 2
    runs = iter([changed, real] * 3)
    monkeypatch.setattr(
        gpu_parts.BatchEngine, "run", lambda self, asked: next(runs)(self, asked)
    )
    rows = check_graphs(plan)
    assert [(row["defects"], row["equal"]) for row in rows] == [(1, 7)] * 3
    results = {"answers": {"result": []}, "graphs": {"result": rows}}
    assert len(failures(results)) == 3


def test_nothing_accepted_is_a_failure():
    """Then the check would say nothing of drafts."""
    row = {"dtype": "a", "growth": "b", "defects": 0, "accepted": 0}
    results = {"answers": {"result": [row]}, "graphs": {"result": []}}
    assert "0 tokens accepted" in failures(results)[0]


def test_without_a_gpu_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device here: run this on a machine"):
        gpu_check.main()
    assert NO_GPU.count(".") == 1  # one sentence


def test_the_gpus_plan_asks_for_graphs_at_the_sizes_of_llama_8b():
    plan = gpu_plan()
    assert plan.graphs and not cpu_plan().graphs
    assert plan.dtypes[0] == torch.float32 and torch.bfloat16 in plan.dtypes
    assert plan.budget < 8 * 60
    with torch.device("meta"):
        model = random_model(plan.sizes, torch.device("meta"), torch.bfloat16)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 8_030_261_248  # as published
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_random_weights_leave_the_global_random_state_alone():
    before = torch.get_rng_state()
    one, other = (
        random_model(SMALL, torch.device("cpu"), torch.float32) for _ in range(2)
    )
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.lm_head.weight, other.lm_head.weight)
    assert torch.equal(one.lm_head.weight, helpers.library_toy().lm_head.weight)


def test_the_bytes_of_a_cycle_by_hand():
    """Target once, keys and values of the context, and the draft's layer per level."""
    target = Target(random_model(SMALL, torch.device("cpu"), torch.float32))
    vanilla = cycle_bytes(target, VanillaDrafter(), 2, 10)
    table = SMALL.vocab_size * SMALL.hidden_size
    weights = sum(p.numel() for p in helpers.library_toy().parameters()) - table
    kv = 2 * 8 * 2 * 16  # keys and values, layers, heads, numbers of each
    assert vanilla == 4 * (weights + 2 * 10 * kv)
    draft = random_draft(target, 48)
    sizes = {name: p.numel() for name, p in draft.named_parameters()}
    layer = sum(n for name, n in sizes.items() if name.startswith("layer."))
    each = layer + sizes["lm_head.weight"] + 2 * 10 * kv // 8
    drafter = EagleDrafter(target, draft, chain(3))
    # A packed draft has no parameters left; it reads the same numbers.
    drafter.draft = draft
    found = cycle_bytes(target, drafter, 2, 10)
    assert found - vanilla == 4 * (sizes["fc.weight"] + 3 * each)
    assert LLAMA_8B.draft_vocab_size == 32000

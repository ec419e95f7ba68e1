"""The acceptance numbers: by hand, by a second count, and in other engines' names.

vLLM's and SGLang's formulas are written out again here from what their counters do,
cycle by cycle, and ours must come to the same.
"""

import random
from dataclasses import fields, replace
from functools import cache

import pytest
from helpers import (
    PROMPT,
    VOCAB,
    RandomDrafter,
    ScriptDrafter,
    toy,
    trained_draft,
    vanilla,
)

from eagle3.bench.metrics import (
    METRIC_NAMES,
    AcceptanceMetrics,
    SglangCounters,
    VllmCounters,
    from_sglang,
    from_vllm,
    sglang_log,
    strict_accept_rate,
    to_vllm,
    vllm_log,
)
from eagle3.drafters import PromptLookupDrafter
from eagle3.engine import GenerationResult, generate
from eagle3.growth import DynamicTree
from eagle3.tree import DraftTree


class RandomTreeDrafter:
    """Trees of any shape; a token is what the target says at that depth, or any."""

    cache_length, max_nodes = 0, 12

    def __init__(self, seed: int):
        self.dice, self.answer = random.Random(seed), vanilla(toy(), PROMPT, 40)

    def start(self, max_length):
        self.num_seen = -len(PROMPT)

    def observe(self, token_ids, output):
        self.num_seen += len(token_ids)

    def propose(self, pending, limit, params, generator):
        tokens, parents, depths = [], [], {-1: 0}
        for node in range(self.dice.randrange(self.max_nodes + 1)):
            parent = self.dice.randrange(-1, node)
            depth = depths[node] = depths[parent] + 1
            if depth > limit:
                break
            right = self.dice.random() < 0.6
            said = self.answer[self.num_seen + depth]
            tokens.append(said if right else self.dice.randrange(VOCAB))
            parents.append(parent)
        return DraftTree(tuple(tokens), tuple(parents))


def run(drafter, count=24, prompt=PROMPT, **others) -> GenerationResult:
    others = {"eos_token_ids": (), **others}
    return generate(toy(), drafter, list(prompt), max_new_tokens=count, **others)


def scripted(right, length=3, count=13) -> GenerationResult:
    answer = vanilla(toy(), PROMPT, count + length)
    return run(ScriptDrafter(answer, length, right), count)


def test_by_hand():
    """Four cycles of three drafted tokens: 3, 1, 0 and 2 kept, then the room ends.

    Answer tokens 1 to 12 come from cycles. Cycle 1 drafts 1-3, all right, and adds 4.
    Cycle 2 drafts 5-7, 6 is wrong: 5 and 6. Cycle 3 drafts 7-9, 7 is wrong: 7.
    Cycle 4 drafts 8-10, 10 is wrong: 8, 9, 10. Cycle 5 has room for one: 11 and 12.
    """
    wrong = {6, 7, 10}
    result = scripted([index not in wrong for index in range(16)])
    metrics = AcceptanceMetrics.from_results([result])
    assert [c.num_accepted for c in result.cycles] == [3, 1, 0, 2, 1]
    assert [len(c.drafted) for c in result.cycles] == [3, 3, 3, 3, 1]
    assert metrics == AcceptanceMetrics(5, 12, 5, 13, 7, (4, 2, 1), (5, 3, 2))
    assert metrics.acceptance_length == 12 / 5 == result.acceptance_length
    assert metrics.accepted_per_cycle == 7 / 5
    assert metrics.draft_acceptance_rate == 7 / 13
    assert metrics.per_position_rate == (4 / 5, 2 / 5, 1 / 5)
    assert metrics.n_alpha == (4 / 5, 2 / 3, 1 / 2)


def test_no_cycle_and_no_draft():
    assert AcceptanceMetrics.from_results([]).acceptance_length == 0.0
    metrics = AcceptanceMetrics.from_results([run(None, 5)])
    assert metrics == AcceptanceMetrics(4, 4, 0, 0, 0, (), ())
    assert (metrics.acceptance_length, metrics.draft_acceptance_rate) == (1.0, 0.0)
    assert metrics.n_alpha == metrics.per_position_rate == ()
    one = AcceptanceMetrics.from_results([run(None, 1)])
    assert (one.cycles, one.acceptance_length) == (0, 0.0)


def stopped() -> GenerationResult:
    """An answer that ends at an accepted token, before the block's last."""
    answer = vanilla(toy(), PROMPT, 30)
    # All drafts are right, so blocks hold answer tokens 1-4, 5-8 and so on.
    ends = [i for i in range(5, 30) if i % 4 in (1, 2) and answer[i] not in answer[:i]]
    drafter = ScriptDrafter(answer, 3, [True])
    return run(drafter, 30, eos_token_ids=(answer[ends[0]],))


PROMPTS = [PROMPT, (1, 2, 7), (9, 9)]
TREE = DynamicTree(total_tokens=12, depth=3, top_k=3)
CASES = {
    "trained chain": lambda: [run(trained_draft(), prompt=p) for p in PROMPTS],
    "trained tree": lambda: [
        run(trained_draft(), growth=TREE, prompt=p) for p in PROMPTS
    ],
    "sampled": lambda: [
        run(trained_draft(), temperature=1.0, seed=seed) for seed in range(3)
    ],
    "random chain": lambda: [run(RandomDrafter(5), prompt=p) for p in PROMPTS],
    "random tree": lambda: [run(RandomTreeDrafter(seed)) for seed in range(8)],
    "prompt lookup": lambda: [
        run(PromptLookupDrafter(), 60, prompt=p) for p in PROMPTS
    ],
    "script": lambda: [
        scripted([random.Random(seed + i).random() < 0.6 for i in range(30)], 4, 20)
        for seed in range(0, 180, 30)
    ],
    "stopped": lambda: [stopped()],
}


@cache
def results_of(case: str) -> list[GenerationResult]:
    return CASES[case]()


@pytest.mark.parametrize("case", CASES)
def test_invariants_and_a_plain_second_count(case):
    results = results_of(case)
    metrics = AcceptanceMetrics.from_results(results)
    after_prefill = sum(len(result.token_ids) - 1 for result in results)
    passes = sum(result.target_passes for result in results)
    assert metrics.cycles == passes
    assert metrics.acceptance_length * passes == pytest.approx(after_prefill, abs=1e-9)
    assert metrics.tokens == after_prefill
    assert sum(metrics.accepted_at) == metrics.accepted <= metrics.drafted
    assert sum(metrics.per_position_rate) == pytest.approx(metrics.accepted_per_cycle)
    assert metrics.acceptance_length <= 1 + metrics.accepted_per_cycle + 1e-12
    cycles = [cycle for result in results for cycle in result.cycles]
    for position, kept in enumerate(metrics.accepted_at):
        assert kept == len([c for c in cycles if len(c.path) >= position + 1])
    if metrics.reached_at is None:
        return
    judged = [[] for _ in metrics.accepted_at]
    for cycle in cycles:
        for position in range(len(cycle.drafted)):
            judged[position].append(position < len(cycle.path))
            if position >= len(cycle.path):
                break  # what follows a miss is never judged
    assert metrics.reached_at == tuple(map(len, judged))
    assert metrics.n_alpha == tuple(sum(j) / max(1, len(j)) for j in judged)


@pytest.mark.parametrize("case", CASES)
def test_pooled_counts_are_those_of_all_answers(case):
    """An answer drafted by chains alone is among trees, too: nothing is lost."""
    results = [*results_of(case), run(None, 1)]
    whole = AcceptanceMetrics.from_results(results)
    parts = [AcceptanceMetrics.from_results([result]) for result in results]
    found = AcceptanceMetrics.pooled(parts)
    kept = found.accepted_at[: len(whole.accepted_at)]
    assert replace(found, accepted_at=kept) == whole
    assert not any(found.accepted_at[len(kept) :])


def test_the_cases_hold_what_they_are_for():
    """Trees that branch, cycles without a draft, and an answer that ends in a block."""
    for name in ("trained tree", "random tree"):
        metrics = AcceptanceMetrics.from_results(results_of(name))
        assert metrics.reached_at is None and metrics.accepted > 0
        with pytest.raises(ValueError, match="with a chain"):
            _ = metrics.n_alpha
    lookup = AcceptanceMetrics.from_results(results_of("prompt lookup"))
    assert 0 < lookup.drafts < lookup.cycles and lookup.accepted > 0
    (result,) = results_of("stopped")
    last = result.cycles[-1]
    assert result.finish_reason == "eos"
    assert len(last.emitted) < last.num_accepted + 1
    metrics = AcceptanceMetrics.from_results([result])
    assert metrics.acceptance_length < 1 + metrics.accepted_per_cycle


@pytest.mark.parametrize("case", CASES)
def test_vllm_counts_the_same(case):
    """The right values come from what vLLM's observe_draft does for each draft."""
    results = results_of(case)
    drafts = drafted = accepted = 0
    per_pos = [0] * 16
    for cycle in (cycle for result in results for cycle in result.cycles):
        if not cycle.drafted:
            continue
        drafts += 1
        drafted += len(cycle.drafted)
        accepted += len(cycle.path)
        for position in range(len(cycle.path)):
            per_pos[position] += 1
    metrics = AcceptanceMetrics.from_results(results)
    counters = to_vllm(metrics)
    found = counters.num_accepted_tokens_per_pos
    assert (counters.num_drafts, counters.num_draft_tokens) == (drafts, drafted)
    assert counters.num_accepted_tokens == accepted
    assert list(found) == per_pos[: len(found)] and not any(per_pos[len(found) :])
    log = vllm_log(metrics)
    assert log["Mean acceptance length"] == 1 + accepted / drafts
    assert log["Avg Draft acceptance rate"] == pytest.approx(100 * accepted / drafted)
    assert log["Per-position acceptance rate"] == tuple(n / drafts for n in found)
    again = from_vllm(counters)
    assert to_vllm(again) == counters
    assert again.acceptance_length == pytest.approx(1 + accepted / drafts)


def test_from_vllm_by_hand():
    """10 drafts of 3: 8, 4 and 2 kept by position, so 14 of 30 and 24 tokens."""
    metrics = from_vllm(VllmCounters(10, 30, 14, (8, 4, 2)))
    assert metrics.acceptance_length == 2.4
    assert metrics.n_alpha == (0.8, 0.5, 0.5)
    assert metrics.per_position_rate == (0.8, 0.4, 0.2)
    assert metrics.draft_acceptance_rate == 14 / 30
    with pytest.raises(ValueError, match="n-alpha"):  # one draft was shorter
        _ = from_vllm(VllmCounters(10, 29, 14, (8, 4, 2))).n_alpha


def test_vllm_round_trip_keeps_n_alpha_of_full_chains():
    """Where every draft had its full length and the answer ended with a block."""
    result = scripted([True], length=3, count=13)
    metrics = AcceptanceMetrics.from_results([result])
    assert {len(cycle.drafted) for cycle in result.cycles} == {3}
    assert from_vllm(to_vllm(metrics)) == metrics


def test_sglang_by_hand():
    """20 passes of 4 drafted tokens: 2, 4, 8, 5, 1 passes kept 0, 1, 2, 3, 4."""
    kept = 0 * 2 + 1 * 4 + 2 * 8 + 3 * 5 + 4 * 1
    metrics = from_sglang(SglangCounters(20, 80, kept, (2, 4, 8, 5, 1)))
    assert metrics.accepted_at == (18, 14, 6, 1) and sum(metrics.accepted_at) == kept
    assert metrics.acceptance_length == 1 + kept / 20
    assert metrics.draft_acceptance_rate == kept / 80
    assert metrics.reached_at is None
    log = sglang_log(metrics, num_draft_tokens=5)
    assert log == {"accept len": 1 + kept / 20, "accept rate": kept / 80}


@pytest.mark.parametrize("num_draft_tokens", [2, 4, 60])
@pytest.mark.parametrize("kept_per_pass", [0.0, 0.5, 1.0])
def test_older_sglang_rates_counted_the_targets_token(num_draft_tokens, kept_per_pass):
    """Old: (kept + 1) / d, so 1 / d for a draft that is never right."""
    older = (kept_per_pass + 1) / num_draft_tokens
    strict = strict_accept_rate(older, num_draft_tokens)
    assert strict == pytest.approx(kept_per_pass / (num_draft_tokens - 1), abs=1e-12)


def test_a_draft_of_nothing_has_no_rate():
    metrics = AcceptanceMetrics.from_results([])
    with pytest.raises(ValueError, match="at least 2"):
        sglang_log(metrics, 1)
    with pytest.raises(ValueError, match="at least 2"):
        strict_accept_rate(0.5, 1)


def test_the_table_names_every_rate_once():
    rates = {
        name
        for name, thing in vars(AcceptanceMetrics).items()
        if isinstance(thing, property)
    }
    assert {row.ours for row in METRIC_NAMES} == rates
    assert len(METRIC_NAMES) == len(rates)
    for row in METRIC_NAMES:
        assert all(isinstance(getattr(row, field.name), str) for field in fields(row))
        assert row.meaning


def test_names_in_the_table_are_those_of_the_converters():
    words = " ".join(f"{row.vllm} {row.sglang}" for row in METRIC_NAMES)
    counters = [f"vllm:spec_decode_{field.name}" for field in fields(VllmCounters)]
    metrics = AcceptanceMetrics.from_results([])
    logs = [*vllm_log(metrics), *sglang_log(metrics, 2)]
    missing = [name for name in (*counters, *logs) if name not in words]
    assert missing == []
    for field in ("spec_verify_ct", "spec_num_correct_drafts"):
        assert field in words

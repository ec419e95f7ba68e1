"""At temperature 0 speculation changes no token, on the toy target.

The right answer is the same target decoding alone, and that is held against
transformers' own loop. Drafters from hopeless to perfect must all give it.
"""

import helpers
import pytest
import torch
from helpers import PROMPT, RandomDrafter, ScriptDrafter, check_invariants, request, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.engine import Engine, generate
from eagle3.growth import chain
from eagle3.sampling import SamplingParams

COUNT = 25  # 1 token of the prefill and 24 of cycles
ANSWER = helpers.vanilla(toy(), PROMPT, COUNT + 8)


def long_prompt(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(96, (length,), generator=generator).tolist()


@pytest.mark.parametrize("length", [1, 2, 40, 300])
def test_vanilla_equals_transformers_generate(length):
    prompt = long_prompt(length)
    ours = helpers.vanilla(toy(), prompt, 16)
    assert list(ours) == helpers.library_answer(helpers.library_toy(), prompt, 16, [])


@pytest.mark.parametrize("eos", [[], [ANSWER[9]], [ANSWER[12], ANSWER[9]]])
def test_end_of_sequence_cuts_where_transformers_cuts(eos):
    theirs = helpers.library_answer(helpers.library_toy(), PROMPT, 20, eos)
    ours = generate(toy(), None, PROMPT, max_new_tokens=20, eos_token_ids=eos)
    assert list(ours.token_ids) == theirs
    assert ours.finish_reason == ("eos" if len(theirs) < 20 else "length")


def drafter(kind: str, length: int):
    if kind == "untrained":
        return EagleDrafter(toy(), helpers.new_draft(toy()), chain(length))
    if kind == "trained":
        return EagleDrafter(toy(), helpers.trained_draft(), chain(length))
    if kind == "random":
        return RandomDrafter(length)
    right = {"wrong": [False], "right": [True], "mixed": [True, True, False, True] * 9}
    return ScriptDrafter(ANSWER, length, right[kind])


KINDS = ["untrained", "trained", "random", "wrong", "right", "mixed"]


@pytest.mark.parametrize("length", range(1, 7))
@pytest.mark.parametrize("kind", KINDS)
def test_every_drafter_and_chain_length_gives_the_targets_own_answer(kind, length):
    engine = Engine(toy(), drafter(kind, length), request(PROMPT, COUNT))
    result = check_invariants(engine)
    assert result.token_ids == ANSWER[:COUNT]
    assert result.finish_reason == "length"
    kinds = {cycle.kind for cycle in result.cycles}
    if kind == "wrong":  # one token a cycle, and the last cycle has no room to draft
        assert result.acceptance_length == 1
        assert kinds == {"replacement", "target"}
        assert all(cycle.num_accepted == 0 for cycle in result.cycles)


@pytest.mark.parametrize("length", range(1, 7))
def test_a_drafter_that_is_always_right_gives_chain_plus_one_tokens_a_cycle(length):
    count = 1 + 4 * (length + 1)  # whole cycles only
    answer = helpers.vanilla(toy(), PROMPT, count)
    right = ScriptDrafter(answer, length, [True])
    result = check_invariants(Engine(toy(), right, request(PROMPT, count)))
    assert result.token_ids == answer
    assert result.acceptance_length == length + 1
    assert {cycle.kind for cycle in result.cycles} == {"bonus"}


def test_a_trained_draft_is_accepted_more_often_than_an_untrained_one():
    """Otherwise the tests with it would see hardly an accepted token."""
    taus = {
        kind: generate(
            toy(), drafter(kind, 4), PROMPT, max_new_tokens=COUNT
        ).acceptance_length
        for kind in ("untrained", "trained")
    }
    assert taus["trained"] > taus["untrained"] + 0.3


@pytest.mark.parametrize("kind", ["right", "mixed", "trained"])
def test_each_token_as_end_of_sequence_cuts_where_vanilla_cuts(kind):
    answer = ANSWER[:COUNT]
    for token in dict.fromkeys(answer):
        wanted = answer[: answer.index(token) + 1]
        others = {"eos_token_ids": (token,)}
        alone = Engine(toy(), VanillaDrafter(), request(PROMPT, COUNT, **others))
        assert check_invariants(alone).token_ids == wanted
        engine = Engine(toy(), drafter(kind, 5), request(PROMPT, COUNT, **others))
        result = check_invariants(engine)
        assert result.token_ids == wanted, f"EOS {token}"
        assert result.finish_reason == "eos"


def test_one_end_of_sequence_id_may_be_given_bare():
    one = generate(toy(), None, PROMPT, max_new_tokens=20, eos_token_ids=ANSWER[9])
    assert one.token_ids == ANSWER[: ANSWER.index(ANSWER[9]) + 1]


def test_a_list_of_end_of_sequence_ids_stops_at_the_first_of_them():
    answer, eos = ANSWER[:COUNT], (ANSWER[20], ANSWER[7], ANSWER[14])
    first = min(answer.index(token) for token in eos)
    result = generate(
        toy(),
        drafter("right", 6),
        PROMPT,
        max_new_tokens=COUNT,
        eos_token_ids=list(eos),
    )
    assert result.token_ids == answer[: first + 1]


CASES = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, 95), min_size=1, max_size=12),
        "count": st.integers(1, 14),
        "length": st.integers(1, 6),
        "eos": st.lists(st.integers(0, 95), max_size=40),
        "right": st.lists(st.booleans(), min_size=1, max_size=12),
        "use_draft": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CASES)
def test_any_prompt_length_chain_and_end_set(case):
    prompt, count, eos = case["prompt"], case["count"], case["eos"]
    answer = helpers.vanilla(toy(), prompt, count + 7)
    stops = [i for i, token in enumerate(answer[:count]) if token in eos]
    wanted = answer[: stops[0] + 1] if stops else answer[:count]
    if case["use_draft"]:
        drafter = EagleDrafter(toy(), helpers.trained_draft(), chain(case["length"]))
    else:
        drafter = ScriptDrafter(answer, case["length"], case["right"])
    asked = request(prompt, count, eos_token_ids=tuple(eos))
    assert check_invariants(Engine(toy(), drafter, asked)).token_ids == wanted


def test_fifty_requests_on_one_drafter_equal_fresh_ones():
    """Nothing is left over from the request before, and the caches start anew."""
    shared = drafter("trained", 4)
    answers = []
    prompts = [long_prompt(1 + i * 7 % 40) for i in range(25)]
    for prompt in [*prompts, *reversed(prompts)]:
        answers.append(generate(toy(), shared, prompt, max_new_tokens=6))
    for prompt, first, second in zip(
        prompts, answers[:25], reversed(answers), strict=False
    ):
        assert first.token_ids == second.token_ids
        assert first.acceptance_length == second.acceptance_length
        fresh = generate(toy(), drafter("trained", 4), prompt, max_new_tokens=6)
        assert first.token_ids == fresh.token_ids
        assert first.acceptance_length == fresh.acceptance_length


def test_after_any_cycle_a_cold_prefill_gives_the_same_next_logits():
    engine = Engine(toy(), drafter("mixed", 4), request(PROMPT, COUNT))
    for _ in engine.cycles():
        if engine.finish_reason:
            break
        committed = torch.tensor([[*PROMPT, *engine.emitted[:-1]]])
        pending = torch.tensor([engine.emitted[-1:]])
        warm = toy().forward(pending, engine.cache).logits[0, -1]
        engine.cache.rollback(1)
        cold = toy().forward(torch.cat([committed, pending], 1)).logits[0, -1]
        torch.testing.assert_close(warm, cold, atol=2e-4, rtol=0)


def test_a_cycle_at_temperature_0_needs_no_seed():
    settings = [SamplingParams(0.0, seed=seed) for seed in (0, 1)]
    a, b = (
        check_invariants(
            Engine(toy(), drafter("trained", 3), request(PROMPT, 12, sampling=s))
        ).token_ids
        for s in settings
    )
    assert a == b

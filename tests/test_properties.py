"""Whatever the target, the draft, the growth, the prompt, the stops and the dtype.

`check_invariants` holds after every cycle: both caches hold what is committed, all
positions lie within the context, what is emitted is the accepted path and one token.
The right answer is vanilla decoding's in float32, and in low precision one in which the
target, reading it in one pass, finds every token its choice up to rounding.
"""

import copy
import functools

import helpers
import pytest
import torch
from helpers import check_invariants, new_draft, request
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3.drafters import EagleDrafter, PromptLookupDrafter
from eagle3.engine import Engine
from eagle3.gpu import BatchEngine, Slots
from eagle3.growth import DynamicTree, StaticTree, chain
from eagle3.precision import check_answer
from eagle3.sampling import SamplingParams
from eagle3.target import Target, toy_target

PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (1, 0, 0))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ids = st.integers(0, helpers.VOCAB - 1)
growths = st.one_of(
    st.builds(chain, st.integers(1, 6), st.sampled_from(["sampled", "best"])),
    st.builds(DynamicTree, st.integers(2, 20), st.integers(1, 4), st.integers(1, 4)),
    st.builds(StaticTree, st.just(PATHS), st.sampled_from(["sampled", "best"])),
)
requests = st.fixed_dictionaries(
    {
        "prompt": st.lists(ids, min_size=1, max_size=40),
        "count": st.integers(1, 30),
        "eos": st.sets(ids, max_size=5),
        "temperature": st.sampled_from([0.0, 0.0, 0.7, 1.3]),
    }
)


@functools.cache
def any_target(seed: int, dtype: str) -> Target:
    if dtype == "float32":
        return toy_target(seed)
    return Target(copy.deepcopy(helpers.library_toy()).to(DTYPES[dtype]))


@functools.cache
def any_draft(seed: int, size: int):
    return new_draft(any_target(seed, "float32"), size, seed)


def asked(one: dict, temperature: float | None = None):
    if temperature is None:
        temperature = one["temperature"]
    return request(
        one["prompt"],
        one["count"],
        eos_token_ids=tuple(one["eos"]),
        sampling=SamplingParams(temperature, seed=len(one["prompt"])),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    one=requests,
    growth=growths,
    seed=st.integers(0, 2),
    size=st.sampled_from([1, 2, 16, 48, 96]),
)
def test_any_target_draft_growth_and_request(one, growth, seed, size):
    target = any_target(seed, "float32")
    eagle = EagleDrafter(target, any_draft(seed, size), growth)
    result = check_invariants(Engine(target, eagle, asked(one)))
    assert set(result.token_ids[:-1]).isdisjoint(one["eos"])
    if one["temperature"] == 0:
        plain = Engine(target, PromptLookupDrafter(1), asked(one))
        assert result.token_ids == check_invariants(plain).token_ids
        vanilla = helpers.vanilla(target, one["prompt"], one["count"])
        assert result.token_ids == vanilla[: len(result.token_ids)]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(one=requests, growth=growths)
def test_in_low_precision_every_token_is_the_targets_choice(one, growth):
    target = any_target(0, "bfloat16")
    eagle = EagleDrafter(target, helpers.trained_draft(), growth)
    result = check_invariants(Engine(target, eagle, asked(one, 0.0)))
    assert check_answer(target, one["prompt"], result.token_ids).is_lossless


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    mix=st.lists(requests, min_size=1, max_size=6),
    growth=growths,
    slots=st.integers(1, 4),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_any_mix_in_a_batch(mix, growth, slots, dtype):
    """Greedy ones are the target's own; a cache never holds more than it should."""
    target = any_target(0, dtype)
    eagle = EagleDrafter(target, helpers.trained_draft(), growth)
    engine = BatchEngine(target, eagle, Slots(slots, 80))
    tickets = [engine.submit(asked(one)) for one in mix]
    answers = {}
    while not engine.is_idle:
        answers |= {answer.ticket: answer for answer in engine.step()}
        for slot, running in enumerate(engine.running):
            length = 1 if running is None else running.committed
            assert int(engine.state.length[slot]) == length < 80
    for ticket, one in zip(tickets, mix, strict=True):
        tokens = answers[ticket].token_ids
        assert 1 <= len(tokens) <= one["count"]
        if one["temperature"] == 0:
            assert check_answer(target, one["prompt"], tokens).is_lossless


@pytest.mark.parametrize("seed", range(3))
def test_the_targets_are_different_ones(seed):
    """Else the first property would be about one target."""
    ours = any_target(seed, "float32").embedding
    assert not torch.equal(ours, any_target((seed + 1) % 3, "float32").embedding)

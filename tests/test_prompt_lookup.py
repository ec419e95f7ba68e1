"""Prompt lookup: the words that followed the same ending before.

Right values: the rule spelled out over every possible ending and place, and the
engine's answer, which no drafter may change.
"""

import helpers
import pytest
from helpers import PROMPT, check_invariants, request, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3.drafters import PromptLookupDrafter
from eagle3.engine import Engine
from eagle3.sampling import SamplingParams


def proposal(drafter: PromptLookupDrafter, text: list[int], limit: int = 100):
    """What is proposed after a text whose last token is pending."""
    drafter.start(100)
    *committed, pending = text
    drafter.observe(committed[:2], None)
    drafter.observe(committed[2:], None)
    return drafter.propose(pending, limit, SamplingParams(), None)


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ([1, 2, 3, 4, 1, 2], (3, 4, 1, 2)),
        ([1, 2, 3, 1, 2, 4, 1, 2], (4, 1, 2)),  # the latest place
        ([7, 1, 2, 5, 1, 2, 6, 7, 1, 2], (5, 1, 2, 6, 7)),  # but the longest ending
        ([5, 5, 5], (5,)),  # the places may overlap
        ([1, 2, 3], ()),
        ([1, 1], (1,)),
        ([4], ()),
    ],
)
def test_texts_by_hand(text, proposed):
    tree = proposal(PromptLookupDrafter(length=5, max_ngram=3), text)
    assert tree.tokens == proposed
    assert tree.is_chain and tree.probs is None


def slow_lookup(text: list[int], length: int, max_ngram: int) -> list[int]:
    """All pairs of an earlier place and an ending; the best by size, then place."""
    matches = [
        (size, place)
        for size in range(1, max_ngram + 1)
        for place in range(len(text))
        if place + size < len(text)
        and size < len(text)
        and text[place : place + size] == text[len(text) - size :]
    ]
    if not matches:
        return []
    size, place = max(matches)
    return text[place + size : place + size + length]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 8),
)
def test_any_text(text, length, max_ngram, limit):
    tree = proposal(PromptLookupDrafter(length, max_ngram), text, limit)
    wanted = slow_lookup(text, min(length, limit), max_ngram)
    assert list(tree.tokens) == wanted
    assert tree.is_chain


@pytest.mark.parametrize("length", [1, 3, 8])
def test_the_answer_is_the_targets_own(length):
    prompt = [*PROMPT, 9, 9, *PROMPT, 9]
    drafter = PromptLookupDrafter(length)
    # With its own answer in the prompt there is much to find.
    prompt += [*helpers.vanilla(toy(), prompt, 20), *prompt]
    engine = Engine(toy(), drafter, request(prompt, 30))
    result = check_invariants(engine)
    assert result.token_ids == helpers.vanilla(toy(), prompt, 30)
    assert any(cycle.drafted for cycle in result.cycles)


def test_a_new_request_forgets_the_one_before():
    drafter = PromptLookupDrafter()
    assert proposal(drafter, [1, 2, 3, 1]).tokens == (2, 3, 1)
    assert proposal(drafter, [4, 1]).tokens == ()


@pytest.mark.parametrize("sizes", [(0, 3), (5, 0), (-1, 1)])
def test_sizes_below_1_are_refused(sizes):
    with pytest.raises(ValueError, match="both must be at least 1"):
        PromptLookupDrafter(*sizes)

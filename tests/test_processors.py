"""The two hooks of a request: `process` changes scores, `ends` ends an answer.

The right answer is a loop without cache, draft or engine: one full pass for each token,
the hook on its last row, the best token.
"""

import pytest
import torch
from helpers import PROMPT, VOCAB, RandomDrafter, check_invariants, toy, trained_draft

from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.engine import Engine, Request, run
from eagle3.growth import DynamicTree, chain
from eagle3.sampling import SamplingParams

COUNT = 20
DRAFTERS = {
    "vanilla": lambda: VanillaDrafter(),
    "random": lambda: RandomDrafter(4),
    "chain": lambda: EagleDrafter(toy(), trained_draft(), chain(4)),
    "tree": lambda: EagleDrafter(toy(), trained_draft(), DynamicTree(12, 4, 4)),
}


def penalise_seen(text: list[int], scores: torch.Tensor) -> torch.Tensor:
    """A repetition penalty of 1.5, written out; it changes the scores in place."""
    for token in set(text):
        scores[token] = (
            scores[token] * 1.5 if scores[token] < 0 else scores[token] / 1.5
        )
    return scores


def slow_answer(process, ends=lambda _text: False) -> tuple[list[int], list]:
    """The answer, and the texts that the hooks were shown."""
    text, shown = list(PROMPT), []
    while len(text) < len(PROMPT) + COUNT:
        scores = toy().forward(torch.tensor([text])).logits[0, -1].clone()
        shown.append(list(text))
        text.append(int(process(text, scores).argmax()))
        if ends(text):
            break
    return text[len(PROMPT) :], shown


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_processor_sees_every_text_once_and_decides(kind):
    right, texts = slow_answer(penalise_seen)
    shown = []

    def process(text, scores):
        shown.append(list(text))
        return penalise_seen(text, scores)

    engine = Engine(toy(), DRAFTERS[kind](), Request(PROMPT, COUNT, process=process))
    result = check_invariants(engine)
    assert list(result.token_ids) == right
    assert shown == texts
    # Without it the answer is another one.
    plain = run(toy(), VanillaDrafter(), Request(PROMPT, COUNT)).token_ids
    assert list(plain) != right


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("length", range(5, 14))
def test_an_answer_ends_where_it_is_told_to(kind, length):
    """Asked once for each token, in order, and no processor is called after it."""
    asked, shown = [], []

    def ends(text):
        asked.append(list(text))
        return len(text) >= len(PROMPT) + length

    def process(text, scores):
        shown.append(list(text))
        return penalise_seen(text, scores)

    request = Request(PROMPT, COUNT, process=process, ends=ends)
    result = check_invariants(Engine(toy(), DRAFTERS[kind](), request))
    right, texts = slow_answer(penalise_seen, lambda t: len(t) == len(PROMPT) + length)
    assert list(result.token_ids) == right and result.finish_reason == "ended"
    assert asked == [[*PROMPT, *right[: i + 1]] for i in range(length)]
    assert shown == texts


def test_an_end_of_sequence_token_in_a_block_ends_the_processors_too():
    right, texts = slow_answer(penalise_seen)
    for stop in sorted(set(right)):
        shown = []

        def process(text, scores, shown=shown):
            shown.append(list(text))
            return penalise_seen(text, scores)

        request = Request(PROMPT, COUNT, eos_token_ids=(stop,), process=process)
        result = run(toy(), DRAFTERS["tree"](), request)
        end = right.index(stop) + 1
        assert list(result.token_ids) == right[:end]
        assert shown == texts[:end]


def test_what_a_processor_changes_stays_with_it():
    """The drafter is shown the target's own scores."""

    class Listener(RandomDrafter):
        def observe(self, token_ids, output):
            seen.append(output.logits[0, -1].clone())

    seen, changed = [], []

    def process(text, scores):
        changed.append(scores)
        return scores.fill_(-1.0)

    run(toy(), Listener(2), Request(PROMPT, 3, process=process))
    assert all(bool((scores == -1.0).all()) for scores in changed)
    assert all(scores.unique().numel() > 9 for scores in seen)


def test_sampling_draws_from_the_changed_scores():
    """Temperature and filters come after it: the one token left is always drawn."""

    def only_seven(text, scores):
        return torch.full_like(scores, -torch.inf).index_fill_(
            0, torch.tensor([(text[-1] + 7) % VOCAB]), 0.0
        )

    sampling = SamplingParams(1.3, top_k=5, seed=3)
    request = Request(PROMPT, 10, sampling, process=only_seven)
    found = run(toy(), DRAFTERS["chain"](), request).token_ids
    assert found == tuple((PROMPT[-1] + 7 * (i + 1)) % VOCAB for i in range(10))


def test_a_draft_may_draw_in_its_own_way():
    """Its q changes what is accepted, not what the answer is drawn from."""
    told = []

    class Listener(RandomDrafter):
        def propose(self, pending, limit, params, generator):
            told.append(params)
            return super().propose(pending, limit, params, generator)

    own = SamplingParams(0.2, top_k=3)
    run(toy(), Listener(2), Request(PROMPT, 5, SamplingParams(1.0), drafting=own))
    assert set(told) == {own}
    told.clear()
    run(toy(), Listener(2), Request(PROMPT, 5, SamplingParams(1.0)))
    assert set(told) == {SamplingParams(1.0)}

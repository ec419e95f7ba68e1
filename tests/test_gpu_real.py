"""The batch engine on the real target: the teaching engine's tokens, in one batch."""

import pytest

from eagle3 import load_draft
from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine, Request, prompt_to_ids
from eagle3.gpu import BatchEngine, Slots
from eagle3.growth import DynamicTree, chain
from eagle3.sampling import SamplingParams

TEXTS = ("How can I cook rice?", "Name three colours.", "Write a story about a fox.")


@pytest.mark.real
@pytest.mark.parametrize(
    "growth", [chain(3), DynamicTree(12, 4, 4)], ids=["chain", "tree"]
)
def test_the_real_target_answers_as_with_the_teaching_engine(real_target, growth):
    drafter = EagleDrafter(real_target, load_draft(target=real_target), growth)
    settings = (
        SamplingParams(),
        SamplingParams(1.0, seed=3),
        SamplingParams(0.7, 50, 0.9),
    )
    requests = [
        Request(prompt_to_ids(real_target, text), 12, sampling)
        for text, sampling in zip(TEXTS, settings, strict=True)
    ]
    answers = BatchEngine(real_target, drafter, Slots(2, 64)).run(requests)
    for one, answer in zip(requests, answers, strict=True):
        engine = Engine(real_target, drafter, one)
        accepted = [cycle.num_accepted for cycle in engine.cycles()][1:]
        assert answer.token_ids == tuple(engine.emitted)
        assert answer.accepted == tuple(accepted)

"""eagle3.length_policy: what it believes, what it chooses, and that no token changes.

Right values: counts by hand, coins of known chance, the cost model's own best length,
and plain decoding of a toy target.
"""

import pytest
import torch
from helpers import PROMPT, toy, trained_draft

from eagle3.cost_model import CostModel, LinearCost, Load
from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine, Request, generate
from eagle3.length_policy import ChosenChain, LengthPolicy

LOAD = Load()


def model(row=0.05, draft=0.05):
    step = LinearCost(draft, 0.0, 0.0)
    return CostModel(LinearCost(1.0, row, 0.0), step, step)


def test_it_begins_with_what_it_is_told():
    policy = LengthPolicy(model(), (0.9, 0.8, 0.7))
    assert policy.n_alpha == pytest.approx([0.9, 0.8, 0.7])
    assert policy.choose(LOAD) == model().best_length((0.9, 0.8, 0.7), LOAD)[0]


def test_a_cycle_tells_of_the_places_that_were_reached():
    policy = LengthPolicy(model(), (0.5, 0.5, 0.5), memory=1e9, weight=1.0)
    policy.observe(3, 1)  # kept, rejected, not looked at
    assert policy.kept == pytest.approx([1.5, 0.5, 0.5])
    assert policy.reached == pytest.approx([2.0, 2.0, 1.0])
    policy.observe(2, 2)
    assert policy.kept == pytest.approx([2.5, 1.5, 0.5])
    assert policy.reached == pytest.approx([3.0, 3.0, 1.0])


def test_it_learns_the_chances_of_coins():
    chances, generator = (0.8, 0.6, 0.3), torch.Generator().manual_seed(0)
    policy = LengthPolicy(model(), (0.5, 0.5, 0.5), memory=4000.0)
    for _ in range(6000):
        right = torch.rand(3, generator=generator) < torch.tensor(chances)
        policy.observe(3, int(right.long().cumprod(0).sum()))
    assert policy.n_alpha == pytest.approx(chances, abs=0.04)


def test_it_follows_a_change_of_the_text():
    policy = LengthPolicy(model(), (0.9,) * 4, memory=20)
    before = policy.choose(LOAD)
    for _ in range(60):
        policy.observe(4, 0)
    assert policy.choose(LOAD) < before


def test_it_drafts_less_at_a_larger_load():
    policy = LengthPolicy(model(row=0.02), (0.8, 0.7, 0.6))
    lengths = [policy.choose(Load(batch)) for batch in (1, 64, 4096)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 0


def test_it_looks_again_after_a_while_of_plain_steps():
    policy = LengthPolicy(model(row=1.0, draft=1.0), (0.1, 0.1), probe=5)
    chosen = []
    for _ in range(12):
        length = policy.choose(LOAD)
        chosen.append(length)
        policy.observe(length, 0)
    assert chosen == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("wrong", [{"memory": 0.5}, {"probe": 0}, {"weight": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="memory and a probe of 1 or more"):
        LengthPolicy(model(), (0.5,), **wrong)


def test_the_text_is_plain_decodings_whatever_it_chooses():
    target, draft = toy(), trained_draft()
    plain = generate(target, None, PROMPT, max_new_tokens=40, eos_token_ids=())
    policy = LengthPolicy(model(), (0.9, 0.5, 0.5, 0.5), memory=5, weight=1.0, probe=3)
    drafter = EagleDrafter(target, draft, ChosenChain(policy, LOAD))
    engine = Engine(target, drafter, Request(tuple(PROMPT), 40))
    lengths = set()
    for cycle in engine.cycles():
        if cycle is not engine.trace[0]:
            policy.observe(len(cycle.drafted), cycle.num_accepted)
            lengths.add(len(cycle.drafted))
    assert list(engine.emitted) == list(plain.token_ids)
    assert len(lengths) > 1  # it did choose

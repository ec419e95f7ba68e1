"""Losslessness with rounding: what the bound lets pass, and what it does not.

Ties are made by hand (two tokens with one row of the head), and defects, too; in low
precision both engines' answers must stand before the target.
"""

import copy
from functools import cache

import helpers
import pytest
import torch
from helpers import PROMPT, request, toy

from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.engine import Engine
from eagle3.gpu import BatchEngine, Slots
from eagle3.growth import DynamicTree, chain
from eagle3.precision import check_answer, explain_difference, rounding_bound
from eagle3.target import Target

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


@cache
def low_toy(name: str) -> Target:
    return Target(copy.deepcopy(helpers.library_toy()).to(LOW[name]))


def tied_toy(a: int, b: int) -> Target:
    """The toy target in which two tokens always have the same logit."""
    model = copy.deepcopy(helpers.library_toy())
    model.lm_head.weight[b] = model.lm_head.weight[a]
    return Target(model)


def test_the_bound_is_proportional_to_error_depth_and_spread():
    """Steps of bfloat16 are 2**-7 and of float32 2**-23; sqrt(96 / 24) is 2."""
    logits = torch.tensor([[3.0, -1.0, -2.0, 0.0], [30.0, -10.0, -20.0, 0.0]])
    spread = torch.tensor([3.0, 30.0])
    sums = 2 * 2.0**-23
    for dtype, eps in (
        (torch.bfloat16, 2.0**-7),
        (torch.float16, 2.0**-10),
        (torch.float32, 2.0**-23),
    ):
        found = rounding_bound(logits + 5, 16, dtype, 96)
        torch.testing.assert_close(found, 2 * (eps + sums) * 4 * spread)


def test_a_sum_in_another_order_stays_within_what_the_bound_allows_it():
    """K products summed one by one in float32, against the sum in float64.

    The root of the mean square of the error is eps * sqrt(K / 24) of the size of the
    sums, up to the chance of a thousand of them.
    """
    dice = torch.Generator().manual_seed(0)
    for width in (96, 1536):
        terms = torch.randn(1000, width, generator=dice)
        one_by_one = torch.zeros(1000)
        for column in terms.T:
            one_by_one = one_by_one + column
        exact = terms.double().sum(1)
        size = exact.square().mean().sqrt()
        error = (one_by_one.double() - exact).square().mean().sqrt() / size
        foretold = torch.finfo(torch.float32).eps * (width / 24) ** 0.5
        assert 0.5 * foretold < error < 1.1 * foretold


@pytest.mark.parametrize("rows", [1, 4])
def test_the_toys_blocks_lie_within_the_bound_in_float32(rows):
    """One pass against pieces: every logit, not only the best."""
    ids = torch.randint(96, (1, 64), generator=torch.Generator().manual_seed(2))
    whole, cache = toy().forward(ids).logits[0], toy().new_cache(64)
    pieces = [toy().forward(part, cache).logits[0] for part in ids.split(rows, dim=1)]
    apart = (torch.cat(pieces) - whole).abs().amax(-1)
    bound = rounding_bound(whole, toy().num_layers, torch.float32, 128)
    assert bool((apart <= bound).all()) and apart.max() > 0


def test_a_tie_is_rounding():
    answer = helpers.vanilla(toy(), PROMPT, 8)
    other = (answer[5] + 1) % 96
    target = tied_toy(answer[5], other)
    a = helpers.vanilla(target, PROMPT, 8)
    index = next(i for i, token in enumerate(a) if token in (answer[5], other))
    swapped = {answer[5]: other, other: answer[5]}[a[index]]
    b = (*a[:index], swapped, 0, 0)
    found = explain_difference(target, PROMPT, a, b)
    assert (found.index, found.token_a, found.token_b) == (index, a[index], swapped)
    assert found.gap == 0 and found.kind == "rounding"
    assert "both answers are the target's" in found.words


def test_a_token_that_the_target_would_not_choose_is_a_defect():
    a = helpers.vanilla(toy(), PROMPT, 8)
    wrong = (a[3] + 1) % 96
    found = explain_difference(toy(), PROMPT, a, (*a[:3], wrong, *a[4:]))
    logits = toy().forward(torch.tensor([[*PROMPT, *a[:3]]])).logits[0, -1]
    assert found.index == 3 and found.kind == "defect"
    assert found.logit_a == pytest.approx(float(logits[a[3]]), abs=1e-4)
    assert found.logit_b == pytest.approx(float(logits[wrong]), abs=1e-4)
    assert found.best == found.logit_a
    assert found.gap == found.logit_a - found.logit_b > found.bound
    assert "one of the answers is wrong" in found.words


def test_two_wrong_tokens_that_tie_with_each_other_are_a_defect():
    """The gap of the two says nothing: both must be near the best."""
    a = helpers.vanilla(toy(), PROMPT, 4)
    x, y = [token for token in range(96) if token != a[2]][:2]
    target = tied_toy(x, y)
    a = helpers.vanilla(target, PROMPT, 4)
    assert a[2] not in (x, y)
    found = explain_difference(target, PROMPT, (*a[:2], x), (*a[:2], y))
    assert found.gap == 0 and found.kind == "defect"


@pytest.mark.parametrize(
    ("a", "b"), [((1, 2), (1, 2)), ((1, 2), (1, 2, 3)), ((), (1,))]
)
def test_equal_answers_and_beginnings_do_not_differ(a, b):
    assert explain_difference(toy(), PROMPT, a, b) is None


@pytest.mark.parametrize(("prompt", "answer"), [((), (1,)), (PROMPT, ())])
def test_without_prompt_or_answer_there_is_nothing_to_check(prompt, answer):
    with pytest.raises(ValueError, match="can't be checked"):
        check_answer(toy(), prompt, answer)


def test_an_answer_is_judged_token_by_token():
    answer = helpers.vanilla(toy(), PROMPT, 10)
    good = check_answer(toy(), PROMPT, answer)
    assert good.is_lossless and good.behind.max() == 0 and good.num_close == 0
    wrong = (*answer[:6], (answer[6] + 1) % 96)
    bad = check_answer(toy(), PROMPT, wrong)
    assert not bad.is_lossless
    assert (bad.behind > bad.bound).nonzero().tolist() == [[6]]


@pytest.mark.parametrize(
    "growth", [chain(3), DynamicTree(14, 4, 3)], ids=["chain", "tree"]
)
@pytest.mark.parametrize("name", LOW)
def test_in_low_precision_every_token_is_the_targets_choice_up_to_rounding(
    name, growth
):
    """Both engines, against the target alone; where they part, it is rounding."""
    target = low_toy(name)
    drafter = EagleDrafter(target, helpers.trained_draft(), growth)
    requests = [request(prompt, 24) for prompt in (PROMPT, (1, 2, 7), (50,))]
    batch = BatchEngine(target, drafter, Slots(4, 64)).run(requests)
    for one, answer in zip(requests, batch, strict=True):
        answers = [answer.token_ids]
        for each in (VanillaDrafter(), drafter):
            engine = Engine(target, each, one)
            list(engine.cycles())
            answers.append(tuple(engine.emitted))
        for tokens in answers:
            assert check_answer(target, one.prompt_ids, tokens).is_lossless
        alone = answers[1]
        for tokens in (answers[0], answers[2]):
            found = explain_difference(target, one.prompt_ids, alone, tokens)
            assert found is None or found.kind == "rounding"

"""eagle3.bug_hunt: the engine without a fault, and what each fault shows in its trace.

The right trace is `generate`'s; what a fault must show follows from what it is.
"""

from functools import cache

import pytest
import torch
from helpers import PROMPT, new_draft, toy, trained_draft_for

from eagle3 import bug_hunt
from eagle3.engine import generate

LENGTH = 24


def text(steps) -> tuple[int, ...]:
    emitted = [token for step in steps for token in step.emitted]
    return (steps[0].pending, *emitted)


@cache
def fair_draft():
    """A draft that hits and misses: a trained one with some noise on its head."""
    draft = trained_draft_for(toy())
    weight = draft.lm_head.weight.data
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    weight += 0.3 * weight.std() * noise
    return draft


def run(suspect: str):
    return bug_hunt.examine(suspect, toy(), fair_draft(), PROMPT, LENGTH)


def good():
    return bug_hunt.Chain(toy(), fair_draft()).run(PROMPT, LENGTH)


@pytest.mark.parametrize("prompt", [PROMPT, (1, 2, 7), (9,)])
@pytest.mark.parametrize("length", [1, 3, 5])
def test_the_engine_without_a_fault_is_the_modules(prompt, length):
    draft = fair_draft() if length > 1 else new_draft(toy())
    steps = bug_hunt.Chain(toy(), draft, length).run(prompt, LENGTH)
    right = generate(
        toy(),
        draft,
        list(prompt),
        max_new_tokens=LENGTH,
        chain_length=length,
        eos_token_ids=(),
    )
    assert text(steps) == right.token_ids
    for step, cycle in zip(steps, right.cycles, strict=True):
        assert step.drafted == cycle.drafted
        assert step.num_accepted == cycle.num_accepted
        assert step.next_token == cycle.next_token
        assert step.emitted == cycle.emitted
        assert step.target_cache == cycle.target_cache
        assert step.draft_cache == cycle.draft_cache


def cached_too_much(steps) -> list[int]:
    """Positions of the target beyond prompt and emitted tokens less the pending one."""
    found, emitted = [], 0
    for step in steps:
        emitted += len(step.emitted)
        found.append(step.target_cache - len(PROMPT) - emitted)
    return found


def draft_lag(steps) -> list[int]:
    """Positions of the draft's cache beyond what the target's held a cycle before."""
    before = [len(PROMPT), *(step.target_cache for step in steps)]
    drafting = [i for i, step in enumerate(steps) if step.drafted]
    return [steps[i].draft_cache - before[i] for i in drafting]


def test_the_good_engine_has_no_symptom():
    steps = good()
    assert not any(cached_too_much(steps)) and not any(draft_lag(steps))
    assert any(step.num_accepted < len(step.drafted) for step in steps)
    assert any(step.num_accepted > 1 for step in steps)  # the draft is no dummy


@pytest.mark.parametrize("suspect", ["B", "D"])
def test_faults_of_the_targets_side_change_the_text(suspect):
    assert text(run(suspect))[:LENGTH] != text(good())


@pytest.mark.parametrize("suspect", ["A", "C", "E"])
def test_faults_of_the_drafts_side_change_the_guesses_alone(suspect):
    steps = run(suspect)
    assert text(steps) == text(good())
    assert [s.drafted for s in steps] != [s.drafted for s in good()]


def test_only_d_caches_rejected_rows_one_for_each_cycle_with_a_rejection():
    for suspect in "ABCE":
        assert not any(cached_too_much(run(suspect)))
    steps, total = run("D"), 0
    for step, extra in zip(steps, cached_too_much(steps), strict=True):
        total += step.num_accepted < len(step.drafted)
        assert extra == total
    assert total > 1


def test_only_e_keeps_rows_of_guesses_in_the_drafts_cache():
    for suspect in "ABCD":
        assert max(draft_lag(run(suspect))) == 0
    lag = draft_lag(run("E"))
    assert lag[0] == 2 and lag == sorted(lag) and lag[-1] > 4


def test_a_goes_wrong_after_the_first_rejection_and_c_at_once():
    """While all rows of a block are kept, the last ones are the right ones."""
    right = good()
    rejects = [step.num_accepted < len(step.drafted) for step in right]
    first = rejects.index(True)
    mine = run("A")
    assert mine[: first + 1] == right[: first + 1]
    assert mine[first + 1 :] != right[first + 1 :]
    assert run("C")[0].drafted != right[0].drafted


def test_verdicts_and_names():
    answers = dict(zip("ABCDE", bug_hunt._SUSPECTS.values(), strict=True))
    for suspect, (_, fault) in answers.items():
        right = [name for name in bug_hunt.FAULTS if bug_hunt.is_right(suspect, name)]
        assert right == [fault]
    assert len({fault for _, fault in answers.values()}) == 5
    with pytest.raises(ValueError, match="none of the faults"):
        bug_hunt.is_right("A", "gremlins")
    with pytest.raises(ValueError, match="none of the suspects"):
        bug_hunt.examine("F", toy(), fair_draft(), PROMPT, 4)

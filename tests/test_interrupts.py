"""Ctrl-C in the middle of anything, and the next call answers as ever.

The right value is what objects say that were never interrupted: the teaching engine's
answers, cycle by cycle.
"""

import random
import signal

import helpers
import pytest
from helpers import PROMPT, check_invariants, request, toy
from test_gpu_engine import drafter, mixed_requests, teach, told

from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine
from eagle3.gpu import BatchEngine, Slots
from eagle3.growth import DynamicTree

GROWTH = DynamicTree(total_tokens=10, depth=3, top_k=3)


def cycles_of(eagle: EagleDrafter) -> list[tuple]:
    result = check_invariants(Engine(toy(), eagle, request(PROMPT, 24)))
    return [(cycle.drafted, cycle.path, cycle.emitted) for cycle in result.cycles]


def stop_at(patch, owner, name: str, number: int) -> None:
    """Ctrl-C just after the call of this number: 0 is the first."""
    whole, calls = getattr(owner, name), iter(range(10_000))

    def interrupted(*args, **options):
        output = whole(*args, **options)
        if next(calls) == number:
            raise KeyboardInterrupt
        return output

    patch.setattr(owner, name, interrupted)


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("place", ["target", "propose", "observe", "the draft's layer"])
def test_after_ctrl_c_the_next_call_answers_as_ever(monkeypatch, place, number):
    eagle = EagleDrafter(toy(), helpers.trained_draft(), GROWTH)
    wanted = cycles_of(eagle)
    owner, name = {
        "target": (toy(), "forward"),
        "propose": (eagle, "propose"),
        "observe": (eagle, "observe"),
        "the draft's layer": (eagle.draft, "forward"),
    }[place]
    with monkeypatch.context() as patch:
        stop_at(patch, owner, name, number)
        with pytest.raises(KeyboardInterrupt):
            cycles_of(eagle)
    assert cycles_of(eagle) == wanted


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a POSIX alarm")
def test_ctrl_c_at_any_moment():
    """As the terminal sends it, at moments by lot, between any two bytecodes."""
    eagle = EagleDrafter(toy(), helpers.trained_draft(), GROWTH)
    wanted, dice, hit = cycles_of(eagle), random.Random(3), 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(12):
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.001, 0.06))
                cycles_of(eagle)
            except KeyboardInterrupt:
                hit += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert cycles_of(eagle) == wanted
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hit  # some came in time


@pytest.mark.parametrize("number", [0, 2, 5])
@pytest.mark.parametrize("phase", ["_admit", "_draft", "_run_target", "_accept"])
def test_a_batch_that_was_interrupted_leaves_nothing(monkeypatch, phase, number):
    """Its requests are given up, and the engine answers the next ones as a new one."""
    engine = BatchEngine(toy(), drafter("dynamic"), Slots(2, 64))
    requests = mixed_requests(5, 5, temperature=1.0)
    with monkeypatch.context() as patch:
        stop_at(patch, engine, phase, number)
        # Admissions are fewer than cycles.
        with pytest.raises(KeyboardInterrupt):
            engine.run([*requests, *requests])
    assert engine.is_idle
    for one, answer in zip(requests, engine.run(requests), strict=True):
        assert told(answer) == teach(one, "dynamic")


def test_requests_that_wait_outlive_an_interrupted_step(monkeypatch):
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(1, 64))
    first, second = (request(prompt, 9) for prompt in (PROMPT, (9, 9)))
    engine.submit(first)
    ticket = engine.submit(second)
    with monkeypatch.context() as patch:
        stop_at(patch, engine, "_run_target", 1)
        with pytest.raises(KeyboardInterrupt):
            while True:
                engine.step()
    answers = []
    while not engine.is_idle:
        answers += engine.step()
    assert [answer.ticket for answer in answers] == [ticket]
    assert told(answers[0]) == teach(second, "chain 3")

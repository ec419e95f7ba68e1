"""A cycle by stage: whose time is whose, and that every way runs the same cycles.

The right values are sums of laps counted by hand, a clock that the test moves, and the
answers of the teaching engine. No time is compared with another.
"""

import itertools

import pytest
import torch
from helpers import PROMPT, request, toy
from test_gpu_engine import drafter, mixed_requests, teach

from eagle3.cache import KVCache
from eagle3.engine import Engine
from eagle3.gpu import BatchEngine, Slots, clock
from eagle3.gpu.clock import Clock, Lap
from eagle3.gpu.profile import (
    CHANGES,
    STAGES,
    GrowingCache,
    batch_cycles,
    cycles_of,
    mean_cycle,
    profile_changes,
    summary,
    teaching_cycles,
)

CPU = torch.device("cpu")


class Time:
    """A clock that moves by one more second at each look: 0, 1, 3, 6, 10 ..."""

    def __init__(self) -> None:
        self.now = self.step = 0

    def perf_counter(self) -> float:
        self.now += self.step
        self.step += 1
        return float(self.now)


def test_each_lap_is_charged_to_its_step(monkeypatch):
    monkeypatch.setattr(clock, "time", Time())
    seconds, laps = {"a": 10.0, "b": 0.0}, []
    watch = Clock(seconds, 7, laps, CPU)
    for step in ("a", "b", "a"):
        watch.lap(step)
    assert seconds == {"a": 10 + 1 + 3, "b": 2}
    assert laps == [Lap(7, "a", 0, 1), Lap(7, "b", 1, 3), Lap(7, "a", 3, 6)]
    assert [lap.seconds for lap in laps] == [1, 2, 3]


def test_only_a_profile_waits_for_the_device(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    gpu = torch.device("cuda")
    for laps, device, wanted in ((None, gpu, 0), ([], CPU, 0), ([], gpu, 1)):
        waits.clear()
        Clock({"a": 0.0}, 0, laps, device).lap("a")
        assert len(waits) == wanted


def test_laps_follow_each_other_without_a_gap():
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(2, 64))
    engine.laps = []
    engine.run([request(PROMPT, 12), request((7,), 9)])
    laps = engine.laps
    for number in range(engine.num_cycles):
        mine = [lap for lap in laps if lap.cycle == number]
        steps = ("prefill", "draw", "draft", "target", "accept", "copy", "host")
        assert tuple(lap.step for lap in mine) == steps
        for before, after in itertools.pairwise(mine):
            assert before.end == after.start
    for step, seconds in engine.seconds.items():
        spent = sum(lap.seconds for lap in laps if lap.step == step)
        assert spent == pytest.approx(seconds)


def test_prompts_are_left_out_and_random_numbers_are_the_hosts():
    laps = [
        Lap(0, "prefill", 0, 100),
        Lap(0, "draw", 100, 101),
        Lap(0, "draft", 101, 103),
        Lap(0, "target", 103, 107),
        Lap(0, "accept", 107, 115),
        Lap(0, "copy", 115, 131),
        Lap(0, "host", 131, 163),
        Lap(1, "target", 163, 164),
    ]
    first = {"draft": 2, "target": 4, "accept": 8, "copy": 16, "host": 33}
    second = {"draft": 0, "target": 1, "accept": 0, "copy": 0, "host": 0}
    assert cycles_of(laps) == [first, second]
    mean = {"draft": 1, "target": 2.5, "accept": 4, "copy": 8, "host": 16.5}
    assert mean_cycle([first, second]) == mean
    assert summary({"a": [first], "graphs": None}) == {"a": first, "graphs": None}


@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "dynamic"])
def test_all_ways_run_the_same_cycles(growth):
    one = request(PROMPT, 14)
    cycles = len(teach(one, growth)[2])
    found = profile_changes(toy(), drafter(growth), one, rounds=1)
    assert tuple(found) == CHANGES
    assert found.pop("graphs") is None  # there are none here
    for way in found.values():
        assert len(way) == cycles
        for cycle in way:
            assert tuple(cycle) == STAGES
            assert min(cycle.values()) >= 0 < cycle["target"]


def test_of_each_cycle_the_median_is_kept(monkeypatch):
    """Five seconds in the first round, one in the second, two in the third."""
    from eagle3.gpu import profile

    rounds = iter([9.0, 5.0, 1.0, 2.0])  # the first one warms up

    def ways(*_things, **_others):
        return [dict.fromkeys(STAGES, next(rounds))]

    monkeypatch.setattr(profile, "teaching_cycles", lambda *a: [])
    monkeypatch.setattr(profile, "batch_cycles", ways)
    found = profile_changes(toy(), drafter("vanilla"), request(PROMPT, 2), 3)
    assert found["device decisions"] == [dict.fromkeys(STAGES, 2.0)]


def test_the_teaching_engines_time_is_whole():
    """Its stages add up to what its own trace says of the cycle."""
    found = teaching_cycles(toy(), drafter("chain 3"), request(PROMPT, 12))
    assert all(cycle["copy"] == 0 for cycle in found)
    assert all(cycle["accept"] > 0 for cycle in found)
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(1, 64))
    assert len(batch_cycles(engine, [request(PROMPT, 12)])) == len(found)
    assert engine.laps is None  # serving goes on unwatched


@pytest.mark.parametrize("growth", ["chain 3", "dynamic"])
def test_a_growing_cache_gives_the_same_answer(growth):
    for one in mixed_requests(3, 3):
        engine = Engine(toy(), drafter(growth), one)
        engine.cache = GrowingCache(toy().num_layers, 999)
        accepted = [cycle.num_accepted for cycle in engine.cycles()][1:]
        told = tuple(engine.emitted), engine.finish_reason, tuple(accepted)
        assert told == teach(one, growth)


def test_a_growing_cache_copies_all_that_it_holds():
    grown, fixed = GrowingCache(1, 9), KVCache(1, 9)
    blocks = torch.randn(3, 2, 1, 2, 2, 4)
    places = []
    for number, (keys, values) in enumerate(blocks):
        for cache in (grown, fixed):
            found = cache.write(0, keys, values)
            cache.advance(2)
        assert torch.equal(grown.keys[0], found[0])
        assert torch.equal(grown.values[0], found[1])
        places.append(grown.keys[0].data_ptr())
        if number == 1:
            for cache in (grown, fixed):
                cache.rollback(1)  # what is behind the length is not copied
    assert grown.keys[0].shape[2] == 5
    assert places[1] != places[2]


def test_no_round_is_refused():
    with pytest.raises(ValueError, match="rounds is 0"):
        profile_changes(toy(), drafter("vanilla"), request(PROMPT, 3), 0)

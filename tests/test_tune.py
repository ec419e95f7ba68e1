"""eagle3/bench/tune.py: the race of chains and trees.

Right values: ratios by hand, and what the engine tells of the same answer.
"""

from itertools import count

import helpers
import pytest
from helpers import toy
from rich.console import Console

from eagle3.bench import tune
from eagle3.drafters import VanillaDrafter
from eagle3.engine import Request, run
from eagle3.growth import StaticTree
from eagle3.sampling import SamplingParams
from eagle3.training.prompts import KINDS, Prompt


def racer(name: str, *seconds: float) -> tune.Racer:
    return tune.Racer(name, None, VanillaDrafter(), [], list(seconds))


@pytest.fixture
def small(monkeypatch):
    """Three chains, two trees, prompts that the toy can read."""
    monkeypatch.setattr(tune, "CHAINS", (1, 2, 3))
    monkeypatch.setattr(tune, "TREES", ((5, 3, 2),))
    monkeypatch.setattr(tune, "STATIC_TREES", (StaticTree(((0,), (1,))),))
    monkeypatch.setattr(tune, "NUM_FINALISTS", 2)
    monkeypatch.setattr(
        tune,
        "training_prompts",
        lambda n, seed: [Prompt("chat", "topic", str(i + seed)) for i in range(n)],
    )
    monkeypatch.setattr(
        tune, "prompt_to_ids", lambda target, text: [int(text) % 90, 5, 9]
    )


def test_a_speedup_is_the_mean_of_ratios_on_the_prompts_of_both():
    vanilla = racer("vanilla", 0.4, 0.2, 0.3)
    assert racer("a", 0.2, 0.2).speedup(vanilla) == pytest.approx((2 + 1) / 2)
    assert racer("a", 0.2, 0.2).speedup(vanilla, 1) == 2
    assert vanilla.speedup(vanilla) == 1


@pytest.mark.parametrize(
    ("names", "kept"), [("abcd", "bd"), ("abcde", "bde"), ("abc", "bc"), ("ab", "b")]
)
def test_the_faster_half_goes_on_in_its_order(names, kept):
    seconds = {"a": 0.9, "b": 0.2, "c": 0.8, "d": 0.1, "e": 0.3}
    others = [racer(name, seconds[name]) for name in names]
    left = tune.faster_half(racer("vanilla", 1.0), others)
    assert [r.name for r in left] == list(kept)


def test_all_race_and_the_faster_ones_go_further(small, monkeypatch):
    clock = count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    config = tune.TuneConfig(max_new_tokens=12)
    ranked = tune.race(toy(), helpers.new_draft(toy()), config)
    assert ranked[0].name == tune.VANILLA
    assert {r.name for r in ranked[1:]} == {
        *("chain 1", "chain 2", "chain 3"),
        "tree of 5, 3 deep",
        "static tree of 2, 1 deep",
    }
    prompts = [len(r.seconds_per_token) for r in ranked]
    rounds = len(KINDS)
    # Five race, the faster three go on, then the faster two.
    assert prompts == [rounds * heats for heats in (3, 3, 3, 2, 1, 1)]
    for first, second in ((1, 2), (4, 5)):  # within a heat, the faster one first
        assert ranked[first].speedup(ranked[0]) >= ranked[second].speedup(ranked[0])


def test_acceptance_lengths_are_the_engine_s(small):
    config = tune.TuneConfig(max_new_tokens=12, temperature=1.0)
    for one in tune.race(toy(), helpers.new_draft(toy()), config):
        emitted = passes = 0
        for i in range(len(one.seconds_per_token)):
            ids = [(i + config.seed) % 90, 5, 9]
            sampling = SamplingParams(1.0, seed=config.seed)
            result = run(toy(), one.drafter, Request(ids, 12, sampling, ()))
            emitted += len(result.token_ids) - 1
            passes += result.target_passes
        assert one.acceptance_length == pytest.approx(emitted / passes)


def test_the_table_has_a_row_for_each_and_rows_of_a_block(small):
    ranked = tune.race(toy(), helpers.new_draft(toy()), tune.TuneConfig(0.0, 6))
    console = Console(width=140, record=True, quiet=True)
    table = tune.table_of(ranked)
    console.print(table)
    assert list(table.columns[0].cells) == ["1", "2", "3", "3", "4", "5"]
    assert next(iter(table.columns[1].cells)) == tune.VANILLA
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["speedup"][0] == "1.00"
    for one in ranked[1:]:
        row = cells["candidate"].index(one.name)
        asked = int(cells["prompts"][row])
        beside = f"{ranked[1].speedup(ranked[0], asked):.2f}"
        assert cells["winner's there"][row] == beside
        # On the same prompts nobody was faster than the one that won.
        assert float(cells["speedup"][row]) <= float(beside)


@pytest.mark.parametrize("config", [(-1.0, 64), (0.0, 1)])
def test_settings_out_of_range_are_refused(config):
    with pytest.raises(ValueError, match=r"temperature|max_new_tokens"):
        tune.TuneConfig(*config)

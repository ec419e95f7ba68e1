"""eagle3.bench.throughput: full batches, fair counts, and what follows from them.

Right values: turns written by hand, work counted by the roofline's own formulas, and
the teaching engine, which must emit the same tokens in the same cycles. No test
compares times.
"""

import itertools
import json

import helpers
import pytest
from helpers import PROMPT, request, toy
from test_gpu_engine import drafter, mixed_requests, told

from eagle3.bench import throughput
from eagle3.bench.line_log import LineLog
from eagle3.bench.roofline import Machine, ModelShape, Pass, work_of
from eagle3.bench.throughput import (
    BATCHES,
    METHODS,
    Roof,
    ThroughputConfig,
    Turn,
    mean_context,
    measure_throughput,
    requests_of,
    summarise,
)
from eagle3.bench.throughput_report import (
    measure_and_write,
    pays_up_to,
    verdicts,
)
from eagle3.gpu import BatchEngine, Slots

TOYS = {"vanilla": "vanilla", "eagle3-chain-1": "chain 1", "eagle3-chain-3": "chain 3"}
MACHINE = {"copy_bandwidth": 1e9, "read_bandwidth": 2e9, "matmul_rate": 4e10}


@pytest.fixture
def small(monkeypatch):
    """The toy as target and its own draft; no clock speeds are measured."""
    monkeypatch.setattr(throughput, "drafter_for", lambda n, target: drafter(TOYS[n]))
    monkeypatch.setattr(throughput, "measure_machine", lambda: dict(MACHINE))
    asked = [request(PROMPT, 9), request((1, 2, 7), 6), request((50,), 12)]
    monkeypatch.setattr(throughput, "requests_of", lambda target, config: asked)
    return ThroughputConfig(("eagle3-chain-3",), (1, 3), rounds=2, cycles=4)


def turn(batch, method, seconds, tokens, **others) -> Turn:
    draft, target, copy = others.pop("steps", (0.2, 0.7, 0.1))
    steps = dict.fromkeys(throughput.STEPS, 0.0)
    steps |= {"draft": draft, "target": target, "copy": copy, "prefill": 99.0}
    engine = others.pop("engine", "batch")
    return Turn(batch, 0, method, engine, tokens, tuple(seconds), steps, **others)


def roof(machine: Machine) -> Roof:
    drafters = {name: drafter(growth) for name, growth in TOYS.items()}
    return Roof(toy(), drafters, machine, 20)


def test_by_default_the_studies_are_repeated():
    """Batch sizes 1 to 32, chains of 2 and 3, for EAGLE-1, EAGLE-3 and vanilla."""
    assert BATCHES == (1, 2, 4, 8, 16, 32)
    wanted = ("eagle1-chain-2", "eagle1-chain-3", "eagle3-chain-2", "eagle3-chain-3")
    assert wanted == METHODS
    assert ThroughputConfig().methods == ("vanilla", *wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("eagle7",)}, "no method 'eagle7'"),
        ({"batches": (1, 0)}, "a batch is 0"),
        ({"batches": ()}, "a batch is 0"),
        ({"cycles": 0}, "cycles is 0"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ThroughputConfig(**changes)


def test_requests_go_round_the_kinds_and_end_as_the_target_says(monkeypatch):
    target = helpers.talking_toy()
    target.eos_token_ids = (3,)
    config = ThroughputConfig(per_kind=2, max_new_tokens=5)
    monkeypatch.setattr(target, "max_positions", 10_000)
    found = requests_of(target, config)
    assert len({one.prompt_ids for one in found}) == 10
    assert {(one.max_new_tokens, one.eos_token_ids) for one in found} == {(5, (3,))}
    assert all(one.sampling.is_greedy for one in found)
    mean = sum(len(one.prompt_ids) for one in found) / 10
    assert mean_context(found, config) == round(mean + 2.5)


@pytest.mark.parametrize("growth", ["vanilla", "chain 3"])
def test_one_slot_emits_what_the_teaching_engine_emits_in_the_same_cycles(growth):
    requests = [request((7,), 1), *mixed_requests(4, 5), request(PROMPT, 20)]
    players = (
        throughput._Batch(
            toy(), drafter(growth), Slots(1, 64), itertools.cycle(requests)
        ),
        throughput._Teaching(toy(), drafter(growth), itertools.cycle(requests)),
    )
    for cycles in (1, 2, 3, 40):
        (ours, times, _), (theirs, others, _) = (p.turn(cycles) for p in players)
        assert ours == theirs
        assert len(times) == len(others) == cycles


def test_every_slot_is_busy_in_every_cycle():
    requests = mixed_requests(6, 7)
    player = throughput._Batch(
        toy(), drafter("chain 3"), Slots(3, 64), itertools.cycle(requests)
    )
    busy, cycle = [], player.engine._cycle

    def spy(clock):
        busy.append(sum(one is not None for one in player.engine.running))
        return cycle(clock)

    player.engine._cycle = spy
    tokens, seconds, steps = player.turn(25)
    assert busy == [3] * 25 and tokens >= 75
    spent = sum(s for name, s in steps.items() if name != "prefill")
    assert sum(seconds) == pytest.approx(spent)


def test_all_tokens_are_counted_once_and_those_of_prompts_never():
    """To the end of a queue: answers, less the first token of each."""
    requests = mixed_requests(9, 8)
    player = throughput._Batch.__new__(throughput._Batch)
    player.engine = BatchEngine(toy(), drafter("chain 3"), Slots(3, 64))
    player.feed = iter(())
    tickets = [player.engine.submit(one) for one in requests]
    counted, answers, step = 0, {}, player.engine.step

    def spy():
        ended = step()
        answers.update({answer.ticket: answer for answer in ended})
        return ended

    player.engine.step = spy
    while not player.engine.is_idle:
        player.feed = itertools.repeat(request((1,), 1))  # ends with its prompt
        counted += player._step()
        if all(ticket in answers for ticket in tickets):
            break
    wanted = sum(len(answers[ticket].token_ids) - 1 for ticket in tickets)
    assert counted == wanted
    assert told(answers[tickets[0]])[0]


# What follows from the turns


def test_a_table_by_hand():
    """Medians over all cycles of a batch size, tokens over all batch sizes."""
    turns = [
        turn(1, "vanilla", (2.0, 2.0, 9.0), 3),
        turn(2, "vanilla", (4.0, 4.0, 4.0), 6),
        turn(1, "eagle3-chain-3", (3.0, 3.0), 4),
        turn(1, "eagle3-chain-3", (3.0, 5.0), 6, steps=(0.1, 0.4, 0.0)),
        turn(2, "eagle3-chain-3", (6.0, 8.0), 10),
        turn(1, "eagle3-chain-3", (2.5, 2.5), 6, engine="teaching"),
    ]
    found = summarise(turns, roof(Machine(1e9, 1e9)))
    vanilla, chain = found["methods"].values()
    assert vanilla["tokens_per_cycle"] == 1.0
    assert vanilla["cycle_seconds"] == [2.0, 4.0]
    assert vanilla["tokens_per_second"] == [0.5, 0.5]
    assert vanilla["speedup"] == vanilla["predicted"] == [1.0, 1.0]
    tau = (4 + 6 + 10 + 6) / (2 + 2 + 2 * 2 + 2)
    assert chain["tokens_per_cycle"] == tau
    assert chain["cycle_seconds"] == [3.0, 7.0]
    assert chain["tokens_per_second"] == [tau / 3, 2 * tau / 7]
    assert chain["speedup"] == pytest.approx([2 * tau / 3, 4 * tau / 7])
    assert chain["overhead"] == pytest.approx([0.1 / 1.5, 0.1])
    assert found["teaching"] == {
        "EAGLE-3 chain 3": {"cycle_seconds": 2.5, "tokens_per_second": tau / 2.5}
    }


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    "machine", [Machine(1e6, 1e15), Machine(1e15, 1e9)], ids=["fetch", "compute"]
)
def test_the_roof_counts_the_pass_and_the_drafts_passes(machine, batch):
    shape = ModelShape.from_config(toy().config)
    plain = work_of(shape, Pass(1, batch, 20)).seconds(machine)
    assert roof(machine).cycle_seconds("vanilla", batch) == plain
    config = drafter("chain 3").draft.config
    k, d = config.hidden_size, config.head_dim
    layers = 3 * k * k + 2 * k * (config.num_heads + 2 * config.num_kv_heads) * d
    layers += config.num_heads * d * k + 3 * k * config.intermediate_size
    head = k * config.draft_vocab_size
    wanted = work_of(shape, Pass(4, batch, 20)).seconds(machine)
    for rows in (4 * batch, batch, batch):  # catch up, and two more levels
        fetch = 4 * (layers + head) / machine.bandwidth
        compute = 2 * (layers * rows + head * batch) / machine.peak
        wanted += max(fetch, compute)
    found = roof(machine).cycle_seconds("eagle3-chain-3", batch)
    assert found == pytest.approx(wanted)


def test_where_it_stops_paying():
    assert pays_up_to((1, 2, 4), (1.5, 1.0, 0.9)) == 2
    assert pays_up_to((1, 2, 4), (0.9, 1.1, 1.1)) == 0
    assert pays_up_to((1, 2, 4), (2, 2, 2)) == 4


def row(method="eagle3-chain-3", **changes):
    return {
        "method": method,
        "batches": [1, 8],
        "cycle_seconds": [2.0, 4.0],
        "tokens_per_second": [1.0, 3.0],
        "speedup": [1.5, 1.0],
        "predicted": [2.0, 1.1],
        "overhead": [0.02, 0.01],
    } | changes


def judge(alone=2.0, **changes) -> list[bool]:
    results = {
        "methods": {"a": row(**changes)},
        "teaching": {"a": {"cycle_seconds": alone}},
    }
    return [verdict.holds for verdict in verdicts(results)]


def test_verdicts_at_and_beyond_their_limits():
    """Overhead, one slot, eight slots, speedup up to the predicted batch."""
    assert judge() == [True, True, True, True]
    assert judge(overhead=[0.02, 0.031]) == [False, True, True, True]
    assert judge(alone=1.99) == [True, False, True, True]
    assert judge(tokens_per_second=[1.0, 2.9]) == [True, True, False, True]
    assert judge(speedup=[1.5, 0.99]) == [True, True, True, False]
    assert judge(speedup=[1.5, 0.99], predicted=[2.0, 0.9]) == [True] * 4
    assert judge(method="vanilla") == [True] * 3
    assert judge(batches=[1, 4]) == [True] * 3  # nothing is said of eight


# The whole measurement


def test_methods_take_turns_and_a_killed_measurement_goes_on(
    small, tmp_path, monkeypatch
):
    path = tmp_path / "throughput.partial.jsonl"
    facts = {"config": "a"}

    class Killed(Exception):
        pass

    log = LineLog(path, facts)
    add = log.add

    def dies(part):
        if len(log.parts) == 6:
            raise Killed
        add(part)

    log.add = dies
    with pytest.raises(Killed):
        measure_throughput(toy(), small, log)
    again = LineLog(path, facts)
    assert len(again.parts) == 6
    found = measure_throughput(toy(), small, again)
    order = [
        (part["batch"], part["round"], part["engine"], part["method"])
        for part in again.parts[1:]
    ]
    both = ("vanilla", "eagle3-chain-3")
    wanted = [
        (batch, turn, engine, name)
        for batch in (1, 3)
        for turn in range(2)
        for name in both
        for engine in (("teaching", "batch") if batch == 1 else ("batch",))
    ]
    assert order == wanted
    assert list(found["methods"]) == ["Vanilla", "EAGLE-3 chain 3"]
    assert found["methods"]["Vanilla"]["tokens_per_cycle"] == 1.0
    assert found["methods"]["EAGLE-3 chain 3"]["tokens_per_cycle"] > 1.0
    assert set(found["teaching"]) == set(found["methods"])
    assert found["machine"] == MACHINE and found["context"] == 35


def test_results_are_written_with_table_and_verdicts(small, tmp_path, capsys):
    path = measure_and_write(toy(), small, tmp_path, "throughput")
    saved = json.loads(path.read_text("utf-8"))
    assert saved["config"]["batches"] == [1, 3]
    assert saved["environment"]["seed"] == 0
    assert len(saved["verdicts"]) == 5  # two and one more for the chain
    printed = capsys.readouterr().out
    assert "EAGLE-3 chain 3" in printed and "overhead below 3% of a cycle" in printed
    assert list(tmp_path.iterdir()) == [path]  # the parts are gone

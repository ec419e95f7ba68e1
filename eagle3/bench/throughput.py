"""Throughput against batch size: our own form of the paper's Tables 3 and 5.

Every slot is always busy: a request that ends is followed by the next of the queue, and
only cycles are timed, not prompts. A greedy answer does not depend on who shares the
batch, so tokens per cycle are a property of method and texts: they are counted over all
batch sizes together. What the batch changes is the time of a cycle, and that hardly
varies. So throughput is batch size times tokens per cycle over the median cycle.

Methods take turns (A B A B), and at batch size 1 the teaching engine takes part, which
the batch engine must not fall behind. [Ours; the paper, section 4.3]
"""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

from eagle3.bench.cost import machine_from, measure_machine
from eagle3.bench.line_log import LineLog
from eagle3.bench.roofline import Machine, ModelShape, Pass, work_of
from eagle3.drafters import Drafter, VanillaDrafter
from eagle3.engine import Engine, Request, prompt_to_ids
from eagle3.gpu.engine import STEPS, BatchEngine, Slots
from eagle3.methods import drafter_for, label_of, require_methods
from eagle3.target import Target
from eagle3.training.prompts import evaluation_prompts

VANILLA = "vanilla"
METHODS = tuple(f"eagle{i}-chain-{n}" for i in (1, 3) for n in (2, 3))
BATCHES = (1, 2, 4, 8, 16, 32)
IN_MODELS = ("draft", "target")  # all other steps are the engine's own
WARM_UP = 2  # cycles of a new engine that are not counted


@dataclass(frozen=True)
class ThroughputConfig:
    """What to measure.

    methods: names of `eagle3.methods` with an EAGLE draft; vanilla is always measured
    batches: slots, all of them busy        rounds: turns of each method
    cycles: of each turn                    max_new_tokens: of a request
    per_kind: prompts of each kind, asked again and again

    Raises ValueError for an unknown method or a number below 1.
    """

    methods: tuple[str, ...] = METHODS
    batches: tuple[int, ...] = BATCHES
    rounds: int = 3
    cycles: int = 12
    max_new_tokens: int = 64
    per_kind: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        others = [name for name in self.methods if name != VANILLA]
        object.__setattr__(self, "methods", (VANILLA, *dict.fromkeys(others)))
        require_methods(list(self.methods))
        numbers = {"a batch": min(self.batches, default=0)}
        for name in ("rounds", "cycles", "max_new_tokens", "per_kind"):
            numbers[name] = getattr(self, name)
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name} is {number}: take at least 1.")


@dataclass(frozen=True)
class Turn:
    """What one method did in one turn.

    engine: "batch" or "teaching"       tokens: emitted in these cycles, by all slots
    seconds: of each cycle              steps: seconds by step, of all of them together
    """

    batch: int
    round: int
    method: str
    engine: str
    tokens: int
    seconds: tuple[float, ...]
    steps: Mapping[str, float] = field(default_factory=dict)


def requests_of(target: Target, config: ThroughputConfig) -> list[Request]:
    """What is asked: greedy, to the end-of-sequence token or `max_new_tokens`."""
    prompts = evaluation_prompts(config.per_kind, config.seed)
    return [
        Request(
            prompt_to_ids(target, [{"role": "user", "content": prompt.text}]),
            config.max_new_tokens,
            eos_token_ids=target.eos_token_ids,
        )
        for prompt in prompts
    ]


class _Batch:
    """A batch engine that never runs out of requests."""

    def __init__(
        self, target: Target, drafter: Drafter, slots: Slots, feed: Iterator[Request]
    ) -> None:
        self.engine, self.feed = BatchEngine(target, drafter, slots), feed
        for _ in range(WARM_UP):
            self._step()

    def turn(self, cycles: int) -> tuple[int, list[float], dict[str, float]]:
        """Tokens, seconds of each cycle, and seconds by step."""
        before, tokens, seconds = dict(self.engine.seconds), 0, []
        for _ in range(cycles):
            spent = self._spent()
            tokens += self._step()
            seconds.append(self._spent() - spent)
        steps = {name: self.engine.seconds[name] - before[name] for name in STEPS}
        return tokens, seconds, steps

    def _spent(self) -> float:
        return sum(self.engine.seconds[name] for name in STEPS if name != "prefill")

    def _step(self) -> int:
        """One cycle; the tokens that it emitted, the prompts' own left out."""
        engine = self.engine
        # Some of them may end with their prompt and take no slot.
        while len(engine.waiting) < 4 * engine.slots.count:
            engine.submit(next(self.feed))
        before, waited = self._emitted(), len(engine.waiting)
        ended = sum(len(answer.token_ids) for answer in engine.step())
        from_prompts = waited - len(engine.waiting)
        return self._emitted() + ended - before - from_prompts

    def _emitted(self) -> int:
        return sum(len(one.emitted) for one in self.engine.running if one is not None)


class _Teaching:
    """The teaching engine, which answers one request after the other."""

    def __init__(
        self, target: Target, drafter: Drafter, feed: Iterator[Request]
    ) -> None:
        self.cycles = self._all_cycles(target, drafter, feed)
        for _ in range(WARM_UP):
            next(self.cycles)

    @staticmethod
    def _all_cycles(target, drafter, feed):
        for request in feed:
            cycles = Engine(target, drafter, request).cycles()
            next(cycles)  # the prompt
            yield from cycles

    def turn(self, cycles: int) -> tuple[int, list[float], dict[str, float]]:
        """Tokens, seconds of each cycle, and seconds by step."""
        taken = list(itertools.islice(self.cycles, cycles))
        steps = {
            name: sum(getattr(cycle, f"{name}_seconds") for cycle in taken)
            for name in (*IN_MODELS, "other")
        }
        seconds = [
            cycle.draft_seconds + cycle.target_seconds + cycle.other_seconds
            for cycle in taken
        ]
        return sum(len(cycle.emitted) for cycle in taken), seconds, steps


def measure_throughput(
    target: Target, config: ThroughputConfig, log: LineLog
) -> dict[str, Any]:
    """Measure all methods at all batch sizes; what `log` has is not measured again.

    Returns machine (the measured roofline), methods and teaching: see `summarise`.
    [Ours]
    """
    if not log.parts:
        log.add(measure_machine())
    requests = requests_of(target, config)
    drafters = {name: drafter_for(name, target) for name in config.methods}
    longest = max(len(request.prompt_ids) for request in requests)
    length = longest + config.max_new_tokens
    known = {_place(part) for part in log.parts[1:]}
    for batch in tqdm(config.batches, desc="batch sizes"):
        players: dict[tuple[str, str], Any] = {}
        for turn in range(config.rounds):
            for engine, name in _turns(config, batch):
                if (batch, turn, engine, name) in known:
                    continue
                if (engine, name) not in players:
                    feed, drafter = itertools.cycle(requests), drafters[name]
                    players[engine, name] = (
                        _Teaching(target, drafter, feed)
                        if engine == "teaching"
                        else _Batch(target, drafter, Slots(batch, length), feed)
                    )
                found = players[engine, name].turn(config.cycles)
                log.add(asdict(Turn(batch, turn, name, engine, *found)))
    turns = [Turn(**part) for part in log.parts[1:]]
    measured = machine_from(log.parts[0])
    context = mean_context(requests, config)
    return {
        "machine": log.parts[0],
        "context": context,
        **summarise(turns, Roof(target, drafters, measured, context)),
    }


def _turns(config: ThroughputConfig, batch: int) -> list[tuple[str, str]]:
    """Who takes part at this batch size, in order."""
    engines = ("teaching", "batch") if batch == 1 else ("batch",)
    return [(engine, name) for name in config.methods for engine in engines]


def _place(part: Mapping[str, Any]) -> tuple[int, int, str, str]:
    return part["batch"], part["round"], part["engine"], part["method"]


def mean_context(requests: Sequence[Request], config: ThroughputConfig) -> int:
    """Tokens before an average block: a mean prompt and half an answer. [Derived]"""
    prompts = statistics.fmean(len(request.prompt_ids) for request in requests)
    return round(prompts + config.max_new_tokens / 2)


@dataclass(frozen=True)
class Roof:
    """What the measured roofline allows: the time of a cycle, and so the speedup.

    machine: its two measured speeds     context: tokens before the block

    [Derived]
    """

    target: Target
    drafters: Mapping[str, Drafter]
    machine: Machine
    context: int

    def cycle_seconds(self, method: str, batch: int) -> float:
        """The least time of a cycle: a pass over the blocks, and the draft's passes."""
        drafter = self.drafters[method]
        shape = ModelShape.from_config(self.target.config)
        block = Pass(1 + drafter.max_nodes, batch, self.context)
        seconds = work_of(shape, block).seconds(self.machine)
        if isinstance(drafter, VanillaDrafter):
            return seconds
        depth = drafter.growth.depth
        rows = [batch * (depth + 1), *[batch] * (depth - 1)]  # catch-up, then levels
        layers, head = _draft_weights(drafter.draft)
        for count in rows:
            fetch = 4 * (layers + head) / self.machine.bandwidth
            compute = 2 * (layers * count + head * batch) / self.machine.peak
            seconds += max(fetch, compute)
        return seconds


def _draft_weights(draft: Any) -> tuple[int, int]:
    """Weights in a draft's matrices, those of its head apart."""
    sizes = {
        name: module.in_features * module.out_features
        for name, module in draft.named_modules()
        if hasattr(module, "in_features")
    }
    head = sizes.pop("lm_head")
    return sum(sizes.values()), head


def summarise(turns: Sequence[Turn], roof: Roof) -> dict[str, Any]:
    """Tables by method, each list in the order of the batch sizes.

    methods: label -> method, tokens_per_cycle (over all batch sizes), batches,
        cycle_seconds (medians), tokens_per_second, speedup (over vanilla at the same
        batch size), predicted (the same by the roofline), overhead (share of a cycle
        outside of draft and target)
    teaching: label -> cycle_seconds and tokens_per_second of the teaching engine
    [Ours]
    """
    batches = sorted({turn.batch for turn in turns})
    methods, teaching = {}, {}
    for name in dict.fromkeys(turn.method for turn in turns):
        of_method = [turn for turn in turns if turn.method == name]
        tau = _tokens_per_cycle(of_method)
        mine = [turn for turn in of_method if turn.engine == "batch"]
        seconds = [_cycle_seconds(mine, batch) for batch in batches]
        methods[label_of(name)] = {
            "method": name,
            "tokens_per_cycle": tau,
            "batches": batches,
            "cycle_seconds": seconds,
            "tokens_per_second": [
                batch * tau / spent
                for batch, spent in zip(batches, seconds, strict=True)
            ],
            "predicted": [
                tau * roof.cycle_seconds(VANILLA, b) / roof.cycle_seconds(name, b)
                for b in batches
            ],
            "overhead": [_overhead(mine, batch) for batch in batches],
        }
        if alone := [turn for turn in of_method if turn.engine == "teaching"]:
            spent = _cycle_seconds(alone, 1)
            teaching[label_of(name)] = {
                "cycle_seconds": spent,
                "tokens_per_second": tau / spent,
            }
    plain = methods[label_of(VANILLA)]["tokens_per_second"]
    for row in methods.values():
        rates = zip(row["tokens_per_second"], plain, strict=True)
        row["speedup"] = [mine / vanilla for mine, vanilla in rates]
    return {"methods": methods, "teaching": teaching}


def _tokens_per_cycle(turns: Sequence[Turn]) -> float:
    """Of one slot: every cycle of a batch of B counts B times."""
    cycles = sum(turn.batch * len(turn.seconds) for turn in turns)
    return sum(turn.tokens for turn in turns) / cycles


def _cycle_seconds(turns: Sequence[Turn], batch: int) -> float:
    return statistics.median(
        seconds for turn in turns if turn.batch == batch for seconds in turn.seconds
    )


def _overhead(turns: Sequence[Turn], batch: int) -> float:
    steps = [turn.steps for turn in turns if turn.batch == batch]
    spent = {
        name: sum(step[name] for step in steps) for name in STEPS if name != "prefill"
    }
    return 1 - sum(spent[name] for name in IN_MODELS) / sum(spent.values())

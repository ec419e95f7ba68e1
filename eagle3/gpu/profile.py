"""A cycle's time by stage, before and after each change from the plain engine to this.

Four ways to run the same request with the same drafter; each changes one thing:

- "growing cache": the teaching engine, with a cache that is copied at each block
- "fixed cache": the teaching engine as it is
- "device decisions": the batch engine; nothing is asked of the device within a cycle
- "graphs": the batch engine, whose phases are launched as graphs (on a GPU only)

All give the same answer, so they run the same cycles, and cycle i of one can be held
against cycle i of another. On a GPU the device is waited for behind every stage, so the
sum is a little longer than an unwatched cycle. [Ours]
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagle3.cache import KVCache
from eagle3.drafters import Drafter
from eagle3.engine import Engine, Request
from eagle3.gpu.clock import Lap
from eagle3.gpu.engine import BatchEngine, Slots
from eagle3.target import Target

STAGES = ("draft", "target", "accept", "copy", "host")
CHANGES = ("growing cache", "fixed cache", "device decisions", "graphs")
# The batch engine's steps as stages: numbers are drawn by the host, for the draft.
_STAGE_OF = {"draw": "host", "draft": "draft", "target": "target", "accept": "accept"}
_STAGE_OF |= {"copy": "copy", "host": "host"}

Cycles = list[dict[str, float]]  # of each cycle, seconds by stage


class GrowingCache(KVCache):
    """The plain way to keep keys and values: put old and new together, in new memory.

    All that was there is copied at each block, in every layer. [Code: transformers'
    DynamicCache]
    """

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """keys, values: [B, Hkv, n, d] -> [B, Hkv, length + n, d], both new."""
        if self.keys[layer] is not None:
            old = slice(None, self.length)
            keys = torch.cat([self.keys[layer][:, :, old], keys], dim=2)
            values = torch.cat([self.values[layer][:, :, old], values], dim=2)
        self.keys[layer], self.values[layer] = keys, values
        return keys, values


class _Watched(Engine):
    """The teaching engine, whose decision has a time of its own."""

    def __init__(self, target: Any, drafter: Drafter, request: Request) -> None:
        super().__init__(target, drafter, request)
        self.decided = 0.0

    def _decide(self, tree, logits):
        started = time.perf_counter()
        decision = super()._decide(tree, logits)
        self.decided = time.perf_counter() - started
        return decision

    def stages(self) -> Cycles:
        found: Cycles = []
        for cycle in self.cycles():
            found.append(
                {
                    "draft": cycle.draft_seconds,
                    "target": cycle.target_seconds,
                    "accept": self.decided,
                    "copy": 0.0,  # of numbers that are asked for: in draft and accept
                    "host": cycle.other_seconds - self.decided,
                }
            )
        return found[1:]  # the first is the prefill


class _Waiting:
    """A target on a GPU that is waited for, so that its time is its own."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, *args: Any, **others: Any) -> Any:
        torch.cuda.synchronize()  # for what the draft has left running
        output = self._target.forward(*args, **others)
        torch.cuda.synchronize()
        return output


def teaching_cycles(
    target: Target, drafter: Drafter, request: Request, growing: bool = False
) -> Cycles:
    """Run a request on the teaching engine: seconds by stage of each of its cycles.

    growing: with a cache that is copied at each block

    Raises what `Engine` raises. [Ours]
    """
    watched = _Waiting(target) if target.device.type == "cuda" else target
    engine = _Watched(watched, drafter, request)
    if growing:
        engine.cache = GrowingCache(target.num_layers, engine.cache.max_length)
    return engine.stages()


def batch_cycles(engine: BatchEngine, requests: Sequence[Request]) -> Cycles:
    """Run requests on a batch engine: seconds by stage of each of its cycles.

    Raises ValueError as `BatchEngine.run` does. [Ours]
    """
    engine.laps = []
    engine.run(requests)
    laps, engine.laps = engine.laps, None
    return cycles_of(laps)


def cycles_of(laps: Sequence[Lap]) -> Cycles:
    """Seconds by stage of each cycle; prompts are left out."""
    found: dict[int, dict[str, float]] = {}
    for lap in laps:
        if lap.step in _STAGE_OF:
            cycle = found.setdefault(lap.cycle, dict.fromkeys(STAGES, 0.0))
            cycle[_STAGE_OF[lap.step]] += lap.seconds
    return list(found.values())


def profile_changes(
    target: Target, drafter: Drafter, request: Request, rounds: int = 3
) -> dict[str, Cycles | None]:
    """The cycles of a request in all four ways, which take turns; None without graphs.

    Of each cycle and stage the median over the rounds is kept.
    Raises ValueError below 1 round, or as the engines do. [Ours]
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}: measure at least once.")
    slots = Slots(1, len(request.prompt_ids) + request.max_new_tokens)
    ways = {
        "growing cache": lambda: teaching_cycles(target, drafter, request, True),
        "fixed cache": lambda: teaching_cycles(target, drafter, request),
    }
    for name, graphs in (("device decisions", False), ("graphs", True)):
        if not graphs or target.device.type == "cuda":
            engine = BatchEngine(target, drafter, slots, graphs)
            ways[name] = lambda engine=engine: batch_cycles(engine, [request])
    runs: dict[str, list[Cycles]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # memory is taken, and graphs are recorded
    for _ in range(rounds):
        for name, way in ways.items():
            runs[name].append(way())
    return {name: _middle(runs[name]) if name in ways else None for name in CHANGES}


def _middle(runs: Sequence[Cycles]) -> Cycles:
    return [
        {stage: statistics.median(cycle[stage] for cycle in same) for stage in STAGES}
        for same in zip(*runs, strict=True)
    ]


def mean_cycle(cycles: Cycles) -> dict[str, float]:
    """Seconds by stage of an average cycle. [Ours]"""
    return {
        stage: statistics.fmean(cycle[stage] for cycle in cycles) for stage in STAGES
    }


def summary(profile: Mapping[str, Cycles | None]) -> dict[str, dict | None]:
    """The average cycle of each way, as JSON holds it; None where not measured."""
    return {
        name: None if cycles is None else mean_cycle(cycles)
        for name, cycles in profile.items()
    }

"""The parts of the GPU check; each takes a plan and returns what JSON holds. [Ours]"""

import functools
import platform
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from eagle3.bench.random_models import (
    SMALL,
    fitted_draft,
    moved,
    random_draft,
    random_model,
)
from eagle3.bench.roofline import ModelShape
from eagle3.drafters import Drafter, EagleDrafter, VanillaDrafter
from eagle3.engine import Engine, Request
from eagle3.gpu.engine import BatchEngine, Slots
from eagle3.gpu.memory import memory_ledger
from eagle3.gpu.profile import profile_changes, summary
from eagle3.growth import DynamicTree, Growth, chain
from eagle3.precision import check_answer, explain_difference
from eagle3.sampling import SamplingParams
from eagle3.target import Target

if TYPE_CHECKING:
    from eagle3.bench.gpu_check import Plan

CPU = torch.device("cpu")
PROMPTS = ((5, 17, 80, 3), (1, 2, 7), (9, 9), (40, 50, 60, 70, 80))
SMALL_GROWTHS = {"chain 3": chain(3), "tree": DynamicTree(14, 4, 3)}
LARGE_GROWTHS: dict[str, Growth | None] = {
    "vanilla": None,
    "chain 3": chain(3),
    "tree 60": DynamicTree(60, 8, 10),  # the official one
}
ANSWER = 24  # tokens of an answer that is checked


def describe_device(plan: "Plan") -> dict[str, Any]:
    """The device's name and versions, and its copy bandwidth in bytes per second."""
    on_gpu = plan.device.type == "cuda"
    found = {
        "name": torch.cuda.get_device_name(plan.device) if on_gpu else "cpu",
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "system": platform.system(),
    }
    if on_gpu:
        found["memory_bytes"] = torch.cuda.get_device_properties(
            plan.device
        ).total_memory
    return found | {"copy_bandwidth": copy_bandwidth(plan)}


@functools.cache
def copy_bandwidth(plan: "Plan") -> float:
    """Bytes read and written per second in a large copy: the median of seven."""
    array = torch.ones(plan.copy_bytes // 4, device=plan.device)
    half = len(array) // 2
    times = []
    for _ in range(9):
        wait(plan.device)
        started = time.perf_counter()
        array[:half].copy_(array[half:])
        wait(plan.device)
        times.append(time.perf_counter() - started)
    return 4 * 2 * half / statistics.median(times[2:])  # after two warm-ups


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given. [Ours]"""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Right answers


@functools.cache
def _small() -> tuple[Any, Any]:
    """A small model in float32 on the CPU, and a draft that knows a few answers."""
    model = random_model(SMALL, CPU, torch.float32)
    return model, fitted_draft(Target(model), PROMPTS)


def _mixed_requests(count: int, temperature: float = 0.0) -> list[Request]:
    """The known prompts first, then random ones of mixed lengths."""
    dice = random.Random(7)
    prompts = list(PROMPTS)
    while len(prompts) < count:
        length = dice.randint(1, 30)
        prompts.append(tuple(dice.randrange(SMALL.vocab_size) for _ in range(length)))
    return [
        Request(prompt, ANSWER, SamplingParams(temperature, seed=seed))
        for seed, prompt in enumerate(prompts)
    ]


def check_answers(plan: "Plan") -> list[dict[str, Any]]:
    """Greedy answers of a batch in each dtype, judged by the target itself.

    Of each dtype and growth: how many answers, how many accepted tokens, how many
    answers differ from plain decoding by rounding, and defects: answers that hold a
    token beyond the bound of rounding, or that rounding can't explain.
    """
    model, draft = _small()
    requests, rows = _mixed_requests(plan.answers), []
    for dtype in plan.dtypes:
        target = moved(model, plan.device, dtype)
        plain = [_plain_answer(target, request) for request in requests]
        for name, growth in SMALL_GROWTHS.items():
            drafter = EagleDrafter(target, draft, growth)
            answers = BatchEngine(target, drafter, Slots(5, 64)).run(requests)
            judged = [
                _judge(target, request, alone, answer.token_ids)
                for request, alone, answer in zip(requests, plain, answers, strict=True)
            ]
            rows.append(
                {
                    "dtype": str(dtype).removeprefix("torch."),
                    "growth": name,
                    "answers": len(answers),
                    "accepted": sum(sum(answer.accepted) for answer in answers),
                    "rounding": judged.count("rounding"),
                    "defects": judged.count("defect"),
                }
            )
    return rows


def _plain_answer(target: Target, request: Request) -> tuple[int, ...]:
    engine = Engine(target, VanillaDrafter(), request)
    for _ in engine.cycles():
        pass
    return tuple(engine.emitted)


def _judge(
    target: Target, request: Request, alone: Sequence[int], answer: Sequence[int]
) -> str:
    """ "same", "rounding" or "defect"."""
    found = explain_difference(target, request.prompt_ids, alone, answer)
    whole = len(answer) == len(alone)  # nothing but length ends these answers
    if not (whole and check_answer(target, request.prompt_ids, answer).is_lossless):
        return "defect"
    return "same" if found is None else found.kind


def check_graphs(plan: "Plan") -> list[dict[str, Any]]:
    """The same requests with graphs and without, greedy and sampled, all at once.

    Of each growth: how many answers are equal to the last cycle, and how many differ.
    A greedy one may differ by rounding, if other kernels were chosen; a sampled one
    that differs can't be judged by itself and counts as such.
    """
    model, draft = _small()
    target, rows = moved(model, plan.device, plan.dtypes[-1]), []
    greedy = _mixed_requests(plan.answers)
    sampled = _mixed_requests(plan.answers, 1.0)[-3:]
    for name, growth in (("vanilla", None), *SMALL_GROWTHS.items()):
        drafter = _drafter(target, draft, growth)
        told = []
        for graphs in (plan.graphs, False):
            engine = BatchEngine(target, drafter, Slots(4, 64), graphs)
            told.append(engine.run([*greedy, *sampled]))
        counts = dict.fromkeys(("equal", "rounding", "sampled", "defects"), 0)
        for number, (a, b) in enumerate(zip(*told, strict=True)):
            counts[_compare(target, greedy[number : number + 1], a, b)] += 1
        rows.append({"growth": name, "graphs": plan.graphs, **counts})
    return rows


def _compare(target: Target, greedy: list[Request], a: Any, b: Any) -> str:
    if (a.token_ids, a.accepted) == (b.token_ids, b.accepted):
        return "equal"
    if not greedy:
        return "sampled"
    prompt = greedy[0].prompt_ids
    found = explain_difference(target, prompt, a.token_ids, b.token_ids)
    return "rounding" if found is None or found.kind == "rounding" else "defects"


# Time


@functools.cache
def large(plan: "Plan") -> tuple[Target, Any]:
    """The target whose cycles are timed, and its draft, in the plan's last dtypes."""
    dtype = torch.bfloat16 if plan.device.type == "cuda" else torch.float32
    target = Target(random_model(plan.sizes, plan.device, dtype))
    return target, random_draft(target, plan.sizes.draft_vocab_size)


def _drafter(target: Target, draft: Any, growth: Growth | None) -> Drafter:
    return VanillaDrafter() if growth is None else EagleDrafter(target, draft, growth)


def _busy_engine(
    plan: "Plan", drafter: Drafter, batch: int, graphs: bool
) -> BatchEngine:
    """An engine all of whose slots run a prompt, past its first two cycles."""
    target, _ = large(plan)
    depth = 0 if isinstance(drafter, VanillaDrafter) else drafter.growth.depth
    # Room for as many cycles of a draft that is always right.
    answer = (plan.cycles + 4) * (1 + depth)
    engine = BatchEngine(target, drafter, Slots(batch, plan.context + answer), graphs)
    dice = random.Random(batch)
    for _ in range(batch):
        prompt = [dice.randrange(target.vocab_size) for _ in range(plan.context)]
        engine.submit(Request(tuple(prompt), answer))
    for _ in range(2):  # memory is taken, and graphs are recorded
        engine.step()
    return engine


def _cycle_seconds(plan: "Plan", engine: BatchEngine) -> list[float]:
    times = []
    for _ in range(plan.cycles):
        wait(plan.device)
        started = time.perf_counter()
        engine.step()
        wait(plan.device)
        times.append(time.perf_counter() - started)
    return times


def _settings(plan: "Plan") -> Iterator[bool]:
    yield False
    if plan.graphs:
        yield True


def time_cycles(plan: "Plan") -> list[dict[str, Any]]:
    """One slot: milliseconds of a cycle, against the time to fetch what it reads.

    fetch_ms: bytes that a cycle reads over the measured copy bandwidth
    """
    target, draft = large(plan)
    rows = []
    for name, growth in LARGE_GROWTHS.items():
        drafter = _drafter(target, draft, growth)
        num_bytes = cycle_bytes(target, drafter, 1, plan.context)
        for graphs in _settings(plan):
            times = _cycle_seconds(plan, _busy_engine(plan, drafter, 1, graphs))
            rows.append(
                {
                    "growth": name,
                    "graphs": graphs,
                    "cycle_ms": 1000 * statistics.median(times),
                    "slowest_ms": 1000 * max(times),
                    "bytes": num_bytes,
                    "fetch_ms": 1000 * num_bytes / copy_bandwidth(plan),
                }
            )
    return rows


def cycle_bytes(target: Target, drafter: Drafter, batch: int, context: int) -> int:
    """Bytes of weights, keys and values that a cycle of the batch engine reads.

    The target's are read once. The draft's layer and head are read once to catch up
    and once for each further level, its fusion once. [Derived]
    """
    shape, size = ModelShape.from_config(target.config), target.dtype.itemsize
    count = shape.weights_read + batch * context * shape.cached_per_position
    if isinstance(drafter, VanillaDrafter):
        return count * size
    draft, config = drafter.draft, drafter.draft.config
    once = sum(p.numel() for p in draft.fc.parameters())
    each = sum(p.numel() for p in draft.layer.parameters())
    each += sum(p.numel() for p in draft.lm_head.parameters())
    each += 2 * batch * context * config.num_kv_heads * config.head_dim
    return (count + once + drafter.growth.depth * each) * size


def time_stages(plan: "Plan") -> dict[str, Any]:
    """A cycle of chain 3 by stage, before and after each change: seconds."""
    target, draft = large(plan)
    drafter = EagleDrafter(target, draft, chain(3))
    dice = random.Random(0)
    prompt = tuple(dice.randrange(target.vocab_size) for _ in range(plan.context))
    return summary(profile_changes(target, drafter, Request(prompt, ANSWER), rounds=3))


def sweep_batches(plan: "Plan") -> list[dict[str, Any]]:
    """Milliseconds of a cycle by batch size, plain and with a chain of three.

    break_even: tokens a cycle from which on the chain is the faster way
    """
    target, draft = large(plan)
    rows = []
    for batch in plan.batches:
        row: dict[str, Any] = {"batch": batch, "graphs": plan.graphs}
        for name in ("vanilla", "chain 3"):
            drafter = _drafter(target, draft, LARGE_GROWTHS[name])
            engine = _busy_engine(plan, drafter, batch, plan.graphs)
            row[name] = 1000 * statistics.median(_cycle_seconds(plan, engine))
            del engine
        row["break_even"] = row["chain 3"] / row["vanilla"]
        rows.append(row)
    return rows


# Memory


def compare_memory(plan: "Plan") -> dict[str, Any]:
    """The ledger of one configuration, and what the allocator counts, in bytes.

    engine: taken by making the engine        graphs: reserved by recording its graphs;
    both None where the allocator does not count
    """
    target, draft = large(plan)
    growth, batch = chain(3), plan.batches[-1]
    drafter = EagleDrafter(target, draft, growth)
    slots = Slots(batch, plan.context + 2 * ANSWER)
    ledger = memory_ledger(
        target.config, drafter.draft.config, growth, slots, target.dtype
    )
    found: dict[str, Any] = {"ledger": asdict(ledger), "total": ledger.total}
    before = _counted(plan)
    engine = BatchEngine(target, drafter, slots, plan.graphs)
    made = _counted(plan)
    engine.run([Request((1, 2, 3), ANSWER)] * batch)
    torch_keeps = _counted(plan)
    if before is None or made is None or torch_keeps is None:
        return found | {"engine": None, "graphs": None, "weights": None}
    return found | {
        "engine": made[0] - before[0],
        "graphs": torch_keeps[1] - made[1],
        "weights": before[0],
    }


def _counted(plan: "Plan") -> tuple[int, int] | None:
    """Bytes that the allocator has given out, and that it keeps from the device."""
    if plan.device.type != "cuda":
        return None
    torch.cuda.synchronize(plan.device)
    torch.cuda.empty_cache()
    return (
        torch.cuda.memory_allocated(plan.device),
        torch.cuda.memory_reserved(plan.device),
    )

"""What a pass does cost: the target timed over blocks, prompts and batches.

All candidates are timed in turns (A B A B ...), so that a machine that slows down
slows all of them down, and the median of each is kept. The first call of each is
thrown away: it allocates memory and fills caches. Times are in seconds, rates in
bytes, FLOP or tokens per second. [Ours]
"""

import copy
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from eagle3.bench.environment import write_results
from eagle3.bench.roofline import Machine, ModelShape, Pass
from eagle3.engine import generate
from eagle3.packed import pack_linear_layers
from eagle3.target import Target, library_model, load_target
from eagle3.training.prompts import KINDS, evaluation_prompts

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
PREFILL_LENGTHS = (32, 128, 512)
BATCHES = (1, 2, 4, 8, 16, 32)
VERIFY_ROWS = 6  # a pending token and a chain of five
_STREAM_BYTES = 2**29  # more than the caches of a laptop hold
_MATMUL_SIZE = 2048
_SEED = 0

Networks = Mapping[str, Target]


def interleaved(
    jobs: Mapping[Hashable, Callable[[], object]], repeats: int
) -> dict[Hashable, list[float]]:
    """Time jobs in turns: each once for warming up, then round and round.

    Returns for each job its `repeats` times in seconds. Raises ValueError below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}: measure at least once.")
    for job in jobs.values():
        job()
    seconds: dict[Hashable, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - started)
    return seconds


@torch.inference_mode()
def measure_machine(repeats: int = 5) -> dict[str, float]:
    """The two speeds of a roofline, as torch reaches them on the CPU.

    Returns copy_bandwidth (bytes read and written in a copy) and read_bandwidth (a
    sum over an array), both in bytes per second, and matmul_rate, the FLOP per second
    of a large float32 product.
    """
    array = torch.ones(_STREAM_BYTES // 4)
    half = len(array) // 2
    square = torch.ones(_MATMUL_SIZE, _MATMUL_SIZE)
    jobs = {
        "copy_bandwidth": lambda: array[:half].copy_(array[half:]),
        "read_bandwidth": array.sum,
        "matmul_rate": lambda: square @ square,
    }
    work = {
        "copy_bandwidth": _STREAM_BYTES,
        "read_bandwidth": _STREAM_BYTES,
        "matmul_rate": 2 * _MATMUL_SIZE**3,
    }
    times = interleaved(jobs, repeats)
    return {name: work[name] / statistics.median(times[name]) for name in jobs}


def machine_from(measured: Mapping[str, float]) -> Machine:
    """The roofline's machine: the faster of both bandwidths, and the matmul rate."""
    bandwidth = max(measured["copy_bandwidth"], measured["read_bandwidth"])
    return Machine(bandwidth, measured["matmul_rate"])


@torch.inference_mode()
def measure_passes(
    networks: Networks, steps: Sequence[Pass], repeats: int = 15
) -> dict[tuple[str, Pass], list[float]]:
    """Time target passes: every network over every kind of pass, in turns.

    The tokens are random, since the time does not depend on them. Returns seconds by
    (network, pass).
    """
    jobs = {
        (name, step): _pass_job(network, step)
        for step in steps
        for name, network in networks.items()
    }
    return interleaved(jobs, repeats)


def _pass_job(target: Target, step: Pass) -> Callable[[], None]:
    """A pass that leaves its cache as it found it, ready for the next turn."""
    generator = torch.Generator().manual_seed(_SEED)
    length = step.context + step.rows
    ids = torch.randint(target.vocab_size, (1, length), generator=generator)
    cache = target.new_cache(length)
    if step.context:
        target.forward(ids[:, : step.context], cache, last_only=True)
        cache.select(torch.zeros(step.batch, dtype=torch.long))  # [1] -> [B] requests
    block = ids[:, step.context :].expand(step.batch, -1)  # [B, n]

    def job() -> None:
        target.forward(block, cache, last_only=step.last_only)
        cache.rollback(step.rows)

    return job


def measure_block_cost(
    target: Target,
    rows: Sequence[int] = ROWS,
    context: int = 128,
    repeats: int = 15,
    others: Networks | None = None,
) -> dict[str, Any]:
    """What a block of n rows costs, for one request, on each network.

    rows: block lengths n          context: cached positions before the block
    others: more networks to time side by side with the target, by name
    Returns rows, context, repeats, and by network name (the target's is "eagle3")
    seconds (medians) and quartiles, each in the order of rows.
    """
    networks = {"eagle3": target, **(others or {})}
    steps = [Pass(count, context=context) for count in rows]
    times = measure_passes(networks, steps, repeats)
    return {
        "rows": list(rows),
        "context": context,
        "repeats": repeats,
        **_by_network(times, networks, steps),
    }


def measure_prefill_cost(
    target: Target, lengths: Sequence[int] = PREFILL_LENGTHS, repeats: int = 15
) -> dict[str, Any]:
    """What reading a prompt costs: one pass over all of it, logits for the last token.

    Returns lengths, repeats, seconds and quartiles, as `measure_block_cost` does.
    """
    steps = [Pass(length, last_only=True) for length in lengths]
    times = measure_passes({"eagle3": target}, steps, repeats)
    measured = _by_network(times, {"eagle3": target}, steps)
    return {"lengths": list(lengths), "repeats": repeats, **measured}


def measure_batch_cost(
    target: Target,
    batches: Sequence[int] = BATCHES,
    rows: Sequence[int] = (1, VERIFY_ROWS),
    context: int = 128,
    repeats: int = 15,
) -> dict[str, Any]:
    """What a pass costs when B requests share it, each with a block of n rows.

    Returns batches, context, repeats, and seconds: n (as text) -> medians in the
    order of batches.
    """
    steps = [Pass(n, batch, context) for batch in batches for n in rows]
    times = measure_passes({"eagle3": target}, steps, repeats)
    seconds = {
        str(n): [
            statistics.median(times["eagle3", Pass(n, batch, context)])
            for batch in batches
        ]
        for n in rows
    }
    return {
        "batches": list(batches),
        "context": context,
        "repeats": repeats,
        "seconds": seconds,
    }


def _by_network(times, networks: Networks, steps: Sequence[Pass]) -> dict[str, Any]:
    """Medians and quartiles for each network, in the order of the steps."""
    summary: dict[str, Any] = {"seconds": {}, "quartiles": {}}
    for name in networks:
        samples = [times[name, step] for step in steps]
        summary["seconds"][name] = [statistics.median(each) for each in samples]
        summary["quartiles"][name] = [_quartiles(each) for each in samples]
    return summary


def _quartiles(samples: Sequence[float]) -> list[float]:
    if len(samples) == 1:
        return [samples[0], samples[0]]
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return [first, third]


def vanilla_rate(
    target: Target,
    library: nn.Module,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int = 64,
    repeats: int = 3,
) -> dict[str, Any]:
    """Tokens per second of greedy decoding: our engine against the library's own.

    library: transformers' model of the same weights     prompts: token ids of each
    Both decode every prompt to the full length, past any end of sequence, in turns.
    Returns eagle3 and library (tokens per second, prefill included), ratio, and
    same_tokens, whether both wrote the same texts.
    """
    jobs, texts = {}, {}
    for index, prompt in enumerate(prompts):
        ids = list(prompt)
        jobs["eagle3", index] = lambda ids=ids, i=index: texts.__setitem__(
            ("eagle3", i), _engine_greedy(target, ids, max_new_tokens)
        )
        jobs["library", index] = lambda ids=ids, i=index: texts.__setitem__(
            ("library", i), library_greedy(library, ids, max_new_tokens)
        )
    times = interleaved(jobs, repeats)
    tokens = max_new_tokens * len(prompts)
    rates = {}
    for name in ("eagle3", "library"):
        spent = (statistics.median(times[name, i]) for i in range(len(prompts)))
        rates[name] = tokens / sum(spent)
    same = [texts["eagle3", i] == texts["library", i] for i in range(len(prompts))]
    return {
        **rates,
        "ratio": rates["eagle3"] / rates["library"],
        "same_tokens": all(same),
        "max_new_tokens": max_new_tokens,
        "num_prompts": len(prompts),
        "repeats": repeats,
    }


def _engine_greedy(target: Target, ids: list[int], max_new_tokens: int) -> list[int]:
    result = generate(
        target, None, ids, max_new_tokens=max_new_tokens, eos_token_ids=()
    )
    return list(result.token_ids)


def library_greedy(
    library: nn.Module, prompt_ids: Sequence[int], max_new_tokens: int
) -> list[int]:
    """The new tokens that transformers' own `generate` decodes at temperature 0.

    It goes on past any end of sequence, so that all runs have the same length.
    """
    ids = torch.tensor([list(prompt_ids)])
    output = library.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=None,
    )
    return output[0, ids.shape[1] :].tolist()


def library_networks(library: nn.Module) -> dict[str, Target]:
    """Transformers' modules behind our interface: as they are, and with packed layers.

    Returns "library" (stock `nn.Linear`) and "library_packed" (the same modules, each
    linear layer packed once; a copy, so the memory of the weights doubles).
    """
    model = copy.deepcopy(library)
    packed = Target(model, lean=False)
    pack_linear_layers(model)  # after Target has read the head's weight
    return {"library": Target(library, lean=False), "library_packed": packed}


def measure_all(
    target: Target, library: nn.Module, repeats: int = 15
) -> dict[str, Any]:
    """Everything that chapter 1 quotes, measured on this machine.

    Some minutes long; the machine should have nothing else to do.
    """
    shape = ModelShape.from_config(target.config)
    chats = [
        [{"role": "user", "content": prompt.text}]
        for prompt in evaluation_prompts(1, seed=_SEED)
    ]
    prompts = [target.encode_chat(chat) for chat in chats]
    machine = measure_machine(repeats)
    others = library_networks(library)
    return {
        "model": {
            "name": "SmolLM2-135M-Instruct",
            "dtype": "float32",
            "weight_bytes": 4 * shape.weights_read,
            "cache_bytes_per_position": 4 * shape.cached_per_position,
        },
        "machine": machine,
        "block": measure_block_cost(target, repeats=repeats, others=others),
        "prefill": measure_prefill_cost(target, repeats=repeats),
        "batch": measure_batch_cost(target, repeats=repeats),
        "vanilla": vanilla_rate(target, library, prompts, repeats=max(1, repeats // 5)),
        "prompt_kinds": list(KINDS),
    }


def write_block_cost(folder: str | Path, repeats: int = 15) -> Path:
    """Measure the default target on this machine and save block_cost.json."""
    results = measure_all(load_target(), library_model(), repeats)
    return write_results("block_cost", results, folder, seed=_SEED)

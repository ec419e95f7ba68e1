"""Speedup, measured honestly: all methods on the same prompts, taking turns.

For every prompt each method answers in turn, and the whole round is repeated (A B A
B), so that a slow moment of the machine hits all alike. Ratios are taken prompt by
prompt, against our own vanilla decoding, which runs through the same engine and the
same prepacked layers. Greedy outputs are compared token for token. [Ours]
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import scipy.stats
import torch
from torch import nn
from tqdm import tqdm

from eagle3.draft import Eagle3Draft
from eagle3.engine import GenerationResult, generate
from eagle3.target import Target
from eagle3.training.prompts import KINDS, Prompt, evaluation_prompts


@dataclass(frozen=True)
class SpeedupConfig:
    """What to run.

    prompts_per_kind: evaluation prompts of each of the five kinds
    rounds: how often every method answers every prompt
    chain_lengths: one speculative method for each
    """

    prompts_per_kind: int = 3
    max_new_tokens: int = 128
    rounds: int = 2
    chain_lengths: tuple[int, ...] = (2, 3, 4)
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """One method's answer to one prompt, timed.

    acceptance_length: tau, tokens per cycle; 1.0 for methods without drafts
    draft_share, target_share, other_share: of the time spent in cycles
    same_tokens: equal to vanilla's answer (None above temperature 0)
    """

    kind: str
    prompt: int
    round: int
    method: str
    num_tokens: int
    seconds: float
    acceptance_length: float
    draft_share: float
    target_share: float
    other_share: float
    same_tokens: bool | None


def measure_speedup(
    target: Target,
    draft: Eagle3Draft,
    library: nn.Module | None,
    config: SpeedupConfig,
) -> list[Run]:
    """Run vanilla, every chain length and, if given, transformers' own generate.

    library: the stock transformers model (`library_model()`), or None to leave it out
    """
    prompts = evaluation_prompts(config.prompts_per_kind, config.seed)
    methods = _methods(target, draft, config)
    warm_up = prompts[0]
    for method in methods.values():
        method(warm_up)
    runs: list[Run] = []
    for number, prompt in enumerate(tqdm(prompts, desc="prompts")):
        for turn in range(config.rounds):
            reference: tuple[int, ...] | None = None
            for name, method in methods.items():
                result = method(prompt)
                reference = reference or result.token_ids
                where = (prompt.kind, number, turn, name)
                runs.append(_run_of(where, result, reference, config.temperature))
            if library is not None:
                where = (prompt.kind, number, turn, "transformers generate")
                ids = target.encode_chat([{"role": "user", "content": prompt.text}])
                runs.append(_library_run(where, library, ids, reference, config))
    return runs


def summarise(runs: list[Run], seed: int = 0) -> dict:
    """Per method: speed relative to vanilla in all and per kind, tau, time shares.

    A ratio is vanilla's median seconds per token over the method's, prompt by prompt;
    the summary is their mean with a 95% bootstrap interval (seeded).
    """
    summary = {}
    for name in dict.fromkeys(run.method for run in runs):
        mine = [run for run in runs if run.method == name]
        ratios = {kind: _ratios(runs, name, kind) for kind in KINDS}
        everything = [ratio for values in ratios.values() for ratio in values]
        summary[name] = {
            "speedup": float(np.mean(everything)),
            "speedup_interval_95": _interval(everything, seed),
            "speedup_by_kind": {k: float(np.mean(v)) for k, v in ratios.items() if v},
            "acceptance_length": _mean(mine, "acceptance_length"),
            "acceptance_length_by_kind": {
                kind: _mean([r for r in mine if r.kind == kind], "acceptance_length")
                for kind in KINDS
                if ratios[kind]
            },
            "tokens_per_second": float(
                np.median([run.num_tokens / run.seconds for run in mine])
            ),
            "draft_share": _mean(mine, "draft_share"),
            "target_share": _mean(mine, "target_share"),
            "other_share": _mean(mine, "other_share"),
            "same_tokens": all(run.same_tokens is not False for run in mine),
            "differing_prompts": sorted(
                {run.prompt for run in mine if run.same_tokens is False}
            ),
        }
    return summary


def rows(runs: list[Run]) -> list[dict]:
    """The runs as plain dictionaries, for JSON."""
    return [asdict(run) for run in runs]


def _methods(
    target: Target, draft: Eagle3Draft, config: SpeedupConfig
) -> dict[str, Callable[[Prompt], GenerationResult]]:
    def method(
        drafter: Eagle3Draft | None, length: int
    ) -> Callable[[Prompt], GenerationResult]:
        return lambda prompt: generate(
            target,
            drafter,
            prompt.text,
            max_new_tokens=config.max_new_tokens,
            chain_length=length,
            temperature=config.temperature,
            seed=config.seed,
        )

    chains = {f"EAGLE-3 chain {n}": method(draft, n) for n in config.chain_lengths}
    return {"vanilla": method(None, 1)} | chains


def _run_of(
    where: tuple[str, int, int, str],
    result: GenerationResult,
    reference: tuple[int, ...],
    temperature: float,
) -> Run:
    cycles = result.cycles
    parts = [
        sum(getattr(cycle, f"{part}_seconds") for cycle in cycles)
        for part in ("draft", "target", "other")
    ]
    shares = [part / max(sum(parts), 1e-12) for part in parts]
    same = None if temperature > 0 else result.token_ids == reference
    return Run(
        *where,
        len(result.token_ids),
        result.seconds,
        result.acceptance_length,
        *shares,
        same_tokens=same,
    )


@torch.inference_mode()
def _library_run(
    where: tuple[str, int, int, str],
    library: nn.Module,
    prompt_ids: list[int],
    reference: tuple[int, ...],
    config: SpeedupConfig,
) -> Run:
    ids = torch.tensor([prompt_ids])
    sampling = {"do_sample": False}
    if config.temperature > 0:
        sampling = {"do_sample": True, "temperature": config.temperature, "top_k": 0}
    started = time.perf_counter()
    output = library.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=config.max_new_tokens,
        **sampling,
    )
    seconds = time.perf_counter() - started
    answer = tuple(output[0, len(prompt_ids) :].tolist())
    same = None if config.temperature > 0 else answer == reference
    return Run(*where, len(answer), seconds, 1.0, 0.0, 1.0, 0.0, same_tokens=same)


def _seconds_per_token(runs: list[Run], method: str) -> dict[int, float]:
    per_prompt: dict[int, list[float]] = {}
    for run in runs:
        if run.method == method:
            per_prompt.setdefault(run.prompt, []).append(run.seconds / run.num_tokens)
    return {prompt: float(np.median(values)) for prompt, values in per_prompt.items()}


def _ratios(runs: list[Run], method: str, kind: str) -> list[float]:
    of_kind = [run for run in runs if run.kind == kind]
    vanilla = _seconds_per_token(of_kind, "vanilla")
    mine = _seconds_per_token(of_kind, method)
    return [vanilla[prompt] / mine[prompt] for prompt in mine]


def _mean(runs: list[Run], name: str) -> float:
    return float(np.mean([getattr(run, name) for run in runs]))


def _interval(values: list[float], seed: int) -> list[float]:
    if len(values) < 2 or min(values) == max(values):
        return [float(min(values)), float(max(values))]
    found = scipy.stats.bootstrap(
        (values,), np.mean, rng=np.random.default_rng(seed), n_resamples=2000
    ).confidence_interval
    return [float(found.low), float(found.high)]

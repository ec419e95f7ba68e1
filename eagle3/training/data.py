"""Training text that the target writes itself, stored as compact token ids.

A draft is tested against the target's own distribution, so it is trained on the
target's own answers. [Paper, section 4] Half of the prompts are answered at
temperature 0, half at 1, because the draft will meet both. [Ours]

The work is cut into shards of prompts. Each shard is one safetensors file that
appears when it is complete: a killed run loses one shard per worker at most and goes
on from there. A shard depends on its own seed alone and says what it was made from, so
that answers of two configurations are never mixed.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from eagle3.sampling import SamplingParams, next_token_distribution, sample
from eagle3.target import Target, fetch_default_model, load_target
from eagle3.training.prompts import (
    KINDS,
    Prompt,
    evaluation_prompts,
    training_prompts,
)

MADE_FROM = "made_from"  # key in a shard's metadata


@dataclass(frozen=True)
class DataConfig:
    """What to generate. The same config gives the same tokens (same machine, threads).

    num_prompts: how many prompts, balanced over the kinds
    max_new_tokens: the longest answer, in tokens
    prompts_per_shard: prompts answered together in one batch
    held_out: answer evaluation prompts, all at temperature 0, to measure on
    dtype: the target's, "float32" or "bfloat16". Training text may come from a rounded
        target, since each position is learnt from what the exact one says there; on
        processors with bfloat16 units it comes three times as fast. Held-out answers
        have to be the exact target's.

    Raises ValueError for a count below 1, too few held-out prompts for all kinds, or
    another dtype. [Ours]
    """

    num_prompts: int = 3000
    max_new_tokens: int = 192
    prompts_per_shard: int = 48
    seed: int = 0
    held_out: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("num_prompts", "max_new_tokens", "prompts_per_shard"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}: generate at least 1."
                )
        if self.held_out and self.num_prompts < len(KINDS):
            raise ValueError(
                f"{self.num_prompts} held-out prompts are too few for all "
                f"{len(KINDS)} kinds: take at least {len(KINDS)}."
            )
        allowed = ("float32",) if self.held_out else ("float32", "bfloat16")
        if self.dtype not in allowed:
            raise ValueError(
                f"dtype is '{self.dtype}': take {' or '.join(allowed)} for "
                f"{'held-out' if self.held_out else 'training'} answers."
            )

    def shards(self) -> list[list[Prompt]]:
        """The prompts of each shard."""
        if self.held_out:
            prompts = evaluation_prompts(self.num_prompts // len(KINDS), self.seed)
        else:
            prompts = training_prompts(self.num_prompts, self.seed)
        size = self.prompts_per_shard
        return [prompts[i : i + size] for i in range(0, len(prompts), size)]


@dataclass(frozen=True)
class Sequence:
    """One prompt with the target's answer.

    token_ids: [T] int64, prompt first      num_prompt: tokens of the prompt
    kind: of the prompt, see `KINDS`      temperature: that the answer was drawn at

    [Ours]
    """

    token_ids: Tensor
    num_prompt: int
    kind: str
    temperature: float

    def natural_mask(self) -> Tensor:
        """[T] bool, True where the token belongs to the answer. [Code]"""
        return torch.arange(len(self.token_ids)) >= self.num_prompt


def generate_data(config: DataConfig, folder: Path, workers: int = 1) -> None:
    """Answer all prompts with the default target and store them under `folder`.

    workers: processes, which share the machine's cores
    Shards that are already there are kept: run the same command again to go on.
    Raises ValueError when `folder` holds shards of another configuration, FetchError
    when the target can't be had. [Ours]
    """
    if workers < 1:
        raise ValueError(f"{workers} workers can't answer anything: take at least 1.")
    folder.mkdir(parents=True, exist_ok=True)
    todo = _missing_shards(config, folder)
    if todo:
        fetch_default_model()  # once, and here a fault is reported as it is
    threads = max(1, (os.cpu_count() or 1) // workers)
    with ProcessPoolExecutor(
        workers, initializer=_start_worker, initargs=(config, threads)
    ) as pool:
        jobs = pool.map(_write_shard, todo, [folder] * len(todo))
        started, written = time.perf_counter(), 0
        with tqdm(total=len(todo), desc="shards", unit="shard") as bar:
            for num_tokens in jobs:
                written += num_tokens
                rate = written / (time.perf_counter() - started)
                bar.set_postfix(tokens=written, tokens_per_second=round(rate))
                bar.update()


def load_data(path: Path) -> list[Sequence]:
    """All sequences of a folder of shards, in their order, or of one merged file.

    Raises FileNotFoundError when there are none. [Ours]
    """
    paths = [path] if path.is_file() else shard_paths(path)
    return [sequence for path in paths for sequence in _read(path)]


def shard_paths(folder: Path) -> list[Path]:
    """The shards of a folder, in order.

    Raises FileNotFoundError when there are none. [Ours]
    """
    paths = sorted(folder.glob("shard-*.safetensors"))
    if not paths:
        raise FileNotFoundError(
            f"no training data in {folder}: run `python -m eagle3 generate-data` first."
        )
    return paths


def answer_batch(
    target: Target,
    prompts: list[list[int]],
    params: list[SamplingParams],
    max_new_tokens: int,
    generator: torch.Generator,
) -> list[list[int]]:
    """The target's answers to several prompts at once, prompts of any length.

    prompts: B lists of token ids      params: B, how each is answered
    generator: draws for all rows; the seeds in `params` are not used
    Returns B lists of token ids. An answer ends with its end-of-sequence token, or has
    `max_new_tokens` tokens.

    Prompts are padded on the left. Rows that have ended leave the batch as soon as a
    quarter of it is done, so late rows don't pay for early ones. Raises ValueError
    when a prompt and its answer don't fit into the target's context. [Ours]
    """
    longest = max(map(len, prompts))
    size, device = len(prompts), target.device
    ids = torch.zeros(size, longest, dtype=torch.long, device=device)
    mask = torch.zeros(size, longest + max_new_tokens, dtype=torch.bool, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = True
    cache = target.new_cache(longest + max_new_tokens)
    answers: list[list[int]] = [[] for _ in prompts]
    alive = list(range(len(prompts)))  # alive[i]: which prompt row i of the batch is
    ended: set[int] = set()
    block = ids
    for step in range(max_new_tokens):
        end = longest + step
        output = target.forward(
            block, cache, attention_mask=mask[:, :end], last_only=True
        )
        next_ids = _choose(output.logits[:, -1], [params[i] for i in alive], generator)
        for row, token in enumerate(next_ids.tolist()):
            if alive[row] not in ended:
                answers[alive[row]].append(token)
                if token in target.eos_token_ids:
                    ended.add(alive[row])
        if len(ended) == len(prompts):
            break
        keep = [row for row, which in enumerate(alive) if which not in ended]
        if len(keep) <= 0.75 * len(alive):
            rows = torch.tensor(keep)
            cache.select(rows)
            alive, mask, next_ids = [alive[r] for r in keep], mask[rows], next_ids[rows]
        block = next_ids[:, None]
    return answers


def _choose(logits: Tensor, params: list[SamplingParams], generator) -> Tensor:
    """One token per row, each row in its own way: [B, V] -> [B]."""
    chosen = logits.argmax(-1)
    for wanted in dict.fromkeys(params):  # rows that share their way are drawn at once
        if not wanted.is_greedy:
            rows = [row for row, p in enumerate(params) if p == wanted]
            probs = next_token_distribution(logits[rows], wanted)
            chosen[rows] = sample(probs, generator)
    return chosen


def _path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.safetensors"


def _missing_shards(config: DataConfig, folder: Path) -> list[int]:
    """Numbers of the shards that aren't there; refuses those of another making."""
    missing = []
    for number, prompts in enumerate(config.shards()):
        path = _path(folder, number)
        if not path.exists():
            missing.append(number)
            continue
        with safe_open(path, framework="pt") as file:
            made_from = (file.metadata() or {}).get(MADE_FROM)
        if made_from != _identity(config, prompts):
            raise ValueError(
                f"{path} was made from another configuration or other prompts: "
                "generate into a new folder, or go on with the settings that it was "
                "begun with."
            )
    return missing


def _identity(config: DataConfig, prompts: list[Prompt]) -> str:
    """Everything that a shard's tokens depend on, as one short text."""
    texts = json.dumps([prompt.text for prompt in prompts]).encode("utf-8")
    facts = {"config": asdict(config), "prompts": hashlib.sha256(texts).hexdigest()}
    return json.dumps(facts)


def _start_worker(config: DataConfig, threads: int) -> None:
    global _worker
    torch.set_num_threads(threads)
    _worker = (config, load_target(dtype=getattr(torch, config.dtype)))


def _write_shard(shard: int, folder: Path) -> int:
    config, target = _worker
    if target.vocab_size > 2**16:
        raise ValueError(
            f"token ids are stored in 16 bits, too few for a vocabulary of "
            f"{target.vocab_size}: use a target with at most {2**16} tokens."
        )
    made_of = config.shards()[shard]
    prompts = sorted(made_of, key=lambda prompt: len(prompt.text))
    encoded = [
        target.encode_chat([{"role": "user", "content": prompt.text}])
        for prompt in prompts
    ]
    warm = 0.0 if config.held_out else 1.0
    params = [SamplingParams(warm * (i % 2)) for i in range(len(prompts))]
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + shard)
    answers = answer_batch(target, encoded, params, config.max_new_tokens, generator)
    rows = [prompt + answer for prompt, answer in zip(encoded, answers, strict=True)]
    tensors = {
        "token_ids": torch.tensor([token for row in rows for token in row]).to(
            torch.uint16
        ),
        "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int32),
        "num_prompt": torch.tensor([len(p) for p in encoded], dtype=torch.int32),
        "kind": torch.tensor([KINDS.index(p.kind) for p in prompts]).to(torch.uint8),
        "temperature": torch.tensor([p.temperature for p in params]),
    }
    temporary = _path(folder, shard).with_suffix(f".{os.getpid()}.tmp")
    save_file(tensors, temporary, {MADE_FROM: _identity(config, made_of)})
    temporary.replace(_path(folder, shard))
    return sum(map(len, answers))


def _read(path: Path) -> Iterator[Sequence]:
    stored = load_file(path)
    rows = stored["token_ids"].long().split(stored["lengths"].tolist())
    for row, num_prompt, kind, temperature in zip(
        rows,
        stored["num_prompt"].tolist(),
        stored["kind"].tolist(),
        stored["temperature"].tolist(),
        strict=True,
    ):
        yield Sequence(row, num_prompt, KINDS[kind], temperature)

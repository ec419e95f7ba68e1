"""Prompts from which the frozen target writes its own training and evaluation text.

A draft learns to imitate one target, so the text that it trains on is the target's
own. The prompts only have to lead the target over varied ground: five kinds, many
topics, and a split by topic so that no evaluation topic occurs in training. [Ours]
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from eagle3.training import templates, topics

KINDS: tuple[str, ...] = ("chat", "code", "math", "instruction", "summary")

_TOPICS = {
    "chat": topics.GENERAL,
    "code": topics.CODE_TASKS,
    "math": topics.MATH_THINGS,
    "instruction": topics.GENERAL,
    "summary": topics.GENERAL,
}
_WRITERS: dict[str, Callable[[str, random.Random], str]] = {
    "chat": templates.chat,
    "code": templates.code,
    "math": templates.math,
    "instruction": templates.instruction,
    "summary": templates.summary,
}
_EVERY = 10  # one topic in ten is for evaluation
_MAX_BARREN_PASSES = 20  # passes over all topics without one new prompt


@dataclass(frozen=True)
class Prompt:
    """One user message for the target; `kind` is one of KINDS. [Ours]"""

    kind: str
    topic: str
    text: str


def split_topics(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits the topics of a kind into (training, evaluation). [Ours]

    Raises ValueError for a kind that is not in KINDS.
    """
    if kind not in _TOPICS:
        known = ", ".join(KINDS)
        raise ValueError(f"Unknown prompt kind {kind!r}: use one of {known}.")
    numbered = list(enumerate(_TOPICS[kind], start=1))
    training = tuple(topic for i, topic in numbered if i % _EVERY != 0)
    evaluation = tuple(topic for i, topic in numbered if i % _EVERY == 0)
    return training, evaluation


def training_prompts(count: int, seed: int = 0) -> list[Prompt]:
    """Makes `count` different prompts over the training topics, shuffled. [Ours]

    The kinds are balanced: their counts differ by one at most. Same count and seed,
    same list. Raises ValueError if count < 1, or if a kind has no more new prompts.
    """
    _require_positive("count", count)
    rng = random.Random(f"training {seed}")
    share, rest = divmod(count, len(KINDS))
    prompts: list[Prompt] = []
    for i, kind in enumerate(KINDS):
        wanted = share + (i < rest)
        prompts += _take(_distinct(kind, split_topics(kind)[0], rng), wanted, kind)
    rng.shuffle(prompts)
    return prompts


def evaluation_prompts(per_kind: int, seed: int = 0) -> list[Prompt]:
    """Makes `per_kind` prompts of each kind over the evaluation topics. [Ours]

    The list goes round the kinds: chat, code, math, instruction, summary, chat, ...
    All differ. Same arguments, same list. Raises ValueError if per_kind < 1, or if a
    kind has no more new prompts.
    """
    _require_positive("per_kind", per_kind)
    columns = []
    for kind in KINDS:
        rng = random.Random(f"evaluation {kind} {seed}")
        source = _distinct(kind, split_topics(kind)[1], rng)
        columns.append(_take(source, per_kind, kind))
    return [prompt for row in zip(*columns, strict=True) for prompt in row]


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}: ask for at least one prompt.")


def _take(source: Iterator[Prompt], wanted: int, kind: str) -> list[Prompt]:
    found = list(islice(source, wanted))
    if len(found) < wanted:
        raise ValueError(
            f"Only {len(found)} different {kind} prompts exist, not {wanted}: "
            "ask for fewer, or add topics and templates."
        )
    return found


def _distinct(
    kind: str, topics_of_kind: tuple[str, ...], rng: random.Random
) -> Iterator[Prompt]:
    """Yields prompts that all differ, pass after pass over the shuffled topics."""
    seen: set[str] = set()
    barren = 0
    while barren < _MAX_BARREN_PASSES:
        before = len(seen)
        for topic in rng.sample(topics_of_kind, len(topics_of_kind)):
            text = _WRITERS[kind](topic, rng)
            if text not in seen:
                seen.add(text)
                yield Prompt(kind, topic, text)
        barren = barren + 1 if len(seen) == before else 0

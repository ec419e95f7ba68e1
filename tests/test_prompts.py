"""The prompts: balanced, different, deterministic, and split by topic."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from eagle3.training import templates, topics
from eagle3.training.prompts import (
    KINDS,
    Prompt,
    evaluation_prompts,
    split_topics,
    training_prompts,
)

TEMPLATES = {
    "chat": templates.CHAT,
    "code": templates.CODE,
    "math": templates.MATH,
    "instruction": templates.INSTRUCTION,
    "summary": templates.SUMMARY,
}


@pytest.fixture(scope="module")
def training() -> list[Prompt]:
    return training_prompts(6000)


@pytest.fixture(scope="module")
def evaluation() -> list[Prompt]:
    return evaluation_prompts(40)


def test_five_kinds_with_enough_templates_and_topics() -> None:
    assert KINDS == ("chat", "code", "math", "instruction", "summary")
    assert all(len(set(TEMPLATES[kind])) >= 12 for kind in KINDS)
    assert sum(len(TEMPLATES[kind]) for kind in KINDS) >= 60
    assert len(set(topics.GENERAL)) >= 300
    for group in (topics.GENERAL, topics.CODE_TASKS, topics.MATH_THINGS):
        assert len(set(group)) == len(group)


def test_training_prompts_are_balanced_and_all_different(
    training: list[Prompt],
) -> None:
    assert Counter(p.kind for p in training) == dict.fromkeys(KINDS, 1200)
    assert len({p.text for p in training}) == 6000


def test_a_count_that_five_does_not_divide_is_spread() -> None:
    counts = Counter(p.kind for p in training_prompts(13))
    assert sorted(counts.values()) == [2, 2, 3, 3, 3]


def test_training_prompts_are_shuffled(training: list[Prompt]) -> None:
    # In 6000 shuffled prompts neighbours share a kind about one time in five.
    same = sum(p.kind == q.kind for p, q in pairwise(training))
    assert 900 < same < 1500


def test_every_training_topic_is_used(training: list[Prompt]) -> None:
    for kind in KINDS:
        used = Counter(p.topic for p in training if p.kind == kind)
        assert set(used) == set(split_topics(kind)[0])


def test_evaluation_prompts_are_balanced_and_all_different(
    evaluation: list[Prompt],
) -> None:
    assert [p.kind for p in evaluation[:7]] == [*KINDS, "chat", "code"]
    assert Counter(p.kind for p in evaluation) == dict.fromkeys(KINDS, 40)
    assert len({p.text for p in evaluation}) == 5 * 40


def test_every_tenth_topic_is_for_evaluation() -> None:
    assert split_topics("code")[1][:2] == topics.CODE_TASKS[9:20:10]
    for kind in KINDS:
        train, held_out = split_topics(kind)
        assert not set(train) & set(held_out)
        assert len(held_out) == (len(train) + len(held_out)) // 10


def test_no_topic_crosses_the_split(
    training: list[Prompt], evaluation: list[Prompt]
) -> None:
    # Over all kinds at once, and as plain substrings whatever the case.
    train_text = "\n".join(p.text for p in training).casefold()
    held_out_text = "\n".join(p.text for p in evaluation).casefold()
    for kind in KINDS:
        train, held_out = split_topics(kind)
        assert [t for t in held_out if t.casefold() in train_text] == []
        assert [t for t in train if t.casefold() in held_out_text] == []


def test_each_prompt_holds_its_topic(
    training: list[Prompt], evaluation: list[Prompt]
) -> None:
    assert all(p.topic in p.text for p in training + evaluation)


def test_prompts_are_short(training: list[Prompt], evaluation: list[Prompt]) -> None:
    for p in training + evaluation:
        longest = 120 if p.kind == "summary" else 60
        assert 10 <= len(p.text.split()) <= longest, p.text
        assert not re.search(r"[{}]", p.text), p.text


def test_same_seed_same_prompts_in_another_process(training: list[Prompt]) -> None:
    # String hashing differs between processes; the prompts must not.
    code = (
        "from eagle3.training.prompts import *\n"
        "print(repr((training_prompts(50, 3), evaluation_prompts(2, 3))))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=env
    )
    here = repr((training_prompts(50, 3), evaluation_prompts(2, 3)))
    assert run.stdout.decode("utf-8").strip() == here
    assert training_prompts(6000) == training


def test_another_seed_gives_other_prompts() -> None:
    assert training_prompts(50, 0) != training_prompts(50, 1)
    assert evaluation_prompts(16, 0) != evaluation_prompts(16, 1)


def test_the_global_random_state_is_not_touched() -> None:
    random.seed(5)
    before = random.getstate()
    training_prompts(20)
    evaluation_prompts(1)
    assert random.getstate() == before


@pytest.mark.parametrize("value", [0, -3])
def test_counts_below_one_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=f"{value}.*at least one"):
        training_prompts(value)
    with pytest.raises(ValueError, match=f"{value}.*at least one"):
        evaluation_prompts(value)


def test_too_many_prompts_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="different chat prompts exist"):
        evaluation_prompts(100_000)
    with pytest.raises(ValueError, match=r"'song'.*one of chat, code"):
        split_topics("song")

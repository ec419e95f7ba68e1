"""The training answers that ship with the module: what they are, and from what.

Right values: the prompts that the file's own configuration makes, and the target's
logits on its own greedy answers.
"""

from collections import Counter
from pathlib import Path

import pytest
import torch

import eagle3
from eagle3.training.data import load_data
from eagle3.training.merge import data_config
from eagle3.training.prompts import KINDS, split_topics

FOLDER = Path(eagle3.__file__).parent / "data" / "smollm2_answers"
TRAINING, HELD_OUT = (FOLDER / f"{name}.safetensors" for name in ("training", "held"))


def answer_tokens(sequences) -> int:
    return sum(len(s.token_ids) - s.num_prompt for s in sequences)


def test_there_are_a_million_tokens_of_all_kinds_half_of_them_greedy():
    sequences = load_data(TRAINING)
    assert answer_tokens(sequences) >= 1_000_000
    of_kind = Counter(sequence.kind for sequence in sequences)
    assert set(of_kind) == set(KINDS)
    assert max(of_kind.values()) - min(of_kind.values()) <= 1
    at = Counter(sequence.temperature for sequence in sequences)
    assert set(at) == {0.0, 1.0} and at[0.0] == at[1.0]


def test_the_table_beside_the_files_counts_them_right():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in (TRAINING, HELD_OUT):
        sequences = load_data(path)
        row = f"`{path.name}` | {len(sequences):,} | {answer_tokens(sequences):,} |"
        assert row in text


def test_held_out_answers_are_greedy_and_of_other_topics():
    assert {s.temperature for s in load_data(HELD_OUT)} == {0.0}
    topics = {}
    for path in (TRAINING, HELD_OUT):
        shards = data_config(path).shards()
        topics[path] = {(p.kind, p.topic) for shard in shards for p in shard}
    assert not topics[TRAINING] & topics[HELD_OUT]
    for kind in KINDS:
        training, evaluation = map(set, split_topics(kind))
        assert {topic for k, topic in topics[TRAINING] if k == kind} <= training
        assert {topic for k, topic in topics[HELD_OUT] if k == kind} <= evaluation


@pytest.mark.real
@pytest.mark.parametrize("path", [TRAINING, HELD_OUT], ids=["training", "held out"])
def test_prompts_are_those_of_the_configuration(real_target, path):
    """Every one, by its tokens; so the recipe in the file is the file's own."""
    written = Counter(
        (s.kind, *s.token_ids[: s.num_prompt].tolist()) for s in load_data(path)
    )
    made = Counter(
        (
            prompt.kind,
            *real_target.encode_chat([{"role": "user", "content": prompt.text}]),
        )
        for shard in data_config(path).shards()
        for prompt in shard
    )
    assert written == made


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "exact"), [(TRAINING, 0.97), (HELD_OUT, 0.999)], ids=["training", "held"]
)
def test_greedy_answers_are_what_the_target_says(real_target, path, exact):
    """Training answers come from a target in bfloat16, which decides near ties anew."""
    greedy = [s for s in load_data(path) if s.temperature == 0][::150][:12]
    right, gaps = [], []
    for sequence in greedy:
        logits = real_target.forward(sequence.token_ids[None]).logits[0]
        said = logits[sequence.num_prompt - 1 : -1]  # of every token of the answer
        answer = sequence.token_ids[sequence.num_prompt :]
        right.append(said.argmax(-1) == answer)
        gaps.append(said.amax(-1) - said.gather(-1, answer[:, None])[:, 0])
    assert torch.cat(right).float().mean() >= exact
    assert torch.cat(gaps).max() < 0.6  # of logits whose spread is about 20

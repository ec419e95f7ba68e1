"""tools/vocabulary_size.py: one draft with smaller and smaller heads.

Right values: the whole head's own scores, counts by hand, plain decoding's answers.
"""

import helpers
import pytest
import study
import torch
import vocabulary_size
from helpers import toy

from eagle3.bench import tune
from eagle3.training.prompts import Prompt
from eagle3.training.vocabulary import choose_draft_vocabulary, count_answer_tokens

ANSWERS = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(6)]
COUNTS = count_answer_tokens(ANSWERS, 96)
SIZES = (48, 24, 6)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(study, "library_model", helpers.library_toy)
    monkeypatch.setattr(
        tune, "prompt_to_ids", lambda target, text: [int(text) % 90, 5, 9]
    )


def test_one_draft_is_trained_and_every_size_of_it_measured(small, tmp_path):
    rounded = helpers.talking_toy(torch.bfloat16)
    vocabulary = choose_draft_vocabulary(COUNTS, SIZES[0])
    given = study.Material(toy(), rounded, ANSWERS, ANSWERS[:2], vocabulary, 60)
    trainer = vocabulary_size.train(given, tmp_path)
    assert trainer.step == len(study.within(ANSWERS, 1, 60)) // 2
    assert vocabulary_size.train(given, tmp_path).step == trainer.step  # kept

    drafts = vocabulary_size.drafts_of(trainer.recipe.model, COUNTS, SIZES)
    prompts = [Prompt("chat", "topic", str(i)) for i in range(3)]
    config = tune.TuneConfig(max_new_tokens=8)
    racers = vocabulary_size.race(toy(), drafts, prompts, config)
    assert all(len(racer.seconds_per_token) == 3 for racer in racers)
    assert sum(len(c.emitted) for c in racers[-1].cycles) == 3 * 7  # plus the prefills'

    rows = vocabulary_size.rows_of(trainer, given, drafts, racers)
    assert [row["size"] for row in rows] == list(SIZES)
    tokens = torch.cat([answer.token_ids[3:] for answer in ANSWERS[:2]])
    for row in rows:
        known = choose_draft_vocabulary(COUNTS, row["size"])
        assert row["coverage"] == pytest.approx(
            torch.isin(tokens, known).float().mean()
        )
    # A guess outside of a small head is lost; what it had to beat is lost as well.
    assert rows[0]["coverage"] >= rows[1]["coverage"] > rows[2]["coverage"]
    whole = trainer.recipe.evaluate(
        trainer.recipe.make_batch([a], [view_of(trainer, a)]) for a in ANSWERS[:2]
    )
    assert rows[0]["n_alpha"] == pytest.approx(whole[: study.STEPS])


def view_of(trainer, answer):
    """What the target says of one answer."""
    return vocabulary_size.FeatureStore(
        trainer.recipe.target, [answer], trainer.folder.parent / "views"
    )[0]

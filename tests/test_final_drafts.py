"""tools/final_drafts.py: every draft is trained, shipped as a reader loads it, told of.

Right values: what the shipped file itself measures, and counts by hand.
"""

import hashlib

import final_drafts
import helpers
import pytest
import study
import torch
from helpers import toy

from eagle3.checkpoint import load_draft
from eagle3.draft_lm import draft_lm_model
from eagle3.medusa import load_medusa

ANSWERS = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(8)]
VOCABULARY = torch.arange(0, 96, 2)
LOAD = {"medusa": load_medusa, "draft-lm": draft_lm_model}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(study, "library_model", helpers.library_toy)
    monkeypatch.setattr(final_drafts, "library_model", helpers.library_toy)
    monkeypatch.setattr(study, "UNIT", 10)


@pytest.mark.parametrize("name", final_drafts.NAMES)
def test_every_draft_is_trained_shipped_and_told_of(name, tmp_path, monkeypatch):
    rounded = helpers.talking_toy(torch.bfloat16)
    given = study.Material(toy(), rounded, ANSWERS, ANSWERS[:2], VOCABULARY)
    sequences = study.within(ANSWERS, final_drafts.BUDGET)
    trainer = final_drafts.train(name, given, tmp_path)
    assert trainer.step == len(sequences) // 2

    monkeypatch.setattr(final_drafts, "DATA", tmp_path)
    folder = tmp_path / final_drafts.NAMES[name]
    final_drafts.ship(trainer, folder)
    row = final_drafts.row_of(name, trainer, given, tmp_path)
    assert row["draft"] == name
    content = (folder / "model.safetensors").read_bytes()
    assert row["sha256"] == hashlib.sha256(content).hexdigest()
    assert row["answer_tokens"] == sum(len(s.token_ids) - 3 for s in sequences)
    assert row["steps"] == trainer.step
    assert row["curve"][-1]["step"] == trainer.step

    trained = dict(trainer.recipe.model.named_parameters())
    shipped = LOAD.get(name, load_draft)(folder, toy())
    for key, weight in shipped.named_parameters():
        if key in trained and trained[key].requires_grad:
            torch.testing.assert_close(weight, trained[key], rtol=1e-3, atol=1e-5)

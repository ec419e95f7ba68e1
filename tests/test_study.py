"""tools/study.py: budgets, arms, what a run leaves behind, and the saved results.

Right values: counts by hand, a log written by hand, and the formulas of the arms.
"""

import json
from pathlib import Path

import helpers
import pytest
import study
import torch
from helpers import toy

from eagle3.bench.environment import read_results
from eagle3.training.data import Sequence

ANSWERS = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(6)]
VOCABULARY = torch.arange(0, 96, 2)


@pytest.fixture(autouse=True)
def weights_of_the_toy(monkeypatch):
    monkeypatch.setattr(study, "library_model", helpers.library_toy)


def answer(count: int) -> Sequence:
    return Sequence(torch.zeros(3 + count, dtype=torch.int64), 3, "chat", 0.0)


def test_a_budget_takes_the_first_answers_that_fill_it(monkeypatch):
    monkeypatch.setattr(study, "UNIT", 10)
    sequences = [answer(6), answer(4), answer(7), answer(3), answer(1)]
    assert study.within(sequences, 1) == sequences[:2]
    assert study.within(sequences, 2) == sequences[:4]
    with pytest.raises(ValueError, match="21 answer tokens, and a budget of 3 takes"):
        study.within(sequences, 3)


@pytest.mark.parametrize("arm", study.ARMS)
def test_every_arm_is_trained_and_measured(arm, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "UNIT", 60)
    run = study.Run(arm, 1, seed=1)
    rounded = helpers.talking_toy(torch.bfloat16)
    given = study.Material(toy(), rounded, ANSWERS, ANSWERS[:2], VOCABULARY)
    trainer = study.train(run, given, tmp_path)
    sequences = study.within(ANSWERS, 1)
    assert trainer.step == len(sequences) // 2
    row = study.row_of(run, trainer, ANSWERS[:3])
    assert (row["arm"], row["budget"], row["seed"]) == (arm, 1, 1)
    assert row["answer_tokens"] == sum(len(s.token_ids) - 3 for s in sequences) >= 60
    # Chains may start at every token of an answer that has one behind it.
    assert row["chains"][0] == sum(len(s.token_ids) - 4 for s in ANSWERS[:3])
    assert len(row["n_alpha"]) == 8
    assert [point["step"] for point in row["curve"]] == [1, 2]
    lines = (trainer.folder / study.LOG_FILE).read_text(encoding="utf-8").splitlines()
    cycles = [json.loads(line)["cycles"] for line in lines if "cycles" in line]
    assert len(cycles) == 2
    start = ANSWERS[0].num_prompt + 1  # the first token is the prefill's
    for told in cycles:
        text = [t for c in told for t in (*c["drafted"][: c["kept"]], c["next"])]
        room = len(ANSWERS[0].token_ids) - start
        assert text[:room] == ANSWERS[0].token_ids[start:].tolist()


def test_arms_differ_in_one_thing_each():
    build = {name: arm(toy(), VOCABULARY, 0) for name, arm in study.ARMS.items()}
    whole, one = build["eagle1"].config, build["eagle1-no-feature-loss"].config
    assert vars(one) == vars(whole) | {"feature_weight": 0.0}
    assert vars(build["hass"].config) == vars(whole) | {"steps": 3, "top_k": 10}
    full = build["eagle3"].ttt
    assert (full.steps, full.tokens) == (5, "text")
    assert vars(build["eagle3-one-step"].ttt) == vars(full) | {"steps": 1}
    assert vars(build["eagle3-own-tokens"].ttt) == vars(full) | {"tokens": "own"}
    begun = build["eagle3-from-target"]
    assert begun.ttt == full
    last = helpers.library_toy().model.layers[-1].mlp.down_proj.weight
    assert torch.equal(begun.model.layer.down.weight, last)
    top = build["eagle3-no-fusion"]
    assert top.ttt == full
    assert {name: b.model.reads for name, b in build.items()} == {
        name: "features" if name.startswith("eagle3") and b is not top else "hidden"
        for name, b in build.items()
    }


def test_a_curve_has_the_mean_loss_before_each_point(tmp_path: Path):
    entries = [
        {"step": 1, "per_step": [4.0, 9.0]},
        {"step": 2, "token": [2.0, 9.0]},
        {"step": 2, "n_alpha": [0.2, 0.1, 0.3, 0.4, 0.5]},
        {"step": 2, "cycles": []},
        {"step": 3, "per_step": [1.0]},
        {"step": 3, "n_alpha": [0.3] * 8},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    assert study.curve(path) == [
        {"step": 2, "n_alpha": [0.2, 0.1, 0.3, 0.4], "loss": 3.0},
        {"step": 3, "n_alpha": [0.3] * 4, "loss": 1.0},
    ]


def test_results_have_the_rows_of_all_runs_in_order(tmp_path):
    for arm, seed in (("hass", 0), ("eagle3", 1), ("eagle3", 0)):
        run = study.Run(arm, 1, seed)
        (tmp_path / run.folder).mkdir()
        row = {"arm": arm, "budget": 1, "seed": seed}
        path = tmp_path / run.folder / study.ROW_FILE
        path.write_text(json.dumps(row), encoding="utf-8")
    study.collect({"what": "a test"}, tmp_path, tmp_path / "results")
    results = read_results("study", tmp_path / "results")
    assert results["what"] == "a test"
    assert [(r["arm"], r["seed"]) for r in results["runs"]] == [
        ("eagle3", 0),
        ("eagle3", 1),
        ("hass", 0),
    ]


def test_the_answer_of_a_chat_is_watched():
    def answer_of(kind: str) -> Sequence:
        return Sequence(torch.zeros(4, dtype=torch.int64), 3, kind, 0.0)

    held_out = [answer_of(kind) for kind in ("math", "chat", "chat")]
    assert study.watched(held_out) is held_out[1]
    assert study.watched(held_out[:1]) is held_out[0]


def test_a_unit_may_be_told():
    sequences = [answer(6), answer(4), answer(7)]
    assert study.within(sequences, 2, unit=5) == sequences[:2]
    assert study.within(sequences, 2, unit=6) == sequences

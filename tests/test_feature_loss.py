"""tools/feature_loss.py: the reading of a run's log, against one written by hand."""

import json
from pathlib import Path

import feature_loss
import pytest

from eagle3.bench.environment import read_results


def test_a_learning_curve_takes_the_losses_before_each_measurement(tmp_path: Path):
    entries = [
        {"step": 16, "feature": [1.0, 9.0], "token": [5.0, 9.0]},
        {"step": 32, "feature": [3.0, 9.0], "token": [7.0, 9.0]},
        {"step": 80, "n_alpha": [0.2, 0.1]},
        {"step": 96, "feature": [0.5, 9.0], "token": [2.0, 9.0]},
        {"step": 160, "n_alpha": [0.3, 0.2]},
    ]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / feature_loss.LOG_FILE).write_text(text, encoding="utf-8")
    assert feature_loss.learning_curve(tmp_path) == [
        {
            "sequences": 160,
            "n_alpha": [0.2, 0.1],
            "feature_loss": 2.0,
            "token_loss": 6.0,
        },
        {
            "sequences": 320,
            "n_alpha": [0.3, 0.2],
            "feature_loss": 0.5,
            "token_loss": 2.0,
        },
    ]
    assert feature_loss.learning_curve(tmp_path / "missing") == []


def test_the_runs_differ_in_losses_and_steps_alone():
    variants = feature_loss.VARIANTS
    assert [v.feature_weight > 0 for v in variants.values()] == [True, False, False]
    assert [v.steps for v in variants.values()] == [1, 1, 3]
    assert len({(v.token_weight, v.noise, v.top_k) for v in variants.values()}) == 1


def test_the_saved_results_are_of_these_runs():
    saved = read_results("feature_loss", feature_loss.RESULTS)
    assert list(saved["curves"]) == list(feature_loss.VARIANTS)
    steps = feature_loss.TRAINING.evaluate_every * feature_loss.TRAINING.batch_size
    for points in saved["curves"].values():
        seen = [point["sequences"] for point in points]
        assert seen == list(range(steps, feature_loss.NUM_SEQUENCES + 1, steps))
    assert saved["training"]["learning_rate"] == pytest.approx(1e-3)

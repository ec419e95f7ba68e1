"""tools/study_bench.py: drafts of the study beside plain decoding.

Times are those of a toy and mean nothing; tested are the answers, which are plain
decoding's own, the weights that are measured, and what is kept.
"""

import json
from pathlib import Path

import helpers
import pytest
import study
import study_bench
import torch

from eagle3.bench.questions import Question
from eagle3.bench.speedup import SpeedupConfig

ANSWERS = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(6)]
VOCABULARY = torch.arange(0, 96, 2)
ASKED = [Question(1, "chat", ("abc",)), Question(2, "code", ("hello",))]
CONFIG = SpeedupConfig(methods=(), temperatures=(0.0, 1.0), max_new_tokens=8, rounds=1)
ARMS = ("eagle1", "eagle3", "eagle3-no-fusion")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Three tiny runs of the study, all finished."""
    folder = tmp_path_factory.mktemp("runs")
    target = helpers.talking_toy()
    given = study.Material(target, target, ANSWERS, ANSWERS[:2], VOCABULARY, 60)
    for arm in ARMS:
        run = study.Run(arm, 1, 0)
        trainer = study.train(run, given, folder)
        row = folder / run.folder / study.ROW_FILE
        row.write_text("{}", encoding="utf-8")
        torch.save(trainer.recipe.model.state_dict(), row.with_suffix(".pt"))
    return folder


@pytest.mark.parametrize("arm", ARMS)
def test_the_draft_is_the_one_that_was_trained(arm: str, runs: Path):
    folder = runs / study.Run(arm, 1, 0).folder
    draft = study_bench.draft_of(folder, helpers.talking_toy(), VOCABULARY)
    trained = torch.load(folder / "row.pt", weights_only=True)
    for name, values in draft.state_dict().items():
        assert torch.equal(values, trained[name]), name


def test_each_draft_is_measured_beside_plain_decoding(runs: Path):
    target = helpers.talking_toy()
    facts = study_bench.circumstances(CONFIG, ASKED)
    for folder in study_bench.finished(runs, []):
        study_bench.measure(folder, target, VOCABULARY, CONFIG, ASKED)
        assert not (folder / study_bench.PARTIAL_FILE).exists()
    rows = study_bench.collect(runs, facts)
    assert [(r["arm"], r["budget"], r["seed"]) for r in rows] == [
        (arm, 1, 0) for arm in ARMS
    ]
    for row in rows:
        assert set(row["temperatures"]) == {"0", "1"}
        for temperature, found in row["temperatures"].items():
            assert list(found) == ["vanilla", "chain", "tree"]
            assert found["vanilla"]["speedup"] == 1
            for name in ("chain", "tree"):
                assert set(found[name]["speedup_by_kind"]) == {"chat", "code"}
                assert 1 <= found[name]["acceptance_length"] <= 5
                # Lossless: a draft of any quality leaves the answer as it is.
                assert found[name]["same_tokens"] is (
                    True if temperature == "0" else None
                )


def test_what_is_measured_is_not_measured_again(runs: Path, monkeypatch):
    target = helpers.talking_toy()
    folder = runs / study.Run("eagle3", 1, 0).folder
    study_bench.measure(folder, target, VOCABULARY, CONFIG, ASKED)
    before = (folder / study_bench.BENCH_FILE).read_text(encoding="utf-8")
    monkeypatch.setattr(study_bench, "decoders", None)  # would be called
    study_bench.measure(folder, target, VOCABULARY, CONFIG, ASKED)
    assert (folder / study_bench.BENCH_FILE).read_text(encoding="utf-8") == before
    with pytest.raises(TypeError):  # another question is another measurement
        study_bench.measure(folder, target, VOCABULARY, CONFIG, ASKED[:1])
    assert study_bench.collect(runs, {"config": "another"}) == []


def test_unfinished_runs_are_refused(tmp_path: Path):
    (tmp_path / "eagle3_1x_seed0").mkdir()
    assert study_bench.finished(tmp_path, []) == []
    with pytest.raises(ValueError, match="holds no finished run"):
        study_bench.finished(tmp_path, ["eagle3_1x_seed0"])


def test_what_is_kept_is_json(runs: Path):
    folder = runs / study.Run("eagle1", 1, 0).folder
    study_bench.measure(folder, helpers.talking_toy(), VOCABULARY, CONFIG, ASKED)
    kept = json.loads((folder / study_bench.BENCH_FILE).read_text(encoding="utf-8"))
    assert kept["facts"] == study_bench.circumstances(CONFIG, ASKED)

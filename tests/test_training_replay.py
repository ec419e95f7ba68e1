"""tools/training_replay.py and eagle3.training.replay: a run's log as a film.

Right values: logs written by hand, and the target's own answer, which every frame of a
replay has to commit, however bad the draft.
"""

import json
from pathlib import Path

import helpers
import pytest
import study
import torch
import training_replay

from eagle3.training import replay

ANSWERS = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(6)]
VOCABULARY = torch.arange(0, 96, 2)
ANSWER = [7, 1, 2, 3, 4, 5, 6]
LOG = [
    {"step": 20, "per_step": [4.0, 5.0], "accuracy": [0.1, 0.0]},
    {"step": 30, "n_alpha": [0.2, 0.1]},
    {"step": 30, "cycles": [{"drafted": [9, 9], "kept": 0, "next": n} for n in ANSWER]},
    {"step": 40, "per_step": [3.0, 4.5], "accuracy": [0.2, 0.1]},
    {"step": 50, "n_alpha": [0.4, 0.3]},
    {"step": 50, "cycles": [
        {"drafted": [1, 2], "kept": 2, "next": 3},
        {"drafted": [4, 5], "kept": 2, "next": 6},
        {"drafted": [8], "kept": 0, "next": 7},
    ]},
]  # fmt: skip
LOG[2]["cycles"] = LOG[2]["cycles"][1:]  # the first token comes before all cycles


def test_a_replay_keeps_losses_and_frames_in_order():
    told = replay.replay(LOG, ANSWER)
    assert told["losses"] == [
        {"step": 20, "per_step": [4.0, 5.0]},
        {"step": 40, "per_step": [3.0, 4.5]},
    ]
    assert [f["step"] for f in told["frames"]] == [30, 50]
    assert [f["n_alpha"] for f in told["frames"]] == [[0.2, 0.1], [0.4, 0.3]]
    for frame in told["frames"]:
        text = [t for cycle in frame["cycles"] for t in cycle["emitted"]]
        assert text == ANSWER[1:]
    slow, fast = map(replay.acceptance_length, told["frames"])
    assert (slow, fast) == (1.0, 3.0)  # what follows the answer's end is cut


def test_a_cycle_is_cut_at_the_end_of_the_answer():
    (cycle,) = replay.cut([{"drafted": [1, 2], "kept": 2, "next": 3}], [7, 1, 2])
    assert cycle == {"drafted": [1, 2], "kept": 2, "emitted": [1, 2]}


def test_cycles_of_another_answer_are_refused():
    with pytest.raises(ValueError, match=r"commits \[9\] where the answer has \[1\]"):
        replay.cut([{"drafted": [], "kept": 0, "next": 9}], ANSWER)


def test_a_log_of_eagle_1_tells_its_token_loss():
    told = replay.replay([{"step": 20, "token": [6.0], "feature": [0.1]}], ANSWER)
    assert told == {"losses": [{"step": 20, "per_step": [6.0]}], "frames": []}


def test_a_log_is_read_up_to_the_line_that_a_kill_cut(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(LOG[0]) + '\n{"step": 30, "n_al', encoding="utf-8")
    assert replay.read_log(path) == LOG[:1]
    with pytest.raises(ValueError, match="is missing"):
        replay.read_log(tmp_path / "no.jsonl")


def test_a_folder_is_named_after_its_run():
    for arm in study.ARMS:
        run = study.Run(arm, 4, 2)
        assert training_replay.run_of(Path("x") / run.folder) == run
    for name in ("eagle3", "eagle4_1x_seed0", "eagle3_1x_seed", "features"):
        with pytest.raises(ValueError, match="is no run of the study"):
            training_replay.run_of(Path(name))


def test_the_watched_answer_is_found_by_its_text():
    target = helpers.talking_toy()
    recipe = study.ARMS["eagle3"](target, VOCABULARY, 0)
    cycles = study.cycles_on(recipe, ANSWERS[3])
    assert training_replay.watched([{"cycles": cycles}], ANSWERS) is ANSWERS[3]
    cycles[0]["next"] += 1
    with pytest.raises(ValueError, match="no held-out answer is the one"):
        training_replay.watched([{"cycles": cycles}], ANSWERS)
    with pytest.raises(ValueError, match="no evaluation yet"):
        training_replay.watched(LOG[:2], ANSWERS)


def test_the_question_is_the_users_words():
    system = "<|im_start|>system\nYou are X<|im_end|>\n"
    user = "<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n"
    assert training_replay.question(system + user) == "Hi?"


def test_runs_are_collected_with_the_untrained_draft_first(tmp_path):
    target = helpers.talking_toy()
    given = study.Material(target, target, ANSWERS, ANSWERS[:2], VOCABULARY, 60)
    runs = [study.Run(arm, 1, 0) for arm in ("eagle3", "eagle1")]
    for run in runs:
        study.train(run, given, tmp_path)
    found = training_replay.collect(
        training_replay.Given(target, VOCABULARY, ANSWERS[:2]),
        [tmp_path / run.folder for run in runs],
    )
    assert json.loads(json.dumps(found))["answer"] == found["answer"]
    answer = ANSWERS[0].token_ids[ANSWERS[0].num_prompt :].tolist()
    assert found["answer"] == answer[: training_replay.LONGEST]
    assert list(found["runs"]) == [run.folder for run in runs]
    for run in found["runs"].values():
        assert [frame["step"] for frame in run["frames"]] == [0, 1, 2]
        for frame in run["frames"]:
            text = [t for cycle in frame["cycles"] for t in cycle["emitted"]]
            assert text == found["answer"][1:]
            assert len(frame["n_alpha"]) == 8
        assert {type(found["texts"][t]) for t in text} == {str}


def test_runs_that_watched_other_answers_are_refused(tmp_path: Path):
    target = helpers.talking_toy()
    recipe = study.ARMS["eagle3"](target, VOCABULARY, 0)
    folders = []
    for seed in (0, 1):
        folders.append(tmp_path / study.Run("eagle3", 1, seed).folder)
        folders[-1].mkdir()
        entry = {"step": 1, "cycles": study.cycles_on(recipe, ANSWERS[seed])}
        (folders[-1] / "log.jsonl").write_text(json.dumps(entry), encoding="utf-8")
    given = training_replay.Given(target, VOCABULARY, ANSWERS[:2])
    with pytest.raises(ValueError, match="seed1 watched another answer"):
        training_replay.collect(given, folders)

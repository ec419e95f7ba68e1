"""Training on two processes, started by torchrun and by accelerate.

The right values are those of one process with the whole batch: the same losses, the
same n-alpha, the same weights but for rounding.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import toy
from process_runs import CONFIG, RUNS, SEQUENCES, new_run
from safetensors.torch import load_file
from torch.testing import assert_close

from eagle3.training import processes
from eagle3.training.features import FeatureStore
from eagle3.training.trainer import LOG_FILE, Trainer

TESTS = Path(__file__).parent
TORCHRUN = "torch.distributed.run --standalone --nproc-per-node 2"
ACCELERATE = (
    "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--main_process_port 0"
)


def launch(launcher: str, folder: Path, *names: str) -> subprocess.CompletedProcess:
    script = TESTS / "process_runs.py"
    search = os.pathsep.join([str(TESTS.parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", *launcher.split(), script, folder, *names],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": search},
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """A folder with all runs by two processes, and one that was killed."""
    folder = tmp_path_factory.mktemp("two")
    found = launch(TORCHRUN, folder, *RUNS, "eagle3/killed")
    (folder / "stderr").write_text(found.stderr, encoding="utf-8")
    assert found.returncode != 0 and "exitcode  : 9" in found.stderr, found.stderr
    return folder


def log(run: Path) -> list[dict]:
    lines = (run / LOG_FILE).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "step-000004" / "model.safetensors")


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_does(two, tmp_path, name):
    """Weights agree less closely than losses: the first steps of AdamW are as long for
    a gradient that is nothing but rounding as for any other."""
    alone = new_run(name, tmp_path / name)
    alone.train()
    ours, theirs = log(two / name), log(alone.folder)
    assert [entry["step"] for entry in ours] == [1, 2, 2, 3, 4, 4]
    for entry, wanted in zip(ours, theirs, strict=True):
        assert entry.keys() == wanted.keys()
        for key in entry:
            assert entry[key] == pytest.approx(wanted[key], rel=2e-5, abs=2e-6), key
    found, wanted = weights(two / name), weights(alone.folder)
    for key, value in found.items():
        assert_close(value, wanted[key], atol=1e-4, rtol=1e-3)


def test_one_process_tells_and_each_looks_at_its_share(two):
    stderr = (two / "stderr").read_text(encoding="utf-8")
    assert stderr.count("training:   0%") == len(RUNS) + 1
    looks = [int((two / f"looks-{i}").read_text("utf-8")) for i in (0, 1)]
    # 7 and 9 sequences in files of 2, every second file to each process
    assert looks == [2 + 2 + 2 + 2 + 1, 2 + 1 + 2 + 2]


def test_a_killed_run_goes_on_under_another_launcher(two):
    """To the bits of the run that was not killed."""
    killed = two / "eagle3-killed"
    assert json.loads((killed / "state.json").read_text("utf-8"))["step"] == 2
    with pytest.raises(ValueError, match="another number of processes: finish it as"):
        new_run("eagle3", killed).train()
    found = launch(ACCELERATE, two, "eagle3/killed")
    assert found.returncode == 0, found.stderr
    assert log(killed) == log(two / "eagle3")
    ours, wanted = weights(killed), weights(two / "eagle3")
    assert all(torch.equal(ours[name], wanted[name]) for name in wanted)


# Refusals, before any work; here a process alone plays one of several


def test_a_batch_needs_a_sequence_for_every_process(tmp_path, monkeypatch):
    recipe = new_run("eagle3", tmp_path).recipe
    monkeypatch.setattr(processes, "world_size", lambda: 3)
    config = replace(CONFIG, batch_size=2)
    with pytest.raises(ValueError, match="batch of 2 can't be shared by 3 processes"):
        Trainer(toy(), recipe, (SEQUENCES, []), tmp_path / "run", config)


def test_processes_without_a_common_folder_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("eagle3.training.features.SEQUENCES_PER_FILE", 2)
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    monkeypatch.setattr(processes, "wait", lambda: None)
    with pytest.raises(ValueError, match="give all processes the same folder"):
        FeatureStore(toy(), SEQUENCES, tmp_path)


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch):
    assert processes.own_device("cuda") == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert processes.own_device("cuda") == "cuda:1"
    assert processes.own_device("cpu") == "cpu"

"""kill -9 at moments by lot, and a full disk: the old state or the new one, never half.

The jobs run in forked processes, so that a kill is a kill: nothing gets to clean up.
The right value is what a run writes that nobody disturbed. What downloads and converts
the default model is killed in `test_fetch`, a bench in `test_bench_speedup`.

torch refuses to train in a fork of a process that has trained already, as this one may
have. So what trains is checked by a fresh process, which forks.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import helpers
import pytest
import torch
from helpers import toy
from test_trainer import DATA, _generate_here, trainer

from eagle3.bench.environment import read_results, write_results
from eagle3.checkpoint import load_draft, save_draft
from eagle3.fetch import FreshFolder, is_sealed, seal
from eagle3.training.data import load_data

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_a_process(job: Callable[[], None], limit: int | None = None) -> int:
    """Start a job in a process of its own; limit: bytes of the longest file."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if limit is not None:
                import resource

                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
                sys.stderr = nowhere
                job()
            code = 0
        finally:
            os._exit(code)
    return child


def killed_after(job: Callable[[], None], seconds: float) -> bool:
    """Whether the job was killed before it came to its end."""
    child = in_a_process(job)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def digests(folder: Path) -> dict[str, str]:
    """What lies in a folder, without what a kill may leave of temporary files."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".tmp", ".part")
    }


def train(folder: Path) -> None:
    trainer(folder).train()


def generate_data(folder: Path) -> None:
    _generate_here(DATA, folder)


def check_kills(job: Callable[[Path], None], folder: Path) -> None:
    """Kill a job five times; at last it ends as if it had never been killed."""
    started = time.monotonic()
    os.waitpid(in_a_process(lambda: job(folder / "whole")), 0)
    whole, seconds = digests(folder / "whole"), time.monotonic() - started
    assert whole
    dice, kills = random.Random(4), 0
    for _ in range(5):
        moment = dice.uniform(0.0, 0.9 * seconds)
        kills += killed_after(lambda: job(folder / "cut"), moment)
    assert kills
    os.waitpid(in_a_process(lambda: job(folder / "cut")), 0)
    assert digests(folder / "cut") == whole


def check_full_disk_in_training(folder: Path) -> None:
    os.waitpid(in_a_process(lambda: train(folder / "whole")), 0)
    whole = digests(folder / "whole")
    largest = max(p.stat().st_size for p in folder.rglob("*.safetensors"))
    assert fails(lambda: train(folder / "cut"), largest // 2)
    os.waitpid(in_a_process(lambda: train(folder / "cut")), 0)
    assert digests(folder / "cut") == whole


def in_a_fresh_process(check: str, folder: Path) -> None:
    """Run a check of this file, `check` as source with the name `folder`."""
    tests = Path(__file__).parent
    script = f"from test_kills import *\nfolder = Path({str(folder)!r})\n{check}"
    path = os.pathsep.join((str(tests), str(tests.parent)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr


def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(tmp_path):
    check_kills(generate_data, tmp_path)


def test_killed_training_goes_on_and_ends_with_the_same_bytes(tmp_path):
    in_a_fresh_process("check_kills(train, folder)", tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_a_draft_that_is_saved_again_is_the_old_one_or_the_new_one(seed, tmp_path):
    drafts = [helpers.new_draft(toy(), 48, seed=n) for n in (1, 2)]
    heads = [draft.lm_head.weight for draft in drafts]
    save_draft(drafts[0], tmp_path)

    def job() -> None:
        for _ in range(200):
            for draft in drafts:
                save_draft(draft, tmp_path)

    assert killed_after(job, random.Random(seed).uniform(0.05, 0.3))
    found = load_draft(tmp_path, toy()).lm_head.weight
    assert any(torch.equal(found, head) for head in heads)


def test_results_are_the_old_ones_or_the_new_ones(tmp_path):
    def job() -> None:
        for n in range(10_000):
            write_results("x", {"numbers": [n] * 500}, tmp_path)

    write_results("x", {"numbers": [0] * 500}, tmp_path)
    for seed in range(3):
        assert killed_after(job, random.Random(seed).uniform(0.02, 0.2))
        numbers = read_results("x", tmp_path)["numbers"]
        assert len(numbers) == 500 and len(set(numbers)) == 1


def test_a_folder_is_sealed_whole_or_isnt_there(tmp_path):
    def job() -> None:
        for _ in range(1000):
            with FreshFolder(tmp_path / "model") as folder:
                for name in "abc":
                    (folder / name).write_bytes(os.urandom(200_000))
                seal(folder, "source")

    for seed in range(4):
        assert killed_after(job, random.Random(seed).uniform(0.02, 0.2))
        folder = tmp_path / "model"
        assert not folder.exists() or is_sealed(folder, "source")


# A disk that is full: no file can grow beyond a limit


def fails(job: Callable[[], None], limit: int) -> bool:
    _, status = os.waitpid(in_a_process(job, limit), 0)
    return os.waitstatus_to_exitcode(status) == 1


def test_a_full_disk_leaves_the_old_draft(tmp_path):
    old, new = (helpers.new_draft(toy(), 48, seed=n) for n in (1, 2))
    save_draft(old, tmp_path)
    before = digests(tmp_path)
    assert fails(lambda: save_draft(new, tmp_path), 10_000)
    assert digests(tmp_path) == before
    assert [path.name for path in tmp_path.glob(".*")] == []  # nothing lies about


def test_a_full_disk_leaves_the_old_results(tmp_path):
    write_results("x", {"numbers": [1]}, tmp_path)
    before = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    job = lambda: write_results("x", {"n": list(range(9000))}, tmp_path)  # noqa: E731
    assert fails(job, 1000)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == before


def test_a_full_disk_stops_training_and_it_goes_on_later(tmp_path):
    in_a_fresh_process("check_full_disk_in_training(folder)", tmp_path)


def test_a_full_disk_leaves_no_half_shard(tmp_path):
    assert fails(lambda: generate_data(tmp_path / "data"), 300)
    assert not list((tmp_path / "data").glob("shard-*.safetensors"))
    generate_data(tmp_path / "data")
    assert len(load_data(tmp_path / "data")) == DATA.num_prompts

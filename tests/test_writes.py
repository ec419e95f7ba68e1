"""Nothing is written but where the reader said: into the cache and the output folder.

Python tells an audit hook about every file that is opened. The hook can't be removed
again, so it only listens while a test asks it to.
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import helpers
from helpers import PROMPT, toy
from test_trainer import DATA, _generate_here, trainer

from eagle3.bench.environment import write_results
from eagle3.checkpoint import load_draft, save_draft
from eagle3.doctor.environment import environment
from eagle3.engine import generate

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink")
_listening: list[set[str]] = []


def _hook(event: str, args: tuple) -> None:
    if not _listening:
        return
    if event == "open":
        path, mode, flags = args
        writes = set(mode or "") & set("wax+") or (mode is None and flags & _WRITES)
        if writes and not isinstance(path, int):
            _listening[-1].add(os.fspath(path))
    elif event in _CHANGES:
        _listening[-1].update(os.fspath(a) for a in args if isinstance(a, str | Path))


sys.addaudithook(_hook)


@contextmanager
def written():
    """The paths that are opened to be written, made, moved or removed meanwhile."""
    _listening.append(set())
    try:
        yield _listening[-1]
    finally:
        _listening.pop()


def outside(paths: set[str], folder: Path) -> list[str]:
    allowed = (str(folder), os.devnull)
    return [p for p in map(str, paths) if not p.startswith(allowed)]


def test_the_hook_hears_of_a_file(tmp_path):
    with written() as paths:
        (tmp_path / "a").write_text("x", encoding="utf-8")
        (tmp_path / "b").mkdir()
        (tmp_path / "a").read_text(encoding="utf-8")
    assert paths == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert outside(paths, tmp_path / "b") == [str(tmp_path / "a")]


def test_nothing_is_written_outside_the_chosen_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))
    draft = helpers.trained_draft()
    with written() as paths:
        generate(toy(), draft, PROMPT, max_new_tokens=4)
    assert not paths
    with written() as paths:
        save_draft(draft, tmp_path / "draft")
        load_draft(tmp_path / "draft", toy())
        write_results("x", {"n": 1}, tmp_path / "results")
        _generate_here(DATA, tmp_path / "data")
        trainer(tmp_path / "run").train()
    assert paths and outside(paths, tmp_path) == []


def test_the_doctor_writes_into_the_cache_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))
    with written() as paths:
        environment()
    assert outside(paths, tmp_path) == []

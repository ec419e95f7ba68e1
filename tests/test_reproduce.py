"""tools/reproduce.py: the commands exist, hours are right, a broken chain goes on.

Right values: the tools' and commands' own parameters, and file times set by hand.
"""

import inspect
import os
from pathlib import Path

import pytest
import reproduce
from reproduce import Stage

from eagle3.__main__ import app

COMMANDS = {
    command.name or command.callback.__name__.replace("_", "-"): command.callback
    for command in app.registered_commands
}
ALL = [command for stage in reproduce.STAGES for command in stage.commands]


@pytest.mark.parametrize("command", ALL, ids=lambda c: " ".join(c[1:4]))
def test_every_command_of_the_chain_exists(command):
    first, *rest = command[1:]
    if first.startswith("tools/"):
        assert (reproduce.ROOT / first).exists()
        text = (reproduce.ROOT / first).read_text(encoding="utf-8")
        for option in rest:
            if option.startswith("--"):
                assert f'"{option}"' in text, option
    elif rest[0] == "eagle3":
        known = inspect.signature(COMMANDS[rest[1]]).parameters
        for option in rest[2:]:
            if option.startswith("--"):
                assert option[2:].replace("-", "_") in known, option
    else:
        assert rest == ["eagle3.plots"]


def test_the_chain_goes_from_data_to_chapters():
    names = [stage.name for stage in reproduce.STAGES]
    assert names[0] == "training answers"
    assert names[-2:] == ["figures", "chapters"]
    assert len(set(names)) == len(names)


def test_hours_are_those_between_the_first_file_and_the_last(tmp_path: Path):
    stage = Stage("a", "b", (), ("data/shard-*", "runs/*/row.json"))
    for name, at in (("data/shard-1", 1000), ("data/shard-2", 4600),
                     ("data/other", 99_999), ("runs/x/row.json", 10_000)):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        assert reproduce.hours_of_files(stage, tmp_path) is None  # only begun
        path.touch()
        os.utime(path, (at, at))
    assert reproduce.hours_of_files(stage, tmp_path) == 2.5


def test_a_chain_that_broke_goes_on(tmp_path: Path):
    """The broken stage's time counts, and what was through is not run again."""
    stages = [Stage("one", "", (("x", "{folder}/data"),)),
              Stage("two: b", "", (("y",), ("z",)))]  # fmt: skip
    called, broken = [], {("z",)}

    def call(command):
        called.append(command)
        if command in broken:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        reproduce.run(stages, tmp_path, call)
    assert called == [("x", f"{tmp_path}/data"), ("y",), ("z",)]
    first = reproduce.hours_here(tmp_path)["two: b"]
    broken.clear()
    reproduce.run(stages, tmp_path, call)
    assert called[3:] == [("y",), ("z",)]
    assert reproduce.hours_here(tmp_path)["two: b"] > first
    reproduce.run(stages, tmp_path, call)
    assert len(called) == 5
    rows = reproduce.hours(stages, tmp_path)
    assert [row["name"] for row in rows] == ["one", "two: b"]
    assert all(row["hours"] >= 0 for row in rows)


def test_unknown_hours_are_a_dash():
    rows = [{"name": "a", "what": "b", "hours": None},
            {"name": "c", "what": "d", "hours": 2.254}]  # fmt: skip
    first, second = reproduce.told(rows).splitlines()
    assert first.split() == ["a", "-", "b"]
    assert second.split() == ["c", "2.25", "h", "d"]


def test_hours_that_are_missing_here_are_ours():
    here = [{"name": "a", "what": "", "hours": 1.0},
            {"name": "b", "what": "", "hours": None},
            {"name": "c", "what": "", "hours": None}]  # fmt: skip
    ours = [{"name": "b", "hours": 2.0}, {"name": "a", "hours": 9.0}]
    assert [row["hours"] for row in reproduce.filled(here, ours)] == [1.0, 2.0, None]


@pytest.mark.real
def test_the_chain_in_short_learns(tmp_path: Path):
    """Four times the data: lower loss and more right guesses, on held-out answers."""
    little, more = reproduce.short(tmp_path)["runs"]
    assert (little["budget"], more["budget"]) == (1, 4)
    assert little["chains"][0] == more["chains"][0] > 0
    assert more["answer_tokens"] > 3 * little["answer_tokens"]
    assert more["curve"][-1]["loss"] < little["curve"][-1]["loss"]
    assert more["n_alpha"][0] > little["n_alpha"][0]

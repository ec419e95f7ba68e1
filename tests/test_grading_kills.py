"""kill -9 while a class is graded: the table is the old one or the new one.

The command runs in a forked process and is killed at moments by lot, and at the worst
ones. The right value is what a run writes that nobody disturbed.
"""

import contextlib
import csv
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from planted.plant import solutions, write_submission
from test_grading import NAME, plan
from test_kills import digests, in_a_process

from eagle3.grading import grade
from eagle3.grading.grade import Result, grade_folder, write_table
from eagle3.grading.judge import Mark

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
OLD = "student,assignment\nthe table,of last year\n"


def command(work: Path, out: Path, *options: str) -> None:
    """`python -m eagle3 grade`, in this process."""
    from eagle3.__main__ import app

    app(["grade", str(work), "--out", str(out), *options], standalone_mode=False)


def students(work: Path) -> Path:
    """Four notebooks: all right, one question of it, one that ends itself, and none."""
    right = solutions(NAME)
    first = next(iter(right))
    write_submission(work, "ann", NAME, right)
    write_submission(work, "bob", NAME, {first: right[first]})
    write_submission(work, "cyd", NAME, {first: "import os\nos._exit(3)"})
    write_submission(work, "dan", NAME, {})
    return work


def of_session(session: int) -> list[int]:
    """Processes of a session that are alive: what a killed one left behind."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, *numbers = path.read_text("utf-8").rpartition(")")[2].split()
            if int(numbers[2]) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


def killed(process: int) -> bool:
    """Kill a process; whether it hadn't ended by itself."""
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_a_killed_grading_goes_on_and_ends_as_one_that_was_left_alone(tmp_path):
    work = students(tmp_path / "work")
    whole, cut = (tmp_path / name / "grades.csv" for name in ("whole", "cut"))
    os.waitpid(in_a_process(lambda: command(work, whole)), 0)
    seed = (whole.with_suffix("") / "_seed.txt").read_text(encoding="utf-8").strip()
    right = digests(whole.parent)
    assert len(right) == 2 + 2 * 4  # the table, the seed, and a page and marks each

    cut.parent.mkdir()
    cut.write_text(OLD, encoding="utf-8")
    new = whole.read_text(encoding="utf-8")
    sessions = tmp_path / "sessions"

    def job() -> None:
        os.setsid()
        with sessions.open("a", encoding="utf-8") as file:
            print(os.getpid(), file=file)
        command(work, cut, "--seed", seed)

    dice, kills, kept = random.Random(6), 0, set()
    for done in (0, 1, 3):  # notebooks with marks, and then a moment by lot
        process = in_a_process(job)
        while len(set(cut.parent.rglob("*.json"))) < done:
            assert os.waitpid(process, os.WNOHANG) == (0, 0)
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.5))
        kills += killed(process)
        assert cut.read_text(encoding="utf-8") in (OLD, new)
        finished = set(cut.parent.rglob("*.json"))
        for path in finished:  # each is whole, and what was done is not lost
            twin = whole.parent / path.relative_to(cut.parent)
            assert path.read_bytes() == twin.read_bytes()
        assert kept <= finished
        kept = finished
    assert kills
    os.waitpid(in_a_process(job), 0)
    assert digests(cut.parent) == right
    if Path("/proc/self/stat").exists():  # what ran student code ends by itself
        for number in sessions.read_text(encoding="utf-8").split():
            deadline = time.monotonic() + 60  # that torch may take to be loaded
            while of_session(int(number)) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert of_session(int(number)) == []


def kill_me(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", ["before the rows", "before its name"])
def test_a_table_that_is_half_written_does_not_count(moment, tmp_path):
    """The worst moments: the header alone is in the file, or all but its name."""
    out = tmp_path / "grades.csv"
    out.write_text(OLD, encoding="utf-8")
    results = [Result("ann", NAME, "", (Mark("law", "one", "", 8, 8, ""),))]

    def job() -> None:
        if moment == "before the rows":
            csv.DictWriter.writerows = kill_me
        else:
            Path.replace = kill_me
        write_table(results, out)

    _, status = os.waitpid(in_a_process(job), 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert out.read_text(encoding="utf-8") == OLD
    write_table(results, out)
    assert "ann,a1_lossless,8,8,8," in out.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["grades.csv"]


def test_marks_that_are_half_written_are_given_again(tmp_path):
    """Also if a disk lost the end of a file whose name was there already."""
    work, out = tmp_path / "work", tmp_path / "grades.csv"
    write_submission(work, "ann", NAME, {})
    [first] = grade_folder(work, out, plan(seed=1))
    marks = tmp_path / "grades" / "ann" / f"{NAME}.json"
    before = digests(tmp_path)
    text = marks.read_text(encoding="utf-8")
    for part in (0, len(text) // 2, len(text) - 3):
        marks.write_text(text[:part], encoding="utf-8")
        assert grade_folder(work, out, plan(seed=1)) == [first]
        assert digests(tmp_path) == before
    assert json.loads(marks.read_text(encoding="utf-8"))["student"] == "ann"


def test_a_kill_while_the_seed_is_written_leaves_the_old_one(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    assert grade._seed(tmp_path, 5) == 5
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            grade._seed(tmp_path, 6)
    assert grade._seed(tmp_path, None) == 5

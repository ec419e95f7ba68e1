"""Attacks on the grader itself: on what it reads, what it writes, and its helper.

What must hold is stated for each: nobody else's grade changes, the run goes on to its
end, and a lie on the wire gives no more than the truth would.
"""

import csv
import json
import math
import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from planted.plant import COURSE, cells_of, solutions, write_submission
from test_grading_hostile import value_of

from eagle3.grading import worker as worker_module
from eagle3.grading._inside import jail, lift, plain
from eagle3.grading.collect import find_submissions
from eagle3.grading.grade import Plan, grade_folder, write_table
from eagle3.grading.judge import differs, grade_question
from eagle3.grading.notebook import MAX_BYTES, digest, readable
from eagle3.grading.worker import Answers, Limits, NoValue, Worker, _Talk

NAME, CHAIN = "a1_lossless", "a3_chain_engine"
LIMITS = Limits(cpu_s=4, wall_s=60, memory_mb=512)
LAW = next(q for q in COURSE.assignment(NAME).questions(0) if q.name == "law")
ENGINE = next(q for q in COURSE.assignment(CHAIN).questions(0) if q.name == "generate")
HEAD = "def law(q, keep, instead):\n"
# How a submission finds the line to the grader, and writes what it likes on it.
WIRE = """import gc, io, json


def say(*messages):
    wire = [x for x in gc.get_objects() if isinstance(x, io.BufferedRWPair)][0]
    for message in messages:
        text = message if isinstance(message, str) else json.dumps(message)
        wire.write(text.encode() + b"\\n")
    wire.flush()


"""


@pytest.fixture(scope="module")
def worker():
    with Worker(LIMITS, hidden=[COURSE.folder]) as one:
        yield one


def score(worker, answer, question=LAW, name=NAME):
    """Points of a question with this answer, and all words."""
    cells = cells_of(name, {question.name: answer, "bias": "", "hunt": ""})
    found = grade_question(worker, question, cells, seed=3)
    return sum(m.points for m in found), " ".join(m.words for m in found if m.words)


# --- on the wire ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('\'{"case": 1e999, "again": false, "value": 1}\'', "can't be read"),
        ('\'{"case": 0, "again": false, "value": \' + "9" * 4000 + "}"', "64 bits"),
        (
            '\'{"case": 0, "again": false, "value": {"dtype": "float64", "shape": \''
            "'[1], \"values\": [' + '9' * 4000 + ']}}'",
            "64 bits",
        ),
        (
            '\'{"case": 0, "again": false, "value": [\' + "[]," * 3_000_000 + "[]]}"',
            "far too much",
        ),
    ],
)
def test_an_odd_line_loses_its_own_points_and_the_next_one_is_heard(
    worker, line, words
):
    code = f"{WIRE}{HEAD}    say({line})\n    return q\n"
    points, told = score(worker, code)
    assert points == 0
    assert words in told
    assert score(worker, solutions(NAME)["law"]) == (20, "")


def test_numbers_that_cross_are_bounded():
    for value in (2**63, -(2**63), 10**400):
        with pytest.raises(plain.NotPlain, match="64 bits"):
            plain.unpack(value)
        with pytest.raises(plain.NotPlain, match="64 bits"):
            plain.unpack({"dtype": "float64", "shape": [1], "values": [value]})


class Counts:
    """A function of the grader's that counts its calls."""

    def begin(self):
        self.calls = 0

    def seen(self):
        return {"calls": self.calls}

    def __call__(self):
        self.calls += 1


def test_a_call_cannot_be_prepared_before_it_begins():
    """What the second call could ask in advance, the first would then know for free."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        talk, answers = _Talk(mine, 0, {1: {"ask": Counts()}}), Answers()
        first, second = ({"case": 1, "again": again} for again in (False, True))
        talk.take({**second, "begins": True}, answers)
        talk.take({"call": "ask", "arguments": []}, answers)
        talk.take({**first, "begins": True}, answers)
        talk.take({**first, "value": 1}, answers)
        assert answers.values == {}
        talk.take({**second, "value": 1}, answers)
    assert answers.seen == {(1, True): {"ask": {"calls": 1}}}


def test_an_answer_cannot_be_given_for_another_call(worker):
    """Wrong answers to all calls but the first are sent in it, ahead of time."""
    lie = "    ahead = [] if SENT else [(i, b) for i in range(1, 9) for b in (0, 1)]\n"
    lie += "    SENT.append(1)\n"
    lie += "    say(*[dict(case=i, again=b == 1, value=1) for i, b in ahead])\n"
    right = solutions(NAME)["law"].split("\n")[-1]
    assert score(worker, f"{WIRE}SENT = []\n{HEAD}{lie}{right}\n") == (20, "")


def test_infinity_for_the_graders_own_function_is_the_students_error(worker):
    code = "def generate(prompt, length, count, stop, target, draft):\n"
    points, words = score(
        worker, f"{code}    target(0, [float('inf')])\n", ENGINE, CHAIN
    )
    assert points == 0
    assert "infinity" in words


# --- the helper -----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="a group of its own, as Linux has")
def test_a_signal_to_the_group_reaches_nobody_else(worker):
    value, _ = value_of(worker, "import os\nit = [os.getpgrp() == os.getpid()]")
    assert np.array_equal(value, [True])


def test_a_helper_that_is_lost_is_replaced(monkeypatch):
    """As where there are no walls, and a submission kills or stops the helper."""
    with Worker(LIMITS) as own:
        own._process.kill()
        own._process.wait()
        assert value_of(own, "it = 1")[0] == 1
        os.kill(own._process.pid, signal.SIGSTOP)
        own.limits = Limits(cpu_s=4, wall_s=1, memory_mb=512)
        with monkeypatch.context() as hurry:
            hurry.setattr(worker_module, "GRACE_S", 0.2)
            with pytest.raises(OSError, match="no process for student code"):
                value_of(own, "it = 1")
        own.limits = LIMITS
        assert value_of(own, "it = 1")[0] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends them")
def test_what_sleeps_ends_with_the_helper(worker):
    """A submission that sleeps doesn't outlive a helper that is killed."""
    cell = ["cell 1", "import time\nit = time.sleep(50)"]
    job = {"name": "it", "cells": [cell], "cases": None}
    with Worker(LIMITS) as own, own._order() as line:
        line.sendall(json.dumps(job).encode() + b"\n")
        assert b"ready" in line.recv(1000)
        own._process.kill()
        line.settimeout(20)
        left = b"".join(iter(lambda: line.recv(1000), b""))
    assert b"done" not in left


def test_what_is_hidden_is_hidden_under_every_name(tmp_path):
    real, other = tmp_path / "usr", tmp_path / "lib"
    (real / "book").mkdir(parents=True)
    other.symlink_to(real)
    readable_ = {str(real): str(real), str(other): str(real)}
    hidden = [str(other / "book"), str(tmp_path), str(real / "missing")]
    places = jail.places_of(hidden, readable_)
    assert places == {f"{real}/book", f"{other}/book"}


def test_python_stays_in_a_hidden_folder(worker):
    """A book in /usr/src that has its .venv in it, say."""
    if not worker.walls:
        pytest.skip("this system gives no namespaces to this user")
    import torch

    packages = Path(torch.__file__).parents[1]
    with Worker(LIMITS, hidden=[packages.parent]) as own:
        code = f"import os, torch.fft\nit = os.listdir({str(packages.parent)!r})"
        assert value_of(own, code)[0] == [packages.name]
    with Worker(LIMITS, hidden=[packages / "torch" / "fft"]) as own:
        assert "fft" in value_of(own, "import torch\nit = torch.fft.__file__")[0]
        code = f"import os\nit = os.listdir({str(packages / 'torch' / 'fft')!r})"
        assert value_of(own, code)[0] == []


def test_the_fence_hides_what_lies_in_pythons_folders(worker, monkeypatch):
    monkeypatch.setattr(worker, "walls", False)
    folder = Path(json.__file__).parent
    code = f"it = len(open({str(folder / 'decoder.py')!r}).read())"
    assert value_of(worker, code)[0] > 100
    monkeypatch.setattr(worker, "hidden", [str(folder)])
    assert "can't be opened" in str(value_of(worker, code)[1].problems)


def test_every_mount_of_a_folder_is_made_read_only(monkeypatch, tmp_path):
    table = "1 0 0:1 / {0} rw\n2 1 0:1 / {0}/a\\040b rw\n3 1 0:1 / {0}x rw\n"
    file = tmp_path / "mountinfo"
    file.write_text(table.format("/usr"), encoding="utf-8")
    monkeypatch.setattr("builtins.open", lambda *_, **__: file.open("rb"))
    assert jail.mounts_in("/usr") == ["/usr", "/usr/a b"]


# --- what is judged -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (np.array([5.0, 1.0]), np.array([np.inf, 1.0])),
        (np.array([5.0, 1.0]), np.array([-np.inf, 1.0])),
        (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])),
        (np.array([-(2**63), 1]), np.array([0, 1])),  # its absolute value overflows
        (np.array([np.nan]), np.array([np.nan])),
    ],
)
def test_numbers_at_the_ends_are_not_close_to_others(got, want):
    assert differs(got, want)


class Says:
    """A worker whose student's function answers each call by a rule."""

    def __init__(self, rule):
        self.rule = rule

    def ask(self, name, cells, cases, remotes=None):
        found = Answers(defined=True, callable=True)
        for number, case in enumerate([()] if cases is None else cases):
            for key in ((number, False), (number, True)):
                try:
                    crossed = json.dumps(plain.pack(self.rule(case)))
                    found.values[key] = plain.unpack(json.loads(crossed))
                except (IndexError, TypeError, plain.NotPlain):
                    found.values[key] = NoValue("it stopped")
                own = (remotes or {}).get(number, {})
                found.seen[key] = {name: remote.seen() for name, remote in own.items()}
        return found


ODD = [
    None, True, 3, -(2**62), 0.5, math.nan, math.inf, "text", "none",
    [], [[]], [1, [2.0, "x"]], [None], {}, {"a": None}, {"answer": 1}, [{}],
    np.zeros(0), np.zeros((0, 3)), np.ones((2, 2), bool), np.full(3, math.nan),
    np.full((2, 2), math.inf), np.zeros((1, 1, 1, 1, 1)), np.array(-(2**63)),
]  # fmt: skip


@pytest.mark.parametrize("name", COURSE.names)
def test_odd_and_lazy_answers_are_judged_and_give_no_points(name):
    rules = [lambda case, odd=odd: odd for odd in ODD]
    rules += [lambda case, i=i: case[i] for i in range(4)]
    rules += [lambda case, i=i: np.zeros_like(case[i]) for i in range(4)]
    rules += [lambda case: case[0][:-1], lambda case: [case[0][0]]]
    for question in COURSE.assignment(name).questions(0):
        for number, rule in enumerate(rules):
            for mark in grade_question(Says(rule), question, [], seed=3):
                assert mark.points == 0, (question.name, mark.idea, number)
                assert mark.words


def test_infinity_is_right_where_it_is_asked_for():
    both = np.array([np.inf, -np.inf, 1.0])
    assert differs(both, both) is None


# --- what is read ---------------------------------------------------------------------


def test_a_line_that_begins_with_a_percent_sign_stays_where_it_is_python():
    source = "%matplotlib inline\ndef f(a, b):\n    return (\n        a\n        % b\n"
    source += "    )\n\n\ntorch.where?\nif 1:\n    !ls\ntext = '''\n% kept'''\n"
    told = {}

    def tell(label, words):
        if words:
            told[label] = words

    names = lift.lift([("cell 1", source)], tell)
    assert told == {}
    assert names["f"](7, 4) == 3
    assert names["text"] == "\n% kept"


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "x.ipynb"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert digest(path) == digest(path)
    was = digest(path)
    with path.open("ab") as file:
        file.write(b"x")
    assert digest(path) != was


def test_what_no_file_takes_is_replaced():
    assert readable("a\ud800\x1b[31m b\u00e9\n") == "a??[31m b\u00e9\n"


def test_the_table_has_one_row_for_each_whatever_the_names(tmp_path):
    result = grade_folder_of(tmp_path, "\n=cmd", "\t@x", "x\udcff")
    out = tmp_path / "grades.csv"
    write_table(result, out)
    with out.open(encoding="utf-8", newline="") as file:
        names = [row["student"] for row in csv.DictReader(file)]
    assert sorted(names) == ["' =cmd", "' @x", "x?"]


def grade_folder_of(tmp_path, *students):
    """Broken notebooks of these students, which need no helper."""
    for student in students:
        path = tmp_path / "in" / student / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text("{[", encoding="utf-8")
    plan = Plan(jobs=1, seed=4, limits=LIMITS, quiet=True)
    return grade_folder(tmp_path / "in", tmp_path / "grades.csv", plan)


def test_no_student_takes_the_place_of_the_seed(tmp_path):
    results = grade_folder_of(tmp_path, "seed.txt", "_seed.txt", "grades.csv")
    assert [r.student for r in results] == ["grades.csv", "seed.txt"]


def test_a_page_is_written_whatever_an_error_says(tmp_path):
    work = tmp_path / "in"
    texts = {**solutions(NAME), "law": f"{HEAD}    raise ValueError('x\\ud800<b>')\n"}
    write_submission(work, "eve", NAME, {**texts, "bias": ""})
    write_submission(work, "zoe", NAME, solutions(NAME))
    plan = Plan(jobs=1, seed=4, limits=LIMITS, quiet=True)
    eve, zoe = grade_folder(work, tmp_path / "out.csv", plan)
    assert (eve.score, zoe.score) == (64, 100)
    page = (tmp_path / "out" / "eve" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "ValueError: x?&lt;b&gt;" in page


def test_what_cannot_be_read_is_told_in_its_own_row(tmp_path, monkeypatch):
    """A folder or file without rights, as an archive can bring it."""
    path = tmp_path / "in" / "eve" / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    real = Path.is_file

    def closed(self):
        if "eve" in self.parts and self.suffix == ".ipynb":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "is_file", closed)
    assert find_submissions(tmp_path / "in", [NAME])[0].student == "eve"
    plan = Plan(jobs=1, seed=4, limits=LIMITS, quiet=True)
    for result in grade_folder(tmp_path / "in", tmp_path / "out.csv", plan):
        assert result.score == 0
        assert "look at its rights" in result.note

"""Hostile submissions gain no point, harm nobody, and see nothing of the checks.

What must hold is stated for each attack: the points of an honest submission, a file
that is still as it was, a process that is gone.
"""

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from planted.plant import COURSE, cells_of, solutions, write_submission

from eagle3.grading.grade import Plan, grade_folder
from eagle3.grading.judge import grade_question
from eagle3.grading.worker import Limits, NoValue, Worker

NAME = "a1_lossless"
LIMITS = Limits(cpu_s=4, wall_s=90, memory_mb=512)
LAW = next(q for q in COURSE.assignment(NAME).questions(0) if q.name == "law")
HEAD = "def law(q, keep, instead):\n"

needs_walls = pytest.mark.skipif(
    sys.platform != "linux", reason="there are no namespaces here"
)


@pytest.fixture(scope="module")
def worker():
    with Worker(LIMITS, hidden=[COURSE.folder]) as one:
        yield one


@pytest.fixture(scope="module")
def walls(worker):
    if not worker.walls:
        pytest.skip("this system gives no namespaces to this user")


def score(worker, answer, extra=""):
    """Points of the question `law` with this answer, and all words."""
    texts = {**solutions(NAME), "law": answer}
    texts["bias"] = ""  # it would call `law` before the grader does
    cells = [("cell 0", extra), *cells_of(NAME, texts)]
    found = grade_question(worker, LAW, cells, seed=3)
    return sum(m.points for m in found), " ".join(m.words for m in found if m.words)


def value_of(worker, code):
    """What a name `it` is after some code ran in the student's process."""
    answers = worker.ask("it", [("cell 1", code)], None)
    return answers.values.get((0, False)), answers


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import signal, os; os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_code_that_ends_the_process_loses_its_own_points(worker, code):
    points, words = score(worker, f"{HEAD}    {code}\n")
    assert points == 0
    assert words  # a process that is alone in its world may be deaf to a signal
    assert score(worker, solutions(NAME)["law"]) == (20, "")


def test_a_loose_exit_in_another_cell_is_not_run(worker):
    honest = solutions(NAME)["law"]
    assert score(worker, honest, extra="import os\nos._exit(1)") == (20, "")


def test_an_exit_in_a_definition_is_told_with_its_cell(worker):
    points, words = score(worker, solutions(NAME)["law"], "import os\nx = os._exit(1)")
    assert points == 0
    assert "ended the process in cell 0" in words


def test_endless_loops_are_stopped_call_by_call(worker):
    points, words = score(worker, f"{HEAD}    while True:\n        pass\n")
    assert points == 0
    assert "3 s of computing" in words or "computing time" in words


def test_an_endless_loop_that_swallows_all_is_killed(worker):
    code = (
        f"{HEAD}    while True:\n        try:\n            while True:\n"
        "                pass\n        except BaseException:\n            pass\n"
    )
    points, words = score(worker, code)
    assert points == 0
    assert "4 s of computing time" in words


def test_a_huge_allocation_fails_for_itself(worker):
    code = f"{HEAD}    return torch.zeros(1 << 36)[: len(q)]\n"
    points, words = score(worker, code)
    assert points == 0
    assert "stopped with" in words or "signal" in words


def test_an_object_that_equals_everything_is_no_answer(worker):
    code = (
        "class Yes:\n    def __eq__(self, other):\n        return True\n\n"
        "    def __sub__(self, other):\n        return 0\n\n\n"
        f"{HEAD}    return Yes()\n"
    )
    points, words = score(worker, code)
    assert points == 0
    assert "an object of type Yes" in words


def test_a_tensor_that_pretends_is_no_answer(worker):
    code = (
        "class Liar(torch.Tensor):\n    pass\n\n\n"
        f"{HEAD}    return torch.zeros(len(q)).as_subclass(Liar)\n"
    )
    points, words = score(worker, code)
    assert points == 0
    assert "Liar" in words


@pytest.mark.parametrize(
    "patch",
    [
        "import numpy\nnumpy.allclose = lambda *a, **k: True",
        "import torch\ntorch.testing.assert_close = lambda *a, **k: None",
        "import torch\ntorch.isclose = lambda a, b, **k: torch.ones(1).bool()",
        "import json\njson.dumps = lambda *a, **k: '{\"done\": true}'",
        "import builtins\nbuiltins.abs = lambda value: 0",
    ],
)
def test_patched_libraries_give_no_points(worker, patch):
    setting = f"{patch.split(chr(10))[0]}\n\n\ndef swap():\n"
    setting += f"    {patch.split(chr(10))[1]}\n\n\nx = swap()\n"
    wrong = f"{HEAD}    return q * keep\n"
    points, _ = score(worker, wrong, extra=setting)
    assert points == 0
    assert score(worker, solutions(NAME)["law"]) == (20, "")


def test_forged_lines_on_the_wire_are_no_answers(worker):
    """Reaching the stream and writing to it gives what honest returns would."""
    code = (
        "import gc\nimport io\n\n\n"
        f"{HEAD}    for thing in gc.get_objects():\n"
        "        if isinstance(thing, io.BufferedRWPair):\n"
        "            for i in range(8):\n"
        '                thing.write(b\'{"case": %d, "again": false, \'\n'
        '                    b\'"value": true, "points": 20}\\n\' % i)\n'
        "            thing.write(b'{\"done\": true}\\n')\n"
        "            thing.flush()\n"
        "    return q\n"
    )
    points, _ = score(worker, code)
    assert points == 0
    assert score(worker, solutions(NAME)["law"]) == (20, "")


def test_garbage_on_the_wire_ends_that_question_alone(worker):
    code = (
        "import os\n\n\n"
        f"{HEAD}    for number in range(3, 40):\n"
        "        try:\n            os.write(number, b'\\xff[[[{{\\n' * 50)\n"
        "        except OSError:\n            pass\n    return q\n"
    )
    points, words = score(worker, code)
    assert points == 0
    assert "can't be read" in words
    assert score(worker, solutions(NAME)["law"]) == (20, "")


@needs_walls
def test_the_checks_the_source_and_other_work_cannot_be_read(worker, walls, tmp_path):
    secret = tmp_path / "other.ipynb"
    secret.write_text("someone's work", encoding="utf-8")
    paths = [COURSE.checks(NAME), COURSE.source(NAME), secret, Path(__file__)]
    for path in [*paths, Path("/etc/passwd"), Path("/proc/1/environ")]:
        value, _ = value_of(worker, f"it = open({str(path)!r}).read()")
        assert value is None, f"{path} was read"
    for path in (COURSE.folder, tmp_path, Path("/proc"), Path("/home/nobody")):
        value, _ = value_of(worker, f"import os\nit = os.path.exists({str(path)!r})")
        assert value is False, path


@needs_walls
def test_nothing_outside_its_own_folder_can_be_written(worker, walls, tmp_path):
    site = Path(json.__file__).parent / "planted_by_a_student.py"
    for path in (tmp_path / "x", site, Path("/usr/x"), Path("/x")):
        value_of(worker, f"it = open({str(path)!r}, 'w').write('x')")
        assert not path.exists()
    value, _ = value_of(worker, "it = open('mine.txt', 'w').write('fine')")
    assert value == 4


@needs_walls
def test_it_is_nobody_without_network_or_processes(worker, walls):
    value, answers = value_of(worker, "import os\nit = [os.getuid(), os.getpid()]")
    assert value is not None, answers
    assert os.geteuid() != 0 or value[0] != 0
    assert value[1] == 1  # alone in its own world
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for code in (
            f"import socket\nit = socket.create_connection(('127.0.0.1', {port}), 2)",
            "import os\nit = os.fork()",
            "import subprocess\nit = subprocess.call(['/bin/true'])",
            "import os\nit = os.system('true') or None",
        ):
            value, answers = value_of(worker, code)
            # os.system says 32512 or -1 where it could start nothing.
            assert value in (None, -1, 32512), (code, value)
            assert value or answers.problems, code
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_fork_bomb_leaves_no_process(worker):
    code = f"import os\n\n\n{HEAD}    while True:\n        os.fork()\n"
    points, _ = score(worker, code)
    assert points == 0
    assert score(worker, solutions(NAME)["law"]) == (20, "")


def test_the_book_itself_is_not_there(worker):
    _, answers = value_of(worker, "import eagle3\nit = 1")
    assert "write the piece yourself" in answers.problems["cell 1"]
    code = (
        f"{HEAD}    from eagle3.sampling import residual\n    return residual(q, q)\n"
    )
    points, words = score(worker, code)
    assert points == 0
    assert "write the piece yourself" in words


def test_what_comes_back_must_be_plain(worker):
    for code, words in {
        "it = {1: 2}": "keys are not texts",
        "it = 2**80": "more than 64 bits",
        "it = 'x' * 100000": "too long",
        "it = [[[[[[[[1]]]]]]]]": "levels deep",
        "import torch\nit = torch.zeros(2, dtype=torch.complex64)": "complex64",
    }.items():
        value, _ = value_of(worker, code)
        assert isinstance(value, NoValue)
        assert words in value.words


# --- where the system gives no walls --------------------------------------------------


@pytest.fixture
def fenced(worker, monkeypatch):
    """The same worker, as if there were no namespaces."""
    monkeypatch.setattr(worker, "walls", False)
    return worker


def test_without_walls_an_honest_answer_gets_its_points(fenced):
    assert score(fenced, solutions(NAME)["law"]) == (20, "")
    code = f"{HEAD}    import statistics\n    return q * keep\n"
    assert "only kept tokens" in score(fenced, code)[1]


def test_without_walls_a_fence_is_left(fenced, tmp_path):
    for code, words in {
        f"it = open({str(COURSE.checks(NAME))!r}).read()": "can't be opened",
        f"it = open({str(tmp_path / 'x')!r}, 'w').write('x')": "can't be opened",
        f"import os\nit = os.listdir({str(tmp_path)!r})": "can't be opened",
        "import os\nit = os.fork()": "not allowed",
        "import socket\nit = socket.socket().fileno()": "not allowed",
        "import ctypes\nit = ctypes.CDLL(None).getpid()": "not allowed",
    }.items():
        value, answers = value_of(fenced, code)
        assert value is None
        assert words in str(answers.problems), code


# --- a whole class with villains in it ------------------------------------------------

SPOILS = "import os\nx = os._exit(0)"


def test_hostile_neighbours_change_nobodys_grade(tmp_path):
    work = tmp_path / "in"
    write_submission(work, "ann", NAME, solutions(NAME))
    write_submission(work, "bob", NAME, solutions(NAME), extra=SPOILS)
    write_submission(work, "cid", NAME, {**solutions(NAME), "law": "def law(:"})
    (work / "dan" / NAME).mkdir(parents=True)
    (work / "dan" / NAME / f"{NAME}.ipynb").write_text("{[", encoding="utf-8")
    write_submission(work, "eve", NAME, {})
    plan = Plan(jobs=1, seed=4, limits=LIMITS, quiet=True)
    results = {r.student: r for r in grade_folder(work, tmp_path / "out.csv", plan)}
    scores = {student: result.score for student, result in results.items()}
    # Whoever breaks `law` breaks `bias`, which calls it.
    assert scores == {"ann": 100, "bob": 0, "cid": 64, "dan": 0, "eve": 0}
    assert "can't be read as a notebook" in results["dan"].note
    broken = [m.words for m in results["cid"].marks if m.question == "law"]
    assert "line 1" in broken[0]

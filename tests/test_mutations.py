"""The mutation check is itself in order: every fault can be planted, and is looked for.

`make mutations` plants the faults and takes long; here their lines and their tests are
looked up, so that a change of the code that moves one is noticed at once.
"""

import mutations
import pytest
from mutations import FAULTS, ROOT, Fault


def test_every_fault_can_be_planted_and_its_tests_exist():
    assert mutations.problems(FAULTS, ROOT) == []


def test_there_are_faults_of_every_kind():
    """In all that decides on tokens, files or training."""
    assert len(FAULTS) >= 190
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)
    kinds = "sampling verify engine growth tree draft target rope masks fetch gpu/"
    for kind in (*kinds.split(), "drafters/", "training/losses", "formats/", "cache"):
        assert any(fault.file.startswith(kind) for fault in FAULTS), kind


@pytest.fixture
def small(tmp_path):
    """A repository of one module and three tests."""
    files = {
        "eagle3/__init__.py": "",
        "eagle3/sums.py": "def add(a, b):\n    return a + b\n\n\nUNUSED = 1\n",
        "tests/test_sums.py": (
            "from eagle3.sums import add\n\n\n"
            "def test_add():\n    assert add(2, 3) == 5\n\n\n"
            "def test_zero():\n    assert add(0, 0) == 0\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def fault(old="a + b", new="a - b", tests=("test_sums.py::test_add",), file="sums.py"):
    return Fault(file, "a fault", old, new, tests)


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (fault(old="a * b"), "its line stands 0 times in sums.py"),
        (fault(old="a"), "its line stands 3 times"),
        (fault(new="a +"), "is no Python"),
        (fault(file="gone.py"), "there is no gone.py"),
        (fault(tests=("test_sums.py::test_gone",)), "there is no test test_sums.py"),
        (fault(tests=()), "names no test"),
    ],
)
def test_a_fault_that_cant_be_planted_is_told(small, planted, words):
    [problem] = mutations.problems([fault(), planted], small)
    assert words in problem


@pytest.mark.parametrize(
    ("test", "code"), [("test_sums.py::test_add", 1), ("test_sums.py::test_zero", 0)]
)
def test_a_fault_is_noticed_or_survives_and_the_code_is_as_before(small, test, code):
    """a - b is a + b where both are 0: a test that looks there alone misses it."""
    before = (small / "eagle3/sums.py").read_text(encoding="utf-8")
    with mutations.planted(fault(), small):
        assert mutations.run_tests(small, [test], small / "log") == code
    assert (small / "eagle3/sums.py").read_text(encoding="utf-8") == before
    assert mutations.run_tests(small, [test], small / "log") == 0


def test_a_survivor_makes_the_command_fail(
    small, monkeypatch, capsys, tmp_path_factory
):
    faults = [
        fault(),
        fault(tests=("test_sums.py::test_zero",)),
        fault("UNUSED = 1", "UNUSED = 2"),
    ]
    monkeypatch.setattr(mutations, "FAULTS", faults)
    monkeypatch.setattr(mutations, "ROOT", small)
    folder = tmp_path_factory.mktemp("work")
    assert mutations.try_all([0, 1, 2], folder) == 1
    assert "3 faults planted, 2 survived: [1, 2]" in capsys.readouterr().out
    assert mutations.main(["0"]) == 0
    assert mutations.main(["--check"]) == 0
    assert mutations.main(["nothing"]) == 1

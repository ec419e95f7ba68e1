"""Assignments: points add up, releases are up to date, and answers get what they earn.

The right verdicts come from the source notebooks (all points), from the releases (no
point), and from mistakes and other right answers that are planted in tests/planted.
"""

import ast
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from planted.plant import COURSE, Planted, Wrong, cells_of, changed, solutions

from eagle3.grading.judge import grade_question
from eagle3.grading.notebook import read_cells
from eagle3.grading.release import make_release
from eagle3.grading.worker import Limits, Worker

ROOT = Path(__file__).parents[1]
NAMES = COURSE.names
FILES = sorted((Path(__file__).parent / "planted").glob("a[0-9]_*.py"))
PLANTED: dict[str, Planted] = {
    path.stem: importlib.import_module(f"planted.{path.stem}").PLANTED for path in FILES
}
QUESTIONS = {
    name: {q.name: q for q in COURSE.assignment(name).questions(0)} for name in NAMES
}
ALL = [(name, question) for name in NAMES for question in QUESTIONS[name]]


def some(found):
    """All of them, but only a part in the default run: every fourth."""
    return [
        pytest.param(*one, marks=[pytest.mark.classroom] if number % 4 else [])
        for number, one in enumerate(found)
    ]


MISTAKES = [
    (name, question, mistake)
    for name, planted in PLANTED.items()
    for question, mistakes in planted.wrong.items()
    for mistake in mistakes
]
OTHERS = [
    (name, question, number)
    for name, planted in PLANTED.items()
    for question, answers in planted.right.items()
    for number in range(len(answers))
]
LIMITS = Limits(cpu_s=10, wall_s=240)  # a busy machine gives little time
SEED = 11


@pytest.fixture(scope="module")
def worker():
    with Worker(LIMITS) as one:
        yield one


def marks(worker, name, question, texts, seed=SEED):
    asked = QUESTIONS[name][question]
    cells = cells_of(name, texts, question if asked.is_value else "")
    found = grade_question(worker, asked, cells, seed)
    return {mark.idea: mark for mark in found}


# --- the files ------------------------------------------------------------------------


def test_everything_is_planted_against_every_question():
    assert list(PLANTED) == NAMES
    for name, planted in PLANTED.items():
        assert set(planted.wrong) == set(planted.right) == set(QUESTIONS[name])
        assert all(len(mistakes) >= 4 for mistakes in planted.wrong.values())
        assert all(len(answers) >= 2 for answers in planted.right.values())


@pytest.mark.parametrize("name", NAMES)
def test_points_add_up_to_100_and_agree_with_the_notebook(name):
    asked = {
        f"{question.name}-{idea.name}": idea.points
        for question, idea in COURSE.assignment(name).ideas()
    }
    assert sum(asked.values()) == 100
    cells = read_cells(COURSE.source(name))
    assert {c.grade_id: c.mark["points"] for c in cells if c.is_test} == asked
    answers = [c.grade_id for c in cells if c.mark.get("solution")]
    assert answers == list(QUESTIONS[name])
    names = [c.grade_id for c in cells if c.mark]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", n) for n in names)  # nbgrader's rule


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_release_is_what_the_source_gives(name):
    text = COURSE.release(name).read_text(encoding="utf-8")
    assert text == make_release(COURSE.source(name), COURSE.assignment(name))


@pytest.mark.parametrize("name", NAMES)
def test_no_line_of_a_solution_is_in_the_release(name):
    released = COURSE.release(name).read_text(encoding="utf-8")
    stubs = {c.source for c in read_cells(COURSE.release(name))}
    for question, text in solutions(name).items():
        shown = "\n".join(stubs)
        lines = {line.strip() for line in text.split("\n") if len(line.strip()) > 30}
        given = {
            line.strip()
            for cell in read_cells(COURSE.source(name))
            for line in cell.source.split("### BEGIN SOLUTION")[0].split("\n")
        }
        assert [line for line in lines - given if line in shown] == [], question
    assert "BEGIN SOLUTION" not in released


@pytest.mark.parametrize("name", NAMES)
def test_another_variant_has_other_numbers_and_the_same_points(name):
    assignment = COURSE.assignment(name)
    if not assignment.numbers(0):
        pytest.skip("no given numbers: the hidden inputs are the variant")
    assert assignment.numbers(0) != assignment.numbers(1)
    source = COURSE.source(name)
    assert make_release(source, assignment, 0) != make_release(source, assignment, 1)
    points = [[i.points for _, i in assignment.ideas(v)] for v in (0, 1)]
    assert points[0] == points[1]


def test_a_students_copy_holds_no_solutions():
    """By the marks of .gitattributes, which `make student-copy` goes by."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    secret = [
        *(ROOT / "assignments" / "source").glob("*"),
        *(ROOT / "assignments" / "checks").glob("*.py"),
        ROOT / "tests" / "planted" / "plant.py",
        ROOT / "assignments" / "TEACHING.md",
    ]
    # A folder that is left out takes along what is in it.
    tops = {
        next(p for p in (path, *path.parents) if p.parent.parent == ROOT)
        for path in secret
    }
    names = [str(path.relative_to(ROOT)) for path in sorted(tops)]
    told = subprocess.run(
        ["git", "check-attr", "export-ignore", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    lines = told.stdout.splitlines()
    assert len(lines) == len(names) == 4
    assert all(line.endswith(": set") for line in lines), lines


# --- the notebook's own checks --------------------------------------------------------


def run_visible(path, skip_errors):
    """Names of test cells that fail when a notebook is run from top to bottom."""
    namespace: dict = {"__name__": "notebook"}
    failed = []
    for cell in read_cells(path):
        if cell.kind == "code":
            try:
                exec(compile(ast.parse(cell.source), cell.grade_id, "exec"), namespace)
            except (Exception, NotImplementedError):
                failed += [cell.grade_id] * cell.is_test
                assert skip_errors or cell.is_test, cell.grade_id
    return failed


@pytest.mark.parametrize("name", NAMES)
def test_visible_checks_pass_on_the_solutions(name, capsys, monkeypatch):
    monkeypatch.chdir(COURSE.source(name).parent)
    assert run_visible(COURSE.source(name), skip_errors=False) == []


@pytest.mark.parametrize("name", NAMES)
def test_visible_checks_fail_one_by_one_on_the_release(name, capsys, monkeypatch):
    monkeypatch.chdir(COURSE.release(name).parent)
    every = [c.grade_id for c in read_cells(COURSE.release(name)) if c.is_test]
    assert run_visible(COURSE.release(name), skip_errors=True) == every


# --- hidden checks --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "question"), ALL)
def test_the_solution_gets_all_points(worker, name, question):
    for seed in (SEED, SEED + 1):
        found = marks(worker, name, question, solutions(name), seed)
        assert {idea: mark.words for idea, mark in found.items() if mark.words} == {}


@pytest.mark.parametrize(("name", "question"), ALL)
def test_the_untouched_release_gets_nothing_and_says_why(worker, name, question):
    for mark in marks(worker, name, question, {}).values():
        assert mark.points == 0
        assert mark.words in ("not written yet", "not answered yet")


@pytest.mark.parametrize(("name", "question", "mistake"), some(MISTAKES))
def test_a_mistake_loses_its_points_and_is_named(worker, name, question, mistake):
    wrong: Wrong = PLANTED[name].wrong[question][mistake]
    found = marks(worker, name, question, changed(name, question, wrong))
    lost = {idea: mark.words for idea, mark in found.items() if not mark.points}
    assert set(lost) == set(wrong.loses), lost
    assert any(wrong.says in words for words in lost.values()), lost
    assert all(m.points in (0, m.of) for m in found.values())


@pytest.mark.parametrize(("name", "question", "number"), some(OTHERS))
def test_a_right_answer_written_differently_gets_all(worker, name, question, number):
    answer = PLANTED[name].right[question][number]
    texts = changed(name, question, Wrong("", answer, (), ""))
    found = marks(worker, name, question, texts)
    assert {idea: mark.words for idea, mark in found.items() if mark.words} == {}

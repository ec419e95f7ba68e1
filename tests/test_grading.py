"""The grader's parts: what crosses, what counts as equal, and files in and out.

Right verdicts are stated here, or follow from submissions that are made here.
"""

import csv
import json
import math

import numpy as np
import pytest
import torch
from planted.plant import COURSE, solutions, write_submission

from eagle3.grading._inside import lift, plain
from eagle3.grading.collect import find_submissions
from eagle3.grading.course import Course
from eagle3.grading.feedback import feedback_page
from eagle3.grading.grade import Plan, Result, grade_folder, write_table
from eagle3.grading.judge import Mark, differs
from eagle3.grading.notebook import read_cells
from eagle3.grading.release import without_solution
from eagle3.grading.worker import Limits, NoValue

NAME = "a1_lossless"

# --- what crosses ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -2.5, "text", [1, [2.0, "x"]], {"a": 1, "b": [None]}, []],
)
def test_plain_values_come_back_as_they_went(value):
    assert plain.unpack(json.loads(json.dumps(plain.pack(value)))) == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3),
        torch.tensor([[True, False]]),
        torch.tensor([0.1, math.inf, -1e-30]),
        torch.zeros(2, 0),
        torch.tensor(2.5, dtype=torch.float64),
    ],
)
def test_tensors_come_back_as_arrays_of_the_same_numbers(tensor):
    got = plain.unpack(json.loads(json.dumps(plain.pack(tensor))))
    assert got.dtype == tensor.numpy().dtype
    assert np.array_equal(got, tensor.numpy())


@pytest.mark.parametrize(
    "data",
    [
        {"dtype": "object", "shape": [1], "values": [1]},
        {"dtype": "int64", "shape": [3], "values": [1]},
        {"dtype": "int64", "shape": [-1], "values": []},
        {"dtype": "int64", "shape": [1], "values": ["1"]},
        {"dtype": "int64", "shape": [1], "values": [2**70]},
        {"dtype": "float64", "shape": [1], "values": [[1]]},
        {"dtype": "float64", "shape": 1, "values": [1]},
        {"a": 1},
        {"dict": [1]},
        [[[[[[[[1]]]]]]]],
    ],
)
def test_what_is_not_plain_is_refused(data):
    with pytest.raises(plain.NotPlain):
        plain.unpack(data)


# --- what is taken from a notebook ----------------------------------------------------


def lifted(*cells):
    told = {}

    def tell(label, words):
        if words:
            told[label] = words

    named = [(f"cell {number}", source) for number, source in enumerate(cells, 1)]
    return lift.lift(named, tell), told


def test_definitions_are_run_and_loose_statements_are_not():
    names, told = lifted(
        "import math\nx = 2\nprint('loose')\nwhile True:\n    pass",
        "%matplotlib inline\n!ls\ndef f(): return x * y",
        "y = 3",
    )
    assert names["f"]() == 6  # whatever the order of the cells
    assert told == {}


def test_the_cell_of_a_value_is_run_as_a_whole():
    source = "x = 0\nfor i in range(4):\n    x += i\nraise NotImplementedError()"
    for whole, value in ((False, 0), (True, 6)):
        names = lift.lift([("cell 1", source, whole)], lambda *_: None)
        assert names["x"] == value


def test_a_broken_cell_is_told_and_the_others_stay():
    names, told = lifted("def f(:", "y = 1 / 0", "def g(): return 1")
    assert names["g"]() == 1
    assert "line 1" in told["cell 1"]
    assert told["cell 2"] == "line 1: ZeroDivisionError: division by zero"


def test_a_later_definition_takes_the_place_of_an_earlier_one():
    names, _ = lifted("def f(): return 1", "def f(): return 2")
    assert names["f"]() == 2


# --- what counts as equal -------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (np.array([0.5, 0.5]), np.array([0.5, 0.5 + 1e-9])),
        ([0.5, 0.5], np.array([0.5, 0.5])),
        (np.array(3), 3),
        (3.0, 3),
        ([1, [2, 3]], [1, [2, 3]]),
        (np.array([1.0, math.inf]), np.array([1.0, math.inf])),
        ({"a": 1, "more": 2}, {"a": 1}),
        (np.array(True), True),
        ("bonus", "bonus"),
        (None, None),
    ],
)
def test_equal_answers_are_equal(got, want):
    assert differs(got, want) is None


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (np.zeros((2, 3)), np.zeros(3), "its shape is [2, 3], not [3]"),
        (np.array([1.0, 2.0]), np.array([1.0, 2.5]), "index 1 is 2, not 2.5"),
        (np.zeros((1, 2)), np.array([[0.0, 1.0]]), "row 0, column 1 is 0, not 1"),
        (np.array([math.nan]), np.array([0.0]), "not a number (NaN)"),
        (np.array([1]), np.array([True]), "True and False are asked for"),
        (np.array([True]), np.array([1.0]), "numbers are asked for"),
        (True, 1, "a number is asked for"),
        (1, True, "it is 1, not True"),
        (2.5, 2, "the whole number 2 is right"),
        (0.3, 0.25, "it is 0.3, not 0.25"),
        ("a", "b", "it is a, not b"),
        ([1, 2], [1, [2]], "part 1"),
        ([1], [1, [2]], "it has 1 parts, not 2"),
        ({"a": 1}, {"b": 1}, "there is no 'b'"),
        ([[1, 2], [3]], np.zeros((2, 2)), "its rows differ in length"),
        (["x"], np.zeros(1), "no number"),
        (NoValue("it stopped"), 1, "it stopped"),
        (math.nan, 1.0, "nan"),
    ],
)
def test_different_answers_differ_in_words(got, want, words):
    assert words in differs(got, want)


# --- releases -------------------------------------------------------------------------


def test_a_solution_becomes_a_stub_at_its_indent():
    text = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
    assert without_solution(text, "f") == "def f():\n    raise NotImplementedError()"


@pytest.mark.parametrize("text", ["def f(): ...", "### BEGIN SOLUTION\nx = 1"])
def test_a_solution_without_its_marks_is_refused(text):
    with pytest.raises(ValueError, match="cell 'f' needs a region"):
        without_solution(text, "f")


# --- files ----------------------------------------------------------------------------


def test_both_layouts_are_found_and_links_are_not(tmp_path):
    write_submission(tmp_path, "ann", NAME, {})
    (tmp_path / "bob").mkdir()
    flat = tmp_path / "bob" / f"{NAME}.ipynb"
    flat.write_bytes((tmp_path / "ann" / NAME / f"{NAME}.ipynb").read_bytes())
    (tmp_path / "cid").symlink_to(tmp_path / "ann")
    (tmp_path / "dan" / NAME).mkdir(parents=True)
    (tmp_path / "dan" / NAME / f"{NAME}.ipynb").symlink_to(flat)
    (tmp_path / "eve").mkdir()
    found = find_submissions(tmp_path, [NAME])
    assert [(s.student, s.assignment) for s in found] == [("ann", NAME), ("bob", NAME)]


def test_a_folder_without_submissions_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no submissions"):
        find_submissions(tmp_path, [NAME])
    with pytest.raises(ValueError, match="there is no folder"):
        find_submissions(tmp_path / "x", [NAME])


def test_a_students_copy_says_that_it_cannot_grade(tmp_path):
    with pytest.raises(ValueError, match="needs the teacher's copy"):
        _ = Course(tmp_path).names


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": [3]}', "[" * 100_000])
def test_what_is_no_notebook_is_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "x.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="can't be read as a notebook"):
        read_cells(path)


def test_the_table_is_safe_for_a_spreadsheet(tmp_path):
    marks = (Mark("law", "one", "", 8, 8, ""), Mark("law", "rows", "", 0, 6, "no"))
    out = tmp_path / "grades.csv"
    write_table([Result("=cmd()", NAME, "", marks, "")], out)
    with out.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["student"] == "'=cmd()"
    assert (row["score"], row["max_score"], row[f"{NAME}.law"]) == ("8", "14", "8")


def test_the_page_escapes_what_a_student_wrote():
    mark = Mark("law", "one", "`x` < 1", 0, 8, "it is <script>alert(1)</script>")
    page = feedback_page("Title", "<b>ann</b>", [mark])
    assert "<script>" not in page
    assert "<b>ann" not in page
    assert "<code>x</code> &lt; 1" in page


# --- a whole run ----------------------------------------------------------------------


def plan(**other):
    return Plan(**{"jobs": 1, "quiet": True, "limits": Limits(10, 240), **other})


def test_a_second_run_grades_only_what_has_changed(tmp_path, monkeypatch):
    work, out = tmp_path / "in", tmp_path / "grades.csv"
    write_submission(work, "ann", NAME, solutions(NAME))
    path = write_submission(work, "bob", NAME, {})
    first = grade_folder(work, out, plan())
    assert [r.score for r in first] == [100, 0]
    seed = (tmp_path / "grades" / "_seed.txt").read_text(encoding="utf-8")
    asked = []
    one = "eagle3.grading.grade._Grader.one"
    monkeypatch.setattr(one, lambda self, s: asked.append(s.student) or first[0])
    assert [r.score for r in grade_folder(work, out, plan())] == [100, 0]
    assert asked == []
    path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    grade_folder(work, out, plan())
    assert asked == ["bob"]
    grade_folder(work, out, plan(seed=int(seed) + 1))
    assert asked == ["bob", "ann", "bob"]
    page = (tmp_path / "grades" / "bob" / f"{NAME}.html").read_text(encoding="utf-8")
    assert "0 of 100 points" in page
    assert "not written yet" in page


def test_a_fault_of_the_grader_harms_one_student_and_is_told(tmp_path, monkeypatch):
    work, out = tmp_path / "in", tmp_path / "grades.csv"
    for student in ("ann", "bob"):
        write_submission(work, student, NAME, {})
    real = "eagle3.grading.grade._Grader.marks"

    def broken(self, submission, questions):
        if submission.student == "ann":
            raise ZeroDivisionError("a bug")
        return [Mark("law", "one", "", 8, 8, "")]

    monkeypatch.setattr(real, broken)
    ann, bob = grade_folder(work, out, plan())
    assert (ann.score, ann.total, bob.score) == (0, 100, 8)
    assert "the grader itself failed" in ann.note
    monkeypatch.setattr(real, lambda *_: [Mark("law", "one", "", 8, 8, "")])
    assert [r.score for r in grade_folder(work, out, plan())] == [8, 8]  # tried again


def test_another_variant_is_graded_with_its_own_numbers(tmp_path):
    """Answers that are expressions of the given numbers are right in any variant."""
    path = COURSE.write_release(NAME, 7, tmp_path / "monday")
    assert path.read_bytes() != COURSE.release(NAME).read_bytes()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    texts = solutions(NAME)
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        cell["source"] = texts.get(name, cell["source"])
    work = tmp_path / "in" / "ann" / f"{NAME}.ipynb"
    work.parent.mkdir(parents=True)
    work.write_text(json.dumps(notebook), encoding="utf-8")
    (ann,) = grade_folder(tmp_path / "in", tmp_path / "a.csv", plan(variant=7))
    assert ann.score == 100
    (ann,) = grade_folder(tmp_path / "in", tmp_path / "b.csv", plan(variant=8))
    assert ann.score == 100  # the expressions, with the numbers of variant 8


def test_the_table_needs_its_ending(tmp_path):
    with pytest.raises(ValueError, match=r"name in \.csv"):
        grade_folder(tmp_path, tmp_path / "grades", plan())


def test_a_system_without_fork_is_told_so_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.delattr("os.fork")
    out = tmp_path / "grades.csv"
    with pytest.raises(ValueError, match="grade on Linux, on macOS, or in WSL"):
        grade_folder(tmp_path, out)
    assert list(tmp_path.iterdir()) == []


def test_the_reader_has_the_checks():
    assert NAME in COURSE.names

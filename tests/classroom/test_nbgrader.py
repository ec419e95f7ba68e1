"""nbgrader's own commands on the layout, as its documentation says.

Scores are those of the checks that students see: all points for the solutions, none
for the release, and those of the other cells for one wrong answer.
"""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted.plant import COURSE, solutions, write_submission

pytest.importorskip("nbgrader")
NAME = "a1_lossless"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder with one assignment and three submissions, graded."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(COURSE.folder / "nbgrader_config.py", folder)
    shutil.copytree(COURSE.source(NAME).parent, folder / "source" / NAME)
    nbgrader(folder, "generate_assignment", NAME, "--create")
    texts = solutions(NAME)
    wrong = {**texts, "law": "def law(q, keep, instead):\n    return q * keep"}
    for student, answers in {"ann": texts, "bob": wrong, "cid": {}}.items():
        write_submission(folder / "submitted", student, NAME, answers)
    # A busy machine may take its time.
    patience = ("--Execute.timeout=900", "--Execute.startup_timeout=900")
    nbgrader(folder, "autograde", NAME, "--create", *patience)
    nbgrader(folder, "generate_feedback", NAME)
    nbgrader(folder, "export", "--to", "grades.csv")
    return folder


def nbgrader(folder: Path, *arguments: str) -> None:
    # nbgrader calls alembic by its name.
    found = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {key: str(folder / "jupyter") for key in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=folder,
        env={**os.environ, **own, "PATH": found},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_release_is_the_one_that_is_committed(course):
    made = course / "release" / NAME / f"{NAME}.ipynb"
    assert made.read_text(encoding="utf-8") == COURSE.release(NAME).read_text(
        encoding="utf-8"
    )


def test_autograde_gives_the_points_of_the_visible_checks(course):
    with (course / "grades.csv").open(encoding="utf-8", newline="") as file:
        scores = {row["student_id"]: row for row in csv.DictReader(file)}
    assert {s: float(row["score"]) for s, row in scores.items()} == {
        "ann": 100,
        "bob": 80,
        "cid": 0,
    }
    assert {float(row["max_score"]) for row in scores.values()} == {100}


def test_each_student_has_a_page_of_feedback(course):
    for student in ("ann", "bob", "cid"):
        page = course / "feedback" / student / NAME / f"{NAME}.html"
        assert "lossless sampling" in page.read_text(encoding="utf-8")

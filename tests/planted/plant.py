"""Submissions made from an assignment's source notebook.

A planted mistake is a change of the solution's text, as in tests/exercises; or the
whole text of another answer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eagle3.grading.course import Course
from eagle3.grading.notebook import Piece, read_cells
from eagle3.grading.release import BEGIN, END

COURSE = Course()


@dataclass(frozen=True)
class Wrong:
    """A planted wrong answer.

    old, new: text of the solution and what stands there instead; no old text replaces
        the whole solution cell
    loses: the ideas that must get nothing      says: part of what the grader must say
    """

    old: str
    new: str
    loses: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class Planted:
    """What is planted against one assignment.

    wrong: question -> name of the mistake -> the mistake
    right: question -> answers that are written in another way
    """

    name: str
    wrong: Mapping[str, Mapping[str, Wrong]]
    right: Mapping[str, tuple[str, ...]]


def solutions(name: str) -> dict[str, str]:
    """Question -> text of its solution cell."""
    cells = read_cells(COURSE.source(name))
    return {
        cell.grade_id: "\n".join(
            line for line in cell.source.split("\n") if line.strip() not in (BEGIN, END)
        )
        for cell in cells
        if cell.mark.get("solution")
    }


def changed(name: str, question: str, mistake: Wrong) -> dict[str, str]:
    """All solutions, with a mistake in one of them."""
    texts = solutions(name)
    text = texts[question]
    if mistake.old:
        assert text.count(mistake.old) == 1, f"the anchor moved: {mistake.old!r}"
        texts[question] = text.replace(mistake.old, mistake.new)
    else:
        texts[question] = mistake.new
    return texts


def cells_of(name: str, texts: Mapping[str, str], answer: str = "") -> list[Piece]:
    """A submission with these answers, as the grader has it.

    answer: the question, if it asks for a value
    """
    cells = read_cells(COURSE.release(name))
    return [
        Piece(
            f"cell {number}",
            texts.get(cell.grade_id, cell.source),
            bool(answer) and cell.grade_id == answer,
        )
        for number, cell in enumerate(cells, 1)
        if cell.kind == "code" and not cell.is_test
    ]


def write_submission(
    folder: Path, student: str, name: str, texts: Mapping[str, str], extra: str = ""
) -> Path:
    """A student's notebook in nbgrader's layout; extra: a cell before all others."""
    notebook = json.loads(COURSE.release(name).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if grade_id in texts:
            cell["source"] = texts[grade_id]
    if extra:
        cell = {"cell_type": "code", "id": "extra", "metadata": {}, "outputs": []}
        notebook["cells"].insert(0, {**cell, "execution_count": None, "source": extra})
    path = folder / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path

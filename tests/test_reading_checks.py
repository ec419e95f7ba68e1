"""Reading checks: what a chapter's reader can answer, and the cell that shows it.

Each file in tests/reading/ belongs to one chapter. A question names a piece of a code
cell, and either what that cell shows (`shows`) or what it asserts (`asserts`). Here
the saved outputs are read; `make nbval` runs every cell again and compares them, so an
answer that is no longer so fails there or here. No answer may rest on a cell whose
output isn't compared.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from notebook_prose import ROOT, Cell, numbers_in, read

FILES = sorted((ROOT / "tests" / "reading").glob("ch*.toml"))
FIRST = ("00", "01", "02", "03")  # together twelve questions


def notebook(number: str) -> Path | None:
    """The chapter with this number, if it is written."""
    return next((ROOT / "notebooks").glob(f"{number}_*.ipynb"), None)


def questions(path: Path) -> list[dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["question"]


ALL = [
    pytest.param(path.stem[2:], question, id=f"{path.stem}-{i}")
    for path in FILES
    for i, question in enumerate(questions(path), start=1)
]


def shown_by(number: str, fragment: str, wanted: str) -> Cell:
    """The one cell with this piece of code, or of those the one that shows `wanted`."""
    path = notebook(number)
    if path is None:
        pytest.skip(f"chapter {number} is not written yet")
    cells = [c for c in read(path) if c.kind == "code" and fragment in c.source]
    if len(cells) > 1:
        cells = [c for c in cells if wanted in c.source + "".join(c.outputs)]
    assert len(cells) == 1, f"{len(cells)} cells with {fragment!r}"
    return cells[0]


def test_every_chapter_has_its_questions() -> None:
    numbers = [path.stem[2:] for path in FILES]
    assert numbers == [f"{i:02}" for i in range(16)]
    counts = {
        number: len(questions(path))
        for number, path in zip(numbers, FILES, strict=True)
    }
    assert sum(counts[number] for number in FIRST) == 12
    assert all(counts[number] >= 4 for number in numbers if number not in FIRST)


@pytest.mark.parametrize(("number", "question"), ALL)
def test_the_cell_shows_the_answer(number: str, question: dict[str, Any]) -> None:
    shows = question.get("shows", [])
    proof = question.get("asserts", *shows[:1])
    cell = shown_by(number, question["cell"], proof)
    assert "nbval-ignore-output" not in cell.tags
    if "asserts" in question:
        assert question["asserts"].startswith("assert ")
        assert question["asserts"] in cell.source
    printed = "\n".join(cell.outputs)
    for text in shows:
        assert text in printed, f"the cell doesn't show {text!r}"


@pytest.mark.parametrize(("number", "question"), ALL)
def test_numbers_of_the_answer_are_shown_or_asked(
    number: str, question: dict[str, Any]
) -> None:
    known = numbers_in(question["asks"] + " ".join(question.get("shows", [])))
    missing = {n for n in numbers_in(question["answer"]) - known if n >= 5 or n % 1}
    if "shows" in question:
        assert not missing

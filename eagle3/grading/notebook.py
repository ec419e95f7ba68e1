"""Notebooks as JSON: cells, nbgrader's metadata, and what a submission defines. [Ours]

A notebook of a student is data: it may be broken, huge or made to do harm. What can't
be read is told in one sentence.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category

MAX_BYTES, MAX_CELLS = 8 << 20, 2000
SCHEMA = 3  # of nbgrader's metadata


@dataclass(frozen=True)
class Cell:
    """A cell. mark: nbgrader's metadata of it, {} for a student's own cell"""

    kind: str
    source: str
    mark: dict[str, Any]

    @property
    def is_test(self) -> bool:
        """A cell that gives points by running."""
        return bool(self.mark.get("grade")) and not self.mark.get("solution")

    @property
    def is_given(self) -> bool:
        """A cell that the student must leave as it is."""
        return bool(self.mark.get("locked")) and not self.mark.get("grade")

    @property
    def grade_id(self) -> str:
        """nbgrader's name of the cell, or ""."""
        return str(self.mark.get("grade_id", ""))


def read_cells(path: Path) -> list[Cell]:
    """The cells of a notebook.

    Raises ValueError for a file that is no notebook, or too large for one.
    """
    try:
        if not path.is_file():
            raise ValueError(f"there is no notebook '{path.name}'.")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(
                f"'{path.name}' has more than {MAX_BYTES >> 20} MB; clear its outputs."
            )
        text = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"'{path.name}' can't be read ({error.strerror}): look at its rights."
        ) from None
    try:
        data = json.loads(text)
        cells = [_cell(cell) for cell in data["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"'{path.name}' can't be read as a notebook; save it again in JupyterLab."
        ) from None
    if len(cells) > MAX_CELLS:
        raise ValueError(f"'{path.name}' has {len(cells)} cells, which is too many.")
    return cells


def _cell(cell: dict[str, Any]) -> Cell:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    mark = cell.get("metadata", {}).get("nbgrader", {})
    return Cell(str(cell["cell_type"]), text, mark if isinstance(mark, dict) else {})


class Piece(NamedTuple):
    """What the grader takes from a notebook.

    label: of the cell, in words      whole: run its loose statements as well
    """

    label: str
    source: str
    whole: bool = False


def given_sources(release: Path, numbers: str) -> list[Piece]:
    """The cells that come with an assignment and stay as they are.

    release: the notebook that was made last      numbers: the cell of given numbers as
        it was handed out, of whatever variant
    """
    first = numbers.partition("\n")[0]
    return [
        Piece(
            f"given cell {number}",
            numbers if cell.source.startswith(first) else cell.source,
        )
        for number, cell in enumerate(read_cells(release), 1)
        if cell.kind == "code" and cell.is_given
    ]


def own_sources(submission: Path, given: set[str], answer: str = "") -> list[Piece]:
    """A submission's cells that can define something.

    given: names (grade_id) of cells to leave out, as those that the release gives
    answer: name of the cell that is run as a whole, since its answer is a value

    Raises ValueError for a file that is no notebook.
    """
    return [
        Piece(f"cell {number}", cell.source, bool(answer) and cell.grade_id == answer)
        for number, cell in enumerate(read_cells(submission), 1)
        if cell.kind == "code" and not cell.is_test and cell.grade_id not in given
    ]


def digest(*paths: Path) -> str:
    """A fingerprint of files, to see whether they have changed.

    Of a file that is too large for a notebook, the size and time of its last change
    suffice.
    """
    total = hashlib.sha256()
    for path in paths:
        if path.is_file():
            facts = path.stat()
            large = facts.st_size > MAX_BYTES
            stamp = f"{facts.st_size} {facts.st_mtime_ns}".encode()
            total.update(stamp if large else path.read_bytes())
        total.update(b"\0")
    return total.hexdigest()


def readable(text: str) -> str:
    """A text that any file and terminal takes: what is no character becomes "?".

    Line ends and tabs stay.
    """
    return "".join(
        "?" if category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text
    )

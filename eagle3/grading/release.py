"""From an assignment's source notebook to what students get. [Ours]

The same as `nbgrader generate_assignment`: solution regions become a stub, outputs
go, and cells that are not for solutions are locked. Besides, the cell of given numbers
is written for the variant's seed.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any

from eagle3.grading.questions import Assignment

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "raise NotImplementedError()"
NUMBERS = "# The numbers of this assignment."


def make_release(source: Path, assignment: Assignment, variant: int = 0) -> str:
    """The text of the notebook to hand out.

    source: the notebook with solutions      variant: seed of the given numbers

    Raises ValueError for a solution region that doesn't end, or a cell whose
    metadata don't fit.
    """
    notebook = json.loads(source.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        mark = cell["metadata"].get("nbgrader")
        if text.startswith(NUMBERS):
            text = numbers_cell(assignment.numbers(variant))
        if mark and mark["solution"]:
            text = without_solution(text, mark["grade_id"])
        if mark and (mark["grade"] or mark["locked"] or mark["solution"]):
            lock(cell, mark)
        cell["source"] = text.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if mark and (mark["grade"] or mark["locked"] or mark["solution"]):
            mark["checksum"] = checksum(cell, text)
            mark["cell_type"] = cell["cell_type"]
    # As Jupyter writes it, so that nbgrader's own release is the same file.
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def numbers_cell(numbers: Mapping[str, Any]) -> str:
    """The cell of given numbers: one assignment a line."""
    lines = [
        f"{name} = {pformat(value, width=70, compact=True, sort_dicts=False)}"
        for name, value in numbers.items()
    ]
    return "\n".join([NUMBERS, *lines])


def without_solution(text: str, name: str) -> str:
    """A cell's text with a stub for each solution region.

    Raises ValueError for a region that doesn't begin or end, or for none.
    """
    kept: list[str] = []
    inside = found = False
    for line in text.split("\n"):
        if line.strip() == BEGIN and not inside:
            inside = found = True
            indent = re.match(r"\s*", line)
            kept.append(f"{indent.group() if indent else ''}{STUB}")
        elif line.strip() == END and inside:
            inside = False
        elif not inside:
            kept.append(line)
    if inside or not found:
        raise ValueError(f"cell '{name}' needs a region from '{BEGIN}' to '{END}'.")
    return "\n".join(kept)


def lock(cell: dict[str, Any], mark: Mapping[str, Any]) -> None:
    """Keep a cell from being deleted, and all but answers from being changed."""
    cell["metadata"]["deletable"] = False
    if not mark["solution"]:
        cell["metadata"]["editable"] = False


def checksum(cell: Mapping[str, Any], text: str) -> str:
    """nbgrader's fingerprint of a cell, by which it sees changes."""
    mark = cell["metadata"]["nbgrader"]
    total = hashlib.md5(usedforsecurity=False)
    total.update(text.encode())
    locked = mark["grade"] or mark["locked"]
    facts = [cell["cell_type"], bool(mark["grade"]), bool(mark["solution"])]
    facts += [not mark["solution"] and bool(locked), mark["grade_id"]]
    if mark["grade"]:
        facts.append(float(mark["points"]))
    for fact in facts:
        total.update(str(fact).encode())
    return total.hexdigest()

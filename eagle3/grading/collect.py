"""Submissions in a folder, in nbgrader's layout or flat. [Ours]

`SUBMISSIONS/STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb` is what nbgrader collects.
`SUBMISSIONS/STUDENT/ASSIGNMENT.ipynb` does as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Submission:
    """A student's notebook of one assignment."""

    student: str
    assignment: str
    path: Path


def find_submissions(folder: Path, assignments: Sequence[str]) -> list[Submission]:
    """All submissions in a folder, by student and assignment.

    assignments: their names

    A notebook with another name belongs to no assignment and is passed over; links are
    not followed, since they may lead to somebody else's work. Raises ValueError for a
    folder that is missing or without submissions.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder '{folder}' with submissions.")
    found = []
    for student in sorted(folder.iterdir()):
        if not student.is_dir() or student.name.startswith((".", "_")):
            continue
        for name in assignments:
            places = (student / name / f"{name}.ipynb", student / f"{name}.ipynb")
            here = [path for path in places if _is_there(path, folder)]
            if here:
                found.append(Submission(student.name, name, here[0]))
    if not found:
        raise ValueError(
            f"'{folder}' holds no submissions: put each at STUDENT/NAME/NAME.ipynb, "
            f"with NAME one of {', '.join(assignments)}."
        )
    return found


def _is_there(path: Path, folder: Path) -> bool:
    """Whether there is a file, to which no step from the folder down is a link.

    What can't be looked at counts: the grader then says so.
    """
    steps = [path, *path.parents]
    try:
        linked = any(step.is_symlink() for step in steps[: steps.index(folder)])
        return not linked and path.is_file()
    except PermissionError:
        return True

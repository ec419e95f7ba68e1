"""Where the parts of a course are: `assignments/` in the book's repository. [Ours]

source/NAME/NAME.ipynb    with solutions; only teachers have it
release/NAME/NAME.ipynb   what students get, made from the source
checks/NAME.py            hidden checks; only teachers have them
"""

from dataclasses import dataclass
from pathlib import Path

from eagle3.grading.questions import Assignment, load_assignment
from eagle3.grading.release import make_release

HERE = Path(__file__).parents[2] / "assignments"


@dataclass(frozen=True)
class Course:
    """The folders of a course."""

    folder: Path = HERE

    @property
    def names(self) -> list[str]:
        """Names of the assignments that have checks.

        Raises ValueError where there are none, as in a student's copy.
        """
        found = sorted(path.stem for path in (self.folder / "checks").glob("*.py"))
        if not found:
            raise ValueError(
                f"'{self.folder}' has no checks; grading needs the teacher's copy."
            )
        return found

    def checks(self, name: str) -> Path:
        """The file of hidden checks."""
        return self.folder / "checks" / f"{name}.py"

    def source(self, name: str) -> Path:
        """The notebook with solutions."""
        return self.folder / "source" / name / f"{name}.ipynb"

    def release(self, name: str) -> Path:
        """The notebook for students."""
        return self.folder / "release" / name / f"{name}.ipynb"

    def assignment(self, name: str) -> Assignment:
        """An assignment's checks, loaded."""
        return load_assignment(self.checks(name))

    def write_release(self, name: str, variant: int, out: Path | None = None) -> Path:
        """Make the notebook for students from the source; returns where it is.

        out: a folder instead of release/
        """
        path = self.release(name) if out is None else out / name / f"{name}.ipynb"
        text = make_release(self.source(name), self.assignment(name), variant)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for extra in sorted(self.source(name).parent.iterdir()):
            if extra.suffix != ".ipynb" and extra.is_file():
                (path.parent / extra.name).write_bytes(extra.read_bytes())
        return path

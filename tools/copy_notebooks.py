"""Gives the reader working copies of the chapters, so that a pull never conflicts.

A copy that exists is never overwritten: it holds the reader's own work.
"""

import filecmp
import shutil
import sys
from pathlib import Path


def copy_notebooks(source: Path, target: Path) -> list[Path]:
    """Copies what is missing; returns the chapters that changed after their copy."""
    target.mkdir(exist_ok=True)
    changed = []
    for chapter in sorted(source.glob("*.ipynb")):
        copy = target / chapter.name
        if not copy.exists():
            shutil.copy2(chapter, copy)
        elif chapter.stat().st_mtime > copy.stat().st_mtime and not filecmp.cmp(
            chapter, copy, shallow=False
        ):
            changed.append(chapter)
    return changed


if __name__ == "__main__":
    for chapter in copy_notebooks(Path(sys.argv[1]), Path(sys.argv[2])):
        print(
            f"{chapter} is newer than your copy in {sys.argv[2]}: "
            "rename or delete your copy to get the new chapter."
        )

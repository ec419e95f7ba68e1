"""Gives the reader working copies of the chapters, so that a pull never conflicts.

A copy that exists is never overwritten: it holds the reader's own work. A fresh copy is
trusted from the start: JupyterLab hides SVG pictures of notebooks it does not trust.
"""

import filecmp
import shutil
import sys
from pathlib import Path


def copy_notebooks(source: Path, target: Path) -> tuple[list[Path], list[Path]]:
    """Copies what is missing.

    Returns the fresh copies, and the chapters that changed after their copy.
    """
    target.mkdir(exist_ok=True)
    fresh, changed = [], []
    for chapter in sorted(source.glob("*.ipynb")):
        copy = target / chapter.name
        if not copy.exists():
            shutil.copy2(chapter, copy)
            fresh.append(copy)
        elif chapter.stat().st_mtime > copy.stat().st_mtime and not filecmp.cmp(
            chapter, copy, shallow=False
        ):
            changed.append(chapter)
    return fresh, changed


def trust(notebooks: list[Path]) -> None:
    """Signs notebooks with the reader's own key, as `jupyter trust` does."""
    if not notebooks:
        return
    import nbformat  # slow to import, and only a fresh copy needs it
    from nbformat.sign import NotebookNotary

    with NotebookNotary() as notary:
        for path in notebooks:
            notary.sign(nbformat.read(path, as_version=4))


if __name__ == "__main__":
    fresh, changed = copy_notebooks(Path(sys.argv[1]), Path(sys.argv[2]))
    trust(fresh)
    for chapter in changed:
        print(
            f"{chapter} is newer than your copy in {sys.argv[2]}: "
            "rename or delete your copy to get the new chapter."
        )

"""Times the chapters and saves figures/results/chapters.json for the chapter tables.

Each notebook is run in order with all cores, as a reader would run it; the files stay
as they are. Run it when nothing else keeps the machine busy.
"""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from eagle3.bench.environment import write_results

ROOT = Path(__file__).parents[1]


def seconds_to_run(path: Path) -> float:
    """Seconds from the start of the kernel to the end of the last cell."""
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return time.perf_counter() - started


if __name__ == "__main__":
    chapters = sorted((ROOT / "notebooks").glob("*.ipynb"))
    seconds = {path.stem: seconds_to_run(path) for path in chapters}
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "figures" / "results"
    print(write_results("chapters", {"seconds": seconds}, folder))

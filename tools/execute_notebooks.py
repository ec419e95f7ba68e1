"""Runs notebooks in place and saves them the way this repository wants them.

Outputs and execution counts stay, since they are what a static page shows and what
nbval compares. Widget state, time stamps and version numbers go: they are noise in a
diff, and widget state can make a code host refuse to show the page. The ids of widgets
go with their state: where no kernel has it, JupyterLab waits for a widget with an id
("Loading widget..."), and hides one without.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELL_SECONDS = 600
WIDGET = "application/vnd.jupyter.widget-view+json"


def execute(path: Path) -> None:
    """Runs one notebook in its own folder and replaces the file if no cell failed.

    Raises nbclient's CellExecutionError at the first failing cell; the file then
    stays as it was.
    """
    notebook = run(path)
    tidy(notebook)
    fresh = path.with_suffix(".ipynb.tmp")
    nbformat.write(notebook, fresh)
    fresh.replace(path)


def run(path: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of a fresh run, widget state and all.

    Raises nbclient's CellExecutionError at the first failing cell.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # a print that was sent in two pieces is saved as one
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Leaves only the metadata that every machine agrees on."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "name": "python3",
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
            },
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            view = output.get("data", {}).get(WIDGET)
            if view is not None:
                view["model_id"] = ""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"running {name}", flush=True)
        execute(Path(name))

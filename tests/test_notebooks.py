"""Every committed notebook passes the guard, and the guard catches what it should.

The right verdicts come from making one good notebook and breaking it in one way.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from copy_notebooks import copy_notebooks, trust
from execute_notebooks import WIDGET, execute
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbval.plugin import get_sanitize_patterns
from notebook_guard import BUILD_HEADINGS, HEADINGS, problems, required_headings

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SVG = '<svg role="img" aria-label="two bars"></svg>'


def test_the_first_chapter_exists() -> None:
    assert ROOT / "notebooks" / "00_start_here.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_passes_the_guard(path: Path) -> None:
    assert problems(path) == []


# --- the guard on made-up notebooks ---------------------------------------------------


def good_notebook() -> NotebookNode:
    """A chapter that passes: title, all headings, one cell that prints, one picture."""
    printed = new_output("stream", name="stdout", text="2\n")
    shown = {"image/png": "iVBORw0KGgo=", "text/plain": "Figure: a bar of height 2"}
    cells = [
        new_markdown_cell("# A title"),
        *[new_markdown_cell(f"## {heading}") for heading in BUILD_HEADINGS],
        new_code_cell("print(1 + 1)", execution_count=1, outputs=[printed]),
        new_code_cell(
            "draw()",
            execution_count=2,
            outputs=[new_output("display_data", data=shown)],
        ),
    ]
    kernel = {"name": "python3", "display_name": "Python 3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def code(notebook: NotebookNode, index: int = 0) -> NotebookNode:
    return [c for c in notebook.cells if c.cell_type == "code"][index]


def verdict(notebook: NotebookNode, folder: Path, name: str = "03_x.ipynb") -> str:
    nbformat.write(notebook, folder / name)
    return "\n".join(problems(folder / name))


def test_a_good_notebook_has_no_problem(tmp_path: Path) -> None:
    assert verdict(good_notebook(), tmp_path) == ""


def strip(nb: NotebookNode) -> None:
    for cell in (code(nb, 0), code(nb, 1)):
        cell.outputs, cell.execution_count = [], None


def lose_outputs(nb: NotebookNode) -> None:
    code(nb).outputs = []


def run_twice(nb: NotebookNode) -> None:
    code(nb, 0).execution_count = 3


def fail(nb: NotebookNode) -> None:
    code(nb).outputs.append(new_output("error", ename="ValueError", evalue="no"))


def warn(nb: NotebookNode) -> None:
    code(nb).outputs.append(new_output("stream", name="stderr", text="Warning: old"))


def keep_widget_state(nb: NotebookNode) -> None:
    nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def other_kernel(nb: NotebookNode) -> None:
    nb.metadata.kernelspec.name = "my-venv"


def long_cell(nb: NotebookNode) -> None:
    code(nb).source += "\nx = 1" * 40


def wide_line(nb: NotebookNode) -> None:
    code(nb).source += "\nx = " + "1" * 76


def empty_cell(nb: NotebookNode) -> None:
    code(nb, 1).source = " "


def install_by_magic(nb: NotebookNode) -> None:
    code(nb).source = "%pip install torch\nprint(1 + 1)"


def install_by_shell(nb: NotebookNode) -> None:
    code(nb).source = "! python -m pip install -q torch\nprint(1 + 1)"


def install_by_process(nb: NotebookNode) -> None:
    code(nb).source = 'run([python, "-m", "pip", "install", "x"])\nprint(1 + 1)'


def path_in_output(nb: NotebookNode) -> None:
    code(nb).outputs[0].text = "saved /home/ada/x.png"


def path_in_source(nb: NotebookNode) -> None:
    code(nb).source += "\nopen('/Users/ada/x')"


def picture_without_words(nb: NotebookNode) -> None:
    code(nb, 1).outputs[0].data["text/plain"] = "<Figure size 640x480 with 1 Axes>"


def svg_without_words(nb: NotebookNode) -> None:
    code(nb, 1).outputs[0].data = {"image/svg+xml": '<svg aria-label=""></svg>'}


def html_picture_without_words(nb: NotebookNode) -> None:
    code(nb, 1).outputs[0].data = {"text/html": '<img src="x.png">'}


def html_svg_without_words(nb: NotebookNode) -> None:
    code(nb, 1).outputs[0].data = {"text/html": f"<div>{SVG}<svg></svg></div>"}


def markdown_picture_without_words(nb: NotebookNode) -> None:
    nb.cells[1].source += "\n![](x.svg)"


def ignore_by_tag(nb: NotebookNode) -> None:
    code(nb).metadata["tags"] = ["nbval-ignore-output"]


def ignore_by_comment(nb: NotebookNode) -> None:
    code(nb).source = "# NBVAL_SKIP\nprint(1 + 1)"


def lose_heading(nb: NotebookNode) -> None:
    nb.cells = [c for c in nb.cells if "The proof" not in c.source]


def swap_headings(nb: NotebookNode) -> None:
    nb.cells[1], nb.cells[2] = nb.cells[2], nb.cells[1]


def lose_title(nb: NotebookNode) -> None:
    nb.cells[0].source = "Just text"


def grow(nb: NotebookNode) -> None:
    code(nb).outputs[0].text = "2\n" * 300_000


BREAKS = [
    (strip, "was not run top to bottom"),
    (strip, "prints, but has no saved output"),
    (lose_outputs, "prints, but has no saved output"),
    (run_twice, "execution counts are"),
    (fail, "an error output: ValueError"),
    (warn, "an output on stderr"),
    (keep_widget_state, "widget state"),
    (other_kernel, "kernel is 'my-venv'"),
    (long_cell, "41 lines: at most 40"),
    (wide_line, "80 columns: at most 79"),
    (empty_cell, "empty"),
    (install_by_magic, "installs packages"),
    (install_by_shell, "installs packages"),
    (install_by_process, "installs packages"),
    (path_in_output, "a path of one machine in its output"),
    (path_in_source, "a path of one machine: "),
    (picture_without_words, "a picture without words"),
    (svg_without_words, "a picture without words"),
    (html_picture_without_words, "a picture without words"),
    (html_svg_without_words, "a picture without words"),
    (markdown_picture_without_words, "a picture without alt text"),
    (ignore_by_tag, "say why"),
    (ignore_by_comment, "say why"),
    (lose_heading, "heading missing: 'The proof'"),
    (swap_headings, "heading out of order"),
    (lose_title, "the first cell must hold the title"),
    (grow, "bytes: keep it under 500000"),
]


@pytest.mark.parametrize(
    ("break_it", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", None)
)
def test_the_guard_catches_a_broken_notebook(
    break_it: Callable[[NotebookNode], None], message: str, tmp_path: Path
) -> None:
    notebook = good_notebook()
    break_it(notebook)
    assert message in verdict(notebook, tmp_path)


def test_the_guard_catches_what_is_no_notebook(tmp_path: Path) -> None:
    path = tmp_path / "03_x.ipynb"
    path.write_text("<html>", encoding="utf-8")
    assert "not a valid notebook" in problems(path)[0]
    notebook = good_notebook()
    del code(notebook)["outputs"]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert "not a valid notebook: 'outputs' is a required" in problems(path)[0]


def test_what_the_guard_lets_pass(tmp_path: Path) -> None:
    notebook = good_notebook()
    code(notebook).metadata["tags"] = ["nbval-ignore-output"]
    code(notebook).source = "# Not compared: times differ.\nprint(1 + 1)"
    code(notebook, 1).outputs[0].data = {"image/svg+xml": SVG, "text/html": "<b>2</b>"}
    notebook.cells[1].source += '\n![two bars](x.svg) <img src="y" alt="three bars">'
    notebook.cells[2].source += " (five minutes)"
    notebook.cells.append(
        new_code_cell("def f():\n    print(1)\n\nr = 3 / 2", execution_count=3)
    )
    assert verdict(notebook, tmp_path) == ""


def test_headings_depend_on_the_kind_of_notebook(tmp_path: Path) -> None:
    notebook = good_notebook()
    notebook.cells = [c for c in notebook.cells if c.source[3:] not in BUILD_HEADINGS]
    assert verdict(notebook, tmp_path, "A_notation.ipynb") == ""
    assert required_headings(Path("00_start_here.ipynb")) == HEADINGS
    assert set(HEADINGS) < set(BUILD_HEADINGS)


# --- how notebooks are run, saved and handed to the reader ----------------------------


def unrun_notebook(*sources: str) -> NotebookNode:
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.cells[0].metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    return notebook


def test_execute_keeps_outputs_and_drops_widget_state(tmp_path: Path) -> None:
    path = tmp_path / "A_x.ipynb"
    source = "import ipywidgets\nprint(1 + 1)\nipywidgets.IntSlider()"
    nbformat.write(unrun_notebook("x = 3", source), path)
    execute(path)
    saved = nbformat.read(path, as_version=4)
    assert [c.execution_count for c in saved.cells] == [1, 2]
    stream, shown = saved.cells[1].outputs
    assert stream.text == "2\n"
    assert shown.data[WIDGET]["model_id"] == ""  # JupyterLab hides it then
    assert set(saved.metadata) == {"kernelspec", "language_info"}
    assert all("execution" not in cell.metadata for cell in saved.cells)
    assert [p.name for p in tmp_path.iterdir()] == ["A_x.ipynb"]


def test_execute_leaves_the_file_alone_when_a_cell_fails(tmp_path: Path) -> None:
    path = tmp_path / "A_x.ipynb"
    nbformat.write(unrun_notebook("print(1)", "1 / 0"), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(path)
    assert path.read_bytes() == before


def test_the_readers_copy_is_never_overwritten(tmp_path: Path) -> None:
    source, target = tmp_path / "notebooks", tmp_path / "mine"
    source.mkdir()
    chapter = source / "00_x.ipynb"
    chapter.write_text("first", encoding="utf-8")
    mine = target / "00_x.ipynb"
    assert copy_notebooks(source, target) == ([mine], [])
    assert mine.read_text(encoding="utf-8") == "first"
    mine.write_text("my notes", encoding="utf-8")
    assert copy_notebooks(source, target) == ([], [])  # only the copy changed
    chapter.write_text("second", encoding="utf-8")
    later = mine.stat().st_mtime + 10
    os.utime(chapter, (later, later))
    assert copy_notebooks(source, target) == ([], [chapter])
    assert mine.read_text(encoding="utf-8") == "my notes"


def test_a_fresh_copy_is_trusted_and_another_notebook_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterLab asks the same notary, whose key lies in the reader's data folder."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    ours, foreign = unrun_notebook("print(1)"), unrun_notebook("print(2)")
    nbformat.write(ours, tmp_path / "ours.ipynb")
    trust([])
    assert not (tmp_path / "data").exists()
    trust([tmp_path / "ours.ipynb"])
    read = nbformat.read(tmp_path / "ours.ipynb", as_version=4)
    assert NotebookNotary().check_signature(read)
    assert not NotebookNotary().check_signature(foreign)


# --- what nbval does not compare ------------------------------------------------------


def sanitized(text: str) -> str:
    rules = (ROOT / "tests" / "nbval_sanitize.cfg").read_text(encoding="utf-8")
    for pattern, replacement in get_sanitize_patterns(rules):
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("took   7.9 ms", "took 123.4 ms"),
        ("12 µs and 3 μs", "9 µs and 1 μs"),
        ("1,234.5 tok/s", "98 tok/s"),
        ("bandwidth 23.1 GB/s", "bandwidth 9 GB/s"),
        ("speedup 1.53x", "speedup 0.9x"),
        ("<Slider at 0x7f3a5c0011>", "<Slider at 0x7f00000022>"),
    ],
)
def test_what_differs_between_machines_is_sanitized(here: str, there: str) -> None:
    assert sanitized(here) == sanitized(there)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("acceptance length 2.31", "acceptance length 2.32"),
        ("p = [0.6, 0.4]", "p = [0.4, 0.6]"),
        ("5 steps", "6 steps"),
        ("shape 3 x 4", "shape 4 x 4"),
        ("2x as many passes", "3x as many passes"),
        ("token 0x41", "token 0x42"),
    ],
)
def test_what_must_not_differ_is_still_compared(right: str, wrong: str) -> None:
    assert sanitized(right) != sanitized(wrong)

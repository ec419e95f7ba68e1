"""What must hold for every notebook that is committed, and that nbval does not check.

nbval passes without a word on a notebook whose outputs were stripped, and it never
looks at pictures, widget state or the form of a chapter. `problems` lists what is wrong
with one file, in sentences; an empty list means that the notebook may be committed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

MAX_BYTES = 500_000
MAX_CELL_LINES = 40
MAX_LINE_WIDTH = 79

# Headings of every chapter, in this order; more may stand between them. A heading may
# go on after these words: "## The proof: your rule equals the module's".
HEADINGS = (
    "You will be able to",
    "Before you start",
    "What can go wrong",
    "Exercises",
    "Summary",
    "Sources",
)
# Chapters 1 to 15 build something, so they show the problem and the proof as well.
BUILD_HEADINGS = (
    *HEADINGS[:2],
    "The problem",
    "The proof",
    "On the real model",
    *HEADINGS[2:],
)

_ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/~-])/(?:home|Users|root|tmp|mnt|opt|var|private|work)/\w|\b[A-Z]:\\Users"
)
_IGNORES_OUTPUT = re.compile(r"nbval[-_](?:ignore[-_]output|skip)", re.IGNORECASE)
_REASON = re.compile(r"^# Not compared: \w", re.MULTILINE)
_SVG_WITHOUT_WORDS = re.compile(
    r"<svg(?![^>]*\baria-label(?:ledby)?=\"[^\"])(?![^>]*\baria-hidden=\"true\")[^>]*>"
)
# A reader's packages are the reader's: `%pip install torch` would replace a CUDA build.
_INSTALLS = re.compile(
    r"^\s*[!%]+ *(?:\w+ +)*?(?:pip|conda|mamba|uv)\b"
    r"|\b(?:pip|conda|mamba|uv)[\"', ]+install\b",
    re.MULTILINE,
)
_EMPTY_ALT = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt=[\"'][^\"'])[^>]*>")


def problems(path: Path) -> list[str]:
    """Lists everything that is wrong with the notebook at `path`. [Ours]"""
    found = [*_check_size(path)]
    try:
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
    except (
        nbformat.ValidationError,
        nbformat.reader.NotJSONError,
        AssertionError,  # nbformat's own, on cells of no kind
        ValueError,
        RecursionError,
        AttributeError,
        KeyError,
        TypeError,
    ) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return [*found, f"not a valid notebook: {said[:200]}"]
    found += _check_metadata(notebook)
    found += _check_counts(notebook)
    found += _check_headings(path, notebook)
    for number, cell in enumerate(notebook.cells, start=1):
        found += [f"cell {number}: {text}" for text in _check_cell(cell)]
    return found


def _check_size(path: Path) -> Iterator[str]:
    if path.stat().st_size >= MAX_BYTES:
        yield f"{path.stat().st_size} bytes: keep it under {MAX_BYTES}"


def _check_metadata(notebook: NotebookNode) -> Iterator[str]:
    if "widgets" in notebook.metadata:
        yield "holds widget state: save it with 'make notebooks'"
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"kernel is {kernel!r}, not 'python3'"


def _check_counts(notebook: NotebookNode) -> Iterator[str]:
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
    if not counts:
        yield "has no code cell"
    if counts != list(range(1, len(counts) + 1)):
        yield f"was not run top to bottom: execution counts are {counts}"


def _check_headings(path: Path, notebook: NotebookNode) -> Iterator[str]:
    texts = [c.source for c in notebook.cells if c.cell_type == "markdown"]
    if not (notebook.cells and notebook.cells[0].source.startswith("# ")):
        yield "the first cell must hold the title ('# ...')"
    headings = re.findall(r"^#{2,3} +(.*)", "\n".join(texts), re.MULTILINE)
    at = 0
    for wanted in required_headings(path):
        places = [i for i, text in enumerate(headings) if text.startswith(wanted)]
        if not places:
            yield f"heading missing: {wanted!r}"
        elif places[0] < at:
            yield f"heading out of order: {wanted!r}"
        else:
            at = places[0]


def required_headings(path: Path) -> tuple[str, ...]:
    """The headings that a file needs by its name; appendices (A_, B_, ...) are free."""
    if path.name.startswith("00_"):
        return HEADINGS
    return BUILD_HEADINGS if path.name[:1].isdigit() else ()


def _check_cell(cell: NotebookNode) -> Iterator[str]:
    if match := _ABSOLUTE_PATH.search(cell.source):
        yield f"a path of one machine: {match.group()!r}"
    if cell.cell_type == "markdown" and (match := _EMPTY_ALT.search(cell.source)):
        yield f"a picture without alt text: {match.group()!r}"
    if cell.cell_type == "code":
        yield from _check_source(cell)
        for output in cell.outputs:
            yield from _check_output(output)


def _check_source(cell: NotebookNode) -> Iterator[str]:
    lines = cell.source.splitlines()
    if not cell.source.strip():
        yield "empty"
    if len(lines) > MAX_CELL_LINES:
        yield f"{len(lines)} lines: at most {MAX_CELL_LINES}"
    widest = max((len(line) for line in lines), default=0)
    if widest > MAX_LINE_WIDTH:
        yield f"a line of {widest} columns: at most {MAX_LINE_WIDTH}"
    if _INSTALLS.search(cell.source):
        yield "installs packages: that is the set-up's work"
    if prints(cell.source) and not cell.outputs:
        yield "prints, but has no saved output"
    marks = " ".join([*cell.metadata.get("tags", []), cell.source])
    if _IGNORES_OUTPUT.search(marks) and not _REASON.search(cell.source):
        yield "its output is not compared: say why in a line '# Not compared: ...'"


def prints(source: str) -> bool:
    """Whether running the cell surely prints: print(...) outside any def or branch."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # cells with % or ! lines
        return False
    calls = [s.value for s in statements if isinstance(s, ast.Expr)]
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "print"
        for call in calls
    )


def _check_output(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "error":
        yield f"an error output: {output.ename}"
    if output.output_type == "stream" and output.name == "stderr":
        yield f"an output on stderr: {output.text[:60]!r}"
    if match := _ABSOLUTE_PATH.search(_text_of(output)):
        yield f"a path of one machine in its output: {match.group()!r}"
    if "data" in output and not _pictures_have_words(output):
        yield (
            "a picture without words: give it text/plain 'Figure: ...', or an SVG "
            "with role=img and aria-label"
        )


def _text_of(output: NotebookNode) -> str:
    texts = [output.get("text", ""), *output.get("traceback", [])]
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/"):
            texts.append(value)
    return "\n".join(texts)


def _pictures_have_words(output: NotebookNode) -> bool:
    data = output.data
    html = str(data.get("text/html", ""))
    if _EMPTY_ALT.search(html) or _SVG_WITHOUT_WORDS.search(html):
        return False
    if not any(kind.startswith("image/") for kind in data):
        return True
    svg = str(data.get("image/svg+xml", ""))
    speaks = "<svg" in svg and not _SVG_WITHOUT_WORDS.search(svg)
    return speaks or str(data.get("text/plain", "")).startswith("Figure: ")

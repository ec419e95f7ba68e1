"""What must hold for the words of a chapter: numbers, links, length, short cells.

`problems` lists what is wrong with one file, in sentences, as `notebook_guard` does
for the form of a notebook. The rule for numbers: what looks like a measurement stands
in the output of a cell above it, or as a literal in a code cell of the same chapter
(a setting), or in figures/paper beside the tag [Paper]. Any other number is named in
a comment that pages don't show, with its reason: `<!-- given: 0.11; made up -->`.
"""

import ast
import io
import json
import re
import statistics
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
MIN_WORDS, MAX_WORDS = 1_500, 3_500
MAX_MEDIAN_LINES = 6
SMALL = 20  # whole numbers below it count things in the text: "three rows", "row 3"

VALUE = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
UNIT = r"[ \n]?(?:%|x\b|×|times\b|ms\b|s\b|GB/s\b|GB\b|MB\b|KB\b|tokens/s\b)"
NUMBER = re.compile(rf"(?<![\w.,#])({VALUE})({UNIT})?(?![\d])(?!\.\d)(?!,\d{{3}})")
GIVEN = re.compile(r"<!-- given: (\d[^;>]*); \S[^>]* -->")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`\n]*(?:\n[^`\n]*)?`")
FORMULA = re.compile(r"\$\$.*?\$\$", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Numbers that are names: of sections and figures, models, versions, papers, years.
NAMES = re.compile(
    r"https?://\S+|doi:\S+|arXiv:\S+|\]\([^)]*\)"
    r"|\b(?i:sections?|chapters?|tables?|figures?|exercises?|appendix|versions?|GPT|"
    r"Llama|LLaMA-Instruct|Vicuna|Python|pull requests?|RTX)"
    r"[\s-]+(?:[A-Z]\b|\d+[A-Z]?\b)(?:\.\d+)*(?:(?:,| and| to| or)\s+\d+(?:\.\d+)*)*"
    r"|\b[A-Za-z]\w*-\d[\w.]*|\b(?:19|20)\d\d\b|\b(?=\w*[a-f])(?=\w*\d)[\da-f]{7,40}\b"
    r"|\d+\s+minutes|95%\s+intervals?|(?m:^#+ .*$)",
)


@dataclass(frozen=True)
class Cell:
    """A cell as far as its words go; `outputs` holds every text that it shows."""

    kind: str
    source: str
    outputs: tuple[str, ...]
    tags: tuple[str, ...]


def read(path: Path) -> list[Cell]:
    """The cells of a notebook. Its form is checked by the guard, not here."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    return [
        Cell(
            cell["cell_type"],
            "".join(cell["source"]),
            tuple(shown_texts(cell)),
            tuple(cell["metadata"].get("tags", ())),
        )
        for cell in saved["cells"]
    ]


def shown_texts(cell: dict[str, Any]) -> Iterator[str]:
    """What a cell shows: text, tables and SVG pictures."""
    for output in cell.get("outputs", []):
        yield "".join(output.get("text", ""))
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/") or kind == "image/svg+xml":
                yield "".join(data)


def problems(path: Path) -> list[str]:
    """Lists what is wrong with the words of the notebook at `path`. [Ours]"""
    cells = read(path)
    found = [*_check_numbers(cells), *_check_links(path, cells)]
    if path.name[:1].isdigit():  # appendices are tables, with no length asked for
        found += _check_length(cells)
    return found


def texts(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """Number and source of each Markdown cell, counted from 1."""
    for number, cell in enumerate(cells, start=1):
        if cell.kind == "markdown":
            yield number, cell.source


# ---------------------------------------------------------------------------- numbers


def value_of(literal: str) -> float:
    """1,234.5 as a number."""
    return float(literal.replace(",", ""))


def prose(source: str) -> str:
    """Markdown without code, comments, link targets and numbers that are names."""
    for pattern in (FENCE, INLINE, COMMENT, NAMES):
        source = pattern.sub(" ", source)
    return source


def measurements(source: str) -> Iterator[tuple[str, float]]:
    """Each number of a text that looks measured: as written, and its value.

    Those are numbers with a decimal point, a thousands comma, a unit or a percent
    sign, and whole ones from 20 on. A percentage counts as itself.
    """
    for match in NUMBER.finditer(prose(source)):
        literal, unit = match.groups()
        value = value_of(literal)
        if "." in literal or "," in literal or unit or value >= SMALL:
            yield " ".join(match.group().split()), value


def numbers_in(text: str) -> set[float]:
    """All numbers of an output."""
    return {value_of(found) for found in re.findall(VALUE, text)}


def printed(cell: Cell) -> set[float]:
    """All numbers in what a code cell shows."""
    return {value for text in cell.outputs for value in numbers_in(text)}


def settings(cells: Sequence[Cell]) -> set[float]:
    """All number literals in code, comments and strings not counted."""
    found = set()
    for cell in cells:
        if cell.kind == "code":
            for token in tokenize.generate_tokens(io.StringIO(cell.source).readline):
                if token.type == tokenize.NUMBER and not token.string.endswith("j"):
                    found.add(float(ast.literal_eval(token.string)))
    return found


def given(source: str) -> set[float]:
    """The numbers that a text declares as neither printed nor measured."""
    return {
        value
        for listed in GIVEN.findall(source)
        for value in numbers_in(listed.replace(", ", " "))
    }


def fenced(source: str) -> set[float]:
    """The numbers of a folded solution's code, which `test_exercises.py` runs."""
    return {value for block in FENCE.findall(source) for value in numbers_in(block)}


def leaves(data: Any) -> Iterator[float]:
    """All numbers in JSON data, those in its texts as well."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from leaves(item)
    elif isinstance(data, str):
        yield from numbers_in(data)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield float(data)


@cache
def paper_numbers() -> frozenset[float]:
    """Every number in figures/paper."""
    files = sorted((ROOT / "figures" / "paper").glob("*.json"))
    return frozenset(
        number
        for file in files
        for number in leaves(json.loads(file.read_text(encoding="utf-8")))
    )


def _check_numbers(cells: Sequence[Cell]) -> Iterator[str]:
    constants, shown = settings(cells), set()
    for number, cell in enumerate(cells, start=1):
        if cell.kind != "markdown":
            shown |= printed(cell)
            continue
        source, declared = cell.source, given(cell.source)
        if len(GIVEN.findall(source)) != source.count("<!-- given:"):
            yield f"cell {number}: write '<!-- given: 1.5, 20%; the reason -->'"
        known = shown | constants | declared | fenced(source)
        if "[Paper" in source:
            known |= paper_numbers()
        found = dict(measurements(source))
        for literal, value in found.items():
            share = "%" in literal and value / 100 in known
            if value not in known and not share:
                yield f"cell {number}: no cell above prints {literal!r}"
        for value in declared - set(found.values()):
            yield f"cell {number}: {value:g} is declared as given, but not in the text"


# ------------------------------------------------------------------------------ links


def anchors(cells: Sequence[Cell]) -> set[str]:
    """What a link within a notebook may name: headings with '-' for spaces."""
    text = FENCE.sub("", "\n".join(source for _, source in texts(cells)))
    return {
        heading.strip().replace(" ", "-")
        for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    }


def _check_links(path: Path, cells: Sequence[Cell]) -> Iterator[str]:
    for number, source in texts(cells):
        for link in LINK.findall(INLINE.sub("", FENCE.sub("", source))):
            if not leads_somewhere(path, cells, link):
                yield f"cell {number}: a link that leads nowhere: {link}"
        for file in re.findall(
            r"`((?:eagle3|figures|notebooks|tests|tools)/[\w./-]*)`", source
        ):
            if not (ROOT / file).exists():
                yield f"cell {number}: a file that isn't there: {file}"


def leads_somewhere(path: Path, cells: Sequence[Cell], link: str) -> bool:
    """Whether a link's file, and its heading if it names one, exist. [Ours]"""
    if link.startswith(("https://", "mailto:")):
        return True
    name, _, anchor = unquote(link).partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return False
    if anchor and target.suffix == ".ipynb" and name:
        cells = read(target)
    return not anchor or target.suffix != ".ipynb" or anchor in anchors(cells)


# ----------------------------------------------------------------------------- length


def num_words(cells: Sequence[Cell]) -> int:
    """Words of prose: what holds a letter, outside code, comments and formulas."""
    text = "\n".join(source for _, source in texts(cells))
    for pattern in (FENCE, COMMENT, FORMULA):
        text = pattern.sub(" ", text)
    return sum(1 for word in text.split() if re.search(r"[^\W\d_]", word))


def median_lines(cells: Sequence[Cell]) -> float:
    """The median number of lines of a code cell."""
    return statistics.median(
        len(cell.source.splitlines()) for cell in cells if cell.kind == "code"
    )


def _check_length(cells: Sequence[Cell]) -> Iterator[str]:
    words, lines = num_words(cells), median_lines(cells)
    if not MIN_WORDS <= words <= MAX_WORDS:
        yield f"{words} words: from {MIN_WORDS:,} to {MAX_WORDS:,}"
    if lines > MAX_MEDIAN_LINES:
        yield f"half of its code cells have {lines:g} lines or more: at most 6"

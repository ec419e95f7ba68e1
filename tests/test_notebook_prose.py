"""The words of every chapter: its numbers, links, length and spelling.

Right verdicts come from one good text that is broken in one way.
"""

import json
import re
from pathlib import Path

import pytest
from codespell_lib import main as codespell
from nbval.plugin import get_sanitize_patterns
from notebook_prose import (
    ROOT,
    Cell,
    measurements,
    median_lines,
    num_words,
    problems,
    read,
)

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_words_of_a_committed_notebook(path: Path) -> None:
    assert problems(path) == []


def test_spelling(tmp_path: Path) -> None:
    """The chapters' texts and code, the pages and the module's own texts."""
    for path in NOTEBOOKS:
        text = "\n\n".join(cell.source for cell in read(path))
        (tmp_path / f"{path.stem}.txt").write_text(text, encoding="utf-8")
    files = [*tmp_path.glob("*.txt"), *PAGES, *(ROOT / "eagle3").rglob("*.py")]
    assert codespell(*map(str, files)) == 0  # it prints file, line and word


def test_a_misspelling_is_seen(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the acceptence of drafts", encoding="utf-8")
    assert codespell(str(tmp_path / "x.txt")) != 0


# --------------------------------------------------------- the rules, on a made-up page

WORDS = "word " * 1_600


def verdict(folder: Path, text: str, name: str = "03_x.ipynb") -> str:
    """What is said of a chapter with this text behind a cell that prints 1.53."""
    shown = [{"output_type": "stream", "name": "stdout", "text": ["tau 1.53\n"]}]
    code = {"cell_type": "code", "source": ["x = 0.6\n", "y = 40"], "outputs": shown}
    page = {"cell_type": "markdown", "source": [WORDS + text]}
    cells = [{**cell, "metadata": {}} for cell in (code, page)]
    (folder / name).write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return "\n".join(problems(folder / name))


@pytest.mark.parametrize(
    "text",
    [
        "a length of 1.53, and 60% of 40 rows",  # printed, and two settings
        "[Paper, section 4.1, Table 2] 1.92x and 38%",
        "SmolLM2-135M at section 3.1, arXiv:2503.01840, in 2024, commit 03d5a77",
        "about 45 minutes, rows 3 to 7, `x = 2.5`",
        "2.5 of it\n\n<!-- given: 2.5; an example -->",
        "\n## 2.5 times\n\n```python\nx = 7.25\n```\nso 7.25",
        "[the end](#The-end) of `eagle3/draft.py`\n\n## The end\n",
    ],
)
def test_what_may_stand_in_prose(text: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a length of 1.54", "no cell above prints '1.54'"),
        ("1.92x and 38%", "prints '1.92x'"),  # the paper's, but nobody says so
        ("[Paper] 1.93456", "prints '1.93456'"),
        ("it takes 37 ms", "prints '37 ms'"),
        ("61% of it", "prints '61%'"),
        ("1,234 weights", "prints '1,234'"),
        ("7\ntimes as many", "prints '7 times'"),
        ("2.5 <!-- given: 2.5 -->", "the reason"),
        ("x <!-- given: 2.5; an example -->", "2.5 is declared as given, but not"),
        ("[a](nowhere.ipynb)", "leads nowhere: nowhere.ipynb"),
        ("[a](#Nothing)", "leads nowhere: #Nothing"),
        ("see `eagle3/nothing.py`", "isn't there: eagle3/nothing.py"),
        ("more " * 2_000, "3600 words"),
    ],
)
def test_what_may_not(text: str, said: str, tmp_path: Path) -> None:
    assert said in verdict(tmp_path, text)


def test_a_number_is_printed_above_and_not_below(tmp_path: Path) -> None:
    verdict(tmp_path, "1.53")
    saved = json.loads((tmp_path / "03_x.ipynb").read_text(encoding="utf-8"))
    saved["cells"].reverse()
    (tmp_path / "03_x.ipynb").write_text(json.dumps(saved), encoding="utf-8")
    assert "prints '1.53'" in "\n".join(problems(tmp_path / "03_x.ipynb"))


def test_an_appendix_has_no_length(tmp_path: Path) -> None:
    assert verdict(tmp_path, "more " * 2_000, "A_x.ipynb") == ""


def test_short_cells_and_words_are_counted_as_said() -> None:
    code = [Cell("code", "x = 1\n" * n, (), ()) for n in (1, 8, 9)]
    page = Cell("markdown", "two words | 3 + 4 | <!-- no -->\n\n```\nnone\n```", (), ())
    assert median_lines([*code, page]) == 8
    assert num_words([*code, page]) == 2


def test_what_counts_as_a_measurement() -> None:
    text = "3 rows, 1.5x, 2 ms, 19 and 20 tokens, 4,096 and 12% of $0.6^2$, 8B, 1-alpha"
    assert [literal for literal, _ in measurements(text)] == [
        "1.5x", "2 ms", "20", "4,096", "12%", "0.6",
    ]  # fmt: skip


# ----------------------------------------------- a changed number in an output is seen


def sanitized(text: str) -> str:
    rules = (ROOT / "tests" / "nbval_sanitize.cfg").read_text(encoding="utf-8")
    for pattern, replacement in get_sanitize_patterns(rules):
        text = re.sub(pattern, replacement, text)
    return text


def hidden(cells: list[Cell]) -> tuple[int, int]:
    """Numbers in outputs that nbval compares, and those that sanitizing hides."""
    compared = masked = 0
    for cell in cells:
        if "nbval-ignore-output" in cell.tags:
            continue
        for text in cell.outputs:
            if text.lstrip().startswith("<"):  # pictures say their numbers as text
                continue
            found = len(re.findall(r"\d+(?:\.\d+)?", text))
            left = len(re.findall(r"\d+(?:\.\d+)?", sanitized(text)))
            compared, masked = compared + found, masked + found - left
    return compared, masked


@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.name[0].isdigit()], ids=lambda path: path.stem
)
def test_a_changed_number_makes_nbval_fail(path: Path) -> None:
    """Only chapter 1, which is about times, hides more than a few of its numbers."""
    compared, masked = hidden(read(path))
    assert compared >= 100
    assert masked <= (0.5 if path.name.startswith("01_") else 0.05) * compared

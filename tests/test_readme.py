"""The README says what is so: its numbers, links, commands and its five lines of code.

Right values come from the files that the README speaks about.
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import readme

from eagle3.bench.environment import read_results

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("notebooks/*.md"),
        *ROOT.glob("tests/*.md"),
        *ROOT.glob("assignments/**/*.md"),
    )
)
NOTEBOOKS = {path.stem: path for path in (ROOT / "notebooks").glob("*.ipynb")}


@pytest.mark.parametrize(
    "path", [readme.README, readme.MAP], ids=lambda p: p.parent.name
)
def test_generated_parts_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("<!-- end -->") >= 1
    assert readme.filled(text) == text, "run: make figures"


def test_a_stale_number_is_noticed_and_mended() -> None:
    text = readme.README.read_text(encoding="utf-8")
    stale = re.sub(r"\| (\d)\.(\d\d) \|", r"| \1.99 |", text, count=1)
    assert stale != text
    assert readme.filled(stale) == text


def test_filling_an_empty_block_leaves_the_rest_alone(monkeypatch) -> None:
    monkeypatch.setattr(readme, "BLOCKS", {"a": lambda: "1\n2", "b": lambda: "3"})
    empty = "x\n<!-- a -->\n<!-- end -->\ny\n<!-- b -->\nold\n<!-- end -->\nz\n"
    full = "x\n<!-- a -->\n1\n2\n<!-- end -->\ny\n<!-- b -->\n3\n<!-- end -->\nz\n"
    assert readme.filled(empty) == full
    assert readme.filled(full) == full


def test_a_block_without_a_writer_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        readme.filled("<!-- nonsense -->\nx\n<!-- end -->")


def test_no_measured_number_is_typed() -> None:
    """Outside the generated parts the README holds no speedup and no time."""
    text = readme.README.read_text(encoding="utf-8")
    typed = re.sub(r"<!-- (?!end).*?<!-- end -->", "", text, flags=re.DOTALL)
    assert re.findall(r"\d+\.\d+ ?(?:x|×|times|s\b|ms|tok)", typed) == []


def test_the_chapter_list_agrees_with_the_notebooks() -> None:
    assert set(NOTEBOOKS) <= set(readme.CHAPTERS)
    for name, path in NOTEBOOKS.items():
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        listed = readme.CHAPTERS[name][0].split(": ", 1)[-1]  # "Appendix A: ..."
        assert title.split(": ", 1)[-1] == listed


@pytest.mark.parametrize("name", list(readme.CHAPTERS))
def test_only_chapters_that_exist_are_linked(name: str) -> None:
    text = readme.MAP.read_text(encoding="utf-8")
    assert (f"({name}.ipynb)" in text) == (name in NOTEBOOKS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    for link in links:
        if not link.startswith("https://"):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    for line in re.findall(r"(?:^|`)make ([a-z -]+)", text, flags=re.MULTILINE):
        for word in line.split("  ")[0].split():
            assert word in targets, f"{path.name}: make {word}"


def test_pictures_have_alt_text() -> None:
    text = readme.README.read_text(encoding="utf-8")
    alts = re.findall(r"!\[([^\]]*)\]\(figures/", text)
    assert len(alts) == 2
    assert all(len(alt) > 40 for alt in alts)


@pytest.mark.real
def test_the_five_lines_run_as_printed() -> None:
    """In a process of its own, as a reader would run them."""
    text = readme.README.read_text(encoding="utf-8")
    block, _ = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    answer, tau = done.stdout.rsplit(None, 1)
    assert "rice" in answer.lower()
    assert 1 <= float(tau) <= 4  # chains of three and the target's own token


def test_the_results_of_the_shipped_drafts_are_about_the_weights_that_ship() -> None:
    """A digest in each row, and a row for each folder."""
    rows = read_results("final_drafts", ROOT / "figures" / "results")["drafts"]
    found = {row["sha256"] for row in rows}
    shipped = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ROOT / "eagle3" / "data").glob("*/model.safetensors")
    }
    assert found == shipped

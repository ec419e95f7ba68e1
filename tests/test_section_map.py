"""Every section of the outline has a home that exists, and every public question.

How many sections each part has is counted here by hand, so that none can be lost.
"""

import re

import pytest
import readme
from notebook_prose import FENCE, ROOT, read
from section_map import QUESTIONS, SECTIONS

# Part of the outline -> how many sections it has below itself.
PARTS = {
    "I": 0, "II": 7, "III": 6, "IV": 4, "V": 8, "VI": 8, "VII": 6, "VIII": 7, "IX": 7,
    "X": 6, "XI": 6, "XII": 8, "XIII": 7, "XIV": 5, "XV": 4, "XVI": 5, "XVII": 7,
    "XVIII": 0, "A": 0, "B": 0, "C": 0, "D": 0, "E": 0,
}  # fmt: skip
NAMES = {name.split("_")[0]: name for name in readme.CHAPTERS}
HOMES = sorted({home for section in SECTIONS for home in section.homes})


def headings(name: str) -> list[str]:
    """All headings of a notebook, without their signs."""
    cells = read(ROOT / "notebooks" / f"{name}.ipynb")
    text = "\n".join(FENCE.sub("", c.source) for c in cells if c.kind == "markdown")
    return re.findall(r"^#{2,4} +(.*)$", text, re.MULTILINE)


def test_no_section_of_the_outline_is_missing() -> None:
    wanted = [
        number
        for part, count in PARTS.items()
        for number in (part, *(f"{part}.{i}" for i in range(1, count + 1)))
    ]
    assert [section.number for section in SECTIONS] == wanted
    assert all(section.homes for section in SECTIONS)


def test_every_chapter_is_somebodys_home() -> None:
    assert {number for number, _ in HOMES} == set(NAMES)


@pytest.mark.parametrize(("number", "heading"), HOMES, ids=" ".join)
def test_the_heading_is_there(number: str, heading: str) -> None:
    path = ROOT / "notebooks" / f"{NAMES[number]}.ipynb"
    if not path.is_file():
        pytest.skip(f"{path.name} is not written yet")
    found = [text for text in headings(path.stem) if text.startswith(heading)]
    assert len(found) == 1, f"{path.name} has {len(found)} headings {heading!r}"


def test_the_page_has_every_section_and_only_links_that_lead_somewhere() -> None:
    page = readme.MAP.read_text(encoding="utf-8")
    block = page.split("<!-- sections -->")[1].split("<!-- end -->")[0]
    rows = [line for line in block.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(SECTIONS)
    for row, section in zip(rows, SECTIONS, strict=True):
        assert row.startswith(f"| {section.number} {section.title} | ")
    for link in re.findall(r"\]\(([^)]+)\)", block):
        assert (readme.MAP.parent / link).is_file()


# ----------------------------------------------------------------- public questions

MARK = r"^(?:#{2,3} Box: |> \*\*Asked in public: )"
BOXES = sorted({box for question in QUESTIONS for box in question.boxes})


def test_the_twelve_questions_are_all_there() -> None:
    assert len(QUESTIONS) == 12
    assert all(question.boxes for question in QUESTIONS)


@pytest.mark.parametrize(("number", "words"), BOXES, ids=" ".join)
def test_a_marked_box_answers_with_an_experiment_or_a_proof(
    number: str, words: str
) -> None:
    path = ROOT / "notebooks" / f"{NAMES[number]}.ipynb"
    if not path.is_file():
        pytest.skip(f"{path.name} is not written yet")
    cells = read(path)
    found = [
        i
        for i, cell in enumerate(cells)
        if re.search(MARK + re.escape(words), cell.source, re.MULTILINE)
    ]
    assert len(found) == 1, f"{path.name} has {len(found)} boxes {words!r}"
    (place,) = found
    around = cells[max(0, place - 4) : place + 5]
    assert any(c.kind == "code" and (c.outputs or "assert" in c.source) for c in around)


def test_the_page_has_every_question() -> None:
    page = readme.MAP.read_text(encoding="utf-8")
    block = page.split("<!-- questions -->")[1].split("<!-- end -->")[0]
    assert [row.split(" | ")[0][2:] for row in block.splitlines()[3:]] == [
        question.asks for question in QUESTIONS
    ]

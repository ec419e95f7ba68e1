"""Every number that a chapter takes from the paper equals the one in figures/paper.

Each statement below is a piece of a chapter's text with its numbers left open, and
the values that belong there, read from the data. A number in a passage with the tag
[Paper] that no statement covers is an error, so none can be typed in unnoticed.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from notebook_prose import FENCE, ROOT, given, measurements, read, texts

CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9A-Z]*.ipynb"))
# A passage: a paragraph, a row of a table, or an item of a list.
PASSAGE = re.compile(r"\n\s*\n|\n(?=\|)|\n(?=- )|\n(?=\d+\. )")


@cache
def paper(name: str) -> Any:
    path = ROOT / "figures" / "paper" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def row(temperature: int, model: str, method: str) -> dict[str, Any]:
    """A row of Table 1."""
    key = (temperature, model, method)
    (found,) = [
        r
        for r in paper("table1")["rows"]
        if (r["temperature"], r["model"], r["method"]) == key
    ]
    return found


def tau(model: str, method: str, task: str) -> float:
    return row(0, model, method)["tau"][paper("table1")["tasks"].index(task)]


def sps() -> list[float]:
    mean = row(0, "V 13B", "SpS")["printed_mean"]
    return [mean["speedup"], mean["tau"]]


def depths() -> list[float]:
    depth = paper("settings")["tree"]["depth"]
    return [depth["EAGLE-3"], depth["EAGLE-2"]]


def tree() -> list[float]:
    size = max(paper("settings")["tree"]["drafted_tokens"].values())
    return [size, depths()[0]]


def claimed(name: str, *keys: str) -> list[float]:
    claim = paper("claims")["claims"][name]
    return [claim[key] for key in keys]


def gains() -> list[float]:
    """From and to, in percent, and the factor of the introduction."""
    low, high = claimed("over_eagle2", "from", "to")
    (intro,) = claimed("over_eagle2_intro", "value")
    return [round(100 * (low - 1)), round(100 * (high - 1)), intro]


def ranges() -> list[float]:
    found = paper("figure4")["one_alpha"]
    return [*found["EAGLE without feature loss"], *found["EAGLE-3"]]


def chains() -> list[float]:
    return [paper(f"table{i}")["setting"]["chain_length"] for i in (3, 5)]


def largest_batch() -> list[float]:
    return [paper("table5")["batches"][-1]]


def maxima() -> list[float]:
    return claimed("vllm_maximum", "EAGLE", "EAGLE-3")


def optimizer() -> list[float]:
    training = paper("settings")["training"]
    return [*training["betas"], training["gradient_clipping"]]


def sharegpt() -> list[float]:
    return [paper("settings")["training"]["sequences"]["ShareGPT"]]


N = r"([\d.]+)"
# chapter, text with its numbers open (spaces stand for any white space), values
STATEMENTS = [
    ("03", rf"Vicuna 13B it reports {N}x with \$\\tau = {N}\$ at temperature 0", sps),
    ("03", rf"\| {N}x and \$\\tau = {N}\$ for speculative sampling", sps),
    ("04", rf"falls to {N} to {N}, EAGLE-3 at {N} to {N} \|", ranges),
    (
        "09",
        rf"\$\\beta = \({N}, {N}\)\$ and gradients clipped to a norm of {N}\.",
        optimizer,
    ),
    ("09", r"ShareGPT, ([\d,]+) conversations", sharegpt),
    ("10", rf"depth {N} instead of {N}, same", depths),
    ("13", rf"says {N}% to {N}%, and about {N} times in the introduction", gains),
    ("13", rf"EAGLE-3 drafts {N} levels where EAGLE-2 drafts {N}\.", depths),
    (
        "13",
        rf"\$\\tau\$ of {N} there is longer than the {N} on Alpaca",
        lambda: [tau("V 13B", "EAGLE-3", task) for task in ("CNN/DM", "Alpaca")],
    ),
    ("14", rf"all four curves gain\. With {N}, one gains", largest_batch),
    ("14", rf"at a batch size of {N}, and EAGLE-3 at {N}\.", maxima),
    ("14", rf"trees of (8) levels and up to {N} tokens", lambda: tree()[::-1]),
    ("14", rf"it is a chain of {N}, in vLLM one of {N}\.", chains),
    ("14", rf"on a maximum at {N} and {N};", maxima),
    ("14", rf"trees of {N} tokens and {N} levels at batch 1", tree),
]


def number_of(text: str) -> float:
    return float(text.replace(",", ""))


def chapter(number: str) -> Path:
    (found,) = [path for path in CHAPTERS if path.name.startswith(f"{number}_")]
    return found


def matches(number: str, pattern: str) -> list[tuple[int, re.Match[str]]]:
    """Where a statement stands: number of the cell, and what was found."""
    spaced = pattern.replace(" ", r"\s+")
    return [
        (cell, match)
        for cell, source in texts(read(chapter(number)))
        for match in re.finditer(spaced, source)
    ]


@pytest.mark.parametrize(
    ("number", "pattern", "values"), STATEMENTS, ids=[s[1][:40] for s in STATEMENTS]
)
def test_the_chapter_says_what_the_data_say(number, pattern, values) -> None:
    found = matches(number, pattern)
    assert len(found) == 1, f"chapter {number} has {len(found)} of: {pattern}"
    said = [number_of(text) for text in found[0][1].groups()]
    assert said == pytest.approx([float(value) for value in values()])


def uncovered(path: Path) -> Iterator[str]:
    """Numbers of passages with the tag [Paper] that no statement covers."""
    number = path.name.split("_")[0]
    covered: dict[int, set[float]] = {}
    for wanted, pattern, _ in STATEMENTS:
        if wanted == number:
            for cell, match in matches(number, pattern):
                values = {number_of(text) for text in match.groups()}
                covered[cell] = covered.get(cell, set()) | values
    for cell, source in texts(read(path)):
        known = covered.get(cell, set()) | given(source)
        for passage in PASSAGE.split(FENCE.sub("", source)):
            if "[Paper" in passage:
                for literal, value in measurements(passage):
                    if value not in known:
                        yield f"{path.stem}, cell {cell}: {literal}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_number_of_the_paper_is_typed_unnoticed(path: Path) -> None:
    assert list(uncovered(path)) == []


def test_a_wrong_number_would_be_seen(tmp_path: Path) -> None:
    cell = {"cell_type": "markdown", "metadata": {}, "source": ["2.5x [Paper]\n"]}
    page = tmp_path / "99_x.ipynb"
    page.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    assert list(uncovered(page)) == ["99_x, cell 1: 2.5x"]
    assert sps() != [1.93, 2.24]

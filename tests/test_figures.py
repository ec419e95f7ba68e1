"""The committed figures are what the code draws from the committed data, in words too.

The right picture is the one that the function draws now. Texts must be equal; numbers
may differ by a twentieth of a point, since another processor may round a path in
another way.
"""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import record_trace
from PIL import Image, ImageDraw

from eagle3 import diagrams, drawing, figures, generate, load_draft, load_target, plots
from eagle3.bench.environment import read_results, write_results
from eagle3.trace import TraceRow, rows_from_json, trace_rows

FOLDER = Path(__file__).parents[1] / "figures"
NAMES = sorted(figures.FIGURES)
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
HASH = re.compile(r"\b[pmh][0-9a-f]{10}\b")  # names that depend on the numbers


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    for name, draw in figures.FIGURES.items():
        figures.save(name, draw(), folder)
    return folder


def same_picture(committed: str, drawn: str) -> bool:
    """Equal apart from rounding in numbers."""
    committed, drawn = HASH.sub("name", committed), HASH.sub("name", drawn)
    if NUMBER.split(committed) != NUMBER.split(drawn):
        return False
    pairs = zip(NUMBER.findall(committed), NUMBER.findall(drawn), strict=True)
    return all(abs(float(a) - float(b)) < 0.05 for a, b in pairs)


def same_pixels(committed: Image.Image, drawn: Image.Image) -> bool:
    """Equal but for a shade of grey at edges, which another library may set apart."""
    first, second = (np.asarray(p.convert("RGB"), float) for p in (committed, drawn))
    if first.shape != second.shape:
        return False
    other = np.abs(first - second).max(axis=-1) > 64
    return other.mean() < 0.0005


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_figure_is_up_to_date(name: str, fresh: Path) -> None:
    committed = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    drawn = (fresh / f"{name}.svg").read_text(encoding="utf-8")
    assert same_picture(committed, drawn), "draw it again: make figures"
    pictures = [Image.open(folder / f"{name}.png") for folder in (FOLDER, fresh)]
    assert same_pixels(*pictures), "draw it again: make figures"


def test_the_comparison_sees_other_numbers_and_other_words() -> None:
    svg = '<path d="M 1.00 20.50"/><text>tau</text>'
    assert same_picture(svg, svg.replace("20.50", "20.51"))
    first, second = ('<use href="#p3e59120d34"/>', '<use href="#p7a59120d34"/>')
    assert same_picture(svg + first, svg + second)
    assert not same_picture(svg, svg.replace("20.50", "21.50"))
    assert not same_picture(svg, svg.replace("tau", "TAU"))
    assert not same_picture(svg, svg + "<g/>")


def test_the_comparison_sees_a_changed_word_in_a_picture() -> None:
    paper = Image.new("RGB", (1000, 500), "white")
    assert same_pixels(paper, Image.new("RGB", (1000, 500), "#fafafa"))
    assert not same_pixels(paper, Image.new("RGB", (1000, 501), "white"))
    written = paper.copy()
    ImageDraw.Draw(written).rectangle((100, 100, 120, 112), fill="black")
    assert not same_pixels(paper, written)


def test_few_colours_look_the_same() -> None:
    drawn = figures.serving_stack()
    full = io.BytesIO()
    with plots.style():
        drawn.figure.savefig(full, format="png")
    small = drawing.png(drawn.figure, texts={"Title": "boxes"})
    image = Image.open(io.BytesIO(small))
    assert image.mode == "P"
    assert image.text["Title"] == "boxes"
    was, now = (
        np.asarray(picture.convert("RGB"), float)
        for picture in (Image.open(full), image)
    )
    assert np.abs(was - now).max() <= 6  # of 255
    assert len(small) < 0.6 * len(full.getvalue())


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_in_words_what_it_shows(name: str) -> None:
    root = ElementTree.parse(FOLDER / f"{name}.svg").getroot()
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    listed = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))[name]
    assert listed == {"title": title.text, "words": desc.text}
    assert len(desc.text) > 40


def test_no_figure_lies_about_without_its_function() -> None:
    pictures = {
        path.stem for path in FOLDER.iterdir() if path.suffix in (".svg", ".png")
    }
    assert pictures == set(NAMES)


def test_drawing_twice_gives_the_same_text(fresh: Path) -> None:
    again = figures.svg_text(figures.alignment())
    assert again == (fresh / "alignment.svg").read_text(encoding="utf-8")
    assert not re.search(r"<dc:date>|matplotlib.org", again)


def texts(figure) -> list[str]:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return [text for text in found if text]  # an arrow is an empty text


def test_alignment_follows_the_rule() -> None:
    """Position i: feature of token i, embedding of i+1, output i+1, says token i+2."""
    words = ["t0", "t1", "t2", "t3", "t4"]
    found = texts(diagrams.alignment(words))
    for position in range(4):
        start = found.index(f"{position}: t{position}")
        feature, token, output, says = found[start + 1 : start + 5]
        letter = "g" if position < 2 else "a"
        assert feature == f"{letter} of t{position}"
        assert token == f"e of t{position + 1}"
        assert output == f"a of t{position + 1}"
        known = ["(t2 is known)", "t3", "t4", "next"]
        assert says == known[position]


def test_dataflow_carries_the_names_and_the_taps() -> None:
    names = dict(zip("lmhpgeaq", "ABCDEFGH", strict=True))
    found = texts(diagrams.dataflow(names, (2, 4, 5), 8))
    assert set("ABCDEFGH") <= set(found)
    layers = [text for text in found if text.startswith("layers")]
    assert layers == [
        "layers 0 to 1",
        "layers 2 to 3",
        "layers 4 to 4",
        "layers 5 to 7",
    ]


ROW = TraceRow(7, "<p>", (" a", "b&", "\n"), 1, "own", "replacement", 2, 40, 35)


def test_a_run_shows_every_verdict() -> None:
    found = texts(diagrams.run_of_cycles([ROW, replace(ROW, cycle=8, kind="bonus")]))
    for text in ("␣a ✓", "b& ✗", "\\n –", "own instead", "own bonus", "<p>"):
        assert text in found


def test_the_best_chain_is_the_fastest_speculative_method() -> None:
    summary = {"Vanilla": 9.0, "chain 2": 1.2, "chain 3": 1.4, "library": 2.0}
    rows = {name: {"speedup": value} for name, value in summary.items()}
    assert figures.best_chain(rows) == "chain 3"


def a_run(arm: str, budget: int, first: float) -> dict:
    alphas = [first - 0.02 * n for n in range(8)]
    return {"arm": arm, "budget": budget, "seed": 0, "n_alpha": alphas,
            "chains": [900] * 8}  # fmt: skip


STUDY = ("study_scaling", "study_alphas", "study_by_n", "study_ablation")


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        ((), ("not yet measured",) * 4),
        # tau of a chain of three: 1 + a(1 + (a - 0.02)(1 + (a - 0.04)))
        (("eagle3",), ("EAGLE-3 1.85 at 1x, 2.14 at 4x", "not yet measured",
                       "EAGLE-3 at 4x from 0.60 to 0.52", "not yet measured")),
        (("eagle1", "eagle3-no-fusion", "eagle3"), (
            "EAGLE-1 1.85 at 1x, 2.14 at 4x; EAGLE-3 1.85",
            "EAGLE-3 without fusion 0.48 at 1x, 0.58 at 4x",
            "0.52 at n = 4, EAGLE-3 at 4x from 0.60", "2.14, 2.14, 2.14")),
    ],
)  # fmt: skip
def test_figures_of_the_study_are_drawn_with_rows_missing(
    arms: tuple[str, ...], told: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs are made up: numbers that are easy to work out again."""
    runs = [a_run(arm, b, 0.5 + 0.1 * (b > 1)) for arm in arms for b in (1, 4)]
    monkeypatch.setattr(figures, "_rows", lambda name: runs * (name == "study"))
    for name, words in zip(STUDY, told, strict=True):
        assert words in figures.FIGURES[name]().words, name


def test_without_a_study_there_are_no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert figures._rows("study") == []
    write_results("study", {"runs": [{"arm": "hass"}]}, tmp_path)
    assert figures._rows("study") == [{"arm": "hass"}]


def test_a_measured_speedup_goes_before_a_foreseen_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [a_run("eagle3", 1, 0.5), a_run("eagle3", 2, 0.6)]
    title = {panel.get_title() for panel in figures.study_scaling().figure.axes}
    assert "speedup, foreseen\nour runs" in title
    speeds = [run | {"temperatures": {"0": {"chain": {"speedup": 1.25}}}}
              for run in runs[:1]]  # fmt: skip
    tables = {"study": runs, "study_speed": speeds}
    monkeypatch.setattr(figures, "_rows", tables.get)
    axes = figures.study_scaling().figure.axes[2]
    assert axes.get_title() == "speedup of a chain of 3\nour runs"
    (line,) = axes.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1], [1.25])


def test_throughput_has_a_panel_for_each_draft_and_a_curve_for_each_length() -> None:
    rows = read_results("throughput", FOLDER / "results")["methods"]
    axes = {a.get_title(): a for a in figures.throughput().figure.axes}
    for name, row in rows.items():
        title, found, length = name.partition(" chain ")
        if found:
            lines = {line.get_label(): line for line in axes[title].lines}
            drawn = lines[f"chain of {length}"]
            assert list(drawn.get_xdata()) == row["batches"]
            assert list(drawn.get_ydata()) == row["speedup"]


@pytest.mark.real
def test_the_recorded_run_is_what_the_module_does() -> None:
    recorded = read_results("trace", FOLDER / "results")
    target = load_target()
    result = generate(
        target,
        load_draft(target=target),
        record_trace.PROMPT,
        max_new_tokens=record_trace.MAX_NEW_TOKENS,
        chain_length=record_trace.CHAIN_LENGTH,
    )
    rows = trace_rows(result, partial(target.decode, keep_special=True))
    assert rows_from_json(recorded["rows"]) == rows
    assert recorded["text"] == result.text

"""The paper's figures redrawn: what they show is the data, and what the paper says.

Right values: the files of figures/paper/, the mask that the draft is tested against,
and the pairs that section 3.1 of the paper lists.
"""

import pytest

from eagle3 import paper_diagrams, paper_figures
from eagle3.masks import ttt_mask
from eagle3.paper import read_paper
from eagle3.paper_diagrams import ROUNDS


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_there_are_seven_figures_with_words_of_their_own():
    assert list(paper_figures.PAPER_FIGURES) == [
        f"paper_figure{i}" for i in range(1, 8)
    ]
    titles = [draw().title for draw in paper_figures.PAPER_FIGURES.values()]
    for number, title in enumerate(titles, start=1):
        assert title.startswith(f"The paper's Figure {number}: ")


def test_figure_1_draws_the_data_and_fills_only_exact_points():
    paper = read_paper("figure1")
    drawn = paper_figures.figure1()
    for axes, what in zip(drawn.figure.axes, ("speedup", "tau"), strict=True):
        curves = [line for line in axes.lines if len(line.get_xdata()) > 1]
        for line, values in zip(curves, paper[what].values(), strict=True):
            assert list(line.get_xdata()) == paper["data_scale"]
            assert list(line.get_ydata()) == values
            assert line.get_markerfacecolor() == "white"
        solid = [line for line in axes.lines if len(line.get_xdata()) == 1]
        assert len(solid) == len(paper["exact"])
    for method, values in paper["speedup"].items():
        assert f"{method}: {values[0]:.2f} to {values[-1]:.2f} times" in drawn.words


def test_figure_2_says_every_bar():
    words = paper_figures.figure2().words
    for bars in read_paper("figure2")["speedup"].values():
        for method, value in bars.items():
            assert f"{method} {value:.1f}" in words


def test_figure_3_fails_where_the_second_step_was_never_seen():
    found = texts(paper_diagrams.designs())
    assert found.count("? ✗") == 1
    assert found.count("it ✓") == 2
    assert found.count("feature loss") == 1
    assert found.count("token loss") == 3
    assert found.count("token loss, too") == 1
    wrong = [design.name for design in paper_diagrams.DESIGNS if not design.right]
    assert wrong == ["EAGLE without\nfeature loss"]
    assert [d.name for d in paper_diagrams.DESIGNS if d.trained] == ["EAGLE-3"]


def test_figure_4_draws_ranges_and_no_points():
    left, right = paper_figures.figure4().figure.axes
    ranges = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in right.patches]
    known = list(read_paper("figure4")["one_alpha"].values())
    assert ranges == [pytest.approx(ends) for ends in known]
    assert not left.lines
    assert not left.axison


def test_figure_5_feeds_each_output_back_at_the_next_step():
    found = texts(paper_diagrams.pipeline())
    pairs = [text for text in found if ", e of " in text]
    assert pairs == [
        *("g of How, e of can", "g of can, e of I"),
        *("g of How, e of can", "g of can, e of I", "a of I, e of do"),
        *("g of How, e of can", "g of can, e of I", "a of I, e of do"),
        "a of do, e of it",
    ]
    assert [text for text in found if text in ("a of I", "a of do", "a of it")] == [
        "a of I",
        "a of do",
        "a of it",
    ]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_figure_6_shows_the_mask_and_says_it(step: int):
    """Every dot of a mask, counted; the last two masks in words, key by key."""
    figure = paper_diagrams.masks(ROUNDS[: step + 1])
    (axes,) = figure.axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == sum(int(ttt_mask(3, s).sum()) for s in range(step + 1))
    words = paper_figures.figure6().words
    keys = [word for round_ in ROUNDS[: step + 1] for word in round_]
    for row, token in enumerate(ROUNDS[step]):
        sees = [
            key for key, yes in zip(keys, ttt_mask(3, step)[row], strict=True) if yes
        ]
        if step == 1:
            listed = ", ".join(sees[:-1])
            assert f"{token} sees {listed} and itself" in words
        elif step == 2:
            assert f"{token} sees {', '.join(sees)}" in words


def test_figure_7_draws_every_reading_and_nothing_between():
    drawn = paper_figures.figure7()
    (axes,) = drawn.figure.axes
    points = read_paper("figure7")["n_alpha"]["EAGLE"]
    assert [list(line.get_xdata()) for line in axes.lines] == [
        [point["n"][0]] for point in points
    ]
    for point in points:
        assert f"{point['range'][0]:g}" in drawn.words
    assert "nobody read are left out" in drawn.words

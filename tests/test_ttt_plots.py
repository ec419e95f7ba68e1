"""eagle3.ttt_plots: mask and tree show what the mask says, and no more.

Right values are those of the paper's Figure 6, written down by hand; texts, dots and
dashes are read back from the SVG, lines from the figures.
"""

import xml.etree.ElementTree as ElementTree

import pytest
import torch

from eagle3.masks import ttt_mask
from eagle3.ttt_plots import MaskScene, advantage, cost_curves, scenes_svg

FIGURE_6 = (("How", "can", "I"), ("are", "we", "do"), ("you", "help", "it"))


def scene(step: int, row: int | None = None) -> MaskScene:
    return MaskScene(FIGURE_6[: step + 1], ttt_mask(3, step), row)


def found(svg: str, tag: str) -> list:
    return [n for n in ElementTree.fromstring(svg).iter() if n.tag.endswith(tag)]


def test_words_name_what_figure_6_names():
    assert scene(1).sentence == (
        "step 1: 'are' sees How, are; 'we' sees How, can, we; 'do' sees How, can, I, do"
    )
    assert scene(2, row=2).sentence == "step 2: 'it' sees How, can, I, do, it"
    titled = MaskScene(FIGURE_6[:1], ttt_mask(3, 0), 0, "the first <step>")
    assert titled.sentence == "the first <step>: 'How' sees How"


def test_a_row_that_sees_nothing_is_named():
    blank = MaskScene((("a", "b"),), torch.zeros(2, 2, dtype=torch.bool))
    assert blank.sentence == "step 0: 'a' sees nothing; 'b' sees nothing"


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_dot_for_every_key_that_is_seen(step):
    svg = scenes_svg([scene(step)])
    assert len(found(svg, "circle")) == int(ttt_mask(3, step).sum())
    grid = [n for n in found(svg, "rect") if n.get("stroke") == "#BBBBBB"]
    assert len(grid) == 9 * (step + 1)
    filled = [n.get("fill") != "white" for n in grid]
    assert sum(filled) == int(ttt_mask(3, step).sum())


def test_dots_lie_in_the_cells_of_the_mask():
    svg = scenes_svg([scene(2)])
    grid = [n for n in found(svg, "rect") if n.get("stroke") == "#BBBBBB"]
    corners = {(float(n.get("x")), float(n.get("y"))): n.get("fill") for n in grid}
    xs, ys = (sorted({corner[i] for corner in corners}) for i in (0, 1))
    seen = [[corners[x, y] != "white" for x in xs] for y in ys]
    assert torch.equal(torch.tensor(seen), ttt_mask(3, 2))


def test_the_tree_fills_what_a_row_sees_and_hangs_words_below_each_other():
    nodes = [n for n in found(scenes_svg([scene(2, row=2)]), "rect") if n.get("rx")]
    words = [word for words in FIGURE_6 for word in words]
    solid = [
        word
        for word, node in zip(words, nodes, strict=True)
        if node.get("stroke-dasharray") is None
    ]
    assert solid == ["How", "can", "I", "do", "it"]
    assert len({node.get("x") for node in nodes}) == 3
    assert [float(node.get("y")) for node in nodes] == sorted(
        float(node.get("y")) for node in nodes
    )


def test_without_a_row_every_node_is_solid():
    nodes = [n for n in found(scenes_svg([scene(1)]), "rect") if n.get("rx")]
    assert all(node.get("stroke-dasharray") is None for node in nodes)


def test_the_picture_has_a_role_and_says_all_scenes():
    svg = scenes_svg([scene(0), scene(1, row=0)])
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{scene(0).sentence}. {scene(1, 0).sentence}"
    texts = [node.text for node in found(svg, "text")]
    assert texts.count("step 0") == texts.count("step 1") == 1


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("length", [1, 3, 6])
def test_everything_lies_inside_the_picture(length, step):
    words = [[f"{s}.{i}" for i in range(length)] for s in range(step + 1)]
    svg = scenes_svg([MaskScene(words, ttt_mask(length, step), 0)] * 2)
    root = ElementTree.fromstring(svg)
    wide, tall = map(float, root.get("viewBox").split()[2:])
    assert wide <= 960
    for node in found(svg, "rect"):
        assert float(node.get("x", 0)) + float(node.get("width")) <= wide + 1
        assert float(node.get("y", 0)) + float(node.get("height")) <= tall + 1


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"2 steps of 3 rows need \[3, 6\]"):
        MaskScene(FIGURE_6[:2], ttt_mask(3, 2))
    with pytest.raises(ValueError, match="no row 3 among 3"):
        scene(1, row=3)


def rows() -> list[dict]:
    def row(form, length, steps, training):
        rates = {"tokens_per_second": 1000.0 / length}
        return {
            "form": form,
            "length": length,
            "steps": steps,
            "forward": {"tokens_per_second": 3000.0 / length},
            "training": rates if training else None,
            "memory_of": "training" if training else "forward",
            "peak_bytes": 1e6 * length,
        }

    return [
        row(form, length, steps, form != "flex")
        for steps in (1, 7)
        for length in (128, 256)
        for form in ("diagonal", "dense", "flex")
    ]


def test_cost_curves_draw_each_form_where_it_runs():
    forward, training, memory = cost_curves(rows(), 7).axes
    lines = [
        {line.get_label(): list(line.get_ydata()) for line in axes.lines}
        for axes in (forward, training, memory)
    ]
    assert set(lines[0]) == {"diagonal", "dense", "flex"}
    assert set(lines[1]) == set(lines[2]) == {"diagonal", "dense"}
    assert lines[0]["flex"] == [3000 / 128, 3000 / 256]
    assert lines[1]["dense"] == [1000 / 128, 1000 / 256]
    assert lines[2]["dense"] == [128.0, 256.0]
    looks = {(line.get_marker(), line.get_linestyle()) for line in forward.lines}
    assert len(looks) == 3


def test_advantage_draws_the_ratios_over_the_steps():
    figure = advantage([1, 2], {"time": [1.0, 2.0], "memory": [1.5, 3.0]}, 1024)
    (axes,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines[:2]}
    assert drawn == {"time": [1.0, 2.0], "memory": [1.5, 3.0]}
    assert "1,024 tokens" in axes.get_ylabel()

"""eagle3.tree_plots: a tree's picture shows what happened to each node.

Right values come from small trees drawn by hand; texts, colours and lines are read back
from the figure.
"""

import matplotlib
import matplotlib.pyplot
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, Rectangle

from eagle3.plots import ACCEPTED, DRAFT, NEUTRAL, REJECTED, TARGET
from eagle3.tree import DraftTree
from eagle3.tree_plots import TreePicture, mask_figure, node_places, tree_figure

#  I -+- get -- it          a tree of five; the target takes do, it
#     +- do --- it $x$
#        +----- that
LABELS = ["get", "do", "it", "it $x$", "that"]
PARENTS = [-1, -1, 0, 1, 1]


def picture(**more) -> TreePicture:
    return TreePicture("I", LABELS, PARENTS, **more)


def edge_colours(figure) -> list[str]:
    """Of each node, then of the root."""
    boxes = [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]
    return [to_hex(box.get_edgecolor()).upper() for box in boxes]


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_leaves_lie_below_each_other_and_parents_between_their_children():
    assert node_places(DraftTree((0,) * 5, tuple(PARENTS))) == [
        0.0,  # get, on the line of its only child
        1.5,  # do, between its two
        0.0,
        1.0,
        2.0,
        0.75,  # the root, between get and do
    ]
    assert node_places(DraftTree((), ())) == [0.0]


def test_before_verification_all_nodes_are_the_drafts():
    drawn = tree_figure(picture(confidence=[0.5, 0.4, 0.35, 0.24, 0.12]))
    assert edge_colours(drawn) == [DRAFT] * 5 + [TARGET]
    assert texts(drawn) == [
        "get\n0.500",
        "do\n0.400",
        "it\n0.350",
        "it $x$\n0.240",
        "that\n0.120",
        "I",
    ]


def test_a_verified_tree_tells_accepted_refused_and_unseen_apart():
    drawn = tree_figure(picture(path=(1, 3)))
    # "it" below the refused "get" was never looked at: it stays the draft's.
    assert edge_colours(drawn) == [
        REJECTED, ACCEPTED, DRAFT, ACCEPTED, REJECTED, TARGET
    ]  # fmt: skip
    assert texts(drawn) == ["get ✗", "do ✓", "it", "it $x$ ✓", "that ✗", "I"]
    wide = [line.get_linewidth() > 1 for line in drawn.axes[0].lines]
    assert wide == [False, True, False, True, False]


def test_nothing_accepted_is_not_the_same_as_nothing_verified():
    refused = tree_figure(picture(path=()))
    assert edge_colours(refused) == [REJECTED] * 2 + [DRAFT] * 3 + [TARGET]
    assert edge_colours(tree_figure(picture())) == [DRAFT] * 5 + [TARGET]


def test_cut_nodes_are_grey_and_dashed():
    drawn = tree_figure(picture(cut={4}))
    assert edge_colours(drawn)[4] == NEUTRAL
    styles = [line.get_linestyle() for line in drawn.axes[0].lines]
    assert styles == ["-"] * 4 + ["--"]


def test_words_tell_what_the_picture_shows():
    assert picture().words == "a tree of 5 drafted tokens in 2 levels behind 'I'"
    assert picture(cut={4}).words.endswith(", 4 of them kept and 1 cut")
    assert picture(path=(1, 3)).words.endswith("; the target accepts 'do' 'it $x$'")
    assert picture(path=()).words.endswith("; the target accepts none of them")
    # Labels hold their escapes already: they are not escaped a second time.
    assert TreePicture("\\n", ["a"], [-1]).words.endswith(r"behind '\n'")


@pytest.mark.parametrize("path", [(3,), (1, 2), (0, 3), (3, 1)])
def test_a_path_that_hangs_in_the_air_is_refused(path):
    with pytest.raises(ValueError, match="no path of this tree"):
        picture(path=path)


def test_the_mask_picture_has_a_dot_for_every_true_entry():
    mask = DraftTree((0,) * 5, tuple(PARENTS)).mask()
    (axes,) = mask_figure(["I", *LABELS], mask).axes
    dots = {(int(line.get_ydata()[0]), int(line.get_xdata()[0])) for line in axes.lines}
    assert dots == {tuple(at) for at in mask.nonzero().tolist()}
    cells = [p for p in axes.patches if isinstance(p, Rectangle)]
    assert len(cells) == 36
    found = [text.get_text() for text in axes.texts]
    assert [text for text in found if text.startswith("T + ")] == [
        "T + 0", "T + 1", "T + 1", "T + 2", "T + 2", "T + 2"
    ]  # fmt: skip


def test_drawing_leaves_matplotlibs_global_state_alone():
    before = dict(matplotlib.rcParams)
    tree_figure(picture(path=(1, 3)))
    mask_figure(["I", *LABELS], DraftTree((0,) * 5, tuple(PARENTS)).mask())
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.pyplot.get_fignums() == []

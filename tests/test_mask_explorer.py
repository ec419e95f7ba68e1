"""The mask explorer without a page: its state, its picture, its words.

The masks of the paper's Figure 6 are written out by hand here.
"""

from xml.etree import ElementTree

import pytest
import torch

from eagle3.masks import causal_mask, ttt_mask
from eagle3.tree import DraftTree
from eagle3.widgets.mask_explorer import draw_mask, mask_explorer
from eagle3.widgets.mask_state import CAUSAL, NAIVE, TREE, TTT, VIEWS, MaskState

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """All texts of a picture; a broken picture is no XML and fails here."""
    return [str(node.text) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("step", "row", "query", "seen"),
    [  # [Paper, Figure 6 and section 3.2]
        (0, 2, "I", "How, can, I"),
        (1, 0, "are", "How, are"),
        (1, 1, "we", "How, can, we"),
        (1, 2, "do", "How, can, I, do"),
        (2, 0, "you", "How, are, you"),
        (2, 1, "help", "How, can, we, help"),
        (2, 2, "it", "How, can, I, do, it"),
    ],
)
def test_the_sentence_is_the_papers_figure_6(step, row, query, seen):
    state = MaskState(step=step, row=row)
    start = f"'{query}' (row {row} of step {step}) attends to {seen}. "
    assert state.sentence.startswith(start)


def test_the_share_saved_is_counted_by_hand():
    # 3 words, 3 blocks: 27 scores; 9 of the first block and 3 for each later step.
    state = MaskState(step=2)
    assert state.scores == (27, 15)
    assert "27 scores; 15 are enough" in state.sentence
    assert "44% saved" in state.sentence
    assert "0% saved" in MaskState(step=0).sentence


def test_masks_come_from_the_module():
    words = "How can I do it"
    state = MaskState(text=words, step=3)
    assert torch.equal(state.mask, ttt_mask(5, 3))
    naive = state.changed("view", NAIVE)
    assert torch.equal(naive.mask, causal_mask(5, 20))
    assert torch.equal(naive.mask & ~naive.wrong, ttt_mask(5, 3))
    assert torch.equal(state.changed("view", CAUSAL).mask, causal_mask(5, 5))
    tree = state.changed("view", TREE)
    assert torch.equal(tree.mask, DraftTree((0,) * 6, (-1, -1, 0, 1, 2, 3)).mask())


def test_own_words_move_on_with_the_data_and_say_the_step():
    state = MaskState(text="How can I do it", step=2, row=1)
    assert state.queries == ("I²", "do²", "it²", "…", "…")
    assert "attends to How, can, I¹, do². " in state.sentence


def test_rows_behind_the_end_of_the_text_are_named():
    state = MaskState(text="a b c", step=1, row=2)
    assert state.queries == ("b¹", "c¹", "…")
    assert state.sentence.endswith("33% saved. The text has no word there.")


def test_a_naive_query_sees_other_branches_and_the_words_say_so():
    state = MaskState(view=NAIVE, step=1, row=1)
    # Row 1 of step 1 sees How can I and are we; I and are are none of its ancestors.
    assert state.sentence.endswith(
        "attends to How, can, I, are, we. 2 of these it will not see at inference: "
        "they belong to other branches."
    )
    drawn = texts(draw_mask(state).svg)
    assert drawn.count("×") == int(state.wrong.sum())
    assert "× I" in drawn
    assert "× are" in drawn


def test_the_tree_view_is_the_mask_that_verification_uses():
    state = MaskState(view=TREE, row=4)
    assert state.sentence.startswith("'it' (row 4) attends to I, do, it. ")
    assert state.sentence.endswith("position T + 2.")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("text", "", "The text has 0 words; write 2 to 12"),
        ("text", "a " * 200, "The text has 200 words; write 2 to 12"),
        ("length", 1, "1 words are out of range; take 2 to 12."),
        ("length", 13, "13 words are out of range"),
        ("step", 7, "7 simulated steps are out of range; take 0 to 6."),
        ("step", -1, "-1 simulated steps"),
        ("row", 3, "There is no row 3; the mask has 3"),
        ("view", "future", "'future' is no view"),
    ],
)
def test_what_makes_no_mask_is_refused_in_one_sentence(name, value, says):
    with pytest.raises(ValueError) as error:
        MaskState().changed(name, value)
    assert says in str(error.value)


def test_the_row_stays_where_it_can():
    state = MaskState(text="a b c d e f", row=5)
    assert state.changed("step", 4).row == 5
    assert state.changed("text", "a b c").row == 2
    assert state.changed("length", 4).text == "a b c d"
    assert MaskState().changed("length", 5).text == "How can I do it"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("length", "step"), [(2, 0), (3, 2), (12, 6)])
def test_every_picture_has_its_marks_its_words_and_fits(view, length, step):
    state = MaskState(view=view, step=step).changed("length", length)
    picture = draw_mask(state)
    drawn = texts(picture.svg)
    assert drawn.count("●") == int((state.mask & ~state.wrong).sum())
    assert picture.words == state.sentence
    root = ElementTree.fromstring(picture.svg)
    assert root.get("aria-label") == state.sentence
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) >= 0
        right = float(box.get("x", 0)) + float(box.get("width", 0))
        bottom = float(box.get("y", 0)) + float(box.get("height", 0))
        assert right <= picture.width + 0.1
        assert bottom <= picture.height + 0.1


def test_a_word_that_looks_like_a_page_is_a_word():
    svg = draw_mask(MaskState(text='<script>alert(1)</script> "b" & c')).svg
    assert "<script" not in svg
    assert any(
        words.startswith("'\"b\"'")
        for words in texts(draw_mask(MaskState(text='<script> "b" &', step=0)).svg)
    )


def test_a_handle_reaches_every_query():
    explorer = mask_explorer()
    move = explorer.view._handle_custom_msg  # what a message from the page calls
    for by, row in ((1, 2), (1, 2), (-1, 1), (-1, 0), (-1, 0)):
        move({"name": "row", "by": by}, [])
        assert explorer.state.row == row
    move({"name": "row", "to": 99}, [])
    assert explorer.state.row == 2
    assert explorer.view.handles[0]["value"] == 2
    assert "'it' (row 2 of step 2)" in explorer.picture.words
    assert explorer.state.view == TTT

"""The tree grower without a page: its trees are the module's, node for node."""

from xml.etree import ElementTree

import pytest
import torch
from helpers import talking_toy, trained_draft

from eagle3.engine import generate
from eagle3.growth import DynamicTree
from eagle3.sampling import SamplingParams
from eagle3.widgets.forest import Forest, Place, plant
from eagle3.widgets.grower_state import GrowerState
from eagle3.widgets.tree_grower import draw_tree, tree_grower

WORDS = ("I", "do", "get", "go", "it", "that", "now", "?")
# After each word: the draft's probabilities. By hand, the best paths behind 'I' are
# get .5, do .4, get it .35, get it ? .28, do it .24, do it ? .192.
ROWS = {
    "I": {"get": 0.5, "do": 0.4, "go": 0.1},
    "do": {"it": 0.6, "that": 0.3, "?": 0.1},
    "get": {"it": 0.7, "that": 0.2, "?": 0.1},
    "it": {"?": 0.8, "now": 0.2},
}


class TableDraft:
    """A `Runner` that looks up what follows a word, and counts its rows."""

    def __init__(self) -> None:
        self.rows = torch.full((8, 8), 1e-9)
        for i, word in enumerate(WORDS):
            for following, share in ROWS.get(word, {"?": 1.0}).items():
                self.rows[i, WORDS.index(following)] = share
        self.root_logits = self.rows[:1].log()
        self.asked: list[int] = []

    def run(self, tokens, parents):
        self.asked += tokens.tolist()
        assert all(parent < len(self.asked) for parent in parents)
        return self.rows[tokens].log()

    def to_target_ids(self, draft_ids):
        return draft_ids


def place(answer=("do", "it", "?"), decode=WORDS.__getitem__) -> Place:
    forest = Forest(TableDraft(), depth=4, top_k=3)
    ids = tuple(WORDS.index(word) for word in answer)
    return Place("I", forest, ids, decode)


@pytest.fixture(scope="module")
def state() -> GrowerState:
    return GrowerState({"I": place()})


def test_trees_from_memory_are_the_drafts_own():
    draft = TableDraft()
    forest = Forest(draft, depth=4, top_k=3)
    asked = len(draft.asked)
    for depth in (1, 2, 3, 4):
        for top_k in (1, 2, 3):
            for total in (2, 5, 9, 100):
                growth = DynamicTree(total, depth, top_k)
                fresh = (TableDraft(), depth, SamplingParams(), torch.Generator())
                assert forest.grow(growth) == growth.grow(*fresh)
    assert len(draft.asked) == asked  # the draft itself was not run again


def test_a_forest_runs_each_path_once():
    draft = TableDraft()
    forest = Forest(draft, depth=3, top_k=3)
    assert len(draft.asked) == len(forest.logits) - 1


def test_the_example_is_the_one_worked_out_by_hand(state):
    assert [WORDS[t] for t in state.kept.tokens] == ["get", "do", "it", "it", "?", "?"]
    assert len(state.scored) == 10
    sure = state.confidences(state.kept)
    assert sure == pytest.approx([0.5, 0.4, 0.35, 0.24, 0.28, 0.192], abs=1e-6)
    assert state.sentence == (
        "10 nodes are scored in 3 levels, the best 6 are kept: a block of 7 rows. The "
        "draft hopes for 2.96 tokens; the target accepts 'do', 'it', '?' and adds one: "
        "4. Row 0, 'I', is the pending token."
    )


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        (("get", "it", "?", "?"), ["get", "it", "?"]),
        (("do", "that"), ["do"]),
        (("now",), []),
        (("get", "it"), ["get", "it"]),  # the answer ends: nothing more is accepted
    ],
)
def test_the_path_is_what_the_target_says(answer, accepted):
    state = GrowerState({"I": place(answer)})
    texts = state.texts(state.kept)
    assert [texts[node] for node in state.decision.path] == accepted


def test_a_chosen_row_is_explained(state):
    row = state.changed("row", 4)
    assert row.sentence.endswith("Row 4, 'it', attends to I, do, it; confidence 0.24.")
    assert row.changed("budget", 3).row == 2


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("budget", 12, "A budget of 12 is above the tree: depth 3 and top-k 2 give 10"),
        ("budget", 1, "The budget is 1; take 2 to 60."),
        ("budget", 61, "The budget is 61; take 2 to 60."),
        ("depth", 5, "The depth is 5; take 1 to 4."),
        ("depth", 0, "The depth is 0"),
        ("top_k", 4, "Top-k is 4; take 1 to 3."),
        ("depth", 1, "A budget of 7 is above the tree: depth 1 and top-k 2 give 2"),
    ],
)
def test_knobs_out_of_range_are_refused_in_one_sentence(state, name, value, says):
    with pytest.raises(ValueError) as error:
        state.changed(name, value)
    assert str(error.value).startswith(says)


def test_the_picture_marks_what_is_kept_cut_and_accepted(state):
    picture = draw_tree(state)
    root = ElementTree.fromstring(picture.svg)
    texts = [str(node.text) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.get("aria-label") == state.sentence
    assert {"do .40 ✓", "it .24 ✓", "? .19 ✓", "get .50", "that .10"} <= set(texts)
    dashed = [box for box in root.iter() if box.get("stroke-dasharray")]
    assert len(dashed) == len(state.scored) - len(state.kept)
    assert texts.count("●") == int(state.kept.mask().sum())
    assert "19 of 49 pairs may attend" in texts  # 1 + 2 + 2 + 3 + 3 + 4 + 4


def test_a_token_that_looks_like_a_page_is_a_word():
    evil = place(decode=lambda token: f"<i>{WORDS[token]}</i>")
    state = GrowerState({"I": evil}, row=1)
    assert "<i>" not in draw_tree(state).svg


def test_knobs_work_together():
    explorer = tree_grower({"I": place(), "again": place(("get",))})
    where, depth, top_k, budget = explorer._controls.values()
    depth.value = 1
    assert "above the tree" in explorer.view.trouble
    assert explorer.state.depth == 3
    budget.value = 3
    depth.value = 1
    assert explorer.view.trouble == ""
    assert len(explorer.state.kept) == 2
    explorer.view._handle_custom_msg({"name": "row", "by": 1}, [])
    assert "Row 1, 'get'" in explorer.picture.words
    where.value = "again"
    assert len(explorer.state.decision.path) == 1
    assert top_k.value == 2


def test_a_forest_of_a_real_draft_grows_the_engines_trees():
    toy, draft = talking_toy(), trained_draft()
    result = generate(toy, None, list(range(5, 17)), max_new_tokens=14)
    growth = DynamicTree(20, 4, 3)
    found = plant(toy, draft, result, at=2)
    # Where the prompt ends at the same place, so does the engine's first cycle begin.
    prompt = [*result.prompt_ids, *result.token_ids[:2]]
    run = generate(toy, draft, prompt, max_new_tokens=12, growth=growth)
    assert run.token_ids[0] == result.token_ids[2]
    assert found.forest.grow(growth).tokens == run.cycles[0].drafted
    state = GrowerState({"toy": found}, budget=20, depth=4, top_k=3)
    assert state.decision.path == run.cycles[0].path
    with pytest.raises(ValueError, match="token 13 has nothing behind it in an answer"):
        plant(toy, draft, result, at=13)


def test_tokens_are_words_and_nothing_else():
    bad = ("<script>", "<img onerror=x>", "</svg>", "<b>", "&", '"', "'", "<i>")
    explorer = tree_grower({"<u>": place(decode=bad.__getitem__)})
    for row in range(len(explorer.state.kept) + 1):
        explorer.change("row", row)
        root = ElementTree.fromstring(explorer.picture.svg)
        tags = {node.tag.removeprefix("{http://www.w3.org/2000/svg}") for node in root}
        assert tags <= {"rect", "text", "line"}
    assert "&lt;" in explorer.picture.svg

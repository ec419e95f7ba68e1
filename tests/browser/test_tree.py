"""The tree grower as a reader uses it, on the real model."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestTree(EveryWidget):
    name = "tree"

    def test_a_tree_grows_and_is_cut(self, notebook):
        notebook.says("10 nodes are scored in 3 levels, the best 6 are kept")
        before = notebook.picture().inner_html()
        notebook.enter("Budget", 12)
        expect(notebook.trouble()).to_contain_text("A budget of 12 is above the tree")
        notebook.says("the best 6 are kept")
        notebook.enter("Top-k", 10)
        notebook.enter("Depth", 8)
        notebook.enter("Budget", 60)
        notebook.says("710 nodes are scored in 8 levels, the best 59 are kept")
        expect(notebook.trouble()).to_have_text("")
        assert notebook.picture().inner_html() != before
        slider = notebook.slider("row of the block")
        height = slider.bounding_box()["height"]
        slider.click(position={"x": 30, "y": height - 3})  # scrolls there first
        notebook.says("Row 59, ")
        notebook.page.keyboard.press("PageUp")
        notebook.says("Row 54, ")
        notebook.shoot("tree_large")

    def test_bad_input_is_answered_in_a_sentence(self, notebook):
        start = notebook.words()
        for name, value, says in (
            ("Budget", 61, "The budget is 61; take 2 to 60."),
            ("Depth", 0, "The depth is 0"),
            ("Top-k", 200, "Top-k is 200"),
        ):
            notebook.enter(name, value)
            expect(notebook.trouble()).to_contain_text(says)
            assert notebook.words() == start

"""The cost explorer as a reader uses it, on a server whose prices are worked out."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestCost(EveryWidget):
    name = "cost"

    def test_a_reader_looks_for_break_even(self, notebook):
        notebook.says("small, 8 requests: a cycle of 2 guesses yields 1.75 tokens")
        notebook.says("speedup 0.88.")
        before = notebook.picture().inner_html()
        slider = notebook.slider("requests in the batch")
        box = notebook.area(slider)
        # The second of eleven columns: two requests.
        notebook.page.mouse.click(box["x"] + 1.5 / 11 * box["width"], box["y"] + 60)
        notebook.says("small, 2 requests: ")
        notebook.says("Measured there: EAGLE 1.40, EAGLE-3 1.80 (Table 0).")
        assert notebook.picture().inner_html() != before
        notebook.page.keyboard.press("ArrowLeft")
        notebook.says("small, 1 request: ")
        # One request: 1.75 tokens for (10 + 3 + 2) / 11 of a plain step.
        notebook.says("speedup 1.28.")
        notebook.enter("Draft's price in %", 0)
        notebook.says("speedup 1.48.")
        notebook.enter("n-alpha in %", 100)
        notebook.says("yields 3.00 tokens")
        notebook.enter("Chain", 4)
        notebook.says("a cycle of 4 guesses yields 5.00 tokens")
        notebook.shoot("cost_turned")

    def test_another_server_and_bad_input(self, notebook):
        notebook.control("combobox", "Server").select_option("bare <b>")
        notebook.says("bare <b>, 8 requests: a cycle of 3 guesses")
        assert notebook.picture().locator("b").count() == 0
        words = notebook.words()
        for name, value, says in (
            ("Chain", 200, "The chain is 200; take 0 to 10."),
            ("n-alpha in %", -5, "n-alpha is -5%; take 0 to 100%."),
            ("Context", 10**6, "The context is 1000000; take 0 to 100000."),
        ):
            notebook.enter(name, value)
            expect(notebook.trouble()).to_contain_text(says)
            assert notebook.words() == words
        notebook.shoot("cost_bad_input")

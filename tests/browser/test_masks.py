"""The mask explorer as a reader uses it: keys, mouse, words of one's own."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestMasks(EveryWidget):
    name = "masks"

    def test_a_reader_walks_through_figure_6(self, notebook):
        notebook.says("'help' (row 1 of step 2) attends to How, can, we, help.")
        before = notebook.picture().inner_html()
        slider = notebook.slider("query: the row of the mask")
        box = notebook.area(slider)
        # The mouse: the last of three rows.
        notebook.page.mouse.click(box["x"] + 200, box["y"] + 0.9 * box["height"])
        notebook.says("'it' (row 2 of step 2) attends to How, can, I, do, it.")
        assert notebook.picture().inner_html() != before
        # The keys go on from there; at the end they stay.
        notebook.page.keyboard.press("ArrowUp")
        notebook.page.keyboard.press("ArrowUp")
        notebook.says("'you' (row 0 of step 2) attends to How, are, you.")
        notebook.page.keyboard.press("ArrowUp")
        notebook.page.keyboard.press("End")
        notebook.says("'it' (row 2 of step 2)")
        assert slider.get_attribute("aria-valuetext") == "row 2, it"
        notebook.shoot("masks_figure_6")

    def test_views_and_steps(self, notebook):
        page = notebook.page
        notebook.control("button", "naive").click()
        notebook.says("4 of these it will not see at inference")
        notebook.shoot("masks_naive")
        notebook.control("button", "causal").click()
        notebook.says("'can' (row 1) attends to How, can.")
        notebook.control("button", "tree verification").click()
        notebook.says("'get' (row 1) attends to I, get.")
        notebook.shoot("masks_tree")
        notebook.control("button", "training-time test").click()
        steps = notebook.control("spinbutton", "Simulated steps")
        steps.focus()
        page.keyboard.press("ArrowDown")
        notebook.says("'we' (row 1 of step 1) attends to How, can, we.")

    def test_own_words(self, notebook):
        page = notebook.page
        words = notebook.control("textbox", "Your words")
        words.fill("<script>alert(1)</script> <b>can</b> I ?")
        words.press("Enter")
        notebook.says("attends to <script>alert(1)</script>, <b>can</b>")
        assert notebook.picture().locator("script, b").count() == 0
        notebook.control("spinbutton", "Words").fill("12")
        page.keyboard.press("Enter")
        notebook.control("spinbutton", "Simulated steps").fill("6")
        page.keyboard.press("Enter")
        notebook.says("A full product computes 1008 scores; 216 are enough")
        notebook.shoot("masks_large")

    def test_bad_input_is_answered_in_a_sentence(self, notebook):
        alert = notebook.trouble()
        words = notebook.control("textbox", "Your words")
        for text, says in (("", "has 0 words"), ("word " * 200, "has 200 words")):
            words.fill(text)
            words.press("Enter")
            expect(alert).to_contain_text(f"The text {says}; write 2 to 12")
            notebook.says("'help' (row 1 of step 2)")
        notebook.shoot("masks_bad_input")
        steps = notebook.control("spinbutton", "Simulated steps")
        steps.fill("7")
        steps.press("Enter")
        expect(alert).to_contain_text(
            "7 simulated steps are out of range; take 0 to 6."
        )
        steps.fill("1")
        steps.press("Enter")
        notebook.says("'we' (row 1 of step 1)")
        expect(alert).to_have_text("")

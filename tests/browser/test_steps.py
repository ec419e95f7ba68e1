"""The step-through as a reader uses it: buttons, keys, mouse, Play, own text."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestSteps(EveryWidget):
    name = "steps"

    def test_a_reader_walks_through_figure_5(self, notebook):
        keyboard = notebook.page.keyboard
        notebook.says("Cycle 1 of ")
        notebook.says("step 1 of 11, the target has run")
        before = notebook.picture().inner_html()
        notebook.control("button", "Forward").click()
        notebook.says("step 2 of 11, fuse")
        assert notebook.picture().inner_html() != before
        keyboard.press("Enter")  # the button has the focus
        notebook.says("step 3 of 11, catch up")
        notebook.control("button", "Back").click()
        notebook.says("step 2 of 11, fuse")
        slider = notebook.slider("moment of the cycle")
        box = notebook.area(slider)
        x = box["x"] + 4.5 / 11 * box["width"]
        notebook.page.mouse.click(x, box["y"] + box["height"] / 2)
        notebook.says("step 5 of 11, guess 2")
        notebook.says("takes its place")
        expect(slider).to_have_attribute("aria-valuetext", "5 of 11, guess 2")
        keyboard.press("ArrowRight")
        notebook.says("step 6 of 11, guess 3")
        keyboard.press("End")
        notebook.says("step 11 of 11, catch up again")
        notebook.shoot("steps_last")

    def test_play_goes_on_by_itself_until_it_is_paused(self, notebook):
        notebook.control("button", "Play").click()
        notebook.says("step 2 of 11")  # at once
        notebook.says("step 3 of 11")  # by itself
        notebook.control("button", "Pause").click()
        notebook.control("button", "Play").wait_for()
        words = notebook.words()
        notebook.page.wait_for_timeout(3000)
        assert notebook.words() == words

    def test_another_cycle_and_a_text_of_ones_own(self, notebook):
        notebook.enter("Cycle", 2)
        notebook.says("Cycle 2 of ")
        notebook.enter("Cycle", 99)
        expect(notebook.trouble()).to_contain_text("has cycles 1 to")
        notebook.says("Cycle 2 of ")
        notebook.enter("Moment", 99)
        expect(notebook.trouble()).to_contain_text("There is no moment 99")
        text = "The word <script>alert(1)</script> is a"
        notebook.enter("Your text", text)
        notebook.says("step 1 of")
        expect(notebook.trouble()).to_have_text("")
        notebook.control("button", "Forward").click()
        notebook.says("step 2 of")
        assert notebook.picture().locator("script").count() == 0
        notebook.shoot("steps_own_text")

    def test_bad_input_is_answered_in_a_sentence(self, notebook):
        notebook.enter("Your text", "word")
        notebook.says("step 1 of")
        for text, says in (("  ", "nothing to go on with"), ("a " * 9000, "context")):
            notebook.enter("Your text", text)
            expect(notebook.trouble()).to_contain_text(says)
            notebook.says("step 1 of")
        notebook.shoot("steps_bad_input")

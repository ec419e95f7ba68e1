"""The engine trace as a reader uses it, on the real model."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestTrace(EveryWidget):
    name = "trace"

    def test_a_reader_walks_through_the_run(self, notebook):
        notebook.says("Cycle 1: 3 drafted")
        slider = notebook.slider("cycle of the run")
        box = notebook.area(slider)
        x = box["x"] + 0.99 * box["width"]
        notebook.page.mouse.click(x, box["y"] + 40)
        last = int(slider.get_attribute("aria-valuemax"))
        notebook.says(f"Cycle {last}: ")
        notebook.page.keyboard.press("ArrowLeft")
        notebook.says(f"Cycle {last - 1}: ")
        notebook.control("button", "Back").click()
        notebook.says(f"Cycle {last - 2}: ")
        notebook.shoot("trace_cycle")

    def test_a_prompt_of_ones_own_and_prompts_that_cannot_be_run(self, notebook):
        start, alert = notebook.words(), notebook.trouble()
        notebook.enter("Prompt", "")
        expect(alert).to_contain_text("There is nothing to answer; write a prompt.")
        notebook.enter("Prompt", "rice " * 9000)
        expect(alert).to_contain_text("context")
        notebook.enter("Cycle", 500)
        expect(alert).to_contain_text("There is no cycle 500")
        assert notebook.words() == start
        notebook.enter("Prompt", "Is <b onclick=alert(1)>one</b> prime?")
        notebook.changed_from(start)
        notebook.says("Cycle 1: ")
        expect(alert).to_have_text("")
        assert notebook.picture().locator("b").count() == 0
        notebook.shoot("trace_own_prompt")

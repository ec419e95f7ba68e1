"""The training replay as a reader uses it, on runs made by hand."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestReplay(EveryWidget):
    name = "replay"

    def test_a_reader_scrubs_through_a_run(self, notebook):
        notebook.says("two steps, after 0 of 50 steps")
        before = notebook.picture().inner_html()
        slider = notebook.slider("moment of the training")
        box, mouse = notebook.area(slider), notebook.page.mouse
        y = box["y"] + 50
        mouse.move(box["x"] + 5, y)
        mouse.down()
        for share in (0.3, 0.6, 0.9):
            mouse.move(box["x"] + share * box["width"], y)
        mouse.up()
        notebook.says("after 40 of 50 steps")
        notebook.says("take 2 passes of the target, 2.00 from each (untrained 1.00)")
        assert notebook.picture().inner_html() != before
        notebook.page.keyboard.press("ArrowLeft")
        notebook.says("after 10 of 50 steps")
        notebook.control("button", "Back").click()
        notebook.says("after 0 of 50 steps")
        notebook.control("button", "Play").click()  # runs to the end and stops there
        notebook.says("after 40 of 50 steps")
        notebook.control("button", "Play").wait_for()
        notebook.shoot("replay_end")

    def test_another_run_and_bad_input(self, notebook):
        notebook.enter("Evaluation", 3)
        notebook.says("two steps, after 40 of 50 steps")
        notebook.control("combobox", "Run").select_option("one step")
        notebook.says("one step, after 30 of 50 steps")
        notebook.enter("Evaluation", 200)
        expect(notebook.trouble()).to_contain_text(
            "There is no evaluation 200; the run has 2, counted from 1."
        )
        notebook.says("one step, after 30 of 50 steps")
        notebook.shoot("replay_bad_input")

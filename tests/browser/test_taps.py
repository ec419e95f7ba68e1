"""The tap picker as a reader uses it: knobs by mouse and keys, lists, a button."""

from every_widget import EveryWidget
from playwright.sync_api import expect


class TestTaps(EveryWidget):
    name = "taps"

    def test_a_reader_moves_the_taps(self, notebook):
        notebook.says("Taps 2, 15, 27 (the rule's): ")
        before = notebook.picture().inner_html()
        knob, mouse = notebook.slider("low tap"), notebook.page.mouse
        box = notebook.area(knob)
        y = box["y"] + box["height"] / 2
        unit = box["width"] / (int(knob.get_attribute("aria-valuemax")) + 1)
        mouse.move(box["x"] + 1.5 * unit, y)
        mouse.down()
        for at in (2, 2.5, 3, 3.5):  # over layer 4 to layer 8
            mouse.move(box["x"] + at * unit, y)
        mouse.up()
        notebook.says("Taps 8, 15, 27: ")
        assert notebook.picture().inner_html() != before
        notebook.page.keyboard.press("Tab")
        notebook.page.keyboard.press("ArrowRight")
        notebook.says("Taps 8, 17, 27: ")
        notebook.page.keyboard.press("Home")  # next to the low one, not onto it
        notebook.says("Taps 8, 12, 27: ")
        notebook.control("combobox", "High tap").select_option("29")
        notebook.says("Taps 8, 12, 29: ")
        notebook.shoot("taps_moved")
        notebook.control("button", "Back to the rule's taps").click()
        notebook.says("Taps 2, 15, 27 (the rule's): ")

    def test_bad_input_is_answered_in_a_sentence(self, notebook):
        notebook.control("combobox", "Middle tap").select_option("27")
        expect(notebook.trouble()).to_contain_text("2, 27, 27 don't ascend")
        notebook.says("Taps 2, 15, 27 (the rule's): ")
        notebook.shoot("taps_bad_input")
        notebook.control("combobox", "Middle tap").select_option("21")
        notebook.says("Taps 2, 21, 27: ")
        expect(notebook.trouble()).to_have_text("")

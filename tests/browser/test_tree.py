"""The tree grower and the engine trace as a reader uses them, on the real model."""

from playwright.sync_api import expect
from test_every_widget import WIDGETS


def test_a_tree_grows_and_is_cut(lab):
    notebook = lab.open("tree", WIDGETS["tree"].code)
    page, alert = notebook.page, notebook.trouble()
    notebook.says("10 nodes are scored in 3 levels, the best 6 are kept")
    before = notebook.picture().inner_html()

    def turn(knob: str, value: int) -> None:
        box = page.get_by_role("spinbutton", name=knob)
        box.fill(str(value))
        box.press("Enter")

    turn("Budget", 12)
    expect(alert).to_contain_text("A budget of 12 is above the tree")
    notebook.says("the best 6 are kept")
    turn("Top-k", 10)
    turn("Depth", 8)
    turn("Budget", 60)
    notebook.says("710 nodes are scored in 8 levels, the best 59 are kept")
    expect(alert).to_have_text("")
    assert notebook.picture().inner_html() != before
    slider = notebook.slider("row of the block")
    height = slider.bounding_box()["height"]
    slider.click(position={"x": 30, "y": height - 3})  # scrolls there first
    notebook.says("Row 59, ")
    page.keyboard.press("PageUp")
    notebook.says("Row 54, ")
    notebook.shoot("tree_large")
    assert notebook.errors == []


def test_a_prompt_of_ones_own_is_traced(lab):
    notebook = lab.open("trace", WIDGETS["trace"].code)
    page, alert = notebook.page, notebook.trouble()
    notebook.says("Cycle 1: 3 drafted")
    start = notebook.picture().get_attribute("aria-label")
    slider = notebook.slider("cycle of the run")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.99 * box["width"], box["y"] + 40)
    last = slider.get_attribute("aria-valuemax")
    notebook.says(f"Cycle {last}: ")
    page.keyboard.press("ArrowLeft")
    notebook.says(f"Cycle {int(last) - 1}: ")
    notebook.shoot("trace_cycle")
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("")
    prompt.press("Enter")
    expect(alert).to_contain_text("There is nothing to answer; write a prompt.")
    prompt.fill("rice " * 9000)
    prompt.press("Enter")
    expect(alert).to_contain_text("context")
    prompt.fill("Is <b>one</b> prime?")
    prompt.press("Enter")
    notebook.changed_from(start)
    notebook.says("Cycle 1: ")
    expect(alert).to_have_text("")
    notebook.shoot("trace_own_prompt")
    assert notebook.errors == []

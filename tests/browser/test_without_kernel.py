"""A page without a kernel: the pictures that were left behind can be walked through.

The widget's script runs in an empty page, with a model that nobody answers.
"""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect
from step_example import RECORDING

from eagle3.step_through import frames
from eagle3.widgets import explorer as module
from eagle3.widgets import step_explorer

SCRIPT = Path(module.__file__).parent / "view.js"
_PAGE = """
<style>%s</style><main id="here"></main>
<script type="module">%s
const state = %s;
window.sent = [];
const model = {
  get: (name) => state[name], on: () => {}, off: () => {},
  send: (message) => window.sent.push(message),
};
view.render({ model, el: document.getElementById("here") });
</script>"""


@pytest.fixture
def page(browser):
    view = step_explorer(RECORDING).view
    names = ("svg", "handles", "trouble", "left_behind")
    state = {name: getattr(view, name) for name in names}
    for one in (state, *state["left_behind"]["pictures"]):
        one["handles"] = [handle | {"pace": 50} for handle in one["handles"]]
    script = SCRIPT.read_text(encoding="utf-8")
    script = script.replace("export default", "const view =")
    style = SCRIPT.with_suffix(".css").read_text(encoding="utf-8")
    data = json.dumps(state).replace("</", "<\\/")
    opened = browser.new_page()
    opened.set_content(_PAGE % (style, script, data))
    yield opened
    opened.close()


def says(page, number: int) -> None:
    frame = frames(RECORDING, 1)[number - 1]
    words = f"Cycle 1 of 2, {frame.alt}"
    expect(page.locator(".eagle3-stage svg")).to_have_attribute("aria-label", words)
    expect(page.get_by_role("status")).to_have_text(words)


def test_keys_mouse_and_buttons_work(page):
    says(page, 1)
    slider = page.get_by_role("slider", name="moment of the cycle")
    slider.focus()
    page.keyboard.press("ArrowRight")
    says(page, 2)
    page.keyboard.press("End")
    says(page, 11)
    page.keyboard.press("ArrowRight")  # stays there
    says(page, 11)
    box = slider.bounding_box()
    x = box["x"] + 4.5 / 11 * box["width"]
    page.mouse.click(x, box["y"] + box["height"] / 2)
    says(page, 5)
    page.get_by_role("button", name="Back").click()
    says(page, 4)
    page.get_by_role("button", name="Play").click()
    says(page, 11)
    expect(page.get_by_role("button", name="Play")).to_be_visible()  # it has stopped
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_the_page_says_that_nobody_answers(page):
    expect(page.get_by_role("note")).to_contain_text("No kernel answers yet.")
    assert page.evaluate("() => window.sent") == [{"is_anybody_there": True}]

"""What must hold for every explorer, whatever it shows."""

from dataclasses import dataclass
from html import escape
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

REAL = "from eagle3 import generate, load_draft, load_target\n"
REAL += "target = load_target(); draft = load_draft(target=target)\n"


@dataclass(frozen=True)
class Widget:
    """Code that shows an explorer, and keys that move one of its handles.

    keys: each changes the picture when they are pressed in turn
    """

    code: str
    handle: str
    keys: tuple[str, ...]


WIDGETS = {
    "masks": Widget(
        "from eagle3.widgets import mask_explorer\nmask_explorer().show()",
        "query: the row of the mask",
        ("ArrowDown", "Home", "End", "ArrowUp"),
    ),
    "acceptance": Widget(
        "from eagle3.widgets import acceptance_explorer\nacceptance_explorer().show()",
        "draft q of I",
        ("ArrowUp", "PageUp", "ArrowDown", "PageDown"),
    ),
    "tree": Widget(
        f"{REAL}from eagle3.widgets import plant, tree_grower\n"
        "run = generate(target, draft, 'How can I cook rice?', max_new_tokens=12)\n"
        "tree_grower({'rice': plant(target, draft, run, at=2)}).show()",
        "row of the block",
        ("ArrowDown", "End", "ArrowUp", "Home"),
    ),
    "trace": Widget(
        f"{REAL}from eagle3.widgets import engine_trace\n"
        "engine_trace(target, draft, 'How can I cook rice?').show()",
        "cycle of the run",
        ("ArrowRight", "End", "ArrowLeft", "Home"),
    ),
}


@pytest.fixture(scope="module", params=WIDGETS)
def shown(request, lasting_lab):
    """A widget's name, the notebook that shows it, and its handle with the focus."""
    widget = WIDGETS[request.param]
    notebook = lasting_lab.open(f"every_{request.param}", widget.code)
    slider = notebook.slider(widget.handle)
    slider.focus()
    return request.param, notebook, slider


def test_axe_finds_nothing_serious(shown):
    _, notebook, _ = shown
    assert notebook.violations() == []


def test_the_still_picture_hides_while_the_widget_is_alive(shown):
    _, notebook, _ = shown
    still = notebook.page.locator(".jp-RenderedSVG")
    assert still.count() == 1
    expect(still).to_be_hidden()
    expect(notebook.picture()).to_be_visible()


def test_it_fits_a_narrow_page_and_the_dark_theme(shown):
    name, notebook, slider = shown
    page = notebook.page
    notebook.shoot(f"{name}_light")
    page.set_viewport_size({"width": 520, "height": 900})
    page.wait_for_timeout(500)
    notebook.shoot(f"{name}_narrow")
    view, picture = notebook.views().bounding_box(), notebook.picture().bounding_box()
    assert view["x"] + view["width"] <= 520  # it scrolls within itself
    assert picture["width"] >= 480
    page.set_viewport_size({"width": 1100, "height": 900})
    notebook.set_theme("JupyterLab Dark")
    slider.focus()
    page.wait_for_timeout(500)
    notebook.shoot(f"{name}_dark")
    assert notebook.violations() == []
    notebook.set_theme("JupyterLab Light")


def test_the_focus_is_seen(shown):
    _, notebook, slider = shown
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Shift+Tab")
    outline = "(element) => getComputedStyle(element).outlineStyle"
    assert slider.evaluate("(element) => element === document.activeElement")
    assert slider.evaluate(outline) == "solid"


def test_latency_is_measured(shown, report):
    name, notebook, slider = shown
    slider.focus()
    notebook.page.keyboard.press("Home")
    notebook.ask("")
    found = notebook.latencies(list(WIDGETS[name].keys))
    assert len(found) == 60
    report(name, found)


def test_hammering_leaves_the_last_state(shown):
    name, notebook, slider = shown
    slider.focus()
    keys, before, memory = WIDGETS[name].keys, notebook.outputs(), []
    low = slider.get_attribute("aria-valuemin")
    for _ in range(3):  # the first round fills caches
        for i in range(200):
            notebook.page.keyboard.press(keys[i % len(keys)])
        notebook.page.keyboard.press("Home")
        notebook.ask("")  # the kernel has answered all that came before
        notebook.page.wait_for_function(
            "(low) => document.activeElement.ariaValueNow === low", arg=low
        )
        memory.append(
            int(
                notebook.ask(
                    "import resource as r; print(r.getrusage(r.RUSAGE_SELF).ru_maxrss)"
                )
            )
        )
    assert notebook.outputs() == before
    assert memory[-1] - memory[0] < 8_000, f"kernel memory in KB: {memory}"
    assert notebook.errors == []


every_widget = pytest.mark.parametrize("name", WIDGETS)


@every_widget
def test_two_on_a_page_do_not_disturb_each_other(name, lab):
    code, handle = WIDGETS[name].code, WIDGETS[name].handle
    notebook = lab.open(f"two_{name}", code, code)
    start = [notebook.picture(at).get_attribute("aria-label") for at in (0, 1)]
    notebook.slider(handle, 0).focus()
    notebook.page.keyboard.press("End")
    notebook.changed_from(start[0])
    moved = notebook.picture(0).get_attribute("aria-label")
    assert notebook.picture(1).get_attribute("aria-label") == start[1]
    # Running the cells again starts anew, both of them.
    notebook.run_all()
    notebook.changed_from(moved)
    expect(notebook.views()).to_have_count(2)
    assert notebook.picture(0).get_attribute("aria-label") == start[0]
    assert notebook.errors == []


@every_widget
def test_a_saved_notebook_shows_a_picture_when_it_is_opened_again(name, lab):
    notebook = lab.open(f"again_{name}", WIDGETS[name].code)
    words = notebook.picture().get_attribute("aria-label")
    notebook.save_and_shut_down()
    again = lab.open(f"again_{name}", run=False)
    still = again.page.locator(".jp-RenderedSVG img")  # JupyterLab puts it into one
    still.wait_for()
    again.shoot(f"{name}_reopened")
    assert again.views().count() == 0  # no kernel has made a widget
    assert still.evaluate("(image) => image.complete && image.naturalWidth === 700")
    source = unquote(still.get_attribute("src").partition(",")[2])
    assert f'aria-label="{escape(words)}"' in source

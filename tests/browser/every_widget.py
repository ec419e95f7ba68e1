"""What must hold for every widget, whatever it shows; each test file inherits it."""

from html import escape
from urllib.parse import unquote

from playwright.sync_api import expect
from shown_widgets import WIDGETS

_MEMORY = "import resource as r; print(r.getrusage(r.RUSAGE_SELF).ru_maxrss)"


class EveryWidget:
    """name: of the widget in tools/shown_widgets.py, which stands twice on the page."""

    name = ""

    @property
    def widget(self):
        return WIDGETS[self.name]

    def test_it_can_be_seen_and_named(self, notebook):
        still = notebook.page.locator(".jp-RenderedSVG").first
        expect(still).to_be_hidden()  # the live one is there
        expect(notebook.picture()).to_be_visible()
        notebook.slider(self.widget.handle).focus()
        notebook.shoot(f"{self.name}_light")
        assert notebook.violations() == []

    def test_it_fits_a_narrow_page_and_the_dark_theme(self, notebook):
        page = notebook.page
        page.set_viewport_size({"width": 520, "height": 900})
        page.wait_for_timeout(300)
        notebook.picture().scroll_into_view_if_needed()
        notebook.shoot(f"{self.name}_narrow")
        view = notebook.views().first.bounding_box()
        picture = notebook.picture().bounding_box()
        page.set_viewport_size({"width": 1100, "height": 900})
        assert view["x"] + view["width"] <= 520  # it scrolls within itself
        assert picture["width"] >= 480
        notebook.set_theme("JupyterLab Dark")
        notebook.slider(self.widget.handle).focus()
        page.wait_for_timeout(300)
        notebook.shoot(f"{self.name}_dark")
        found = notebook.violations()
        notebook.set_theme("JupyterLab Light")
        assert found == []

    def test_the_focus_is_seen(self, notebook):
        slider = notebook.slider(self.widget.handle)
        slider.focus()
        notebook.page.keyboard.press("Shift+Tab")
        notebook.page.keyboard.press("Tab")
        expect(slider).to_be_focused()
        outline = "(element) => getComputedStyle(element).outlineStyle"
        assert slider.evaluate(outline) == "solid"

    def test_two_on_a_page_do_not_disturb_each_other(self, notebook):
        start = notebook.words(0)
        assert notebook.words(1) == start
        notebook.slider(self.widget.handle, 1).focus()
        for key in ("Home", self.widget.keys[1]):  # one of them moves it
            notebook.page.keyboard.press(key)
        notebook.changed_from(start, 1)
        assert notebook.words(0) == start
        notebook.run_again()
        notebook.says(start, 1)  # a cell that is run again starts anew
        expect(notebook.views()).to_have_count(2)

    def test_hammering_leaves_the_last_state(self, notebook):
        keys, slider = self.widget.keys, notebook.slider(self.widget.handle)
        slider.focus()
        low, before = slider.get_attribute("aria-valuemin"), notebook.outputs()
        notebook.hammer([keys[i % len(keys)] for i in range(200)])  # caches fill
        memory = int(notebook.ask(_MEMORY))
        for i in range(200):
            notebook.page.keyboard.press(keys[i % len(keys)])
        notebook.page.keyboard.press("Home")
        notebook.ask("")  # the kernel has answered all that came before
        expect(slider).to_have_attribute("aria-valuenow", low)
        assert notebook.trouble().inner_text() == ""
        assert notebook.outputs() == before
        grown = int(notebook.ask(_MEMORY)) - memory
        assert grown < 8_000, f"the kernel grew by {grown} KB"

    def test_a_saved_notebook_shows_a_picture_when_it_is_opened_again(
        self, notebook, lab
    ):
        notebook.save()
        lab.copy(self.name, f"{self.name}_again")
        again = lab.open(f"{self.name}_again", run=False)
        still = again.page.locator(".jp-RenderedSVG img").first  # JupyterLab's wrapper
        still.wait_for()
        again.shoot(f"{self.name}_reopened")
        assert again.views().count() == 0  # no kernel has made a widget
        seen = "(image) => image.complete && image.naturalWidth === 700"
        assert still.evaluate(seen)
        source = unquote(still.get_attribute("src").partition(",")[2])
        assert f'aria-label="{escape(notebook.words())}"' in source
        again.page.close()
        lab.opened.remove(again)

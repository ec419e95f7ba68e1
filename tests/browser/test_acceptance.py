"""The acceptance explorer as a reader uses it: drag bars, choose a rule, draw."""

from every_widget import EveryWidget
from playwright.sync_api import expect


def value_is(bar, text):
    expect(bar).to_have_attribute("aria-valuetext", text)


class TestAcceptance(EveryWidget):
    name = "acceptance"

    def test_dragging_the_draft_onto_the_target(self, notebook):
        notebook.says("80% of the guesses are kept.")
        before = notebook.picture().inner_html()
        bar = notebook.slider("draft q of I")
        box, mouse = notebook.area(bar), notebook.page.mouse
        x = box["x"] + box["width"] / 2
        mouse.move(x, box["y"] + 0.2 * box["height"])  # the bar ends at 0.80
        mouse.down()
        for share in (0.75, 0.7, 0.65, 0.6):
            mouse.move(x, box["y"] + (1 - share) * box["height"])
        mouse.up()
        # q(I) is 0.6 now; we and you have 0.2 each, so 0.05 of 'you' is too much.
        notebook.says("95% of the guesses are kept.")
        assert bar.get_attribute("aria-valuetext") == "0.60"
        assert notebook.picture().inner_html() != before
        notebook.page.keyboard.press("ArrowUp")
        value_is(bar, "0.61")
        notebook.page.keyboard.press("PageDown")
        value_is(bar, "0.51")
        notebook.page.keyboard.press("Tab")
        focused = notebook.page.evaluate("() => document.activeElement.ariaLabel")
        assert focused == "target p of we"
        notebook.shoot("acceptance_dragged")

    def test_a_wrong_rule_shows_its_bias_and_draws_do_not_mend_it(self, notebook):
        notebook.control("button", "Draw 1").click()
        notebook.says("The draft says 'I'")
        notebook.control("combobox", "Rule").select_option("wrong: draw from p")
        notebook.says("What comes out is 0.12 away from p, for ever.")
        for _ in range(2):
            notebook.control("button", "Draw 10,000").click()
        notebook.says("20,000 drawn so far")
        assert notebook.picture().get_by_text("+0.12").count() == 1
        notebook.shoot("acceptance_bias")
        notebook.control("combobox", "Rule").select_option("right: draw what is owed")
        notebook.says("What comes out follows p exactly.")
        notebook.control("button", "Draw 10,000").click()
        notebook.says("10,000 drawn so far")
        notebook.shoot("acceptance_right")
        drawn = notebook.words()
        notebook.control("button", "Start again").click()
        notebook.changed_from(drawn)

    def test_bad_input_is_answered_in_a_sentence(self, notebook):
        tokens = notebook.control("spinbutton", "Tokens")
        alert = notebook.trouble()
        for value in ("3", "200"):
            tokens.fill(value)
            tokens.press("Enter")
            says = f"{value} tokens are out of range; take 4 to 8."
            expect(alert).to_contain_text(says)
            notebook.says("80% of the guesses are kept.")
        tokens.fill("8")
        tokens.press("Enter")
        notebook.slider("target p of ?").wait_for()
        expect(alert).to_have_text("")
        notebook.shoot("acceptance_eight")

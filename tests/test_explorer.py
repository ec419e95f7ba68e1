"""What all widgets share: a state and its controls stay in step, bad input is said."""

import json
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import ipywidgets
import pytest

from eagle3.widgets import explorer as module
from eagle3.widgets.explorer import Explorer
from eagle3.widgets.svg import Handle, Picture, line, paragraph, rect, text


@dataclass(frozen=True)
class Counter:
    """A state as small as can be: a number up to 10."""

    count: int = 3

    def changed(self, name, value):
        if name == "add":
            return replace(self, count=self.count + int(value))
        if value > 10:
            raise ValueError(f"{value} is too many; take 10 at most.")
        return replace(self, **{name: value})


def draw(state):
    place = (10.0, 20.0, 50.0, 25.0)
    handle = Handle("count", "number", f"{state.count}", place, 0, 10, state.count)
    words = f"the number is {state.count}"
    return Picture(100, 50, [text(0, 9, words)], words, [handle])


@pytest.fixture
def counter():
    controls = {"count": ipywidgets.IntText(description="Number")}
    buttons = {"add": ipywidgets.Button(description="5")}
    return Explorer(Counter(), draw, controls, buttons), controls["count"], buttons


def test_control_handle_and_button_change_one_state(counter):
    explorer, control, buttons = counter
    assert control.value == 3
    control.value = 7
    assert explorer.state == Counter(7)
    assert "the number is 7" in explorer.view.svg
    explorer.view._handle_custom_msg({"name": "count", "by": -2}, [])
    assert control.value == 5
    buttons["add"].click()
    assert (explorer.state.count, control.value) == (10, 10)
    assert explorer.view.handles[0]["value"] == 10


def test_refused_input_leaves_the_last_good_picture_and_a_sentence(counter):
    explorer, control, _ = counter
    control.value = 11
    assert explorer.view.trouble == "11 is too many; take 10 at most."
    assert explorer.state == Counter(3)
    assert "the number is 3" in explorer.view.svg
    control.value = 3  # back to what is shown
    assert explorer.view.trouble == ""
    control.value = 11
    explorer.view._handle_custom_msg({"name": "count", "by": 1}, [])
    assert (control.value, explorer.view.trouble) == (4, "")


def test_a_handle_lies_where_the_picture_says_in_percent(counter):
    explorer, _, _ = counter
    (handle,) = explorer.view.handles
    assert handle["place"] == (10.0, 40.0, 50.0, 50.0)
    assert json.dumps(handle)  # goes over the wire


def test_messages_for_handles_that_are_gone_change_nothing(counter):
    explorer, _, _ = counter
    explorer.view._handle_custom_msg({"name": "gone", "to": 1}, [])
    assert explorer.state == Counter(3)


def test_showing_hands_on_widget_picture_and_words(counter, monkeypatch):
    shown = []
    monkeypatch.setattr(module, "show_with_still", lambda *given: shown.append(given))
    explorer, _, _ = counter
    explorer.show()
    ((widget, svg, words),) = shown
    assert widget is explorer.widget
    assert svg == explorer.view.svg
    assert words == "the number is 3"


def test_shapes_escape_their_texts():
    parts = [
        rect((0, 0, 1, 1), "white", stroke_width=2),
        line((0, 0), (1, 1)),
        *paragraph(0, 0, "one two <three>", columns=8, font_weight="bold"),
    ]
    svg = Picture(10, 10, parts, 'words with "marks" & <tags>').svg
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'words with "marks" & <tags>'
    assert root.get("role") == "img"
    lines = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert lines == ["one two", "<three>"]
    assert 'stroke-width="2"' in svg


def test_a_page_that_asks_is_answered(counter, monkeypatch):
    explorer, _, _ = counter
    sent = []
    monkeypatch.setattr(explorer.view, "send", sent.append)
    explorer.view._handle_custom_msg({"is_anybody_there": True}, [])
    assert len(sent) == 1
    assert explorer.state == Counter(3)


def test_pictures_are_left_behind_for_a_page_without_a_kernel(counter):
    assert counter[0].view.left_behind == {"walked": "", "pictures": []}
    explorer = Explorer(Counter(), draw, {}, walked="count")
    left = explorer.view.left_behind
    assert left["walked"] == "count"
    assert [one["svg"] for one in left["pictures"]] == [
        draw(Counter(n)).svg for n in range(11)
    ]
    values = [one["handles"][0]["value"] for one in left["pictures"]]
    assert values == list(range(11))
    assert explorer.state == Counter(3)  # drawing them has changed nothing

"""What all widgets share: a state, its picture, and the controls that change it.

A widget is made of three parts. Its *state* is a frozen dataclass that refuses, with
one sentence, what makes no sense. Its *renderer* turns a state into a picture with
words. Both are plain functions of their arguments and need no notebook. `Explorer`
puts controls around them. The page draws what it is sent and reports what a hand did;
all else happens here. [Ours]
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import anywidget
import ipywidgets
import traitlets

from eagle3.plots import show_with_still
from eagle3.widgets.svg import Picture

_HERE = Path(__file__).parent


class PictureView(anywidget.AnyWidget):
    """A picture in the page, with handles that a mouse or the arrow keys move.

    svg: the picture        handles: `Handle` as dictionaries, with places in percent
    trouble: one sentence on input that was refused, or nothing
    left_behind: pictures for pages without a kernel: "walked", the name of a handle,
        and "pictures", what svg and handles are at each of its values

    It sends {"name": ..., "by": steps} or {"name": ..., "to": value}, and asks once
    whether anybody is there; any message from here is an answer. [Ours]
    """

    _esm = _HERE / "view.js"
    _css = _HERE / "view.css"
    svg = traitlets.Unicode().tag(sync=True)
    handles = traitlets.List().tag(sync=True)
    trouble = traitlets.Unicode().tag(sync=True)
    left_behind = traitlets.Dict().tag(sync=True)


class State(Protocol):
    """What an explorer explores: a frozen dataclass that checks itself. [Ours]"""

    def changed(self, name: str, value: Any) -> Self:
        """The state after a control or a handle of that name was set to `value`.

        Raises ValueError, with a sentence for the reader, for what makes no sense.
        """


class Explorer:
    """A state with its picture and its controls, kept in step.

    state: where to begin            draw: state -> picture
    controls: name -> an ipywidgets control with a value; where the state has an
        attribute of that name, the control shows it
    buttons: name -> a button; pressing it changes the state by that name
    walked: name of a handle with few values; pages without a kernel can move it, too,
        as long as nothing else was changed

    `widget` is what can be placed in a page. Input that the state refuses is answered
    with its sentence, and the last good picture stays. [Ours]
    """

    def __init__(
        self,
        state: State,
        draw: Callable[[Any], Picture],
        controls: Mapping[str, Any],
        buttons: Mapping[str, ipywidgets.Button] | None = None,
        walked: str = "",
    ) -> None:
        self.state, self._draw, self._controls = state, draw, dict(controls)
        self.view = PictureView()
        for name, control in self._controls.items():
            control.style.description_width = "initial"
            control.observe(partial(self._control_changed, name), "value")
        for name, button in (buttons or {}).items():
            button.on_click(partial(self._button_pressed, name))
        self.view.on_msg(self._handle_moved)
        row = [*self._controls.values(), *(buttons or {}).values()]
        layout = ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        self.widget = ipywidgets.VBox([ipywidgets.Box(row, layout=layout), self.view])
        self.picture = draw(state)
        self.view.left_behind = self._pictures_of(walked)
        self._refresh()

    def change(self, name: str, value: Any) -> None:
        """Set one thing, as a control or a handle does. [Ours]"""
        try:
            state = self.state.changed(name, value)
            picture = self._draw(state)
        except ValueError as error:
            self.view.trouble = str(error)
            return
        self.state, self.picture = state, picture
        self._refresh()

    def show(self) -> None:
        """Show the explorer in a notebook; where no kernel runs, its picture. [Ours]"""
        show_with_still(self.widget, self.picture.svg, self.picture.words)

    def _refresh(self) -> None:
        self.view.trouble = ""
        for name, control in self._controls.items():
            control.value = getattr(self.state, name, control.value)
        with self.view.hold_sync():
            self.view.svg = self.picture.svg
            self.view.handles = _in_percent(self.picture)

    def _pictures_of(self, walked: str) -> dict[str, Any]:
        """What the page may show by itself when that handle is moved."""
        handles = [h for h in self.picture.handles if h.name == walked]
        pictures = [
            self._draw(self.state.changed(walked, value))
            for handle in handles
            for value in range(handle.low, handle.high + 1)
        ]
        sent = [{"svg": one.svg, "handles": _in_percent(one)} for one in pictures]
        return {"walked": walked if sent else "", "pictures": sent}

    def _control_changed(self, name: str, change: dict[str, Any]) -> None:
        # A control that merely shows what the state already says changes nothing.
        if change["new"] != getattr(self.state, name, None) or self.view.trouble:
            self.change(name, change["new"])

    def _button_pressed(self, name: str, button: ipywidgets.Button) -> None:
        self.change(name, button.description)

    def _handle_moved(self, view: PictureView, move: dict[str, Any], _: Any) -> None:
        if "name" not in move:
            view.send({"here": True})
            return
        # Steps are counted from the state, not from what the page shows: keys that
        # come faster than pictures are not lost.
        for handle in self.picture.handles:
            if handle.name == move["name"]:
                value = move["to"] if "to" in move else handle.value + move["by"]
                value = min(handle.high, max(handle.low, value))
                if value != handle.value:
                    self.change(handle.name, value)


def _in_percent(picture: Picture) -> list[dict[str, Any]]:
    """The handles of a picture with their places as shares of it."""
    wide, tall = picture.width / 100, picture.height / 100
    found = []
    for handle in picture.handles:
        left, top, width, height = handle.place
        place = (left / wide, top / tall, width / wide, height / tall)
        found.append(asdict(replace(handle, place=place)))
    return found

"""The step-through without a page: Figure 5's example, made by hand."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from helpers import VOCAB, new_draft, talking_toy, toy
from step_example import FIRST, RECORDING

from eagle3.step_through import ROWS, frames
from eagle3.widgets.step_explorer import draw_step, step_explorer
from eagle3.widgets.step_state import StepState, watcher

SVG = "{http://www.w3.org/2000/svg}"


def texts(state: StepState) -> list[str]:
    root = ElementTree.fromstring(draw_step(state).svg)
    return [str(node.text) for node in root.iter(f"{SVG}text")]


def test_every_moment_is_shown_with_its_words_and_tensors():
    film = frames(RECORDING, 1)
    for moment, frame in enumerate(film, start=1):
        state = StepState(RECORDING, moment=moment)
        assert state.sentence == f"Cycle 1 of 2, {frame.alt}"
        drawn = texts(state)
        assert f"{moment} of {len(film)}: {frame.title}" in drawn
        assert set(ROWS) <= set(drawn)
        assert set(frame.words.split()) <= set(" ".join(drawn).split())
        for note in frame.notes:
            assert {note.name, str(list(note.shape)), f"from {note.source}"} <= {*drawn}
    assert "no new tensor" in texts(StepState(RECORDING, moment=7))


def test_the_picture_of_a_cycle_keeps_its_height():
    pictures = [draw_step(StepState(RECORDING, moment=m)) for m in range(1, 12)]
    assert len({picture.height for picture in pictures}) == 1


def test_the_handle_counts_moments_and_has_buttons():
    (handle,) = draw_step(StepState(RECORDING, moment=5)).handles
    assert (handle.name, handle.low, handle.high, handle.value) == ("moment", 1, 11, 5)
    assert handle.text == "5 of 11, guess 2"
    assert handle.grows == "right" and handle.pace > 0


def test_another_cycle_begins_at_its_first_moment():
    state = StepState(RECORDING, moment=5).changed("cycle", 2)
    assert (state.cycle, state.moment) == (2, 1)
    assert state.film == frames(RECORDING, 2)
    assert state.sentence.startswith("Cycle 2 of 2, step 1 of")


def test_a_text_of_ones_own_is_recorded():
    target, draft = talking_toy(), new_draft(toy(), VOCAB)  # any draft is right
    state = StepState(RECORDING, watcher(target, draft), moment=5)
    own = state.changed("text", "How")
    assert own.recording.prompt_length == len(target.encode("How"))
    assert own.recording.cycles[own.cycle - 1].row.drafted
    assert (own.text, own.moment) == ("How", 1)
    for text, says in (("  ", "nothing to go on with"), ("x" * 5000, "context")):
        with pytest.raises(ValueError, match=says) as error:
            own.changed("text", text)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("moment", 0, "There is no moment 0; the cycle has 11"),
        ("moment", 12, "There is no moment 12"),
        ("cycle", 0, "the recording has cycles 1 to 2, not 0"),
        ("cycle", 3, "the recording has cycles 1 to 2, not 3"),
        ("text", "How", "This run is fixed"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence(name, value, says):
    with pytest.raises(ValueError) as error:
        StepState(RECORDING).changed(name, value)
    assert says in str(error.value)


def test_tokens_are_words_and_nothing_else():
    bad = "<img onerror=alert(1)>"
    row = replace(FIRST.row, pending=bad, drafted=("<script>", "it", "now"))
    recording = replace(RECORDING, cycles=(replace(FIRST, row=row),))
    explorer = step_explorer(recording)
    for moment in range(1, 11):
        explorer.change("moment", moment)
        root = ElementTree.fromstring(explorer.picture.svg)
        assert {node.tag for node in root.iter()} <= {
            f"{SVG}{name}" for name in ("svg", "rect", "text", "line")
        }
        assert "&lt;" in explorer.picture.svg


def test_without_a_kernel_all_moments_can_be_walked_through():
    left = step_explorer(RECORDING).view.left_behind
    assert left["walked"] == "moment"
    assert [one["svg"] for one in left["pictures"]] == [
        draw_step(StepState(RECORDING, moment=m)).svg for m in range(1, 12)
    ]

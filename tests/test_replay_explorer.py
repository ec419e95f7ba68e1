"""The training replay without a page: runs made by hand, where all can be counted."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from replay_example import STORED

from eagle3.widgets.replay_state import ReplayState
from eagle3.widgets.training_replay import draw_replay, training_replay

SVG = "{http://www.w3.org/2000/svg}"


def texts(state: ReplayState) -> list[str]:
    root = ElementTree.fromstring(draw_replay(state).svg)
    return [str(node.text) for node in root.iter(f"{SVG}text")]


def test_the_sentence_counts_passes_and_tokens():
    state = ReplayState(STORED)
    assert state.sentence == (
        "two steps, after 0 of 50 steps: 0-alpha 0.00, 1-alpha 0.00. The same 4 tokens "
        "take 4 passes of the target, 1.00 from each."
    )
    assert state.changed("frame", 3).sentence == (
        "two steps, after 40 of 50 steps: 0-alpha 0.75, 1-alpha 0.50. The same 4 "
        "tokens take 2 passes of the target, 2.00 from each (untrained 1.00); loss of "
        "step 0 2.00, of step 1 3.00."
    )


def test_the_text_stays_and_its_makers_change():
    says = []
    for frame in (1, 2, 3):
        state = ReplayState(STORED, frame=frame)
        says.append([token.text for token in state.tokens])
    assert says[0] == says[1] == says[2] == [" I", " do", " it", " now", "."]
    kept = [token.kept for token in ReplayState(STORED, frame=3).tokens]
    assert kept == [False, True, True, False, True]
    cycles = [token.cycle for token in ReplayState(STORED, frame=3).tokens]
    assert cycles == [0, 1, 1, 1, 2]


def test_the_picture_shows_the_chosen_moment():
    drawn = texts(ReplayState(STORED, frame=3))
    assert {"␣do ✓", "␣it ✓", ". ✓", "␣I", "␣now", ".75", ".50"} <= set(drawn)
    assert not any("✓" in says for says in texts(ReplayState(STORED))[-5:])
    (handle,) = draw_replay(ReplayState(STORED, frame=2)).handles
    assert (handle.low, handle.high, handle.value) == (1, 3, 2)
    assert handle.text == "step 10, 1.33 tokens from each pass"
    assert handle.pace > 0


def test_the_curve_passes_evaluations_where_they_stand():
    root = ElementTree.fromstring(draw_replay(ReplayState(STORED, frame=2)).svg)
    first, last = list(root.iter(f"{SVG}polyline"))
    cursor = next(n for n in root.iter(f"{SVG}line") if n.get("stroke-width") == "2")
    at_10 = [corner.split(",") for corner in first.get("points").split()][1]
    assert float(at_10[0]) == float(cursor.get("x1"))
    lower = [corner.split(",")[1] for corner in first.get("points").split()]
    upper = [corner.split(",")[1] for corner in last.get("points").split()]
    assert all(float(a) > float(b) for a, b in zip(lower, upper, strict=True))


def test_another_run_is_shown_at_about_the_same_step():
    state = ReplayState(STORED, frame=3).changed("run", "one step")
    assert (state.frame, state.step) == (2, 30)
    assert "of step 0 3.50." in state.sentence  # it has one loss alone
    assert (
        len(list(ElementTree.fromstring(draw_replay(state).svg).iter(f"{SVG}polyline")))
        == 1
    )
    assert state.changed("run", "two steps").frame == 3


def test_long_logs_are_thinned_out_but_not_cut():
    losses = [{"step": i, "per_step": [1.0]} for i in range(1, 1001)]
    run = STORED["runs"]["one step"] | {"losses": losses}
    state = ReplayState(STORED | {"runs": {"long": run}})
    steps = [step for step, _ in state.losses]
    assert len(steps) <= 100 and steps[0] == 1 and steps[-1] > 980


@pytest.mark.parametrize("frame", [0, 4, 200])
def test_a_moment_that_is_not_there_is_refused_in_one_sentence(frame):
    with pytest.raises(ValueError, match=f"no evaluation {frame}; the run has 3"):
        ReplayState(STORED).changed("frame", frame)


def test_tokens_are_words_and_nothing_else():
    bad = STORED["texts"] | {"1": "<script>", "2": "<img onerror=x>"}
    explorer = training_replay(STORED | {"texts": bad})
    explorer.change("frame", 3)
    tags = {node.tag for node in ElementTree.fromstring(explorer.picture.svg).iter()}
    names = ("svg", "rect", "text", "line", "polyline")
    assert tags <= {f"{SVG}{name}" for name in names}
    assert "&lt;script&gt; ✓" in explorer.picture.svg


def test_without_a_kernel_all_moments_can_be_walked_through():
    left = training_replay(STORED).view.left_behind
    assert left["walked"] == "frame"
    state = ReplayState(STORED)
    assert [one["svg"] for one in left["pictures"]] == [
        draw_replay(replace(state, frame=frame)).svg for frame in (1, 2, 3)
    ]

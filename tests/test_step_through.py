"""eagle3.step_through: the moments of a cycle, on Figure 5's example made by hand.

Right values follow from the example: which tensors there are, whose, and how far the
caches reach. A real run of the toy must obey the same invariants.
"""

import pytest
from helpers import PROMPT, toy, trained_draft
from step_example import RECORDING, VD, K, V, vectors

from eagle3.step_through import frames
from eagle3.watch import record

TITLES = [
    "the target has run",
    "fuse",
    "catch up",
    "guess 1",
    "guess 2",
    "guess 3",
    "restore the draft's cache",
    "verify",
    "decide",
    "commit",
    "catch up again",
]


def film(cycle: int = 1):
    return {frame.title: frame for frame in frames(RECORDING, cycle)}


def row(frame, name: str) -> dict[int, str]:
    """Position -> label and state of what stands in a row."""
    return {
        position: f"{tile.label} {tile.state}"
        for (kind, position), tile in sorted(frame.tiles.items())
        if kind == name
    }


def test_the_moments_come_in_order_and_are_numbered():
    shots = frames(RECORDING, 1)
    assert [shot.title for shot in shots] == TITLES
    assert [(shot.number, shot.total) for shot in shots] == [
        (i, len(TITLES)) for i in range(1, len(TITLES) + 1)
    ]
    assert all(shot.positions == (0, 1, 2, 3, 4, 5) for shot in shots)


def test_features_exist_where_the_target_has_run():
    found = row(film()["the target has run"], "l, m, h")
    assert found == {0: "lmh of How new", 1: "lmh of can new", 2: "none yet missing"}
    found = row(film()["fuse"], "input x")
    assert found == {0: "g of How new", 1: "g of can new", 2: "no g missing"}


def test_each_feature_meets_the_next_token():
    shot = film()["catch up"]
    assert row(shot, "embedding e") == {0: "e of can new", 1: "e of I new"}
    assert row(shot, "output a") == {0: "a of can new", 1: "a of I new"}
    assert "(g of can, e of I)" in shot.words
    assert shot.tiles["output a", 1].sketch == vectors(2)[0]


def test_a_stands_in_for_g_where_there_is_none():
    shots = film()
    for title, position, name in (("guess 2", 2, "I"), ("guess 3", 3, "do")):
        tile = shots[title].tiles["input x", position]
        assert tile.stand_in and tile.label == f"a of {name}"
        assert tile.sketch == shots[title].tiles["output a", position - 1].sketch
    assert row(shots["guess 3"], "draft says") == {
        1: "do there",
        2: "it there",
        3: "now new",
    }
    real = [shots["guess 3"].tiles["input x", i].stand_in for i in (0, 1)]
    assert real == [False, False]


def test_caches_on_trial_and_settled():
    caches = {title: shot.caches for title, shot in film().items()}
    assert caches["the target has run"] == {"target": (2, 0), "draft": (0, 0)}
    assert caches["catch up"] == {"target": (2, 0), "draft": (2, 0)}
    assert caches["guess 1"]["draft"] == (2, 0)
    assert caches["guess 3"]["draft"] == (2, 2)
    assert caches["restore the draft's cache"]["draft"] == (2, 0)
    assert caches["verify"] == {"target": (2, 4), "draft": (2, 0)}
    assert caches["commit"] == {"target": (5, 0), "draft": (2, 0)}
    assert caches["catch up again"] == {"target": (5, 0), "draft": (5, 0)}


def test_what_was_built_from_a_goes_before_the_verdict():
    shot = film()["restore the draft's cache"]
    gone = {place for place, tile in shot.tiles.items() if tile.state == "gone"}
    assert {("output a", 2), ("input x", 2), ("output a", 3)} <= gone
    after = film()["verify"].tiles
    assert not [place for place in after if place[0] in ("output a", "input x")]
    assert row(film()["verify"], "token")[3] == "do drafted"


def test_each_row_of_the_target_judges_the_token_after_it():
    shot = film()["verify"]
    found = row(shot, "target says")
    assert found == {1: "I there", 2: "do new", 3: "it new", 4: "fast new", 5: "? new"}
    assert set(row(shot, "l, m, h")) == {2, 3, 4, 5}
    found = row(film()["decide"], "token")
    assert list(found.values())[2:] == [
        "I pending",
        "do accepted",
        "it accepted",
        "now rejected",
    ]


def test_as_many_rows_stay_as_tokens_are_emitted():
    shot = film()["commit"]
    assert row(shot, "l, m, h") == {
        2: "lmh of I there",
        3: "lmh of do there",
        4: "lmh of it there",
        5: "lmh of now gone",
    }
    assert row(shot, "token")[5] == "fast pending"
    assert "3 tokens are emitted" in shot.words and "forgets 1 row" in shot.words


def test_accepted_tokens_are_read_again_with_real_features():
    shot = film()["catch up again"]
    assert row(shot, "input x") == {
        2: "g of I new",
        3: "g of do new",
        4: "g of it new",
        5: "no g missing",
    }
    assert row(shot, "embedding e") == {
        2: "e of do new",
        3: "e of it new",
        4: "e of fast new",
    }
    assert [shot.tiles["input x", i].sketch for i in (2, 3, 4)] == list(
        vectors(-1, 0, 2)
    )
    assert not any(tile.stand_in for tile in shot.tiles.values())


def test_notes_tell_shape_and_origin():
    notes = {title: shot.notes for title, shot in film().items()}
    (g,) = notes["fuse"]
    assert (g.name, g.shape) == ("g", (1, 2, K)) and "[1, 2, 18]" in g.source
    assert [note.shape for note in notes["guess 2"]] == [
        (1, 1, K),
        (1, 1, K),
        (1, 1, VD),
    ]
    assert notes["verify"][0].shape == (1, 4, V)
    assert notes["decide"] == ()
    assert film()["fuse"].alt == (
        "step 2 of 11, fuse: One matrix makes one feature g of the three taps of a "
        "position. I gets none. New: g [1, 2, 6] from FC of l, m, h [1, 2, 18]."
    )


def test_a_later_cycle_starts_from_what_the_first_left():
    shots = film(2)
    assert list(shots)[-1] == "commit"  # no third cycle
    first = shots["the target has run"]
    assert row(first, "l, m, h") == {
        2: "lmh of I new",
        3: "lmh of do new",
        4: "lmh of it new",
        5: "none yet missing",
    }
    assert first.tiles["l, m, h", 3].sketch == vectors(1)[0]
    assert shots["decide"].words.endswith("The last row gives a bonus token, No.")
    assert shots["commit"].words.endswith("No ends the answer.")
    assert "keeps all rows" in shots["commit"].words


def test_unknown_cycles_are_refused():
    with pytest.raises(ValueError, match="cycles 1 to 2, not 3"):
        frames(RECORDING, 3)
    result, recording = record(toy(), trained_draft(), PROMPT, 2)
    assert result.cycles[0].drafted == ()
    with pytest.raises(ValueError, match="drafted nothing"):
        frames(recording, 1)


def test_every_cycle_of_a_real_run_can_be_shown():
    result, recording = record(toy(), trained_draft(), PROMPT, 20)
    for cycle in result.cycles:
        if not cycle.drafted:
            continue
        shots = frames(recording, cycle.index)
        assert shots[-1].caches["target"] == (cycle.target_cache, 0)
        guesses = [shot for shot in shots if shot.title.startswith("guess")]
        assert len(guesses) == len(cycle.drafted)
        for shot in shots:  # a token stands in every column that anything stands in
            tokens = set(row(shot, "token"))
            assert set(row(shot, "input x")) <= tokens

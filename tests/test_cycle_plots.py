"""eagle3.cycle_plots: the dataflow of a cycle, and the levels of both caches.

Right values come from Figure 5's example, made by hand, and from the engine's trace.
"""

from helpers import PROMPT, toy, trained_draft
from step_example import FIRST, RECORDING

from eagle3.cycle_plots import CacheLevel, cache_levels, cache_timeline, cycle_dataflow
from eagle3.watch import record


def test_the_dataflow_names_every_move_with_its_rows():
    figure = cycle_dataflow(FIRST)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert "catch up\n2 rows" in words and "verify\n4 rows" in words
    assert [w for w in words if w.startswith("guess")] == [
        "guess\ndo",
        "guess\nit",
        "guess\nnow",
    ]
    assert "2 accepted,\nthen fast" in words
    assert "target forgets 1 row\ndraft forgot 2 rows" in words


def test_levels_rise_on_trial_and_fall_back():
    moves = [(v.what, v.target, v.draft, v.settled) for v in cache_levels(RECORDING, 1)]
    assert moves == [
        ("catch up", 2, 2, 2),
        ("guess", 2, 3, 2),
        ("guess", 2, 4, 2),
        ("restore", 2, 2, 2),
        ("verify", 6, 2, 2),
        ("commit", 5, 2, 5),
    ]
    assert cache_levels(RECORDING, 2)[-1] == CacheLevel(2, "commit", 7, 5, 7)


def test_levels_of_a_real_run_end_where_the_trace_says():
    result, recording = record(toy(), trained_draft(), PROMPT, 20)
    levels = cache_levels(recording, len(result.cycles))
    ends = [level for level in levels if level.what == "commit"]
    for level, cycle in zip(ends, result.cycles, strict=True):
        assert (level.target, level.draft) == (cycle.target_cache, cycle.draft_cache)
        assert level.settled == level.target


def test_the_timeline_marks_every_fall():
    figure = cache_timeline(cache_levels(RECORDING, 2))
    (axes,) = figure.axes
    assert sorted(text.get_text() for text in axes.texts) == ["−1", "−2"]
    names = [
        line.get_label() for line in axes.lines if not line.get_label().startswith("_")
    ]
    assert names == ["target's cache", "draft's cache", "committed"]
    assert list(axes.lines[0].get_ydata())[:6] == [2, 2, 2, 2, 6, 5]

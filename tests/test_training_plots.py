"""eagle3.training_plots: what goes in is what is drawn, also with runs missing.

The runs are made up: numbers that are easy to find again.
"""

import pytest

from eagle3 import training_plots


def run(arm, budget, seed, first):
    alphas = [first - 0.05 * n for n in range(8)]
    chains = [8000, 4000, 2000, 1000, 500, 201, 199, 4]
    curve = [
        {"step": s, "n_alpha": [first * s / 8, first * s / 16, 0, 0], "loss": 4.0}
        for s in (2, 4, 8)
    ]
    facts = {"arm": arm, "budget": budget, "seed": seed, "answer_tokens": 16_000}
    return facts | {"steps": 8, "n_alpha": alphas, "chains": chains, "curve": curve}


RUNS = [run("eagle3", 1, 1, 0.5), run("eagle3", 1, 0, 0.6), run("eagle3", 2, 0, 0.7),
        run("eagle3-one-step", 1, 0, 0.4), run("hass", 2, 0, 0.4)]  # fmt: skip


def lines(axes) -> dict[str, tuple[list, list]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
            for line in axes.lines}  # fmt: skip


def test_each_step_has_its_curve_of_losses():
    points = [{"step": 5, "per_step": [4.0, 5.0]}, {"step": 9, "per_step": [3.0, 4.5]}]
    found = lines(training_plots.losses(points).axes[0])
    assert found == {
        "step 0, features of the target": ([5, 9], [4.0, 3.0]),
        "step 1, its own": ([5, 9], [5.0, 4.5]),
    }


def test_alphas_of_drafts_are_drawn_by_name():
    drafts = {"untrained": [0.0, 0.1], "five steps": [0.5, 0.4, 0.3]}
    axes = training_plots.alphas(drafts).axes[0]
    assert lines(axes) == {
        "untrained": ([0, 1], [0.0, 0.1]),
        "five steps": ([0, 1, 2], [0.5, 0.4, 0.3]),
    }
    assert len({(x.get_marker(), x.get_linestyle()) for x in axes.lines}) == 2


def test_arms_are_of_one_budget_and_the_lowest_seed():
    arms = ("eagle3", "eagle3-one-step", "hass")
    found = lines(training_plots.arms_by_n(RUNS, arms, 1).axes[0])
    assert set(found) == {"EAGLE-3", "EAGLE-3, one step"}
    x, y = found["EAGLE-3"]
    assert x == list(range(6))  # 199 and 4 chains are too few
    assert y == pytest.approx([0.6 - 0.05 * n for n in range(6)])


def test_learning_is_drawn_against_answer_tokens():
    axes = training_plots.learning(RUNS, ("eagle3", "hass"), 2).axes
    assert [set(lines(panel)) for panel in axes] == [{"EAGLE-3", "HASS"}] * 2
    x, y = lines(axes[1])["EAGLE-3"]
    assert x == [4.0, 8.0, 16.0]  # thousands: 16,000 tokens in 8 steps
    assert y == pytest.approx([0.7 * s / 16 for s in (2, 4, 8)])


@pytest.mark.parametrize("draw", [training_plots.arms_by_n, training_plots.learning])
def test_without_runs_a_picture_says_so(draw):
    axes = draw([], ("eagle3",), 1).axes[0]
    assert [text.get_text() for text in axes.texts] == ["not yet measured"]


def test_the_rate_is_drawn_as_given():
    (line,) = training_plots.rates([0, 1, 2], [0.1, 0.3, 0.2]).axes[0].lines
    assert list(line.get_ydata()) == [0.1, 0.3, 0.2]

"""eagle3.study_plots: the paper's figures and ours, each in panels of its own.

The runs here are made up for the tests alone: numbers that are easy to find again.
Right values are what went in.
"""

import pytest

from eagle3 import study_plots
from eagle3.cost_model import expected_tokens
from eagle3.paper import read_paper
from eagle3.plots import DRAFT


def run(arm, budget, seed, first, fall=0.0):
    alphas = [first - fall * n for n in range(8)]
    chains = [8000, 4000, 2000, 1000, 500, 201, 199, 4]
    return {"arm": arm, "budget": budget, "seed": seed, "answer_tokens": 1000 * budget,
            "sequences": 10, "steps": 5, "n_alpha": alphas, "chains": chains,
            "curve": []}  # fmt: skip


RUNS = [
    *(run("eagle1", b, 0, 0.3 + 0.05 * b, 0.02) for b in (1, 2, 4)),
    *(run("eagle3", b, 0, 0.5 + 0.05 * b) for b in (1, 2, 4, 8)),
    run("eagle3", 1, 1, 0.60),
    run("eagle3", 1, 2, 0.53),
    run("eagle1-no-feature-loss", 1, 0, 0.4, 0.05),
    run("eagle3-no-fusion", 1, 0, 0.45),
    run("eagle3-no-fusion", 4, 0, 0.55),
    run("eagle3-one-step", 1, 0, 0.5, 0.06),
]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def curve(axes, name) -> tuple[list, list]:
    (line,) = [line for line in axes.lines if line.get_label() == name]
    return list(line.get_xdata()), list(line.get_ydata())


def test_seeds_are_gathered_to_mean_least_and_most():
    points = study_plots.by_budget(RUNS, "eagle3", lambda r: r["n_alpha"][0])
    assert [p[0] for p in points] == [1, 2, 4, 8]
    assert points[0] == pytest.approx((1, (0.55 + 0.60 + 0.53) / 3, 0.53, 0.60))
    assert points[3] == pytest.approx((8, 0.9, 0.9, 0.9))
    assert study_plots.by_budget(RUNS, "hass", lambda r: 1.0) == []


def test_tau_is_that_of_a_chain_of_three():
    assert study_plots.tau_of(run("eagle3", 1, 0, 0.5)) == pytest.approx(1.875)


# --------------------------------------------------------------------------- Figure 1


def test_figure_1_has_two_panels_of_the_paper_and_two_of_ours():
    figure = study_plots.scaling(read_paper("figure1"), RUNS, lambda r: 2.0)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "speedup\nthe paper",
        "tau\nthe paper",
        "speedup, foreseen\nour runs",
        "tau\nour runs",
    ]
    paper = read_paper("figure1")
    for axes, what in zip(figure.axes, ("speedup", "tau"), strict=False):
        for method in ("EAGLE-2", "EAGLE-3"):
            assert curve(axes, method) == ([1, 2, 4, 8], paper[what][method])
    x, y = curve(figure.axes[3], "EAGLE-1")
    assert x == [1, 2, 4]
    want = [expected_tokens(r["n_alpha"][:3]) for r in RUNS[:3]]
    assert y == pytest.approx(want)


def test_read_off_points_are_hollow_and_exact_ones_are_solid():
    axes = study_plots.scaling(read_paper("figure1"), []).axes[0]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    solid = [line for line in axes.lines if line.get_markerfacecolor() != "white"]
    assert len(hollow) == len(solid) == 2
    assert {(line.get_xdata()[0], line.get_ydata()[0]) for line in solid} == {
        (1, 3.16),
        (8, 4.40),
    }


def test_without_runs_our_panels_say_so():
    figure = study_plots.scaling(read_paper("figure1"), [])
    for axes in figure.axes[2:]:
        assert texts(axes) == ["not yet measured"]
        assert not axes.lines


def test_without_a_cost_model_no_speedup_is_drawn():
    figure = study_plots.scaling(read_paper("figure1"), RUNS)
    assert texts(figure.axes[2]) == ["not yet measured"]
    assert figure.axes[3].lines


def test_a_speedup_is_foreseen_at_the_price_of_a_cycle():
    """A cycle that made 2.4 tokens and 1.6 times the speed costs 1.5 plain steps."""
    value = study_plots.foreseen({"acceptance_length": 2.4, "speedup": 1.6})
    assert value(run("eagle3", 1, 0, 0.5)) == pytest.approx(1.875 / 1.5)


def test_a_run_of_which_nothing_was_measured_has_no_point():
    measured = {1: 1.5, 4: 1.75}
    figure = study_plots.scaling(
        read_paper("figure1"), RUNS, lambda r: measured.get(r["budget"]), "speedup"
    )
    assert curve(figure.axes[2], "EAGLE-3") == ([1, 4], [1.5, 1.75])
    assert figure.axes[2].get_title() == "speedup\nour runs"


# --------------------------------------------------------------------------- Figure 4


def test_figure_4_shows_the_papers_ranges_and_three_of_our_arms():
    figure = study_plots.early_alphas(read_paper("figure4"), RUNS)
    bars = [(b.get_y(), b.get_y() + b.get_height()) for b in figure.axes[0].patches]
    assert bars == [pytest.approx((0.2, 0.3)), pytest.approx((0.7, 0.78))]
    for n, axes in enumerate(figure.axes[1:]):
        names = {line.get_label() for line in axes.lines}
        assert names == {
            "EAGLE-1",
            "EAGLE-1 without feature loss",
            "EAGLE-3 without fusion",
        }
        _, y = curve(axes, "EAGLE-3 without fusion")
        assert y == pytest.approx([0.45, 0.55])
        assert axes.get_title() == f"{n}-alpha, our runs"
    _, one = curve(figure.axes[2], "EAGLE-1")
    assert one == pytest.approx([0.33, 0.38, 0.48])


# --------------------------------------------------------------------------- Figure 7


def test_figure_7_draws_the_largest_common_budget_and_leaves_out_rare_chains():
    runs = [*RUNS, run("eagle3-one-step", 4, 0, 0.7, 0.06)]
    figure = study_plots.alpha_by_n(read_paper("figure7"), runs)
    x, y = curve(figure.axes[1], "EAGLE-3, 4x")  # EAGLE-1 has no 8x
    assert x == list(range(6))  # 199 and 4 chains are too few
    assert y == pytest.approx([0.7] * 6)
    assert curve(figure.axes[1], "EAGLE-3, one step, 4x")[1][1] == pytest.approx(0.64)
    figure = study_plots.alpha_by_n(read_paper("figure7"), RUNS)
    _, y = curve(figure.axes[1], "EAGLE-3, 1x")  # the lowest seed
    assert y == pytest.approx([0.55] * 6)


def test_figure_7_of_the_paper_is_marks_where_read_and_a_band_where_not():
    axes = study_plots.alpha_by_n(read_paper("figure7"), []).axes[0]
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
    assert marks[:3] == [(0, 0.71), (1, 0.64), (3, 0.57)]
    assert [x for x, _ in marks] == [0, 1, 3, 6, 7]  # no point at 2, 4 and 5
    band = axes.collections[-1].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.78, 0.81)


def test_figure_7_without_runs_says_so():
    figure = study_plots.alpha_by_n(read_paper("figure7"), [])
    assert texts(figure.axes[1]) == ["not yet measured"]


def test_the_largest_run_has_the_lowest_seed():
    assert study_plots.largest(RUNS, "eagle3")["budget"] == 8
    same = [run("hass", 1, 2, 0.5), run("hass", 1, 0, 0.5)]
    assert study_plots.largest(same, "hass")["seed"] == 0
    assert study_plots.largest(RUNS, "hass") is None


# ---------------------------------------------------------------------------- Table 2


def test_table_2_stands_in_steps_beside_ours():
    figure = study_plots.ablation(read_paper("table2"), RUNS)
    assert [axes.get_title() for axes in figure.axes] == [
        "tau on MT-bench, the paper",
        "tau on GSM8K, the paper",
        "tau of a chain of 3, our runs",
    ]
    assert texts(figure.axes[0]) == ["4.05", "5.37\n(+1.32)", "6.13\n(+0.76)"]
    new = [b for b in figure.axes[0].patches if b.get_hatch() == "//"]
    assert [round(b.get_height(), 2) for b in new] == [1.32, 0.76]


def test_our_steps_are_of_the_largest_budget_that_all_arms_have():
    groups = study_plots.at_one_budget(RUNS, study_plots.TABLE_2_ARMS)
    assert [[r["budget"] for r in group] for group in groups] == [[4], [4], [4]]
    figure = study_plots.ablation(read_paper("table2"), RUNS)
    taus = [study_plots.tau_of(group[0]) for group in groups]
    assert texts(figure.axes[2])[0] == f"{taus[0]:.2f}"
    assert study_plots.at_one_budget(RUNS[:3], study_plots.TABLE_2_ARMS) == []


def test_a_step_down_is_drawn_without_a_gain():
    worse = [run("eagle1", 1, 0, 0.6), run("eagle3-no-fusion", 1, 0, 0.4),
             run("eagle3", 1, 0, 0.5)]  # fmt: skip
    axes = study_plots.ablation(read_paper("table2"), worse).axes[2]
    assert "(-" in texts(axes)[1]
    assert len([b for b in axes.patches if b.get_hatch() == "//"]) == 1


def test_table_2_without_runs_says_so():
    figure = study_plots.ablation(read_paper("table2"), [])
    assert texts(figure.axes[2]) == ["not yet measured"]


def test_arms_are_told_apart_without_colour():
    looks = {(marker, dash) for _, _, marker, dash in study_plots.ARMS.values()}
    assert len(looks) == len(study_plots.ARMS)
    assert study_plots.ARMS["eagle3"][1] == DRAFT

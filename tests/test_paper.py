"""figures/paper: every file names its source, and the paper's numbers agree or don't.

Right values are the paper's own: what stands in two places is compared, what the text
says is recomputed from the tables. Slips that the paper has are tested as slips, so
that nobody mends them by hand.
"""

import json
from itertools import pairwise
from statistics import fmean

import pytest

from eagle3 import paper
from eagle3.cost_model import break_even, expected_tokens, last_gain
from eagle3.paper import gains, read_paper, row_of, table1

NAMES = sorted(file.stem for file in paper.FOLDER.glob("*.json"))
MODELS = ("V 13B", "L31 8B", "L33 70B", "DSL 8B")
EAGLE3_ROWS = [(t, m) for t in (0, 1) for m in MODELS]


@pytest.fixture(scope="module")
def rows():
    return table1()


# ------------------------------------------------------------------ form and sources


def test_all_tables_and_figures_with_numbers_are_here():
    tables = {f"table{i}" for i in (1, 2, 3, 4, 5)}
    figures = {f"figure{i}" for i in (1, 2, 4, 7)}
    others = {"eagle1", "spec_bench", "claims", "settings"}
    assert set(NAMES) == tables | figures | others


@pytest.mark.parametrize("name", NAMES)
def test_every_file_says_where_its_numbers_stand_and_how_they_were_got(name):
    data = read_paper(name)
    how = data["how"]
    assert how.startswith(("printed", "read off the plot"))
    if name.startswith(("table", "figure")):
        kind, number = name[:-1].capitalize(), name[-1]
        assert f"2503.01840), {kind} {number}" in data["source"]
    read_off = {"figure1", "figure4", "figure7"}
    assert ("approximate" in how) == (name in read_off)


def test_what_is_not_the_papers_says_so():
    assert "not a table of the EAGLE-3 paper" in read_paper("eagle1")["source"]
    assert "third party" in read_paper("spec_bench")["source"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="choose one of claims, eagle1, figure1"):
        read_paper("table9")


def test_no_file_holds_a_null_that_is_not_explained():
    """Values that nobody saw are left out, not written as null."""
    for name in NAMES:
        if name != "settings":  # version 3 is silent on the number of steps
            assert "null" not in json.dumps(read_paper(name))


# -------------------------------------------------------------- Table 1: its own sums


def test_table_1_has_26_rows_with_the_printed_corners(rows):
    assert len(rows) == 26
    assert len({row.key for row in rows}) == 26
    first, last = rows[0], rows[-1]
    assert first.key == (0, "V 13B", "SpS") and first.printed_mean == (1.92, 2.24)
    assert (first.cells[0].speedup, first.cells[0].tau) == (1.93, 2.27)
    assert last.key == (1, "DSL 8B", "EAGLE-3") and last.printed_mean == (3.52, 4.89)
    best = row_of(rows, 0, "V 13B", "EAGLE-3").cells[1]
    assert (best.task, best.speedup, best.tau) == ("HumanEval", 6.47, 7.54)


def test_only_hass_is_missing_from_version_3(rows):
    assert {row.key[2] for row in rows if not row.in_version_3} == {"HASS"}


def test_a_row_that_the_paper_lacks_is_refused(rows):
    with pytest.raises(ValueError, match="no row for temperature 1, V 13B, Medusa"):
        row_of(rows, 1, "V 13B", "Medusa")


def test_22_of_26_printed_means_are_means(rows):
    """Off: by more than rounding 4.12 for 4.16 and 3.45 for 3.48; two by 0.01."""
    wrong = {}
    for row in rows:
        pairs = zip(row.mean, row.printed_mean, strict=True)
        if any(abs(mean - printed) > 0.005 + 1e-9 for mean, printed in pairs):
            wrong[row.key] = row.mean[0], row.printed_mean[0]
    assert wrong == {
        (0, "L33 70B", "EAGLE-3"): (pytest.approx(4.162), 4.12),
        (1, "L31 8B", "EAGLE-2"): (pytest.approx(2.792), 2.80),
        (1, "L31 8B", "HASS"): (pytest.approx(2.878), 2.89),
        (1, "L31 8B", "EAGLE-3"): (pytest.approx(3.482), 3.45),
    }


def test_one_cell_is_faster_than_its_tau(rows):
    (odd,) = [cell for cell in paper.cells(rows) if cell.ratio > 1]
    assert (odd.temperature, odd.model, odd.method) == (0, "DSL 8B", "EAGLE-2")
    assert (odd.task, odd.speedup, odd.tau) == ("CNN/DM", 3.53, 3.33)


def test_a_misprint_in_that_cell_would_have_to_be_in_the_mean_as_well(rows):
    row = row_of(rows, 0, "DSL 8B", "EAGLE-2")
    assert row.mean == (pytest.approx(3.256), pytest.approx(3.924))
    assert row.printed_mean == (3.26, 3.92)
    others = [c.speedup for c in row.cells if c.task != "CNN/DM"]
    assert fmean([*others, 2.53]) == pytest.approx(3.056)


def test_the_fastest_method_is_eagle3_but_for_that_cell_and_its_tau_always(rows):
    slower, shorter = [], []
    for temperature, model in EAGLE3_ROWS:
        ours = row_of(rows, temperature, model, "EAGLE-3").cells
        for row in rows:
            if row.key[:2] != (temperature, model) or row.key[2] == "EAGLE-3":
                continue
            for mine, other in zip(ours, row.cells, strict=True):
                if mine.speedup <= other.speedup:
                    slower.append((temperature, model, row.key[2], mine.task))
                if mine.tau <= other.tau:
                    shorter.append(row.key)
    assert slower == [(0, "DSL 8B", "EAGLE-2", "CNN/DM")]
    assert not shorter


def test_speedup_over_tau_of_the_printed_means(rows):
    want = {
        "EAGLE-3": (0.8323, 0.7127, 0.7007, 0.7123),
        "EAGLE-2": (0.8737, 0.7859, 0.7540, 0.8316),
    }
    for method, values in want.items():
        for model, value in zip(MODELS, values, strict=True):
            speedup, tau = row_of(rows, 0, model, method).printed_mean
            assert speedup / tau == pytest.approx(value, abs=5e-5)


def test_means_over_eagle2s(rows):
    found = {}
    for temperature, model in EAGLE3_ROWS:
        new = row_of(rows, temperature, model, "EAGLE-3").printed_mean[0]
        old = row_of(rows, temperature, model, "EAGLE-2").printed_mean[0]
        found[temperature, model] = round(new / old, 3)
    assert found == {
        (0, "V 13B"): 1.306,
        (0, "L31 8B"): 1.375,
        (0, "L33 70B"): 1.446,
        (0, "DSL 8B"): 1.276,
        (1, "V 13B"): 1.237,
        (1, "L31 8B"): 1.232,
        (1, "L33 70B"): 1.491,
        (1, "DSL 8B"): 1.271,
    }
    for temperature in (0, 1):
        at = {m: v for (t, m), v in found.items() if t == temperature}
        assert max(at, key=at.get) == "L33 70B"


def test_gains_over_eagle2_by_cell(rows):
    """The text says 20% to 40%; 15 of 40 cells lie outside, 16 before rounding."""
    by_cell = gains(rows, "EAGLE-3", "EAGLE-2")
    assert len(by_cell) == 40
    worst = min(by_cell, key=by_cell.get)
    best = max(by_cell, key=by_cell.get)
    assert worst == (0, "DSL 8B", "CNN/DM")
    assert by_cell[worst] == pytest.approx(0.997, abs=5e-4)
    assert best == (1, "L33 70B", "GSM8K")
    assert by_cell[best] == pytest.approx(1.655, abs=5e-4)
    said = read_paper("claims")["claims"]["over_eagle2"]
    outside = [g for g in by_cell.values() if not said["from"] <= g <= said["to"]]
    assert len(outside) == 16
    at_the_edge = [g for g in outside if round(g, 2) in (said["from"], said["to"])]
    assert at_the_edge == [pytest.approx(1.197, abs=5e-4)]


def test_one_point_four_times_on_mt_bench_in_the_mean(rows):
    by_cell = gains(rows, "EAGLE-3", "EAGLE-2")
    chat = [by_cell[0, model, "MT-bench"] for model in MODELS]
    assert [round(g, 3) for g in chat] == [1.31, 1.392, 1.452, 1.387]
    said = read_paper("claims")["claims"]["over_eagle2_intro"]["value"]
    assert fmean(chat) == pytest.approx(1.385, abs=5e-4)
    assert abs(fmean(chat) - said) < 0.05


def test_the_range_of_speedups_and_the_largest_tau(rows):
    claims = read_paper("claims")["claims"]
    ours = [cell for cell in paper.cells(rows) if cell.method == "EAGLE-3"]
    speedups = [cell.speedup for cell in ours]
    assert (min(speedups), max(speedups)) == (2.99, 6.47)
    assert (claims["range"]["from"], claims["range"]["to"]) == (3.0, 6.5)
    largest = max(cell.tau for cell in ours)
    assert largest == 7.54 and claims["largest_tau"]["value"] == 7.5


def test_best_and_weakest_tasks(rows):
    for temperature, model in EAGLE3_ROWS:
        by_speed = sorted(
            row_of(rows, temperature, model, "EAGLE-3").cells, key=lambda c: c.speedup
        )
        assert by_speed[0].task == "CNN/DM"
        if model != "DSL 8B":
            assert by_speed[-1].task == "HumanEval"
    best = max(row_of(rows, 0, "DSL 8B", "EAGLE-3").cells, key=lambda c: c.speedup)
    assert (best.task, best.speedup) == ("GSM8K", 5.01)


def test_eagles_row_is_the_older_papers(rows):
    for temperature, tasks in read_paper("eagle1")["table1_V_13B"].items():
        row = row_of(rows, int(temperature), "V 13B", "EAGLE")
        found = {c.task: [c.speedup, c.tau] for c in row.cells}
        assert {task: found[task] for task in tasks} == tasks


# ------------------------------------------------------------------- the other tables


def test_table_2_meets_table_1_at_both_ends(rows):
    table = read_paper("table2")
    for method, row in (("EAGLE-2", table["rows"][0]), ("EAGLE-3", table["rows"][-1])):
        whole = {c.task: c for c in row_of(rows, 0, "L31 8B", method).cells}
        for task, speedup, tau in zip(
            table["tasks"], row["speedup"], row["tau"], strict=True
        ):
            assert (whole[task].speedup, whole[task].tau) == (speedup, tau)


def test_table_2s_deltas():
    steps = []
    for old, new in pairwise(read_paper("table2")["rows"]):
        for i in (0, 1):  # MT-bench, GSM8K
            gain = new["speedup"][i] / old["speedup"][i] - 1
            steps.append((round(gain, 3), round(new["tau"][i] - old["tau"][i], 2)))
    assert steps == [(0.209, 1.32), (0.112, 0.98), (0.152, 0.76), (0.188, 1.01)]


def test_no_pair_of_table_2_differs_in_training_time_test_alone():
    """The row without feature constraint has training-time test as well."""
    parts = ("feature_loss", "training_time_test", "fused")
    rows = [{p for p in parts if row[p]} for row in read_paper("table2")["rows"]]
    assert rows == [
        {"feature_loss"},
        {"training_time_test"},
        {"training_time_test", "fused"},
    ]
    changes = [old ^ new for old, new in pairwise(rows)]
    assert {"training_time_test"} not in changes


def test_table_3_where_eagle_stops_to_gain():
    table = read_paper("table3")
    batches, ratios = table["batches"], table["throughput"]
    pairs = zip(batches, ratios["EAGLE"], strict=True)
    assert next(b for b, r in pairs if r < 1) == 24
    assert break_even(batches, ratios["EAGLE"]) == pytest.approx(16 + 8 * 2 / 9)
    assert break_even(batches, ratios["EAGLE-3"]) is None
    assert min(ratios["EAGLE-3"]) == 1.32
    claims = read_paper("claims")["claims"]
    assert ratios["EAGLE-3"][-1] == claims["batch_64"]["value"] == 1.38
    assert claims["batch_64_intro"]["value"] == 1.40  # version 3 rounds it up


def test_table_3_does_not_fall_all_the_way_and_table_5_does():
    falls = {
        (name, method): all(a >= b for a, b in pairwise(ratios))
        for name in ("table3", "table5")
        for method, ratios in read_paper(name)["throughput"].items()
    }
    assert falls == {
        ("table3", "EAGLE"): False,
        ("table3", "EAGLE-3"): False,
        ("table5", "EAGLE"): True,
        ("table5", "EAGLE-3"): True,
    }


def test_table_4_in_milliseconds_and_ratios():
    rates = read_paper("table4")["tokens_per_second"]
    times = {name: round(1000 / rate, 2) for name, rate in rates.items()}
    assert times == {"no speculation": 6.32, "EAGLE-2": 4.10, "EAGLE-3": 2.68}
    plain = rates["no speculation"]
    assert round(rates["EAGLE-2"] / plain, 2) == 1.54
    assert round(rates["EAGLE-3"] / plain, 2) == 2.36


def test_table_5s_last_gains_are_what_the_text_calls_maximum():
    table, said = read_paper("table5"), read_paper("claims")["claims"]["vllm_maximum"]
    for method, ratios in table["throughput"].items():
        assert last_gain(table["batches"], ratios) == said[method]
        assert table["batches"][ratios.index(max(ratios))] == 2  # the true maximum
    assert break_even(table["batches"], table["throughput"]["EAGLE"]) == pytest.approx(
        24 + 8 * 3 / 10
    )


def test_table_5s_hardware_is_told_in_three_places():
    hardware = read_paper("table5")["setting"]["hardware"]
    assert set(hardware.values()) == {"RTX 3090", "A100"}
    assert hardware["NeurIPS, text and caption"] == "RTX 3090"


# ------------------------------------------------------------------------ the figures


def test_figure_1s_exact_points_are_cells_of_table_1(rows):
    figure = read_paper("figure1")
    for method, scale in figure["exact"].items():
        at = figure["data_scale"].index(scale)
        (cell,) = [
            c for c in row_of(rows, 0, "L31 8B", method).cells if c.task == "MT-bench"
        ]
        assert figure["speedup"][method][at] == cell.speedup
        assert figure["tau"][method][at] == cell.tau
    sequences = read_paper("settings")["training"]["sequences"].values()
    assert sum(sequences) / min(sequences) == pytest.approx(7.82, abs=5e-3)
    assert figure["data_scale"][-1] == 8


def test_figure_2s_labels_are_table_1_rounded_but_for_one(rows):
    figure, odd = read_paper("figure2"), {}
    for model, bars in figure["speedup"].items():
        for method, label in bars.items():
            if method == "Vanilla":
                assert label == 1.0
                continue
            row = row_of(rows, 0, model, method)
            (cell,) = [c for c in row.cells if c.task == figure["tasks"][model]]
            if abs(cell.speedup - label) > 0.05 + 1e-9:
                odd[model, method] = label, cell.speedup
    assert odd == {("V 13B", "EAGLE-2"): (4.1, 4.26)}


def test_figure_7_holds_ranges_and_leaves_out_what_nobody_read():
    figure = read_paper("figure7")["n_alpha"]
    assert [point["n"] for point in figure["EAGLE"]] == [
        [0, 0],
        [1, 1],
        [3, 3],
        [6, 6],
        [7, 7],
    ]
    assert figure["EAGLE-3"] == [{"n": [0, 7], "range": [0.78, 0.81], "readings": 2}]
    for points in figure.values():
        assert all(p["range"][0] <= p["range"][1] for p in points)


def test_tau_counts_the_targets_own_token():
    """A chain of five with EAGLE-1's n-alpha: 2.33 drafts, and 3.33 with the token."""
    data = read_paper("eagle1")
    tau = expected_tokens(data["n_alpha"]["V 13B T=0"])
    assert tau == pytest.approx(3.33, abs=5e-3)
    printed = data["tau_V_13B"]["chain"]
    assert abs(tau - printed) < abs(tau - 1 - printed)


def test_spec_bench_has_a_lower_speedup_at_a_similar_tau(rows):
    third = read_paper("spec_bench")["rows"]
    for method, (speedup, tau) in third.items():
        own_speedup, own_tau = row_of(rows, 0, "V 13B", method).printed_mean
        assert speedup < own_speedup
        assert 0.85 < tau / own_tau < 1.01

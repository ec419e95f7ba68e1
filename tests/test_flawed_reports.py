"""eagle3.bench.flawed_reports: each report is flawed, and the evidence is right.

Claimed and honest numbers are computed again here from the measured file and from runs
of the toy, by the definitions of the metrics.
"""

import copy

import numpy as np
import pytest
from helpers import PROMPT, toy, trained_draft, vanilla

from eagle3 import figures
from eagle3.bench import flawed_reports
from eagle3.bench.environment import read_results
from eagle3.engine import generate


@pytest.fixture(scope="module")
def measured():
    return read_results("methods", figures.RESULTS)


@pytest.fixture(scope="module")
def ending():
    """The toy target, with an end token in the middle of its answer."""
    target = copy.copy(toy())
    target.eos_token_ids = (vanilla(toy(), PROMPT, 96)[-1],)
    answer = generate(target, None, list(PROMPT), max_new_tokens=96)
    assert answer.finish_reason == "eos" and len(answer.token_ids) > 4
    return target


@pytest.fixture(scope="module")
def reports(measured, ending):
    return flawed_reports.collect(measured, ending, trained_draft(), PROMPT)


def runs_of(measured, temperature, method):
    rows = [r for r in measured["runs"] if r["temperature"] == temperature]
    return [r for r in rows if r["method"] == method and r["round"] == 0]


def test_report_1_gives_the_draft_the_faster_half(measured, reports):
    plain, draft = (
        np.mean([r["seconds"] / r["num_tokens"] for r in runs_of(measured, 0, name)])
        for name in ("vanilla", "eagle3-chain")
    )
    report = reports[1]
    assert report.honest == pytest.approx(plain / draft)
    # The drift runs evenly from 1.6 to 1, so its halves have the means 1.45 and 1.15.
    assert report.claimed / report.honest == pytest.approx(1.45 / 1.15, rel=0.03)
    lines = [line.split() for line in report.text.splitlines()[2:4]]
    for line in lines:
        times = [float(word) for word in line if word.replace(".", "").isdigit()]
        times = [time for time in times if time > 4]  # not the 3 of the name
        assert len(times) == 10 and times == sorted(times, reverse=True)


def test_report_2_misses_the_targets_own_token(measured, reports):
    report, row = reports[2], measured["temperatures"]["0"]["EAGLE-3 chain 3"]
    assert report.honest - report.claimed == pytest.approx(1)
    assert report.honest == pytest.approx(row["acceptance_length"], abs=0.1)
    assert f"{row['acceptance_length']:.2f}" in report.text


def test_report_3_is_flattered_by_short_answers(measured, reports):
    report = reports[3]
    plain = runs_of(measured, 1, "vanilla")
    said = sum(r["num_tokens"] for r in plain)
    assert report.claimed > report.honest
    tokens = round(said * report.honest / report.claimed)
    assert str(tokens) in report.text and str(said) in report.text
    spent = sum(r["seconds"] for r in plain)
    assert f"{spent:.1f}" in report.text


def test_report_4_takes_tokens_for_measurements(measured, reports):
    report = reports[4]
    plain, draft = (
        np.array([r["seconds"] / r["num_tokens"] for r in runs_of(measured, 0, name)])
        for name in ("vanilla", "eagle3-chain")
    )
    error = np.std(plain / draft, ddof=1) / len(plain) ** 0.5
    assert report.honest == pytest.approx(1.96 * error, rel=0.4)
    assert report.honest > 4 * report.claimed


def test_report_5_reads_on_past_the_end(ending, reports):
    stopped = generate(ending, trained_draft(), list(PROMPT), max_new_tokens=96)
    whole = generate(
        ending, trained_draft(), list(PROMPT), max_new_tokens=96, eos_token_ids=()
    )
    assert reports[5].honest == stopped.acceptance_length
    assert reports[5].claimed == whole.acceptance_length
    assert str(len(stopped.token_ids)) in reports[5].evidence


def test_an_answer_without_end_makes_no_report(measured):
    with pytest.raises(ValueError, match="does not end within 96"):
        flawed_reports.collect(measured, toy(), trained_draft(), PROMPT)


def test_verdicts_and_names(reports):
    assert tuple(sorted(reports)) == flawed_reports.NUMBERS
    found = []
    for number in reports:
        right = [f for f in flawed_reports.FLAWS if flawed_reports.is_right(number, f)]
        found += right
        assert len(right) == 1
    assert len(set(found)) == 5
    with pytest.raises(ValueError, match="none of the flaws"):
        flawed_reports.is_right(1, "bad luck")
    with pytest.raises(ValueError, match="none is 6"):
        flawed_reports.is_right(6, "order")

"""A project's evidence: whole rows get all points, and each flaw loses its own.

The right claim is computed here from rows whose speedup and length are known: a
baseline with 2 tokens a pass, and a method with 3 that takes 4/5 of the time.
"""

import copy
import json

import pytest

from eagle3.grading.project import judge_evidence, measured, read_evidence


def row(method, question, number):
    passes = {"vanilla": 60, "eagle3-chain": 30, "mine": 20}[method]
    base = {"vanilla": 2.0, "eagle3-chain": 1.0, "mine": 0.8}[method]
    return {
        "kind": "chat" if question < 5 else "code",
        "question": str(question),
        "round": number,
        "temperature": 0.0,
        "method": method,
        "num_tokens": 61,
        "seconds": base * (1 + 0.1 * question + 0.01 * number),
        "target_passes": passes,
        "acceptance_length": 60 / passes,
        "same_tokens": True,
    }


ROWS = [
    row(method, question, number)
    for number in range(3)
    for question in range(10)
    for method in ("vanilla", "eagle3-chain", "mine")
]
CLAIM = {"method": "mine", "baseline": "eagle3-chain", "of": "speedup", "value": 1.25}


def hand_in(folder, rows=ROWS, claim=CLAIM):
    text = json.dumps({"runs": rows})
    (folder / "evidence.json").write_text(text, encoding="utf-8")
    (folder / "claim.json").write_text(json.dumps(claim), encoding="utf-8")
    return read_evidence(folder)


def lost(evidence):
    return {mark.idea: mark.words for mark in judge_evidence(evidence) if mark.words}


def test_whole_rows_and_a_right_claim_get_60(tmp_path):
    marks = judge_evidence(hand_in(tmp_path))
    assert [m.words for m in marks] == [""] * 5
    assert sum(m.points for m in marks) == 60


def test_the_length_is_tokens_behind_the_prompt_for_a_pass(tmp_path):
    claim = {**CLAIM, "of": "acceptance_length", "value": 3.0}
    assert measured(hand_in(tmp_path, claim=claim)) == pytest.approx(3.0)


def change(index, **values):
    rows = copy.deepcopy(ROWS)
    rows[index].update(values)
    return rows


LATER = [{**r, "temperature": 1.0} for r in ROWS]
FLAWS = {
    "a row is missing": (ROWS[:-1], {"complete": "lacks question 9"}),
    "no vanilla": (
        [r for r in ROWS if r["method"] != "vanilla"],
        {"complete": "no row of 'vanilla'"},
    ),
    "another token": (change(2, same_tokens=False), {"same": "question 0"}),
    "nobody looked": (change(2, same_tokens=None), {"same": "question 0"}),
    "two rounds": (
        [r for r in ROWS if r["round"] < 2],
        {"enough": "10 questions in 2 rounds"},
    ),
    "no time": (change(2, seconds=0.0), {"possible": "not above 0"}),
    "more tokens than passes": (
        change(2, target_passes=99),
        {"possible": "61 tokens in 99 passes"},
    ),
    "fewer tokens": (
        change(2, num_tokens=40),
        {"possible": "another number of tokens"},
    ),
    "a better length": (
        change(2, acceptance_length=3.5),
        {"possible": "doesn't fit its passes"},
    ),
    "copied times": (
        [{**r, "seconds": 1.0} if r["method"] == "mine" else r for r in ROWS],
        {"possible": "are the same"},
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_loses_its_points(tmp_path, flaw):
    rows, wanted = FLAWS[flaw]
    found = lost(hand_in(tmp_path, rows))
    found.pop("claim", None)  # other rows may give another number
    assert set(found) == set(wanted)
    assert all(words in found[idea] for idea, words in wanted.items())


def test_a_claim_beyond_the_rows_loses_its_points(tmp_path):
    found = lost(hand_in(tmp_path, claim={**CLAIM, "value": 1.3}))
    assert found == {"claim": "the rows give 1.250, and not 1.300"}


@pytest.mark.parametrize(
    ("rows", "claim", "words"),
    [
        ([{"method": "mine"}], CLAIM, "not what the project asks for"),
        (ROWS, {"value": 1}, "not what the project asks for"),
        (ROWS, {**CLAIM, "of": "beauty"}, "take two methods"),
        (ROWS, {**CLAIM, "baseline": "mine"}, "take two methods"),
        (change(0, seconds=float("inf")), CLAIM, "not finite"),
        (change(0, num_tokens=10**400), CLAIM, "not what the project asks for"),
        (change(0, round="3.0"), CLAIM, "'round' is no number"),
    ],
)
def test_what_is_no_evidence_is_refused(tmp_path, rows, claim, words):
    with pytest.raises(ValueError, match=words):
        hand_in(tmp_path, rows, claim)


def test_a_name_cannot_write_to_the_teachers_terminal(tmp_path):
    rows = [{**r, "method": "\x1b[2J"} if r["method"] == "mine" else r for r in ROWS]
    evidence = hand_in(tmp_path, rows[:-1], {**CLAIM, "method": "\x1b[2J"})
    assert lost(evidence)["complete"].startswith("'?[2J' lacks question")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"'evidence\.json' is missing"):
        read_evidence(tmp_path)

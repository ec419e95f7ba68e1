"""The project's evidence: rows of a bench, a claim, and whether one gives the other.

The rows come from the student's machine and are data. They are checked for what they
say, against each other; only running the bench again can tell more. [Ours]
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from eagle3.grading.judge import Mark
from eagle3.grading.notebook import readable

Rows = list[dict[str, Any]]
KINDS = ("speedup", "acceptance_length")
MAX_BYTES = 32 << 20
MOST_PER_PASS = 64  # tokens that a block of any method here could give


@dataclass(frozen=True)
class Evidence:
    """A folder that was handed in.

    rows: of the bench, at temperature 0      claim: method, baseline, of, value
    """

    rows: Rows
    claim: dict[str, Any]

    def of(self, method: str) -> dict[tuple[str, str, int], dict[str, Any]]:
        """A method's rows by kind, question and round."""
        return {
            (str(r["kind"]), str(r["question"]), int(r["round"])): r
            for r in self.rows
            if r["method"] == method
        }


def read_evidence(folder: Path) -> Evidence:
    """The rows and the claim of a folder.

    Raises ValueError for a file that is missing, too large or of another form.
    """
    data, claim = (_read(folder / n) for n in ("evidence.json", "claim.json"))
    try:
        rows = [_row(row) for row in data["runs"] if float(row["temperature"]) == 0]
        claim = {"value": _number(claim, "value")} | {
            key: readable(str(claim[key])) for key in ("method", "baseline", "of")
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"'{folder.name}' is not what the project asks for ({error}): hand in the "
            "results file of the bench and a claim with method, baseline, of, value."
        ) from None
    if claim["of"] not in KINDS or claim["method"] == claim["baseline"]:
        raise ValueError(
            f"the claim compares '{claim['method']}' with '{claim['baseline']}' in "
            f"'{claim['of']}': take two methods, and one of {', '.join(KINDS)}."
        )
    return Evidence(rows, claim)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """What is looked at of a row, each as what it must be."""
    counts = {k: int(_number(row, k)) for k in ("num_tokens", "target_passes", "round")}
    numbers = {k: _number(row, k) for k in ("seconds", "acceptance_length")}
    names = {k: readable(str(row[k])) for k in ("kind", "question", "method")}
    return {**counts, **numbers, **names, "same_tokens": row.get("same_tokens")}


def _number(row: dict[str, Any], key: str) -> float:
    value = row[key]
    if type(value) not in (int, float):
        raise ValueError(f"'{key}' is no number")
    if not math.isfinite(value):
        raise ValueError(f"'{key}' is not finite")
    return float(value)


def _read(path: Path) -> Any:
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise ValueError(f"'{path.name}' is missing, or far too large.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"'{path.name}' is no JSON; hand it in unchanged.") from None


def judge_evidence(evidence: Evidence) -> list[Mark]:
    """Five marks, 60 points in all."""
    checks: Sequence[tuple[str, int, str, Callable[[Evidence], str]]] = (
        ("complete", 10, "all methods answered every question in every round", _gaps),
        ("same", 15, "the tokens are the target's own", _other_tokens),
        ("enough", 10, "ten questions and three rounds", _too_few),
        ("possible", 10, "numbers that can be", _impossible),
        ("claim", 15, "the claim follows from the rows", _off),
    )
    marks = []
    for name, points, says, check in checks:
        words = check(evidence)
        marks.append(
            Mark("evidence", name, says, 0 if words else points, points, words)
        )
    return marks


def _methods(evidence: Evidence) -> tuple[str, str, str]:
    return evidence.claim["method"], evidence.claim["baseline"], "vanilla"


def _gaps(evidence: Evidence) -> str:
    asked = [set(evidence.of(method)) for method in _methods(evidence)]
    for method, found in zip(_methods(evidence), asked, strict=True):
        if not found:
            return f"there is no row of '{method}' at temperature 0"
        if missing := set.union(*asked) - found:
            kind, question, number = min(missing)
            return f"'{method}' lacks question {question} ({kind}) in round {number}"
    keys = {key[:2] for key in asked[0]}
    rounds = {key[2] for key in asked[0]}
    if len(keys) * len(rounds) != len(asked[0]):
        return "some questions were not asked in every round"
    return ""


def _other_tokens(evidence: Evidence) -> str:
    rows = evidence.of(evidence.claim["method"])
    if not rows:
        return "there is no row to look at"
    for (kind, question, number), row in rows.items():
        if row.get("same_tokens") is not True:
            return (
                f"question {question} ({kind}), round {number}: these are not the "
                "tokens that the target writes alone"
            )
    return ""


def _too_few(evidence: Evidence) -> str:
    rows = evidence.of(evidence.claim["method"])
    questions, rounds = {key[:2] for key in rows}, {key[2] for key in rows}
    if len(questions) < 10 or len(rounds) < 3:
        return f"{len(questions)} questions in {len(rounds)} rounds; ask 10 in 3"
    return ""


def _impossible(evidence: Evidence) -> str:
    method, baseline, _ = _methods(evidence)
    plain = evidence.of("vanilla")
    for name in (method, baseline):
        times = [float(row["seconds"]) for row in evidence.of(name).values()]
        if not times or min(times) <= 0:
            return f"'{name}' has times that are not above 0"
        if len(set(times)) < len(times) / 2:
            return f"half of the times of '{name}' are the same"
        for key, row in evidence.of(name).items():
            tokens, passes = int(row["num_tokens"]), int(row["target_passes"])
            where = f"'{name}', question {key[1]} ({key[0]}), round {key[2]}"
            if key in plain and tokens != int(plain[key]["num_tokens"]):
                return f"{where}: another number of tokens than vanilla gave"
            if not 1 <= passes <= max(tokens, 1) <= passes * MOST_PER_PASS:
                return f"{where}: {tokens} tokens in {passes} passes can't be"
            # The prompt's pass gives one token in each turn of the conversation.
            if not 0.5 < tokens - _after_prompt(row) < 8.5:
                return f"{where}: its acceptance length doesn't fit its passes"
    return ""


def _off(evidence: Evidence) -> str:
    try:
        right = measured(evidence)
    except (ZeroDivisionError, ValueError):
        return "the rows don't suffice for the claim"
    value = evidence.claim["value"]
    if not abs(value - right) <= 0.01 * right:
        return f"the rows give {right:.3f}, and not {value:.3f}"
    return ""


def measured(evidence: Evidence) -> float:
    """What the rows say about the claim.

    Raises ValueError where a method has no rows.
    """
    method, baseline, _ = _methods(evidence)
    mine, base = evidence.of(method), evidence.of(baseline)
    if not mine or not base:
        raise ValueError("a method of the claim has no rows.")
    if evidence.claim["of"] == "acceptance_length":
        passes = [int(row["target_passes"]) for row in mine.values()]
        return sum(map(_after_prompt, mine.values())) / sum(passes)
    pairs = _by_question(mine), _by_question(base)
    shared = sorted(set(pairs[0]) & set(pairs[1]))
    return fmean(pairs[1][key] / pairs[0][key] for key in shared)


def _after_prompt(row: dict[str, Any]) -> float:
    """Tokens that came out of passes behind the prompt's."""
    return float(row["acceptance_length"]) * int(row["target_passes"])


def _by_question(
    rows: dict[tuple[str, str, int], dict[str, Any]],
) -> dict[tuple[str, str], float]:
    """Seconds per token of each question, the median over the rounds, as the bench."""
    found: dict[tuple[str, str], list[float]] = {}
    for key, row in rows.items():
        each = float(row["seconds"]) / int(row["num_tokens"])
        found.setdefault(key[:2], []).append(each)
    return {key: median(values) for key, values in found.items()}

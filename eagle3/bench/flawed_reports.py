"""Five benchmark reports with one flaw each, made from real measurements.

`collect` writes them from the results of `python -m eagle3 bench` and one short run, so
that they stay true to whatever was measured last. Each gives away its flaw to those who
do the sums. `evidence` does them. Readers of chapter 12: the answers stand below.
[Ours]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats

from eagle3.drafters import EagleDrafter
from eagle3.engine import GenerationResult, Request, check_request, run
from eagle3.growth import chain
from eagle3.target import Target

FLAWS = {
    "unequal answers": "compares the time of answers that differ in length",
    "two definitions": "compares two acceptance lengths that count different tokens",
    "past the end": "counts tokens that come after the end of the answer",
    "order": "the methods ran one after the other while the machine changed",
    "wrong unit": "the interval takes tokens for independent measurements",
    "slow baseline": "the baseline is another program than the method without draft",
    "one kind": "all questions are of the kind that suits the method",
    "warm-up": "a first run, with loading and compiling, counts for one side",
    "best of many": "the setting was chosen on the questions that are reported",
}
_ANSWERS = {
    1: "order",
    2: "two definitions",
    3: "unequal answers",
    4: "wrong unit",
    5: "past the end",
}
NUMBERS = tuple(_ANSWERS)


@dataclass(frozen=True)
class Report:
    """A benchmark report and the sums that show what is wrong with it.

    number: from 1        text: what its authors print        evidence: the sums
    claimed, honest: the number that it reports, and the one that the data give

    [Ours]
    """

    number: int
    text: str
    evidence: str
    claimed: float
    honest: float


def is_right(number: int, flaw: str) -> bool:
    """Whether this is the report's flaw.

    Raises ValueError for an unknown report or flaw. [Ours]
    """
    if number not in _ANSWERS:
        raise ValueError(f"there are reports {NUMBERS}, and none is {number!r}.")
    if flaw not in FLAWS:
        raise ValueError(f"{flaw!r} is none of the flaws: {', '.join(FLAWS)}.")
    return _ANSWERS[number] == flaw


def collect(
    measured: Mapping[str, Any], target: Target, draft: Any, prompt_ids: Sequence[int]
) -> dict[int, Report]:
    """Write the five reports.

    measured: the results of a bench, as `methods.json` holds them
    prompt_ids: a prompt whose answer ends early

    Runs the target over `_RUN_ON` tokens. Raises ValueError where the answer does not
    end within them. [Ours]
    """
    made = (
        _order(measured),
        _two_definitions(measured),
        _unequal_answers(measured),
        _wrong_unit(measured),
        _past_the_end(target, draft, prompt_ids),
    )
    return {report.number: report for report in made}


_SAME = "The baseline is the same engine without a draft; one warm-up answer each."
_CHAIN = "EAGLE-3 chain 3"


def _runs(
    measured: Mapping[str, Any], temperature: float, method: str
) -> list[dict[str, Any]]:
    return [
        run
        for run in measured["runs"]
        if run["temperature"] == temperature
        and run["method"] == method
        and run["round"] == 0
    ]


def _per_token(runs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([run["seconds"] / run["num_tokens"] for run in runs])


# --------------------------------------------------- report 1: the order


def _order(measured: Mapping[str, Any]) -> Report:
    """Real costs of both methods, on a machine that gets faster while they run."""
    plain = _per_token(_runs(measured, 0, "vanilla"))
    draft = _per_token(_runs(measured, 0, "eagle3-chain"))
    count, cost = len(plain), (float(plain.mean()), float(draft.mean()))
    slow = np.linspace(1.6, 1.0, 2 * count)  # another program fades out
    logs = 1e3 * cost[0] * slow[:count], 1e3 * cost[1] * slow[count:]
    claimed = float(logs[0].mean() / logs[1].mean())
    honest = cost[0] / cost[1]
    lines = "\n".join(
        f"  {name:<8}" + " ".join(f"{value:5.1f}" for value in log)
        for name, log in zip(("plain", "chain 3"), logs, strict=True)
    )
    text = (
        f"Report 1. Temperature 0, {count} questions of five kinds, same answers. "
        f"{_SAME}\nWe answered all questions plainly and then all of them with the "
        f"draft. Milliseconds per token, in order:\n{lines}\n"
        f"Speedup: {claimed:.2f}."
    )
    evidence = (
        "within each line the times only fall, and both methods did the same kind of "
        f"work all along: plain decoding starts at {logs[0][0]:.0f} and ends at "
        f"{logs[0][-1]:.0f} ms. The machine got faster. The draft had its better half. "
        f"Taking turns on this machine would have shown {honest:.2f}, not "
        f"{claimed:.2f}."
    )
    return Report(1, text, evidence, claimed, honest)


# --------------------------------------------------- report 2: two definitions


def _two_definitions(measured: Mapping[str, Any]) -> Report:
    row = measured["temperatures"]["0"][_CHAIN]
    counts = row["acceptance"]
    claimed = counts["accepted"] / counts["drafts"]
    tau = row["acceptance_length"]
    text = (
        "Report 2. We run the same draft with chains of 3 in our engine and in a "
        "server.\nOur engine writes "
        f"{counts['tokens']} tokens in {counts['cycles']} target passes, an acceptance "
        f"length of {tau:.2f}.\nThe server's counters say: num_drafts "
        f"{counts['drafts']}, num_draft_tokens {counts['drafted']}, "
        f"num_accepted_tokens {counts['accepted']}, so {counts['accepted']} / "
        f"{counts['drafts']} = {claimed:.2f}.\nThe server loses "
        f"{1 - claimed / tau:.0%} of the acceptance length; it must have a bug."
    )
    honest = 1 + claimed
    evidence = (
        "the server counts accepted guesses per draft, the engine tokens per pass, "
        f"the target's own included. 1 + {claimed:.2f} = {honest:.2f}: they agree. "
        "What is left of a difference are passes without a draft and answers that end "
        "in mid-block."
    )
    return Report(2, text, evidence, claimed, honest)


# --------------------------------------------------- report 3: unequal answers


def _unequal_answers(measured: Mapping[str, Any]) -> Report:
    """The method that is flattered most, of those that look faster than plain."""
    plain = _runs(measured, 1, "vanilla")
    spent, said = _totals(plain)
    found = []
    for name in sorted({r["method"] for r in measured["runs"]} - {"vanilla"}):
        seconds, tokens = _totals(_runs(measured, 1, name))
        flattery = said / tokens if spent > 1.05 * seconds else 0.0
        found.append((flattery, name, seconds, tokens))
    _, name, seconds, tokens = max(found)
    claimed, honest = spent / seconds, (spent / said) / (seconds / tokens)
    text = (
        "Report 3. Temperature 1, as in practice, five kinds of questions, taking "
        f"turns. {_SAME}\n"
        f"{'method':<22}{'tokens':>8}{'passes':>8}{'seconds':>9}\n"
        f"{'plain':<22}{said:>8}{_passes(plain):>8}{spent:>9.1f}\n"
        f"{name:<22}{tokens:>8}{_passes(_runs(measured, 1, name)):>8}{seconds:>9.1f}\n"
        f"All questions are answered in {seconds:.1f} s instead of {spent:.1f} s. "
        f"Speedup: {claimed:.2f}."
    )
    evidence = (
        "above temperature 0 the answers differ, and the method happened to write "
        f"{tokens} tokens where plain decoding wrote {said}. Per token the speedup is "
        f"{honest:.2f}, not {claimed:.2f}."
    )
    return Report(3, text, evidence, claimed, honest)


def _totals(runs: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    return sum(r["seconds"] for r in runs), sum(r["num_tokens"] for r in runs)


def _passes(runs: Sequence[Mapping[str, Any]]) -> str:
    return str(sum(r["target_passes"] for r in runs) or "-")


# --------------------------------------------------- report 4: the unit


def _wrong_unit(measured: Mapping[str, Any]) -> Report:
    plain, draft = (_runs(measured, 0, name) for name in ("vanilla", "eagle3-chain"))
    ratios = _per_token(plain) / _per_token(draft)
    tokens = sum(run["num_tokens"] for run in draft)
    mean, spread = float(ratios.mean()), float(ratios.std(ddof=1))
    narrow = 1.96 * spread / tokens**0.5
    interval = scipy.stats.bootstrap(
        (ratios,), np.mean, rng=np.random.default_rng(0), n_resamples=2000
    ).confidence_interval
    wide = float(interval.high - interval.low) / 2
    text = (
        "Report 4. Temperature 0, taking turns, same answers. "
        f"{_SAME}\nSpeedups of the {len(ratios)} questions of five kinds: "
        f"{' '.join(f'{ratio:.2f}' for ratio in ratios)}.\n"
        f"Mean {mean:.2f}, standard deviation {spread:.2f}. Over all {tokens} tokens "
        f"this gives a 95% interval of {mean:.2f} ± {narrow:.2f}."
    )
    evidence = (
        f"{spread:.2f} is the spread from question to question, and there are "
        f"{len(ratios)} of them, not {tokens}. Tokens of one answer share its kind and "
        "its luck. Drawing questions anew gives an interval of "
        f"{interval.low:.2f} to {interval.high:.2f}, {wide / narrow:.0f} times as "
        "wide."
    )
    return Report(4, text, evidence, narrow, wide)


# --------------------------------------------------- report 5: past the end

_RUN_ON = 96


def _past_the_end(target: Target, draft: Any, prompt_ids: Sequence[int]) -> Report:
    request = Request(tuple(prompt_ids), _RUN_ON)
    check_request(target, request)
    drafter = EagleDrafter(target, draft, chain(3))
    whole = run(target, drafter, request)
    stopped = run(target, drafter, replace(request, eos_token_ids=target.eos_token_ids))
    if stopped.finish_reason != "eos":
        raise ValueError(
            f"the answer to this prompt does not end within {_RUN_ON} tokens: choose "
            "a prompt with a short answer."
        )
    honest, claimed = stopped.acceptance_length, whole.acceptance_length
    text = (
        "Report 5. Temperature 0, chains of 3, taking turns. "
        f"{_SAME}\nAll answers get {_RUN_ON} tokens (ignore_eos), so that runs can be "
        f"compared. One of them: {len(whole.token_ids)} tokens in "
        f"{whole.target_passes} target passes, acceptance length {claimed:.2f}.\n"
        f"It reads: {_beginning_and_end(target, whole)}"
    )
    evidence = (
        f"the model had finished after {len(stopped.token_ids)} tokens. Up to there "
        f"the acceptance length is {honest:.2f}; the other "
        f"{len(whole.token_ids) - len(stopped.token_ids)} tokens are text that nobody "
        "asked for, which may repeat itself or be easy or hard for other reasons."
    )
    return Report(5, text, evidence, claimed, honest)


def _beginning_and_end(target: Target, result: GenerationResult) -> str:
    if target.tokenizer is None:
        return str(list(result.token_ids))
    text = target.decode(result.token_ids, keep_special=True)
    return f"{text[:70]!r} ... {text[-70:]!r}"

"""Speedup, measured honestly: all methods on the same questions, taking turns.

For every question each method answers in turn, and the whole round is repeated (A B A
B), so that a slow moment of the machine hits all alike. Ratios are taken question by
question against our own vanilla decoding, which runs through the same engine and the
same prepacked layers. Greedy answers are compared token for token. [Ours]
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats
from tqdm import tqdm

from eagle3.bench.metrics import AcceptanceMetrics
from eagle3.bench.peers import PEERS, answer_with_library
from eagle3.bench.questions import Question, answer_turns
from eagle3.engine import GenerationResult, Request, prompt_to_ids, run
from eagle3.methods import METHODS, drafter_for, label_of, require_methods
from eagle3.sampling import SamplingParams
from eagle3.target import Message, Target, library_model

if TYPE_CHECKING:
    from eagle3.bench.run_log import RunLog

VANILLA = "vanilla"


@dataclass(frozen=True)
class SpeedupConfig:
    """What to run.

    methods: names of `eagle3.methods` or of `eagle3.bench.peers`; vanilla is always
        run, since it is what the others are compared with
    temperatures: every method answers at each
    rounds: how often every method answers every question

    Raises ValueError for an unknown method or a number out of range.
    """

    methods: tuple[str, ...] = (*METHODS, *PEERS)
    temperatures: tuple[float, ...] = (0.0,)
    max_new_tokens: int = 128
    rounds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        others = [name for name in self.methods if name != VANILLA]
        object.__setattr__(self, "methods", (VANILLA, *dict.fromkeys(others)))
        require_methods([name for name in self.methods if name not in PEERS])
        if not self.temperatures:
            raise ValueError("no temperature was given: name at least one, as 0.")
        for temperature in self.temperatures:
            SamplingParams(temperature)  # refuses what is out of range
        for name in ("max_new_tokens", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: take at least 1.")


@dataclass(frozen=True)
class Answer:
    """What one method said to one turn of a question.

    result: with its trace, None for the library's own decoding
    """

    text: str
    token_ids: tuple[int, ...]
    seconds: float
    result: GenerationResult | None = None


@dataclass(frozen=True)
class Run:
    """One method's answer to one question, all turns together.

    num_tokens, seconds: of all turns; prefill is included
    target_passes: cycles, without prefill; 0 for the library, which doesn't tell
    draft_share, target_share, other_share: of the time spent in cycles
    same_tokens: equal to vanilla's answer (None above temperature 0)
    acceptance: the counts of its cycles; None for the library
    """

    kind: str
    question: str
    round: int
    temperature: float
    method: str
    num_tokens: int
    seconds: float
    target_passes: int
    acceptance_length: float
    draft_share: float
    target_share: float
    other_share: float
    same_tokens: bool | None
    acceptance: AcceptanceMetrics | None


Decoder = Callable[[Request], Answer]


def decoders(target: Target, names: Sequence[str]) -> dict[str, Decoder]:
    """A decoder for each method, with everything loaded that it needs.

    Raises ValueError for unknown names. [Ours]
    """
    library = library_model() if any(name in PEERS for name in names) else None

    def ours(name: str) -> Decoder:
        drafter = drafter_for(name, target)

        def decode(request: Request) -> Answer:
            result = run(target, drafter, request)
            return Answer(result.text, result.token_ids, result.seconds, result)

        return decode

    def theirs(name: str) -> Decoder:
        settings = PEERS[name].settings(target)

        def decode(request: Request) -> Answer:
            ids, seconds = answer_with_library(library, settings, request)
            return Answer(target.decode(ids), ids, seconds)

        return decode

    return {name: theirs(name) if name in PEERS else ours(name) for name in names}


def measure_speedup(
    target: Target,
    methods: dict[str, Decoder],
    questions: Sequence[Question],
    config: SpeedupConfig,
    log: "RunLog",
) -> list[Run]:
    """Let every method answer every question, taking turns.

    methods: of `decoders`, vanilla first
    log: keeps the runs of each question as soon as it is through; the questions that
        it has already are not asked again

    Returns the runs of all questions. [Ours]
    """
    asking, done = _Asking(target, config), len(log.questions)
    for decode in methods.values():  # the first answer of a model is slow
        asking.ask(decode, questions[0], config.temperatures[0])
    with tqdm(total=len(questions), initial=done, desc="questions") as bar:
        for question in questions[done:]:
            log.add(_runs_on(question, asking, methods))
            bar.update()
    return [run for runs in log.questions for run in runs]


def _runs_on(
    question: Question, asking: "_Asking", methods: dict[str, Decoder]
) -> list[Run]:
    runs = []
    for temperature in asking.config.temperatures:
        for turn in range(asking.config.rounds):
            said: dict[str, list[Answer]] = {}
            for name, decode in methods.items():
                said[name] = asking.ask(decode, question, temperature)
                where = (question, turn, temperature, name)
                runs.append(_run_of(where, said[name], said[VANILLA]))
    return runs


class _Asking:
    """Puts the turns of a question to a method, with its own answers as history."""

    def __init__(self, target: Target, config: SpeedupConfig) -> None:
        self.target, self.config = target, config

    def ask(
        self, decode: Decoder, question: Question, temperature: float
    ) -> list[Answer]:
        def answer(chat: list[Message]) -> Answer:
            return decode(
                Request(
                    prompt_to_ids(self.target, chat),
                    self.config.max_new_tokens,
                    SamplingParams(temperature, seed=self.config.seed),
                    self.target.eos_token_ids,
                )
            )

        return answer_turns(question, answer)


def _run_of(
    where: tuple[Question, int, float, str],
    answers: list[Answer],
    reference: list[Answer],
) -> Run:
    question, turn, temperature, name = where
    cycles = [c for answer in answers if answer.result for c in answer.result.cycles]
    spent = [
        sum(getattr(cycle, f"{part}_seconds") for cycle in cycles)
        for part in ("draft", "target", "other")
    ]
    shares = [part / max(sum(spent), 1e-12) for part in spent]
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    told = [answer.token_ids for answer in answers]
    same = told == [answer.token_ids for answer in reference]
    return Run(
        question.category,
        str(question.id),
        turn,
        temperature,
        name,
        num_tokens,
        sum(answer.seconds for answer in answers),
        len(cycles),
        # Each turn's first token comes from its prefill.
        (num_tokens - len(answers)) / len(cycles) if cycles else 0.0,
        *shares,
        same_tokens=None if temperature > 0 else same,
        acceptance=_acceptance(answers),
    )


def _acceptance(answers: list[Answer]) -> AcceptanceMetrics | None:
    if any(answer.result is None for answer in answers):
        return None
    return AcceptanceMetrics.from_results(answer.result for answer in answers)


def label_in_tables(name: str) -> str:
    """What a method of ours or of the library is called. [Ours]"""
    return PEERS[name].label if name in PEERS else label_of(name)


def summarise(
    runs: Sequence[Run],
    temperature: float,
    seed: int = 0,
    named: Callable[[str], str] = label_in_tables,
) -> dict:
    """Per method: speed relative to vanilla in all and per kind, tau, time shares.

    named: a method's name to its key in the summary

    A ratio is vanilla's median seconds per token over the method's, question by
    question; the summary is their mean with a 95% bootstrap interval (seeded). The
    acceptance length of a kind is its tokens after prefill over its target passes; for
    the library, which doesn't tell its passes, it is 0. [Ours]
    """
    runs = [r for r in runs if r.temperature == temperature]
    summary = {}
    for name in dict.fromkeys(r.method for r in runs):
        mine = [r for r in runs if r.method == name]
        ratios = _ratios(runs, name)
        kinds = dict.fromkeys(r.kind for r in mine)
        per_kind = {
            kind: [ratio for (k, _), ratio in ratios.items() if k == kind]
            for kind in kinds
        }
        counts = [r.acceptance for r in mine if r.round == 0 and r.acceptance]
        label = named(name)
        summary[label] = {
            "method": name,
            "speedup": float(np.mean(list(ratios.values()))),
            "speedup_interval_95": _interval(list(ratios.values()), seed),
            "speedup_by_kind": {k: float(np.mean(v)) for k, v in per_kind.items()},
            "acceptance_length": _tau(mine),
            "acceptance_length_by_kind": {
                kind: _tau([r for r in mine if r.kind == kind]) for kind in kinds
            },
            "tokens_per_second": float(
                np.median([r.num_tokens / r.seconds for r in mine])
            ),
            "draft_share": _mean(mine, "draft_share"),
            "target_share": _mean(mine, "target_share"),
            "other_share": _mean(mine, "other_share"),
            # Above temperature 0 there is nothing to compare.
            "same_tokens": all(r.same_tokens for r in mine)
            if temperature == 0
            else None,
            "differing_questions": sorted(
                {r.question for r in mine if r.same_tokens is False}
            ),
        }
        if counts:
            summary[label]["acceptance"] = _counts(AcceptanceMetrics.pooled(counts))
    return summary


def _counts(metrics: AcceptanceMetrics) -> dict:
    """The counts of the cycles, with n-alpha where chains were drafted."""
    found = asdict(metrics)
    if metrics.reached_at is not None:
        found["n_alpha"] = list(metrics.n_alpha)
    return found


def rows(runs: Sequence[Run]) -> list[dict]:
    """The runs as plain dictionaries, for JSON, without the counts."""
    return [
        {name: value for name, value in asdict(r).items() if name != "acceptance"}
        for r in runs
    ]


def _tau(runs: list[Run]) -> float:
    """Tokens after prefill per target pass, over all runs."""
    passes = sum(r.target_passes for r in runs)
    emitted = sum(r.acceptance_length * r.target_passes for r in runs)
    return emitted / passes if passes else 0.0


def _ratios(runs: list[Run], method: str) -> dict[tuple[str, str], float]:
    """(kind, question) -> how many times faster than vanilla."""
    vanilla, mine = (_seconds_per_token(runs, name) for name in (VANILLA, method))
    return {where: vanilla[where] / mine[where] for where in mine}


def _seconds_per_token(runs: list[Run], method: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], list[float]] = {}
    for r in runs:
        if r.method == method:
            found.setdefault((r.kind, r.question), []).append(r.seconds / r.num_tokens)
    return {where: float(np.median(values)) for where, values in found.items()}


def _mean(runs: list[Run], name: str) -> float:
    return float(np.mean([getattr(r, name) for r in runs]))


def _interval(values: list[float], seed: int) -> list[float]:
    if len(values) < 2 or min(values) == max(values):
        return [float(min(values)), float(max(values))]
    found = scipy.stats.bootstrap(
        (values,), np.mean, rng=np.random.default_rng(seed), n_resamples=2000
    ).confidence_interval
    return [float(found.low), float(found.high)]

"""What acceptance numbers mean, here, in the paper, in vLLM and in SGLang.

Five numbers go by a dozen names, and two of them differ by exactly one. All five come
from a few counts, so `AcceptanceMetrics` keeps the counts, and the other engines'
counters convert to it and back.

A cycle is one target pass after prefill. The answers of a run are pooled: every cycle
has the same weight. Counts are taken where the target decides. So a drafted token that
it kept is counted also where the answer ended before it, as vLLM counts; only `tokens`
knows of the end. [Ours]
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from eagle3.engine import Cycle, GenerationResult


@dataclass(frozen=True)
class AcceptanceMetrics:
    """The counts of a run, and the rates that follow from them. [Ours]

    cycles: target passes after prefill          drafts: those that had a draft
    tokens: emitted in cycles
    drafted, accepted: drafted tokens in all, and those that the target kept
    accepted_at: for each position, the cycles in which the token there was kept; the
        position in a tree is the depth
    reached_at: for each position of a chain, the cycles in which a token was drafted
        there and all before it were kept; None where that is not known
    """

    cycles: int
    tokens: int
    drafts: int
    drafted: int
    accepted: int
    accepted_at: tuple[int, ...]
    reached_at: tuple[int, ...] | None

    @classmethod
    def from_results(cls, results: Iterable[GenerationResult]) -> "AcceptanceMetrics":
        """Pool the cycles of several answers."""
        cycles = [cycle for result in results for cycle in result.cycles]
        depth = max((len(cycle.drafted) for cycle in cycles), default=0)
        chains = all(map(_is_chain, cycles))
        if not chains:
            depth = max(cycle.num_accepted for cycle in cycles)
        kept = [sum(c.num_accepted > i for c in cycles) for i in range(depth)]
        reached = [
            sum(min(c.num_accepted + 1, len(c.drafted)) > i for c in cycles)
            for i in range(depth)
        ]
        return cls(
            cycles=len(cycles),
            tokens=sum(len(cycle.emitted) for cycle in cycles),
            drafts=sum(bool(cycle.drafted) for cycle in cycles),
            drafted=sum(len(cycle.drafted) for cycle in cycles),
            accepted=sum(cycle.num_accepted for cycle in cycles),
            accepted_at=tuple(kept),
            reached_at=tuple(reached) if chains else None,
        )

    @classmethod
    def pooled(cls, parts: "Iterable[AcceptanceMetrics]") -> "AcceptanceMetrics":
        """The counts of several runs together."""
        parts = list(parts)
        reached = [part.reached_at for part in parts]
        chains = all(counts is not None for counts in reached)
        return cls(
            *(
                sum(getattr(part, name) for part in parts)
                for name in ("cycles", "tokens", "drafts", "drafted", "accepted")
            ),
            accepted_at=_summed([part.accepted_at for part in parts]),
            reached_at=_summed(reached) if chains else None,
        )

    @property
    def acceptance_length(self) -> float:
        """tau: tokens emitted per cycle, the target's own included. [Paper, 4.1]

        acceptance_length * cycles == tokens, always. 0.0 without cycles.
        """
        return self.tokens / max(1, self.cycles)

    @property
    def accepted_per_cycle(self) -> float:
        """Drafted tokens kept per cycle, the target's own not counted.

        It is tau - 1, or a little more where an answer ended inside a block.
        """
        return self.accepted / max(1, self.cycles)

    @property
    def draft_acceptance_rate(self) -> float:
        """Drafted tokens kept, of all drafted; low for every tree. 0.0 without any."""
        return self.accepted / max(1, self.drafted)

    @property
    def per_position_rate(self) -> tuple[float, ...]:
        """For each position the share of all cycles in which its token was kept.

        It falls from position to position even where the draft is as good as ever,
        since one miss ends a chain. The sum is `accepted_per_cycle`.
        """
        return tuple(kept / max(1, self.cycles) for kept in self.accepted_at)

    @property
    def n_alpha(self) -> tuple[float, ...]:
        """For n = 0, 1, ...: how often a token is kept, given that n before it were.

        0.0 where no chain came so far. Raises ValueError where trees were drafted, or
        where the counts came from an engine that doesn't tell. [Paper, section 4.2]
        """
        if self.reached_at is None:
            raise ValueError(
                "n-alpha needs to know how many chains came to each position, and a "
                "tree or a sum over drafts of several lengths doesn't tell: run again "
                "with a chain of one length."
            )
        pairs = zip(self.accepted_at, self.reached_at, strict=True)
        return tuple(kept / max(1, reached) for kept, reached in pairs)


def _summed(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))


def _is_chain(cycle: Cycle) -> bool:
    return cycle.parents == tuple(range(-1, len(cycle.drafted) - 1))


# Sources of the names and formulas of the other engines.
#
# vLLM: vllm/v1/spec_decode/metrics.py, the same formulas in the documented releases
# 0.9.2, 0.11.2 and 0.21.0. The target's token is in the mean since pull request 17908
# (May 2025); older numbers are lower by one. prometheus_client adds "_total" to the
# name of a counter when it is read over HTTP. In newer schedulers a pass without a
# draft is not counted as one of num_drafts; from which release on was not verified.
#
# SGLang: observability/scheduler_metrics_mixin.py at 44cedc2 and, before it moved,
# managers/scheduler_metrics_mixin.py at 78ac30c. Pull request 23530 (merged on 23 April
# 2026) changed the rate: before, the target's token was counted as a draft that is
# always accepted. Which release has it first was not verified. The names
# spec_num_correct_drafts, spec_num_proposed_drafts and spec_correct_drafts_histogram
# are those of 0.5.15.post1, known from code that reads them; older ones have
# spec_accept_token_num, spec_draft_token_num and spec_accept_histogram. Whether
# completion_tokens, the numerator of a single answer's spec_accept_length, holds the
# token that comes from prefill was not verified: with it, that number is a little
# above ours.


@dataclass(frozen=True)
class MetricNames:
    """One number under its four names; "" where that side has none. [Ours]

    ours: a property of `AcceptanceMetrics`        meaning: what it counts
    """

    ours: str
    meaning: str
    paper: str
    vllm: str
    sglang: str


METRIC_NAMES: tuple[MetricNames, ...] = (
    MetricNames(
        "acceptance_length",
        "tokens per target pass, the target's own included",
        "average acceptance length tau",
        'log "Mean acceptance length"; 1 + vllm:spec_decode_num_accepted_tokens / '
        "vllm:spec_decode_num_drafts",
        'log "accept len"; sglang:spec_accept_length; spec_accept_length of an answer; '
        "avg_spec_accept_length in /server_info",
    ),
    MetricNames(
        "accepted_per_cycle",
        "drafted tokens kept per target pass",
        "",
        "vllm:spec_decode_num_accepted_tokens / vllm:spec_decode_num_drafts",
        '"accept len" - 1; spec_num_correct_drafts / spec_verify_ct',
    ),
    MetricNames(
        "n_alpha",
        "a drafted token is kept, given that n before it in the chain were",
        "acceptance rate n-alpha",
        'quotient of neighbours in "Per-position acceptance rate"',
        "",
    ),
    MetricNames(
        "per_position_rate",
        "share of all passes in which the token at this position was kept",
        "",
        'log "Per-position acceptance rate"; '
        "vllm:spec_decode_num_accepted_tokens_per_pos / vllm:spec_decode_num_drafts",
        "from spec_correct_drafts_histogram of an answer",
    ),
    MetricNames(
        "draft_acceptance_rate",
        "drafted tokens kept, of all drafted",
        "",
        'log "Avg Draft acceptance rate", in percent; '
        "vllm:spec_decode_num_accepted_tokens / vllm:spec_decode_num_draft_tokens",
        'log "accept rate"; sglang:spec_accept_rate; spec_accept_rate of an answer',
    ),
)


@dataclass(frozen=True)
class VllmCounters:
    """vLLM's counters, named as they are after "vllm:spec_decode_". [Ours]

    num_accepted_tokens_per_pos: for each position of a draft, the drafts in which the
        token there was kept
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: tuple[int, ...]


def to_vllm(metrics: AcceptanceMetrics) -> VllmCounters:
    """What vLLM's counters would show after the same run. [Ours, names: vLLM]"""
    return VllmCounters(
        metrics.drafts, metrics.drafted, metrics.accepted, metrics.accepted_at
    )


def from_vllm(counters: VllmCounters) -> AcceptanceMetrics:
    """Our numbers from vLLM's counters, as far as they tell.

    Passes without a draft are not among them and neither is where answers ended, so
    tau is that of the drafting passes and of whole blocks. n-alpha is known where all
    drafts had one length. [Ours, formulas: vLLM]
    """
    per_pos = tuple(counters.num_accepted_tokens_per_pos)
    one_length = counters.num_draft_tokens == counters.num_drafts * len(per_pos)
    return AcceptanceMetrics(
        cycles=counters.num_drafts,
        tokens=counters.num_drafts + counters.num_accepted_tokens,
        drafts=counters.num_drafts,
        drafted=counters.num_draft_tokens,
        accepted=counters.num_accepted_tokens,
        accepted_at=per_pos,
        # A chain reaches a position when the token before it was kept.
        reached_at=(counters.num_drafts, *per_pos)[: len(per_pos)]
        if one_length
        else None,
    )


def vllm_log(metrics: AcceptanceMetrics) -> dict[str, float | tuple[float, ...]]:
    """What vLLM's log line would say of the same run, under its own names.

    Rates refer to passes with a draft; the last one is in percent. [Ours, formulas:
    vLLM]
    """
    drafts = max(1, metrics.drafts)
    return {
        "Mean acceptance length": 1 + metrics.accepted / drafts,
        "Per-position acceptance rate": tuple(
            kept / drafts for kept in metrics.accepted_at
        ),
        "Avg Draft acceptance rate": 100 * metrics.draft_acceptance_rate,
    }


@dataclass(frozen=True)
class SglangCounters:
    """SGLang's counters of one answer, named as in its `meta_info`. [Ours]

    spec_verify_ct: target passes
    spec_num_proposed_drafts: passes times (speculative_num_draft_tokens - 1)
    spec_num_correct_drafts: drafted tokens kept
    spec_correct_drafts_histogram: how many passes kept 0, 1, 2, ... drafted tokens
    """

    spec_verify_ct: int
    spec_num_proposed_drafts: int
    spec_num_correct_drafts: int
    spec_correct_drafts_histogram: tuple[int, ...]


def from_sglang(counters: SglangCounters) -> AcceptanceMetrics:
    """Our numbers from SGLang's counters, as far as they tell.

    Where answers ended inside a block is not among them. Neither is whether a chain or
    a tree was drafted, so n-alpha is not known. [Ours, formulas: SGLang]
    """
    histogram: Sequence[int] = counters.spec_correct_drafts_histogram
    return AcceptanceMetrics(
        cycles=counters.spec_verify_ct,
        tokens=counters.spec_verify_ct + counters.spec_num_correct_drafts,
        drafts=counters.spec_verify_ct,
        drafted=counters.spec_num_proposed_drafts,
        accepted=counters.spec_num_correct_drafts,
        accepted_at=tuple(sum(histogram[i:]) for i in range(1, len(histogram))),
        reached_at=None,
    )


def sglang_log(metrics: AcceptanceMetrics, num_draft_tokens: int) -> dict[str, float]:
    """What SGLang's log line would say of the same run, under its own names.

    num_draft_tokens: its setting speculative_num_draft_tokens, the pending token
        included; SGLang takes every draft for full
    Raises ValueError below 2. [Ours, formulas: SGLang since pull request 23530]
    """
    _require_a_draft(num_draft_tokens)
    proposed = max(1, metrics.cycles) * (num_draft_tokens - 1)
    return {
        "accept len": 1 + metrics.accepted_per_cycle,
        "accept rate": metrics.accepted / proposed,
    }


def strict_accept_rate(older_rate: float, num_draft_tokens: int) -> float:
    """SGLang's accept rate as it counts now, from one of before pull request 23530.

    older_rate: (kept + 1) / num_draft_tokens, from 1 / num_draft_tokens to 1
    num_draft_tokens: its setting speculative_num_draft_tokens
    Raises ValueError below 2. [Ours, formulas: SGLang]
    """
    _require_a_draft(num_draft_tokens)
    return (older_rate * num_draft_tokens - 1) / (num_draft_tokens - 1)


def _require_a_draft(num_draft_tokens: int) -> None:
    if num_draft_tokens < 2:
        raise ValueError(
            f"speculative_num_draft_tokens is {num_draft_tokens}: with the pending "
            "token counted it is at least 2 where anything is drafted."
        )

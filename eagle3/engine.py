"""The engine: prefill, then cycles of catch-up, draft, verify, commit.

One engine serves every method. A drafter proposes tokens, the target scores them in
one pass, the acceptance rule keeps a prefix and adds one token of the target's own,
and both caches go back to what is committed. The output is the target's: token for
token at temperature 0, in distribution above it. [Paper, sections 2.1 and 3.1]

Two words: the *pending* token has been chosen by the target and emitted, but the
target has not run on it yet; tokens before it are *committed*.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from eagle3.draft import Eagle3Draft
from eagle3.drafters import Drafter, Eagle3Drafter, Proposal, VanillaDrafter
from eagle3.sampling import (
    ChainDecision,
    SamplingParams,
    next_token_distribution,
    sample,
    verify_chain,
    verify_chain_greedy,
)
from eagle3.target import Message, Target

Prompt = str | Sequence[Message] | Sequence[int] | Tensor


@dataclass(frozen=True)
class Request:
    """One request: what to continue, and how.

    prompt_ids: token ids            max_new_tokens: the most to emit
    eos_token_ids: any of these ends the answer; it may be empty
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eos_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cycle:
    """What happened in one cycle; cycle 0 is the prefill.

    drafted: the proposed tokens          draft_probs: q of each, 1.0 if deterministic
    num_accepted: how many of them the target kept, from the front
    next_token: the target's own token after those
    kind: "prefill"; "replacement" after a rejection; "bonus" after a whole chain was
        accepted; "target" when nothing was drafted
    emitted: the new tokens of the answer (a stop may cut the block)
    target_cache, draft_cache: cached positions after the cycle
    draft_seconds, target_seconds, other_seconds: where the time went
    """

    index: int
    drafted: tuple[int, ...]
    draft_probs: tuple[float, ...]
    num_accepted: int
    next_token: int
    kind: str
    emitted: tuple[int, ...]
    target_cache: int
    draft_cache: int
    draft_seconds: float
    target_seconds: float
    other_seconds: float


@dataclass(frozen=True)
class GenerationResult:
    """An answer and how it came about.

    token_ids: the emitted tokens, with the end-of-sequence token if there was one
    text: the same as text ("" for a target without tokenizer)
    finish_reason: "eos", "length" or "context" (the target's window is full)
    prefill, cycles: the trace
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    prefill: Cycle
    cycles: tuple[Cycle, ...]
    seconds: float

    @property
    def target_passes(self) -> int:
        """Target passes after prefill: one per cycle."""
        return len(self.cycles)

    @property
    def acceptance_length(self) -> float:
        """tau: tokens emitted per cycle, the target's own token included. [Paper]

        The token that comes from prefill is not counted, so
        acceptance_length * target_passes == len(token_ids) - 1. 0.0 without cycles.
        """
        return (len(self.token_ids) - 1) / max(1, len(self.cycles))

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second of wall time, prefill included."""
        return len(self.token_ids) / self.seconds


def generate(  # noqa: PLR0913  the reader's one call: plain keywords serve best
    target: Target,
    draft: Eagle3Draft | Drafter | None,
    prompt: Prompt,
    *,
    max_new_tokens: int = 128,
    chain_length: int = 3,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    eos_token_ids: Sequence[int] | None = None,
) -> GenerationResult:
    """Answer a prompt with the target, sped up by a draft.

    draft: an Eagle3Draft, any drafter (chain_length is then its own), or None for
        vanilla decoding
    prompt: a text (one user message if the target has a chat template, else plain
        text), chat messages, or token ids [T] or [1, T]
    eos_token_ids: instead of the target's own; () never stops early

    Raises ValueError for bad input, FloatingPointError when the target's logits are
    not finite. [Ours]
    """
    request = Request(
        prompt_to_ids(target, prompt),
        max_new_tokens,
        SamplingParams(temperature, top_k, top_p, seed),
        tuple(target.eos_token_ids if eos_token_ids is None else eos_token_ids),
    )
    return run(target, as_drafter(target, draft, chain_length), request)


def run(target: Target, drafter: Drafter, request: Request) -> GenerationResult:
    """Run one request to its end and collect the trace."""
    engine = Engine(target, drafter, request)
    started = time.perf_counter()
    prefill, *cycles = engine.cycles()
    seconds = time.perf_counter() - started
    ids = tuple(engine.emitted)
    return GenerationResult(
        prompt_ids=request.prompt_ids,
        token_ids=ids,
        text="" if target.tokenizer is None else target.decode(ids),
        finish_reason=engine.finish_reason,
        prefill=prefill,
        cycles=tuple(cycles),
        seconds=seconds,
    )


def stream_text(target: Target, drafter: Drafter, request: Request) -> Iterator[str]:
    """The answer as pieces of text, one or more tokens at a time.

    A character whose bytes are spread over several tokens is held back until it is
    whole. Joined, the pieces are the whole text.
    """
    engine, shown = Engine(target, drafter, request), ""
    for _ in engine.cycles():
        text = target.decode(engine.emitted)
        if engine.finish_reason == "" and text.endswith("\N{REPLACEMENT CHARACTER}"):
            continue
        if piece := text[len(shown) :]:
            yield piece
        shown = text


def as_drafter(
    target: Target, draft: Eagle3Draft | Drafter | None, chain_length: int
) -> Drafter:
    """The drafter for a draft: a chain for an Eagle3Draft, vanilla for None."""
    if draft is None:
        return VanillaDrafter()
    if isinstance(draft, Eagle3Draft):
        return Eagle3Drafter(target, draft, chain_length)
    return draft


def prompt_to_ids(target: Target, prompt: Prompt) -> tuple[int, ...]:
    """Token ids of a prompt in any of the forms that `generate` takes.

    Raises ValueError for an empty prompt or one of another type.
    """
    if isinstance(prompt, Tensor):
        if prompt.dim() == 2 and prompt.shape[0] > 1:
            raise ValueError(
                f"{prompt.shape[0]} prompts at once are not supported here: call "
                "generate once for each."
            )
        return tuple(prompt.flatten().tolist())
    if isinstance(prompt, str):
        if not prompt:
            raise ValueError("the prompt is empty: give at least one token.")
        has_template = getattr(target.tokenizer, "chat_template", None) is not None
        if has_template:
            return tuple(target.encode_chat([{"role": "user", "content": prompt}]))
        return tuple(target.encode(prompt))
    items = list(prompt)
    if items and all(isinstance(item, int) for item in items):
        return tuple(items)
    if items and all(isinstance(item, dict) for item in items):
        return tuple(target.encode_chat(items))
    if not items:
        raise ValueError("the prompt is empty: give at least one token.")
    raise ValueError(
        f"a prompt of {type(items[0]).__name__} items is not one prompt: pass a text, "
        "chat messages or token ids, and call generate once for each prompt."
    )


def check_request(target: Target, request: Request) -> None:
    """Refuse a request that can't be run, before any work. Raises ValueError."""
    ids = request.prompt_ids
    if not ids:
        raise ValueError("the prompt is empty: give at least one token.")
    wrong = [token for token in ids if not 0 <= token < target.vocab_size]
    if wrong:
        raise ValueError(
            f"token id {wrong[0]} is outside the target's vocabulary of "
            f"{target.vocab_size}: encode the prompt with this target's tokenizer."
        )
    if len(ids) >= target.max_positions:
        raise ValueError(
            f"the prompt has {len(ids)} tokens and the target's context is "
            f"{target.max_positions}, with room for none of the answer: shorten it."
        )
    if request.max_new_tokens < 1:
        raise ValueError(
            f"max_new_tokens is {request.max_new_tokens}: ask for at least 1."
        )


class Engine:
    """Runs one request; `cycles()` is the loop, `emitted` the answer so far. [Ours]"""

    def __init__(self, target: Target, drafter: Drafter, request: Request):
        check_request(target, request)
        self.target, self.drafter, self.request = target, drafter, request
        self.emitted: list[int] = []
        self.finish_reason = ""
        self.generator = torch.Generator(target.device)
        self.generator.manual_seed(request.sampling.seed)
        wanted = len(request.prompt_ids) + request.max_new_tokens
        self.max_length = min(wanted, target.max_positions)
        self.cache = target.new_cache(self.max_length)
        drafter.start(self.max_length)

    def cycles(self) -> Iterator[Cycle]:
        """Yield the prefill, then one cycle at a time until the answer ends."""
        yield self._prefill()
        while not self.finish_reason:
            yield self._cycle()

    def _prefill(self) -> Cycle:
        clock = _Clock()
        prompt = self.request.prompt_ids
        output = self.target.forward(self._row(prompt), self.cache, last_only=True)
        clock.target()
        self.drafter.observe(prompt, output.features)
        clock.draft()
        decision = self._decide(Proposal(()), output.logits[0])
        return self._commit(Proposal(()), decision, clock)

    def _cycle(self) -> Cycle:
        clock = _Clock()
        pending = self.emitted[-1]
        proposal = self.drafter.propose(
            pending, self._room(), self.request.sampling, self.generator
        )
        clock.draft()
        block = (pending, *proposal.tokens)
        output = self.target.forward(self._row(block), self.cache)
        clock.target()
        decision = self._decide(proposal, output.logits[0])
        kept = 1 + decision.num_accepted  # pending and the accepted prefix
        clock.other()
        self.drafter.observe(block[:kept], output.features[:, :kept])
        clock.draft()
        return self._commit(proposal, decision, clock)

    def _room(self) -> int:
        """How many tokens are worth drafting: one more comes from the target."""
        return self.max_length - len(self.request.prompt_ids) - len(self.emitted) - 1

    def _row(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([ids], device=self.target.device)

    def _decide(self, proposal: Proposal, logits: Tensor) -> ChainDecision:
        """Apply the acceptance rule. logits: [n + 1, V], row i judges drafted i."""
        params = self.request.sampling
        self._require_finite(logits)
        if params.is_greedy:
            best = logits.argmax(-1)
            return verify_chain_greedy(list(proposal.tokens), best)
        p = next_token_distribution(logits, params)
        if not proposal.tokens:
            return ChainDecision(0, int(sample(p[0], self.generator)), "bonus")
        return verify_chain(list(proposal.tokens), proposal.probs, p, self.generator)

    def _require_finite(self, logits: Tensor) -> None:
        # One maximum per row is enough: NaN and inf both show in it.
        if not torch.isfinite(logits.amax(-1)).all():
            raise FloatingPointError(
                f"the target's logits are not finite after {len(self.emitted)} emitted "
                f"tokens ({self.target.dtype}): the weights are damaged, or this dtype "
                "overflows; try float32 or bfloat16."
            )

    def _commit(
        self, proposal: Proposal, decision: ChainDecision, clock: "_Clock"
    ) -> Cycle:
        """Emit token by token until a stop, then roll the target's cache back."""
        index = 0 if not self.emitted else self._index + 1
        self._index = index
        block = (*proposal.tokens[: decision.num_accepted], decision.next_token)
        emitted = []
        for token in block:
            emitted.append(token)
            self.emitted.append(token)
            self.finish_reason = self._stop(token)
            if self.finish_reason:
                break
        committed = len(self.request.prompt_ids) + len(self.emitted) - 1
        self.cache.rollback(self.cache.length - committed)
        return Cycle(
            index=index,
            drafted=proposal.tokens,
            draft_probs=_own_probs(proposal),
            num_accepted=decision.num_accepted,
            next_token=decision.next_token,
            kind=_kind(index, proposal, decision),
            emitted=tuple(emitted),
            target_cache=self.cache.length,
            draft_cache=self.drafter.cache_length,
            **clock.read(),
        )

    def _stop(self, token: int) -> str:
        if token in self.request.eos_token_ids:
            return "eos"
        if len(self.emitted) == self.request.max_new_tokens:
            return "length"
        total = len(self.request.prompt_ids) + len(self.emitted)
        return "context" if total == self.target.max_positions else ""


def _own_probs(proposal: Proposal) -> tuple[float, ...]:
    if proposal.probs is None:
        return (1.0,) * len(proposal.tokens)
    tokens = torch.tensor(proposal.tokens, device=proposal.probs.device)
    return tuple(proposal.probs.gather(1, tokens[:, None])[:, 0].tolist())


def _kind(index: int, proposal: Proposal, decision: ChainDecision) -> str:
    if index == 0:
        return "prefill"
    return decision.kind if proposal.tokens else "target"


class _Clock:
    """Splits the time of a cycle into draft, target and the rest."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.spent = {"draft_seconds": 0.0, "target_seconds": 0.0, "other_seconds": 0.0}

    def _charge(self, name: str) -> None:
        now = time.perf_counter()
        self.spent[name] += now - self.last
        self.last = now

    def draft(self) -> None:
        self._charge("draft_seconds")

    def target(self) -> None:
        self._charge("target_seconds")

    def other(self) -> None:
        self._charge("other_seconds")

    def read(self) -> dict[str, float]:
        self.other()
        return self.spent

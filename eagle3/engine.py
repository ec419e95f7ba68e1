"""The engine: prefill, then cycles of catch-up, draft, verify, commit.

One engine serves every method. A drafter proposes a tree of tokens, the target scores
them in one pass, the acceptance rule keeps one path and adds a token of the target's
own, and both caches go back to what is committed. The output is the target's: token for
token at temperature 0, in distribution above it. [Paper, sections 2.1 and 3.1]
Where two of the target's logits tie within rounding, a block of several rows may sum
in another order than single rows do and take the other; nothing else can differ.

Two words: the *pending* token has been chosen by the target and emitted, but the
target has not run on it yet; tokens before it are *committed*.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral

import torch
from torch import Tensor, nn

from eagle3.drafters import Drafter, EagleDrafter, VanillaDrafter
from eagle3.growth import Growth, chain
from eagle3.sampling import SamplingParams, next_token_distribution
from eagle3.target import Message, Target
from eagle3.tree import NOTHING, DraftTree
from eagle3.verify import TreeDecision, verify_tree, verify_tree_greedy

Prompt = str | Sequence[Message] | Sequence[int] | Tensor
CHAIN_LENGTH = 3  # pays on a CPU: a block of four rows costs hardly more than one


@dataclass(frozen=True)
class Request:
    """One request: what to continue, and how.

    prompt_ids: T token ids            max_new_tokens: the most to emit
    eos_token_ids: any of these ends the answer; it may be empty
    process: changes the target's scores before `sampling` sees them. It is given the
        token ids of the text so far and a copy of the scores [V] of the next token,
        and returns scores [V]. It is called once for each emitted token, in order and
        with the text that vanilla decoding would show it, drafted tokens included
    ends: asked after each emitted token, with the ids of the text so far, whether the
        answer ends there
    drafting: how a draft draws, where that should differ from `sampling`; whatever it
        is, the answer follows `sampling`

    Nothing is checked here: `check_request` does it against a target. [Ours]
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    eos_token_ids: tuple[int, ...] = ()
    process: Callable[[list[int], Tensor], Tensor] | None = None
    ends: Callable[[list[int]], bool] | None = None
    drafting: SamplingParams | None = None


@dataclass(frozen=True)
class Cycle:
    """What happened in one cycle; cycle 0 is the prefill.

    drafted: the proposed tokens          draft_probs: q of each, 1.0 if deterministic
    parents: of each the one that it follows, -1 for the pending token
    path: those that the target kept, as indices into `drafted`
    next_token: the target's own token after those
    kind: "prefill"; "replacement" after a rejection; "bonus" where the accepted path
        ends at a leaf; "target" when nothing was drafted
    emitted: the new tokens of the answer (a stop may cut the block)
    target_cache: cached positions after the cycle, all of them committed tokens
    draft_cache: cached positions of the drafter, all built from real features; it
        catches up when it next drafts, so it lags behind the target's
    draft_seconds, target_seconds, other_seconds: where the time went

    [Ours]
    """

    index: int
    drafted: tuple[int, ...]
    draft_probs: tuple[float, ...]
    parents: tuple[int, ...]
    path: tuple[int, ...]
    next_token: int
    kind: str
    emitted: tuple[int, ...]
    target_cache: int
    draft_cache: int
    draft_seconds: float
    target_seconds: float
    other_seconds: float

    @property
    def num_accepted(self) -> int:
        """How many of the drafted tokens the target kept."""
        return len(self.path)


@dataclass(frozen=True)
class GenerationResult:
    """An answer and how it came about.

    token_ids: the emitted tokens, with the end-of-sequence token if there was one
    text: the same as text ("" for a target without tokenizer)
    finish_reason: "eos", "length", "context" (the target's window is full), or
        "ended" by the request's own `ends`
    prefill, cycles: the trace
    seconds: wall time of prefill and cycles

    [Ours]
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
    draft: nn.Module | Drafter | None,
    prompt: Prompt,
    *,
    max_new_tokens: int = 128,
    chain_length: int | None = None,
    growth: Growth | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    eos_token_ids: int | Sequence[int] | None = None,
) -> GenerationResult:
    """Answer a prompt with the target, sped up by a draft.

    draft: an EAGLE draft, any drafter, or None for vanilla decoding
    prompt: a text (one user message if the target has a chat template, else plain
        text), chat messages, or token ids [T] or [1, T]
    max_new_tokens: the most to emit; the target's context may end the answer earlier
    chain_length: tokens that an EAGLE draft proposes per cycle, 3 if not given
    growth: a tree for it to propose instead, as `DynamicTree()`; drafters bring their
        own
    temperature, top_k, top_p, seed: see `SamplingParams`. The seed fixes the answer of
        one drafter; another drafter draws other random numbers and gives another
        answer of the same distribution
    eos_token_ids: one or several, instead of the target's own; () never stops early

    Raises ValueError for bad input before the target runs, FloatingPointError when
    the target's logits are not finite. [Ours]
    """
    eos = target.eos_token_ids if eos_token_ids is None else eos_token_ids
    request = Request(
        prompt_to_ids(target, prompt),
        max_new_tokens,
        SamplingParams(temperature, top_k, top_p, seed),
        (int(eos),) if isinstance(eos, Integral) else tuple(eos),
    )
    check_request(target, request)  # before a draft is packed
    return run(target, as_drafter(target, draft, chain_length, growth), request)


def run(target: Target, drafter: Drafter, request: Request) -> GenerationResult:
    """Run one request to its end and collect the trace.

    Raises what `Engine` raises. [Ours]
    """
    engine = Engine(target, drafter, request)
    for _ in engine.cycles():
        pass
    return engine.result()


def stream_text(target: Target, drafter: Drafter, request: Request) -> Iterator[str]:
    """The answer as pieces of text; joined, they are the whole text.

    Raises what `Engine` raises, at the first piece. [Ours]
    """
    yield from text_pieces(Engine(target, drafter, request))


def text_pieces(engine: "Engine") -> Iterator[str]:
    """Run an engine to its end and yield its text, one or more tokens at a time.

    A character whose bytes are spread over several tokens is held back until it is
    whole. The trace is in `engine.result()` afterwards. Raises ValueError for a
    target without tokenizer. [Ours]
    """
    shown = ""
    for _ in engine.cycles():
        text = engine.target.decode(engine.emitted)
        if not engine.finish_reason and text.endswith("\N{REPLACEMENT CHARACTER}"):
            continue
        if piece := text[len(shown) :]:
            yield piece
        shown = text


def as_drafter(
    target: Target,
    draft: nn.Module | Drafter | None,
    chain_length: int | None = None,
    growth: Growth | None = None,
) -> Drafter:
    """The drafter for a draft: `EagleDrafter` for an EAGLE draft, vanilla for None.

    chain_length, growth: what an EAGLE draft proposes, a chain of three if neither is
        given; vanilla decoding has no use for them
    Raises ValueError for a draft that doesn't fit, for a chain length that is out of
    range, for both at once, and for one given along with a drafter. [Ours]
    """
    if chain_length is not None and growth is not None:
        raise ValueError(
            f"chain length {chain_length} and a growth were given: a chain is a "
            "growth, so give one of them."
        )
    if chain_length is not None:
        growth = chain(chain_length)
    if draft is None:
        return VanillaDrafter()
    if isinstance(draft, nn.Module):
        return EagleDrafter(target, draft, growth or chain(CHAIN_LENGTH))
    if growth is not None:
        raise ValueError(
            f"{growth} can't be applied to a {type(draft).__name__}: set the length or "
            "the growth where that drafter is made."
        )
    return draft


def prompt_to_ids(target: Target, prompt: Prompt) -> tuple[int, ...]:
    """Token ids of a prompt in any of the forms that `generate` takes.

    prompt: a tensor is [T] or [1, T]

    Raises ValueError for an empty prompt, one of another type, or several. [Ours]
    """
    if isinstance(prompt, Tensor):
        return _tensor_to_ids(prompt)
    if isinstance(prompt, str):
        if not prompt:
            raise ValueError(_EMPTY)
        if getattr(target.tokenizer, "chat_template", None) is not None:
            return tuple(target.encode_chat([{"role": "user", "content": prompt}]))
        return tuple(target.encode(prompt, special=True))
    items = list(prompt)
    if not items:
        raise ValueError(_EMPTY)
    if all(isinstance(item, Integral) for item in items):
        return tuple(map(int, items))
    if all(isinstance(item, dict) for item in items):
        return tuple(target.encode_chat(items))
    raise ValueError(
        f"a prompt of {type(items[0]).__name__} items is not one prompt: pass a text, "
        "chat messages or token ids, and call generate once for each prompt."
    )


_EMPTY = "the prompt is empty: give at least one token."


def _tensor_to_ids(prompt: Tensor) -> tuple[int, ...]:
    if prompt.dim() == 2 and prompt.shape[0] > 1:
        raise ValueError(
            f"{prompt.shape[0]} prompts at once are not supported here: call "
            "generate once for each."
        )
    whole_numbers = not (prompt.is_floating_point() or prompt.is_complex())
    if prompt.dim() not in (1, 2) or not whole_numbers:
        raise ValueError(
            f"a prompt tensor of shape {tuple(prompt.shape)} and {prompt.dtype} holds "
            "no token ids: pass whole numbers as [T] or [1, T]."
        )
    return tuple(prompt.flatten().tolist())


def check_request(target: Target, request: Request) -> None:
    """Refuse a request that can't be run on this target, before any work.

    Raises ValueError for an empty prompt, ids outside the vocabulary, a prompt that
    leaves no room in the context, and max_new_tokens below 1. [Ours]
    """
    ids = request.prompt_ids
    if not ids:
        raise ValueError(_EMPTY)
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
    count = request.max_new_tokens
    if not isinstance(count, Integral) or count < 1:
        raise ValueError(
            f"max_new_tokens is {count!r}: ask for a whole number of at least 1."
        )


class Engine:
    """Runs one request on a target with a drafter, cycle by cycle.

    emitted: the answer so far            trace: its cycles so far, prefill first
    finish_reason: "" until the answer ends
    seconds: time spent in cycles, not what the caller did between them

    A drafter serves one engine at a time. Raises ValueError for a request that
    can't be run; nothing is computed before `cycles`. [Paper, section 3.1; Ours]
    """

    def __init__(self, target: Target, drafter: Drafter, request: Request):
        check_request(target, request)
        self.target, self.drafter, self.request = target, drafter, request
        self.emitted: list[int] = []
        self.trace: list[Cycle] = []
        self.finish_reason = ""
        self._reasons: list[str] = []  # of each answer token that was asked about
        self.seconds = 0.0
        self.generator = torch.Generator(target.device)
        self.generator.manual_seed(request.sampling.seed)
        wanted = len(request.prompt_ids) + request.max_new_tokens
        self.max_length = min(wanted, target.max_positions)
        self.cache = target.new_cache(self.max_length, spare=drafter.max_nodes)
        drafter.start(self.max_length)

    def cycles(self) -> Iterator[Cycle]:
        """Yield the prefill, then one cycle at a time until the answer ends.

        Raises FloatingPointError, with the step, when the target's logits are not
        finite. [Ours]
        """
        while not self.finish_reason:
            started = time.perf_counter()
            cycle = self._cycle() if self.trace else self._prefill()
            self.trace.append(cycle)
            self.seconds += time.perf_counter() - started
            yield cycle

    def result(self) -> GenerationResult:
        """The answer with its trace, once at least the prefill has run. [Ours]"""
        prefill, *cycles = self.trace
        ids, tokenizer = tuple(self.emitted), self.target.tokenizer
        return GenerationResult(
            prompt_ids=self.request.prompt_ids,
            token_ids=ids,
            text="" if tokenizer is None else self.target.decode(ids),
            finish_reason=self.finish_reason,
            prefill=prefill,
            cycles=tuple(cycles),
            seconds=self.seconds,
        )

    @torch.inference_mode()
    def _prefill(self) -> Cycle:
        clock = _Clock()
        prompt = self.request.prompt_ids
        output = self.target.forward(self._row(prompt), self.cache, last_only=True)
        clock.target()
        self.drafter.observe(prompt, output)
        clock.draft()
        decision = self._decide(NOTHING, output.logits[0])
        return self._commit(NOTHING, decision, clock)

    @torch.inference_mode()
    def _cycle(self) -> Cycle:
        clock = _Clock()
        pending, start = self.emitted[-1], self.cache.length
        tree = self.drafter.propose(
            pending,
            self._room(),
            self.request.drafting or self.request.sampling,
            self.generator,
        )
        clock.draft()
        block = (pending, *tree.tokens)
        # A chain is causal, as every block without a mask is.
        mask = None if tree.is_chain else tree.mask()
        output = self.target.forward(self._row(block), self.cache, tree_mask=mask)
        clock.target()
        decision = self._decide(tree, output.logits[0])
        kept = [0, *(node + 1 for node in decision.path)]  # rows of the block
        self.cache.keep(start, kept)
        clock.other()
        self.drafter.observe([block[row] for row in kept], output.rows(kept))
        clock.draft()
        return self._commit(tree, decision, clock)

    def _room(self) -> int:
        """How many levels are worth drafting: one more token comes from the target.

        So the newest token that can be emitted is never run, and no drafted one lies
        at the end of the context or past it.
        """
        return self.max_length - len(self.request.prompt_ids) - len(self.emitted) - 1

    def _row(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([ids], device=self.target.device)

    def _decide(self, tree: DraftTree, logits: Tensor) -> TreeDecision:
        """Apply the acceptance rule. logits: [n + 1, V], row 0 the pending token's."""
        self._require_finite(logits)
        if self.request.sampling.is_greedy and self.request.process is None:
            return verify_tree_greedy(tree, logits.argmax(-1))
        return verify_tree(tree, _Distributions(self, tree, logits), self.generator)

    def _require_finite(self, logits: Tensor) -> None:
        # One maximum per row is enough: NaN and inf both show in it.
        if not torch.isfinite(logits.amax(-1)).all():
            raise FloatingPointError(
                f"the target's logits are not finite after {len(self.emitted)} emitted "
                f"tokens ({self.target.dtype}): the weights are damaged, or this dtype "
                "overflows; try float32 or bfloat16."
            )

    def _commit(
        self, tree: DraftTree, decision: TreeDecision, clock: "_Clock"
    ) -> Cycle:
        """Emit token by token until a stop, then roll the target's cache back."""
        accepted = (tree.tokens[node] for node in decision.path)
        emitted = []
        for token in (*accepted, decision.next_token):
            emitted.append(token)
            self.emitted.append(token)
            self.finish_reason = self.reason(self.emitted)
            if self.finish_reason:
                break
        committed = len(self.request.prompt_ids) + len(self.emitted) - 1
        self.cache.rollback(self.cache.length - committed)
        return Cycle(
            index=len(self.trace),
            drafted=tree.tokens,
            draft_probs=_own_probs(tree),
            parents=tree.parents,
            path=decision.path,
            next_token=decision.next_token,
            kind=self._kind(tree, decision),
            emitted=tuple(emitted),
            target_cache=self.cache.length,
            draft_cache=self.drafter.cache_length,
            **clock.read(),
        )

    def reason(self, answer: Sequence[int]) -> str:
        """Why the answer ends with its last token, "" if it goes on.

        answer: emitted tokens, and perhaps accepted ones that will be. Each token is
        asked about once, in order, and none after the end: who is asked may count.
        """
        known = self._reasons
        if len(known) < len(answer):
            known.append((known and known[-1]) or self._ask(answer))
        return known[len(answer) - 1]

    def _ask(self, answer: Sequence[int]) -> str:
        request = self.request
        total = len(request.prompt_ids) + len(answer)
        if request.ends is not None and request.ends([*request.prompt_ids, *answer]):
            return "ended"
        if answer[-1] in request.eos_token_ids:
            return "eos"
        if len(answer) == request.max_new_tokens:
            return "length"
        return "context" if total == self.target.max_positions else ""

    def _kind(self, tree: DraftTree, decision: TreeDecision) -> str:
        if not self.trace:
            return "prefill"
        return decision.kind if tree.tokens else "target"


class _Distributions(Sequence[Tensor]):
    """p of every row, computed when it is looked at: most rows of a tree never are.

    The walk looks at the row of the pending token, then at that of each token that it
    accepts: at the texts that vanilla decoding goes through, and no others.
    """

    def __init__(self, engine: Engine, tree: DraftTree, logits: Tensor) -> None:
        self.engine, self.tree, self.logits = engine, tree, logits

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, row: int) -> Tensor:
        request, logits = self.engine.request, self.logits[row]
        if request.process is not None:
            path = [self.tree.tokens[node] for node in self.tree.path(row - 1)]
            answer = [*self.engine.emitted, *path]
            # Past the end of the answer nobody reads what is drawn here.
            if not (path and self.engine.reason(answer)):
                text = [*request.prompt_ids, *answer]
                logits = request.process(text, logits.clone())
        return next_token_distribution(logits, request.sampling)


def _own_probs(tree: DraftTree) -> tuple[float, ...]:
    if tree.probs is None:
        return (1.0,) * len(tree)
    tokens = torch.tensor(tree.tokens, device=tree.probs.device)
    return tuple(tree.probs.gather(1, tokens[:, None])[:, 0].tolist())


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

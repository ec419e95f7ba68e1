"""Both models of a run under observation: which tensors there were, and their shapes.

`record` runs the finished engine while it watches target and draft, and notes each
call. A recording is plain data without tensors, so pictures and widgets may show it
with or without a kernel. [Ours]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from eagle3.drafters import EagleDrafter
from eagle3.engine import GenerationResult, Request, check_request, run
from eagle3.growth import Growth, Runner, chain
from eagle3.sampling import SamplingParams
from eagle3.target import Target, TargetOutput
from eagle3.trace import TraceRow, trace_rows
from eagle3.tree import DraftTree

Shape = tuple[int, ...]
Sketch = tuple[int, ...]
SKETCH_SIZE = 8


@dataclass(frozen=True)
class Call:
    """One call of a model, as it was seen.

    kind: "target", "fuse", "layer" or "head"
    first: position of its first row; fuse and head are told none and say 0
    ids: the tokens that it read, one for each row
    given, made: the shape of what went in, and of what came out
    sketches: of each row that came out, see `sketch`; of a target's row, its features
    choices: of a target's or head's rows, the text of the most likely token
    cached: positions in the model's cache afterwards

    [Ours]
    """

    kind: str
    first: int
    ids: tuple[int, ...]
    given: Shape
    made: Shape
    sketches: tuple[Sketch, ...] = ()
    choices: tuple[str, ...] = ()
    cached: int = 0


@dataclass(frozen=True)
class WatchedCycle:
    """A cycle with the calls that were made in it; the target's comes last.

    [Ours]
    """

    row: TraceRow
    calls: tuple[Call, ...]

    def of(self, kind: str) -> list[Call]:
        """The calls of one kind, in order."""
        return [call for call in self.calls if call.kind == kind]


@dataclass(frozen=True)
class Recording:
    """A run, cycle by cycle and call by call.

    texts: of the prompt's and the answer's tokens, one after the other
    prompt_length: how many of them are the prompt's
    prefill: the target's call on the prompt
    sizes: k, V and Vd

    [Ours]
    """

    texts: tuple[str, ...]
    prompt_length: int
    prefill: Call
    cycles: tuple[WatchedCycle, ...]
    sizes: tuple[int, int, int]


def sketch(vector: Tensor) -> Sketch:
    """A vector in eight numbers from -2 to 2, to be recognised by.

    vector: [k]. Eight of its entries, evenly spaced, in units of the median size, and
    rounded. Equal vectors have equal sketches. [Ours]
    """
    at = torch.linspace(0, len(vector) - 1, SKETCH_SIZE).long()
    unit = vector.abs().median().clamp(min=1e-9)
    return tuple((vector[at] / unit).nan_to_num().round().clamp(-2, 2).int().tolist())


@dataclass
class Scripted:
    """A chain that says given tokens in the first cycle, and its own in later ones.

    The rows of the given tokens run through the draft like any other; any guess might
    have been drawn. Made for one run. [Ours]

    tokens: target ids, at least one        then: what grows in later cycles
    """

    tokens: Sequence[int]
    then: Growth
    used: bool = False

    @property
    def depth(self) -> int:
        """Levels of drafted tokens."""
        return max(len(self.tokens), self.then.depth)

    @property
    def max_nodes(self) -> int:
        """The most tokens that a proposal holds."""
        return max(len(self.tokens), self.then.max_nodes)

    @property
    def max_rows(self) -> int:
        """Rows that a runner is asked to run at most."""
        return max(len(self.tokens), self.then.max_rows)

    def grow(
        self,
        runner: Runner,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """The given tokens, as far as the limit allows, or what `then` grows."""
        if self.used:
            return self.then.grow(runner, limit, params, generator)
        self.used = True
        tokens = list(self.tokens)[:limit]
        for i, token in enumerate(tokens[:-1]):
            runner.run(torch.tensor([token]), [i - 1])
        return DraftTree.chain(tokens)


def record(
    target: Target,
    draft: Any,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    growth: Growth | None = None,
) -> tuple[GenerationResult, Recording]:
    """Answer a prompt greedily, and note every call of both models.

    draft: an `Eagle3Draft`        prompt_ids: T token ids
    growth: a chain, of three tokens if not given, or a `Scripted` one
    Returns what `generate` returns, and the recording. Raises ValueError for bad
    input. [Ours]
    """
    request = Request(tuple(prompt_ids), max_new_tokens)
    request = replace(request, eos_token_ids=target.eos_token_ids)
    check_request(target, request)
    calls: list[Call] = []
    drafter = EagleDrafter(target, draft, growth or chain(3))
    say = _speaker(target)
    drafter.draft = _WatchedDraft(drafter.draft, calls, say)
    result = run(_WatchedTarget(target, calls, say), drafter, request)
    ids = (*result.prompt_ids, *result.token_ids)
    config = draft.config
    return result, Recording(
        texts=tuple(map(say, ids)),
        prompt_length=len(prompt_ids),
        prefill=calls[0],
        cycles=_by_cycle(result, calls[1:], say),
        sizes=(config.hidden_size, config.vocab_size, config.draft_vocab_size),
    )


def _speaker(target: Target) -> Callable[[int], str]:
    if target.tokenizer is None:
        return str
    return lambda token: target.decode([token], keep_special=True)


def _by_cycle(
    result: GenerationResult, calls: list[Call], say: Callable[[int], str]
) -> tuple[WatchedCycle, ...]:
    rows = trace_rows(result, lambda ids: "".join(map(say, ids)))
    cycles, start = [], 0
    for row in rows:
        end = start + 1
        while calls[end - 1].kind != "target":
            end += 1
        cycles.append(WatchedCycle(row, tuple(calls[start:end])))
        start = end
    return tuple(cycles)


class _WatchedTarget:
    """The target, with a note of each pass."""

    def __init__(
        self, target: Target, calls: list[Call], say: Callable[[int], str]
    ) -> None:
        self._target, self._calls, self._say = target, calls, say

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, ids: Tensor, cache: Any, **options: Any) -> TargetOutput:
        first = cache.length
        output = self._target.forward(ids, cache, **options)
        self._calls.append(
            Call(
                "target",
                first,
                tuple(ids[0].tolist()),
                tuple(ids.shape),
                tuple(output.features.shape),
                tuple(map(sketch, output.features[0].float())),
                tuple(map(self._say, output.logits[0].argmax(-1).tolist())),
                cache.length,
            )
        )
        return output


class _WatchedDraft:
    """The draft, with a note of each call of its three parts."""

    def __init__(
        self, draft: Any, calls: list[Call], say: Callable[[int], str]
    ) -> None:
        self._draft, self._calls, self._say = draft, calls, say

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draft, name)

    def fuse(self, features: Tensor) -> Tensor:
        g = self._draft.fuse(features)
        shapes = tuple(features.shape), tuple(g.shape)
        sketches = tuple(map(sketch, g[0].float()))
        self._calls.append(Call("fuse", 0, (), *shapes, sketches))
        return g

    def __call__(
        self,
        ids: Tensor,
        x: Tensor,
        positions: Tensor,
        cache: Any,
        mask: Tensor | None = None,
    ) -> Tensor:
        a = self._draft(ids, x, positions, cache, mask)
        self._calls.append(
            Call(
                "layer",
                int(positions[0]),
                tuple(ids[0].tolist()),
                tuple(x.shape),
                tuple(a.shape),
                tuple(map(sketch, a[0].float())),
                cached=cache.length,
            )
        )
        return a

    def logits(self, a: Tensor) -> Tensor:
        logits = self._draft.logits(a)
        choices = self._draft.d2t[logits[0].argmax(-1)].tolist()
        shapes = tuple(a.shape), tuple(logits.shape)
        said = tuple(map(self._say, choices))
        self._calls.append(Call("head", 0, (), *shapes, choices=said))
        return logits

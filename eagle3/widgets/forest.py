"""All that a draft says at one place, so that trees grow there without running it.

The tree grower asks for a tree each time a reader turns a knob. A `Forest` runs the
draft once for every tree that can be asked for and answers from memory afterwards; the
growing itself is done by eagle3/growth.py either way. [Ours]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from eagle3.drafters import EagleDrafter
from eagle3.engine import GenerationResult
from eagle3.growth import DynamicTree, Runner
from eagle3.sampling import SamplingParams
from eagle3.target import Target
from eagle3.tree import NOTHING, DraftTree

Path = tuple[int, ...]  # target ids from below the pending token down


class Forest:
    """The draft's scores behind every path that some dynamic tree asks for.

    runner: a draft in the middle of a cycle, asked here and never again
    depth, top_k: the largest tree; all smaller ones grow from memory, too
    """

    def __init__(self, runner: Runner, depth: int, top_k: int) -> None:
        self.depth, self.top_k = depth, top_k
        self.logits: dict[Path, Tensor] = {(): runner.root_logits[0]}  # [Vd] each
        self.ids = runner.to_target_ids(torch.arange(len(self.logits[()])))  # [Vd]
        self._trees: dict[DynamicTree, DraftTree] = {}
        self._sure: dict[Path, float] = {(): 1.0}
        rows: dict[Path, int] = {}
        for width in range(1, top_k + 1):
            asking = _Memory(self, runner, rows)
            _grow(asking, DynamicTree(2, depth, width))

    def grow(self, growth: DynamicTree) -> DraftTree:
        """The tree that the draft would have grown. [Ours]"""
        if growth not in self._trees:
            self._trees[growth] = _grow(_Memory(self), growth)
        return self._trees[growth]

    def confidence(self, path: Path) -> float:
        """The product of the draft's probabilities along a path. [Paper, 2.2]"""
        if path not in self._sure:
            q = self.logits[path[:-1]].float().softmax(-1)  # [Vd]
            own = float(q[self._draft_ids[path[-1]]])
            self._sure[path] = own * self.confidence(path[:-1])
        return self._sure[path]

    @cached_property
    def _draft_ids(self) -> dict[int, int]:
        return {token: i for i, token in enumerate(self.ids.tolist())}


def _grow(runner: Any, growth: DynamicTree) -> DraftTree:
    generator = torch.Generator()  # a dynamic tree draws nothing from it
    return growth.grow(runner, growth.depth, SamplingParams(), generator)


class _Memory:
    """A `Runner` that asks the real one only for paths it has not met."""

    def __init__(
        self,
        forest: Forest,
        runner: Runner | None = None,
        rows: dict[Path, int] | None = None,
    ) -> None:
        self.forest, self.runner, self.rows = forest, runner, rows
        self.root_logits = forest.logits[()][None]
        self.paths: list[Path] = []

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        return self.forest.ids[draft_ids]

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        raise NotImplementedError("a dynamic tree draws nothing")

    def run(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        known = [self.paths[parent] if parent >= 0 else () for parent in parents]
        paths = [
            (*path, token) for path, token in zip(known, tokens.tolist(), strict=True)
        ]
        self.paths += paths
        new = [i for i, path in enumerate(paths) if path not in self.forest.logits]
        if new:
            above = [self.rows.get(paths[i][:-1], -1) for i in new]
            found = self.runner.run(tokens[new], above)  # [n, Vd]
            for i, row in zip(new, found, strict=True):
                self.rows[paths[i]] = len(self.rows)
                self.forest.logits[paths[i]] = row
        return torch.stack([self.forest.logits[path] for path in paths])


@dataclass(frozen=True)
class Place:
    """Where trees grow: a pending token, the draft behind it, what the target says.

    pending: its text            forest: the draft there
    answer: target ids that the target itself says next, most of a tree's depth
    decode: a target id as text
    """

    pending: str
    forest: Forest
    answer: tuple[int, ...]
    decode: Callable[[int], str] = field(compare=False)


def plant(target: Target, draft: Any, result: GenerationResult, at: int = 0) -> Place:
    """The place behind token `at` of a known answer, for trees up to 8 levels of 10.

    draft: whatever `EagleDrafter` takes
    Runs the target once and the draft some 60 times. Raises ValueError if the answer
    has no such token. [Ours]
    """
    if not 0 <= at < len(result.token_ids) - 1:
        raise ValueError(
            f"token {at} has nothing behind it in an answer of "
            f"{len(result.token_ids)} tokens; name an earlier one."
        )
    ids, first = [*result.prompt_ids, *result.token_ids], len(result.prompt_ids) + at
    recorder = _Recorder()
    drafter = EagleDrafter(target, draft, recorder)
    drafter.start(len(ids) + recorder.depth)
    with torch.inference_mode():
        output = target.forward(torch.tensor([ids[:first]], device=target.device))
        drafter.observe(ids[:first], output)
        generator = torch.Generator()
        drafter.propose(ids[first], recorder.depth, SamplingParams(), generator)

    def decode(token: int) -> str:
        return target.decode([token], keep_special=True)

    return Place(decode(ids[first]), recorder.forest, tuple(ids[first + 1 :]), decode)


class _Recorder:
    """A `Growth` that lets a forest look around and proposes nothing."""

    depth, top_k, max_nodes = 8, 10, 1
    max_rows = (depth - 1) * top_k * (top_k + 1) // 2

    def grow(self, runner: Runner, limit: int, *_: Any) -> DraftTree:
        self.forest = Forest(runner, min(limit, self.depth), self.top_k)
        return NOTHING

"""How a draft tree grows: a fixed shape, or the paths that the draft trusts most.

A growth asks a *runner* for the draft's distributions, one level of the tree at a time,
and decides which tokens become nodes. It does not know what kind of draft runs, so
every drafter that owns a model can grow every tree. [Paper, section 2.2]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Literal, Protocol

import torch
from torch import Tensor

from eagle3.sampling import SamplingParams, next_token_distribution
from eagle3.tree import ROOT, DraftTree

MAX_CHAIN_LENGTH = 64


class Runner(Protocol):
    """A draft in the middle of one cycle.

    root_logits: [1, Vd]  its scores for the tokens that follow the pending one
    """

    root_logits: Tensor

    def run(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """Run n more drafted tokens and score what follows each of them.

        tokens: [n] target ids      parents: of each the row that it follows, counted
            over all rows run in this cycle; -1 for the pending token
        Returns logits [n, Vd].
        """

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        """Ids of the draft's vocabulary as target ids: [...] -> [...]"""

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        """[..., Vd] -> [..., V]"""


class Growth(Protocol):
    """Decides which tree is drafted. [Ours]

    depth: levels of drafted tokens        max_nodes: drafted tokens at most
    max_rows: rows that a runner is asked to run at most
    """

    depth: int
    max_nodes: int
    max_rows: int

    def grow(
        self,
        runner: Runner,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """A tree of at most `limit` levels, limit >= 1."""


@dataclass(frozen=True)
class StaticTree:
    """A tree whose shape is fixed before anything is drafted, as EAGLE-1 has it.

    paths: one for each node: the ranks of its ancestors' and its own choice, best
        first. (0, 1) is the second-best token after the best one. Every prefix of a
        path is a path, and ranks have no gap.
    children: "sampled" draws siblings from q without replacement at temperatures above
        0; "best" always takes the most probable ones

    Raises ValueError for paths that make no tree. [Paper, section 2.2; Code: branch
    v1, choices.py]
    """

    paths: tuple[tuple[int, ...], ...]
    children: Literal["sampled", "best"] = "sampled"

    def __post_init__(self) -> None:
        unique = sorted(set(map(tuple, self.paths)), key=lambda path: (len(path), path))
        object.__setattr__(self, "paths", tuple(unique))
        if self.children not in ("sampled", "best"):
            raise ValueError(
                f"children of a static tree are 'sampled' or 'best', not "
                f"{self.children!r}."
            )
        if not unique:
            raise ValueError(
                "a static tree without paths drafts nothing: give it at least (0,), or "
                "decode without a draft."
            )
        known = {(), *unique}
        for path in unique:
            left = path and (*path[:-1], path[-1] - 1)
            if not path or path[:-1] not in known or (path[-1] and left not in known):
                raise ValueError(
                    f"the path {path} of a static tree hangs in the air; add its "
                    "parent and its better-ranked siblings, and no empty path."
                )

    @cached_property
    def levels(self) -> list[list[tuple[int, ...]]]:
        """The paths of each level, first level first."""
        return [
            [path for path in self.paths if len(path) == depth + 1]
            for depth in range(self.depth)
        ]

    @property
    def depth(self) -> int:
        """Levels of drafted tokens."""
        return max(map(len, self.paths), default=0)

    @property
    def max_nodes(self) -> int:
        """Drafted tokens."""
        return len(self.paths)

    @cached_property
    def max_rows(self) -> int:
        """Nodes with children: the draft runs on no other."""
        return len({path[:-1] for path in self.paths} - {()})

    def grow(
        self,
        runner: Runner,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Level by level: choose children by rank, run those that have children."""
        draw = params if self.children == "sampled" and not params.is_greedy else None
        made = _Nodes()
        # The paths whose logits are at hand, and the row of the first of them.
        owners, logits, first_row, num_rows = [()], runner.root_logits, ROOT, 0
        for paths in self.levels[:limit]:
            slots = {path: slot for slot, path in enumerate(owners)}
            wanted = [path for path in paths if path[:-1] in slots]
            width = 1 + max(path[-1] for path in wanted)
            ids, q = _ranked(logits, width, draw, generator)
            kept = _drawable(wanted, slots, ids, q)
            slot = [slots[path[:-1]] for path in kept]
            tokens = runner.to_target_ids(ids[slot, [path[-1] for path in kept]])
            made.add(kept, tokens)
            if q is not None:
                made.probs.append(runner.to_target_vocab(q)[slot])
            inner = [i for i, path in enumerate(kept) if (*path, 0) in self._known]
            if not inner or len(kept[0]) == limit:
                break
            logits = runner.run(tokens[inner], [first_row + slot[i] for i in inner])
            owners = [kept[i] for i in inner]
            first_row, num_rows = num_rows, num_rows + len(inner)
        return made.tree()

    @cached_property
    def _known(self) -> frozenset[tuple[int, ...]]:
        return frozenset(self.paths)


class _Nodes:
    """The nodes made so far, by their paths."""

    def __init__(self) -> None:
        self.index: dict[tuple[int, ...], int] = {(): ROOT}
        self.parents: list[int] = []
        self.tokens: list[Tensor] = []
        self.probs: list[Tensor] = []

    def add(self, paths: list[tuple[int, ...]], tokens: Tensor) -> None:
        for path in paths:
            self.index[path] = len(self.parents)
            self.parents.append(self.index[path[:-1]])
        self.tokens.append(tokens)

    def tree(self) -> DraftTree:
        ids = tuple(torch.cat(self.tokens).tolist())
        probs = torch.cat(self.probs) if self.probs else None
        return DraftTree(ids, tuple(self.parents), probs)


def _drawable(
    paths: list, slots: dict, ids: Tensor, q: Tensor | None
) -> list[tuple[int, ...]]:
    """The paths whose token exists: q may have fewer tokens than a node has children.

    ids: [r, width] and q: [r, Vd], one row for each slot; q None keeps all that exist
    """
    chance = torch.ones_like(ids) if q is None else q.gather(1, ids)
    there = (chance > 0).tolist()
    return [
        path
        for path in paths
        if path[-1] < len(there[0]) and there[slots[path[:-1]]][path[-1]]
    ]


def _ranked(
    logits: Tensor,
    width: int,
    params: SamplingParams | None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor | None]:
    """The first `width` choices of every row: ids [r, width], and q [r, Vd] if drawn.

    Without params, the best tokens. With them, draws from q without replacement in the
    order they come: the first arrivals of a race in which token x has rate q(x).
    """
    width = min(width, logits.shape[-1])
    if params is None:
        if width == 1:
            return logits.argmax(-1, keepdim=True), None
        return logits.topk(width, dim=-1).indices, None
    q = next_token_distribution(logits, params)
    race = torch.empty_like(q).exponential_(generator=generator)
    return (q / race).topk(width, dim=-1).indices, q


def chain(length: int, children: Literal["sampled", "best"] = "sampled") -> StaticTree:
    """The static tree with one branch of `length` tokens.

    Raises ValueError unless length is a whole number from 1 to 64. [Paper, section 3.1]
    """
    if not isinstance(length, Integral) or not 1 <= length <= MAX_CHAIN_LENGTH:
        raise ValueError(
            f"chain length {length!r} is out of range: draft 1 to {MAX_CHAIN_LENGTH} "
            "tokens, or pass None as the draft to draft none."
        )
    return StaticTree(tuple((0,) * depth for depth in range(1, length + 1)), children)


@dataclass(frozen=True)
class DynamicTree:
    """EAGLE-2's tree: grown where the draft is confident, then cut to a budget.

    The confidence of a node is the product of the draft's probabilities along its
    path, which estimates the chance that the target accepts it.

    total_tokens: nodes to verify, the pending token included
    depth: levels of drafted tokens, the paper's depth; the official code's `depth`
        counts one less
    top_k: nodes expanded per level, and children of each

    It never looks at the temperature: children are chosen without chance. Raises
    ValueError for values that leave nothing to draft. [Paper, section 2.2; Code:
    topK_genrate]
    """

    total_tokens: int = 60
    depth: int = 8
    top_k: int = 10

    def __post_init__(self) -> None:
        for name, least in (("total_tokens", 2), ("depth", 1), ("top_k", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise ValueError(
                    f"{name} of a dynamic tree is {value!r}; take a whole number of at "
                    f"least {least}."
                )

    @property
    def max_nodes(self) -> int:
        """Drafted tokens at most."""
        return self.total_tokens - 1

    @property
    def max_rows(self) -> int:
        """Every level but the last is run."""
        return (self.depth - 1) * self.top_k

    def grow(
        self,
        runner: Runner,
        limit: int,
        params: SamplingParams,
        generator: torch.Generator,
    ) -> DraftTree:
        """Expand the most confident nodes of each level, keep the best of all."""
        made = _Candidates(self.top_k)
        # The nodes to expand: their scores, their candidate numbers, their first row.
        logits, owners = runner.root_logits, [ROOT]
        scores = logits.new_zeros(1, dtype=torch.float32)
        first_row, num_rows = ROOT, 0
        last = min(limit, self.depth)
        for level in range(1, last + 1):
            first = made.count
            tokens, found, width = made.add(runner, logits, scores, owners)
            if level == last:
                break
            best = found.topk(min(self.top_k, len(found))).indices
            chosen, scores = best.tolist(), found[best]
            logits = runner.run(tokens[best], [first_row + i // width for i in chosen])
            owners = [first + i for i in chosen]
            first_row, num_rows = num_rows, num_rows + len(chosen)
        return made.best(self.max_nodes)


class _Candidates:
    """All nodes that were ever scored, in the order of the official code."""

    def __init__(self, top_k: int) -> None:
        self.top_k, self.count = top_k, 0
        self.tokens: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.parents: list[int] = []

    def add(
        self, runner: Runner, logits: Tensor, scores: Tensor, owners: list[int]
    ) -> tuple[Tensor, Tensor, int]:
        """The children of r expanded nodes: tokens and scores [r * w], and w.

        logits: [r, Vd]   scores: [r], log-probability of the path to each owner
        """
        width = min(self.top_k, logits.shape[-1])
        log_q = logits.float().log_softmax(-1)
        own, ids = log_q.topk(width, dim=-1)  # [r, w]
        found = (scores[:, None] + own).flatten()
        tokens = runner.to_target_ids(ids.flatten())
        self.tokens.append(tokens)
        self.scores.append(found)
        self.parents += [owner for owner in owners for _ in range(width)]
        self.count += len(found)
        return tokens, found, width

    def best(self, count: int) -> DraftTree:
        """The `count` candidates with the highest scores, as a tree."""
        # A child is never above its parent, and stable sorting decides ties for the
        # parent, which comes first: so what is kept hangs together.
        order = torch.cat(self.scores).sort(descending=True, stable=True).indices
        kept = sorted(order[:count].tolist())
        index = {candidate: node for node, candidate in enumerate(kept)}
        index[ROOT] = ROOT
        tokens = torch.cat(self.tokens).tolist()
        return DraftTree(
            tuple(tokens[i] for i in kept),
            tuple(index[self.parents[i]] for i in kept),
        )

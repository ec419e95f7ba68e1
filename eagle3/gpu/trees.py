"""Draft trees on the device: one padded shape for all slots and all cycles.

`eagle3.growth` grows a tree of Python numbers for one text. Here the same trees are
tensors, grown for all slots at once. A slot that has no room for all levels drafts them
all the same: the nodes that are too deep are padding, computed and never accepted.
[Paper, section 2.2; fixed shapes: Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from eagle3.gpu.draws import Draws, Filters, Needed, RowSampling
from eagle3.gpu.largest import largest
from eagle3.growth import DynamicTree, Growth, StaticTree


@dataclass(frozen=True)
class Rank:
    """The children of one rank among their siblings, in a tree of fixed shape.

    nodes: [F] int64, F of them  rank 0 holds every first child, rank 1 every second
    rows: [F] int64  the inner row that each of them hangs on
    older: [F] int64  the sibling before each of them; empty at rank 0

    [Ours]
    """

    nodes: Tensor
    rows: Tensor
    older: Tensor


@dataclass(frozen=True)
class Families:
    """Who is whose child, in a tree of fixed shape with P inner rows.

    inner: [P] int64  the rows of the block that have children, in order
    number: [n + 1] int64  which inner row a row of the block is, 0 for a leaf
    is_inner: [n + 1] bool      youngest: [P] int64, the last child of each inner row

    [Ours]
    """

    inner: Tensor
    number: Tensor
    is_inner: Tensor
    youngest: Tensor
    ranks: Sequence[Rank]


@dataclass(frozen=True)
class Drawn:
    """How the children of a static tree were drawn.

    q: [B, P, V]  what the children of each of the P inner rows were drawn from

    [Ours]
    """

    q: Tensor
    families: Families


@dataclass(frozen=True)
class Nodes:
    """The drafted trees of all slots. Row 0 of a block is the pending token.

    tokens: [B, n] target ids, of siblings all different
    parents: [B, n] int64  the row that each follows; node i is row i + 1
    alive: [B, n] bool, False = padding, never accepted
    sees: [B, n + 1, n + 1] bool, True = may attend: a row sees its ancestors and itself
    depth: [B, n + 1] int64, how far a row stands behind the pending token
    drawn: None where children were chosen without chance
    """

    tokens: Tensor
    parents: Tensor
    alive: Tensor
    sees: Tensor
    depth: Tensor
    drawn: Drawn | None = None

    def older_siblings(self) -> Tensor:
        """[B, n, n] bool: is node j an older sibling of node i? [Ours]"""
        same = self.parents[:, :, None] == self.parents[:, None, :]
        return same.tril(-1)


def no_nodes(num_slots: int, device: torch.device) -> Nodes:
    """The trees of vanilla decoding: the pending token alone. [Ours]"""
    nothing = torch.zeros(num_slots, 0, dtype=torch.int64, device=device)
    sees = torch.ones(num_slots, 1, 1, dtype=torch.bool, device=device)
    depth = nothing.new_zeros(num_slots, 1)
    return Nodes(nothing, nothing, nothing.bool(), sees, depth)


class Runner(Protocol):
    """The draft in the middle of one cycle, for all slots.

    root_logits: [B, 1, Vd]  its scores for the tokens that follow the pending ones
    """

    root_logits: Tensor

    def run(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Run r more nodes of each slot and score what follows them.

        tokens, parents: [B, r]  a parent is a row run in this cycle, counted from 1, or
            0 for the pending token
        Returns logits [B, r, Vd].
        """

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        """Ids of the draft's vocabulary as target ids: [...] -> [...]"""

    def to_target_vocab(self, probs: Tensor) -> Tensor:
        """[..., Vd] -> [..., V]"""


@dataclass(frozen=True)
class Chance:
    """What a growth needs where children are drawn. [Ours]"""

    sampling: RowSampling
    filters: Filters
    draws: Draws


class DeviceGrowth(Protocol):
    """A growth whose every step is a tensor. [Ours]

    depth: levels    num_nodes: n, padded    max_rows: rows that the draft runs
    num_races: P, rows whose children may be drawn
    """

    depth: int
    num_nodes: int
    max_rows: int
    num_races: int

    def grow(self, runner: Runner, limit: Tensor, chance: Chance | None) -> Nodes:
        """The trees of one cycle.

        limit: [B] int64  levels that each slot has room for, from 0 on
        chance: None where all slots are greedy
        """

    def needed(self, limit: int) -> Needed:
        """How many random numbers a tree of at most `limit` levels takes."""


def on_device(growth: Growth, vocab: int, device: torch.device) -> DeviceGrowth:
    """The growth that makes the same trees on the device.

    vocab: Vd, the draft's tokens

    Raises ValueError for a growth of another kind. [Ours]
    """
    if isinstance(growth, StaticTree):
        return StaticGrowth(growth, vocab, device)
    if isinstance(growth, DynamicTree):
        return DynamicGrowth(growth, vocab, device)
    raise ValueError(
        f"{growth} has no form with fixed shapes: take a chain, a StaticTree or a "
        "DynamicTree, or the teaching engine."
    )


@dataclass(frozen=True)
class _Level:
    """One level of a static tree: m nodes on r owners.

    first: number of the first owner among all inner rows
    width: children of the owner that has most
    owner: [m] which owner each node hangs on   pick: [m] owner * width + rank
    inner: [r'] which nodes have children       parents: [r'] rows for the runner
    """

    first: int
    num_owners: int
    width: int
    owner: Tensor
    pick: Tensor
    inner: Tensor
    parents: Tensor


class StaticGrowth:
    """`StaticTree` on the device; a chain is one.

    tree: its shape   vocab: Vd; a rank beyond it has no token and gets no node
    device: where it grows

    [Paper, section 2.2; fixed shapes: Ours]
    """

    def __init__(self, tree: StaticTree, vocab: int, device: torch.device) -> None:
        paths = [path for path in tree.paths if max(path) < vocab]
        self.draws_children = tree.children == "sampled"
        self.num_nodes, self.depth = len(paths), max(map(len, paths))
        row = {(): 0} | {path: i + 1 for i, path in enumerate(paths)}
        inner = [path for path in row if (*path, 0) in row]
        self.max_rows, self.num_races = len(inner) - 1, len(inner)
        parents = [row[path[:-1]] for path in paths]
        self.parents = torch.tensor([parents], device=device)  # [1, n]
        self.sees = closure(self.parents, self.depth)  # [1, n + 1, n + 1]
        self.depth_of_row = self.sees.sum(-1) - 1  # [1, n + 1]
        self.families = _families(paths, inner, device)
        self.levels = _levels(paths, inner, device)

    def needed(self, limit: int) -> Needed:
        """How many random numbers a tree of at most `limit` levels takes."""
        levels = self.levels[: max(0, limit)]
        races = [(level.first, level.num_owners) for level in levels]
        return Needed(
            tuple(races) if self.draws_children else (),
            sum(len(level.pick) for level in levels),
        )

    def grow(self, runner: Runner, limit: Tensor, chance: Chance | None) -> Nodes:
        """Level by level: choose children by rank, run those that have children.

        limit: [B] int64
        """
        if not self.draws_children:
            chance = None
        batch, logits = len(limit), runner.root_logits
        here = limit[:, None] > 0  # [B, r]  does the owner exist?
        tokens, alive, qs = [], [], []
        for level in self.levels:
            ids, there, q = _ranked(logits, level, chance)  # [B, r, width]
            chosen = runner.to_target_ids(ids.flatten(1)[:, level.pick])  # [B, m]
            exists = there.flatten(1)[:, level.pick] & here[:, level.owner]
            tokens.append(chosen)
            alive.append(exists)
            qs.append(q)
            if len(level.inner):
                parents = level.parents.expand(batch, -1)
                logits = runner.run(chosen[:, level.inner], parents)
                here = exists[:, level.inner]
        drawn = None
        if chance is not None:
            q = runner.to_target_vocab(torch.cat(qs, dim=1))
            drawn = Drawn(q, self.families)
        depth = self.depth_of_row.expand(batch, -1)
        return Nodes(
            torch.cat(tokens, dim=1),
            self.parents.expand(batch, -1),
            torch.cat(alive, dim=1) & (depth[:, 1:] <= limit[:, None]),
            self.sees.expand(batch, -1, -1),
            depth,
            drawn,
        )


def _families(paths: list, inner: list, device: torch.device) -> Families:
    """The families of a tree, given as paths; inner: those that have children."""
    row = {(): 0} | {path: i + 1 for i, path in enumerate(paths)}
    number = {path: i for i, path in enumerate(inner)}
    children = {path: [p for p in paths if p[:-1] == path] for path in inner}

    def rank(place: int) -> Rank:
        members = [path for path in paths if path[-1] == place]
        before = [(*path[:-1], place - 1) for path in members if place]
        return Rank(
            nodes=_ints([row[path] - 1 for path in members], device),
            rows=_ints([number[path[:-1]] for path in members], device),
            older=_ints([row[path] - 1 for path in before], device),
        )

    return Families(
        inner=_ints([row[path] for path in inner], device),
        number=_ints([number.get(path, 0) for path in row], device),
        is_inner=torch.tensor([path in number for path in row], device=device),
        youngest=_ints([row[children[path][-1]] - 1 for path in inner], device),
        ranks=[rank(place) for place in range(1 + max(path[-1] for path in paths))],
    )


def _levels(paths: list, inner: list, device: torch.device) -> list[_Level]:
    """The levels of a tree, given as paths; inner: those that have children."""
    number = {path: i for i, path in enumerate(inner)}
    levels, first = [], 0
    for depth in range(1, 1 + max(map(len, paths))):
        nodes = [path for path in paths if len(path) == depth]
        owners = [path for path in inner if len(path) == depth - 1]
        width = 1 + max(path[-1] for path in nodes)
        owner = [owners.index(path[:-1]) for path in nodes]
        pick = [o * width + path[-1] for o, path in zip(owner, nodes, strict=True)]
        kept = [i for i, path in enumerate(nodes) if path in number]
        # Inner rows are run in order, and the pending token is row 0 of them, too.
        parents = [number[nodes[i][:-1]] for i in kept]
        tensors = (_ints(numbers, device) for numbers in (owner, pick, kept, parents))
        levels.append(_Level(first, len(owners), width, *tensors))
        first += len(owners)
    return levels


def _ints(numbers: list[int], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def _ranked(
    logits: Tensor, level: _Level, chance: Chance | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first `width` choices of every owner: ids and whether they exist, and q.

    logits: [B, r, Vd] -> [B, r, width] twice, and [B, r, Vd]. Greedy slots choose the
    best tokens; the others draw without replacement, as a race arrives.
    """
    if chance is None:
        ids = _best(logits, level.width)
        return ids, torch.ones_like(ids, dtype=torch.bool), None
    q = chance.sampling.distributions(logits, chance.filters)
    race = chance.draws.race[:, level.first : level.first + level.num_owners]
    greedy = chance.sampling.greedy[:, None, None]
    ids = _best(torch.where(greedy, logits.float(), q / race), level.width)
    return ids, greedy | (q.gather(2, ids) > 0), q


def _best(scores: Tensor, width: int) -> Tensor:
    if width == 1:
        return largest(scores)[1][..., None]
    return scores.topk(width, dim=-1).indices


class DynamicGrowth:
    """`DynamicTree` on the device: the same candidates, scores and choice.

    tree: its budget   vocab: Vd   device: where it grows

    [Paper, section 2.2; Code: topK_genrate; fixed shapes: Ours]
    """

    num_races = 0  # children are chosen without chance

    def __init__(self, tree: DynamicTree, vocab: int, device: torch.device) -> None:
        self.depth, self.top_k = tree.depth, tree.top_k
        self.width = min(tree.top_k, vocab)  # children of an expanded node
        # Expanded nodes of each level, the pending token first; then candidates.
        self.expanded = [1]
        for _ in range(1, tree.depth):
            self.expanded.append(min(tree.top_k, self.expanded[-1] * self.width))
        self.budget = tree.max_nodes
        self.num_nodes = self._count(tree.depth)
        self.max_rows = sum(self.expanded[1:])
        self.level = torch.tensor(  # [C], of every candidate
            [
                level
                for level, expanded in enumerate(self.expanded, start=1)
                for _ in range(expanded * self.width)
            ],
            device=device,
        )

    def _count(self, limit: int) -> int:
        """Nodes of a tree of that many levels: the budget, or all candidates."""
        return min(self.budget, sum(self.expanded[: max(0, limit)]) * self.width)

    def needed(self, limit: int) -> Needed:
        """How many random numbers a tree of at most `limit` levels takes."""
        return Needed((), self._count(limit))

    def grow(self, runner: Runner, limit: Tensor, chance: Chance | None) -> Nodes:
        """Expand the most confident nodes of each level, keep the best of all.

        limit: [B] int64   chance: not looked at
        """
        batch, logits = len(limit), runner.root_logits
        # Of the expanded nodes: log-probability, candidate (from 1; 0 is pending).
        scores = torch.zeros(batch, 1, device=limit.device)
        owners = torch.zeros(batch, 1, dtype=torch.int64, device=limit.device)
        tokens, found, parents = [], [], []
        first, first_row = 1, 0  # of this level: candidate, and row of the runner
        for level, expanded in enumerate(self.expanded, start=1):
            own, ids = logits.float().log_softmax(-1).topk(self.width, dim=-1)
            found.append((scores[:, :, None] + own).flatten(1))  # [B, r * w]
            tokens.append(runner.to_target_ids(ids.flatten(1)))
            parents.append(owners.repeat_interleave(self.width, dim=1))
            if level == self.depth:
                break
            scores, best = found[-1].topk(self.expanded[level], dim=1)  # [B, r']
            logits = runner.run(
                tokens[-1].gather(1, best), first_row + best // self.width
            )
            owners = first + best
            first, first_row = first + expanded * self.width, first_row + expanded
        return self._keep_best(
            *(torch.cat(t, 1) for t in (tokens, found, parents)), limit
        )

    def _keep_best(
        self, tokens: Tensor, scores: Tensor, parents: Tensor, limit: Tensor
    ) -> Nodes:
        """The candidates with the highest scores, as trees. All: [B, C]"""
        too_deep = self.level > limit[:, None]
        scores = scores.masked_fill(too_deep, -torch.inf)  # so they come last
        order = scores.sort(dim=1, descending=True, stable=True).indices
        kept = order[:, : self.num_nodes].sort(dim=1).values  # [B, n]
        rows = torch.arange(1, self.num_nodes + 1, device=kept.device)
        # Which row of the block each candidate became; 0 is the pending token.
        row_of = torch.zeros_like(parents[:, :1].expand(-1, parents.shape[1] + 1))
        row_of = row_of.scatter(1, kept + 1, rows.expand_as(kept))
        parents = row_of.gather(1, parents.gather(1, kept))
        sees = closure(parents, self.depth)
        return Nodes(
            tokens.gather(1, kept),
            parents,
            ~too_deep.gather(1, kept),
            sees,
            sees.sum(-1) - 1,
        )


def closure(parents: Tensor, depth: int) -> Tensor:
    """Who descends from whom, by squaring: "parent or self" taken 2, 4, 8 ... times.

    parents: [B, n]  row of the block that each node follows   depth: levels at most
    Returns [B, n + 1, n + 1] bool: row i sees its ancestors and itself. [Ours]
    """
    batch, count = parents.shape
    step = torch.eye(count + 1, device=parents.device).repeat(batch, 1, 1)
    step[:, 1:].scatter_(2, parents[:, :, None], 1.0)
    for _ in range((depth - 1).bit_length()):
        step = ((step @ step) > 0).float()
    return step > 0

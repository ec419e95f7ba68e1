"""Accept or resample on the device: `eagle3.verify` for all slots, without a loop.

The walk down a tree asks one node at a time and needs each answer before the next
question. But whether a child would be accepted, if the walk came to its parent, depends
on nothing above. So every node is asked at once, and the path is what hangs together
with the pending token. The three rules are those of `eagle3.verify`. [Paper, section
2.1; Code: evaluate_posterior; all at once: Ours]
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.gpu.draws import Filters, RowSampling
from eagle3.gpu.largest import largest
from eagle3.gpu.trees import Chance, Nodes, Rank


@dataclass(frozen=True)
class Decision:
    """What the target keeps of each slot's tree.

    path: [B, D + 1] int64  rows of the block, the pending token's 0 first, then of D
        levels; what lies behind the accepted ones is 0
    num_accepted: [B] int64  drafted tokens kept
    next_token: [B] int64  the target's own after them
    is_finite: [B] bool  whether all logits were numbers; if not, the rest means nothing
    """

    path: Tensor
    num_accepted: Tensor
    next_token: Tensor
    is_finite: Tensor


def decide(nodes: Nodes, logits: Tensor, depth: int, chance: Chance | None) -> Decision:
    """Apply the acceptance rule to every slot.

    logits: [B, n + 1, V]  the target's, row 0 the pending token's
    depth: D, levels of the trees   chance: None where all slots are greedy
    """
    best, choices = largest(logits)  # [B, n + 1] each
    is_finite = torch.isfinite(best).all(-1)  # NaN and inf both show in a maximum
    accepted = nodes.tokens == choices.gather(1, nodes.parents)  # [B, n]
    if chance is None:
        path, count, end = _walk(nodes, accepted, depth)
        return Decision(path, count, choices.gather(1, end)[:, 0], is_finite)
    p = chance.sampling.distributions(logits, chance.filters)  # [B, n + 1, V]
    rule = (_Chosen if nodes.drawn is None else _Drawn)(nodes, p)
    by_chance = rule.accepted(chance.draws.uniforms)
    greedy = chance.sampling.greedy
    accepted = torch.where(greedy[:, None], accepted, by_chance)
    path, count, end = _walk(nodes, accepted, depth)
    sampled = (rule.left(end) / chance.draws.last).argmax(-1)
    next_token = torch.where(greedy, choices.gather(1, end)[:, 0], sampled)
    return Decision(path, count, next_token, is_finite)


def first_token(
    logits: Tensor, sampling: RowSampling, filters: Filters | None, last: Tensor
) -> Tensor:
    """The token that follows a prompt: logits [B, 1, V], last [B, V] -> [B]. [Ours]"""
    if filters is None:
        return logits[:, 0].argmax(-1)
    p = sampling.distributions(logits, filters)[:, 0]
    return (p / last).argmax(-1)


def _walk(nodes: Nodes, accepted: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that hang together with the pending token, for accepted: [B, n] bool.

    Returns path [B, D + 1], how many drafted tokens are on it [B], its end [B, 1].
    """
    accepted = accepted & nodes.alive
    # Of several accepted siblings the oldest counts: the walk asks it first.
    passed_over = (nodes.older_siblings() & accepted[:, None]).any(-1)
    accepted = accepted & ~passed_over
    # A row is reached if no row that it sees was refused; the pending token never is.
    refused = F.pad(~accepted, (1, 0))  # [B, n + 1]
    reached = ~(nodes.sees & refused[:, None]).any(-1)
    end = torch.where(reached, nodes.depth, -1).argmax(-1, keepdim=True)  # [B, 1]
    count = nodes.depth.gather(1, end)
    rows = torch.arange(reached.shape[1], device=end.device).expand_as(reached)
    # Each reached row goes to its depth; all others go to a column that is cut off.
    place = torch.where(reached, nodes.depth, depth + 1)
    path = torch.zeros_like(end.expand(-1, depth + 2)).scatter(1, place, rows)
    return path[:, : depth + 1], count[:, 0], end


class _Chosen:
    """Children chosen without chance: accept x with what p gives it of what is left.

    p: [B, n + 1, V]
    """

    def __init__(self, nodes: Nodes, p: Tensor) -> None:
        self.nodes, self.p = nodes, p

    def accepted(self, uniforms: Tensor) -> Tensor:
        """[B, n] bool. After the older siblings, 1 less their mass is left."""
        flat = self.nodes.parents * self.p.shape[-1] + self.nodes.tokens
        own = self.p.flatten(1).gather(1, flat)  # p of each node's token
        gone = (self.nodes.older_siblings() * own[:, None]).sum(-1)
        return uniforms * (1 - gone) < own

    def left(self, end: Tensor) -> Tensor:
        """p at the end of the path, less the refused children: [B, 1] -> [B, V]."""
        p = _row(self.p, end)
        refused = (self.nodes.parents == end) & self.nodes.alive  # [B, n]
        # Added up, since a token may stand in the tree more than once.
        hits = torch.zeros_like(p).scatter_add(
            1, self.nodes.tokens, refused.to(p.dtype)
        )
        rest = p.masked_fill(hits > 0, 0.0)
        return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


class _Drawn:
    """Children drawn from q without replacement: accept x with min(1, p(x) / q(x)).

    One rank after the other, for all parents at once. p: [B, n + 1, V]
    """

    def __init__(self, nodes: Nodes, p: Tensor) -> None:
        self.nodes, self.p = nodes, p
        self.families = nodes.drawn.families
        self.q = nodes.drawn.q  # [B, P, V]
        self.rest = p.index_select(1, self.families.inner)  # [B, P, V]

    def accepted(self, uniforms: Tensor) -> Tensor:
        """[B, n] bool."""
        accepted = torch.zeros_like(self.nodes.alive)
        for rank in self.families.ranks:
            if len(rank.older):
                self._refuse_older(rank)
            token = self.nodes.tokens[:, rank.nodes]  # [B, F]
            # In double precision, as the teaching engine's Python floats are.
            of_p, of_q = (
                _at(x, rank.rows, token).double() for x in (self.rest, self.q)
            )
            accepted[:, rank.nodes] = uniforms[:, rank.nodes].double() < of_p / of_q
        return accepted

    def _refuse_older(self, rank: Rank) -> None:
        """Rows with a child of this rank go on to what the one before has left."""
        rest, q = (x.index_select(1, rank.rows) for x in (self.rest, self.q))
        token = self.nodes.tokens[:, rank.older][:, :, None]  # [B, F, 1]
        was_there = self.nodes.alive[:, rank.older][:, :, None]
        owed = torch.where(was_there, _owed(rest, q), rest)
        q = _normalized(q.scatter(2, token, 0.0), q)
        self.rest = self.rest.index_copy(1, rank.rows, owed)
        self.q = self.q.index_copy(1, rank.rows, q)

    def left(self, end: Tensor) -> Tensor:
        """p at the end of the path, less what q was given for: [B, 1] -> [B, V]."""
        number = self.families.number[end]  # [B, 1]
        rest, q = _row(self.rest, number), _row(self.q, number)
        was_there = self.nodes.alive.gather(1, self.families.youngest[number])
        rest = torch.where(was_there, _owed(rest, q), rest)
        return torch.where(self.families.is_inner[end], rest, _row(self.p, end))


def _row(x: Tensor, index: Tensor) -> Tensor:
    """One row of each slot: x [B, m, V], index [B, 1] -> [B, V]"""
    first = torch.arange(len(x), device=x.device) * x.shape[1]
    return x.flatten(0, 1).index_select(0, first + index[:, 0])  # whole rows at once


def _at(x: Tensor, rows: Tensor, token: Tensor) -> Tensor:
    """Numbers of some rows: x [B, P, V], rows [F], token [B, F] -> [B, F]"""
    return x.flatten(1).gather(1, rows * x.shape[2] + token)


def _owed(p: Tensor, q: Tensor) -> Tensor:
    """What p still owes after a token drawn from q was refused: [..., V]"""
    return _normalized((p - q).clamp(min=0), p)


def _normalized(mass: Tensor, otherwise: Tensor) -> Tensor:
    """Rows that sum to 1: [..., V]; `otherwise` where rounding left nothing."""
    total = mass.sum(-1, keepdim=True)
    return torch.where(total > 0, mass / total, otherwise)

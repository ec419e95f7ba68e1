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
from eagle3.gpu.trees import Chance, Drawn, Nodes


@dataclass(frozen=True)
class Decision:
    """What the target keeps of each slot's tree.

    path: [B, D + 1] int64  rows of the block, the pending token's 0 first; what lies
        behind the accepted ones is 0
    num_accepted: [B] int64  drafted tokens kept
    next_token: [B] int64  the target's own after them
    """

    path: Tensor
    num_accepted: Tensor
    next_token: Tensor


def decide(nodes: Nodes, logits: Tensor, depth: int, chance: Chance | None) -> Decision:
    """Apply the acceptance rule to every slot.

    logits: [B, n + 1, V]  the target's, row 0 the pending token's
    depth: D, levels of the trees   chance: None where all slots are greedy
    """
    choices = logits.argmax(-1)  # [B, n + 1]
    accepted = nodes.tokens == choices.gather(1, nodes.parents)  # [B, n]
    if chance is None:
        path, count, end = _walk(nodes, accepted, depth)
        return Decision(path, count, choices.gather(1, end)[:, 0])
    greedy = chance.sampling.greedy
    p = chance.sampling.distributions(logits, chance.filters)  # [B, n + 1, V]
    if nodes.drawn is None:
        by_chance = _accept_chosen(nodes, p, chance.draws.uniforms)
    else:
        by_chance = _accept_drawn(nodes, p, chance.draws.uniforms)
    accepted = torch.where(greedy[:, None], accepted, by_chance)
    path, count, end = _walk(nodes, accepted, depth)
    left = p.gather(1, end[:, :, None].expand(-1, -1, p.shape[-1]))[:, 0]  # [B, V]
    if nodes.drawn is None:
        left = _without_children(nodes, left, end)
    sampled = (left / chance.draws.last).argmax(-1)
    best = choices.gather(1, end)[:, 0]
    return Decision(path, count, torch.where(greedy, best, sampled))


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


def _accept_chosen(nodes: Nodes, p: Tensor, uniforms: Tensor) -> Tensor:
    """Children chosen without chance: accept x with what p gives it of what is left.

    After the older siblings were refused and taken out, 1 less their mass is left.
    p: [B, n + 1, V] -> [B, n] bool
    """
    own = _at_parents(nodes, p)  # [B, n]
    gone = (nodes.older_siblings() * own[:, None]).sum(-1)  # [B, n]
    return uniforms * (1 - gone) < own


def _at_parents(nodes: Nodes, p: Tensor) -> Tensor:
    """What p gives each node's token after its parent: [B, n + 1, V] -> [B, n]."""
    flat = nodes.parents * p.shape[-1] + nodes.tokens
    return p.flatten(1).gather(1, flat)


def _without_children(nodes: Nodes, left: Tensor, end: Tensor) -> Tensor:
    """p at the end of the path, less the children that were refused: [B, V]."""
    refused = (nodes.parents == end) & nodes.alive  # [B, n]
    # Added up, since a token may stand in the tree more than once.
    hits = torch.zeros_like(left).scatter_add(1, nodes.tokens, refused.to(left.dtype))
    rest = left.masked_fill(hits > 0, 0.0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, left)


def _accept_drawn(nodes: Nodes, p: Tensor, uniforms: Tensor) -> Tensor:
    """Children drawn from q without replacement: accept x with min(1, p(x) / q(x)).

    One rank after the other, for all parents at once. In p, [B, n + 1, V], the inner
    rows are replaced by what is left when all children were refused.
    Returns [B, n] bool.
    """
    drawn: Drawn = nodes.drawn
    left, q = p[:, drawn.inner], drawn.q  # [B, P, V]
    accepted = torch.zeros_like(nodes.alive)
    for family in drawn.families:
        there = nodes.alive[:, family.nodes]  # [B, F]
        token = nodes.tokens[:, family.nodes][:, :, None]
        now, from_q = left[:, family.rows], q[:, family.rows]  # [B, F, V]
        # In double precision, as the teaching engine's Python floats are.
        ratio = now.gather(2, token).double() / from_q.gather(2, token).double()
        hit = uniforms[:, family.nodes].double() < ratio[:, :, 0]
        accepted[:, family.nodes] = hit & there
        owed = _normalized((now - from_q).clamp(min=0), now)
        left[:, family.rows] = torch.where(there[:, :, None], owed, now)
        if (
            family is not drawn.families[-1]
        ):  # younger siblings were drawn from the rest
            rest = _normalized(from_q.scatter(2, token, 0.0), from_q)
            q = q.index_copy(1, family.rows, rest)
    p[:, drawn.inner] = left
    return accepted


def _normalized(mass: Tensor, otherwise: Tensor) -> Tensor:
    """Rows that sum to 1: [..., V]; `otherwise` where rounding left nothing."""
    total = mass.sum(-1, keepdim=True)
    return torch.where(total > 0, mass / total, otherwise)

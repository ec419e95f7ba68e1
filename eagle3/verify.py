"""Accept or resample on a tree: which path of a draft tree the target keeps.

The walk starts at the pending token. Among the children of the node it is at, it
accepts at most one and goes there; where it accepts none, the target's own token ends
the cycle. At temperature 0 a child is accepted if it is the target's own choice. Above
that there is one rule for both ways to draft children:

- children chosen without chance: child x is accepted with probability p(x); if not, x
  is taken out of p [Code: evaluate_posterior]
- children drawn from q without replacement: child x is accepted with probability
  min(1, p(x) / q(x)); if not, p becomes the residual norm(max(0, p - q)) and x is
  taken out of q [Code: branch v1 of EAGLE-1]

The first is the second with q = 1 at x. On a chain both are `verify_chain`. Either way
the tokens that come out are distributed as if the target had decoded alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from eagle3 import sampling
from eagle3.sampling import acceptance_probability, residual, sample
from eagle3.tree import ROOT, DraftTree


@dataclass(frozen=True)
class TreeDecision:
    """The outcome of verifying one tree.

    path: the accepted nodes, from the pending token down
    next_token: the target's own token that follows them
    kind: "replacement" where all children of the last node were refused, "bonus" where
        it had none
    """

    path: tuple[int, ...]
    next_token: int
    kind: Literal["replacement", "bonus"]

    @property
    def num_accepted(self) -> int:
        """How many drafted tokens the target keeps."""
        return len(self.path)


def verify_tree_greedy(tree: DraftTree, target_argmax: Tensor) -> TreeDecision:
    """Temperature 0: follow the target's own choices as far as the tree has them.

    target_argmax: [n + 1]  the target's best token after the pending token and after
        each node

    Raises ValueError where the lengths disagree. [Code: evaluate_posterior; where two
    siblings hold the same token, which a drafter has no reason to propose, the first
    is taken]
    """
    choices = target_argmax.tolist()
    _check_rows(tree, len(choices))
    node, path = ROOT, []
    while True:
        choice, children = choices[node + 1], tree.children[node]
        matches = [child for child in children if tree.tokens[child] == choice]
        if not matches:
            kind = "replacement" if children else "bonus"
            return TreeDecision(tuple(path), choice, kind)
        node = matches[0]
        path.append(node)


def verify_tree(
    tree: DraftTree, p: Sequence[Tensor] | Tensor, generator: torch.Generator
) -> TreeDecision:
    """Walk down the tree, accepting at most one child per node, without loss.

    p: n + 1 rows [V], the target's distribution after the pending token and after each
        node; only the rows on the walk are looked at
    generator: on p's device; n uniforms are drawn from it, then one token

    Raises ValueError for lengths that disagree, or a token that its q cannot draw.
    [Code: evaluate_posterior of both branches, see the top of this file]
    """
    _check_rows(tree, len(p))
    left = p[0]
    uniforms = sampling.uniforms(len(tree), left, generator)
    node, path = ROOT, []
    while True:
        child, left = _choose_child(tree, node, left, uniforms)
        if child is None:
            kind = "replacement" if tree.children[node] else "bonus"
            return TreeDecision(tuple(path), int(sample(left, generator)), kind)
        path.append(child)
        node, left = child, p[child + 1]


def _choose_child(
    tree: DraftTree, node: int, left: Tensor, uniforms: list[float]
) -> tuple[int | None, Tensor]:
    """The accepted child, or None and what is left of p to draw from: [V]."""
    children = tree.children[node]
    q = tree.probs[children[0]] if tree.probs is not None and children else None
    for child in children:
        token = tree.tokens[child]
        if q is None:
            if uniforms[child] < float(left[token]):
                return child, left
            left = _without(left, token)
        else:
            if uniforms[child] < acceptance_probability(left, q, token):
                return child, left
            left, q = residual(left, q), _without(q, token)
    return None, left


def _without(probs: Tensor, token: int) -> Tensor:
    """The distribution given that it is not this token; itself if nothing is left."""
    rest = probs.clone()
    rest[token] = 0
    total = rest.sum()
    return rest / total if bool(total > 0) else probs


def _check_rows(tree: DraftTree, rows: int) -> None:
    if rows != len(tree) + 1:
        raise ValueError(
            f"{len(tree)} drafted tokens came with {rows} rows of the target; pass one "
            "more row than there are drafted tokens."
        )

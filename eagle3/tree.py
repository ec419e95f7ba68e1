"""The draft tree: what a drafter proposes, and the mask under which it is verified.

Every method of the book proposes a tree of tokens that hangs on the pending token. A
chain is the tree with one branch, and vanilla decoding proposes the empty tree. Mask
and positions follow from the parents alone. [Paper, section 2.2; Code: cnets.py]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ROOT = -1  # the parent of tokens that follow the pending one


@dataclass(frozen=True)
class DraftTree:
    """n drafted tokens; the pending token is the root and not one of them.

    tokens: n target ids, parents before children, n may be 0
    parents: of each token the index of the one it follows, or -1 for the root
    probs: [n, V]  row i is the distribution q that token i and its siblings were
        drawn from, without replacement and in the order of their indices, on the
        target's device; None when all were chosen without chance

    Raises ValueError when parents are missing or come after their children.
    [Paper, section 2.2]
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(
                f"{len(self.tokens)} tokens came with {len(self.parents)} parents; "
                "name one parent for each."
            )
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(
                    f"node {node} has parent {parent}; a parent is an earlier node, "
                    "or -1 for the pending token."
                )

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Tensor | None = None) -> "DraftTree":
        """The tree with one branch: each token follows the one before.

        probs: [n, V]  what each was drawn from, or None
        """
        return cls(tuple(tokens), tuple(range(ROOT, len(tokens) - 1)), probs)

    def __len__(self) -> int:
        """n, the number of drafted tokens."""
        return len(self.tokens)

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """The nodes that follow each node and the root (-1), in order."""
        found: dict[int, list[int]] = {node: [] for node in range(ROOT, len(self))}
        for node, parent in enumerate(self.parents):
            found[parent].append(node)
        return {node: tuple(nodes) for node, nodes in found.items()}

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """How far each token lies behind the pending one: 1 for its children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def is_chain(self) -> bool:
        """Whether each token follows the one before; true of the empty tree."""
        return self.parents == tuple(range(ROOT, len(self) - 1))

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from below the root to this one, itself included."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def mask(self) -> Tensor:
        """What a token may attend to within the block that is verified.

        Returns [n + 1, n + 1] bool, True = may attend; row 0 is the pending token and
        row i + 1 is token i, which sees the pending token, its ancestors and itself.
        The sum of a row, less 1, is the token's distance from the pending one.
        """
        mask = torch.eye(len(self) + 1, dtype=torch.bool)
        mask[:, 0] = True
        for node, parent in enumerate(self.parents):
            mask[node + 1] |= mask[parent + 1]
        return mask


NOTHING = DraftTree((), ())

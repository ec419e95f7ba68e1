"""The tree grower's state: three knobs, the tree that comes of them, one chosen node.

Trees are grown by eagle3/growth.py and judged by eagle3/verify.py. [Ours]
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from eagle3.growth import DynamicTree
from eagle3.tree import DraftTree
from eagle3.verify import TreeDecision, verify_tree_greedy
from eagle3.widgets.forest import Place

MAX_BUDGET = 60
_ALL = 1_000_000


@dataclass(frozen=True)
class GrowerState:
    """A dynamic tree behind one token, with a row of its block chosen.

    places: name -> where trees can grow       place: the chosen one
    budget: rows of the verified block, the pending token included, 2 to 60
    depth: levels of drafted tokens            top_k: nodes expanded at each level
    row: the chosen row of the block; 0 is the pending token

    Raises ValueError where a knob is out of its range or the budget above the tree.
    """

    places: Mapping[str, Place]
    place: str = ""
    budget: int = 7
    depth: int = 3
    top_k: int = 2
    row: int = 0

    def __post_init__(self) -> None:
        if not self.place:
            object.__setattr__(self, "place", next(iter(self.places)))
        forest = self.at.forest
        limits = (
            ("The budget", self.budget, 2, MAX_BUDGET),
            ("The depth", self.depth, 1, forest.depth),
            ("Top-k", self.top_k, 1, forest.top_k),
        )
        for name, value, low, high in limits:
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; take {low} to {high}.")
        if self.budget - 1 > len(self.scored):
            raise ValueError(
                f"A budget of {self.budget} is above the tree: depth {self.depth} and "
                f"top-k {self.top_k} give {len(self.scored)} nodes; take at most "
                f"{len(self.scored) + 1}, or a larger tree first."
            )

    @property
    def at(self) -> Place:
        """The place where the tree grows."""
        return self.places[self.place]

    @cached_property
    def scored(self) -> DraftTree:
        """All nodes that were ever scored."""
        return self.at.forest.grow(DynamicTree(_ALL, self.depth, self.top_k))

    @cached_property
    def kept(self) -> DraftTree:
        """The tree that is verified: the best nodes of all."""
        return self.at.forest.grow(DynamicTree(self.budget, self.depth, self.top_k))

    @cached_property
    def decision(self) -> TreeDecision:
        """What the target keeps: it says the answer and nothing else."""
        # Behind a node of another text the target would say something else; the walk
        # never gets there.
        said = (*self.at.answer, *([-1] * (self.depth + 1)))
        choices = [said[depth] for depth in (0, *self.kept.depths)]
        return verify_tree_greedy(self.kept, torch.tensor(choices))

    def texts(self, tree: DraftTree) -> list[str]:
        """The nodes of a tree as texts."""
        return [self.at.decode(token) for token in tree.tokens]

    def confidences(self, tree: DraftTree) -> list[float]:
        """How sure the draft is of each node's path."""
        paths = self.token_paths(tree)
        return [self.at.forest.confidence(path) for path in paths]

    @staticmethod
    def token_paths(tree: DraftTree) -> list[tuple[int, ...]]:
        """Of each node the tokens from below the pending one down to it."""
        paths: list[tuple[int, ...]] = []
        for token, parent in zip(tree.tokens, tree.parents, strict=True):
            paths.append((*(paths[parent] if parent >= 0 else ()), token))
        return paths

    @property
    def sentence(self) -> str:
        """The picture in words."""
        hoped = 1 + sum(self.confidences(self.kept))
        path, texts = self.decision.path, self.texts(self.kept)
        said = ", ".join(f"'{texts[node]}'" for node in path) or "none of them"
        return (
            f"{len(self.scored)} nodes are scored in {self.depth} levels, the best "
            f"{len(self.kept)} are kept: a block of {len(self.kept) + 1} rows. The "
            f"draft hopes for {hoped:.2f} tokens; the target accepts {said} and adds "
            f"one: {len(path) + 1}. {self._row_words(texts)}"
        )

    def _row_words(self, texts: list[str]) -> str:
        if self.row == 0:
            return f"Row 0, '{self.at.pending}', is the pending token."
        node = self.row - 1
        seen = [self.at.pending, *(texts[step] for step in self.kept.path(node))]
        sure = self.at.forest.confidence(self.token_paths(self.kept)[node])
        return (
            f"Row {self.row}, '{texts[node]}', attends to {', '.join(seen)}; "
            f"confidence {sure:.2f}."
        )

    def changed(self, name: str, value: Any) -> "GrowerState":
        """The state after one knob was turned; the row stays where it can.

        Raises ValueError with a sentence for the reader.
        """
        if name == "row":
            return replace(self, row=value)
        moved = replace(self, row=0, **{name: value})
        return replace(moved, row=min(self.row, len(moved.kept)))

"""The official code's form of a tree, from ours and back.

It writes a tree as rows of node numbers, one for each leaf, from the pending token
(number 0) down, and fills up with -1: `retrieve_indices`. The same rows with tokens in
the place of numbers are `candidates`.
"""

from torch import Tensor

from eagle3.tree import ROOT, DraftTree


def retrieve_indices(tree: DraftTree) -> list[list[int]]:
    """The rows of a tree, in the order of its leaves."""
    leaves = [node for node in range(len(tree)) if not tree.children[node]]
    rows = [[0, *(node + 1 for node in tree.path(leaf))] for leaf in leaves]
    width = max(map(len, rows), default=1)
    return [row + [-1] * (width - len(row)) for row in rows] or [[0]]


def padding_last(row: list[int]) -> list[int]:
    """The sorting key that the official code has for rows when it samples."""
    return [1000 if number == -1 else number for number in row]


def tree_of_rows(candidates: Tensor) -> tuple[DraftTree, list[tuple[int, int]]]:
    """A tree from rows of tokens: candidates [rows, width], -1 pads.

    Returns the tree, its siblings in the order of the rows, and for the pending token
    and then each node a place (row, column) where it stands.
    """
    index: dict[tuple[int, ...], int] = {}
    tokens, parents, places = [], [], [(0, 0)]
    for column in range(1, candidates.shape[1]):  # level by level
        for row, line in enumerate(candidates.tolist()):
            path = tuple(line[1 : column + 1])
            if -1 in path or path in index:
                continue
            index[path] = len(tokens)
            tokens.append(path[-1])
            parents.append(index.get(path[:-1], ROOT))
            places.append((row, column))
    return DraftTree(tuple(tokens), tuple(parents)), places

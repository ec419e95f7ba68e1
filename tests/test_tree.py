"""The draft tree by itself: depths, paths, mask, and the engine's helpers around it.

Right values: EAGLE-1's buffers for its published tree (oracle), trees drawn by hand,
and for random trees the definition, spelled out the slow way.
"""

import oracles
import pytest
import torch
from tree_oracles import padding_last, retrieve_indices, tree_of_rows

from eagle3.drafters.base import Ancestry
from eagle3.masks import causal_mask
from eagle3.tree import NOTHING, ROOT, DraftTree

#      root
#     0    1
#    2 3    4
#    5
BUSH = DraftTree((10, 11, 12, 13, 14, 15), (-1, -1, 0, 0, 1, 2))


def random_tree(seed: int, size: int) -> DraftTree:
    generator = torch.Generator().manual_seed(seed)
    parents = [
        int(torch.randint(-1, node, (), generator=generator)) for node in range(size)
    ]
    return DraftTree(tuple(range(size)), tuple(parents))


def ancestors(tree: DraftTree, node: int) -> list[int]:
    """A node and those above it, by climbing, the root not included."""
    found = []
    while node >= 0:
        found.append(node)
        node = tree.parents[node]
    return found


def named_paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


RANDOM = [random_tree(seed, size) for seed, size in enumerate((1, 2, 5, 20, 60))]


def test_a_tree_by_hand():
    assert len(BUSH) == 6
    assert BUSH.depths == (1, 1, 2, 2, 2, 3)
    assert BUSH.children == {
        ROOT: (0, 1),
        0: (2, 3),
        1: (4,),
        2: (5,),
        3: (),
        4: (),
        5: (),
    }
    assert BUSH.path(5) == (0, 2, 5)
    assert BUSH.path(4) == (1, 4)
    assert BUSH.path(ROOT) == ()
    assert not BUSH.is_chain
    rows = ["1000000", "1100000", "1010000", "1101000", "1100100", "1010010", "1101001"]
    assert BUSH.mask().tolist() == [[sign == "1" for sign in row] for row in rows]


@pytest.mark.parametrize("tree", [NOTHING, BUSH, *RANDOM], ids=len)
def test_depths_paths_children_and_mask_follow_from_the_parents(tree):
    mask = tree.mask()
    assert mask.dtype == torch.bool and mask.shape == (len(tree) + 1,) * 2
    for node in range(len(tree)):
        chain = ancestors(tree, node)
        assert tree.path(node) == tuple(reversed(chain))
        assert tree.depths[node] == len(chain)
        seen = {other - 1 for other in mask[node + 1].nonzero().flatten().tolist()}
        assert seen == {ROOT, *chain}
        assert node in tree.children[tree.parents[node]]
    assert mask[0].tolist() == [True] + [False] * len(tree)
    assert sum(map(len, tree.children.values())) == len(tree)
    # Positions: the distance from the pending token.
    assert (mask.sum(-1) - 1).tolist() == [0, *tree.depths]


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_chain_is_the_tree_with_one_branch(length):
    chain = DraftTree.chain(list(range(20, 20 + length)))
    assert chain.tokens == tuple(range(20, 20 + length))
    assert chain.is_chain and chain.probs is None
    assert chain.depths == tuple(range(1, length + 1))
    assert torch.equal(chain.mask(), causal_mask(length + 1, length + 1))


def test_two_siblings_are_no_chain():
    assert not DraftTree((1, 2), (-1, -1)).is_chain
    assert DraftTree((1, 2), (-1, 0)).is_chain


@pytest.mark.parametrize(
    ("tokens", "parents", "told"),
    [
        ((1, 2), (-1,), "2 tokens came with 1 parents"),
        ((1,), (0,), "node 0 has parent 0"),
        ((1, 2), (1, -1), "node 0 has parent 1"),
        ((1, 2), (-1, -2), "node 1 has parent -2"),
        ((1, 2, 3), (-1, 0, 2), "node 2 has parent 2"),
    ],
)
def test_parents_that_make_no_tree_are_refused(tokens, parents, told):
    with pytest.raises(ValueError, match=told):
        DraftTree(tokens, parents)


def test_mask_and_positions_of_the_published_static_tree_are_the_official_ones():
    data = oracles.tensors("eagle1_static_tree_sampling")
    choices = oracles.meta("eagle1_static_tree_sampling")["choices"]
    index = {(): ROOT} | {tuple(choice): i for i, choice in enumerate(choices)}
    tree = DraftTree(
        tuple(range(25)), tuple(index[tuple(choice[:-1])] for choice in choices)
    )
    assert torch.equal(tree.mask().float(), data["tree_attn_mask"][0, 0])
    assert [0, *tree.depths] == data["tree_position_ids"].tolist()
    rows = sorted(retrieve_indices(tree), key=padding_last)
    assert rows == data["retrieve_indices"].tolist()


@pytest.mark.parametrize("tree", [BUSH, *RANDOM], ids=len)
def test_the_tests_own_rows_of_a_tree_lead_back_to_it(tree):
    rows = torch.tensor(retrieve_indices(tree))
    candidates = torch.tensor([95, *tree.tokens, -1])[rows]  # number -1 is the pad
    back, places = tree_of_rows(candidates)
    assert named_paths(back) == named_paths(tree)
    found = [int(candidates[place]) for place in places]
    assert found == [95, *back.tokens]


@pytest.mark.parametrize("tree", [BUSH, *RANDOM], ids=len)
def test_ancestry_sees_level_by_level_what_the_mask_tells(tree):
    """A drafter runs nodes in any grouping that has parents before children."""
    ancestry, done, seen = Ancestry(), 0, tree.mask()[1:, 1:]
    while done < len(tree):
        stop = done + 1  # as many as don't wait for one of their own group
        while stop < len(tree) and tree.parents[stop] < done:
            stop += 1
        rows = ancestry.extend(tree.parents[done:stop])
        assert torch.equal(rows, seen[done:stop, :stop])
        done = stop
    assert tuple(ancestry.depths) == tree.depths
    assert torch.equal(ancestry.visible, seen)

"""The target on a draft tree: each row is what its own path alone would give.

Right values: a plain pass over the text and that path, one for each node, by the
library's own forward; and for what stays in the cache, a plain pass over the text that
was kept.
"""

from dataclasses import replace

import pytest
import torch
from tiny import ROPES, library_says, tiny_model, tokens

from eagle3.target import Target, TargetOutput
from eagle3.tree import ROOT, DraftTree

NETWORKS = pytest.mark.parametrize("lean", [True, False], ids=["lean", "library"])
TEXT = 9  # committed tokens before the block


def random_tree(seed: int, size: int) -> DraftTree:
    draw = torch.Generator().manual_seed(seed)
    parents = [int(torch.randint(-1, i, (), generator=draw)) for i in range(size)]
    ids = torch.randint(120, (size,), generator=draw)
    return DraftTree(tuple(ids.tolist()), tuple(parents))


def new_target(lean: bool, rope: str = "plain") -> tuple[torch.nn.Module, Target]:
    model = tiny_model(rope_parameters=ROPES[rope])
    target = Target(model, lean=lean)
    assert target.is_lean == lean
    return model, target


def after_prefill(target: Target, spare: int):
    """The committed text, its cache, and the block's first token."""
    ids = tokens(1, TEXT + 1)
    cache = target.new_cache(TEXT + 1, spare=spare)
    target.forward(ids[:, :-1], cache)
    return ids, cache


def by_paths(model, target: Target, ids, tree: DraftTree) -> TargetOutput:
    """Row after row: the last position of a plain pass over text, pending and path."""
    rows = []
    for node in range(ROOT, len(tree)):
        path = [tree.tokens[step] for step in tree.path(node)]
        whole = torch.cat([ids, torch.tensor([path], dtype=torch.long)], dim=1)
        rows.append([part[:, -1:] for part in library_says(model, whole, target.taps)])
    return TargetOutput(*(torch.cat(parts, dim=1) for parts in zip(*rows, strict=True)))


def block_of(ids, tree: DraftTree):
    return torch.cat([ids[:, -1:], torch.tensor([tree.tokens], dtype=torch.long)], 1)


def assert_close(found: TargetOutput, right: TargetOutput) -> None:
    for name, value in vars(right).items():
        torch.testing.assert_close(getattr(found, name), value, atol=1e-4, rtol=0)


@NETWORKS
@pytest.mark.parametrize("rope", ROPES)
def test_each_row_is_what_its_own_path_gives(rope, lean):
    model, target = new_target(lean, rope)
    tree = random_tree(1, 14)
    assert max(tree.depths) > 3 and not tree.is_chain
    ids, cache = after_prefill(target, spare=14)
    output = target.forward(block_of(ids, tree), cache, tree_mask=tree.mask())
    assert_close(output, by_paths(model, target, ids, tree))
    assert cache.length == TEXT + 15


@NETWORKS
@pytest.mark.parametrize("first", [1, 4, 9])
def test_a_tree_in_two_passes_is_the_tree_in_one(first, lean):
    """The second pass says what its rows see of the `first` rows before, too."""
    model, target = new_target(lean)
    tree = random_tree(2, 14)
    ids, cache = after_prefill(target, spare=14)
    block, mask = block_of(ids, tree), tree.mask()
    one = target.forward(block[:, :first], cache, tree_mask=mask[:first, :first])
    two = target.forward(block[:, first:], cache, tree_mask=mask[first:])
    right = by_paths(model, target, ids, tree)
    assert_close(one, right.rows(range(first)))
    assert_close(two, right.rows(range(first, 15)))


@NETWORKS
def test_the_mask_of_a_chain_changes_nothing(lean):
    _, target = new_target(lean)
    tree = DraftTree.chain(range(5))
    ids, cache = after_prefill(target, spare=5)
    output = target.forward(block_of(ids, tree), cache, tree_mask=tree.mask())
    cache.rollback(6)
    assert_close(target.forward(block_of(ids, tree), cache), output)


@NETWORKS
@pytest.mark.parametrize("node", [ROOT, 0, 5, 9, 13])
def test_what_is_kept_of_a_tree_is_as_if_the_path_had_been_run(node, lean):
    """Keys and values of every layer, and the next pass over them."""
    _, target = new_target(lean)
    tree = random_tree(3, 14)
    ids, cache = after_prefill(target, spare=14)
    output = target.forward(block_of(ids, tree), cache, tree_mask=tree.mask())
    rows = [0, *(step + 1 for step in tree.path(node))]
    cache.keep(TEXT, rows)
    path = torch.tensor([[tree.tokens[step] for step in tree.path(node)]])
    whole = torch.cat([ids, path.long()], dim=1)
    plain = target.new_cache(whole.shape[1] + 1)
    right = target.forward(whole, plain)
    assert cache.length == plain.length == whole.shape[1]
    assert_close(output.rows(rows), right.rows(range(TEXT, whole.shape[1])))
    for found, wanted in zip(
        (*cache.keys, *cache.values), (*plain.keys, *plain.values), strict=True
    ):
        length = plain.length
        torch.testing.assert_close(
            found[:, :, :length], wanted[:, :, :length], atol=1e-4, rtol=0
        )
    next_ids = tokens(1, 1, seed=5)
    assert_close(target.forward(next_ids, cache), target.forward(next_ids, plain))


@NETWORKS
def test_a_tree_may_be_asked_for_its_last_row_alone(lean):
    _, target = new_target(lean)
    tree = random_tree(4, 6)
    ids, cache = after_prefill(target, spare=6)
    output = target.forward(block_of(ids, tree), cache, tree_mask=tree.mask())
    cache.rollback(7)
    last = target.forward(
        block_of(ids, tree), cache, tree_mask=tree.mask(), last_only=True
    )
    assert_close(last, replace(output, logits=output.logits[:, -1:]))


def test_siblings_stand_at_the_same_position_at_the_end_of_the_context():
    """A wide tree has more rows than positions are left."""
    model = tiny_model(max_position_embeddings=TEXT + 2)
    target = Target(model)
    tree = DraftTree(tuple(range(20)), (-1,) * 20)
    ids, cache = after_prefill(target, spare=20)
    output = target.forward(block_of(ids, tree), cache, tree_mask=tree.mask())
    assert_close(output, by_paths(model, target, ids, tree))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (4, 3), (4, 4 + TEXT + 1), (1, 4, 4)])
def test_a_mask_of_another_shape_is_refused_and_the_cache_left_alone(shape):
    _, target = new_target(True)
    _ids, cache = after_prefill(target, spare=20)
    block = tokens(1, 4)
    with pytest.raises(ValueError, match=r"tree_mask has the shape .* must have 4 row"):
        target.forward(block, cache, tree_mask=torch.ones(shape, dtype=torch.bool))
    assert cache.length == TEXT
    target.forward(block, cache, tree_mask=torch.ones(4, 4 + TEXT).tril(TEXT).bool())


def test_a_tree_is_refused_for_several_texts_and_with_padding():
    _, target = new_target(True)
    mask = torch.eye(4).bool()
    with pytest.raises(ValueError, match="batch of 1 without padding"):
        target.forward(tokens(2, 4), tree_mask=mask)
    padding = torch.ones(1, 4).bool()
    with pytest.raises(ValueError, match="no attention_mask"):
        target.forward(tokens(1, 4), attention_mask=padding, tree_mask=mask)


# ---- the output's rows


@pytest.mark.parametrize("index", [[], [0], [0, 1, 2], [0, 2, 5], [4], [5, 0]])
def test_rows_are_those_of_every_tensor(index):
    draw = torch.Generator().manual_seed(0)
    output = TargetOutput(*(torch.randn(1, 6, k, generator=draw) for k in (7, 12, 4)))
    for found, whole in zip(
        vars(output.rows(iter(index))).values(), vars(output).values(), strict=True
    ):
        wanted = [whole[:, row] for row in index]
        assert found.shape == (1, len(index), whole.shape[2])
        if wanted:
            assert torch.equal(found, torch.stack(wanted, dim=1))


def test_the_first_rows_are_no_copy():
    output = TargetOutput(*(torch.zeros(1, 6, 3) for _ in range(3)))
    assert output.rows([0, 1]).logits.data_ptr() == output.logits.data_ptr()

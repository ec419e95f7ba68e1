"""The parts of the batch engine against the plain form of each.

Masks, trees and decisions on the device have a slow twin in `eagle3.tree` and
`eagle3.verify`; a cache of slots has one in a dictionary of columns.
"""

import random

import pytest
import torch
from helpers import new_draft, toy, trained_draft
from test_gpu_engine import GROWTHS, drafter
from torch import Tensor

from eagle3.draft import DraftConfig
from eagle3.gpu import BatchEngine, Slots
from eagle3.gpu.accept import decide
from eagle3.gpu.cache import CacheSize, SlotCache, block_mask
from eagle3.gpu.draft import Branches, SlotDraft
from eagle3.gpu.draws import Draws, Filters, Needed, RowSampling
from eagle3.gpu.largest import largest
from eagle3.gpu.memory import memory_ledger
from eagle3.gpu.trees import Chance, DynamicGrowth, Nodes, closure
from eagle3.growth import DynamicTree, chain
from eagle3.sampling import SamplingParams, next_token_distribution
from eagle3.tree import DraftTree
from eagle3.verify import verify_tree, verify_tree_greedy

# The cache


def filled_cache() -> SlotCache:
    cache = SlotCache(CacheSize(2, 3, 2, 8, 4), torch.zeros(1))
    cache.store.copy_(torch.randn(cache.store.shape, generator=seeded(0)))
    return cache


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_block_is_written_where_each_slot_has_its_place():
    cache = filled_cache()
    before = cache.keys[1].clone(), cache.values[0].clone()
    columns = torch.tensor([[0, 1], [6, 7], [3, 5]])
    block = torch.randn(2, 3, 2, 2, 4, generator=seeded(1))
    cache.place(columns, 8)
    keys, values = cache.write(1, *block)
    wanted = before[0]
    for slot in range(3):
        wanted[slot][:, columns[slot]] = block[0, slot]
    assert torch.equal(keys, wanted)
    assert torch.equal(keys, cache.keys[1]) and torch.equal(values, cache.values[1])
    assert torch.equal(cache.values[0], before[1])  # another layer


def test_a_new_cache_is_all_zeros(monkeypatch):
    """Whatever is in memory: a masked column weighs 0, and 0 times NaN is NaN."""
    used = lambda *size, **kind: torch.full(size, torch.nan, **kind)  # noqa: E731
    monkeypatch.setattr(torch, "empty", used)
    assert not SlotCache(CacheSize(2, 3, 2, 8, 4), torch.zeros(1)).store.any()


def test_what_is_read_ends_at_the_span():
    cache = filled_cache()
    cache.place(torch.tensor([[0], [1], [2]]), 5)
    keys, _ = cache.write(0, *torch.zeros(2, 3, 2, 1, 4))
    assert torch.equal(keys, cache.keys[0][:, :, :5])


def test_columns_move_within_their_slots_even_where_they_overlap():
    cache = filled_cache()
    before = [buffer.clone() for buffer in (*cache.keys, *cache.values)]
    source = torch.tensor([[0, 2, 3], [1, 2, 3], [4, 7, 6]])
    destination = torch.tensor([[0, 1, 2], [1, 2, 3], [4, 5, 6]])
    cache.move(source, destination)
    for old, new in zip(before, (*cache.keys, *cache.values), strict=True):
        for slot in range(3):
            wanted = old[slot].clone()
            wanted[:, destination[slot]] = old[slot][:, source[slot]]
            assert torch.equal(new[slot], wanted)


def test_one_slot_is_an_ordinary_cache_on_the_same_memory():
    cache = filled_cache()
    view = cache.as_target_cache(1)
    keys, values = torch.randn(2, 1, 2, 3, 4, generator=seeded(2))
    view.write(1, keys, values)
    assert torch.equal(cache.keys[1][1, :, :3], keys[0])
    assert torch.equal(cache.values[1][1, :, :3], values[0])


def test_clearing_a_slot_leaves_the_others():
    cache = filled_cache()
    before = cache.keys[0].clone()
    cache.clear(1)
    assert not cache.keys[0][1].any() and not cache.values[1][1].any()
    assert torch.equal(cache.keys[0][[0, 2]], before[[0, 2]])


def test_a_block_sees_what_is_before_it_and_its_own_pattern():
    own = torch.tensor([[[1, 0], [1, 1]], [[1, 0], [0, 1]]]).bool()
    found = block_mask(own, torch.tensor([3, 0]), 6)
    wanted = torch.tensor(
        [
            [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]],
            [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]],
        ]
    ).bool()
    assert torch.equal(found, wanted)


# Trees


def random_trees(seed: int, count: int, nodes: int) -> list[DraftTree]:
    """Any shape, and siblings of different tokens, as all growths make them."""
    dice, trees = random.Random(seed), []
    for _ in range(count):
        parents = tuple(dice.randint(-1, node - 1) for node in range(nodes))
        # Each family takes its tokens from a shuffled vocabulary of its own.
        left = {parent: dice.sample(range(12), 12) for parent in set(parents)}
        trees.append(
            DraftTree(tuple(left[parent].pop() for parent in parents), parents)
        )
    return trees


def to_nodes(trees: list[DraftTree], alive: Tensor | None = None) -> Nodes:
    """The same trees as tensors, by way of their masks."""
    tokens = torch.tensor([tree.tokens for tree in trees])
    parents = torch.tensor([tree.parents for tree in trees]) + 1
    sees = torch.stack([tree.mask() for tree in trees])
    alive = torch.ones_like(tokens, dtype=torch.bool) if alive is None else alive
    return Nodes(tokens, parents, alive, sees, sees.sum(-1) - 1)


@pytest.mark.parametrize("seed", range(4))
def test_squaring_finds_all_ancestors(seed):
    trees = random_trees(seed, 5, 11)
    parents = torch.tensor([tree.parents for tree in trees]) + 1
    deepest = max(max(tree.depths) for tree in trees)
    wanted = torch.stack([tree.mask() for tree in trees])
    assert torch.equal(closure(parents, deepest), wanted)


@torch.no_grad()
def test_a_node_is_scored_as_its_path_alone_would_be():
    """By a plain pass over text and path, in two slots of different lengths.

    An untrained draft with large queries and keys: what it says depends a lot on where
    a row stands and on what it sees.
    """
    draft = new_draft(toy(), 48)
    draft.layer.q.weight *= 3
    draft.layer.k.weight *= 3
    lengths, unseen = torch.tensor([3, 8]), torch.tensor([1, 2])
    ids = torch.randint(96, (2, 9), generator=seeded(1))
    features = torch.randn(2, 9, draft.fc.in_features, generator=seeded(2))
    side, fresh = SlotDraft(draft, 2, 32), []
    for slot, start in enumerate((lengths - unseen).tolist()):
        side.prefill(slot, ids[slot, None, :start], features[slot, None, :start])
        fresh.append(slice(start, start + 2))  # the first slot's second row is padding
    last = side.catch_up(
        torch.stack([ids[slot, rows] for slot, rows in enumerate(fresh)]),
        torch.stack([features[slot, rows] for slot, rows in enumerate(fresh)]),
        unseen,
        lengths - unseen,
        32,
    )
    # Two levels: three children of the pending token, then two of the second child.
    tokens = torch.randint(96, (2, 5), generator=seeded(3))
    parents = torch.tensor([0, 0, 0, 2, 2]).expand(2, -1)
    branches = Branches(side, last, lengths, 32, 5)
    levels = [branches.run(tokens[:, :3], parents[:, :3])]
    levels.append(branches.run(tokens[:, 3:], parents[:, 3:]))
    found = torch.cat([branches.root_logits, *levels], dim=1)  # [2, 6, 48]
    for slot, length in enumerate(lengths.tolist()):
        for row, path in enumerate(([], [0], [1], [2], [1, 3], [1, 4])):
            x = draft.fuse(features[slot, None, :length])
            text = ids[slot, :length].tolist()
            for node in (*path, None):
                a = draft(torch.tensor([text]), x, torch.arange(len(text)))
                x = torch.cat([x, a[:, -1:]], dim=1)
                text += [] if node is None else [int(tokens[slot, node])]
            right = draft.logits(a)[0, -1]
            torch.testing.assert_close(found[slot, row], right, atol=2e-5, rtol=0)


class Peaked:
    """A draft that says the same after every node: 0, then 1, 2, 3 and the rest."""

    def __init__(self, batch: int) -> None:
        row = torch.tensor([9.0, 4.0, 3.0, 2.0] + [0.0] * 8)
        self.root_logits = row.expand(batch, 1, 12)

    def run(self, tokens: Tensor, parents: Tensor) -> Tensor:
        return self.root_logits.expand(-1, tokens.shape[1], -1)

    def to_target_ids(self, draft_ids: Tensor) -> Tensor:
        return draft_ids


def test_nodes_that_are_too_deep_take_no_place_of_others():
    """With room for one level it is filled, though a deep path is far more probable."""
    growth = DynamicGrowth(DynamicTree(6, 4, 4), 12, torch.device("cpu"))
    nodes = growth.grow(Peaked(2), torch.tensor([1, 4]), None)
    assert nodes.tokens[0, nodes.alive[0]].tolist() == [0, 1, 2, 3]
    assert nodes.parents[0, nodes.alive[0]].tolist() == [0] * 4
    assert nodes.alive[1].all() and nodes.depth[1].max() == 4


# The largest


@pytest.mark.parametrize("vocab", [96, 256, 1000, 1536, 97, 1])
def test_the_largest_is_found_where_it_first_stands(vocab):
    """Cut into blocks or not: as argmax, with ties, infinities and NaN."""
    scores = torch.randint(0, 9, (3, 5, vocab), generator=seeded(vocab)).float()
    scores[0, 0], scores[0, 1] = -torch.inf, -torch.inf
    scores[0, 1, vocab // 2] = -1e30
    scores[0, 2, vocab // 3] = torch.nan
    scores[0, 3, -1] = torch.inf
    best, index = largest(scores)
    assert torch.equal(index, scores.argmax(-1))
    wanted = scores.amax(-1)
    torch.testing.assert_close(best, wanted, rtol=0, atol=0, equal_nan=True)


# Decisions


@pytest.mark.parametrize("seed", range(6))
def test_greedy_decisions_are_those_of_the_walk(seed):
    trees = random_trees(seed, 40, 9)
    depth = max(max(tree.depths) for tree in trees)
    # Logits that agree with a node's token half of the time.
    logits = torch.randn(40, 10, 12, generator=seeded(seed))
    for i, tree in enumerate(trees):
        for node, parent in enumerate(tree.parents):
            logits[i, parent + 1, tree.tokens[node]] += 1.5
    decision = decide(to_nodes(trees), logits, depth, None)
    accepted = 0
    for i, tree in enumerate(trees):
        wanted = verify_tree_greedy(tree, logits[i].argmax(-1))
        rows = [0, *(node + 1 for node in wanted.path)]
        assert decision.path[i].tolist() == rows + [0] * (depth + 1 - len(rows))
        assert int(decision.num_accepted[i]) == len(wanted.path)
        assert int(decision.next_token[i]) == wanted.next_token
        accepted += len(wanted.path)
    assert accepted > 20


@pytest.mark.parametrize("seed", range(6))
def test_decisions_by_chance_are_those_of_the_walk(seed):
    """Same uniform numbers, same race: the same path and the same last token."""
    trees = random_trees(seed, 40, 9)
    depth = max(max(tree.depths) for tree in trees)
    logits = 2 * torch.randn(40, 10, 12, generator=seeded(seed))
    sampling = RowSampling(40, torch.device("cpu"))
    draws = Draws(torch.ones(40, 0, 12), torch.ones(40, 9), torch.ones(40, 12))
    for i in range(40):
        sampling.set(i, SamplingParams(1.0, seed=i))
        draws.fill(i, seeded(i), Needed((), 9))
    chance = Chance(sampling, Filters(0, False), draws)
    decision = decide(to_nodes(trees), logits, depth, chance)
    for i, tree in enumerate(trees):
        p = logits[i].softmax(-1)
        wanted = verify_tree(tree, p, seeded(i))
        assert int(decision.num_accepted[i]) == len(wanted.path)
        assert decision.path[i, 1 : len(wanted.path) + 1].tolist() == [
            node + 1 for node in wanted.path
        ]
        assert int(decision.next_token[i]) == wanted.next_token


def test_padding_is_never_accepted():
    tree = DraftTree((1, 2, 3), (-1, 0, 1))
    logits = torch.zeros(2, 4, 12)
    for row, token in enumerate((1, 2, 3, 4)):
        logits[:, row, token] = 9.0
    alive = torch.tensor([[True, True, True], [True, False, False]])
    decision = decide(to_nodes([tree, tree], alive), logits, 3, None)
    assert decision.num_accepted.tolist() == [3, 1]
    assert decision.next_token.tolist() == [4, 2]
    assert decision.path.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_any_row_that_is_no_number_is_told(row, value):
    tree = DraftTree((1, 2), (-1, 0))
    logits = torch.zeros(2, 3, 12)
    logits[1, row, 4] = value
    decision = decide(to_nodes([tree, tree]), logits, 2, None)
    assert decision.is_finite.tolist() == [True, False]


def test_each_row_has_its_own_temperature_and_filters():
    params = [
        SamplingParams(0.7),
        SamplingParams(1.5, top_k=3),
        SamplingParams(1.0, top_p=0.6),
        SamplingParams(0.9, top_k=20, top_p=0.9),
        SamplingParams(1.0, top_k=500),
        SamplingParams(),
    ]
    sampling = RowSampling(len(params), torch.device("cpu"))
    for slot, one in enumerate(params):
        sampling.set(slot, one)
    filters = sampling.filters(range(len(params)))
    assert filters == Filters(512, True)
    assert sampling.filters([1]) == Filters(4, False)
    assert sampling.filters([5]) is None
    assert sampling.filters([0, 5]) == Filters(0, False)
    logits = 3 * torch.randn(len(params), 4, 40, generator=seeded(3))
    found = sampling.distributions(logits, filters)
    for slot, one in enumerate(params[:-1]):
        wanted = next_token_distribution(logits[slot], one)
        torch.testing.assert_close(found[slot], wanted, rtol=1e-6, atol=0)
        assert torch.equal(found[slot] > 0, wanted > 0)
    one = sampling.of(1).distributions(logits[1:2], filters)
    assert torch.equal(one[0], found[1])


# The ledger


def test_the_ledger_counts_what_the_tensors_take():
    """Every entry against the tensors themselves, or those that a pass makes."""
    growth, slots = GROWTHS["dynamic"], Slots(3, 50)
    draft, engine = trained_draft(), BatchEngine(toy(), drafter("dynamic"), slots)
    ledger = memory_ledger(toy().config, draft.config, growth, slots)
    assert ledger.draft_weights == nbytes(*draft.parameters())
    caches = nbytes(engine.cache.store, engine.draft.cache.store)
    assert ledger.target_kv + ledger.draft_kv + ledger.draft_positions == caches
    share = slots.length / engine.cache.size.length
    assert ledger.target_kv == nbytes(engine.cache.store) * share
    assert ledger.draft_kv == nbytes(engine.draft.cache.store) * share
    outputs, forward = [], toy().forward_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy(), "forward_at", lambda *a: keep(outputs, forward(*a)))
        engine.submit(request_of(1.0))
        engine.step()
    assert ledger.features == nbytes(engine.state.features, outputs[0].features)
    assert ledger.logits == nbytes(outputs[0].logits)
    p = outputs[0].logits.float()
    assert ledger.sampling == nbytes(p, *vars(engine.draws).values())


def test_the_ledger_counts_the_q_of_drawn_children():
    slots = Slots(2, 50)
    ledger = memory_ledger(toy().config, trained_draft().config, chain(3), slots)
    # Four rows of p and three of q in float32, three races and one over 96 tokens, and
    # three uniform numbers.
    assert ledger.sampling == 4 * 2 * (4 * 96 + 3 * 96 + 3 * 96 + 96 + 3)


def request_of(temperature: float):
    from helpers import request

    return request((1, 2, 3), 10, sampling=SamplingParams(temperature, seed=1))


def keep(outputs: list, output):
    outputs.append(output)
    return output


def nbytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("tied", [True, False])
def test_the_ledger_counts_a_targets_weights(tied):
    from tiny import tiny_model

    model = tiny_model(tie_word_embeddings=tied)
    ledger = memory_ledger(model.config, dtype=torch.bfloat16)
    assert ledger.target_weights == nbytes(*model.parameters()) // 2
    assert ledger.draft_weights == ledger.draft_kv == 0
    assert ledger.sampling == 4 * 8 * (120 + 120)


def test_the_ledger_of_an_8b_target():
    """Llama-3.1-8B has 8,030,261,248 weights; its tokens take 128 KiB each in bf16."""
    hf = {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
    }
    draft = DraftConfig.for_target(hf, 32000, (2, 16, 29))
    growth, slots = DynamicTree(), Slots(4, 2048)
    ledger = memory_ledger(hf, draft, growth, slots, torch.bfloat16)
    assert ledger.target_weights == 2 * 8_030_261_248
    assert ledger.target_kv == 4 * 2048 * 128 * 1024
    assert ledger.draft_kv * 32 == ledger.target_kv  # one layer to its 32
    lines = ledger.lines()
    assert lines[2].split() == ["target", "kv", "1,024.0", "MiB"]
    assert lines[-1].split()[0] == "total" and len(lines) == 10


def test_a_ledger_needs_draft_and_growth_together():
    with pytest.raises(ValueError, match="give both"):
        memory_ledger(toy().config, trained_draft().config)

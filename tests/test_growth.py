"""How trees grow: the official trees node for node, and twins that take the long way.

A growth is shown a draft whose answers depend on the whole path to a token, so that a
wrong parent, row or level gives another tree.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import oracles
import pytest
import scipy.stats
import torch
from tree_oracles import padding_last, retrieve_indices

from eagle3.drafters import EagleDrafter
from eagle3.growth import MAX_CHAIN_LENGTH, DynamicTree, StaticTree, chain
from eagle3.sampling import SamplingParams, next_token_distribution
from eagle3.target import Target, TargetOutput
from eagle3.tree import DraftTree

GREEDY, WARM = SamplingParams(), SamplingParams(1.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- the official trees


def official_trees(folder: str, draft, growth, features_name="features"):
    """Our tree and the official tensors of each cycle in a folder."""
    data, drafter = (
        oracles.tensors(folder),
        EagleDrafter(Target(oracles.target_model()), draft, growth),
    )
    drafter.start(200)
    cycles = sorted({name.split(".")[0] for name in data if "." in name})
    for prefix in [f"{cycle}." for cycle in cycles] or [""]:
        wanted = {
            name.removeprefix(prefix): tensor
            for name, tensor in data.items()
            if name.startswith(prefix)
        }
        ids, features = wanted["input_ids"][0].tolist(), wanted["features"]
        known = len(ids) - 1 - features.shape[1]
        assert drafter.cache_length == known
        output = TargetOutput(features[:, :0], features, features)
        drafter.observe(ids[known:-1], output)
        yield drafter.propose(ids[-1], 100, GREEDY, generator()), wanted


def assert_same_tree(tree: DraftTree, official: dict, sort_rows: bool) -> None:
    _root, *tokens = official["draft_tokens"][0].tolist()
    assert list(tree.tokens) == tokens
    assert torch.equal(tree.mask().float(), official["tree_mask"][0, 0].float())
    assert [0, *tree.depths] == official["tree_position_ids"].tolist()
    rows = retrieve_indices(tree)
    if sort_rows:
        rows = sorted(rows, key=padding_last)
    assert rows == official["retrieve_indices"].tolist()


@pytest.mark.parametrize(
    "folder",
    ["tree_default_greedy", "tree_small_greedy", "tree_small_sampling", "tree_chain"],
)
def test_the_dynamic_tree_is_the_official_one_node_for_node(folder):
    meta = oracles.meta(folder)
    # The code's depth counts the passes after catch-up, ours the levels of tokens.
    growth = DynamicTree(meta["total_token"], meta["depth"] + 1, meta["top_k"])
    draft = oracles.official_draft(oracles.ROPES["draft_forward_theta10000"])
    sampling = meta["logits_processor"] != "None (greedy)"
    count = 0
    for tree, official in official_trees(folder, draft, growth):
        assert_same_tree(tree, official, sort_rows=sampling)
        count += 1
    assert count == 2


def test_eagle2_is_the_same_tree_on_the_draft_of_eagle1():
    meta = oracles.meta("eagle2_tree_on_eagle1_draft")
    growth = DynamicTree(meta["total_token"], meta["depth"] + 1, meta["top_k"])
    draft = oracles.official_eagle1_draft()
    found = list(official_trees("eagle2_tree_on_eagle1_draft", draft, growth))
    assert len(found) == 1
    assert_same_tree(*found[0], sort_rows=False)


def test_the_static_tree_of_eagle1_has_the_official_buffers():
    """Order of nodes, rows, and which nodes are run: 4, 4, 1 and 1 of its 25."""
    meta = oracles.meta("eagle1_static_tree_sampling")
    data = oracles.tensors("eagle1_static_tree_sampling")
    growth = StaticTree(tuple(map(tuple, meta["choices"])))
    assert list(map(list, growth.paths)) == meta["choices"]
    runner = PathRunner(vocab=20)
    tree = growth.grow(runner, 100, GREEDY, generator())
    assert [0, *tree.depths] == data["tree_position_ids"].tolist()
    assert torch.equal(tree.mask().float(), data["tree_attn_mask"][0, 0])
    rows = sorted(retrieve_indices(tree), key=padding_last)
    assert rows == data["retrieve_indices"].tolist()
    official = [len(data[f"draft.level{level}.tree_indices"]) for level in range(4)]
    assert runner.sizes == official == [4, 4, 1, 1]
    assert growth.max_rows == sum(official) and growth.max_nodes == 25


# ------------------------------------------------------------ a draft that knows paths


@cache
def path_logits(path: tuple[int, ...], vocab: int) -> torch.Tensor:
    seed = 1
    for token in path:
        seed = (seed * 1_000_003 + token + 1) % 2**61
    drawn = torch.randn(64 + vocab, generator=generator(seed))
    return drawn[64:]  # the first ones are alike for like seeds


@dataclass
class PathRunner:
    """A runner whose scores after a node depend on every token up to it.

    Draft token i stands for target id 100 + i.
    """

    vocab: int
    spread: float = 2.0
    paths: list[tuple[int, ...]] = field(default_factory=list)  # of each row run
    sizes: list[int] = field(default_factory=list)  # rows of each pass

    def __post_init__(self) -> None:
        self.root_logits = self.logits(())[None]

    def logits(self, path: tuple[int, ...]) -> torch.Tensor:
        return path_logits(path, self.vocab) * self.spread

    def run(self, tokens, parents) -> torch.Tensor:
        known = list(self.paths)
        for token, parent in zip(tokens.tolist(), parents, strict=True):
            assert -1 <= parent < len(known)  # never a row of the same pass
            before = () if parent == -1 else known[parent]
            self.paths.append((*before, token - 100))
        self.sizes.append(len(tokens))
        return torch.stack([self.logits(path) for path in self.paths[len(known) :]])

    def to_target_ids(self, draft_ids) -> torch.Tensor:
        return draft_ids + 100

    def to_target_vocab(self, probs) -> torch.Tensor:
        full = probs.new_zeros(*probs.shape[:-1], 100 + self.vocab)
        full[..., 100:] = probs
        return full


def paths_of(tree: DraftTree) -> list[tuple[int, ...]]:
    """Draft tokens from below the root to each node."""
    return [
        tuple(tree.tokens[i] - 100 for i in tree.path(node))
        for node in range(len(tree))
    ]


# ------------------------------------------------------------------- dynamic trees


def every_path(runner: PathRunner, depth: int) -> dict[tuple[int, ...], float]:
    """The log-probability of every path of up to `depth` tokens."""
    found: dict[tuple[int, ...], float] = {(): 0.0}
    for length in range(depth):
        for path in [path for path in found if len(path) == length]:
            log_q = runner.logits(path).log_softmax(-1).tolist()
            for token, own in enumerate(log_q):
                found[*path, token] = found[path] + own
    del found[()]
    return found


@pytest.mark.parametrize("total", [2, 5, 17, 39, 80])
def test_a_wide_enough_tree_holds_the_most_probable_of_all_paths(total):
    """With top_k as large as a level, nothing is cut off before the end."""
    vocab, depth = 3, 3
    runner = PathRunner(vocab)
    growth = DynamicTree(total, depth, top_k=vocab**depth)
    tree = growth.grow(runner, 100, WARM, generator())
    scores = every_path(runner, depth)
    best = sorted(scores, key=scores.get, reverse=True)[: total - 1]
    assert sorted(paths_of(tree)) == sorted(best)
    assert sum(runner.sizes) == vocab + vocab**2 <= growth.max_rows


def beam(runner: PathRunner, growth: DynamicTree, depth: int) -> set[tuple[int, ...]]:
    """The published algorithm on paths instead of tensors."""
    scored, frontier = {}, [((), 0.0)]
    for _ in range(depth):
        level = {}
        for path, score in frontier:
            log_q = runner.logits(path).log_softmax(-1).tolist()
            order = sorted(range(len(log_q)), key=lambda i: -log_q[i])
            for token in order[: growth.top_k]:
                level[*path, token] = score + log_q[token]
        scored |= level
        frontier = sorted(level.items(), key=lambda item: -item[1])[: growth.top_k]
    return set(sorted(scored, key=scored.get, reverse=True)[: growth.total_tokens - 1])


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("total", "depth", "top_k"),
    [(60, 8, 10), (16, 4, 4), (8, 5, 1), (30, 3, 30), (200, 3, 5), (2, 6, 3)],
)
def test_the_tree_is_that_of_a_beam_search_on_paths(total, depth, top_k, limit):
    runner, growth = PathRunner(vocab=12), DynamicTree(total, depth, top_k)
    tree = growth.grow(runner, limit, GREEDY, generator())
    levels = min(limit, depth)
    assert set(paths_of(tree)) == beam(runner, growth, levels)
    assert len(tree) == len(set(paths_of(tree))) <= growth.max_nodes
    assert tree.probs is None
    assert max(tree.depths) <= levels
    assert len(runner.sizes) == levels - 1  # no level is run whose children don't count
    assert sum(runner.sizes) <= growth.max_rows


def test_siblings_stand_best_first():
    runner = PathRunner(vocab=12)
    tree = DynamicTree(60, 4, 6).grow(runner, 9, GREEDY, generator())
    paths = paths_of(tree)
    for node, children in tree.children.items():
        logits = runner.logits(() if node == -1 else paths[node])
        own = [float(logits[paths[child][-1]]) for child in children]
        assert own == sorted(own, reverse=True)


def test_a_dynamic_tree_does_not_look_at_temperature_or_seed():
    trees = {
        (tree.tokens, tree.parents)
        for params, seed in ((GREEDY, 0), (WARM, 1), (SamplingParams(0.5, top_k=2), 2))
        for tree in [
            DynamicTree(20, 4, 4).grow(PathRunner(9), 9, params, generator(seed))
        ]
    }
    assert len(trees) == 1


def test_where_all_scores_tie_what_is_kept_hangs_together():
    """A child can't be above its parent; equal to it, the parent must come first."""
    runner = PathRunner(vocab=2, spread=0.0)
    runner.logits = lambda path: torch.tensor([0.0, -math.inf])
    runner.root_logits = runner.logits(())[None]
    for total in range(2, 6):
        tree = DynamicTree(total, 4, 2).grow(runner, 9, GREEDY, generator())
        assert paths_of(tree)[:4] == [(0,) * n for n in range(1, total)][:4]


@pytest.mark.parametrize(
    ("name", "value"),
    [("total_tokens", 1), ("depth", 0), ("top_k", 0), ("depth", 1.5), ("top_k", -1)],
)
def test_a_dynamic_tree_with_nothing_to_draft_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} of a dynamic tree is {value}; take"):
        DynamicTree(**{name: value})


# -------------------------------------------------------------------- static trees

PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 0), (0, 1, 1))


def best_first(runner: PathRunner, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens that a path of ranks names."""
    path = ()
    for rank in ranks:
        order = runner.logits(path).sort(descending=True, stable=True).indices
        path = (*path, int(order[rank]))
    return path


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("children", "params"), [("sampled", GREEDY), ("best", GREEDY), ("best", WARM)]
)
def test_a_static_tree_takes_the_best_tokens_by_rank(children, params, limit):
    runner = PathRunner(vocab=9)
    tree = StaticTree(PATHS, children).grow(runner, limit, params, generator())
    wanted = [best_first(runner, ranks) for ranks in PATHS if len(ranks) <= limit]
    assert paths_of(tree) == wanted
    assert tree.probs is None
    assert runner.sizes == [2, 2][: limit - 1]  # only nodes with children are run


def test_any_order_of_paths_and_a_path_twice_make_the_same_tree():
    assert StaticTree((*PATHS[::-1], PATHS[3])) == StaticTree(PATHS)
    assert StaticTree(PATHS).depth == 3
    assert [len(level) for level in StaticTree(PATHS).levels] == [3, 3, 3]


@pytest.mark.parametrize(
    "paths",
    [
        ((0, 0),),  # no parent
        ((0,), (2,)),  # a rank is left out
        ((1,),),
        ((0,), ()),
        ((0,), (-1,)),
        ((0,), (0, 0, 0)),
        (),
    ],
)
def test_paths_that_make_no_static_tree_are_refused(paths):
    with pytest.raises(ValueError, match="static tree"):
        StaticTree(paths)


def test_children_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="'sampled' or 'best', not 'random'"):
        StaticTree(PATHS, "random")


@pytest.mark.parametrize("length", [1, 4, MAX_CHAIN_LENGTH])
def test_a_chain_is_a_static_tree_with_one_branch(length):
    runner = PathRunner(vocab=5)
    tree = chain(length).grow(runner, 100, WARM, generator())
    assert tree.is_chain and len(tree) == length
    assert runner.sizes == [1] * (length - 1)
    assert tree.probs.shape == (length, 105)


# ------------------------------------------------- children drawn without replacement


@pytest.mark.parametrize(
    "params", [WARM, SamplingParams(0.7, top_p=0.9), SamplingParams(1.2, top_k=3)]
)
def test_each_row_of_probs_is_what_the_draft_says_after_the_parent(params):
    for seed in range(20):
        runner = PathRunner(vocab=9)
        growth = chain(5) if seed % 4 == 0 else StaticTree(PATHS)
        tree = growth.grow(runner, 9, params, generator(seed))
        paths = paths_of(tree)
        for node, path in enumerate(paths):
            q = next_token_distribution(runner.logits(path[:-1]), params)
            torch.testing.assert_close(tree.probs[node], runner.to_target_vocab(q))
            assert q[path[-1]] > 0  # every token can have been drawn
        assert len(set(paths)) == len(paths)  # and no sibling twice


def test_where_q_has_fewer_tokens_than_children_were_asked_for_they_are_left_out():
    """top_k 2 leaves two tokens, the third child and all below it don't exist."""
    paths = (*PATHS, (2, 0), (2, 0, 0))
    for seed in range(10):
        runner = PathRunner(vocab=9)
        params = SamplingParams(1.0, top_k=2)
        tree = StaticTree(paths).grow(runner, 9, params, generator(seed))
        assert tree.depths == (1, 1, 2, 2, 2, 3, 3, 3)
    one = StaticTree(paths).grow(
        PathRunner(9), 9, SamplingParams(1.0, top_k=1), generator()
    )
    assert one.is_chain and len(one) == 3


def test_a_vocabulary_smaller_than_the_tree_is_wide_limits_it():
    for growth in (StaticTree(PATHS), DynamicTree(30, 3, 10)):
        for params in (GREEDY, WARM):
            tree = growth.grow(PathRunner(vocab=2), 9, params, generator())
            assert len(tree.children[-1]) == 2


def test_pairs_of_siblings_come_as_often_as_two_draws_without_replacement():
    """P(x, y) = q(x) q(y) / (1 - q(x)), at the root and below the first child."""
    growth = StaticTree(((0,), (1,), (0, 0), (0, 1)))
    draw, runs = generator(3), 4_000
    counts = {(): Counter()} | {(token,): Counter() for token in range(4)}
    for _ in range(runs):
        tree = growth.grow(PathRunner(4, spread=0.7), 9, WARM, draw)
        a, b, c, d = (token - 100 for token in tree.tokens)
        counts[()][a, b] += 1
        counts[a,][c, d] += 1
    for path, found in counts.items():
        q = (0.7 * path_logits(path, 4)).softmax(-1).double().tolist()
        pairs = list(itertools.permutations(range(4), 2))
        law = [q[x] * q[y] / (1 - q[x]) for x, y in pairs]
        wanted = [found.total() * chance / sum(law) for chance in law]
        observed = [found[pair] for pair in pairs]
        assert min(wanted) > 5
        assert scipy.stats.chisquare(observed, wanted).pvalue > 1e-3


def test_a_seed_fixes_the_draws_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    trees = [
        StaticTree(PATHS).grow(PathRunner(30), 9, WARM, generator(seed)).tokens
        for seed in (1, 1, 2)
    ]
    assert trees[0] == trees[1] != trees[2]
    assert torch.equal(before, torch.get_rng_state())

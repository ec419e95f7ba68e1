"""At temperature 1 trees keep the target's distribution, under both rules.

As in test_distribution.py, counts of two consecutive tokens on the toy target are held
against the product of the target's own conditional distributions: chi-square and total
variation. Here a tree of two levels decides about them, 200,000 times for each rule,
children without chance (the draft's best tokens) and children drawn without
replacement, and for each of two settings.

What makes 800,000 decisions affordable: what is a function of the text alone is
remembered, trees are drawn thousands at a time, and each is judged without the rest
of the engine's cycle. Smaller tests run whole cycles, the real growth and the real
drafter.
"""

import copy
import math
from collections import Counter
from dataclasses import replace
from functools import cache, cached_property

import helpers
import pytest
import torch
from helpers import PROMPT, request, toy
from test_distribution import COUNT, TARGET, RememberingDrafter, RememberingTarget
from test_distribution import judge as judged

from eagle3 import engine as engine_module
from eagle3.cache import KVCache
from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine
from eagle3.growth import DynamicTree, StaticTree
from eagle3.sampling import SamplingParams, next_token_distribution, sample
from eagle3.target import TargetOutput
from eagle3.tree import DraftTree
from eagle3.verify import TreeDecision, verify_tree

PATHS = ((0,), (1,), (0, 0), (0, 1), (1, 0))
PARENTS = (-1, -1, 0, 0, 1)
PLAIN = SamplingParams(1.0, top_k=4)
NUCLEUS = SamplingParams(1.0, top_k=8, top_p=0.9)
SETTINGS = {"temperature 1": PLAIN, "top_p 0.9": NUCLEUS}


class RememberingTreeTarget(RememberingTarget):
    """The toy target, asked once for each text, that verifies trees.

    Its cache holds tokens in the place of keys.
    """

    def __init__(self):
        super().__init__()
        self.rows = TARGET.rows
        self.passes: dict[tuple, TargetOutput] = {}
        self.known: dict[tuple, torch.Tensor] = {}

    def new_cache(self, max_length: int, spare: int = 0) -> KVCache:
        return KVCache(1, max_length + spare)

    def forward(
        self, input_ids, cache, last_only=False, tree_mask=None
    ) -> TargetOutput:
        block = input_ids[:, None, :, None]  # [1, 1, n, 1] like keys
        tokens, _ = cache.write(0, block, block)
        seen = cache.length
        text = tuple(tokens.flatten().tolist())
        cache.advance(input_ids.shape[1])
        shape = last_only if tree_mask is None else tree_mask.numpy().tobytes()
        if (seen, text, shape) not in self.passes:
            self.passes[seen, text, shape] = self._run(seen, text, last_only, tree_mask)
        return self.passes[seen, text, shape]

    def p(self, text: tuple[int, ...], params: SamplingParams) -> torch.Tensor:
        """The distribution of the token after a text: [V]."""
        if (text, params) not in self.known:
            self.known[text, params] = next_token_distribution(self.row(text), params)
        return self.known[text, params]

    def after(self, text, tree: DraftTree, params) -> list[torch.Tensor]:
        """The distributions after a text and after each node of the tree behind it."""
        ends = [tree.path(node) for node in range(-1, len(tree))]
        return [self.p((*text, *(tree.tokens[i] for i in end)), params) for end in ends]

    def _run(self, seen, text, last_only, tree_mask) -> TargetOutput:
        before, block = text[:seen], text[seen:]
        causal = torch.ones(len(block), len(block)).tril().bool()
        mask = causal if tree_mask is None else tree_mask
        texts = [
            (*before, *(block[i] for i in row.nonzero().flatten().tolist()))
            for row in mask
        ]
        kept = texts[-1:] if last_only else texts
        logits = torch.stack([self.row(text) for text in kept])
        nothing = torch.empty(1, len(block), 0)
        return TargetOutput(logits[None], nothing, nothing)


class RememberedTree(DraftTree):
    """A tree that is proposed many times: its mask is made once."""

    @cached_property
    def _mask(self) -> torch.Tensor:
        return super().mask()

    def mask(self) -> torch.Tensor:
        return self._mask


class BestDrafter(RememberingDrafter):
    """The draft's best tokens on a static tree, without chance."""

    def __init__(self):
        super().__init__(helpers.trained_draft(), 2)
        self.max_nodes = len(PATHS)
        self.made: dict[tuple, RememberedTree] = {}

    def propose(self, pending, limit, params, generator) -> DraftTree:
        real = (*self.seen, pending)
        tokens = self.tokens(real, min(limit, 2), params, generator)
        if (real, tokens) not in self.made:
            self.made[real, tokens] = self.tree(real, tokens, params)
        return self.made[real, tokens]

    def tokens(self, real, limit, params, generator) -> tuple[int, ...]:
        """Those of PATHS, or of its first level."""
        a, b = self.q(real, (), params).topk(2).indices.tolist()
        if limit == 1:
            return a, b
        below = [self.q(real, (x,), params).topk(2).indices.tolist() for x in (a, b)]
        return a, b, *below[0], below[1][0]

    def tree(self, real, tokens, params) -> RememberedTree:
        return RememberedTree(tokens, PARENTS[: len(tokens)])


class DrawnDrafter(BestDrafter):
    """Siblings drawn from q without replacement, on the same tree."""

    BULK = 5_000

    def start(self, max_length: int) -> None:
        super().start(max_length)
        self.pools: dict[tuple, list] = {}

    def tokens(self, real, limit, params, generator) -> tuple[int, ...]:
        pool = self.pools.setdefault((real, limit), [])
        if not pool:
            pool += self._drawn(real, limit, params, generator)
        return pool.pop()

    def _drawn(self, real, limit, params, generator) -> list[tuple[int, ...]]:
        pairs = self._pairs(real, (), params, self.BULK, generator)
        if limit == 1:
            return pairs
        count = Counter(token for pair in pairs for token in pair)
        below = {
            token: self._pairs(real, (token,), params, number, generator)
            for token, number in count.items()
        }
        return [(a, b, *below[a].pop(), below[b].pop()[0]) for a, b in pairs]

    def _pairs(self, real, drafted, params, number, generator) -> list:
        q = self.q(real, drafted, params)
        race = torch.empty(number, len(q)).exponential_(generator=generator)
        return list(map(tuple, (q / race).topk(2).indices.tolist()))

    def tree(self, real, tokens, params) -> RememberedTree:
        drafted = [(), (), tokens[:1], tokens[:1], tokens[1:2]][: len(tokens)]
        q = torch.stack([self.q(real, path, params) for path in drafted])
        own = q.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
        # Where q has one token alone there is no second child, and nothing below it.
        kept = [i for i, chance in enumerate(own) if chance > 0]
        kept = [i for i in kept if PARENTS[i] in (-1, *kept)]
        index = {-1: -1} | {node: number for number, node in enumerate(kept)}
        return RememberedTree(
            tuple(tokens[i] for i in kept),
            tuple(index[PARENTS[i]] for i in kept),
            q[kept],
        )


RULES = {"without chance": BestDrafter, "drawn": DrawnDrafter}
TREE_TARGET = RememberingTreeTarget()


@cache
def distribution(row: bytes, params: SamplingParams) -> torch.Tensor:
    logits = torch.frombuffer(bytearray(row), dtype=torch.float32)
    return next_token_distribution(logits, params)


@pytest.fixture
def remembered_rows(monkeypatch):
    """The engine's softmax is a function of the row: computed once for each."""
    monkeypatch.setattr(
        engine_module,
        "next_token_distribution",
        lambda row, params: distribution(row.numpy().tobytes(), params),
    )


def fresh_engine(drafter, params: SamplingParams, target=TREE_TARGET) -> Engine:
    """An engine behind its prefill."""
    engine = Engine(target, drafter, request(PROMPT, COUNT, sampling=params))
    next(engine.cycles())
    return engine


@torch.inference_mode()
def decided(drafter, params: SamplingParams, runs: int, judge=verify_tree):
    """Counts of an answer's first three tokens, and drafted tokens kept per tree.

    Two-level trees are proposed and judged, without the rest of the engine's cycle;
    where that gives one token, the target goes on alone.
    """
    engine = fresh_engine(drafter, params)
    first, draw = engine.emitted[0], engine.generator
    counts, accepted, rows = Counter(), 0, {}
    for _ in range(runs):
        tree = drafter.propose(first, 2, params, draw)
        if id(tree) not in rows:  # the drafter keeps its trees
            rows[id(tree)] = TREE_TARGET.after((*PROMPT, first), tree, params)
        decision = judge(tree, rows[id(tree)], draw)
        accepted += len(decision.path)
        found = [*(tree.tokens[node] for node in decision.path), decision.next_token]
        if len(found) == 1:
            p = TREE_TARGET.p((*PROMPT, first, *found), params)
            found.append(int(sample(p, draw)))
        counts[first, found[0], found[1]] += 1
    return counts, accepted / runs


def counted(drafter, params: SamplingParams, runs: int, target=TREE_TARGET) -> Counter:
    """The same counts by whole cycles of the engine, caches and all."""
    engine = fresh_engine(drafter, params, target)
    counts = Counter()
    first, start = engine.emitted[0], engine.cache.length
    state = {
        name: copy.copy(value)
        for name, value in vars(drafter).items()
        if isinstance(value, tuple | list)
    }
    for _ in range(runs):
        for _ in engine.cycles():
            if len(engine.emitted) >= 3:
                break
        counts[tuple(engine.emitted[:3])] += 1
        # Back behind the prefill; the generator goes on.
        engine.emitted[:], engine.finish_reason = [first], ""
        engine.cache.length = start
        vars(drafter).update({name: copy.copy(value) for name, value in state.items()})
        if isinstance(drafter, EagleDrafter):
            drafter.cache.rollback(drafter.cache.length)
    return counts


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("rule", RULES)
def test_200_000_decisions_on_trees_follow_the_target(rule, setting):
    counts, accepted = decided(RULES[rule](), SETTINGS[setting], 200_000)
    assert counts.total() == 200_000
    p_value, total_variation = judged(counts, SETTINGS[setting])
    assert p_value > 1e-3
    # K cells of N draws from the law itself are off by 0.4 sqrt(K / N) at most.
    assert total_variation < 0.6 * math.sqrt(len(counts) / 200_000)
    assert accepted > 0.7  # or hardly a token of the trees was judged


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("rule", RULES)
def test_whole_cycles_on_trees_follow_the_target(rule, setting, remembered_rows):
    counts = counted(RULES[rule](), SETTINGS[setting], 4_000)
    assert judged(counts, SETTINGS[setting])[0] > 1e-3


GROWTHS = {
    "drawn": StaticTree(PATHS),
    "best": StaticTree(PATHS, "best"),
    "dynamic": DynamicTree(8, 3, 3),
}


@pytest.mark.parametrize("name", GROWTHS)
def test_the_real_drafter_with_real_growths_keeps_the_law(name):
    """Nothing remembered: growth, masks, caches, packing and all."""
    drafter = EagleDrafter(toy(), helpers.trained_draft(), GROWTHS[name])
    counts = counted(drafter, PLAIN, 600, target=toy())
    assert judged(counts, PLAIN)[0] > 1e-3


# ------------------------------------------------------- what a pass above is worth


def judge_by_the_row_before(tree, p, generator) -> TreeDecision:
    return verify_tree(tree, [p[max(0, row - 1)] for row in range(len(p))], generator)


def accept_the_first_leaf(tree, p, generator) -> TreeDecision:
    path = tree.path(2 if len(tree) > 2 else 0) if tree.tokens else ()
    row = 1 + path[-1] if path else 0
    return TreeDecision(path, int(sample(p[row], generator)), "bonus")


@pytest.mark.parametrize("wrong", [judge_by_the_row_before, accept_the_first_leaf])
@pytest.mark.parametrize("rule", RULES)
def test_the_judgement_catches_a_wrong_decision(
    rule, wrong, monkeypatch, remembered_rows
):
    monkeypatch.setattr(engine_module, "verify_tree", wrong)
    assert judged(counted(RULES[rule](), PLAIN, 3_000), PLAIN)[0] < 1e-6


class Liar(DrawnDrafter):
    """The best tokens, with a q as if they had been drawn."""

    tokens = BestDrafter.tokens


def test_the_judgement_catches_a_q_that_was_not_drawn_from(remembered_rows):
    assert judged(counted(Liar(), PLAIN, 3_000), PLAIN)[0] < 1e-6


def judge_as_certain(tree, p, generator) -> TreeDecision:
    return verify_tree(replace(tree, probs=None), p, generator)


def test_drawn_children_judged_as_certain_keep_the_law_and_are_kept_less():
    """Given the tokens, the rule for children without chance is exact."""
    _, drawn = decided(DrawnDrafter(), PLAIN, 3_000)
    counts, certain = decided(DrawnDrafter(), PLAIN, 3_000, judge_as_certain)
    assert judged(counts, PLAIN)[0] > 1e-3
    assert certain < 0.9 * drawn

"""At temperature 0 no tree changes a token, on the toy target.

Random trees of random and partly right tokens, siblings twice the same, any depth; and
the trees of real growths. The right answer is the target decoding alone. After every
cycle the cache must hold what a plain pass over the committed text leaves there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import helpers
import pytest
import torch
from helpers import PROMPT, VOCAB, check_invariants, request, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine, generate
from eagle3.growth import DynamicTree, StaticTree, chain
from eagle3.target import Target
from eagle3.tree import ROOT, DraftTree

RIGHT = -1  # stands for the token that the target will choose at that depth


@dataclass(frozen=True)
class Node:
    """parent: chooses among the nodes before; token: an id, or RIGHT."""

    parent: int
    token: int


class TreeScriptDrafter:
    """Drafts trees as told, from an answer that is known.

    answer: the target's answer, and some tokens more
    trees: one for each cycle, then from the first on again
    depth: the deepest a node may hang, where the room allows it
    """

    cache_length = 0

    def __init__(self, answer: Sequence[int], trees: Sequence[list[Node]], depth: int):
        self.answer, self.trees, self.depth = answer, trees, depth
        self.max_nodes = max(map(len, trees))

    def start(self, max_length: int) -> None:
        self.seen: list[int] = []
        self.num_prompt, self.cycle = 0, -1

    def observe(self, token_ids, output) -> None:
        assert output.hidden.shape[:2] == (1, len(token_ids))
        self.seen += token_ids
        self.num_prompt = self.num_prompt or len(self.seen)

    def propose(self, pending, limit, params, generator) -> DraftTree:
        self.cycle += 1
        first = len(self.seen) - self.num_prompt + 1  # answer tokens with pending
        assert pending == self.answer[first - 1]
        return self._tree(
            self.trees[self.cycle % len(self.trees)], first, min(limit, self.depth)
        )

    def _tree(self, nodes: list[Node], first: int, deepest: int) -> DraftTree:
        tokens, parents, depths = [], [], {ROOT: 0}
        for node in nodes:
            open_nodes = [i for i, depth in depths.items() if depth < deepest]
            if not open_nodes:
                break
            parent = open_nodes[node.parent % len(open_nodes)]
            depths[len(tokens)] = depths[parent] + 1
            right = self.answer[first + depths[parent]]
            tokens.append(right if node.token == RIGHT else node.token)
            parents.append(parent)
        return DraftTree(tuple(tokens), tuple(parents))


def check_caches(engine: Engine) -> None:
    """Run an engine; after each cycle its cache is that of a plain pass."""
    for cycle in engine.cycles():
        text = (*engine.request.prompt_ids, *engine.emitted[:-1])
        assert engine.cache.length == len(text) == cycle.target_cache
        plain = toy().new_cache(len(text))
        toy().forward(torch.tensor([text]), plain)
        for found, wanted in zip(
            (*engine.cache.keys, *engine.cache.values),
            (*plain.keys, *plain.values),
            strict=True,
        ):
            torch.testing.assert_close(
                found[:, :, : len(text)], wanted, atol=2e-4, rtol=0
            )


NODES = st.builds(
    Node,
    st.integers(0, 10_000),
    st.one_of(st.just(RIGHT), st.just(RIGHT), st.integers(0, VOCAB - 1)),
)
CASES = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10),
        "count": st.integers(1, 16),
        "depth": st.integers(1, 8),
        "trees": st.lists(st.lists(NODES, max_size=60), min_size=1, max_size=3),
        "eos": st.lists(st.integers(0, VOCAB - 1), max_size=12),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CASES)
def test_any_tree_gives_the_targets_own_answer_and_cache(case):
    prompt, count, eos = case["prompt"], case["count"], case["eos"]
    answer = helpers.vanilla(toy(), prompt, count + 8)
    stops = [i for i, token in enumerate(answer[:count]) if token in eos]
    wanted = answer[: stops[0] + 1] if stops else answer[:count]
    drafter = TreeScriptDrafter(answer, case["trees"], case["depth"])
    asked = request(prompt, count, eos_token_ids=tuple(eos))
    assert check_invariants(Engine(toy(), drafter, asked)).token_ids == wanted
    check_caches(Engine(toy(), drafter, asked))


@pytest.mark.parametrize("depth", range(1, 9))
def test_a_tree_with_the_right_path_gives_depth_plus_one_tokens(depth):
    count = 1 + 3 * (depth + 1)
    answer = helpers.vanilla(toy(), PROMPT, count + 8)
    drafter = RightPath(answer, depth)
    result = check_invariants(Engine(toy(), drafter, request(PROMPT, count)))
    assert result.token_ids == answer[:count]
    assert result.acceptance_length == depth + 1
    check_caches(Engine(toy(), drafter, request(PROMPT, count)))


class RightPath(TreeScriptDrafter):
    """The right path hidden behind a wrong sibling at each level.

    The right nodes are 1, 3, 5, ...: scattered over the block.
    """

    def __init__(self, answer: Sequence[int], depth: int):
        super().__init__(answer, [[]], depth)
        self.max_nodes = 2 * depth

    def _tree(self, nodes, first: int, deepest: int) -> DraftTree:
        tokens, parents = [], []
        for level in range(max(0, deepest)):
            right = self.answer[first + level]
            tokens += [(right + 1) % VOCAB, right]
            parents += [2 * level - 1] * 2
        return DraftTree(tuple(tokens), tuple(parents))


@pytest.mark.parametrize("depth", [2, 5, 8])
def test_each_token_as_end_of_sequence_cuts_inside_an_accepted_path(depth):
    count = 20
    answer, inside = helpers.vanilla(toy(), PROMPT, count + 8), 0
    for token in dict.fromkeys(answer[:count]):
        wanted = answer[: answer.index(token) + 1]
        asked = request(PROMPT, count, eos_token_ids=(token,))
        engine = Engine(toy(), RightPath(answer, depth), asked)
        result = check_invariants(engine)
        assert result.token_ids == wanted
        assert result.finish_reason == "eos"
        last = engine.trace[-1]
        inside += 0 < len(last.emitted) <= last.num_accepted
    assert inside > 1  # or it has not been tested


@pytest.mark.parametrize("depth", [1, 3, 8])
@pytest.mark.parametrize("num_prompt", [1, 9, 20, 22, 23])
def test_no_node_of_a_tree_passes_the_context(num_prompt, depth, monkeypatch):
    context = 24
    target, prompt = helpers.short_toy(context), list(range(num_prompt))
    answer = helpers.vanilla(toy(), prompt, context - num_prompt + 8)
    seen = record_positions(target, monkeypatch)
    engine = Engine(target, RightPath(answer, depth), request(prompt, 1000))
    result = check_invariants(engine)
    assert result.finish_reason == "context"
    assert result.token_ids == answer[: context - num_prompt]
    # The newest token has not been run: nothing was computed in vain.
    assert max(seen) == context - 2


def record_positions(target: Target, monkeypatch) -> list[int]:
    seen, network = [], target._network
    forward = network.forward

    def spy(input_ids, cache, positions, *others):
        seen.extend(positions.flatten().tolist())
        return forward(input_ids, cache, positions, *others)

    monkeypatch.setattr(network, "forward", spy)
    return seen


# ------------------------------------------------------------------------ real growths

BUSH = StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 0, 0)))
GROWTHS = {
    "bush": BUSH,
    "wide": StaticTree(tuple((rank,) for rank in range(9))),
    "official": DynamicTree(60, 8, 10),
    "small": DynamicTree(10, 4, 3),
    "narrow": DynamicTree(6, 5, 1),
    "deep": DynamicTree(30, 8, 2),
    "chain": chain(4),
}


@pytest.mark.parametrize("name", GROWTHS)
@pytest.mark.parametrize("trained", [True, False], ids=["trained", "untrained"])
def test_every_growth_gives_the_targets_own_answer(name, trained):
    draft = helpers.trained_draft() if trained else helpers.new_draft(toy())
    drafter = EagleDrafter(toy(), draft, GROWTHS[name])
    engine = Engine(toy(), drafter, request(PROMPT, 25))
    result = check_invariants(engine)
    assert result.token_ids == helpers.vanilla(toy(), PROMPT, 25)
    assert max(len(cycle.drafted) for cycle in result.cycles) == drafter.max_nodes


def test_a_tree_is_accepted_longer_than_the_chain_within_it():
    taus = {
        name: generate(
            toy(),
            helpers.trained_draft(),
            PROMPT,
            max_new_tokens=40,
            growth=GROWTHS[name],
        ).acceptance_length
        for name in ("chain", "bush", "official")
    }
    assert taus["chain"] < min(taus["bush"], taus["official"])


@pytest.mark.parametrize("name", ["bush", "official", "small"])
@pytest.mark.parametrize("num_prompt", [1, 15, 22, 23])
def test_growths_stop_at_the_context(name, num_prompt, monkeypatch):
    """Of the target and, position by position, of the draft."""
    context = 24
    target, prompt = helpers.short_toy(context), list(range(num_prompt))
    drafter = EagleDrafter(target, helpers.trained_draft_for(target), GROWTHS[name])
    by_target, by_draft = record_positions(target, monkeypatch), []
    forward = drafter.draft.forward

    def spy(token_ids, x, positions, *others):
        by_draft.extend(positions.tolist())
        return forward(token_ids, x, positions, *others)

    monkeypatch.setattr(drafter.draft, "forward", spy)
    result = check_invariants(Engine(target, drafter, request(prompt, 1000)))
    assert result.finish_reason == "context"
    assert result.token_ids == helpers.vanilla(toy(), prompt, context - num_prompt)
    assert max(by_target) == context - 2
    assert max(by_draft, default=0) < context


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
    st.integers(1, 14),
    st.integers(2, 60),
    st.integers(1, 8),
    st.integers(1, 10),
)
def test_any_dynamic_tree_gives_the_targets_own_answer(
    prompt, count, total_tokens, depth, top_k
):
    growth = DynamicTree(total_tokens, depth, top_k)
    drafter = EagleDrafter(toy(), helpers.trained_draft(), growth)
    engine = Engine(toy(), drafter, request(prompt, count))
    assert check_invariants(engine).token_ids == helpers.vanilla(toy(), prompt, count)


def test_a_drafter_serves_one_request_after_another():
    """Branches of the request before are not left in the draft's cache."""
    shared = EagleDrafter(toy(), helpers.trained_draft(), GROWTHS["small"])
    for length in (3, 30, 1, 12):
        prompt = [(7 * i + length) % VOCAB for i in range(length)]
        fresh = EagleDrafter(toy(), helpers.trained_draft(), GROWTHS["small"])
        first = generate(toy(), shared, prompt, max_new_tokens=10)
        second = generate(toy(), fresh, prompt, max_new_tokens=10)
        assert first.token_ids == second.token_ids
        assert [c.drafted for c in first.cycles] == [c.drafted for c in second.cycles]

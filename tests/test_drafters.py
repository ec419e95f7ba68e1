"""Drafters that branch: a node's distribution is that of its own path, run alone.

Right values: a plain pass over the text and the path, with neither tree nor cache.
"""

from functools import cache
from types import SimpleNamespace

import helpers
import pytest
import torch
from helpers import PROMPT, check_invariants, request, toy, vanilla

from eagle3.drafters.base import Ancestry
from eagle3.drafters.draft_lm import DraftLMDrafter
from eagle3.drafters.eagle import EagleDrafter
from eagle3.drafters.medusa import MedusaDrafter
from eagle3.engine import Engine, generate
from eagle3.growth import DynamicTree, StaticTree, chain
from eagle3.medusa import MedusaConfig, MedusaHeads
from eagle3.sampling import SamplingParams
from eagle3.target import Target, toy_target
from eagle3.tree import DraftTree

GROWTHS = {
    "chain": chain(4),
    "static": StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (2, 0), (0, 1, 0))),
    "dynamic": DynamicTree(total_tokens=14, depth=4, top_k=3),
}


class Watching:
    """A growth that notes what the runner says about every row it runs."""

    def __init__(self, growth):
        self.growth, self.seen = growth, {}
        self.depth = growth.depth
        self.max_nodes, self.max_rows = growth.max_nodes, growth.max_rows

    def grow(self, runner, limit, params, generator) -> DraftTree:
        self.seen, paths, run = {(): runner.root_logits[0]}, [], runner.run

        def watched(tokens, parents):
            logits = run(tokens, parents)
            for token, parent, row in zip(
                tokens.tolist(), parents, logits, strict=True
            ):
                paths.append((*(paths[parent] if parent >= 0 else ()), token))
                self.seen[paths[-1]] = row
            return logits

        runner.run = watched
        return self.growth.grow(runner, limit, params, generator)


@cache
def small_model() -> Target:
    """Another toy of the same vocabulary, as a draft model."""
    return toy_target(1)


def eagle_row(text: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
    """The EAGLE-3 draft's logits after text and path. text ends with pending."""
    draft = helpers.trained_draft()
    with torch.no_grad():
        x = draft.fuse(toy().forward(torch.tensor([text[:-1]])).features)
        ids = list(text[1:])
        for token in (*path, None):
            a = draft(torch.tensor([ids]), x, torch.arange(len(ids)))
            ids, x = [*ids, token], torch.cat([x, a[:, -1:]], dim=1)
        return draft.logits(a)[0, -1]


def model_row(text: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
    return small_model().forward(torch.tensor([[*text, *path]])).logits[0, -1]


def drafter_of(kind: str, growth):
    if kind == "eagle3":
        return EagleDrafter(toy(), helpers.trained_draft(), growth)
    return DraftLMDrafter(toy(), small_model(), growth)


@pytest.mark.parametrize("growth", GROWTHS.values(), ids=GROWTHS)
@pytest.mark.parametrize(
    ("kind", "row"), [("eagle3", eagle_row), ("draft-lm", model_row)]
)
def test_a_node_is_scored_as_its_path_alone_would_be(kind, row, growth):
    watching = Watching(growth)
    engine = Engine(toy(), drafter_of(kind, watching), request(PROMPT, 40))
    committed = PROMPT
    for number, _ in enumerate(engine.cycles()):
        if 0 < number < 4:  # the first cycle, and two that catch up
            for path, logits in watching.seen.items():
                right = row(committed, path)
                torch.testing.assert_close(logits, right, atol=2e-4, rtol=0)
            assert len(watching.seen) > 2
        committed = (*PROMPT, *engine.emitted)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("growth", GROWTHS.values(), ids=GROWTHS)
def test_a_draft_model_changes_nothing_and_forgets_what_it_drafted(growth, temperature):
    drafter = drafter_of("draft-lm", growth)
    params = SamplingParams(temperature, seed=3)
    engine = Engine(toy(), drafter, request(PROMPT, 24, sampling=params))
    for _ in engine.cycles():
        # All but the newest committed tokens, which it reads when it next drafts.
        assert drafter.cache_length <= len(PROMPT) + len(engine.emitted)
    if temperature == 0:
        assert engine.result().token_ids == vanilla(toy(), PROMPT, 24)


def test_a_draft_model_that_is_the_target_is_always_right():
    drafter = DraftLMDrafter(toy(), toy(), chain(3))
    result = check_invariants(Engine(toy(), drafter, request(PROMPT, 25)))
    assert all(cycle.num_accepted == 3 for cycle in result.cycles)
    assert result.target_passes == 6  # 24 tokens after prefill, four for each pass


def test_a_draft_model_stops_at_its_own_window():
    model = Target(helpers.library_toy(max_position_embeddings=16))
    drafter = DraftLMDrafter(toy(), model, chain(3))
    result = generate(toy(), drafter, PROMPT, max_new_tokens=30)
    assert result.token_ids == vanilla(toy(), PROMPT, 30)
    assert {len(cycle.drafted) for cycle in result.cycles[-8:]} == {0}


def test_a_draft_model_of_another_vocabulary_is_refused():
    other = SimpleNamespace(vocab_size=95)
    with pytest.raises(ValueError, match="95 tokens and the target 96"):
        DraftLMDrafter(toy(), other)


def test_rows_see_their_ancestors_alone():
    ancestry = Ancestry()
    assert ancestry.extend([-1, -1]).tolist() == [[True, False], [False, True]]
    rows = ancestry.extend([1, 0, 1])
    assert rows.int().tolist() == [
        [0, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [0, 1, 0, 0, 1],
    ]
    assert ancestry.extend([3]).int().tolist() == [[1, 0, 0, 1, 0, 1]]
    assert ancestry.depths == [1, 1, 2, 2, 2, 3]


def new_heads(num_heads: int = 3) -> MedusaHeads:
    """Untrained heads that are not all alike."""
    config = MedusaConfig(toy().hidden_size, toy().vocab_size, num_heads)
    heads = MedusaHeads(config, toy().head)
    generator = torch.Generator().manual_seed(0)
    for parameter in (heads.weight, heads.bias):
        parameter.data.normal_(0, 0.3, generator=generator)
    return heads


@pytest.mark.parametrize("growth", GROWTHS.values(), ids=GROWTHS)
def test_every_node_of_a_level_has_the_children_of_its_head(growth):
    watching, heads = Watching(growth), new_heads()
    engine = Engine(toy(), MedusaDrafter(toy(), heads, watching), request(PROMPT, 20))
    committed = PROMPT
    for number, cycle in enumerate(engine.cycles()):
        if 0 < number < 4:
            hidden = toy().forward(torch.tensor([committed[:-1]])).hidden[:, -1:]
            right = heads.logits(heads(hidden))[:, 0, 0]  # [K, V]
            for path, logits in watching.seen.items():
                torch.testing.assert_close(logits, right[len(path)], atol=1e-4, rtol=0)
            assert max(map(len, watching.seen)) == 2  # three heads, three levels
            assert len(cycle.drafted) > 2
        committed = (*PROMPT, *engine.emitted)
    assert engine.result().token_ids == vanilla(toy(), PROMPT, 20)


def test_there_are_no_more_levels_than_heads():
    drafter = MedusaDrafter(toy(), new_heads(1), GROWTHS["static"])
    result = check_invariants(Engine(toy(), drafter, request(PROMPT, 12)))
    assert max(len(cycle.drafted) for cycle in result.cycles) == 3
    assert {parent for cycle in result.cycles for parent in cycle.parents} == {-1}


def test_heads_of_another_target_are_refused():
    config = MedusaConfig(32, toy().vocab_size)
    with pytest.raises(ValueError, match="32"):
        MedusaDrafter(toy(), MedusaHeads(config, torch.zeros(toy().vocab_size, 32)))

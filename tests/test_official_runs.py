"""Whole greedy runs of the official code, cycle by cycle, on its tiny target and draft.

Output, accepted tokens, the target's next token and the length of the draft's cache
must be the same in every cycle; trees, logits, features and the compacted cache where
they were recorded.
"""

from functools import cache

import oracles
import pytest
import torch
from helpers import request
from tree_oracles import retrieve_indices

from eagle3.drafters import EagleDrafter
from eagle3.engine import Cycle, Engine
from eagle3.growth import DynamicTree
from eagle3.target import Target, TargetOutput
from eagle3.tree import DraftTree

FOLDERS = ["e2e_greedy_small", "e2e_greedy_default", "e2e_greedy_chain"]
CLOSE = {"atol": 1e-4, "rtol": 0}


@cache
def run(folder: str, lean: bool = True) -> tuple[Engine, tuple, TargetOutput, tuple]:
    """The finished engine, and of the first cycle: tree pass and compacted layer 0."""
    data, meta = oracles.tensors(folder), oracles.meta(folder)
    target = Target(oracles.target_model(), lean=lean)
    draft = oracles.official_draft(oracles.ROPES["draft_forward_theta10000"])
    growth = DynamicTree(meta["total_token"], meta["depth"] + 1, meta["top_k"])
    prompt = data["prompt"][0].tolist()
    passes, forward = [], target.forward

    def keep_output(*args, **others) -> TargetOutput:
        passes.append(forward(*args, **others))
        return passes[-1]

    target.forward = keep_output
    # More than the official run has, so that room never cuts a tree short.
    asked = request(prompt, data["output"].shape[1] - len(prompt) + 20)
    engine = Engine(target, EagleDrafter(target, draft, growth), asked)
    cycles = engine.cycles()
    next(cycles), next(cycles)
    length = engine.cache.length
    layer = engine.cache.keys[0], engine.cache.values[0]
    kept = tuple(tensor[:, :, :length].clone() for tensor in layer)
    for _ in range(len(data["accept_lengths"]) - 1):
        next(cycles)
    return engine, tuple(engine.trace[1:]), passes[1], kept


@pytest.mark.parametrize("folder", FOLDERS)
def test_output_and_every_cycle_are_the_official_ones(folder):
    data = oracles.tensors(folder)
    engine, cycles, _, _ = run(folder)
    num_prompt = data["prompt"].shape[1]
    output = data["output"][0, num_prompt:].tolist()
    assert data["output"].equal(data["hf_greedy"])
    assert engine.emitted[: len(output)] == output
    assert [cycle.num_accepted for cycle in cycles] == data["accept_lengths"].tolist()
    assert [cycle.next_token for cycle in cycles] == data["next_tokens"].tolist()
    # Before a cycle's tree is verified, the committed text is this long, and the draft
    # has seen all of it. The official code lets the draft catch up at once.
    committed = [num_prompt, *(cycle.target_cache for cycle in cycles[:-1])]
    assert committed == data["prefix_lens"].tolist()
    assert [cycle.draft_cache for cycle in cycles] == committed
    assert [cycle.target_cache for cycle in cycles] == data["draft_kv_lens"].tolist()


def tree_of(cycle: Cycle) -> DraftTree:
    return DraftTree(cycle.drafted, cycle.parents)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_trees_of_the_first_cycles_are_the_official_ones(folder, number):
    data, cycle = oracles.tensors(folder), run(folder)[1][number]
    official = {
        name.removeprefix(f"cycle{number}."): tensor
        for name, tensor in data.items()
        if name.startswith(f"cycle{number}.")
    }
    tree = tree_of(cycle)
    assert list(tree.tokens) == official["draft_tokens"][0, 1:].tolist()
    assert torch.equal(tree.mask(), official["tree_mask"][0, 0].bool())
    assert [0, *tree.depths] == official["tree_position_ids"].tolist()
    rows = retrieve_indices(tree)
    assert rows == official["retrieve_indices"].tolist()
    tokens = torch.tensor([official["draft_tokens"][0, 0], *tree.tokens, -1])
    assert torch.equal(tokens[torch.tensor(rows)], official["candidates"])
    # The accepted path is the official row, as far as it was accepted.
    row = rows[int(data["best_candidate"][number])]
    assert [node + 1 for node in cycle.path] == row[1 : cycle.num_accepted + 1]


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "library"])
@pytest.mark.parametrize("folder", ["e2e_greedy_small", "e2e_greedy_chain"])
def test_logits_features_and_compacted_cache_are_the_official_ones(folder, lean):
    data = oracles.tensors(folder)
    _, cycles, output, (keys, values) = run(folder, lean)
    torch.testing.assert_close(output.features, data["cycle0.features"], **CLOSE)
    rows = torch.tensor(retrieve_indices(tree_of(cycles[0])))
    real = rows >= 0
    gathered = output.logits[0, rows]
    torch.testing.assert_close(gathered[real], data["cycle0.logits"][real], **CLOSE)
    official = data["cycle0.target_layer0_k_v_after_compaction"]
    torch.testing.assert_close(torch.stack([keys, values]), official, **CLOSE)


def test_the_runs_contain_scattered_paths_and_full_rejections():
    """Otherwise compaction had nothing to gather."""
    cycles = [cycle for folder in FOLDERS for cycle in run(folder)[1]]
    scattered = [c for c in cycles if c.path and c.path != tuple(range(len(c.path)))]
    assert len(scattered) > 5
    assert any(not cycle.path for cycle in cycles)

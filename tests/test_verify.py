"""Verification of trees against the official decisions, and against the chain's rule.

The official code draws a number for each child that it looks at. Ours has one for each
node, drawn beforehand, so the listed numbers are laid where the walk will look: at the
children in order, down to the accepted one, and on from there.
"""

from types import SimpleNamespace

import oracles
import pytest
import torch
from tree_oracles import tree_of_rows

from eagle3 import verify
from eagle3.sampling import (
    SamplingParams,
    next_token_distribution,
    sample,
    verify_chain,
    verify_chain_greedy,
)
from eagle3.tree import NOTHING, ROOT, DraftTree
from eagle3.verify import TreeDecision, verify_tree, verify_tree_greedy

SETTINGS = {
    "t1": SamplingParams(1.0),
    "t07": SamplingParams(0.7),
    "t07_topp09": SamplingParams(0.7, top_p=0.9),
    "t1_topk3": SamplingParams(1.0, top_k=3),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Listed:
    """Stands in for the module's chance: numbers in the order that they are looked at.

    drawn_from: the distribution that the next token was to be drawn from
    """

    def __init__(self, monkeypatch, numbers: list[float]):
        self.left, self.used = list(numbers), 0
        self.drawn_from: torch.Tensor | None = None
        chance = SimpleNamespace(uniforms=lambda count, like, generator: self)
        monkeypatch.setattr(verify, "sampling", chance)
        monkeypatch.setattr(verify, "sample", self._record)

    def __getitem__(self, node: int) -> float:
        self.used += 1
        return self.left.pop(0)

    def _record(self, probs, generator) -> torch.Tensor:
        self.drawn_from = probs
        return torch.tensor(0)


def tokens_of(tree: DraftTree, decision: TreeDecision) -> list[int]:
    return [tree.tokens[node] for node in decision.path]


# ------------------------------------------------------- the official decisions, q = 1

POSTERIOR = oracles.meta("evaluate_posterior")["cases"]


def posterior_case(number: int) -> tuple[DraftTree, torch.Tensor]:
    """The tree of a case and the target's logits [n + 1, V] after each node."""
    data = oracles.tensors("evaluate_posterior")
    tree, places = tree_of_rows(data[f"{number}.candidates"])
    logits = data[f"{number}.logits"]
    return tree, torch.stack([logits[place] for place in places])


@pytest.mark.parametrize("case", POSTERIOR, ids=lambda case: case["case"])
def test_greedy_decisions_are_the_official_ones(case):
    tree, logits = posterior_case(case["case"])
    found = verify_tree_greedy(tree, logits.argmax(-1))
    official = case["greedy"]
    assert tokens_of(tree, found) == official["path"][1:]
    assert found.num_accepted == official["accept"]
    assert found.next_token == official["next"]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", POSTERIOR, ids=lambda case: case["case"])
def test_decisions_on_children_without_chance_are_the_official_ones(
    case, setting, monkeypatch
):
    tree, logits = posterior_case(case["case"])
    official = case[setting]
    listed = Listed(monkeypatch, official["uniforms"])
    p = next_token_distribution(logits, SETTINGS[setting])
    found = verify_tree(tree, p, generator())
    assert tokens_of(tree, found) == official["path"][1:]
    assert found.num_accepted == official["accept"]
    assert listed.used == official["n_used"]
    right = oracles.tensors("evaluate_posterior")[f"{case['case']}.{setting}.sample_p"]
    torch.testing.assert_close(listed.drawn_from, right, atol=1e-5, rtol=0)


def test_the_official_cases_reach_every_kind_of_end():
    accepted = {case[setting]["accept"] for case in POSTERIOR for setting in SETTINGS}
    assert len(POSTERIOR) == 24 and accepted >= {0, 1, 2, 3}


# --------------------------------- the official decisions, drawn without replacement

EAGLE1 = oracles.meta("eagle1_static_tree_sampling")


def eagle1_case(number: int) -> tuple[DraftTree, torch.Tensor]:
    """The tree of a case with its q, and the target's logits after each node."""
    data = oracles.tensors("eagle1_static_tree_sampling")
    choices = [tuple(choice) for choice in EAGLE1["choices"]]
    index = {(): ROOT} | {choice: node for node, choice in enumerate(choices)}
    _root, *tokens = data[f"{number}.tree_candidates"][0].tolist()
    # The rows of q stand in the order of the nodes that have children.
    owners = sorted({choice[:-1] for choice in choices}, key=lambda c: (len(c), c))
    rows = torch.cat([data[f"{number}.q{level}"] for level in range(5)])
    own_q = dict(zip(owners, rows, strict=True))
    tree = DraftTree(
        tuple(tokens),
        tuple(index[choice[:-1]] for choice in choices),
        torch.stack([own_q[choice[:-1]] for choice in choices]),
    )
    places = {0: (0, 0)}
    for row, line in enumerate(data["retrieve_indices"].tolist()):
        for column, node in enumerate(line):
            places.setdefault(node, (row, column))
    logits = data[f"{number}.logits"]
    return tree, torch.stack([logits[places[node]] for node in range(26)])


@pytest.mark.parametrize("case", EAGLE1["cases"], ids=lambda case: case["case"])
def test_decisions_on_drawn_children_are_those_of_eagle1(case, monkeypatch):
    tree, logits = eagle1_case(case["case"])
    listed = Listed(monkeypatch, case["uniforms"])
    p = next_token_distribution(logits, SamplingParams(case["temperature"]))
    found = verify_tree(tree, p, generator())
    assert tokens_of(tree, found) == case["path"][1:]
    assert found.num_accepted == case["accept"]
    assert listed.used == case["n_used"]
    data = oracles.tensors("eagle1_static_tree_sampling")
    right = data[f"{case['case']}.sample_p"]
    if found.kind == "bonus":
        # That code forgot the temperature where nothing had been refused.
        assert torch.equal(listed.drawn_from, p[1 + found.path[-1]])
        right = right.log().div(case["temperature"]).softmax(-1)
    torch.testing.assert_close(listed.drawn_from, right, atol=1e-5, rtol=0)


def test_the_chance_recorded_by_eagle1_is_q_without_the_earlier_siblings():
    """So its number and our q with those taken out are the same rule."""
    data = oracles.tensors("eagle1_static_tree_sampling")
    tree, _ = eagle1_case(3)
    recorded = {}
    for line, chances in zip(
        data["retrieve_indices"].tolist(), data["3.candidate_probs"], strict=True
    ):
        for number, chance in zip(line, chances.tolist(), strict=True):
            recorded.setdefault(number - 1, chance)
    for children in tree.children.values():
        taken = 0.0
        for child in children:
            own = float(tree.probs[child, tree.tokens[child]])
            assert recorded[child] == pytest.approx(own / (1 - taken), abs=1e-5)
            taken += own


# ----------------------------------------------------------- a chain is a special case


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_on_a_chain_it_is_verify_chain_draw_for_draw(length):
    draw = generator(length)
    kinds = set()
    for seed in range(100):
        p = torch.rand(length + 1, 6, generator=draw) ** 3
        q = torch.rand(length, 6, generator=draw) ** 3
        p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
        tokens = sample(q, draw).tolist() if length else []
        certain = torch.nn.functional.one_hot(
            torch.tensor(tokens, dtype=torch.long), 6
        ).float()
        for rows, probs in ((q, q), (certain, None)):
            one, other = generator(seed), generator(seed)
            chain = verify_chain(tokens, rows, p, one)
            tree = verify_tree(DraftTree.chain(tokens, probs), p, other)
            assert tree.num_accepted == chain.num_accepted
            assert tree.path == tuple(range(chain.num_accepted))
            assert (tree.next_token, tree.kind) == (chain.next_token, chain.kind)
            assert torch.equal(one.get_state(), other.get_state())
            kinds.add((tree.kind, probs is None))
    assert len(kinds) == (4 if length else 2)


def test_greedy_on_a_chain_is_verify_chain_greedy():
    draw = generator(5)
    for _ in range(50):
        tokens = torch.randint(2, (4,), generator=draw).tolist()
        choices = torch.randint(2, (5,), generator=draw)
        chain = verify_chain_greedy(tokens, choices)
        tree = verify_tree_greedy(DraftTree.chain(tokens), choices)
        assert tree.path == tuple(range(chain.num_accepted))
        assert (tree.next_token, tree.kind) == (chain.next_token, chain.kind)


# ----------------------------------------------------------------------- greedy, seeds


def longest_match(tree: DraftTree, choices: list[int]) -> list[int]:
    """The longest run of nodes that are the target's choice: every path is tried."""
    best: list[int] = []
    for node in range(len(tree)):
        path, at = tree.path(node), ROOT
        for step in path:
            if tree.tokens[step] != choices[at + 1]:
                break
            at = step
        else:
            best = max(best, list(path), key=len)
    return best


def random_tree(seed: int, size: int, vocab: int) -> DraftTree:
    """Siblings hold distinct tokens."""
    draw, parents, tokens, taken = generator(seed), [], [], set()
    while len(tokens) < size:
        parent = int(torch.randint(-1, len(tokens), (), generator=draw))
        token = int(torch.randint(vocab, (), generator=draw))
        if (parent, token) not in taken:
            taken.add((parent, token))
            parents.append(parent)
            tokens.append(token)
    return DraftTree(tuple(tokens), tuple(parents))


@pytest.mark.parametrize("seed", range(40))
def test_greedy_takes_the_longest_path_of_the_targets_choices(seed):
    tree = random_tree(seed, 25, vocab=3)
    choices = torch.randint(3, (26,), generator=generator(seed + 100))
    found = verify_tree_greedy(tree, choices)
    path = longest_match(tree, choices.tolist())
    assert list(found.path) == path
    last = path[-1] if path else ROOT
    assert found.next_token == choices[last + 1]
    assert found.kind == ("replacement" if tree.children[last] else "bonus")


@pytest.mark.parametrize("seed", range(20))
def test_greedy_is_the_sampling_rule_on_certain_rows(seed):
    tree = random_tree(seed, 25, vocab=3)
    choices = torch.randint(3, (26,), generator=generator(seed + 100))
    p = torch.nn.functional.one_hot(choices, 3).float()
    assert verify_tree(tree, p, generator()) == verify_tree_greedy(tree, choices)


def test_of_two_siblings_with_one_token_the_first_is_taken():
    tree = DraftTree((4, 4, 7), (-1, -1, 1))
    found = verify_tree_greedy(tree, torch.tensor([4, 7, 7, 0]))
    assert found == TreeDecision((0,), 7, "bonus")


def test_the_empty_tree_gives_the_targets_token():
    p = torch.tensor([[0.0, 1.0, 0.0]])
    assert verify_tree(NOTHING, p, generator()) == TreeDecision((), 1, "bonus")
    assert verify_tree_greedy(NOTHING, torch.tensor([2])) == TreeDecision(
        (), 2, "bonus"
    )


def test_only_the_rows_on_the_walk_are_asked_for():
    """A row costs a softmax over the vocabulary, and a tree has many."""
    tree = DraftTree((0, 1, 1, 2), (-1, -1, 0, 1))
    rows = torch.nn.functional.one_hot(torch.tensor([1, 0, 2, 0, 0]), 3).float()
    asked = []

    class Rows(list):
        def __getitem__(self, row):
            asked.append(row)
            return rows[row]

    assert verify_tree(tree, Rows([None] * 5), generator()).path == (1, 3)
    assert asked == [0, 2, 4]


def test_a_seed_fixes_the_decision_and_the_global_generator_is_left_alone():
    tree = random_tree(1, 20, vocab=5)
    p = torch.full((21, 5), 0.2)
    before = torch.get_rng_state()
    runs = [
        [verify_tree(tree, p, draw) for _ in range(10)]
        for draw in map(generator, (1, 1, 2))
    ]
    assert runs[0] == runs[1] != runs[2]
    assert torch.equal(before, torch.get_rng_state())


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_rows_that_do_not_match_the_tree_are_refused(rows):
    tree = DraftTree((0, 1), (-1, -1))
    told = f"2 drafted tokens came with {rows} rows of the target"
    with pytest.raises(ValueError, match=told):
        verify_tree(tree, torch.full((rows, 2), 0.5), generator())
    with pytest.raises(ValueError, match=told):
        verify_tree_greedy(tree, torch.zeros(rows, dtype=torch.long))


def test_a_drawn_child_that_its_q_cannot_draw_is_refused():
    p = torch.full((3, 4), 0.25)
    never = DraftTree((0, 1), (-1, -1), torch.tensor([[0.0, 0.5, 0.5, 0.0]] * 2))
    with pytest.raises(ValueError, match="drafted token 0"):
        verify_tree(never, p, generator())
    # Twice the same can't come out of draws without replacement.
    p = torch.tensor([[0.0, 0.5, 0.5, 0.0]] * 3)
    twice = DraftTree((3, 3), (-1, -1), torch.tensor([[0.0, 0.25, 0.25, 0.5]] * 2))
    with pytest.raises(ValueError, match="drafted token 3"):
        verify_tree(twice, p, generator())


def test_a_certain_child_refused_by_rounding_leaves_p(monkeypatch):
    """p is a hair below 1 at the child and the uniform number is not below it.

    Nothing is left without the child, so the next token is drawn from p itself.
    """
    p = torch.tensor([0.0, 1 - 2**-24, 0.0])
    chance = Listed(monkeypatch, [1 - 2**-24])
    decision = verify_tree(DraftTree.chain((1,)), [p, p], generator())
    assert decision.path == ()
    assert torch.equal(chance.drawn_from, p)

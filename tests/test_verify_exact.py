"""Verification of trees is lossless: every outcome summed up, with no sampling noise.

A tiny target with rows that depend on all tokens before; every tree that a drafter may
draw, with its probability; every decision, with its probability. The law of the first
three tokens must be the target's own to 1e-12. Each known way to get the rules wrong is
planted in a copy of the module and must be caught.
"""

import importlib.util
import itertools
import math
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from eagle3 import verify
from eagle3.tree import ROOT, DraftTree

Text = tuple[int, ...]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --------------------------------------------------------- every outcome of a decision


class Coin:
    """A uniform number that is known only as far as it has been compared.

    Each comparison goes both ways, with the probability that it has given the earlier
    ones. So a number that is used twice is the same number both times.
    """

    def __init__(self, outcomes: "Outcomes"):
        self.outcomes, self.low, self.high = outcomes, 0.0, 1.0

    def __lt__(self, bound: float) -> bool:
        middle = min(max(bound, self.low), self.high)
        below = (middle - self.low) / (self.high - self.low)
        if self.outcomes.choose(below):
            self.high = middle
            return True
        self.low = middle
        return False


class Outcomes:
    """Runs a decision once for each of its outcomes: (decision, source, probability).

    source: the distribution that the next token is drawn from
    """

    def __init__(self, module: types.ModuleType):
        self.module = module
        self.source = torch.empty(0)
        coins = types.SimpleNamespace(
            uniforms=lambda count, like, generator: [Coin(self) for _ in range(count)]
        )
        module.sampling, module.sample = coins, self._record

    def _record(self, probs, generator) -> torch.Tensor:
        self.source = probs
        return torch.tensor(0)

    def choose(self, chance: float) -> bool:
        """True with this chance: as planned so far, then True and the rest later."""
        if len(self.taken) < len(self.planned):
            choice = self.planned[len(self.taken)]
        else:
            choice = chance > 0
            if 0 < chance < 1:
                self.later.append([*self.taken, False])
        self.taken.append(choice)
        self.weight *= chance if choice else 1 - chance
        return choice

    def of(self, tree: DraftTree, p: list[torch.Tensor]) -> Iterator[tuple]:
        self.later: list[list[bool]] = [[]]
        while self.later:
            self.planned, self.taken, self.weight = self.later.pop(), [], 1.0
            decision = self.module.verify_tree(tree, p, None)
            yield decision, self.source, self.weight


# ---------------------------------------------------------------- targets and drafters


@dataclass(frozen=True)
class World:
    """p and q after every text of up to two tokens; zeros: how many of a row are 0."""

    vocab: int
    seed: int
    zeros: int = 0
    certain: bool = False  # p is one-hot

    def p(self, text: Text) -> torch.Tensor:
        return row(self, text, 0)

    def q(self, text: Text) -> torch.Tensor:
        return row(self, text, 1)


@cache
def row(world: World, text: Text, side: int) -> torch.Tensor:
    number = (world.seed * 2 + side) * 1000
    number += sum((token + 1) * 10**i for i, token in enumerate(text))
    draw = generator(number)
    weights = torch.rand(world.vocab + 8, generator=draw, dtype=torch.float64)[8:]
    weights = weights**2 + 0.01
    order = torch.randperm(world.vocab, generator=draw)
    weights[order[: world.zeros]] = 0
    if world.certain and side == 0:
        weights[order[:-1]] = 0
    return weights / weights.sum()


@cache
def tables(world: World) -> tuple[torch.Tensor, torch.Tensor]:
    """p of a second and of a third token: [V, V] and [V, V, V], last axis sums to 1."""
    tokens = range(world.vocab)
    second = torch.stack([world.p((a,)) for a in tokens])
    third = [torch.stack([world.p((a, b)) for b in tokens]) for a in tokens]
    return second, torch.stack(third)


def text_of(tokens: Text, parents: Text, node: int) -> Text:
    text: Text = ()
    while node != ROOT:
        text, node = (tokens[node], *text), parents[node]
    return text


def drawn_trees(world: World, parents: Text) -> Iterator[tuple[DraftTree, float]]:
    """Every tree of this shape, siblings drawn from q without replacement."""
    for tokens in itertools.product(range(world.vocab), repeat=len(parents)):
        weight, taken, rows = 1.0, {}, []
        for node, parent in enumerate(parents):
            q = world.q(text_of(tokens, parents, parent))
            before = taken.setdefault(parent, [])
            rest = 1 - sum(float(q[token]) for token in before)
            own = 0.0 if tokens[node] in before else float(q[tokens[node]])
            weight *= own / rest if rest > 1e-9 else 0.0
            before.append(tokens[node])
            rows.append(q)
        if weight > 0:
            yield DraftTree(tokens, parents, torch.stack(rows)), weight


def all_trees(world: World, parents: Text) -> Iterator[DraftTree]:
    """Every tree of this shape without a q, siblings with the same token included."""
    for tokens in itertools.product(range(world.vocab), repeat=len(parents)):
        yield DraftTree(tokens, parents)


# --------------------------------------------------------------------------- the laws


def right_law(world: World) -> torch.Tensor:
    """The target alone: [V, V, V], the probability of each first three tokens."""
    second, third = tables(world)
    return world.p(())[:, None, None] * second[:, :, None] * third


def rows_of_p(world: World, tree: DraftTree) -> list[torch.Tensor]:
    return [
        world.p(text_of(tree.tokens, tree.parents, node))
        for node in range(ROOT, len(tree))
    ]


def law_of(outcomes: Outcomes, world: World, tree: DraftTree) -> torch.Tensor:
    """The first three tokens after this tree; past the cycle the target goes alone."""
    law = torch.zeros((world.vocab,) * 3, dtype=torch.float64)
    second, third = tables(world)
    for decision, source, weight in outcomes.of(tree, rows_of_p(world, tree)):
        kept = tuple(tree.tokens[node] for node in decision.path)
        tail = weight * source
        if len(kept) == 0:
            tail = tail[:, None] * second
        if len(kept) <= 1:
            tail = tail[..., None] * third[kept]
        law[kept] += tail
    return law


BUSHY = (-1, -1, 0, 0, 1)  # two children; below them two and one
WIDE = (-1, -1, -1)
CHAIN = (-1, 0)
WORLDS = {
    "plain": World(3, 1),
    "zeros": World(4, 2, zeros=1),
    "one-hot p": World(3, 3, certain=True),
}


def error_on_drawn(module: types.ModuleType, world: World, parents: Text) -> float:
    """Distance from the target's law, over every tree that may be drawn."""
    outcomes, law, total = Outcomes(module), 0, 0.0
    for tree, weight in drawn_trees(world, parents):
        law = law + weight * law_of(outcomes, world, tree)
        total += weight
    assert abs(total - 1) < 1e-12
    return float((law - right_law(world)).abs().max())


def error_without_chance(
    module: types.ModuleType, world: World, parents: Text, stride: int = 1
) -> float:
    """The largest distance from the target's law of any single tree."""
    outcomes, right = Outcomes(module), right_law(world)
    trees = itertools.islice(all_trees(world, parents), 0, None, stride)
    return max(
        float((law_of(outcomes, world, tree) - right).abs().max()) for tree in trees
    )


@pytest.fixture
def copy_of_verify(tmp_path):
    """Builds a fresh module from eagle3/verify.py with one piece of text replaced."""

    def build(old: str = "", new: str = "") -> types.ModuleType:
        text = Path(verify.__file__).read_text(encoding="utf-8")
        if old:
            assert text.count(old) == 1, f"the mutant's anchor moved: {old!r}"
            text = text.replace(old, new)
        path = tmp_path / "verify_copy.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("verify_copy", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["verify_copy"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    yield build
    sys.modules.pop("verify_copy", None)


@pytest.mark.parametrize("parents", [CHAIN, WIDE, BUSHY], ids=["chain", "wide", "bush"])
@pytest.mark.parametrize("name", WORLDS)
def test_children_without_chance_keep_the_law_whatever_the_tree(
    copy_of_verify, name, parents
):
    """Every single tree, good or bad, with duplicates among siblings or without."""
    stride = 5 if WORLDS[name].vocab == 4 else 1
    assert error_without_chance(copy_of_verify(), WORLDS[name], parents, stride) < 1e-12


@pytest.mark.parametrize("parents", [CHAIN, WIDE, BUSHY], ids=["chain", "wide", "bush"])
@pytest.mark.parametrize("name", WORLDS)
def test_children_drawn_without_replacement_keep_the_law(copy_of_verify, name, parents):
    assert error_on_drawn(copy_of_verify(), WORLDS[name], parents) < 1e-12


WITHOUT_CHANCE = {
    "a refused token stays in p": ("left = _without(left, token)", "pass"),
    "p is not renormalised": ("return rest / total if", "return rest if"),
    "next token from the whole p": ("sample(left, gen", "sample(p[node + 1], gen"),
    "one number for all nodes": ("uniforms[child] < float", "uniforms[0] < float"),
    "p of the parent": ("left = child, p[child + 1]", "left = child, p[node + 1]"),
    "p of the row before": ("left = child, p[child + 1]", "left = child, p[child]"),
    "every child accepted": ("if uniforms[child] < float(left[token]):", "if True:"),
    "no child accepted": ("if uniforms[child] < float(left[token]):", "if False:"),
    "numbers not uniform": ("uniforms[child] < float", "uniforms[child] < 0.5 * float"),
}
DRAWN = {
    "q keeps a refused token": (
        "residual(left, q), _without(q, token)",
        "residual(left, q), q",
    ),
    "p stays as it was": (
        "residual(left, q), _without(q, token)",
        "left, _without(q, token)",
    ),
    "p loses the token only": (
        "residual(left, q), _without(q, token)",
        "_without(left, token), _without(q, token)",
    ),
    "residual against the q left over": (
        "left, q = residual(left, q), _without(q, token)",
        "q = _without(q, token); left = residual(left, q)",
    ),
    "q is not renormalised": ("return rest / total if", "return rest if"),
    "next token from the whole p": ("sample(left, gen", "sample(p[node + 1], gen"),
    "one number for all nodes": ("uniforms[child] < accept", "uniforms[0] < accept"),
    "q of the first node": ("tree.probs[children[0]]", "tree.probs[0]"),
    "siblings in reverse": ("for child in children:", "for child in children[::-1]:"),
    "p of the row before": ("left = child, p[child + 1]", "left = child, p[child]"),
    "p and q turned round": ("residual(left, q), _", "residual(q, left), _"),
}


@pytest.mark.parametrize("name", WITHOUT_CHANCE)
def test_the_enumeration_without_chance_catches(name, copy_of_verify):
    module = copy_of_verify(*WITHOUT_CHANCE[name])
    assert error_without_chance(module, WORLDS["plain"], BUSHY, stride=7) > 1e-3


@pytest.mark.parametrize("name", DRAWN)
def test_the_enumeration_of_draws_catches(name, copy_of_verify):
    module = copy_of_verify(*DRAWN[name])
    assert error_on_drawn(module, WORLDS["plain"], BUSHY) > 1e-3


# ------------------------------------------------------------- the two rules compared


def accepted_on_drawn(outcomes: Outcomes, world: World, parents: Text, judge) -> float:
    """Mean number of accepted tokens over every tree that may be drawn."""
    mean = 0.0
    for tree, weight in drawn_trees(world, parents):
        rows = rows_of_p(world, tree)
        for decision, _, share in outcomes.of(judge(tree), rows):
            mean += weight * share * decision.num_accepted
    return mean


def as_drawn(tree: DraftTree) -> DraftTree:
    return tree


def as_certain(tree: DraftTree) -> DraftTree:
    return replace(tree, probs=None)


@pytest.mark.parametrize("seed", range(4))
def test_one_drawn_child_is_accepted_as_often_as_any_rule_can(copy_of_verify, seed):
    """sum min(p, q) is the most; judged as certain it would be sum p q."""
    world, outcomes = World(4, seed, zeros=1), Outcomes(copy_of_verify())
    p, q = world.p(()), world.q(())
    drawn = accepted_on_drawn(outcomes, world, (-1,), as_drawn)
    certain = accepted_on_drawn(outcomes, world, (-1,), as_certain)
    assert drawn == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-12)
    assert certain == pytest.approx(float((p * q).sum()), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parents", [(-1, -1), WIDE, BUSHY])
def test_drawn_children_are_accepted_less_when_judged_as_certain(
    copy_of_verify, parents, seed
):
    world, outcomes = World(3, seed), Outcomes(copy_of_verify())
    drawn = accepted_on_drawn(outcomes, world, parents, as_drawn)
    certain = accepted_on_drawn(outcomes, world, parents, as_certain)
    assert certain < drawn + 1e-12


@pytest.mark.parametrize("num_children", [1, 2, 3])
def test_children_without_chance_are_accepted_with_their_share_of_p(
    copy_of_verify, num_children
):
    world, outcomes = World(4, 5), Outcomes(copy_of_verify())
    best = world.q(()).topk(num_children).indices.tolist()
    tree = DraftTree(tuple(best), (-1,) * num_children)
    rows = [world.p(())] * (num_children + 1)
    accepted = sum(
        weight * decision.num_accepted
        for decision, _, weight in outcomes.of(tree, rows)
    )
    assert accepted == pytest.approx(float(world.p(())[best].sum()), abs=1e-12)


@dataclass(frozen=True)
class Perfect(World):
    """A draft that is the target."""

    def q(self, text: Text) -> torch.Tensor:
        return self.p(text)


@dataclass(frozen=True)
class Sure(World):
    """A target that is certain of what the draft thinks most likely."""

    def p(self, text: Text) -> torch.Tensor:
        q = self.q(text)
        return (q == q.max()).double()


def test_neither_rule_is_always_accepted_more_often(copy_of_verify):
    """Draws win where the draft knows the target's law, the best where p is peaked."""
    outcomes = Outcomes(copy_of_verify())
    two, best = (-1, -1), {}
    for world in (Perfect(4, 1), Sure(4, 1)):
        p, q = world.p(()), world.q(())
        best[type(world)] = (
            accepted_on_drawn(outcomes, world, two, as_drawn),
            float(p[q.topk(2).indices].sum()),
        )
    drawn, certain = best[Perfect]
    assert drawn == pytest.approx(1, abs=1e-12) and certain < 0.95
    drawn, certain = best[Sure]
    assert certain == 1 and drawn < 0.95
    # There draws find the one token or miss it.
    q = Sure(4, 1).q(())
    top = int(q.argmax())
    missed = sum(
        float(q[a] * q[b] / (1 - q[a]))
        for a, b in itertools.permutations(range(4), 2)
        if top not in (a, b)
    )
    assert math.isclose(drawn, 1 - missed, abs_tol=1e-12)

"""tools/probes.py: what it measures is what one probe alone would measure.

Right values: `fit_probe` and `share_named` on the same examples, on the toy target.
"""

import probes as tool
import pytest
import torch

from eagle3.probes import examples, fit_probe, joined, share_named
from eagle3.target import toy_target
from eagle3.training.data import Sequence


def sequences(count: int, seed: int) -> list[Sequence]:
    generator = torch.Generator().manual_seed(seed)
    return [
        Sequence(torch.randint(96, (40,), generator=generator), 5, "chat", 1.0)
        for _ in range(count)
    ]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_share_is_that_of_one_probe(ahead: int):
    target, vocabulary = toy_target(), torch.arange(0, 96, 2)
    fit, test = sequences(14, seed=0), sequences(4, seed=1)  # more than one piece
    bench = tool.Bench(target, fit, vocabulary)
    assert set(target.taps) < set(bench.layers)
    group = bench.examples(test)
    places = tuple(bench.layers.index(layer) for layer in (2, 6))
    found = bench.share(group, places, ahead, 0.05)

    whole = joined([examples(target, s, (2, 6)) for s in fit])
    group = joined([examples(target, s, (2, 6)) for s in test])
    aim = (0, 1, 1)[ahead]

    def reads(part):
        pieces = [part.states[:, 0], part.states[:, 1]]
        return torch.cat(pieces + [part.token] * (ahead == 2), dim=-1)

    probe = fit_probe(reads(whole), whole.aims[:, aim], 0.05)
    best = group.best[:, aim]  # odd tokens can't be named
    row = torch.where(best % 2 == 0, best // 2, -1)
    want = share_named(probe(reads(group)), row, target.head[vocabulary])
    assert found == pytest.approx(want, abs=0.02)  # a near tie may fall either way
    assert 0.02 < want < 1


def test_thinned_takes_every_so_many_th_example():
    group = examples(toy_target(), sequences(1, seed=2)[0], [3])
    third = tool.thinned(group, 3)
    assert torch.equal(third.best, group.best[::3])
    assert torch.equal(third.states, group.states[::3])


def test_the_damping_that_does_best_is_taken():
    right = {d: -abs(d - 0.1) for d in tool.DAMPINGS}
    assert tool.best_damping(right.__getitem__) == 0.1

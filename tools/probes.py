"""Probes layers of the target, and triples of layers: figures/results/probes.json.

A probe reads the hidden state that enters a layer, or several side by side, and names
the target's next token, or the one after it. For the token after next it may read the
token between, too, since a draft knows it. Probes are fitted on answers that were drawn
at temperature 1 and tested on greedy answers to other prompts. Chapter 5 shows them.

    python tools/probes.py DATA HELD_OUT

A few minutes on two cores, most of it for the triples.
"""

import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from eagle3.bench.environment import write_results
from eagle3.probes import (
    Moments,
    ProbeExamples,
    columns_of,
    examples,
    joined,
    share_named,
)
from eagle3.target import Target, load_target
from eagle3.training.data import Sequence, load_data
from eagle3.training.vocabulary import choose_draft_vocabulary, count_answer_tokens

NUM_FIT, NUM_TUNE, NUM_TEST = 40, 4, 16  # sequences
TEST_EVERY = 3  # positions that lie side by side have much in common
NUM_DEPTHS = 7  # spread over the layers; the taps and the last layer come on top
VOCAB_SIZE = 2048
DAMPINGS = (0.01, 0.03, 0.1, 0.3, 1.0)
RESULTS = Path(__file__).parents[1] / "figures" / "results"


class Bench:
    """Moments of the examples to fit on, and groups of examples to test on.

    Layers are called by their place in `layers`, whose states lie side by side; the top
    feature follows, and then the token. [Ours]
    """

    def __init__(self, target: Target, fit: list[Sequence], vocabulary: Tensor):
        self.target, self.k = target, target.hidden_size
        last = target.num_layers - 1
        spread = {round(last * i / NUM_DEPTHS) for i in range(NUM_DEPTHS + 1)}
        self.layers = sorted(spread | set(target.taps))
        self.states = len(self.layers) + 1  # and the top feature
        self.head = target.head[vocabulary]  # [C, k]
        self.row = torch.full((target.vocab_size,), -1)
        self.row[vocabulary] = torch.arange(len(vocabulary))
        self.moments = Moments((self.states + 1) * self.k, 2 * self.k)
        for first in range(0, len(fit), 12):
            part = self.examples(fit[first : first + 12])
            self.moments.add(side_by_side(part), part.aims.flatten(1))

    def examples(self, sequences: list[Sequence]) -> ProbeExamples:
        """Examples of these sequences, at the layers that are probed."""
        parts = [examples(self.target, s, self.layers) for s in sequences]
        return joined(parts)

    def share(
        self, group: ProbeExamples, places: tuple[int, ...], ahead: int, damping: float
    ) -> float:
        """How often a probe on these states is right. ahead: 0 next, 1 after next,
        2 after next with the token between."""
        parts = (*places, self.states) if ahead == 2 else places
        inputs = columns_of(parts, self.k)
        aim = min(ahead, 1)
        outputs = columns_of([aim], self.k)
        probe = self.moments.fit(inputs, outputs, damping)
        x = [group.states[:, i] for i in places] + [group.token] * (ahead == 2)
        estimate = probe(torch.cat(x, dim=-1))
        return share_named(estimate, self.row[group.best[:, aim]], self.head)


def side_by_side(part: ProbeExamples) -> Tensor:
    """All inputs of all probes: [N, (S + 1) k]."""
    return torch.cat([part.states.flatten(1), part.token], dim=-1)


def best_damping(share: Callable[[float], float]) -> float:
    """The damping that does best on examples that are used for nothing else."""
    return max(DAMPINGS, key=share)


def thinned(group: ProbeExamples, every: int) -> ProbeExamples:
    """Every so many-th example."""
    return ProbeExamples(*(tensor[::every] for tensor in vars(group).values()))


def main(data: Path, held_out: Path) -> None:
    """Fit, test, and write what came out."""
    started = time.perf_counter()
    target = load_target()
    everything, held = load_data(data), load_data(held_out)
    drawn = [s for s in everything if s.temperature == 1.0]
    counts = count_answer_tokens(drawn, target.vocab_size)
    vocabulary = choose_draft_vocabulary(counts, VOCAB_SIZE)
    bench = Bench(target, drawn[:NUM_FIT], vocabulary)
    print(bench.moments.count, "examples", round(time.perf_counter() - started), "s")
    tune_on = drawn[NUM_FIT : NUM_FIT + NUM_TUNE]
    tune = bench.examples(tune_on)
    step = len(held) // NUM_TEST
    test = thinned(bench.examples(held[::step][:NUM_TEST]), TEST_EVERY)
    taps = tuple(bench.layers.index(tap) for tap in target.taps)

    singles, dampings = {"layers": [*bench.layers, target.num_layers]}, {}
    names = ("next", "after_next", "after_next_with_token")
    for ahead, name in enumerate(names):
        some = [(i,) for i in range(1, bench.states, 4)]

        def mean(d: float, ahead: int = ahead, some: list = some) -> float:
            return sum(bench.share(tune, i, ahead, d) for i in some) / len(some)

        dampings[name] = best_damping(mean)
        singles[name] = [
            bench.share(test, (i,), ahead, dampings[name]) for i in range(bench.states)
        ]
        print(name, dampings[name], [round(x, 3) for x in singles[name]], flush=True)
    for ahead in (0, 2):
        name = f"triple_{names[ahead]}"

        def of_taps(d: float, ahead: int = ahead) -> float:
            return bench.share(tune, taps, ahead, d)

        dampings[name] = best_damping(of_taps)
    rows = []
    for places in combinations(range(len(bench.layers)), 3):
        shares = [
            bench.share(test, places, ahead, dampings[f"triple_{names[ahead]}"])
            for ahead in (0, 2)
        ]
        triple = [bench.layers[i] for i in places]
        rows.append([*triple, *(round(share, 4) for share in shares)])
        if len(rows) % 20 == 0:
            passed = round(time.perf_counter() - started)
            print(len(rows), passed, "s", rows[-1], flush=True)
    content = {
        "what": "how often a linear probe names the target's choice, by layer",
        "target": "SmolLM2-135M-Instruct",
        "data": {
            "fit_examples": bench.moments.count,
            "test_examples": len(test.best),
            "fit": "answers drawn at temperature 1",
            "test": "greedy answers to prompts that are not in the other file",
            "tokens": VOCAB_SIZE,
            "tokens_cover": float((bench.row[test.best[:, 0]] >= 0).float().mean()),
        },
        "damping": dampings,
        "taps": list(target.taps),
        "singles": singles,
        "triples": {"columns": ["low", "middle", "high", names[0], names[2]]}
        | {"rows": rows},
    }
    print(write_results("probes", content, RESULTS))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

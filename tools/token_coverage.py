"""Counts how much of the target's answers a draft vocabulary covers, by its size.

The most frequent tokens of the training answers are kept, and looked up in those
answers and in answers to other prompts. Chapter 6 shows the result,
figures/results/coverage.json.

    python tools/token_coverage.py DATA HELD_OUT
"""

import sys
from pathlib import Path

from torch import Tensor

from eagle3.bench.environment import write_results
from eagle3.target import load_target
from eagle3.training.data import Sequence, load_data
from eagle3.training.vocabulary import (
    choose_draft_vocabulary,
    count_answer_tokens,
    coverage,
)

SIZES = (125, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000)
RESULTS = Path(__file__).parents[1] / "figures" / "results"


def described(sequences: list[Sequence], counts: Tensor) -> dict[str, int]:
    """How much text there is: counts [V]."""
    return {
        "sequences": len(sequences),
        "tokens": int(counts.sum()),
        "distinct": int((counts > 0).sum()),
    }


def measure(data: list[Sequence], held: list[Sequence], vocab_size: int) -> dict:
    """Coverage of both texts, and of the held-out one by kind of prompt."""
    counts = count_answer_tokens(data, vocab_size)
    of_held = count_answer_tokens(held, vocab_size)
    chosen = [choose_draft_vocabulary(counts, size) for size in SIZES]
    kinds = {
        kind: count_answer_tokens([s for s in held if s.kind == kind], vocab_size)
        for kind in sorted({s.kind for s in held})
    }
    return {
        "trained_on": described(data, counts),
        "held_out": described(held, of_held),
        "sizes": list(SIZES),
        "coverage": {
            "counted": [coverage(counts, ids) for ids in chosen],
            "held out": [coverage(of_held, ids) for ids in chosen],
        },
        "by_kind": {
            kind: [coverage(of_kind, ids) for ids in chosen]
            for kind, of_kind in kinds.items()
        },
    }


if __name__ == "__main__":
    texts = [load_data(Path(name)) for name in sys.argv[1:3]]
    what = "share of the target's answer tokens in a draft vocabulary, by its size"
    content = measure(*texts, load_target().vocab_size)
    print(write_results("coverage", {"what": what, **content}, RESULTS))

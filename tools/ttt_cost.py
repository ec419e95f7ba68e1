"""Measures what the attention of training-time test costs, in each of its forms.

    python tools/ttt_cost.py [LENGTH ...]

Without lengths all five are measured, at 1 to 7 steps, with the shapes of the shipped
draft. Every cell is saved at once, so run it again after a kill and it goes on. The
dense mask at 2,048 tokens and 7 steps needs about 9 GB. Chapter 8 shows the result,
figures/results/ttt_cost.json.
"""

import sys
from pathlib import Path

from eagle3 import load_draft
from eagle3.bench.ttt_cost import LENGTHS, TttCostConfig, measure

RESULTS = Path(__file__).parents[1] / "figures" / "results"


if __name__ == "__main__":
    lengths = tuple(int(word) for word in sys.argv[1:]) or LENGTHS
    config = TttCostConfig.of(load_draft().config)
    print(measure(config, RESULTS, lengths, lambda text: print(text, flush=True)))

"""Picks some of the target's own answers for chapter 4: figures/results/answers.json.

Three groups of short ones, as token ids: two drawn at temperature 1, to fit something
on and to test it on, and one at temperature 0 on prompts that no draft was trained on.

    python tools/answers.py DATA HELD_OUT
"""

import sys
from pathlib import Path

from eagle3.bench.environment import write_results
from eagle3.training.data import Sequence, load_data

SHORT, LONG = range(90, 151), range(90, 241)  # prompt and answer, in tokens
NUM_FIT, NUM_TEST, NUM_HELD_OUT = 24, 10, 10


def pick(folder: Path, temperature: float, lengths: range) -> list[dict]:
    """The sequences of this temperature and of such a length."""
    return [
        {
            "token_ids": sequence.token_ids.tolist(),
            "num_prompt": sequence.num_prompt,
            "kind": sequence.kind,
        }
        for sequence in load_data(folder)
        if sequence.temperature == temperature and _fits(sequence, lengths)
    ]


def _fits(sequence: Sequence, lengths: range) -> bool:
    return len(sequence.token_ids) in lengths and sequence.num_prompt < 60


def main(data: Path, held_out: Path, folder: Path) -> Path:
    """Write the three groups."""
    drawn, greedy = pick(data, 1.0, SHORT), pick(held_out, 0.0, LONG)
    groups = {
        "fit": drawn[:NUM_FIT],
        "test": drawn[NUM_FIT : NUM_FIT + NUM_TEST],
        "held_out": greedy[:: len(greedy) // NUM_HELD_OUT][:NUM_HELD_OUT],
    }
    for name, group in groups.items():
        tokens = sum(len(s["token_ids"]) for s in group)
        print(name, len(group), tokens, {s["kind"] for s in group})
    content = {"what": "answers of SmolLM2-135M-Instruct, as token ids", **groups}
    return write_results("answers", content, folder)


if __name__ == "__main__":
    results = Path(__file__).parents[1] / "figures" / "results"
    print(main(*map(Path, sys.argv[1:3]), results))

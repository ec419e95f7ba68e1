"""Records the run that the book opens with, as figures/results/trace.json.

The run is greedy, so everybody who repeats it gets the same tokens; chapter 0 checks
that. Times are left out on purpose.
"""

import sys
from functools import partial
from pathlib import Path

from eagle3 import generate, load_draft, load_target
from eagle3.bench.environment import write_results
from eagle3.trace import rows_to_json, trace_rows

PROMPT = "How can I cook rice?"
MAX_NEW_TOKENS = 64
CHAIN_LENGTH = 3


def record(folder: Path) -> Path:
    """Run the prompt with the shipped draft and save its cycles."""
    target = load_target()
    draft = load_draft(target=target)
    result = generate(
        target,
        draft,
        PROMPT,
        max_new_tokens=MAX_NEW_TOKENS,
        chain_length=CHAIN_LENGTH,
    )
    rows = trace_rows(result, partial(target.decode, keep_special=True))
    content = {
        "prompt": PROMPT,
        "max_new_tokens": MAX_NEW_TOKENS,
        "chain_length": CHAIN_LENGTH,
        "text": result.text,
        "acceptance_length": result.acceptance_length,
        "rows": rows_to_json(rows),
    }
    return write_results("trace", content, folder)


if __name__ == "__main__":
    default = Path(__file__).parents[1] / "figures" / "results"
    print(record(Path(sys.argv[1]) if len(sys.argv) > 1 else default))

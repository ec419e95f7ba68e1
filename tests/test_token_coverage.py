"""tools/token_coverage.py: shares counted by hand, and what the committed file says."""

from pathlib import Path

import pytest
import token_coverage
import torch

from eagle3.bench.environment import read_results
from eagle3.training.data import Sequence

RESULTS = Path(__file__).parents[1] / "figures" / "results"


def sequence(ids: list[int], kind: str) -> Sequence:
    return Sequence(torch.tensor([90, *ids]), 1, kind, 0.0)


def test_the_vocabulary_is_chosen_on_one_text_and_tested_on_another(monkeypatch):
    monkeypatch.setattr(token_coverage, "SIZES", (1, 2, 96))
    data = [sequence([5, 5, 5, 7, 7, 3], "chat"), sequence([5, 7], "code")]
    held = [sequence([7, 7, 3, 3], "chat"), sequence([5, 8], "code")]
    found = token_coverage.measure(data, held, vocab_size=96)
    assert found["trained_on"] == {"sequences": 2, "tokens": 8, "distinct": 3}
    assert found["held_out"] == {"sequences": 2, "tokens": 6, "distinct": 4}
    # 5 four times, 7 three times, 3 once; prompts don't count
    assert found["coverage"]["counted"] == pytest.approx([4 / 8, 7 / 8, 1])
    assert found["coverage"]["held out"] == pytest.approx([1 / 6, 3 / 6, 1])
    assert found["by_kind"]["code"] == pytest.approx([1 / 2, 1 / 2, 1])


def test_the_committed_shares_rise_and_end_below_one():
    stored = read_results("coverage", RESULTS)
    for shares in (*stored["coverage"].values(), *stored["by_kind"].values()):
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] <= 1

"""The draft vocabulary: the tokens that the target uses most.

The draft's head runs at every drafted token, so it covers only frequent tokens. A
token outside can't be proposed; the target still emits it itself, so nothing is lost
but speed. [Code: eagle/traineagle3, which counts the tokens under the loss mask]
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from eagle3.training.data import Sequence


def count_answer_tokens(sequences: Iterable[Sequence], vocab_size: int) -> Tensor:
    """How often each token occurs in the answers: [V] int64."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sequence in sequences:
        answer = sequence.token_ids[sequence.num_prompt :]
        counts += torch.bincount(answer, minlength=vocab_size)
    return counts


def choose_draft_vocabulary(counts: Tensor, size: int) -> Tensor:
    """The `size` most frequent target ids, ascending: counts [V] -> [Vd] int64.

    Among equally frequent tokens the smaller id comes first, so a vocabulary larger
    than the set of tokens seen is filled with the smallest unseen ids. Raises
    ValueError when size is not between 1 and V.
    """
    if not 1 <= size <= len(counts):
        raise ValueError(
            f"a draft vocabulary of {size} tokens can't be chosen from a target "
            f"vocabulary of {len(counts)}: take a size from 1 to {len(counts)}."
        )
    by_frequency = counts.argsort(descending=True, stable=True)
    return by_frequency[:size].sort().values


def coverage(counts: Tensor, draft_vocab: Tensor) -> float:
    """The share of counted tokens that the draft can propose, from 0 to 1."""
    return (counts[draft_vocab].sum() / counts.sum()).item()

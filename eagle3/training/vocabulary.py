"""The draft vocabulary: the tokens that the target uses most.

The draft's head runs at every drafted token, so it covers only frequent tokens. A
token outside can't be proposed; the target still emits it itself, so nothing is lost
but speed. [Code: eagle/traineagle3, which counts the tokens under the loss mask]
"""

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from eagle3.draft import Eagle3Draft
from eagle3.training.data import Sequence


def count_answer_tokens(sequences: Iterable[Sequence], vocab_size: int) -> Tensor:
    """How often each token occurs in the answers: [V] int64. [Code]"""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sequence in sequences:
        answer = sequence.token_ids[sequence.num_prompt :]
        counts += torch.bincount(answer, minlength=vocab_size)
    return counts


def choose_draft_vocabulary(counts: Tensor, size: int) -> Tensor:
    """The `size` most frequent target ids, ascending: counts [V] -> [Vd] int64.

    Among equally frequent tokens the smaller id comes first, so a vocabulary larger
    than the set of tokens seen is filled with the smallest unseen ids. Raises
    ValueError when size is not between 1 and V. [Code: eagle/traineagle3]
    """
    if not 1 <= size <= len(counts):
        raise ValueError(
            f"a draft vocabulary of {size} tokens can't be chosen from a target "
            f"vocabulary of {len(counts)}: take a size from 1 to {len(counts)}."
        )
    by_frequency = counts.argsort(descending=True, stable=True)
    return by_frequency[:size].sort().values


def coverage(counts: Tensor, draft_vocab: Tensor) -> float:
    """The share of counted tokens that the draft can propose, from 0 to 1.

    counts: [V]      draft_vocab: [Vd] target ids
    Raises ValueError when nothing was counted. [Ours]
    """
    if not counts.any():
        raise ValueError(
            "no answer token was counted: the data's answers are empty, so look at "
            "`num_prompt` of its sequences."
        )
    return (counts[draft_vocab].sum() / counts.sum()).item()


@torch.no_grad()
def shrink_vocabulary(draft: Eagle3Draft, draft_vocab: Tensor) -> Eagle3Draft:
    """The same draft with a smaller vocabulary: its head keeps fewer rows.

    draft_vocab: [Vd'] int64, ascending target ids, all known to `draft`
    A token's score does not change, so nothing has to be trained again; a smaller
    head makes every drafted token cheaper and misses more of them. Raises ValueError
    for a token that the draft doesn't know. [Ours]
    """
    unknown = draft_vocab[~draft.in_draft[draft_vocab]]
    if len(unknown):
        raise ValueError(
            f"token {int(unknown[0])} is not in the draft's vocabulary: only tokens "
            "that the draft was trained on can be kept."
        )
    config = dataclasses.replace(draft.config, draft_vocab_size=len(draft_vocab))
    small = Eagle3Draft(config, draft.embed.weight, draft_vocab)
    state = draft.state_dict() | {"d2t": draft_vocab}
    state["lm_head.weight"] = state["lm_head.weight"][
        torch.searchsorted(draft.d2t, draft_vocab)
    ]
    small.load_state_dict(state)
    return small

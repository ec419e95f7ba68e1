"""n-alpha: how often the draft's next token is right after n right ones.

n-alpha is the acceptance rate of a drafted token when n tokens before it in the chain
were drafted and accepted, so when n of its inputs are the draft's own output. The
paper measures it with chains at temperature 0. [Paper, section 4.2, Figure 7]
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from eagle3.feature_draft import FeatureDraft
from eagle3.training import processes
from eagle3.training.batches import FeatureBatch

NUM_ALPHAS = 8  # the paper tells 0-alpha to 7-alpha


class Chains(NamedTuple):
    """Counts of chains by step n.

    right: their guess n was right
    reached: all their guesses before n were right
    fresh: reached, and the draft guesses right there if it reads the target's features
        up to there, and nothing of its own

    [Paper, section 4.2; fresh: Ours]
    """

    right: list[int]
    reached: list[int]
    fresh: list[int]


def n_alpha(
    draft: FeatureDraft, batches: Iterable[FeatureBatch], steps: int
) -> list[float]:
    """n-alpha for n = 0 .. steps - 1, from every position of greedy answers.

    batches: sequences whose answers the target gave at temperature 0
    steps: how many numbers to return, each from 0 to 1; 0 where no chain came so far
    [Paper, section 4.2]
    """
    counts = count_chains(draft, batches, steps)
    return shares(counts.right, counts.reached)


@torch.no_grad()
def count_chains(
    draft: FeatureDraft, batches: Iterable[FeatureBatch], steps: int
) -> Chains:
    """How many chains came to step n, how many were right there, and could have been.

    batches, steps: as for `n_alpha`, which divides `right` by `reached`

    On the target's own greedy text a drafted token is accepted exactly if it is the
    text's next token, so chains from all positions are scored in `steps` parallel
    passes and no text is generated. Positions after a miss don't count. [Paper,
    section 4.2; the parallel way: Ours]

    Chains that come far run through text that is easy to guess. `right` over `fresh`
    compares the same places, so it tells what the draft's own outputs cost. [Ours]
    """
    right, reached, fresh = [0] * steps, [0] * steps, [0] * steps
    for batch in batches:
        first = torch.zeros(())
        for n, (alive, correct) in enumerate(_chains(draft, batch, steps)):
            first = correct if n == 0 else first
            reached[n] += int(alive.sum())
            right[n] += int((alive & correct).sum())
            fresh[n] += int((alive & first.roll(-n, 1)).sum())
    return Chains(right, reached, fresh)


def shares(right: list[int], reached: list[int]) -> list[float]:
    """How many of the reached were right, counted over all processes; 0 for 0 of 0.

    [Ours]
    """
    counts = processes.total(torch.tensor([right, reached]))
    return [a / max(1, b) for a, b in zip(*counts.tolist(), strict=True)]


def _chains(
    draft: FeatureDraft, batch: FeatureBatch, steps: int
) -> Iterable[tuple[Tensor, Tensor]]:
    """Per step: [B, T] chains still alive, and whether their next token is right."""
    ids, keys = batch.input_ids, []
    x = draft.fuse(batch.features)
    columns = torch.arange(ids.shape[1], device=ids.device)
    alive = torch.ones_like(ids, dtype=torch.bool)
    for n in range(steps):
        # Row i reads token i+1+n and predicts token i+2+n; the row's mask says
        # whether token i+1 belongs to the answer.
        x = draft.forward_ttt(ids.roll(-1 - n, 1), x, columns + n, keys)
        is_answer = batch.loss_mask.roll(-1 - n, 1).bool()
        is_answer[:, ids.shape[1] - 1 - n :] = False
        alive = alive & batch.loss_mask.bool() & is_answer
        correct = torch.zeros_like(alive)
        # A head can be wide: it runs where a chain is alive, and nowhere else.
        predicted = draft.d2t[draft.logits(x[alive]).argmax(-1)]
        correct[alive] = predicted == ids.roll(-2 - n, 1)[alive]
        yield alive, correct
        alive = correct

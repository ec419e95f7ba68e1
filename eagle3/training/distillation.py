"""What Medusa and the draft language model share: the target's word on every token.

Both put the target's whole frozen head behind what they train, and both learn from the
target's whole distribution p: the cross-entropy -sum_v p(v) log q(v). On text that was
drawn from p this has the same expectation as the cross-entropy with the text's own
token, and less noise. [Ours]

The target's head is wide: everything here runs on chosen positions, R of them, and,
where a recipe asks for it, on a sample of the head's rows, Vs of them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from eagle3.training import processes
from eagle3.training.metrics import shares
from eagle3.training.recipe import Start
from eagle3.training.vocabulary import choose_draft_vocabulary, count_answer_tokens

NUM_OTHERS = 2048  # rows drawn beside the common tokens


def common_tokens(start: Start, num_common: int) -> Tensor:
    """The most frequent tokens of the training answers, or all where there are fewer.

    Returns C ids, [C], ascending. Raises ValueError when num_common is below 1. [Ours]
    """
    vocab_size = start.target.vocab_size
    counts = count_answer_tokens(start.sequences, vocab_size)
    return choose_draft_vocabulary(counts, min(num_common, vocab_size))


class HeadRows(NamedTuple):
    """The rows of the target's head that one step of training runs.

    weight: [Vs, k]
    log_share: [Vs]  log of how many tokens of the vocabulary each row stands for; None
        for one each

    [Ours]
    """

    weight: Tensor
    log_share: Tensor | None = None

    def logits(self, states: Tensor) -> Tensor:
        """Scores of the rows. states: [R, k] -> [R, Vs] float32. [Ours]"""
        return F.linear(states.float(), self.weight, self.log_share)


def sample_rows(head: Tensor, common: Tensor, num_others: int, step: int) -> HeadRows:
    """The common tokens' rows, and some others by lot that stand for all the rest.

    head: [V, k]   common: [C] ids, always among the rows
    num_others: rows drawn from the other V - C tokens, anew at each step and by the
        step alone. Each stands for (V - C) / num_others tokens, so that sums over the
        vocabulary keep their expectation.

    With nothing left to draw from, these are all rows. A softmax costs in proportion to
    its width, and 4,096 of 49,152 tokens are 91% of our text. [Ours]
    """
    rare = torch.ones(len(head), dtype=torch.bool).index_fill_(0, common, False)
    rest = rare.nonzero().flatten()
    generator = torch.Generator().manual_seed(step)
    drawn = rest[torch.randperm(len(rest), generator=generator)[:num_others]]
    if len(drawn) == len(rest):
        return HeadRows(head)
    log_share = torch.zeros(len(common) + len(drawn))
    log_share[len(common) :] = math.log(len(rest) / len(drawn))
    ids = torch.cat([common, drawn]).to(head.device)
    return HeadRows(head[ids], log_share.to(head.device))


@torch.no_grad()
def target_distribution(hidden: Tensor, rows: HeadRows) -> Tensor:
    """What the target said, from its stored states: softmax(hidden @ head.T).

    hidden: [R, k], after the final norm   rows: Vs rows of its head
    Returns p: [R, Vs] float32. [Ours]
    """
    return rows.logits(hidden).softmax(-1)


def soft_cross_entropy(logits: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy with whole distributions, and how often the best tokens agree.

    logits: [R, Vs]  of the draft   probs: [R, Vs]  the target's p
    Returns two means over the rows, each []: the cross-entropy in nats with its
    gradient, and the share of rows where draft and target have the same best token.
    Both are 0 without rows. The means are over the rows of all processes, and each
    returns its part. [Ours]
    """
    num_rows = processes.total(torch.tensor(len(logits))).clamp(min=1).item()
    # log q(v) = z_v - log sum exp(z), and the p(v) sum to 1.
    losses = logits.logsumexp(-1) - torch.linalg.vecdot(probs, logits)
    agree = logits.argmax(-1) == probs.argmax(-1)
    return losses.sum() / num_rows, agree.sum() / num_rows


class ChainCount:
    """Counts n-alpha from which tokens are right, for n = 0 .. num - 1.

    The same definition as `eagle3.training.metrics.n_alpha`, for drafts that tell all
    their guesses from the target's own text at once. [Paper, section 4.2; Ours]
    """

    def __init__(self, num: int):
        self.reached, self.right = [0] * num, [0] * num

    def add(self, guess: Callable[[int, Tensor], Tensor], loss_mask: Tensor) -> None:
        """Count one batch of greedy answers.

        guess: (n, alive [B, T] bool) -> [B, T] bool: is what row i guesses for token
            i+2+n, after n right guesses, that token? Read where alive is set only
        loss_mask: [B, T]  in next-token form

        A guess counts where pending token i+1 and token i+2+n belong to the answer and
        all guesses before it were right. [Paper, section 4.2]
        """
        alive = loss_mask.bool()
        for n in range(len(self.reached)):
            alive = alive & shift(loss_mask.bool(), n + 1)
            self.reached[n] += int(alive.sum())
            alive = alive & guess(n, alive)
            self.right[n] += int(alive.sum())

    def alphas(self) -> list[float]:
        """n-alpha for every n, 0 where no chain came so far. [Paper, section 4.2]"""
        return shares(self.right, self.reached)


def shift(values: Tensor, count: int) -> Tensor:
    """Row i gets the value of row i + count, the last rows get 0.

    values: [B, T] -> [B, T]. [Ours]
    """
    moved = torch.zeros_like(values)
    moved[:, : max(0, values.shape[1] - count)] = values[:, count:]
    return moved

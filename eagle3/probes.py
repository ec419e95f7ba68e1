"""Linear probes: what one matrix can read off a hidden state of the target.

A probe maps the state that enters some layer to an estimate of a top feature, and the
target's own head names the token. It is fitted by damped least squares in closed form:
no learning rate, no epochs, and the same data give the same probe. What a probe finds
is there; what it misses may still be there for a reader that isn't linear. [Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eagle3.target import Target
from eagle3.training.data import Sequence as TrainingSequence


@dataclass(frozen=True)
class ProbeExamples:
    """What the target computed at N positions i of its own answers.

    states: [N, S, k]  what enters each of S - 1 layers, and last the top feature; each
        vector scaled to length sqrt(k), as every norm of the target scales it
    token: [N, k]  embedding of token i+1, scaled likewise
    aims: [N, 2, k]  top features of positions i and i+1
    best: [N, 2] int64  the target's best tokens i+1 and i+2

    [Ours]
    """

    states: Tensor
    token: Tensor
    aims: Tensor
    best: Tensor


def examples(
    target: Target, sequence: TrainingSequence, layers: Sequence[int]
) -> ProbeExamples:
    """One example for each token of the answer that has a token after it.

    layers: ascending; what enters them, and the top feature behind, are the states
        [N, len(layers) + 1, k]

    Raises ValueError for layers that the target doesn't have. [Ours]
    """
    ids = sequence.token_ids
    output = target.tapping(layers).forward(ids[None].to(target.device))
    hidden = output.hidden[0].float()  # [T, k]
    states = output.features[0].unflatten(-1, (len(layers), -1)).float()
    states = torch.cat([states, hidden[:, None]], dim=1)  # [T, len(layers) + 1, k]
    best = output.logits[0].argmax(-1)  # [T]
    i = torch.arange(sequence.num_prompt - 1, len(ids) - 1)
    return ProbeExamples(
        unit_rows(states[i]),
        unit_rows(target.embedding[ids[i + 1]].float()),
        torch.stack([hidden[i], hidden[i + 1]], dim=1),
        torch.stack([best[i], best[i + 1]], dim=1),
    )


def unit_rows(x: Tensor) -> Tensor:
    """Every vector at root mean square 1: [..., k] -> [..., k]. [Ours]"""
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def joined(parts: Sequence[ProbeExamples]) -> ProbeExamples:
    """All examples together, [N, ...] with the sum of their Ns. [Ours]"""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return ProbeExamples(*(torch.cat(column) for column in columns))


@dataclass(frozen=True)
class Probe:
    """A linear map with a constant.

    weight: [d, m]   bias: [m]

    [Ours]
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """The estimate: x [N, d] -> [N, m]."""
        return x @ self.weight + self.bias


class Moments:
    """Sums over examples, from which a probe on any part of the inputs can be fitted.

    inputs: D, width of all inputs together      outputs: m

    Examples come in pieces and are not kept, so there may be more of them than fit
    into memory; and a probe on other inputs costs no second pass over them. [Ours]
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        self.count = 0
        self.sum_x, self.sum_y = torch.zeros(inputs), torch.zeros(outputs)
        self.xx, self.xy = torch.zeros(inputs, inputs), torch.zeros(inputs, outputs)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Count in N examples: x [N, D], y [N, m]. [Ours]"""
        self.count += len(x)
        self.sum_x += x.sum(0)
        self.sum_y += y.sum(0)
        self.xx.addmm_(x.T, x)
        self.xy.addmm_(x.T, y)

    def fit(self, inputs: Tensor, outputs: Tensor, damping: float) -> Probe:
        """The probe with the least squared error on the examples, kept small.

        inputs: [d] int64  columns of x to read      outputs: [m'] int64  columns of y
        damping: penalty on the squared weights, for each example
        Returns weight [d, m'] and bias [m']. Raises ValueError without examples, or
        for a damping that isn't positive. [Derived: ridge regression]
        """
        if not self.count:
            raise ValueError("no example was counted in: call add(x, y) first.")
        if not damping > 0:
            raise ValueError(
                f"a damping of {damping} leaves the weights free to grow: take a "
                "positive number, as in 0.03."
            )
        mean_x = self.sum_x[inputs] / self.count
        mean_y = self.sum_y[outputs] / self.count
        gram = self.xx[inputs][:, inputs] - self.count * mean_x.outer(mean_x)
        gram.diagonal().add_(damping * self.count)
        cross = self.xy[inputs][:, outputs] - self.count * mean_x.outer(mean_y)
        weight = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
        return Probe(weight, mean_y - mean_x @ weight)


def fit_probe(x: Tensor, y: Tensor, damping: float = 0.03) -> Probe:
    """One probe on examples x [N, d], y [N, m]; see `Moments.fit`. [Ours]"""
    moments = Moments(x.shape[1], y.shape[1])
    moments.add(x, y)
    return moments.fit(torch.arange(x.shape[1]), torch.arange(y.shape[1]), damping)


def share_named(estimate: Tensor, best: Tensor, head: Tensor) -> float:
    """How often the head makes the right token of an estimate of a top feature.

    estimate: [N, k]      best: [N] int64, the right row of `head`, or -1 for none
    head: [C, k]  scores for C tokens
    Returns a share from 0 to 1. Works in pieces: scores take N x C numbers. [Ours]
    """
    pairs = zip(estimate.split(1024), best.split(1024), strict=True)
    right = sum(int(((x @ head.T).argmax(-1) == b).sum()) for x, b in pairs)
    return right / len(best)


def columns_of(places: Sequence[int], width: int) -> Tensor:
    """Where these states lie in all of them side by side: [len(places) * width]. [Ours]

    width: k, numbers of one state
    """
    return torch.cat([torch.arange(i * width, (i + 1) * width) for i in places])

"""From logits to a decided token: distributions, sampling, accept or resample.

Implements the acceptance rule of speculative sampling (EAGLE-3 paper, section 2.1)
for a chain of drafted tokens. It knows nothing of models: p (the target's
distributions) and q (the draft's) arrive as tensors. Left out: the rule for a tree.

Letters: n drafted tokens, V target vocabulary, p target, q draft.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_HEAD = 512  # tokens sorted first by top-p; a peaked row needs far fewer


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is drawn: filters and a seed, checked on construction.

    temperature: 0 means greedy (argmax); otherwise logits are divided by it.
    top_k: keep the k largest logits; None keeps all.
    top_p: keep the smallest set of most probable tokens that holds this mass; 1.0
        keeps all.
    seed: seed of the generator that makes every random choice of one generation.
    Raises ValueError where a value is outside its range.
    Source: order and meaning as in transformers' logits warpers; [Ours].
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(
                f"temperature is {self.temperature!r}; "
                "use 0 for greedy or a finite positive number."
            )
        if self.top_k is not None and (
            not isinstance(self.top_k, int) or self.top_k < 1
        ):
            raise ValueError(
                f"top_k is {self.top_k!r}; use an integer of at least 1, "
                "or None to keep every token."
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_p is {self.top_p!r}; use a number above 0 and up to 1 "
                "(1 keeps every token)."
            )
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(
                f"seed is {self.seed!r}; use an integer from 0 to 2**63 - 1."
            )

    @property
    def is_greedy(self) -> bool:
        """True at temperature 0, where the next token is the argmax. Source: [Ours]."""
        return self.temperature == 0


def next_token_distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """Turn logits into the distribution that the next token is drawn from.

    Temperature first, then top-k, then top-p. Temperature 0 gives a one-hot row at
    the argmax (the lowest index on a tie), whatever the filters say.
    logits: [..., V]  raw scores, any float type; -inf forbids a token
    returns: [..., V]  float32, each row sums to 1
    Raises FloatingPointError for a row with NaN or +inf, or with no finite entry.
    Source: transformers' Temperature, TopK and TopP logits warpers; [Ours].
    """
    scores = logits.float()
    best = scores.amax(-1, keepdim=True)  # NaN in a row comes out of amax as NaN
    if not bool(torch.isfinite(best).all()):
        raise FloatingPointError(
            "The logits of a row hold NaN or +inf, or no finite value at all; "
            "check the model's weights and dtype (float32 is the safe choice)."
        )
    if params.is_greedy:
        hit = scores.argmax(-1, keepdim=True)  # torch returns the first maximum
        return torch.zeros_like(scores).scatter_(-1, hit, 1.0)
    # Moving the maximum to 0 changes no softmax and keeps a tiny temperature finite.
    scores = (scores - best) / params.temperature
    if params.top_k is not None:
        scores = _keep_top_k(scores, params.top_k)
    if params.top_p < 1:
        scores = _keep_top_p(scores, params.top_p)
    return scores.softmax(-1)


def _keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Forbid every score below the k-th largest; ties with it stay.

    scores, returns: [..., V]
    """
    floor = scores.topk(min(k, scores.shape[-1]), dim=-1).values[..., -1:]
    return scores.masked_fill(scores < floor, -torch.inf)


def _keep_top_p(scores: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of most probable tokens that holds mass top_p.

    A token stays while the tokens before it hold less than top_p. Sorting a whole
    vocabulary costs more than the rest of a decision, so the head is tried first.
    scores, returns: [..., V]
    """
    log_total = scores.logsumexp(-1, keepdim=True)
    vocab = scores.shape[-1]
    for size in (min(_HEAD, vocab), vocab):
        head, order = scores.topk(size, dim=-1)  # [..., size], largest first
        mass = (head - log_total).exp()
        keep = mass.cumsum(-1) - mass < top_p
        if not bool(keep[..., -1].any()):  # no row reaches beyond this head
            break
    kept = head.masked_fill(~keep, -torch.inf)
    return torch.full_like(scores, -torch.inf).scatter_(-1, order, kept)


def sample(probs: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one token from each row; a token of probability 0 is never drawn.

    probs: [..., V]  non-negative rows with a positive sum
    returns: [...]  int64 token ids
    Source: torch.multinomial with an explicit generator; [Ours].
    """
    rows = probs.reshape(-1, probs.shape[-1])  # [..., V] -> [N, V]
    ids = torch.multinomial(rows, 1, generator=generator)  # [N, 1]
    return ids.reshape(probs.shape[:-1])


def acceptance_probability(p: Tensor, q: Tensor, token: int) -> float:
    """Chance that a token drawn from q is kept as a sample of p: min(1, p / q).

    p: [V]  target distribution
    q: [V]  the distribution that the token was really drawn from; one-hot for a
        token that was chosen without chance
    returns: a number from 0 to 1
    Raises ValueError where q gives the token no probability: then q is not the
    distribution it was drawn from.
    Source: [Paper] section 2.1.
    """
    return _acceptance(float(p[token]), float(q[token]), token)


def _acceptance(p_token: float, q_token: float, token: int) -> float:
    if not q_token > 0:  # written so that NaN is caught too
        raise ValueError(
            f"q gives drafted token {token} probability {q_token}; "
            "pass the q that the token was really drawn from."
        )
    return min(1.0, p_token / q_token)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What p still owes after q's tokens were accepted: norm(max(0, p - q)).

    p, q: [V]  target and draft distribution
    returns: [V]  sums to 1; p itself where rounding leaves nothing of the difference
    Source: [Paper] section 2.1; the fallback to p is [Ours].
    """
    owed = (p - q).clamp(min=0)
    total = owed.sum()
    return owed / total if bool(total > 0) else p


@dataclass(frozen=True)
class ChainDecision:
    """The outcome of verifying one chain.

    num_accepted: drafted tokens kept, counted from the front
    next_token: the target's own token that follows them
    kind: "replacement" after a rejection, "bonus" when every draft was kept
    Source: [Paper] section 2.1; the bonus token is [Ours].
    """

    num_accepted: int
    next_token: int
    kind: Literal["replacement", "bonus"]


def verify_chain(
    draft_tokens: list[int], q: Tensor, p: Tensor, generator: torch.Generator
) -> ChainDecision:
    """Accept drafted tokens front to back; resample at the first rejection.

    Token i is kept with probability min(1, p_i / q_i). The first one that fails is
    replaced by a draw from residual(p_i, q_i) and ends the chain; if none fails, a
    bonus token is drawn from the last row of p. What comes out is distributed as if
    the target had decoded alone.
    draft_tokens: n token ids
    q: [n, V]  row i is the distribution that token i was really drawn from
    p: [n + 1, V]  target distributions at the same positions, and one more
    generator: on p's device; n uniforms are drawn from it, then one token
    Raises ValueError for shapes that disagree, or a token that its q cannot draw.
    Source: [Paper] section 2.1; the bonus token is [Ours].
    """
    n = len(draft_tokens)
    _check_chain(draft_tokens, q, p)
    # Reading one number of each row leaves accepted tokens without V-wide work.
    rows = torch.arange(n, device=p.device)
    columns = torch.tensor(draft_tokens, dtype=torch.long, device=p.device)
    p_drafted = p[rows, columns].tolist()  # [n]
    q_drafted = q[rows, columns].tolist()  # [n]
    chances = uniforms(n, p, generator)
    for i, token in enumerate(draft_tokens):
        if chances[i] >= _acceptance(p_drafted[i], q_drafted[i], token):
            replacement = sample(residual(p[i], q[i]), generator)
            return ChainDecision(i, int(replacement), "replacement")
    return ChainDecision(n, int(sample(p[n], generator)), "bonus")


def uniforms(count: int, like: Tensor, generator: torch.Generator) -> list[float]:
    """Draw numbers from [0, 1) in the precision and on the device of `like`. [Ours]"""
    drawn = torch.rand(count, generator=generator, dtype=like.dtype, device=like.device)
    return drawn.tolist()


def _check_chain(draft_tokens: list[int], q: Tensor, p: Tensor) -> None:
    n = len(draft_tokens)
    if p.shape[0] != n + 1 or q.shape != (n, p.shape[-1]):
        raise ValueError(
            f"{n} drafted tokens came with q of shape {tuple(q.shape)} and p of shape "
            f"{tuple(p.shape)}; pass q [n, V] and p [n + 1, V]."
        )


def verify_chain_greedy(
    draft_tokens: list[int], target_argmax: Tensor
) -> ChainDecision:
    """Temperature 0: keep drafted tokens while they equal the target's own choice.

    The same decision as verify_chain with one-hot p and q, without the V-wide rows.
    draft_tokens: n token ids
    target_argmax: [n + 1]  the target's argmax at the same positions, and one more
    Raises ValueError where the lengths disagree.
    Source: [Derived] from section 2.1 with one-hot p.
    """
    choices = target_argmax.tolist()
    if len(choices) != len(draft_tokens) + 1:
        raise ValueError(
            f"{len(draft_tokens)} drafted tokens came with {len(choices)} target "
            "choices; pass one more choice than there are drafted tokens."
        )
    for i, token in enumerate(draft_tokens):
        if token != choices[i]:
            return ChainDecision(i, choices[i], "replacement")
    return ChainDecision(len(draft_tokens), choices[-1], "bonus")

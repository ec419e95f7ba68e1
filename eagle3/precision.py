"""What "lossless" means where numbers are rounded, and what a difference is.

At temperature 0 the answer is the target's own, token for token, wherever the target
has a clear favourite. A block of several rows sums in another order than a single row
does, so two ways to compute the same logits differ by rounding. Where the two best
tokens lie closer together than that, either may come out, and neither is wrong. So the
promise is stated with a bound on rounding, and checked with it:

- every token of an answer lies within the bound of the best one, when the target reads
  the answer in one pass ("teacher forcing")
- it follows that wherever the best token leads by more than the bound, it was taken

In float32 on a CPU the bound is so small that answers are equal in practice, and tests
ask for equality. [Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from eagle3.target import Target

ROUNDINGS = 2.0  # see `rounding_bound`


def rounding_bound(
    logits: Tensor, num_layers: int, dtype: torch.dtype, width: int
) -> Tensor:
    """How far two computations of the same logits may lie apart.

    logits: [..., V]  any float dtype   num_layers: L   dtype: what the target runs in
    width: K, terms of the longest sum in a layer

    Returns [...] float32: ROUNDINGS * error * sqrt(L) * (max - mean), where `error` is
    eps(dtype) + eps(float32) * sqrt(K / 24). Two things are rounded in a layer:

    - its result, to `dtype`
    - the partial sums behind it, in float32 or better, and in an order that depends on
      how many rows there are. After j of K terms a sum of random signs has grown to
      sqrt(j / K) of its end, and one rounding has a variance of eps^2 / 12 of that
      size; added up over all j they are eps^2 * K / 24.

    L errors of random sign add up like sqrt(L), and errors of the stream reach the
    logits in proportion to how far these spread. In bfloat16 the second part is nothing
    beside the first; in float32 it is most. On the default target, running a text as
    one block, in blocks of four and token by token, the lead of the best token moved by
    up to 0.65 eps * sqrt(L) * (max - mean) in bfloat16 and float16, which is a third
    of the bound, and in float32 by less than a quarter of it. [Derived; Ours]
    """
    scores = logits.float()
    spread = scores.amax(-1) - scores.mean(-1)
    sums = torch.finfo(torch.float32).eps * (width / 24) ** 0.5
    return ROUNDINGS * (torch.finfo(dtype).eps + sums) * num_layers**0.5 * spread


@dataclass(frozen=True)
class AnswerCheck:
    """An answer under the eyes of the target, token by token.

    behind: [n] float32  how far each token's logit is below the largest
    lead: [n] float32  by how much the best token leads the second
    bound: [n] float32  of rounding

    [Ours]
    """

    behind: Tensor
    lead: Tensor
    bound: Tensor

    @property
    def is_lossless(self) -> bool:
        """Whether every token is the target's choice up to rounding."""
        return bool((self.behind <= self.bound).all())

    @property
    def num_close(self) -> int:
        """How many choices are so close that rounding may decide them."""
        return int((self.lead <= self.bound).sum())


def check_answer(
    target: Target, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> AnswerCheck:
    """Let the target read a greedy answer in one pass and judge each token.

    Raises ValueError for an empty prompt or answer. [Ours]
    """
    logits = _read(target, prompt_ids, token_ids)  # [n, V]
    taken = torch.tensor(list(token_ids), device=logits.device)[:, None]
    best = logits.topk(2, dim=-1).values
    return AnswerCheck(
        behind=best[:, 0] - logits.gather(1, taken)[:, 0],
        lead=best[:, 0] - best[:, 1],
        bound=_bound(target, logits),
    )


@dataclass(frozen=True)
class Difference:
    """Where two greedy answers to one prompt first differ, and why.

    index: of the token in the answers        token_a, token_b: the two tokens there
    logit_a, logit_b: what the target gives them after what both answers share
    best: its largest logit                   bound: of rounding
    kind: "rounding" if both tokens lie within the bound of the best one; otherwise one
        of them can't have been the target's choice: "defect"

    [Ours]
    """

    index: int
    token_a: int
    token_b: int
    logit_a: float
    logit_b: float
    best: float
    bound: float

    @property
    def gap(self) -> float:
        """The distance of the two logits."""
        return abs(self.logit_a - self.logit_b)

    @property
    def kind(self) -> Literal["rounding", "defect"]:
        """What the difference is."""
        behind = self.best - min(self.logit_a, self.logit_b)
        return "rounding" if behind <= self.bound else "defect"

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        verdict = {
            "rounding": "that is rounding, and both answers are the target's",
            "defect": "rounding can't explain that: one of the answers is wrong",
        }
        return (
            f"the answers part at token {self.index}: {self.token_a} has the logit "
            f"{self.logit_a:.4g} and {self.token_b} has {self.logit_b:.4g}, the best "
            f"is {self.best:.4g} and rounding may move a logit by {self.bound:.2g}; "
            f"{verdict[self.kind]}"
        )


def explain_difference(
    target: Target,
    prompt_ids: Sequence[int],
    a: Sequence[int],
    b: Sequence[int],
) -> Difference | None:
    """Find the first token at which two greedy answers differ, and judge it.

    a, b: token ids of the answers. None if neither departs from the other, which holds
        also if one is the beginning of the other: that is a matter of where to stop

    Raises ValueError for an empty prompt. [Ours]
    """
    pairs = zip(a, b, strict=False)
    index = next((i for i, (x, y) in enumerate(pairs) if x != y), None)
    if index is None:
        return None
    logits = _read(target, prompt_ids, a[: index + 1])[-1]  # [V]
    token_a, token_b = a[index], b[index]
    return Difference(
        index=index,
        token_a=token_a,
        token_b=token_b,
        logit_a=float(logits[token_a]),
        logit_b=float(logits[token_b]),
        best=float(logits.max()),
        bound=float(_bound(target, logits)),
    )


def _bound(target: Target, logits: Tensor) -> Tensor:
    width = getattr(target.config, "intermediate_size", None) or target.hidden_size
    width = max(width, target.hidden_size)
    return rounding_bound(logits, target.num_layers, target.dtype, width)


def _read(target: Target, prompt_ids: Sequence[int], answer: Sequence[int]) -> Tensor:
    """The logits that each token of an answer was chosen from: [n, V] float32."""
    if not len(prompt_ids) or not len(answer):
        raise ValueError(
            f"a prompt of {len(prompt_ids)} tokens and an answer of {len(answer)} "
            "can't be checked: give at least one token of each."
        )
    ids = torch.tensor([[*prompt_ids, *answer[:-1]]], device=target.device)
    return target.forward(ids).logits[0, len(prompt_ids) - 1 :].float()

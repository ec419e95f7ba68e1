"""Chance without asking the device: settings as tensors, random numbers in advance.

A graph repeats the same kernels, so random numbers come from outside: before each
cycle every request fills its rows of three buffers from its own generator, in exactly
the order in which the teaching engine would have drawn them. That engine draws, in each
cycle,

1. a race for each level of a static tree whose children are drawn, [rows, Vd] numbers
2. one uniform number for each node of the tree
3. a race over the target's vocabulary for the last token, [V] numbers

and how many of each depends on the room that is left, not on what was drafted. So the
same seed gives the same answer in both engines, whoever shares the batch. There is one
exception. Where a filter leaves q fewer tokens than a node of a static tree has
children, the teaching engine grows a smaller tree and draws fewer numbers; here the
node is padding and its numbers are drawn. The answer then is another one of the same
distribution. [Ours]
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from eagle3.sampling import SamplingParams


class Filters(NamedTuple):
    """What the shapes of a sampled cycle depend on.

    top_k: the largest of the batch, rounded up to a power of two so that few different
        ones come up; 0 where no row has one
    top_p: whether any row has one
    """

    top_k: int
    top_p: bool


class RowSampling:
    """The sampling settings of all slots, as tensors on the device.

    temperature: [B] float32, 1 where greedy   greedy: [B] bool
    top_k: [B] int64, 0 for none               top_p: [B] float32, 1 for none

    [Ours]
    """

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self.params = [SamplingParams()] * num_slots
        self.temperature = torch.ones(num_slots, device=device)
        self.greedy = torch.ones(num_slots, dtype=torch.bool, device=device)
        self.top_k = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.top_p = torch.ones(num_slots, device=device)

    def set(self, slot: int, params: SamplingParams) -> None:
        """Give a slot the settings of its new request."""
        self.params[slot] = params
        self.temperature[slot] = params.temperature or 1.0
        self.greedy[slot] = params.is_greedy
        self.top_k[slot] = params.top_k or 0
        self.top_p[slot] = params.top_p

    def filters(self, slots: Iterable[int]) -> Filters | None:
        """What these slots need; None when all of them are greedy."""
        drawn = [self.params[i] for i in slots if not self.params[i].is_greedy]
        if not drawn:
            return None
        largest = max(params.top_k or 0 for params in drawn)
        return Filters(
            largest and 1 << (largest - 1).bit_length(),
            any(params.top_p < 1 for params in drawn),
        )

    def of(self, slot: int) -> "RowSampling":
        """The settings of one slot as a batch of one, on the same memory."""
        one = object.__new__(RowSampling)
        one.params = self.params[slot : slot + 1]
        for name in ("temperature", "greedy", "top_k", "top_p"):
            setattr(one, name, getattr(self, name)[slot : slot + 1])
        return one

    def distributions(self, logits: Tensor, filters: Filters) -> Tensor:
        """`next_token_distribution` with settings of each row's own, and no check.

        logits: [B, n, V] -> [B, n, V] float32; a greedy row gets its distribution at
        temperature 1, which nobody reads
        """
        scores = logits.float()
        scores = scores - scores.amax(-1, keepdim=True)
        scores = scores / self.temperature[:, None, None]
        if filters.top_k:
            scores = self._keep_top_k(scores, filters.top_k)
        if filters.top_p:
            scores = self._keep_top_p(scores)
        return scores.softmax(-1)

    def _keep_top_k(self, scores: Tensor, largest: int) -> Tensor:
        size = min(largest, scores.shape[-1])
        best = scores.topk(size, dim=-1).values  # [B, n, size]
        last = (self.top_k.clamp(1, size) - 1)[:, None, None]
        floor = best.gather(-1, last.expand(*best.shape[:2], 1))
        unwanted = (scores < floor) & (self.top_k > 0)[:, None, None]
        return scores.masked_fill(unwanted, -torch.inf)

    def _keep_top_p(self, scores: Tensor) -> Tensor:
        top_p = self.top_p[:, None, None]
        ordered, order = scores.sort(dim=-1, descending=True)
        mass = (ordered - scores.logsumexp(-1, keepdim=True)).exp()
        keep = (mass.cumsum(-1) - mass < top_p) | (top_p >= 1)
        kept = ordered.masked_fill(~keep, -torch.inf)
        return torch.full_like(scores, -torch.inf).scatter_(-1, order, kept)


@dataclass(frozen=True)
class Needed:
    """How many random numbers one cycle of one request takes.

    races: of each drawn level the first row and the number of rows
    nodes: drafted tokens

    [Ours]
    """

    races: tuple[tuple[int, int], ...]
    nodes: int


class Draws:
    """Random numbers for one cycle of every slot.

    race: [B, P, Vd]  exponential, for the children of the P inner rows of a tree
    uniforms: [B, n]  in [0, 1), one for each node
    last: [B, V]      exponential, for the last token

    A race: token x arrives at the time race / q(x), and who comes first is a draw from
    q; who comes second is the next draw without replacement. [Ours]
    """

    def __init__(self, race: Tensor, uniforms: Tensor, last: Tensor) -> None:
        self.race, self.uniforms, self.last = race, uniforms, last

    def fill(self, slot: int, generator: torch.Generator, needed: Needed) -> None:
        """Draw one slot's numbers, in the teaching engine's order. Nothing waits."""
        for first, count in needed.races:
            self.race[slot, first : first + count].exponential_(generator=generator)
        self.uniforms[slot, : needed.nodes].uniform_(generator=generator)
        self.last[slot].exponential_(generator=generator)

"""The attention of training-time test in other forms than the one that trains.

`eagle3.layers.ttt_attention` computes a causal part and a few diagonals. All forms here
give the same numbers and the same gradients, at other costs: the diagonal form in one
piece; the explicit mask of Figure 6 over the keys of all steps, by plain products and
in torch's fused kernel; and FlexAttention, which takes the mask as a rule.
`eagle3.bench.ttt_cost` measures them. [Paper, section 3.2; the forms: Ours]
"""

import math
from collections.abc import Callable, Mapping
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from eagle3.layers import KeyValue, attend_rows, ttt_attention
from eagle3.masks import ttt_mask

Attention = Callable[[Tensor, list[KeyValue]], Tensor]
Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def whole_attention(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """The diagonal form in one piece: a square, and a dot product for each later step.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d]. [Paper, section 3.2]
    """
    return attend_rows(query, steps[0], steps[1:])


def dense_attention(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """All queries against the keys of all steps, then the mask: most of it is waste.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d]. [Derived] from [Paper, Figure 6]
    """
    return masked_attention(query, steps, ttt_mask(query.shape[2], len(steps) - 1))


def masked_attention(query: Tensor, steps: list[KeyValue], mask: Tensor) -> Tensor:
    """Attention under any mask over the keys of all steps, wrong ones included.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    mask: [T, (s + 1) * T] bool, True = may attend
    Returns [B, H, T, d]. [Derived]
    """
    keys, values = _side_by_side(steps)
    batch, num_kv, _, d = keys.shape
    q = query.reshape(batch, num_kv, -1, query.shape[2], d) / math.sqrt(d)
    scores = q @ keys.unsqueeze(2).mT  # [B, Hkv, H/Hkv, T, (s + 1) * T]
    scores = scores.float().masked_fill(~mask.to(query.device), -math.inf)
    weights = scores.softmax(-1).to(query.dtype)
    return (weights @ values.unsqueeze(2)).reshape(query.shape)


def fused_attention(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """The same mask in torch's fused kernel, which never stores the scores.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d]. [Derived] from [Paper, Figure 6]
    """
    keys, values = _side_by_side(steps)
    share = query.shape[1] // keys.shape[1]
    keys, values = (t.repeat_interleave(share, dim=1) for t in (keys, values))
    mask = ttt_mask(query.shape[2], len(steps) - 1).to(query.device)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def flex_attention_by_rule(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """FlexAttention with the mask as a rule, run operation by operation.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d]. Raises NotImplementedError where torch has no backward pass
    for it, as on CPUs, if a gradient is asked for. [Code: SpecForge trains this way]
    """
    return _flex(flex_attention, query, steps)


def flex_attention_compiled(query: Tensor, steps: list[KeyValue]) -> Tensor:
    """FlexAttention with the mask as a rule, compiled to one kernel that skips blocks.

    query: [B, H, T, d]   steps: keys and values of steps 0..s, [B, Hkv, T, d] each
    Returns [B, H, T, d]. Raises NotImplementedError as `flex_attention_by_rule` does,
    and what torch.compile raises where there is no compiler. [Code: SpecForge]
    """
    return _flex(_compiled(), query, steps)


def ttt_predicate(length: int) -> Predicate:
    """The rule of `ttt_mask` for a single pair, as FlexAttention asks for it.

    length: T, positions of the sequence
    Returns may_attend(batch, head, row, column), on index tensors [...] of any shape;
    column counts the keys of all steps, one block of T after the other. [Derived]
    """

    def may_attend(batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
        own = (column >= length) & (column % length == row)
        return (column <= row) | own  # a column up to the row's is of step 0

    return may_attend


FORMS: Mapping[str, Attention] = {
    "diagonal": ttt_attention,
    "diagonal, whole": whole_attention,
    "dense": dense_attention,
    "fused": fused_attention,
    "flex": flex_attention_by_rule,
    "flex, compiled": flex_attention_compiled,
}


def _side_by_side(steps: list[KeyValue]) -> tuple[Tensor, Tensor]:
    """Keys and values of all steps: [B, Hkv, (s + 1) * T, d] each."""
    return tuple(torch.cat(tensors, dim=2) for tensors in zip(*steps, strict=True))


def _flex(
    attention: Callable[..., Tensor], query: Tensor, steps: list[KeyValue]
) -> Tensor:
    keys, values = _side_by_side(steps)
    length, device = query.shape[2], str(query.device)
    rule = ttt_predicate(length)
    size = (None, None, length, keys.shape[2])  # one mask for all sequences and heads
    mask = create_block_mask(rule, *size, device=device)
    return attention(query, keys, values, block_mask=mask, enable_gqa=True)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)

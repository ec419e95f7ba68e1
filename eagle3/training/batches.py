"""Whole sequences side by side, padded on the right, as a feature draft reads them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from eagle3.training.data import Sequence
from eagle3.training.features import TargetView


@dataclass(frozen=True)
class FeatureBatch:
    """One batch of sequences with what the target made of them.

    features: [B, T, *]  what `draft.fuse` reads: the taps, or the top layer's output
    input_ids: [B, T]
    loss_mask: [B, T] bool or 0/1  in next-token form, see `next_token_mask`

    [Ours]
    """

    features: Tensor
    input_ids: Tensor
    loss_mask: Tensor


def next_token_mask(natural_mask: Tensor) -> Tensor:
    """Turn "token i belongs to an answer" into "the token that row i reads does".

    natural_mask: [B, T] bool or 0/1, 0 on padding
    Returns [B, T] bool; row i is set where token i+1 belongs to an answer. The last
    real position is never set: the token after it does not exist. [Code: the data
    pipeline of eagle/traineagle3 yields this form]
    """
    natural = natural_mask.bool()
    return torch.cat([natural[:, 1:], torch.zeros_like(natural[:, :1])], dim=1)


def pad_rows(rows: list[Tensor], device: torch.device) -> Tensor:
    """B tensors [T_i, ...] as one [B, T, ...] on `device`, zeros behind T_i. [Ours]"""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)


def feature_batch(
    sequences: list[Sequence],
    views: list[TargetView],
    reads: str,
    device: torch.device,
) -> FeatureBatch:
    """Pad sequences and what the target made of them.

    sequences, views: B of each, in the same order
    reads: which field of a view the draft reads, "features" or "hidden"
    Returns the batch on `device`, its features [B, T, *] in float32. [Ours]
    """
    natural = pad_rows([sequence.natural_mask() for sequence in sequences], device)
    return FeatureBatch(
        pad_rows([getattr(view, reads) for view in views], device).float(),
        pad_rows([sequence.token_ids for sequence in sequences], device),
        next_token_mask(natural),
    )

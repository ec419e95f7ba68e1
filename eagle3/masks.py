"""Attention masks as boolean tensors; True means that the query may attend to the key.

The picture of Figure 6 in the paper [Paper, section 3.2] in explicit form. The draft
never builds `ttt_mask`: it computes the few diagonal entries as dot products. The mask
is here to be looked at and to check that shortcut against.
"""

import torch
from torch import Tensor


def causal_mask(
    num_queries: int, num_keys: int, device: torch.device | str | None = None
) -> Tensor:
    """Each query sees all keys up to its own; the last query sees every key.

    Returns [num_queries, num_keys] bool, True = may attend. The first
    num_keys - num_queries keys come from a cache and are seen by every query.
    Raises ValueError when there are fewer keys than queries.
    """
    if num_keys < num_queries:
        raise ValueError(
            f"{num_queries} queries need at least as many keys, not {num_keys}; "
            "include the queries' own keys."
        )
    full = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return full.tril(num_keys - num_queries)


def ttt_mask(length: int, step: int) -> Tensor:
    """What a row sees at one step of training-time test.

    length: T, positions of the sequence   step: s, 0 for the step on target features
    Returns [T, (s + 1) * T] bool, True = may attend. Columns are the keys of steps
    0..s, one block after the other: step 0's keys causally, and of each later step the
    row's own key alone, which is the chain that inference would have drafted from
    there. [Paper, Figure 6]
    """
    own = torch.eye(length, dtype=torch.bool)
    return torch.cat([causal_mask(length, length)] + [own] * step, dim=-1)

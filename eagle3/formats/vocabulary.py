"""The draft vocabulary at the border: offsets outside, absolute target ids inside.

A file says which target token a draft token is by d2t, the difference of the two ids,
and which target tokens are in the draft's vocabulary by t2d, a mask. (Its name means
"target to draft", but it is no map.) Each can be made from the other; a file carries
both, and they must agree. [Code: eagle/model/cnets.py]
"""

import torch
from torch import Tensor


def to_offsets(target_ids: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """What a file holds for a draft vocabulary.

    target_ids: [Vd] int64, ascending
    vocab_size: V

    Returns d2t [Vd] int64 offsets, and t2d [V] bool. [Code]
    """
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[target_ids] = True
    return target_ids - torch.arange(len(target_ids)), t2d


def to_target_ids(d2t: Tensor) -> Tensor:
    """Target id of every draft token: offsets [Vd] -> [Vd] int64. [Code]"""
    return torch.arange(len(d2t)) + d2t


def vocabulary_faults(d2t: Tensor, t2d: Tensor) -> list[str]:
    """What is wrong with a file's vocabulary; none if nothing is.

    d2t: [Vd] int64 offsets   t2d: [V] bool

    Returns one phrase per fault. [Ours]
    """
    vocab, ids = len(t2d), to_target_ids(d2t)
    outside = (ids < 0) | (ids >= vocab)
    if outside.any():
        i = int(outside.nonzero()[0])
        return [
            f"'d2t' maps {int(outside.sum())} draft tokens outside the target's "
            f"{vocab} ids, such as {i} to {int(ids[i])}"
        ]
    agrees = bool(torch.equal(ids.unique(), t2d.nonzero().flatten()))
    if len(d2t) < vocab and not d2t.any() and not agrees:
        return [
            f"'d2t' is zero everywhere, so the map of this reduced vocabulary was "
            f"never filled in: the {len(d2t)} draft tokens would be the target's first "
            f"{len(d2t)}, while 't2d' names others"
        ]
    found = []
    values, counts = ids.unique(return_counts=True)
    if (counts > 1).any():
        found.append(
            f"'d2t' maps {int(counts.max())} draft tokens to the one target id "
            f"{int(values[counts.argmax()])}"
        )
    elif not bool((ids[1:] > ids[:-1]).all()):
        found.append("'d2t' maps the draft tokens out of order, not smallest id first")
    if not agrees:
        found.append(
            f"'d2t' and 't2d' disagree: 't2d' marks {int(t2d.sum())} target ids and "
            f"'d2t' reaches {len(values)}, of which {int(t2d[values].sum())} are marked"
        )
    return found

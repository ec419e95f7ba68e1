"""The largest of many scores, in two steps that a processor is quick at.

Searching a vocabulary for its best token, a CPU compares one number after the other to
keep track of the index. Without index it compares many at once. So the vocabulary is
cut into blocks: the maximum of each block, then the best block, then the place in it.
On the default target that takes a third of the time of `torch.max`. [Ours]
"""

import math

from torch import Tensor

_BLOCK = 256  # scores of a block, where the vocabulary can be cut so
_SMALLEST = 16


def largest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score and the first place where it stands; NaN counts as largest.

    scores: [B, n, V] -> [B, n] each, the second int64
    """
    width = math.gcd(scores.shape[-1], _BLOCK)
    if width < _SMALLEST:
        index = scores.argmax(-1, keepdim=True)
        return scores.gather(-1, index)[..., 0], index[..., 0]
    blocks = scores.unflatten(-1, (-1, width))  # [B, n, V / w, w]
    number = blocks.amax(-1).argmax(-1, keepdim=True)  # [B, n, 1]
    index = number[..., None].expand(*number.shape, width)
    block = blocks.gather(-2, index)[..., 0, :]  # [B, n, w]
    place = block.argmax(-1, keepdim=True)  # [B, n, 1]
    best = block.gather(-1, place)
    return best[..., 0], (number * width + place)[..., 0]

"""Whether a checkpoint's embedding is the target's, stored once more. [Ours]"""

import torch
from torch import Tensor


def is_rounded_copy(stored: Tensor, target: Tensor) -> bool:
    """Whether an embedding is the target's, up to rounding to 16 bits.

    stored, target: [V, k] in any float dtype

    [Ours]
    """
    if stored.shape != target.shape:
        return False
    # 2 ** -7: bfloat16's step, relative; twice the half of it, for two roundings
    wanted = target.detach().cpu().float()
    return torch.allclose(stored.float(), wanted, rtol=2**-7, atol=1e-5)

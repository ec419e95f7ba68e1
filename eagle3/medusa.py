"""Medusa: heads that guess several tokens ahead from one hidden state.

Nothing is autoregressive here. The target's top-layer hidden state of the last
committed token yields the pending token through the target's own head; head j turns
the same state into one that yields the token j places after the pending one. All heads
run at once, and none knows what the others guess. [Code: Medusa, Medusa-1's heads]

Medusa trains a whole head matrix [V, k] for every place. Ours is H U_j: the target's
frozen head H, shared by all, after a small trained matrix U_j [k, k], so that the file
holds megabytes and not hundreds of them. Without U_j the block could hardly lower an
entry of the state, because SiLU is never below -0.28. [Ours]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle3.model_files import Layout, Shapes, read_config, read_tensors, save_model
from eagle3.packed import linear_from

if TYPE_CHECKING:
    from eagle3.target import Target

SHIPPED_MEDUSA = Path(__file__).parent / "data" / "smollm2_medusa"


@dataclass(frozen=True)
class MedusaConfig:
    """The sizes of the heads.

    hidden_size: k, the target's   vocab_size: V   num_heads: K, tokens guessed at once

    Raises ValueError when one isn't positive. [Ours]
    """

    hidden_size: int
    vocab_size: int
    num_heads: int = 4

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} of the heads is {value}: take at least 1.")


class MedusaHeads(nn.Module):
    """K residual blocks, each with a matrix of its own before the target's head.

    config: the sizes
    head: [V, k]  the target's head, frozen and not stored with the heads

    weight [K, k, k] and bias [K, k] of the blocks start at zero, mix [K, k, k] as the
    identity: every head starts as the target's own. Raises ValueError when `head`
    doesn't fit the config. [Code: Medusa, whose heads start in the same way]
    """

    def __init__(self, config: MedusaConfig, head: Tensor):
        super().__init__()
        k, num = config.hidden_size, config.num_heads
        if tuple(head.shape) != (config.vocab_size, k):
            raise ValueError(
                f"the heads need a target's head of {[config.vocab_size, k]}, not "
                f"{list(head.shape)}: pass the one of the target they are made for."
            )
        self.config = config
        self.weight = nn.Parameter(torch.zeros(num, k, k))
        self.bias = nn.Parameter(torch.zeros(num, k))
        self.mix = nn.Parameter(torch.eye(k).repeat(num, 1, 1))
        self.lm_head = linear_from(head.detach())

    def forward(self, hidden: Tensor) -> Tensor:
        """One state per head: U (x + SiLU(W x + b)).

        hidden: [B, T, k]  the target's, after its final norm
        Returns [K, B, T, k]: state j - 1 is for the token j places after the pending
        one. [Code: Medusa, ResBlock]
        """
        x = hidden.to(self.weight.dtype)
        rows = x.flatten(0, 1).expand(len(self.weight), -1, -1)  # [K, B * T, k]
        inner = torch.baddbmm(self.bias[:, None], rows, self.weight.mT)
        mixed = torch.bmm(rows + F.silu(inner), self.mix.mT)
        return mixed.unflatten(1, x.shape[:2])

    def logits(self, states: Tensor) -> Tensor:
        """Scores over the target's vocabulary. states: [..., k] -> [..., V]"""
        return self.lm_head(states)

    def require_fit(self, target: "Target") -> None:
        """Raise ValueError unless the heads were made for such a target. [Ours]"""
        _require_fit(self.config, target)


def save_medusa(
    heads: MedusaHeads, folder: str | Path, dtype: torch.dtype = torch.float32
) -> None:
    """Write heads that `load_medusa` reads back, without the target's head.

    dtype: of the weights on disk

    Raises CheckpointError, before a file is touched, for another dtype or for a
    weight that is not finite in it. [Ours]
    """
    save_model(_LAYOUT, heads.config, heads.state_dict(), folder, dtype)


def load_medusa(
    path: str | Path | None = None,
    target: "Target | None" = None,
    dtype: torch.dtype = torch.float32,
) -> MedusaHeads:
    """Read heads and put the target's head behind them.

    path: a folder written by `save_medusa`; None for the heads that ship with the
        package
    target: the one that they were trained for; None loads the default
    dtype: of the weights in memory

    Returns them on the target's device. Raises ValueError with one sentence when a
    file or tensor doesn't fit, or when they were made for another target. [Ours]
    """
    folder = SHIPPED_MEDUSA if path is None else Path(path)
    config = read_config(_LAYOUT, folder)
    if target is None:
        from eagle3.target import load_target  # here: it imports transformers

        target = load_target()
    _require_fit(config, target)
    tensors = read_tensors(_LAYOUT, folder, config)
    heads = MedusaHeads(config, target.head)
    heads.load_state_dict(tensors, strict=False)  # names are checked above
    return heads.to(target.device, dtype)


def _shapes(config: MedusaConfig) -> Shapes:
    k, num = config.hidden_size, config.num_heads
    return {"weight": (num, k, k), "bias": (num, k), "mix": (num, k, k)}


_LAYOUT = Layout("medusa-heads", MedusaConfig, _shapes)


def _require_fit(config: MedusaConfig, target: "Target") -> None:
    for name in ("hidden_size", "vocab_size"):
        ours, theirs = getattr(config, name), getattr(target, name)
        if ours != theirs:
            raise ValueError(
                f"the heads were made for a target with {name} {ours}, but this target "
                f"has {theirs}: load the target that they were trained for."
            )

"""EAGLE-3 drafts on disk, by `eagle3.model_files`. [Ours]

The frozen embedding is the target's and is not stored, unless the draft is wider or
narrower than the target and so has one of its own.

Left out: the official, SpecForge and speculators layouts.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from eagle3.draft import NUM_TAPS, DraftConfig, Eagle3Draft, require_fit
from eagle3.model_files import (
    CheckpointError,
    Layout,
    read_config,
    read_tensors,
    save_model,
)

if TYPE_CHECKING:
    from eagle3.target import Target

__all__ = ["SHIPPED", "CheckpointError", "load_draft", "save_draft", "tensor_shapes"]

SHIPPED = Path(__file__).parent / "data" / "smollm2_eagle3"


def tensor_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a draft's file holds, no more and no less."""
    c = config
    k, inner = c.hidden_size, c.intermediate_size
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes = {
        "fc.weight": (k, NUM_TAPS * c.target_hidden_size),
        "layer.input_norm.weight": (k,),
        "layer.hidden_norm.weight": (k,),
        "layer.q.weight": (wide, 2 * k),
        "layer.k.weight": (narrow, 2 * k),
        "layer.v.weight": (narrow, 2 * k),
        "layer.o.weight": (k, wide),
        "layer.post_norm.weight": (k,),
        "layer.gate.weight": (inner, k),
        "layer.up.weight": (inner, k),
        "layer.down.weight": (k, inner),
        "norm.weight": (k,),
        "lm_head.weight": (c.draft_vocab_size, k),
        "d2t": (c.draft_vocab_size,),
    }
    if _has_own_embedding(c):
        shapes["embed.weight"] = (c.vocab_size, k)
    return shapes


def _has_own_embedding(config: DraftConfig) -> bool:
    return config.hidden_size != config.target_hidden_size


_LAYOUT = Layout("eagle3-draft", DraftConfig, tensor_shapes, ("d2t",))


def save_draft(
    draft: Eagle3Draft, folder: str | Path, dtype: torch.dtype = torch.float32
) -> None:
    """Write a draft that `load_draft` reads back, safely: see `save_model`.

    draft: on any device, with plain linear layers
    folder: made if it is missing; other files in it stay
    dtype: of the weights on disk; float32 keeps a float32 draft exact

    Raises CheckpointError, before a file is touched, for another dtype or for a
    weight that is not finite in it.
    """
    save_model(_LAYOUT, draft.config, draft.state_dict(), folder, dtype)


def load_draft(
    path: str | Path | None = None,
    target: "Target | None" = None,
    dtype: torch.dtype = torch.float32,
) -> Eagle3Draft:
    """Read a draft and give it the target's embedding.

    path: a folder written by `save_draft`; None for the draft that ships with the
        package
    target: the target that the draft was trained for; None loads the default one,
        so pass yours if you have it
    dtype: of the weights in memory

    Returns the draft on the target's device. Raises ValueError with one sentence when
    a file or tensor is missing, left over, misshaped, truncated or not finite, or
    when the draft was not made for this target.
    """
    folder = SHIPPED if path is None else Path(path)
    config = read_config(_LAYOUT, folder)
    if target is None:
        from eagle3.target import load_target  # here: it imports transformers

        target = load_target()
    require_fit(config, target)
    tensors = read_tensors(_LAYOUT, folder, config)
    embedding = tensors.pop("embed.weight", target.embedding)
    draft = Eagle3Draft(config, embedding.detach().cpu(), tensors.pop("d2t"))
    draft.load_state_dict(tensors, strict=False)  # names are checked above
    return draft.to(target.device, dtype)

"""Feature drafts on disk, of EAGLE-3 and of EAGLE-1, by `eagle3.model_files`. [Ours]

A draft's config.json says which of the two it is. What is the target's and frozen is
not stored: EAGLE-1's embedding and head, and EAGLE-3's embedding unless the draft is
wider or narrower than the target and so has one of its own.

Left out: the official, SpecForge and speculators layouts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from eagle3 import draft as eagle3_draft
from eagle3 import eagle1
from eagle3.draft import NUM_TAPS, DraftConfig, Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.feature_draft import FeatureDraft
from eagle3.layers import LayerConfig
from eagle3.model_files import (
    CheckpointError,
    Layout,
    Shapes,
    find_layout,
    read_config,
    read_tensors,
    save_model,
)

if TYPE_CHECKING:
    from eagle3.target import Target

__all__ = ["SHIPPED", "CheckpointError", "load_draft", "save_draft", "tensor_shapes"]

SHIPPED = Path(__file__).parent / "data" / "smollm2_eagle3"


def tensor_shapes(config: LayerConfig) -> Shapes:
    """Name and shape of every tensor that a draft's file holds, no more and no less."""
    return _kind_of(config).layout.shapes(config)


def _eagle3_shapes(config: DraftConfig) -> Shapes:
    c, k = config, config.hidden_size
    shapes = _layer_shapes(c, 2 * k) | {
        "fc.weight": (k, NUM_TAPS * c.target_hidden_size),
        "layer.input_norm.weight": (k,),
        "layer.hidden_norm.weight": (k,),
        "norm.weight": (k,),
        "lm_head.weight": (c.draft_vocab_size, k),
        "d2t": (c.draft_vocab_size,),
    }
    if c.hidden_size != c.target_hidden_size:
        shapes["embed.weight"] = (c.vocab_size, k)
    return shapes


def _eagle1_shapes(config: Eagle1Config) -> Shapes:
    k = config.hidden_size
    return _layer_shapes(config, k) | {"fc.weight": (k, 2 * k), "fc.bias": (k,)}


def _layer_shapes(config: LayerConfig, input_width: int) -> Shapes:
    c, k, inner = config, config.hidden_size, config.intermediate_size
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {
        "layer.q.weight": (wide, input_width),
        "layer.k.weight": (narrow, input_width),
        "layer.v.weight": (narrow, input_width),
        "layer.o.weight": (k, wide),
        "layer.post_norm.weight": (k,),
        "layer.gate.weight": (inner, k),
        "layer.up.weight": (inner, k),
        "layer.down.weight": (k, inner),
    }


def _build_eagle3(
    config: DraftConfig, target: "Target", tensors: dict[str, Tensor]
) -> Eagle3Draft:
    embedding = tensors.pop("embed.weight", target.embedding)
    return Eagle3Draft(config, embedding.detach().cpu(), tensors.pop("d2t"))


def _build_eagle1(
    config: Eagle1Config, target: "Target", tensors: dict[str, Tensor]
) -> Eagle1Draft:
    return Eagle1Draft(config, target.embedding.cpu(), target.head.cpu())


class _Kind(NamedTuple):
    """How drafts of one class are stored, checked and made."""

    layout: Layout
    require_fit: Callable[[Any, Any], None]
    build: Callable[[Any, Any, dict[str, Tensor]], FeatureDraft]


_KINDS = (
    _Kind(
        Layout("eagle3-draft", DraftConfig, _eagle3_shapes, ("d2t",)),
        eagle3_draft.require_fit,
        _build_eagle3,
    ),
    _Kind(
        Layout("eagle1-draft", Eagle1Config, _eagle1_shapes),
        eagle1.require_fit,
        _build_eagle1,
    ),
)


def _kind_of(config: LayerConfig) -> _Kind:
    return next(kind for kind in _KINDS if type(config) is kind.layout.config)


def save_draft(
    draft: Eagle3Draft | Eagle1Draft,
    folder: str | Path,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a draft that `load_draft` reads back, safely: see `save_model`.

    draft: on any device, with plain linear layers
    folder: made if it is missing; other files in it stay
    dtype: of the weights on disk; float32 keeps a float32 draft exact

    Raises CheckpointError, before a file is touched, for another dtype or for a
    weight that is not finite in it.
    """
    layout = _kind_of(draft.config).layout
    save_model(layout, draft.config, draft.state_dict(), folder, dtype)


def load_draft(
    path: str | Path | None = None,
    target: "Target | None" = None,
    dtype: torch.dtype = torch.float32,
) -> Eagle3Draft | Eagle1Draft:
    """Read a draft and give it what is the target's.

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
    layout = find_layout([kind.layout for kind in _KINDS], folder)
    config = read_config(layout, folder)
    kind = _kind_of(config)
    if target is None:
        from eagle3.target import load_target  # here: it imports transformers

        target = load_target()
    kind.require_fit(config, target)
    tensors = read_tensors(layout, folder, config)
    draft = kind.build(config, target, tensors)
    draft.load_state_dict(tensors, strict=False)  # names are checked above
    return draft.to(target.device, dtype)

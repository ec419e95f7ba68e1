"""Feature drafts on disk, of EAGLE-3 and of EAGLE-1. [Ours]

Written in our own layout, by `eagle3.model_files`; read from it or from any format that
`eagle3.formats` knows: the official code's, SpecForge's and speculators'. What is the
target's and frozen is not stored: EAGLE-1's embedding and head, and EAGLE-3's embedding
unless the draft has one of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from eagle3 import draft as eagle3_draft
from eagle3 import eagle1
from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.feature_draft import FeatureDraft
from eagle3.formats.embedding import is_rounded_copy
from eagle3.formats.shapes import EAGLE1, EAGLE3
from eagle3.formats.stored import open_stored
from eagle3.layers import LayerConfig
from eagle3.model_files import Layout, save_model
from eagle3.weight_files import CheckpointError, Shapes

if TYPE_CHECKING:
    from eagle3.target import Target

__all__ = ["SHIPPED", "CheckpointError", "load_draft", "save_draft", "tensor_shapes"]

SHIPPED = Path(__file__).parent / "data" / "smollm2_eagle3"


def tensor_shapes(config: LayerConfig) -> Shapes:
    """Name and shape of every tensor that a draft's file holds, no more and no less."""
    return _kind_of(config).layout.shapes(config)


def _build_eagle3(
    config: DraftConfig, target: "Target", tensors: dict[str, Tensor]
) -> Eagle3Draft:
    embedding = tensors.pop("embed.weight", target.embedding)
    return Eagle3Draft(config, embedding.detach().cpu(), tensors.pop("d2t"))


def _build_eagle1(
    config: Eagle1Config, target: "Target", tensors: dict[str, Tensor]
) -> Eagle1Draft:
    stored = tensors.pop("embed.weight", None)  # published files carry a copy
    if stored is not None and not is_rounded_copy(stored, target.embedding):
        raise CheckpointError(
            "'embed_tokens.weight' of this EAGLE-1 draft is not the target's "
            "embedding; load the target that the draft was trained for."
        )
    return Eagle1Draft(config, target.embedding.cpu(), target.head.cpu())


class _Kind(NamedTuple):
    """How drafts of one class are stored, checked and made."""

    layout: Layout
    require_fit: Callable[[Any, Any], None]
    build: Callable[[Any, Any, dict[str, Tensor]], FeatureDraft]


_KINDS = (
    _Kind(
        EAGLE3,
        eagle3_draft.require_fit,
        _build_eagle3,
    ),
    _Kind(
        EAGLE1,
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

    path: a folder written by `save_draft`, or an official, SpecForge or speculators
        checkpoint; None for the draft that ships with the package
    target: the target that the draft was trained for; None loads the default one,
        so pass yours if you have it
    dtype: of the weights in memory

    Returns the draft on the target's device. Raises ValueError with one sentence when
    a file or tensor is missing, left over, misshaped, truncated or not finite, when
    the config asks for a draft that ours is not, or when the draft was not made for
    this target.
    """
    stored = open_stored(SHIPPED if path is None else path)
    if target is None:
        from eagle3.target import load_target  # here: it imports transformers

        target = load_target()
    config = stored.config(target.num_layers)
    kind = _kind_of(config)
    kind.require_fit(config, target)
    tensors = stored.read()
    draft = kind.build(config, target, tensors)
    draft.load_state_dict(tensors, strict=False)  # names are checked above
    return draft.to(target.device, dtype)

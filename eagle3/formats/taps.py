"""Which layers are tapped, in two numberings that differ by one.

We, Hugging Face's `hidden_states` and vLLM number a tap by the layer that it is the
INPUT of: (2, L // 2, L - 3). SpecForge and SGLang number the same vectors by the layer
that they are the OUTPUT of: (1, L // 2 - 1, L - 4). Ids that were copied from one
engine's config into another's are off by one, and nothing fails.

SGLang added one to whatever it was given; later versions add it only if the first id is
1 [Code: sglang#25454]. So ids from 1 on are outputs for all, and ids that begin with
another number mean two things. [Interpretation]
"""

from dataclasses import dataclass
from typing import Literal

from eagle3.weight_files import CheckpointError

Taps = tuple[int, ...]


@dataclass(frozen=True)
class StoredTaps:
    """The taps as a file names them.

    ids: as they are written; None if the file names none, which means the default
    numbering: "input" or "output" of a layer, or "unknown"

    [Ours]
    """

    ids: Taps | None = None
    numbering: Literal["input", "output", "unknown"] = "input"

    def resolve(self, num_layers: int | None) -> Taps:
        """The taps as inputs of layers.

        num_layers: L of the target; None if it is not known

        Raises CheckpointError when they depend on a target that is not known, or
        can be read in two ways. [Ours]
        """
        if self.ids is not None and self.numbering != "unknown":
            return as_inputs(self)
        if num_layers is None:
            raise CheckpointError(
                f"The checkpoint {self.said}, so its taps depend on the target's "
                "depth; name the target."
            )
        default = default_taps(num_layers)
        if self.ids is None or self.ids == default:
            return default
        raise CheckpointError(
            f"The checkpoint {self.said}, and neither reading is a target of "
            f"{num_layers} layers' own {default}; write the taps as inputs of layers "
            "under the top-level key 'eagle_aux_hidden_state_layer_ids'."
        )

    @property
    def said(self) -> str:
        """What the file says, as a phrase. [Ours]"""
        if self.ids is None:
            return "names no taps"
        if self.numbering == "unknown":
            return (
                f"names taps {self.ids} in 'eagle_config', which one engine reads as "
                "inputs of layers and another as outputs"
            )
        return f"names taps {self.ids}, {self.numbering}s of layers"


def as_inputs(taps: StoredTaps) -> Taps:
    """The ids as inputs of layers, which is the output numbering plus one. [Ours]"""
    shift = 1 if taps.numbering == "output" else 0
    return tuple(i + shift for i in taps.ids or ())


def as_outputs(taps: Taps) -> Taps:
    """The same taps as outputs of layers: each id less one. [Ours]"""
    return tuple(i - 1 for i in taps)


def default_taps(num_layers: int) -> Taps:
    """What every engine taps if it is told nothing: (2, L // 2, L - 3).

    Raises ValueError below 7 layers. [Code: eagle/model/modeling_llama_kv.py]
    """
    from eagle3.target import tap_layers  # here: it imports transformers

    return tap_layers(num_layers)


def depth_of(taps: Taps) -> int | None:
    """The depth of the target whose default these taps are; None if of none. [Ours]"""
    depth = taps[-1] + 3
    return depth if depth >= 7 and default_taps(depth) == taps else None

"""What a checkpoint is, as facts: the answer of `python -m eagle3 inspect`. [Ours]"""

from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from eagle3.formats.stored import Stored, open_stored
from eagle3.formats.taps import StoredTaps, Taps, as_outputs
from eagle3.rope import RopeConfig

FORMATS = {
    "eagle3": "this package's own layout",
    "official": "the official code's layout",
    "specforge": "SpecForge's layout, which SGLang loads",
    "speculators": "the speculators layout, which vLLM loads",
    "vllm": "layers.0. names with a flat config, which only vLLM loads",
}


@dataclass(frozen=True)
class DraftFacts:
    """What a folder holds.

    format: a key of FORMATS      method: "eagle3" or "eagle1"
    files: names of the files of tensors
    sizes: fields of the draft's config: hidden_size, vocab_size, draft_vocab_size, ...
    stored_taps: as the file names them
    taps: the same as inputs of layers; None when they depend on a target not given
    rope, rope_source: frequencies, and in words where the file says so
    own_embedding: the file brings the embedding of the tokens
    dtypes: how many tensors of each dtype
    num_parameters: numbers in all floating-point tensors
    notes: what to know although nothing is wrong
    misfits: why the draft can't run on the target given; none if it can

    [Ours]
    """

    folder: Path
    format: str
    method: str
    files: tuple[str, ...]
    sizes: dict[str, Any]
    stored_taps: StoredTaps
    taps: Taps | None
    rope: RopeConfig
    rope_source: str
    own_embedding: bool
    dtypes: dict[str, int]
    num_parameters: int
    notes: tuple[str, ...]
    misfits: tuple[str, ...]

    @property
    def taps_as_outputs(self) -> Taps | None:
        """The taps in the other numbering, as outputs of layers. [Ours]"""
        return None if self.taps is None else as_outputs(self.taps)


def describe(folder: str | Path, target: Any = None) -> DraftFacts:
    """Read a checkpoint in full and say what it is.

    target: anything with hidden_size, vocab_size, num_layers and taps, such as a
        `Target` or `TargetSizes`; None compares with nothing

    Raises ValueError when the checkpoint would be refused. [Ours]
    """
    stored = open_stored(folder)
    stored.read()  # so that nothing is described that can't be loaded
    sizes = dict(stored.settings.sizes)
    floats = [spec.shape for spec in stored.specs.values() if _is_float(spec.dtype)]
    kinds = Counter(
        str(spec.dtype).removeprefix("torch.") for spec in stored.specs.values()
    )
    return DraftFacts(
        folder=stored.folder,
        format=stored.format,
        method=stored.method,
        files=tuple(file.path.name for file in stored.files),
        rope=sizes.pop("rope"),
        sizes=sizes,
        stored_taps=stored.settings.taps,
        taps=_taps(stored, target),
        rope_source=stored.settings.rope_source,
        own_embedding=stored.own_embedding,
        dtypes=dict(sorted(kinds.items())),
        num_parameters=sum(map(prod, floats)),
        notes=tuple(_notes(stored)),
        misfits=() if target is None else tuple(_misfits(stored, target)),
    )


def _is_float(dtype: torch.dtype | None) -> bool:
    return dtype is not None and dtype.is_floating_point


def _taps(stored: Stored, target: Any) -> Taps | None:
    if stored.method == "eagle1":
        return None
    try:
        return stored.settings.taps.resolve(
            None if target is None else target.num_layers
        )
    except ValueError:  # unknown without a target, or ambiguous: a misfit says why
        return None


def _notes(stored: Stored) -> list[str]:
    notes = list(stored.settings.notes)
    kinds = {spec.dtype for spec in stored.specs.values() if _is_float(spec.dtype)}
    if len(kinds) > 1:
        names = sorted(str(kind).removeprefix("torch.") for kind in kinds)
        notes.append(f"tensors in {' and '.join(names)}: each keeps its dtype")
    ignored = len(stored.files[0].specs) - len(stored.specs)
    if ignored:
        notes.append(f"{ignored} buffers of the target, 'target_model.', are left out")
    if stored.format == "vllm":
        notes.append("SGLang would skip the tensors named layers.0. without a word")
    return notes


def size_misfits(stored: Stored, target: Any) -> list[str]:
    """Why the sizes of a draft are not this target's; none if they are.

    target: anything with hidden_size and vocab_size

    [Ours]
    """
    sizes = stored.settings.sizes
    width = sizes.get("target_hidden_size", sizes["hidden_size"])
    return [
        f"made for a target with {name} {ours}, this one has {theirs}"
        for name, ours, theirs in (
            ("hidden_size", width, target.hidden_size),
            ("vocab_size", sizes["vocab_size"], target.vocab_size),
        )
        if ours != theirs
    ]


def _misfits(stored: Stored, target: Any) -> list[str]:
    found = size_misfits(stored, target)
    return found if stored.method == "eagle1" else found + _tap_misfits(stored, target)


def _tap_misfits(stored: Stored, target: Any) -> list[str]:
    try:
        taps = stored.settings.taps.resolve(target.num_layers)
    except ValueError as error:
        return [str(error)]
    found = []
    if taps[-1] >= target.num_layers:
        found.append(f"taps layer {taps[-1]}, but the target has {target.num_layers}")
    if taps != tuple(target.taps):
        found.append(
            f"reads taps {taps}, the target hands over {tuple(target.taps)}: load it "
            "with the draft's taps"
        )
    return found

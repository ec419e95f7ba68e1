"""A draft as it lies in a folder, of any format, told apart by its content.

Our own layout says what it is in config.json. All others are recognised by the names
of their tensors and by the shape of their config, never by a file's or folder's name:

- `midlayer.` names: the official code's EAGLE-3 and SpecForge, which is also what
  SGLang loads;
- `layers.0.` names and sizes in `transformer_layer_config`: speculators;
- `layers.0.` names and a flat config: EAGLE-1 if there is no draft head, norm or map;
  otherwise EAGLE-3 as only vLLM loads it.

[Code: the loaders; Ours: the order of the questions]
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle3.draft import DraftConfig
from eagle3.eagle1 import Eagle1Config
from eagle3.formats.configs import Settings, read_eagle1, read_eagle3
from eagle3.formats.names import IGNORED, LAYERS_0, MIDLAYER, prefix_of, their_name
from eagle3.formats.shapes import LAYOUTS, eagle1_shapes, eagle3_shapes
from eagle3.formats.taps import StoredTaps, Taps
from eagle3.formats.vocabulary import to_target_ids, vocabulary_faults
from eagle3.model_files import find_layout, read_config, read_json, read_tensors
from eagle3.weight_files import (
    CheckpointError,
    Shapes,
    TensorSpec,
    WeightFile,
    faults,
    not_finite,
    refuse,
)

REMEDY = "nothing was loaded: get the whole checkpoint from where it was made"
_WHOLE = {"d2t": torch.int64, "t2d": torch.bool}
_FILES = ("model.safetensors", "pytorch_model.bin")
_PROVISIONAL = (0, 1, 2)  # taps of a config whose other fields alone are used
# Without any of these, `layers.0.` names are EAGLE-1's: it borrows the target's head.
_EAGLE3_ONLY = {"d2t", "t2d", "lm_head.weight", "norm.weight"}


@dataclass(frozen=True)
class Stored:
    """What a folder holds, after its names, shapes and dtypes were found to fit.

    format: "eagle3" (our own layout), "official", "specforge", "speculators" or "vllm"
    method: "eagle3" or "eagle1"
    settings: what its config.json says
    own_embedding: the file brings the embedding of the tokens

    [Ours]
    """

    folder: Path
    format: str
    method: str
    settings: Settings
    own_embedding: bool

    def config(self, num_layers: int | None = None) -> DraftConfig | Eagle1Config:
        """The sizes of the draft.

        num_layers: L of the target, where the file leaves the taps to it

        Raises CheckpointError when the taps can't be known, ValueError for sizes that
        contradict each other. [Ours]
        """
        if self.method == "eagle1":
            return Eagle1Config(**self.settings.sizes)
        return self._eagle3_config(self.settings.taps.resolve(num_layers))

    def _eagle3_config(self, taps: Taps) -> DraftConfig:
        own = self.own_embedding
        return DraftConfig(**self.settings.sizes, taps=taps, own_embedding=own)

    @cached_property
    def shapes(self) -> Shapes:
        """Name and shape of every tensor, under our names. [Ours]"""
        if self.method == "eagle1":
            config = self.config()
            shapes = eagle1_shapes(config)
            if self.own_embedding:  # as published; must be the target's
                shapes["embed.weight"] = (config.vocab_size, config.hidden_size)
            return shapes
        return eagle3_shapes(self._eagle3_config(_PROVISIONAL))

    @cached_property
    def files(self) -> list[WeightFile]:
        """The files of tensors; two of them must hold the same. [Ours]"""
        paths = [self.folder / name for name in _FILES]
        if self.format == "eagle3":
            return [WeightFile(paths[0])]
        return [WeightFile(path) for path in paths if path.is_file()]

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Shape and dtype of every tensor, under the file's own names. [Ours]"""
        return _without_ignored(self.files[0].specs)

    def read(self) -> dict[str, Tensor]:
        """All tensors under our names, each [...] in the dtype of the file.

        d2t comes as absolute target ids. Raises CheckpointError, with everything that
        is wrong in one sentence, for values that are not finite, a vocabulary that
        contradicts itself, and two files that differ. [Ours]
        """
        if self.format == "eagle3":
            layout = find_layout(LAYOUTS, self.folder)
            return read_tensors(layout, self.folder, self.config())
        file, *others = self.files
        theirs = file.read(self.specs)
        found = not_finite(file.path, theirs)
        if "d2t" in theirs:
            found += vocabulary_faults(theirs["d2t"], theirs["t2d"])
        for other in others:
            found += _differences(theirs, other)
        refuse(found, REMEDY)
        return self._under_our_names(theirs)

    def _under_our_names(self, theirs: dict[str, Tensor]) -> dict[str, Tensor]:
        prefix = prefix_of(set(theirs))
        if self.method == "eagle3":
            vocab = self.settings.sizes["vocab_size"]
            d2t = theirs.get("d2t")
            ids = torch.arange(vocab) if d2t is None else to_target_ids(d2t)
            theirs = theirs | {"d2t": ids}
        return {name: theirs[their_name(name, prefix)] for name in self.shapes}


def open_stored(folder: str | Path) -> Stored:
    """Look at a folder: what it is, and whether all its tensors fit.

    Only headers are read. Raises CheckpointError, with everything that is wrong in one
    sentence, when a file is missing, broken or of no known kind, or a tensor is
    missing, left over, misshaped or of another dtype; ValueError for a config that is
    refused. [Ours]
    """
    folder = Path(folder)
    raw = read_json(folder / "config.json")
    if not isinstance(raw, dict) or "format" in raw:
        return _open_ours(folder)
    paths = [folder / name for name in _FILES if (folder / name).is_file()]
    if not paths:
        raise CheckpointError(
            f"The draft has no weights: '{folder}' lacks both {' and '.join(_FILES)}."
        )
    specs = _without_ignored(WeightFile(paths[0]).specs)
    stored = _recognise(folder, raw, specs)
    refuse(_header_faults(stored, paths[0], specs), REMEDY)
    return stored


def _open_ours(folder: Path) -> Stored:
    layout = find_layout(LAYOUTS, folder)
    config = read_config(layout, folder)
    sizes = dict(vars(config))
    taps = StoredTaps(sizes.pop("taps", None))
    own = sizes.pop("own_embedding", False)
    settings = Settings(False, sizes, taps, "as written down")
    method = "eagle3" if isinstance(config, DraftConfig) else "eagle1"
    return Stored(folder, "eagle3", method, settings, own)


def _recognise(folder: Path, raw: dict[str, Any], specs: dict[str, Any]) -> Stored:
    names, prefix = set(specs), prefix_of(set(specs))
    if "fc.weight" not in names and not any(n.startswith(prefix) for n in names):
        raise CheckpointError(
            f"'{folder}' holds no EAGLE draft: it has neither 'fc.weight' nor a layer "
            f"named '{MIDLAYER}' or '{LAYERS_0}'; give the folder of a draft."
        )
    is_flat = raw.get("transformer_layer_config") is None
    has_head = bool(names & _EAGLE3_ONLY) or "draft_vocab_size" in raw
    has_norm = any(name.endswith("hidden_norm.weight") for name in names)
    has_embedding = "embed_tokens.weight" in names
    if prefix == LAYERS_0 and is_flat and not has_head and not has_norm:
        return Stored(folder, "official", "eagle1", read_eagle1(raw), has_embedding)
    settings = read_eagle3(raw)
    sizes = settings.sizes
    own = has_embedding or sizes["hidden_size"] != sizes["target_hidden_size"]
    label = _format(raw, prefix, settings)
    return Stored(folder, label, "eagle3", settings, own)


def _format(raw: dict[str, Any], prefix: str, settings: Settings) -> str:
    if settings.is_nested:
        return "speculators"
    if prefix == LAYERS_0:
        return "vllm"
    sizes = settings.sizes
    is_wide = sizes["num_heads"] * sizes["head_dim"] != sizes["hidden_size"]
    newer = {"rope_parameters", "eagle_config", "fc_norm"} & raw.keys()
    llama3 = sizes["rope"].scaling == "llama3"
    return "specforge" if is_wide or newer or llama3 else "official"


def _header_faults(
    stored: Stored, path: Path, specs: dict[str, TensorSpec]
) -> list[str]:
    prefix = MIDLAYER if stored.format in ("official", "specforge") else LAYERS_0
    if stored.method == "eagle1":
        prefix = LAYERS_0
    wanted = {their_name(n, prefix): shape for n, shape in stored.shapes.items()}
    sizes = stored.settings.sizes
    if stored.method == "eagle3":
        wanted["t2d"] = (sizes["vocab_size"],)
        is_whole = sizes["draft_vocab_size"] == sizes["vocab_size"]
        if is_whole and not specs.keys() & {"d2t", "t2d"}:  # then ids pass through
            del wanted["d2t"], wanted["t2d"]
    return faults(path, specs, wanted, _WHOLE)


def _without_ignored(specs: dict[str, TensorSpec]) -> dict[str, TensorSpec]:
    return {n: spec for n, spec in specs.items() if not n.startswith(IGNORED)}


def _differences(tensors: dict[str, Tensor], other: WeightFile) -> list[str]:
    """How a second file of tensors differs from the first."""
    specs = _without_ignored(other.specs)
    odd = {n for n in tensors.keys() | specs if n not in tensors or n not in specs}
    second = other.read(specs)
    odd |= {n for n in tensors.keys() & specs if not _same(tensors[n], second[n])}
    return [
        f"'{name}' is not the same in the folder's other file '{other.path.name}'"
        for name in sorted(odd)
    ]


def _same(one: Tensor, two: Tensor) -> bool:
    return one.dtype == two.dtype and torch.equal(one, two)

"""Models on disk: a folder with config.json and model.safetensors, read strictly.

Loading is strict, because the official loader is not [Code: strict=False] and a draft
with a forgotten tensor still runs, only badly: every tensor in the file is used, every
parameter is filled, and whatever does not fit is refused by name. No pickle is read or
written. [Ours]
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle3.weight_files import (
    FLOAT_DTYPES,
    CheckpointError,
    Shapes,
    WeightFile,
    faults,
    not_finite,
    refuse,
)


@dataclass(frozen=True)
class Layout:
    """What the files of one kind of draft hold.

    name: stands in config.json, so that kinds are not mixed up
    config: dataclass of the sizes, whose fields are config.json's
    shapes: config -> name and shape of every tensor, no more and no less
    whole_numbers: names of the tensors that are int64, not floating point
    added: fields that came later; a config.json without one means its default

    [Ours]
    """

    name: str
    config: type
    shapes: Callable[[Any], Shapes]
    whole_numbers: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def mark(self) -> dict[str, Any]:
        """How config.json says what it is. [Ours]"""
        return {"format": self.name, "version": 1}


def save_model(
    layout: Layout,
    config: Any,
    state: Mapping[str, Tensor],
    folder: str | Path,
    dtype: torch.dtype | None = torch.float32,
) -> None:
    """Write the two files of a model.

    config: of the layout's class
    state: a state dict, tensors [...] on any device; what the layout doesn't name
        stays out
    folder: made if it is missing; other files in it stay
    dtype: of the weights on disk; float32 keeps a float32 model exact, None keeps
        each tensor's own

    Each file is written under another name and then moved, so that a crash leaves
    whole files. Raises CheckpointError, before a file is touched, for another dtype,
    for a weight that is not there or not finite in it. [Ours]
    """
    if dtype not in (None, *FLOAT_DTYPES):
        raise CheckpointError(
            f"Drafts are stored in float32, bfloat16 or float16, not {dtype}."
        )
    tensors = {}
    for name in layout.shapes(config):
        if name not in state:
            raise CheckpointError(
                f"The draft to save has no '{name}'; save it before its layers are "
                "packed for inference."
            )
        value = state[name].detach().cpu().contiguous()
        cast = dtype is not None and value.is_floating_point()
        tensors[name] = value.to(dtype) if cast else value
        _require_finite(name, tensors[name], f"as {tensors[name].dtype}")
    write_files(tensors, layout.mark | dataclasses.asdict(config), folder)


def write_files(
    tensors: dict[str, Tensor], config: Mapping[str, Any], folder: str | Path
) -> None:
    """Write model.safetensors and config.json, each whole or not at all.

    tensors: [...] each, contiguous and on the CPU
    config: what JSON can hold
    folder: made if it is missing; other files in it stay

    [Ours]
    """
    text = json.dumps(config, indent=2) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _Replacement(folder / "model.safetensors") as path:
        save_file(tensors, path, metadata={"format": "pt"})
    with _Replacement(folder / "config.json") as path:
        path.write_text(text, encoding="utf-8")


class _Replacement:
    """A file name to write to, that takes the final name only when all went well."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.{os.getpid()}.part")

    def __enter__(self) -> Path:
        return self.part

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.part.replace(self.path)
        else:
            self.part.unlink(missing_ok=True)


def read_config(layout: Layout, folder: str | Path) -> Any:
    """The config of a folder, as the layout's class.

    Raises CheckpointError for a file that is missing, no JSON, of another kind, or
    has other fields or types; ValueError for what the class refuses. [Ours]
    """
    path = Path(folder) / "config.json"
    raw = read_json(path)
    if (
        not isinstance(raw, dict)
        or {key: raw.pop(key, None) for key in layout.mark} != layout.mark
    ):
        raise CheckpointError(_other_layout(path, [layout]))
    for field in dataclasses.fields(layout.config):
        if field.name in layout.added:
            raw.setdefault(field.name, field.default)
        if dataclasses.is_dataclass(field.type):
            part = f"'{field.name}' in '{path}'"
            raw[field.name] = _build(field.type, raw.get(field.name), part)
    return _build(layout.config, raw, f"'{path}'")


def find_layout(layouts: Sequence[Layout], folder: str | Path) -> Layout:
    """The layout that a folder's config.json names.

    Raises CheckpointError when the file can't be read or names none of them. [Ours]
    """
    path = Path(folder) / "config.json"
    raw = read_json(path)
    name = raw.get("format") if isinstance(raw, dict) else None
    for layout in layouts:
        if layout.name == name:
            return layout
    raise CheckpointError(_other_layout(path, layouts))


def _other_layout(path: Path, layouts: Sequence[Layout]) -> str:
    marks = " or ".join(str(layout.mark) for layout in layouts)
    return (
        f"'{path}' does not say {marks}; only drafts of this kind, in this package's "
        "own layout, can be loaded."
    )


def read_json(path: Path) -> Any:
    """What a draft's config.json holds.

    Raises CheckpointError when the file can't be read or is not JSON. [Ours]
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"There is no draft in '{path.parent}': config.json cannot be read; give "
            "the folder of a draft."
        ) from error
    except (ValueError, RecursionError) as error:  # bad JSON or bad utf-8
        raise CheckpointError(
            f"'{path}' is not valid JSON ({error}); copy the file again."
        ) from error


def _build(kind: type, raw: Any, where: str) -> Any:
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    if not isinstance(raw, dict) or set(raw) != set(fields):
        odd = set(raw) ^ set(fields) if isinstance(raw, dict) else set(fields)
        raise CheckpointError(
            f"{where} has missing or unknown fields: {', '.join(sorted(odd))}; "
            "restore the config.json that was written with the weights."
        )
    for name, wanted in fields.items():
        # type(), not isinstance(): true and false are no numbers
        number = {int, wanted} if wanted is not bool else {bool}
        if wanted in (int, float, bool) and type(raw[name]) not in number:
            raise CheckpointError(
                f"{where} has {raw[name]!r} for {name}, which must be of type "
                f"{wanted.__name__}; restore the config.json that was written with "
                "the weights."
            )
    try:
        return kind(**raw)
    except TypeError as error:
        raise CheckpointError(
            f"{where} has a value of the wrong type ({error}); restore the "
            "config.json that was written with the weights."
        ) from error


def read_tensors(layout: Layout, folder: str | Path, config: Any) -> dict[str, Tensor]:
    """The tensors of a folder by name, each with the shape [...] of the layout.

    Raises CheckpointError with one sentence when the file is missing or truncated, or
    a tensor is missing, left over, misshaped, of the wrong type or not finite; all of
    them are listed. [Ours]
    """
    path, wanted = Path(folder) / "model.safetensors", layout.shapes(config)
    file = WeightFile(path)
    whole = dict.fromkeys(layout.whole_numbers, torch.int64)
    refuse(faults(path, file.specs, wanted, whole), "use files of one draft")
    tensors = file.read(wanted)
    refuse(not_finite(path, tensors), "go back to an earlier checkpoint")
    return tensors


def _require_finite(name: str, value: Tensor, where: str) -> None:
    if value.is_floating_point() and not bool(value.isfinite().all()):
        raise CheckpointError(
            f"'{name}' {where} holds NaN or infinite values; go back to an earlier "
            "checkpoint or choose a wider dtype."
        )

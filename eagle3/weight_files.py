"""Files of tensors, read so that a hostile or broken one can do no harm.

Two kinds of file hold a draft's weights: safetensors, and the zip of a pickle that
`torch.save` writes. Of both, names, shapes and dtypes are looked at first. No pickle
runs code here: torch reads it with `weights_only=True`. Nothing is allocated that the
file does not hold: a zip must be stored, not compressed, headers have a limit, and a
tensor that claims more numbers than its bytes is refused. [Ours]
"""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_QUOTE = 1000  # letters of one fault, which may quote the file
MAX_HEADER = 1 << 22  # bytes; a draft has some twenty tensors, its header some kB

Shapes = dict[str, tuple[int, ...]]

_SAFETENSORS_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class CheckpointError(ValueError):
    """A draft folder that cannot be used, or a draft that cannot be written."""


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor; None for a dtype that no draft has. [Ours]"""

    shape: tuple[int, ...]
    dtype: torch.dtype | None


class WeightFile:
    """A file of tensors: `specs` says what is in it, `read` gets the data.

    path: a safetensors file, or with another ending a file of `torch.save`

    Raises CheckpointError when the file is missing, truncated or not of its kind, or
    would run code or take more memory than its size. [Ours]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise CheckpointError(f"The draft has no weights: '{path}' is missing.")
        self._loaded: dict[str, Tensor] | None = None
        if path.suffix == ".safetensors":
            self.specs = _safetensors_specs(path)
        else:
            self._loaded = _load_pickle(path)
            self.specs = {
                name: TensorSpec(tuple(tensor.shape), tensor.dtype)
                for name, tensor in self._loaded.items()
            }

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The tensors [...] of these names, in memory of their own. [Ours]"""
        if self._loaded is not None:
            found = {name: self._loaded[name].detach() for name in names}
            rows = torch.contiguous_format  # a view may be transposed or cut
            return {n: t.clone(memory_format=rows) for n, t in found.items()}
        with safe_open(self.path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in names}


def _safetensors_specs(path: Path) -> dict[str, TensorSpec]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER:
        raise CheckpointError(
            f"'{path}' is truncated or not a safetensors file: its header claims "
            f"{length} bytes, more than any draft needs; copy it again."
        )
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: TensorSpec(
                    tuple(part.get_shape()), _SAFETENSORS_DTYPES.get(part.get_dtype())
                )
                for name, part in parts.items()
            }
    except SafetensorError as error:
        raise CheckpointError(
            f"'{path}' is truncated or not a safetensors file ({error}); copy it again."
        ) from error


def _load_pickle(path: Path) -> dict[str, Tensor]:
    _require_plain_zip(path)
    try:
        # Mapped, not read: what a storage claims beyond the file can't be had.
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a broken pickle raises whatever it likes
        raise CheckpointError(
            f"'{path}' holds something else than plain tensors, or is damaged "
            f"({type(error).__name__}); no code of it was run: get the weights as "
            "safetensors."
        ) from error
    if not isinstance(loaded, Mapping):
        raise CheckpointError(
            f"'{path}' holds a {type(loaded).__name__}, not named tensors; save the "
            "draft's state dict."
        )
    for name, tensor in loaded.items():
        _require_plain_tensor(path, name, tensor)
    _require_whole_storages(path, list(loaded.values()))
    return dict(loaded)


def _require_plain_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(
            f"'{path}' is truncated or not a file of torch.save ({error}); copy it "
            "again, or get the weights as safetensors."
        ) from error
    for entry in entries:
        is_stored = entry.compress_type == zipfile.ZIP_STORED
        if not is_stored or entry.file_size != entry.compress_size:
            raise CheckpointError(
                f"'{path}' is compressed at '{entry.filename}', which torch.save never "
                "does; get the weights as safetensors."
            )
        if entry.filename.endswith(".pkl") and entry.file_size > MAX_HEADER:
            raise CheckpointError(
                f"'{path}' has a table of contents of {entry.file_size} bytes, more "
                "than any draft needs; get the weights as safetensors."
            )
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise CheckpointError(f"'{path}' claims more data than it has; copy it again.")


def _require_plain_tensor(path: Path, name: object, tensor: object) -> None:
    is_plain = (
        isinstance(name, str)
        and isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
    )
    if not is_plain:
        raise CheckpointError(
            f"{str(name)[:80]!r} in '{path}' is a {type(tensor).__name__}, not a "
            "plain tensor; save the draft's state dict."
        )
    claimed = tensor.numel() * tensor.element_size()
    if claimed > tensor.untyped_storage().nbytes():
        raise CheckpointError(
            f"'{name}' in '{path}' claims shape {list(tensor.shape)}, more than its "
            "bytes hold; copy the file again."
        )


def _require_whole_storages(path: Path, tensors: list[Tensor]) -> None:
    """Each storage is one record of the zip from end to end.

    Several tensors may be views of one storage, as DeepSpeed saves them. A storage
    that claims another length than its record would read a neighbour's bytes.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    records = sorted(e.file_size for e in entries if "/data/" in e.filename)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    if records != sorted(storage.nbytes() for storage in storages.values()):
        raise CheckpointError(
            f"'{path}' is damaged: its tensors do not use the records of the file from "
            "end to end; get the weights as safetensors."
        )
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if total > path.stat().st_size:
        raise CheckpointError(
            f"'{path}' names tensors of {total} bytes, more than the file has; save "
            "each tensor once."
        )


def faults(
    path: Path,
    specs: Mapping[str, TensorSpec],
    wanted: Shapes,
    whole: Mapping[str, torch.dtype],
) -> list[str]:
    """What is wrong with the tensors of a file, by its header alone.

    wanted: name and shape of every tensor, no more and no less
    whole: dtype of the tensors that are not floating point; those that aren't named
        must be float32, bfloat16 or float16

    Returns one phrase per fault; none if all fit. [Ours]
    """
    found = []
    missing, extra = sorted(wanted.keys() - specs), sorted(specs.keys() - wanted)
    if missing or extra:
        found.append(
            f"'{path}' lacks {missing or 'nothing'} and has {extra or 'nothing'} left "
            "over"
        )
    for name in sorted(wanted.keys() & specs):
        shape, dtype = specs[name]
        if shape != wanted[name]:
            found.append(
                f"'{name}' in '{path}' has shape {list(shape)}, but its config.json "
                f"needs {list(wanted[name])}"
            )
        needed = whole.get(name)
        if dtype not in (FLOAT_DTYPES if needed is None else (needed,)):
            kind = "floating point" if needed is None else f"whole numbers ({needed})"
            found.append(f"'{name}' in '{path}' has dtype {dtype}, but must be {kind}")
    return found


def not_finite(path: Path, tensors: Mapping[str, Tensor]) -> list[str]:
    """One phrase for each tensor [...] with NaN or infinite values. [Ours]"""
    return [
        f"'{name}' in '{path}' holds NaN or infinite values"
        for name, value in tensors.items()
        if value.is_floating_point() and not bool(value.isfinite().all())
    ]


def refuse(found: list[str], remedy: str) -> None:
    """Raise CheckpointError with all faults in one sentence; none, no error.

    What a file says is quoted, but not pages of it. [Ours]
    """
    if found:
        parts = [
            part if len(part) < _QUOTE else f"{part[:_QUOTE]} ..." for part in found
        ]
        said = "; ".join(parts)
        said = said if len(said) < 3 * _QUOTE else f"{said[: 3 * _QUOTE]} ..."
        raise CheckpointError(f"{said}; {remedy}.")

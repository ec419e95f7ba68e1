"""Drafts on disk: a folder with config.json and model.safetensors. [Ours]

Loading is strict, because the official loader is not [Code: strict=False] and a draft
with a forgotten tensor still runs, only badly: every tensor in the file is used, every
parameter of the draft is filled, and whatever does not fit is refused by name. No
pickle is read or written. The frozen embedding is the target's and is not stored,
unless the draft is wider or narrower than the target and so has one of its own.

Left out: the official, SpecForge and speculators layouts.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from eagle3.draft import NUM_TAPS, DraftConfig, Eagle3Draft, require_fit
from eagle3.rope import RopeConfig

if TYPE_CHECKING:
    from eagle3.target import Target

FORMAT = {"format": "eagle3-draft", "version": 1}
SHIPPED = Path(__file__).parent / "data" / "smollm2_eagle3"
FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class CheckpointError(ValueError):
    """A draft folder that cannot be used, or a draft that cannot be written."""


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


def save_draft(
    draft: Eagle3Draft, folder: str | Path, dtype: torch.dtype = torch.float32
) -> None:
    """Write a draft that `load_draft` reads back.

    draft: on any device, with plain linear layers
    folder: made if it is missing; other files in it stay
    dtype: of the weights on disk; float32 keeps a float32 draft exact

    Each file is written under another name and then moved, so that a crash leaves
    whole files. Raises CheckpointError, before a file is touched, for another dtype
    or for a weight that is not finite in it.
    """
    if dtype not in FLOAT_DTYPES:
        raise CheckpointError(
            f"Drafts are stored in float32, bfloat16 or float16, not {dtype}."
        )
    state, tensors = draft.state_dict(), {}
    for name in tensor_shapes(draft.config):
        if name not in state:
            raise CheckpointError(
                f"The draft to save has no '{name}'; save it before its layers are "
                "packed for inference."
            )
        value = state[name].detach().cpu().contiguous()
        tensors[name] = value.to(dtype) if value.is_floating_point() else value
        _require_finite(name, tensors[name], f"as {dtype}")
    config = FORMAT | dataclasses.asdict(draft.config)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _Replacement(folder / "model.safetensors") as path:
        save_file(tensors, path, metadata={"format": "pt"})
    with _Replacement(folder / "config.json") as path:
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


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
    config = _read_config(folder / "config.json")
    if target is None:
        from eagle3.target import load_target  # here: it imports transformers

        target = load_target()
    require_fit(config, target)
    tensors = _read_tensors(folder / "model.safetensors", config)
    embedding = tensors.pop("embed.weight", target.embedding)
    draft = Eagle3Draft(config, embedding.detach().cpu(), tensors.pop("d2t"))
    draft.load_state_dict(tensors, strict=False)  # names are checked above
    return draft.to(target.device, dtype)


def _read_config(path: Path) -> DraftConfig:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"There is no draft in '{path.parent}': config.json cannot be read; give "
            "the folder that save_draft wrote."
        ) from error
    except ValueError as error:  # bad JSON or bad utf-8
        raise CheckpointError(
            f"'{path}' is not valid JSON ({error}); copy the file again."
        ) from error
    if (
        not isinstance(raw, dict)
        or {key: raw.pop(key, None) for key in FORMAT} != FORMAT
    ):
        raise CheckpointError(
            f"'{path}' does not say {FORMAT}; only drafts in this package's own "
            "layout can be loaded."
        )
    raw["rope"] = _build(RopeConfig, raw.get("rope"), f"'rope' in '{path}'")
    return _build(DraftConfig, raw, f"'{path}'")


def _build(kind: type, raw: Any, where: str) -> Any:
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    if not isinstance(raw, dict) or set(raw) != set(fields):
        odd = set(raw) ^ set(fields) if isinstance(raw, dict) else set(fields)
        raise CheckpointError(
            f"{where} has missing or unknown fields: {', '.join(sorted(odd))}; "
            "restore the config.json that save_draft wrote."
        )
    for name, wanted in fields.items():
        # type(), not isinstance(): true and false are no numbers
        if wanted in (int, float) and type(raw[name]) not in {int, wanted}:
            raise CheckpointError(
                f"{where} has {raw[name]!r} for {name}, which must be of type "
                f"{wanted.__name__}; restore the config.json that save_draft wrote."
            )
    try:
        return kind(**raw)
    except TypeError as error:
        raise CheckpointError(
            f"{where} has a value of the wrong type ({error}); restore the "
            "config.json that save_draft wrote."
        ) from error


def _read_tensors(path: Path, config: DraftConfig) -> dict[str, Tensor]:
    wanted = tensor_shapes(config)
    if not path.is_file():
        raise CheckpointError(f"The draft has no weights: '{path}' is missing.")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            _check_names(path, set(file.keys()), set(wanted))
            for name, shape in wanted.items():  # from the header, before any data
                found = tuple(file.get_slice(name).get_shape())
                if found != shape:
                    raise CheckpointError(
                        f"'{name}' in '{path}' has shape {list(found)}, but its "
                        f"config.json needs {list(shape)}; use files of one draft."
                    )
            tensors = {name: file.get_tensor(name) for name in wanted}
    except SafetensorError as error:
        raise CheckpointError(
            f"'{path}' is truncated or not a safetensors file ({error}); copy it again."
        ) from error
    for name, value in tensors.items():
        if value.is_floating_point() == (name == "d2t"):
            raise CheckpointError(
                f"'{name}' in '{path}' has dtype {value.dtype}; weights must be "
                "floating point and d2t whole numbers."
            )
        _require_finite(name, value, f"in '{path}'")
    return tensors


def _check_names(path: Path, found: set[str], wanted: set[str]) -> None:
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    if missing or extra:
        raise CheckpointError(
            f"'{path}' lacks {missing or 'nothing'} and has {extra or 'nothing'} left "
            "over; use a file that save_draft wrote."
        )


def _require_finite(name: str, value: Tensor, where: str) -> None:
    if value.is_floating_point() and not bool(value.isfinite().all()):
        raise CheckpointError(
            f"'{name}' {where} holds NaN or infinite values; go back to an earlier "
            "checkpoint or choose a wider dtype."
        )

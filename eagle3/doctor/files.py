"""Load a draft for the doctor: what the loader refuses becomes a finding. [Ours]"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from eagle3.checkpoint import SHIPPED, load_draft
from eagle3.doctor.finding import STRUCTURAL, Finding
from eagle3.target import Target, load_target

_WORDS = (  # in a refusal, the first that is found names the part
    ("d2t", "vocabulary map"),
    ("draft_vocab", "vocabulary map"),
    ("tap", "taps"),
    ("embed", "embedding"),
    ("target", "target"),
    ("RoPE", "RoPE base"),
)


def load_pair(
    folder: Path | None, target_name: str | None
) -> tuple[Target, Any] | Finding:
    """A target with the taps that the draft names, and the draft; or why not.

    folder: of the draft, None for the shipped one
    target_name: folder or hub id, None for the default target

    [Ours]
    """
    folder = SHIPPED if folder is None else folder
    try:
        target = load_target(target_name, taps=_named_taps(folder))
        return target, load_draft(folder, target)
    except (ValueError, OSError) as error:
        return refusal(error, folder)


def refusal(error: Exception, folder: Path | None = None) -> Finding:
    """A loader's sentence as a finding, with the part that it is about.

    folder: of the draft, to see whether its weights are of another method. [Ours]
    """
    said, method = str(error), folder and _other_method(folder)
    if method:
        remedy = f"these are {method} weights: say so in config.json, or take others."
        return Finding(f"{method} weights", said, "fault", remedy, STRUCTURAL)
    parts = [part for word, part in _WORDS if word in said]
    part = parts[0] if parts else "files"
    return Finding(part, said, "fault", "see the sentence.", STRUCTURAL)


def _named_taps(folder: Path) -> list[int] | None:
    taps = _config(folder).get("taps")
    return taps if isinstance(taps, list) else None


def _config(folder: Path) -> dict[str, Any]:
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the loader will say so
        return {}
    return raw if isinstance(raw, dict) else {}


def _other_method(folder: Path) -> str:
    """ "EAGLE-1" or "EAGLE-3" if the weights are that and the config is not."""
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            wide, inputs = file.get_slice("fc.weight").get_shape()
    except (OSError, SafetensorError, ValueError):
        return ""
    weights = {2: "EAGLE-1", 3: "EAGLE-3"}.get(inputs // wide, "")
    config = _config(folder)
    says = str(config.get("format", config.get("architectures", "")))
    is_eagle3 = "eagle3" in says.lower() or "draft_vocab_size" in config
    return "" if weights == ("EAGLE-3" if is_eagle3 else "EAGLE-1") else weights

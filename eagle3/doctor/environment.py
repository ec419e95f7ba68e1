"""Is the installation sound? Versions, threads, package data, cache, model. [Ours]"""

import hashlib
import re
import tempfile
from importlib import metadata
from pathlib import Path

import torch
from packaging.requirements import Requirement

from eagle3 import fetch
from eagle3.bench.environment import describe_environment
from eagle3.doctor import machine
from eagle3.doctor.finding import Finding

DATA = Path(__file__).parents[1] / "data"
CHECKSUMS = DATA / "checksums.txt"  # `sha256sum */*.safetensors` in that folder
_DECISIVE = ("torch", "transformers", "safetensors", "numpy")


def environment() -> list[Finding]:
    """All that can be wrong before a draft is looked at. [Ours]"""
    return [
        machine.python(),
        versions(),
        machine.kernel(),
        machine.widgets(),
        machine.memory(),
        machine.disk(),
        machine.device(),
        threads(),
        package_data(),
        cache(),
        model(),
    ]


def versions() -> Finding:
    """Are the libraries within the ranges that the package asks for?"""
    try:
        lines = metadata.requires("eagle3") or []
    except metadata.PackageNotFoundError:
        remedy = "install the package to have them checked: `make setup`."
        return Finding("versions", "eagle3 is not installed", "warning", remedy)
    found, wrong = [], []
    for wanted in map(Requirement, lines):
        if wanted.name in _DECISIVE and not wanted.marker:
            version = metadata.version(wanted.name)
            found.append(f"{wanted.name} {version}")
            if not wanted.specifier.contains(version, prereleases=True):
                wrong.append(f"'{wanted}'")
    if wrong:
        remedy = f"`pip install {' '.join(wrong)}`"
        return Finding("versions", ", ".join(found), "fault", remedy)
    return Finding("versions", ", ".join(found))


def threads() -> Finding:
    """Does torch use the cores that there are, and not more threads than that?"""
    used, cores = torch.get_num_threads(), describe_environment()["cores"]
    found = f"{used} on {cores} cores"
    if used > cores:
        remedy = f"threads wait for each other: set OMP_NUM_THREADS={cores}."
        return Finding("threads", found, "warning", remedy)
    if used == 1 < cores:
        remedy = f"set OMP_NUM_THREADS={cores}, unless other work needs the cores."
        return Finding("threads", found, "warning", remedy)
    return Finding("threads", found)


def package_data() -> Finding:
    """Are the weights that came with the package as they were made?"""
    wrong, lines = [], CHECKSUMS.read_text(encoding="utf-8").splitlines()
    for line in lines:
        digest, name = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line).groups()
        path = DATA / name
        if not path.is_file() or _sha256(path) != digest:
            wrong.append(name)
    if wrong:
        remedy = "they are damaged or missing: install the package again."
        return Finding("package data", ", ".join(wrong), "fault", remedy)
    return Finding("package data", f"{len(lines)} files of weights, all whole")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache() -> Finding:
    """Can models be kept?"""
    folder = fetch.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = "set EAGLE3_CACHE to a folder that you may write to."
        return Finding("cache folder", f"{folder}: {error.strerror}", "fault", remedy)
    return Finding("cache folder", f"{folder} can be written to")


def model() -> Finding:
    """Is the default target on this machine, with all its bytes?"""
    folder = fetch.cache_folder() / "SmolLM2-135M-Instruct"
    if fetch.is_sealed(folder, fetch.GGUF_SHA256):
        return Finding("default target", "fetched and whole")
    remedy = "`python -m eagle3 fetch`"
    return Finding("default target", "not fetched, or not whole", "warning", remedy)

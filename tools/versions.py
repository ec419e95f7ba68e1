"""Run the core tests with both ends of the range of transformers that is stated.

transformers changes from release to release, and only a test tells whether a release
still fits. Each version is put into a folder of its own beside the environment's other
packages, so nothing in the environment changes. Needs the network, or a folder of
wheels (PIP_FIND_LINKS).

    python tools/versions.py             the oldest release and the newest one allowed
    python tools/versions.py 5.3.0       another one
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "test_target.py",
    "test_families.py",
    "test_pretrained.py",
    "test_lossless.py",
    "test_conformance.py",
    "test_hf.py",
)
# What a release of transformers asks for in versions of its own.
WITH_IT = ("transformers", "huggingface_hub", "tokenizers")


def ends() -> list[str]:
    """What pip is asked for: the oldest release of the range, and the newest."""
    # From the file: what an environment knows of an editable install may be old.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = map(Requirement, project["project"]["dependencies"])
    wanted = next(line for line in lines if line.name == "transformers")
    oldest = next(s.version for s in wanted.specifier if s.operator == ">=")
    return [f"transformers=={oldest}", str(wanted)]


def core_tests_with(requirement: str, folder: Path) -> int:
    """pytest's exit code for the core tests with this release of transformers."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    # Dependencies are resolved for transformers alone, and then only its own are kept.
    plan = [*pip, "--no-deps", requirement]
    if subprocess.run(plan).returncode:
        return 1
    needs = metadata.distributions(path=[str(folder)])
    lines = [line for found in needs for line in found.requires or []]
    own = [
        str(line)
        for line in map(Requirement, lines)
        if line.name.replace("-", "_") in WITH_IT and line.marker is None
    ]
    if subprocess.run([*pip, "--no-deps", *own]).returncode:
        return 1
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "HF_HUB_OFFLINE": "1",
    }
    tests = [f"tests/{name}" for name in CORE]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not real", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


def main(versions: list[str]) -> int:
    """Run the command; returns its exit code."""
    wanted = [f"transformers=={version}" for version in versions] or ends()
    codes = {}
    for requirement in wanted:
        with tempfile.TemporaryDirectory() as name:
            print(f"core tests with {requirement}", flush=True)
            codes[requirement] = core_tests_with(requirement, Path(name))
    for requirement, code in codes.items():
        print(f"{requirement}: {'failed' if code else 'passed'}")
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

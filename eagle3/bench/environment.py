"""Who measured: the machine, the versions and the seed, to stand beside every number.

It also writes and reads the result files. A result without its circumstances can't be
compared with anything, so `write_results` puts them in itself. Nothing here tells one
computer from another of its kind: no host name, no user, no path.
"""

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers


def describe_environment(seed: int | None = None) -> dict[str, Any]:
    """The circumstances of a measurement, ready for JSON.

    seed: of the measured run, where chance took part in it
    Returns cpu (model name), cores (usable by this process), threads (that torch
    uses), accelerator (name or None), system, the versions of python, torch and
    transformers, and the date in UTC. [Ours]
    """
    on_gpu = torch.cuda.is_available()
    return {
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if on_gpu else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
    }


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        return os.cpu_count() or 1


def _cpu_model() -> str:
    """The processor's name as its maker writes it, or its architecture."""
    try:
        if platform.system() == "Darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(
                command, capture_output=True, encoding="utf-8", check=True
            ).stdout.strip()
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        return re.search(r"^model name\s*: (.+)$", info, re.MULTILINE).group(1)
    except (OSError, AttributeError, subprocess.CalledProcessError):
        return platform.machine()


def results_path(name: str, folder: str | Path) -> Path:
    """Where the results of this name are kept: `folder`/`name`.json.

    Raises ValueError for a name that is no plain file name. [Ours]
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ValueError(
            f"the name {name!r} of a result holds more than a-z, 0-9 and _: choose "
            "a plain one, without folder or ending."
        )
    return Path(folder) / f"{name}.json"


def write_results(
    name: str, results: dict[str, Any], folder: str | Path, seed: int | None = None
) -> Path:
    """Save measurements as `folder`/`name`.json, with their circumstances.

    results: what JSON can hold; floats are kept to five digits
    Returns the file's path. The folder is made where missing. Raises ValueError for a
    name that is no plain file name, or for NaN and infinity. [Ours]
    """
    path = results_path(name, folder)
    content = {"environment": describe_environment(seed), **_rounded(results)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".json.tmp")
    fresh.write_text(_short_lists_on_one_line(text) + "\n", encoding="utf-8")
    return fresh.replace(path)


def read_results(name: str, folder: str | Path) -> dict[str, Any]:
    """The measurements that `write_results` saved.

    Raises ValueError where there are none, naming what to do. [Ours]
    """
    path = Path(folder) / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"there are no results called {name!r} in {folder}: run the measurement "
            "first, or start from the folder that holds them."
        ) from None


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _short_lists_on_one_line(text: str) -> str:
    """Lists of numbers on one line each: a file to read, and a diff to read."""
    return re.sub(
        r"\[\s*([-\d.e+,\s]*?)\s*\]",
        lambda match: "[" + re.sub(r"\s+", " ", match.group(1)) + "]",
        text,
    )

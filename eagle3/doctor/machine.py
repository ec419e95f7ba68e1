"""What beginners stumble on before a line of this package runs: one function each.

Python, the kernel of the notebooks, what widgets need, memory, disk and the device.
Each says what it found and, where something is wrong, the command that mends it. [Ours]
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import torch

from eagle3 import fetch
from eagle3.doctor.finding import Finding

NEWEST_PYTHON = (3, 11)  # that the tests have been run on
KERNEL = "python3"  # that the chapters ask for
MEMORY_GIB = 2.0  # what the chapters need at most, but for those that train
DISK_GIB = 1.2  # the default target twice, as GGUF and converted
_FRONT_END = ("ipywidgets", "jupyterlab_widgets", "anywidget", "jupyterlab")


def python() -> Finding:
    """Is this a Python that the tests have been run on?"""
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        remedy = f"if something fails: `make clean`, `make lab PYTHON=python{newest}`."
        return Finding("Python", found, "warning", remedy)
    return Finding("Python", found)


def kernel() -> Finding:
    """Do notebooks run in this environment, or in another one of the same name?

    A kernel that was once installed for the whole account comes before the one of the
    environment, and then `import eagle3` fails in a notebook and nowhere else.
    """
    command = [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"]
    try:
        told = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=60
        )
        spec = json.loads(told.stdout)["kernelspecs"][KERNEL]
        program = Path(spec["spec"]["argv"][0])
        folder = spec["resource_dir"]
    except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired):
        remedy = "`make setup`, or `pip install ipykernel` in this environment."
        return Finding("kernel", f"no kernel '{KERNEL}' is found", "warning", remedy)
    # A name without folder is started by the environment that JupyterLab runs in.
    if program.is_absolute() and program.parent != Path(sys.executable).parent:
        remedy = f"notebooks run elsewhere: `jupyter kernelspec remove {KERNEL}`."
        return Finding("kernel", f"{program}, by {folder}", "fault", remedy)
    return Finding("kernel", f"'{KERNEL}' runs in this environment")


def widgets() -> Finding:
    """Is everything here that widgets need in JupyterLab?"""
    versions, missing = {}, []
    for name in _FRONT_END:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    if missing:
        remedy = f"`pip install {' '.join(missing)}`, then start JupyterLab again."
        return Finding("widgets", f"without {', '.join(missing)}", "fault", remedy)
    old = [n for n in _FRONT_END[:2] if _major(versions[n]) < _NEEDED[n]]
    if old:
        wanted = " ".join(f"'{name}>={_NEEDED[name]}'" for name in old)
        remedy = f"`pip install {wanted}`, then start JupyterLab again."
        return Finding("widgets", found, "fault", remedy)
    return Finding("widgets", found)


_NEEDED = {"ipywidgets": 8, "jupyterlab_widgets": 3}  # the two belong together


def _major(version: str) -> int:
    return int(version.split(".")[0])


def memory() -> Finding:
    """Is there enough memory for the chapters?"""
    total = _memory_gib()
    if total is None:
        return Finding("memory", "not told by this system")
    if total < MEMORY_GIB:
        remedy = (
            f"the real model needs {MEMORY_GIB:g} GiB: close other programs, or read "
            "the chapters with their saved outputs."
        )
        return Finding("memory", f"{total:.1f} GiB", "warning", remedy)
    return Finding("memory", f"{total:.1f} GiB")


def _memory_gib() -> float | None:
    """Memory of the machine; None where the system has no such question."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
    return pages * size / 2**30


def disk() -> Finding:
    """Is there room to fetch and convert the default target?"""
    folder = fetch.cache_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free / 2**30
    found = f"{free:.1f} GiB free at {place}"
    fetched = fetch.is_sealed(folder / "SmolLM2-135M-Instruct", fetch.GGUF_SHA256)
    if free < DISK_GIB and not fetched:
        remedy = (
            f"fetching needs {DISK_GIB:g} GiB: make room, or set EAGLE3_CACHE to a "
            "folder on another disk."
        )
        return Finding("disk", found, "fault", remedy)
    return Finding("disk", found)


def device() -> Finding:
    """Does torch's build fit the machine?"""
    build = torch.version.cuda
    if torch.cuda.is_available():
        return Finding("device", f"{torch.cuda.get_device_name()}, CUDA {build}")
    if build is not None:
        found = f"torch is built for CUDA {build} and finds no GPU"
        remedy = (
            "all runs on the CPU: look at `nvidia-smi`; without a GPU `make clean` and "
            "`make setup` take the smaller CPU build."
        )
        return Finding("device", found, "warning", remedy)
    if shutil.which("nvidia-smi") is not None:
        found = "this machine has an NVIDIA driver and torch is a CPU build"
        remedy = "to use the GPU: `make clean`, `make setup TORCH_BACKEND=auto`."
        return Finding("device", found, "warning", remedy)
    return Finding("device", "CPU")

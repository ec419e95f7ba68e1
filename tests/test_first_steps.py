"""The commonest mistakes of a first evening, and what `doctor` says to each.

Every one is made here, on purpose, and has to be named together with its remedy. That
an old Python or a missing venv module stops `make` with a sentence is in `test_setup`;
a missing wheel without network is in `test_cli`; versions, threads, damaged weights and
a cache that can't be written are in `test_doctor`.
"""

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from eagle3 import fetch
from eagle3.doctor import machine
from eagle3.doctor.finding import Finding


def one_remedy(finding: Finding, verdict: str, *words: str) -> None:
    """The finding has this verdict, and its remedy is there and names these words."""
    assert finding.verdict == verdict, finding
    for word in words:
        assert word in finding.remedy, finding
    assert finding.remedy.count("\n") == 0


def test_a_python_that_nobody_tried(monkeypatch):
    assert machine.python().verdict == "ok"
    monkeypatch.setattr(machine.sys, "version_info", (3, 99, 0, "final", 0))
    one_remedy(machine.python(), "warning", "make lab PYTHON=python3.11")


def kernel_list(monkeypatch, *argv: str, name: str = "python3") -> None:
    spec = {"resource_dir": "/home/reader/kernels/python3", "spec": {"argv": argv}}
    answer = SimpleNamespace(stdout=json.dumps({"kernelspecs": {name: spec}}))
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: answer)


def test_the_kernel_of_another_environment(monkeypatch):
    kernel_list(monkeypatch, sys.executable, "-m", "ipykernel_launcher")
    assert machine.kernel().verdict == "ok"
    kernel_list(monkeypatch, "python", "-m", "ipykernel_launcher")
    assert machine.kernel().verdict == "ok"
    elsewhere = str(Path(sys.executable).parent.parent / "other" / "bin" / "python")
    kernel_list(monkeypatch, elsewhere, "-m", "ipykernel_launcher")
    one_remedy(machine.kernel(), "fault", "jupyter kernelspec remove python3")
    assert elsewhere in machine.kernel().found


@pytest.mark.parametrize("what", ["other name", "no JSON", "no jupyter", "hangs"])
def test_no_kernel_at_all(monkeypatch, what):
    def run(*_, **__):
        if what == "no jupyter":
            raise FileNotFoundError("jupyter")
        if what == "hangs":
            raise machine.subprocess.TimeoutExpired("jupyter", 60)
        return SimpleNamespace(stdout="No module named jupyter")

    kernel_list(monkeypatch, "python", name="ir")
    if what != "other name":
        monkeypatch.setattr(machine.subprocess, "run", run)
    one_remedy(machine.kernel(), "warning", "pip install ipykernel")


@pytest.mark.parametrize("gone", ["jupyterlab_widgets", "anywidget", "ipywidgets"])
def test_widgets_without_their_front_end(monkeypatch, gone):
    def version(name):
        if name == gone:
            raise metadata.PackageNotFoundError(name)
        return "9.0"

    monkeypatch.setattr(machine.metadata, "version", version)
    one_remedy(machine.widgets(), "fault", f"pip install {gone}", "start JupyterLab")


def test_widgets_of_an_older_generation(monkeypatch):
    assert machine.widgets().verdict == "ok"
    versions = {"ipywidgets": "7.8.1", "jupyterlab_widgets": "1.1.10"}
    monkeypatch.setattr(
        machine.metadata, "version", lambda name: versions.get(name, "4.4")
    )
    found = machine.widgets()
    one_remedy(found, "fault", "'ipywidgets>=8' 'jupyterlab_widgets>=3'")
    assert "ipywidgets 7.8.1" in found.found


def test_too_little_memory(monkeypatch):
    assert machine.memory().verdict == "ok"
    monkeypatch.setattr(machine, "_memory_gib", lambda: 1.0)
    one_remedy(machine.memory(), "warning", "2 GiB", "saved outputs")
    monkeypatch.setattr(machine, "_memory_gib", lambda: None)
    assert machine.memory() == Finding("memory", "not told by this system")


def test_memory_of_a_system_without_the_question(monkeypatch):
    monkeypatch.delattr(machine.os, "sysconf", raising=False)
    assert machine._memory_gib() is None


def test_too_little_disk(monkeypatch, tmp_path):
    """It matters until the target is there; the folder may not exist yet."""
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "not" / "yet"))
    assert machine.disk().verdict == "ok"
    room = SimpleNamespace(free=2**29)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: room)
    one_remedy(machine.disk(), "fault", "1.2 GiB", "EAGLE3_CACHE")
    assert machine.disk().found == f"0.5 GiB free at {tmp_path}"
    monkeypatch.setattr(fetch, "is_sealed", lambda *_: True)
    assert machine.disk().verdict == "ok"


def test_a_cuda_build_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert machine.device() == Finding("device", "CPU")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    one_remedy(machine.device(), "warning", "nvidia-smi", "make clean")


def test_a_gpu_with_a_cpu_build(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    one_remedy(machine.device(), "warning", "TORCH_BACKEND=auto")

"""The set-up: one list of versions for everybody, and installs that fail clearly.

pyproject.toml (ranges), constraints.txt (exact versions) and environment.yml (conda)
must never disagree; the Makefile and CI use them and bring no version of their own.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONSTRAINTS = "constraints.txt"
# Wanted for what they do, not imported by any file. transformers reads the model's file
# with the help of accelerate and gguf; Sphinx makes the book with the help of three.
TOOLS = {"accelerate", "gguf", "jupyterlab", "nbgrader", "nbval"}
TOOLS |= {"pytest-xdist", "ruff"}
TOOLS |= {"myst-nb", "sphinx", "sphinx-book-theme", "sphinx-copybutton"}

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict:
    return tomllib.loads(read("pyproject.toml"))["project"]


def requirements() -> dict[str, Requirement]:
    """All direct dependencies of pyproject.toml by canonical name."""
    lines = list(project()["dependencies"])
    for extra in project()["optional-dependencies"].values():
        lines += extra
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r for r in parsed}


def pins() -> dict[str, Version]:
    lines = [
        line for line in read(CONSTRAINTS).splitlines() if line[:1] not in ("", "#")
    ]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in lines), lines
    pairs = [line.split("==") for line in lines]
    found = {canonicalize_name(name): Version(version) for name, version in pairs}
    assert len(found) == len(pairs), "a package stands twice in constraints.txt"
    return found


# --- the files agree ------------------------------------------------------------------


def test_every_direct_dependency_is_pinned_once_and_nothing_else() -> None:
    assert set(pins()) == set(requirements()) | {"uv"}


def test_every_range_contains_the_pinned_version() -> None:
    outside = [
        str(r) for name, r in requirements().items() if pins()[name] not in r.specifier
    ]
    assert outside == []


def test_ranges_of_the_module_have_two_ends() -> None:
    for line in project()["dependencies"]:
        operators = {part.operator for part in Requirement(line).specifier}
        assert operators == {">=", "<"}, line


def test_conda_installs_from_the_same_two_files() -> None:
    environment = yaml.safe_load(read("environment.yml"))
    assert environment["channels"] == ["conda-forge"]
    python, pip, section = environment["dependencies"]
    assert pip == "pip"
    assert section == {"pip": ["-c constraints.txt", "-e .[test]"]}
    name, version = python.split("=")
    assert name == "python"
    assert Version(version) in SpecifierSet(project()["requires-python"])


def test_only_the_constraints_file_names_exact_versions() -> None:
    for name in ("pyproject.toml", "environment.yml", "Makefile", ".ci/run"):
        found = re.findall(r"\w+==[^'\"]*\d.*", read(name))
        assert found == [], f"{name} pins {found}"


def test_ci_calls_the_readers_command() -> None:
    script = ROOT / ".ci" / "run"
    text = read(".ci/run")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert text.rstrip().endswith("\nmake test")
    assert "pip " not in text
    assert os.access(script, os.X_OK)


def test_the_version_stands_in_the_citation_file_too() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == project()["version"]
    assert citation["license"] == project()["license"] == "Apache-2.0"
    assert "Apache License" in read("LICENSE").splitlines()[1]


def sources() -> Iterator[str]:
    for folder in ("eagle3", "tests", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            yield path.read_text(encoding="utf-8")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        yield from (cell.source for cell in cells if cell.cell_type == "code")


def imported_names() -> set[str]:
    """Top-level names that the module, the tests, the tools or a chapter imports."""
    names: set[str] = set()
    for source in sources():
        with suppress(SyntaxError):  # a cell with % or ! lines
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names.add(str(node.module).split(".")[0])
    ours = {path.stem for path in ROOT.glob("t*/**/*.py")}
    # What runs beside student code is imported by its own folder, not as eagle3.
    ours |= {path.stem for path in ROOT.glob("eagle3/grading/_inside/*.py")}
    ours |= {"eagle3", "exercises", "planted"}
    return names - ours - set(sys.stdlib_module_names)


def test_the_dependencies_are_what_the_code_imports() -> None:
    packages = packages_distributions()
    imported = {
        canonicalize_name(packages.get(name, [name])[0]) for name in imported_names()
    }
    assert imported - set(requirements()) == set(), "imported but not declared"
    assert set(requirements()) - imported - TOOLS == set(), "declared but not imported"


# --- the Makefile ---------------------------------------------------------------------


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # What an outer make hands on must not steer the inner one.
    outer = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TORCH_BACKEND"}
    inherited = {k: v for k, v in os.environ.items() if k not in outer}
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def fake_python(folder: Path, script: str) -> str:
    path = folder / "fake-python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@needs_make
@pytest.mark.parametrize("backend", ["", "cpu"])
def test_every_install_is_constrained(backend: str, tmp_path: Path) -> None:
    plan = make("-n", "setup", f"VENV={tmp_path}/v", f"TORCH_BACKEND={backend}").stdout
    installs = re.findall(r"-m (?:uv )?pip install .*", plan.replace("\\\n", " "))
    assert len(installs) == (2 if backend else 1)
    assert installs[-1].startswith(f"-m pip install -c {CONSTRAINTS} -e '.[test]'")
    assert all(f"-c {CONSTRAINTS}" in line for line in installs)
    assert ("--torch-backend=cpu" in plan) == bool(backend)
    assert (f"torch=={pins()['torch']}" in plan) == bool(backend)


@needs_make
def test_the_cpu_build_is_for_linux_without_a_wheel_folder(tmp_path: Path) -> None:
    for folder, wanted in (("", sys.platform == "linux"), ("wheels", False)):
        plan = make("-n", "setup", f"VENV={tmp_path}/v", PIP_FIND_LINKS=folder).stdout
        assert ("--torch-backend=cpu" in plan) == wanted


@needs_make
def test_an_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    pretend = "import sys; sys.version_info = (3, 10, 14); $2"
    old = fake_python(tmp_path, f'exec "{sys.executable}" -c "{pretend}"')
    run = make("setup", f"VENV={tmp_path}/v", f"PYTHON={old}")
    assert run.returncode != 0
    assert run.stdout.startswith(f"{old} is missing or older than 3.11: install ")
    assert "as in 'make setup PYTHON=python3.12'" in run.stdout
    assert not (tmp_path / "v").exists()
    missing = make("setup", f"VENV={tmp_path}/v", "PYTHON=python-of-nobody")
    assert missing.stdout.startswith("python-of-nobody is missing or older than 3.11")


@needs_make
def test_a_missing_venv_module_is_said_in_one_sentence(tmp_path: Path) -> None:
    bare = fake_python(tmp_path, 'test "$1" = -c')
    run = make("setup", f"VENV={tmp_path}/v", f"PYTHON={bare}")
    assert run.returncode != 0
    assert "cannot make a virtual environment: install its venv module" in run.stdout


# Plays python in `make setup`: makes a venv that holds itself, fails with uv where
# NO_UV is 1, and at the big install where BROKEN is 1.
INSTALLS = """
case "$*" in
*"-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
*"show --quiet torch"*) exit 1 ;;
*" uv"*) exit $NO_UV ;;
*"-e ."*) echo installing && exit $BROKEN ;;
esac
"""


@needs_make
def test_a_half_finished_install_is_taken_up_again(tmp_path: Path) -> None:
    python = fake_python(tmp_path, INSTALLS)
    goal = ("setup", f"VENV={tmp_path}/v", f"PYTHON={python}", "TORCH_BACKEND=")
    first = make(*goal, BROKEN="1")
    assert first.returncode != 0
    assert "installing" in first.stdout
    second = make(*goal, BROKEN="0")
    assert second.returncode == 0
    assert "installing" in second.stdout
    third = make(*goal, BROKEN="0")  # done: nothing is installed again
    assert third.returncode == 0
    assert "installing" not in third.stdout


@needs_make
def test_changed_versions_are_installed(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / ".installed").touch()
    plan = ("-n", "setup", f"VENV={tmp_path}/v")
    assert "pip install" not in make(*plan).stdout
    for name in ("pyproject.toml", CONSTRAINTS):  # -W: as if the file were new
        assert "pip install" in make("-W", name, *plan).stdout


@needs_make
@pytest.mark.parametrize("no_uv", ["0", "1"])
def test_the_cpu_build_of_torch_out_of_reach_is_no_error(
    no_uv: str, tmp_path: Path
) -> None:
    python = fake_python(tmp_path, INSTALLS)
    goal = ("setup", f"VENV={tmp_path}/v", f"PYTHON={python}", "TORCH_BACKEND=cpu")
    run = make(*goal, NO_UV=no_uv, BROKEN="0")
    assert run.returncode == 0
    said = "The cpu build of torch can't be reached" in run.stdout
    assert said == (no_uv == "1")
    assert "installing" in run.stdout


@needs_make
def test_tests_check_style_modules_and_every_chapter(tmp_path: Path) -> None:
    plan = make("-n", "test", f"VENV={tmp_path}/v").stdout.replace("\\\n", " ")
    wanted = (
        "-m eagle3 fetch",
        "-m ruff check .",
        "-m ruff format --check .",
        "worksteal tests",
        "--nbval --nbval-current-env",
        "--nbval-sanitize-with=tests/nbval_sanitize.cfg",
        "--dist loadfile notebooks/",
    )
    places = [plan.find(text) for text in wanted]
    assert -1 not in places
    assert places == sorted(places)
    assert "--nbval-lax" not in plan


@needs_make
def test_help_names_every_command() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    assert phony
    listed = re.findall(r"^  make ([\w-]+)\t\S", make().stdout, re.MULTILINE)
    assert set(" ".join(phony).split()) - {"pytest", "nbval"} <= set(listed)


def test_adding_a_drafter_is_one_short_file():
    """What CONTRIBUTING says about prompt lookup."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    path = "eagle3/drafters/prompt_lookup.py"
    assert f"`{path}`" in text
    assert "fewer than 80 lines" in text
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) < 80

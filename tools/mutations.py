"""Plant small faults in the module, one at a time, and see whether the tests notice.

A test suite that is green says little if it would be green with a fault in the code,
too. So each fault of `planted_faults.toml` is put into a copy of the repository, and
the tests that ought to notice it are run there. A fault that none of them notices has
survived: the command then fails and names it. Nothing is changed in the repository.

    python tools/mutations.py              all faults
    python tools/mutations.py gpu 17       those with "gpu" in their file, and number 17
    python tools/mutations.py --check      only whether every fault can still be planted

The libraries are loaded once; each run is a fork of that process, which needs Linux or
macOS.
"""

import ast
import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".*", "my_notebooks", "screenshots", "build", "dist", "__pycache__")
LIBRARIES = ("torch", "transformers", "hypothesis", "pytest", "safetensors.torch")
SECONDS = 900  # that a run may take; a fault that never ends is noticed, too
NO_SOUND_COPY = 97  # a code that pytest doesn't use


class Fault(NamedTuple):
    """One small fault.

    file: below eagle3/      what: the fault in words
    old, new: the text that stands there once, and what takes its place
    tests: those that ought to notice, as `test_file.py::test_name`, with one of its
        parameters in brackets where all would take long
    """

    file: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_faults(path: Path) -> list[Fault]:
    """All faults of a file, in its order."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    return [Fault(**entry | {"tests": tuple(entry["tests"])}) for entry in entries]


FAULTS = read_faults(Path(__file__).with_name("planted_faults.toml"))


def problems(faults: Sequence[Fault], root: Path) -> list[str]:
    """Why faults can't be planted in this state of the code; empty if all can."""
    found = []
    for number, fault in enumerate(faults):
        where = f"fault {number} ({fault.what})"
        path = root / "eagle3" / fault.file
        if not path.is_file():
            found.append(f"{where}: there is no {fault.file}")
            continue
        text = path.read_text(encoding="utf-8")
        if text.count(fault.old) != 1:
            found.append(
                f"{where}: its line stands {text.count(fault.old)} times in "
                f"{fault.file}, and must stand there once: {fault.old.strip()!r}"
            )
            continue
        try:
            ast.parse(text.replace(fault.old, fault.new))
        except SyntaxError as error:
            found.append(f"{where}: with it {fault.file} is no Python ({error})")
    names = {test.split("[")[0] for fault in faults for test in fault.tests}
    found += [f"there is no test {name}" for name in sorted(names - tests_of(root))]
    found += [f"{fault.what}: names no test" for fault in faults if not fault.tests]
    return found


def tests_of(root: Path, folder: str = "tests") -> set[str]:
    """All tests of a folder, as `test_file.py::test_name`, read from the source."""
    return {
        f"{path.name}::{node.name}"
        for path in (root / folder).glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@contextlib.contextmanager
def planted(fault: Fault, root: Path):
    """The code under `root` with a fault in it, for a while."""
    path = root / "eagle3" / fault.file
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(sound, encoding="utf-8")


def run_tests(root: Path, tests: Sequence[str], log: Path) -> int | None:
    """pytest's exit code for these tests on the code under `root`; None if it hung."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = NO_SOUND_COPY
        try:
            code = _in_child(root, tests, log)
        finally:
            sys.stdout.flush()
            os._exit(code)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _in_child(root: Path, tests: Sequence[str], log: Path) -> int:
    output = log.open("w", encoding="utf-8")
    sys.stdout = sys.stderr = output
    for number in (1, 2):  # processes that a test starts write there, too
        os.dup2(output.fileno(), number)
    os.chdir(root)
    sys.path[:0] = [str(root), str(root / "tools")]
    os.environ["PYTHONPATH"] = str(root)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take longer than a test
    sys.dont_write_bytecode = True  # or a file of the same size and second is stale
    for name in [name for name in sys.modules if name.split(".")[0] == "eagle3"]:
        del sys.modules[name]
    import pytest

    import eagle3

    if not Path(eagle3.__file__).is_relative_to(root):
        print(f"eagle3 comes from {eagle3.__file__} and not from the copy")
        return NO_SOUND_COPY
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    return int(pytest.main([*options, *(f"tests/{name}" for name in tests)]))


def copy_to(folder: Path) -> Path:
    """A copy of the repository without what isn't committed."""
    root = folder / "copy"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return root


def chosen(words: Sequence[str]) -> list[int]:
    """The numbers of the faults that the words name; all if there are no words."""
    return [
        number
        for number, fault in enumerate(FAULTS)
        if not words or any(word == str(number) or word in fault.file for word in words)
    ]


def main(words: list[str]) -> int:
    """Run the command; returns its exit code."""
    cant = problems(FAULTS, ROOT)
    if cant:
        print("\n".join(cant))
        print(f"{len(cant)} problems: bring tools/planted_faults.toml up to date.")
        return 1
    if words == ["--check"]:
        print(f"{len(FAULTS)} faults can be planted.")
        return 0
    numbers = chosen(words)
    if not numbers:
        print(f"{' '.join(words)} names no fault: give a number or part of a file.")
        return 1
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        return try_all(numbers, Path(folder).resolve())


def try_all(numbers: Sequence[int], folder: Path) -> int:
    """Plant these faults, one after the other, and report; returns an exit code."""
    root, log = copy_to(folder), folder / "log"
    tests = sorted({test for i in numbers for test in FAULTS[i].tests})
    code = run_tests(root, tests, log)
    if code != 0:
        print(log.read_text(encoding="utf-8"))
        print(f"Without a fault these tests end with code {code}: mend that first.")
        return 1
    survivors = []
    for number in numbers:
        fault, started = FAULTS[number], time.monotonic()
        with planted(fault, root):
            code = run_tests(root, fault.tests, log)
        verdict = {1: "noticed", None: "hangs", 0: "SURVIVED"}.get(code)
        if verdict is None:  # nothing was tested: that is no verdict
            verdict = f"NOT RUN, code {code}"
            print(log.read_text(encoding="utf-8"))
        if verdict not in ("noticed", "hangs"):
            survivors.append(number)
        seconds = time.monotonic() - started
        print(f"{number:4} {verdict:9} {seconds:5.1f} s  {fault.file}: {fault.what}")
    print(f"{len(numbers)} faults planted, {len(survivors)} survived: {survivors}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

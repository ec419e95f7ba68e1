"""Traps that work on one system and break on another, looked for in the source.

Nothing here runs on macOS or Windows, so what is known to break there is not written in
the first place. `found` names every trap of a text, and each rule is shown to notice
its trap.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# These say themselves that they need fork: the mutation check, and the grader.
NOT_EVERYWHERE = {"mutations.py", "jail.py", "zygote.py"}

TEXT_CALLS = {"read_text", "write_text"}
ONE_SYSTEM = {  # attributes of modules that Windows, or macOS, doesn't have
    ("os", "fork"): "there is no fork on Windows",
    ("os", "getuid"): "there is no getuid on Windows",
    ("os", "mkfifo"): "there is no mkfifo on Windows",
    ("os", "symlink"): "links need rights on Windows",
    ("os", "system"): "a shell string",
    ("os", "popen"): "a shell string",
    ("os", "rename"): "rename doesn't replace on Windows: use replace",
    ("os", "startfile"): "startfile is on Windows alone",
    ("signal", "SIGKILL"): "there is no SIGKILL on Windows",
    ("signal", "alarm"): "there is no alarm on Windows",
}
MODULES = {"fcntl", "pwd", "grp", "resource", "termios", "winreg", "msvcrt", "pickle"}
FOLDERS = ("/tmp", "/dev/", "/usr/local", "C:\\")
PROGRAMS = {"python", "python3", "pip", "bash", "sh", "rm", "cp", "mv", "ls", "cat"}


def found(source: str) -> list[str]:
    """The traps in a module's source, each as a line number and a reason."""
    tree = ast.parse(source)
    return [
        f"line {node.lineno}: {why}" for node in ast.walk(tree) for why in _traps(node)
    ]


def _traps(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        why = ONE_SYSTEM.get((node.value.id, node.attr))
        if why:
            yield why
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names]
        names.append(getattr(node, "module", "") or "")
        yield from (f"imports {name}" for name in MODULES & set(names))
    elif isinstance(node, ast.Constant) and str(node.value).startswith(FOLDERS):
        yield f"the path {node.value!r} of one system"


def _of_call(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    name = name or (node.func.id if isinstance(node.func, ast.Name) else "")
    keys = {keyword.arg: keyword.value for keyword in node.keywords}
    if name in TEXT_CALLS and "encoding" not in keys and not _has_encoding(node, name):
        yield f"{name} in the encoding of the machine"
    if name == "open" and "encoding" not in keys and not _is_binary(node, keys):
        yield "open in the encoding of the machine"
    if name in ("run", "Popen", "check_output"):
        if isinstance(keys.get("shell"), ast.Constant) and keys["shell"].value:
            yield "a shell string"
        as_text = keys.keys() & {"text", "universal_newlines"}
        if as_text and "encoding" not in keys:
            yield "a program's output in the encoding of the machine"
        if node.args and isinstance(node.args[0], ast.List) and node.args[0].elts:
            first = node.args[0].elts[0]
            if isinstance(first, ast.Constant) and first.value in PROGRAMS:
                yield f"starts {first.value!r} and not sys.executable"
    if name == "rename" and isinstance(node.func, ast.Attribute):
        yield "rename doesn't replace on Windows: use replace"


def _has_encoding(node: ast.Call, name: str) -> bool:
    return len(node.args) > (name == "write_text")


def _is_binary(node: ast.Call, keys: dict) -> bool:
    # `Path.open(mode)` and `open(path, mode)`; archives are opened by their members.
    place = 0 if isinstance(node.func, ast.Attribute) else 1
    mode = keys.get("mode") or (node.args[place] if len(node.args) > place else None)
    if mode is None:
        return False
    is_mode = isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rwxabt+")
    return not is_mode or "b" in mode.value


def modules() -> list[Path]:
    paths = [*(ROOT / "eagle3").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    assert len(paths) > 100
    return sorted(path for path in paths if path.name not in NOT_EVERYWHERE)


def test_no_known_trap_stands_in_the_code():
    wrong = {
        path.relative_to(ROOT).as_posix(): traps
        for path in modules()
        if (traps := found(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "source",
    [
        "path.read_text()",
        "path.write_text('x')",
        "path.open()",
        "path.open('w')",
        "open('x')",
        "open('x', mode='a')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run(command, text=True)",
        "subprocess.run(['python', 'x.py'])",
        "os.system('ls')",
        "os.fork()",
        "os.rename('a', 'b')",
        "path.rename('b')",
        "os.kill(1, signal.SIGKILL)",
        "import fcntl",
        "from resource import setrlimit",
        "import pickle",
        "folder = '/tmp/x'",
    ],
)
def test_each_trap_is_noticed(source):
    assert len(found(source)) >= 1


@pytest.mark.parametrize(
    "source",
    [
        "path.read_text('utf-8')",
        "path.write_text('x', encoding='utf-8')",
        "path.open('rb')",
        "open('x', 'wb')",
        "archive.open(member)",
        "subprocess.run([sys.executable, 'x.py'], encoding='utf-8')",
        "os.kill(1, signal.SIGTERM)",
        "path.replace('b')",
        "words = '/v1/answers'",
    ],
)
def test_what_works_everywhere_is_no_trap(source):
    assert found(source) == []


def test_no_two_names_differ_by_case_alone():
    """On macOS and Windows they would be one file."""
    for folder in ("eagle3", "notebooks", "figures", "tests", "tools"):
        names = [p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*")]
        names = [name for name in names if "__pycache__" not in name]
        assert len({name.lower() for name in names}) == len(names), folder
        odd = [name for name in names if set(name) & set('<>:"\\|?*')]
        assert odd == []  # signs that Windows doesn't allow in a name

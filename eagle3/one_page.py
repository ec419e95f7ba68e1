"""The whole method on one page, cut out of the module's own files.

What runs is gathered from a few names on: whatever their code uses is taken along,
out of all files, in an order in which it can be run from top to bottom. Left out are
docstrings, checks of arguments and methods that nobody on the page calls. The target
is not on the page, since it is whatever model one has. [Ours]
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent
# Draft, training-time test, drafting a chain or tree, and the engine around them.
ROOTS = (
    ("draft", "Eagle3Draft"),
    ("training.losses", "ttt_loss"),
    ("training.losses", "restrict_teacher"),
    ("drafters.eagle", "EagleDrafter"),
    ("growth", "chain"),
    ("growth", "DynamicTree"),
    ("engine", "run"),
)
METHODS = frozenset({"acceptance_length", "result"})  # what a reader of the page calls
GIVEN = ("target", "packed", "hf", "precision")  # files that the page goes without
CHECKS = ("check", "_check", "require", "_require")
# Where the module takes care of speed or of several processes, the page doesn't.
INSTEAD = {
    ("drafters.eagle", "_inference_copy"): (
        "def _inference_copy(draft: Any, target: Any) -> Any:\n"
        "    return draft  # the module packs a copy of its matrices"
    ),
    ("sampling", "sampling"): (
        "class sampling:  # where a file asks for it by its module's name\n"
        "    uniforms = staticmethod(uniforms)"
    ),
    ("training.processes", "processes"): (
        "class processes:  # one process: its sums are those of all\n"
        "    total = largest = staticmethod(lambda values: values)"
    ),
}
NEVER_LEFT_OUT = ("__init__", "__len__", "__getitem__", "forward")

Name = tuple[str, str]  # file as in "training.losses", and a name in it


@dataclass
class File:
    """A file of the module: its lines, its top-level statements, what it imports."""

    lines: list[str]
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    ours: dict[str, Name] = field(default_factory=dict)  # from files of the module
    others: dict[str, str] = field(default_factory=dict)  # name -> import statement


@cache
def read(name: str) -> File:
    """A file of the module, as "training.losses". [Ours]"""
    path = FOLDER.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    file = File(text.splitlines())
    for statement in ast.parse(text).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            file.defined[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            for aim in statement.targets:
                if isinstance(aim, ast.Name):
                    file.defined[aim.id] = statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            _note_import(file, statement)
    return file


def _note_import(file: File, statement: ast.Import | ast.ImportFrom) -> None:
    source = getattr(statement, "module", None) or ""
    for alias in statement.names:
        name = alias.asname or alias.name
        if source == "eagle3" and (FOLDER / f"{alias.name}.py").is_file():
            file.ours[name] = alias.name, alias.name
        elif source.startswith("eagle3."):
            place = source.removeprefix("eagle3.")
            inside = FOLDER.joinpath(*place.split("."), f"{alias.name}.py")
            place = f"{place}.{alias.name}" if inside.is_file() else place
            file.ours[name] = place, alias.name
        else:
            start = f"from {source} import " if source else "import "
            renamed = f" as {alias.asname}" if alias.asname else ""
            file.others[name.split(".")[0]] = f"{start}{alias.name}{renamed}"


def _is_check(node: ast.stmt) -> bool:
    """`if ...: raise ...`, or a call of a function that only checks."""
    if isinstance(node, ast.If):
        return not node.orelse and all(isinstance(s, ast.Raise) for s in node.body)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).split(".")[-1].startswith(CHECKS)
    return False


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _left_out(node: ast.AST, called: frozenset[str]) -> Iterator[ast.stmt]:
    """The statements inside of a definition that the page does without."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt) and _goes(node, inner, called):
            yield inner
        else:
            yield from _left_out(inner, called)


def _goes(owner: ast.AST, node: ast.stmt, called: frozenset[str]) -> bool:
    if _is_docstring(node) or _is_check(node) or _is_idle(owner, node, called):
        return True
    if isinstance(node, (ast.For, ast.If, ast.With)):  # nothing in it is left
        return all(_goes(node, s, called) for s in [*node.body, *_orelse(node)])
    return False


def _orelse(node: ast.stmt) -> list[ast.stmt]:
    return getattr(node, "orelse", [])


def _is_idle(owner: ast.AST, node: ast.stmt, called: frozenset[str]) -> bool:
    """A method that nobody calls."""
    return (
        isinstance(owner, ast.ClassDef)
        and isinstance(node, ast.FunctionDef)
        and node.name not in called
        and node.name not in NEVER_LEFT_OUT
    )


def _used(node: ast.AST, skip: frozenset[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of what stays, annotations left aside: they are not run."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST) and inner not in skip:
                yield inner
                yield from _used(inner, skip)


def gather(
    roots: Sequence[Name] = ROOTS, called: frozenset[str] = METHODS
) -> tuple[list[Name], frozenset[str]]:
    """All names that the roots need, and all methods that are called. [Ours]"""
    while True:
        names, attributes = _closure(roots, called)
        if attributes <= called:
            return names, called
        called |= attributes


def _closure(
    roots: Sequence[Name], called: frozenset[str]
) -> tuple[list[Name], frozenset[str]]:
    order: list[Name] = []
    attributes: set[str] = set()

    def visit(name: Name, above: tuple[Name, ...] = ()) -> None:
        file, key = read(name[0]), name[1]
        if name in order or name in above or name[0] in GIVEN:
            return
        if name in INSTEAD:
            for node in ast.walk(ast.parse(INSTEAD[name])):
                loaded = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
                if loaded and node.id in file.defined:
                    visit((name[0], node.id), (*above, name))
            order.append(name)
            return
        if key not in file.defined:
            if key in file.ours:  # a package that only hands on
                visit(file.ours[key], above)
            return
        statement = file.defined[key]
        skip = frozenset(_left_out(statement, called))
        for node in _used(statement, skip):
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.Name) and node.id in file.ours:
                visit(file.ours[node.id], (*above, name))
            elif isinstance(node, ast.Name) and node.id in file.defined:
                visit((name[0], node.id), (*above, name))
        order.append(name)

    for root in roots:
        visit(root)
    return order, frozenset(attributes)


def parts(roots: Sequence[Name] = ROOTS) -> dict[str, str]:
    """The page cut at its files: path of a file -> what is taken of it.

    The first part, under "", holds the imports. Raises ValueError when two files have
    the same name for two things. [Ours]
    """
    names, called = gather(roots)
    owners: dict[str, str] = {}
    for file, key in names:
        if owners.setdefault(key, file) != file:
            raise ValueError(
                f"{key} stands in {owners[key]} and in {file}: rename one of them, or "
                "the page would mix them up."
            )
    found = {"": "from __future__ import annotations\n\n"}
    found[""] += "\n".join(sorted(set(_imports(names, called))))
    for file in _in_order(sorted({file for file, _ in names})):
        mine = [key for owner, key in names if owner == file]
        place = {key: i for i, key in enumerate(read(file).defined)}
        mine.sort(key=lambda key: place.get(key, len(place)))
        code = "\n\n".join(_cut(file, key, called) for key in mine)
        found[f"eagle3/{file.replace('.', '/')}.py"] = code
    return found


def page(roots: Sequence[Name] = ROOTS) -> str:
    """The page as the text of a Python file.

    Raises ValueError as `parts` does. [Ours]
    """
    cut = parts(roots)
    start = cut.pop("")
    return "\n\n".join(
        [start, *(f"# ---- {path}\n\n{code}" for path, code in cut.items())]
    )


def _in_order(files: Sequence[str]) -> list[str]:
    """Each file after those that it takes names from, as Python would load them."""
    order: list[str] = []

    def visit(file: str) -> None:
        for other, _ in read(file).ours.values():
            if other in files and other not in order:
                visit(other)
        if file not in order:
            order.append(file)

    for file in files:
        visit(file)
    return order


def load() -> ModuleType:
    """The page as a module of its own, beside the one that it was cut from. [Ours]"""
    made = ModuleType("one_page_of_eagle3")
    sys.modules[made.__name__] = made  # where dataclasses look their names up
    exec(compile(page(), made.__name__, "exec"), vars(made))
    return made


def _imports(names: Sequence[Name], called: frozenset[str]) -> Iterator[str]:
    for file, key in names:
        code, others = _cut(file, key, called), read(file).others
        used = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
        yield from {others[name] for name in used & set(others)}


def _cut(file: str, key: str, called: frozenset[str]) -> str:
    """The lines of one definition without what is left out."""
    if (file, key) in INSTEAD:
        return INSTEAD[file, key]
    statement, lines = read(file).defined[key], read(file).lines
    first = min([statement.lineno, *(d.lineno for d in _decorators(statement))])
    gone: set[int] = set()
    for node in _left_out(statement, called):
        start = min([node.lineno, *(d.lineno for d in _decorators(node))])
        gone |= set(range(start, (node.end_lineno or start) + 1))
    last = statement.end_lineno or first
    text = {number: lines[number - 1] for number in range(first, last + 1)}
    text |= dict.fromkeys(gone, "")
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and _is_empty(node, gone):
            text[node.body[0].lineno] = " " * node.body[0].col_offset + "pass"
    return _without_gaps(list(text.values()))


def _is_empty(node: ast.FunctionDef | ast.ClassDef, gone: set[int]) -> bool:
    inside = node.lineno not in gone
    return inside and all(inner.lineno in gone for inner in node.body)


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return getattr(node, "decorator_list", [])


def _without_gaps(text: Sequence[str]) -> str:
    """No blank line at the head of a block, and none twice."""
    kept: list[str] = []
    for line in text:
        opens = bool(kept) and kept[-1].rstrip().endswith((":", "(", "["))
        if line.strip() or (kept and kept[-1].strip() and not opens):
            kept.append(line)
    return "\n".join(kept).rstrip()

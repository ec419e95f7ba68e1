"""A chapter's exercises, read from its notebook, and what is planted against them."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LIFTED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Chapter:
    """Where a chapter's exercises are and how they can be got wrong.

    name: of the notebook
    answers: exercise number -> the name, or names, that its check is called with
    half: exercise of the trace kind -> a piece of its solution that, left open as
        "...", makes the answer unfinished
    wrong: exercise number -> mistake -> (text of the solution, what stands there)
    setup: code of the notebook, from one text up to another, that checks rely on
    errors: how a check says no
    """

    name: str
    answers: Mapping[str, str | tuple[str, ...]]
    half: Mapping[str, str]
    wrong: Mapping[str, Mapping[str, tuple[str, str]]]
    setup: tuple[str, str] = ("", "")
    errors: tuple[type[Exception], ...] = (AssertionError,)

    @cached_property
    def cells(self) -> list[Any]:
        path = NOTEBOOKS / f"{self.name}.ipynb"
        return nbformat.read(path, as_version=4).cells

    @cached_property
    def definitions(self) -> dict[str, Any]:
        """The notebook's imports and definitions, without running its other code."""
        namespace: dict[str, Any] = {}
        for cell in self.cells:
            if cell.cell_type == "code":
                body = ast.parse(cell.source).body
                kept = [node for node in body if isinstance(node, LIFTED)]
                tree = ast.Module(kept, type_ignores=[])
                exec(compile(tree, self.name, "exec"), namespace)
        start, end = self.setup
        if start:
            (source,) = [c.source for c in self.cells if c.source.startswith(start)]
            exec(source.split(end)[0], namespace)
        return namespace

    @cached_property
    def solutions(self) -> dict[str, str]:
        """Exercise number -> the code of its folded solution."""
        found, number = {}, ""
        for cell in self.cells:
            if heading := re.match(r"### Exercise (\d+\.\d)", cell.source):
                number = heading.group(1)
            pattern = r"<summary>Solution</summary>\s+```python\n(.*?)```"
            if solution := re.search(pattern, cell.source, re.DOTALL):
                found[number] = solution.group(1)
        return found

    def names(self, number: str) -> tuple[str, ...]:
        """What the check of an exercise is called with."""
        names = self.answers[number]
        return (names,) if isinstance(names, str) else names

    def stub(self, number: str) -> str:
        """The answer cell of an exercise as committed."""
        (name, *_) = self.names(number)
        starts = (f"def {name}(", f"{name} = {{")
        # The notebook may build a function of the same name later on.
        return next(c.source for c in self.cells if c.source.startswith(starts))

    def run(self, code: str) -> dict[str, Any]:
        """The notebook's names after some code."""
        namespace = dict(self.definitions)
        exec(code, namespace)
        return namespace

    def check(self, number: str, code: str) -> None:
        """Run answer code as a reader would have typed it, then the check."""
        namespace = self.run(code)
        check = namespace["check_" + number.replace(".", "_")]
        check(*(namespace[name] for name in self.names(number)))

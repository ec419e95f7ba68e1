"""The page of appendix C: complete, free of what it leaves out, and the module's code.

That it computes what the module computes is asserted in the appendix itself, which
nbval runs. Here: that nothing on it was written by hand, and that nothing is missing.
"""

import ast
import builtins
import json
import re
from pathlib import Path

import pytest
from notebook_prose import ROOT, read

from eagle3 import one_page

PAGE = one_page.page()
PARTS = one_page.parts()


def test_every_line_stands_in_its_file() -> None:
    for path, code in PARTS.items():
        if not path:
            continue
        lines = {line.strip() for line in (ROOT / path).read_text("utf-8").splitlines()}
        own = {
            line.strip()
            for text in one_page.INSTEAD.values()
            for line in text.splitlines()
        }
        for line in code.splitlines():
            assert line.strip() in lines | own | {"pass"}, f"{path}: {line}"


def names_used(tree: ast.Module) -> set[str]:
    """Names that are read when the page runs: annotations are not."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if hasattr(node, field):
                setattr(node, field, None)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def test_no_name_is_missing() -> None:
    tree = ast.parse(PAGE)
    known = set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    assert names_used(tree) - known == set()


def test_checks_and_docstrings_stay_behind() -> None:
    tree = ast.parse(PAGE)
    definitions = (ast.FunctionDef, ast.ClassDef)
    assert not any(
        ast.get_docstring(node)
        for node in ast.walk(tree)
        if isinstance(node, definitions)
    )
    raised = [n for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    assert {ast.unparse(node.exc) for node in raised} <= {"NotImplementedError"}
    assert "from eagle3" not in PAGE and "import eagle3" not in PAGE


def test_methods_that_nobody_calls_stay_behind() -> None:
    assert "def for_target" not in PAGE
    assert "def forward_ttt" in PAGE  # ttt_loss calls it


def test_files_come_after_those_that_they_need() -> None:
    order = list(PARTS)
    for first, later in (("layers", "draft"), ("tree", "growth"), ("verify", "engine")):
        assert order.index(f"eagle3/{first}.py") < order.index(f"eagle3/{later}.py")


def test_two_things_of_one_name_are_refused() -> None:
    roots = (("training.eagle1", "_Rows"), ("training.losses", "_Rows"))
    with pytest.raises(ValueError, match="_Rows stands in training"):
        one_page.page(roots)


def test_the_appendix_shows_the_page_of_today() -> None:
    saved = json.loads(Path(ROOT / "notebooks/C_single_file.ipynb").read_text("utf-8"))
    shown = "\n".join(
        "".join(output["data"]["text/markdown"])
        for cell in saved["cells"]
        for output in cell.get("outputs", [])
        if "text/markdown" in output.get("data", {})
    )
    for path, code in PARTS.items():
        assert code in shown, f"{path} has changed: make notebooks NB=notebooks/C_*"
    listed = re.findall(r"^# (eagle3/[\w/]+\.py)$", shown, re.MULTILINE)
    assert sorted(listed) == sorted(path for path in PARTS if path)
    assert len(read(ROOT / "notebooks/C_single_file.ipynb")) == len(saved["cells"])

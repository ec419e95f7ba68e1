"""Every test that the tables of `tests/README.md` and CONTRIBUTING name exists."""

import ast
import re

import mutations
import pytest

TESTS = mutations.ROOT / "tests"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`((?:browser/)?(?:test|every)_\w+\.py::test_\w+)`", text))


def of_every_widget() -> set[str]:
    """The tests that the files of all widgets inherit."""
    path = TESTS / "browser" / "every_widget.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {f"browser/{path.name}::{name}" for name in named}


def existing() -> set[str]:
    in_browser = mutations.tests_of(mutations.ROOT, "tests/browser")
    own = {f"browser/{name}" for name in in_browser}
    return mutations.tests_of(mutations.ROOT) | own | of_every_widget()


@pytest.mark.parametrize("name", ["tests/README.md", "CONTRIBUTING.md"])
def test_every_test_that_is_named_exists(name):
    text = (mutations.ROOT / name).read_text(encoding="utf-8")
    assert names_in(text) - existing() == set()


def test_every_row_of_the_tables_names_a_test():
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    tables = text.split("## Faults that people met elsewhere")[1]
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| ---", "| Kind", "| Threat"))]
    assert len(rows) > 60
    assert [row for row in rows if not names_in(row)] == []

"""Every test that the tables of `tests/README.md` and CONTRIBUTING name exists."""

import re

import mutations
import pytest

TESTS = mutations.ROOT / "tests"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`((?:browser/)?test_\w+\.py::test_\w+)`", text))


def existing() -> set[str]:
    in_browser = mutations.tests_of(mutations.ROOT, "tests/browser")
    return mutations.tests_of(mutations.ROOT) | {f"browser/{n}" for n in in_browser}


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

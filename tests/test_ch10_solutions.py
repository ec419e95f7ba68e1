"""The exercises of chapter 10: each folded solution passes its check, wrong ones don't.

The checks are the notebook's own functions. Their verdicts are the thing under test:
right answers come from the folded solutions, wrong ones are planted here, and the
stubs as committed must read "not solved yet".
"""

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import torch

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "10_draft_trees.ipynb"
NAMES = {
    "10.1": "answer",
    "10.2": "quick_mask",
    "10.3": "best_path",
    "10.4": "with_replacement",
}
LIFTED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def lifted_definitions() -> dict[str, Any]:
    """The notebook's imports and definitions, without running its other code."""
    namespace: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            body = ast.parse(cell.source).body
            kept = [node for node in body if isinstance(node, LIFTED)]
            tree = ast.Module(kept, type_ignores=[])
            exec(compile(tree, str(NOTEBOOK), "exec"), namespace)
    return namespace


def folded_solutions() -> dict[str, str]:
    """Exercise number -> the code of its folded solution."""
    found, number = {}, ""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if heading := re.match(r"### Exercise (\d+\.\d)", cell.source):
            number = heading.group(1)
        pattern = r"<summary>Solution</summary>\s+```python\n(.*?)```"
        if solution := re.search(pattern, cell.source, re.DOTALL):
            found[number] = solution.group(1)
    return found


@pytest.fixture(scope="module")
def notebook() -> SimpleNamespace:
    return SimpleNamespace(**lifted_definitions(), solutions=folded_solutions())


def run_check(notebook: SimpleNamespace, number: str, code: str) -> None:
    """Run answer code as a reader would have typed it, then the exercise's check."""
    namespace = dict(vars(notebook))
    exec(code, namespace)
    check = namespace["check_" + number.replace(".", "_")]
    check(namespace[NAMES[number]])


def test_every_exercise_has_hint_solution_and_check(notebook):
    assert sorted(notebook.solutions) == sorted(NAMES)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.count("<summary>Hint</summary>") == len(NAMES)


@pytest.mark.parametrize("number", NAMES)
def test_the_folded_solution_passes(notebook, number, capsys):
    run_check(notebook, number, notebook.solutions[number])
    assert capsys.readouterr().out == f"{number} correct\n"


@pytest.mark.parametrize("number", ["10.2", "10.3", "10.4"])
def test_the_untouched_stub_is_not_solved(notebook, number, capsys):
    run_check(notebook, number, "")
    assert capsys.readouterr().out == f"{number} not solved yet\n"


def test_a_half_filled_trace_is_not_solved(notebook, capsys):
    half = notebook.solutions["10.1"].replace("[0, 3, 6]", "...")
    run_check(notebook, "10.1", half)
    assert capsys.readouterr().out == "10.1 not solved yet\n"


def test_drawing_without_replacement_accepts_more_as_10_4_says(notebook):
    namespace = dict(vars(notebook))
    exec(notebook.solutions["10.4"], namespace)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        p, q = torch.rand(2, 5, generator=generator, dtype=torch.float64)
        p, q = p / p.sum(), q / q.sum()
        _, kept = namespace["with_replacement"](p, q, 3)
        ways = namespace["drawn"](q, 3), namespace["honest"]
        without = namespace["every_outcome"](p, *ways)[0].sum()
        assert kept <= without + 1e-12


# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "10.1": {
        "path from below up": ('"path": [0, 3, 6]', '"path": [6, 3, 0]'),
        "root counted as a node": ('"path": [0, 3, 6]', '"path": [-1, 0, 3, 6]'),
        "position is the row": ('"position": 13', '"position": 17'),
        "position starts at T - 1": ('"position": 13', '"position": 12'),
        "sees all earlier nodes": ('"sees": [1, 4]', '"sees": [0, 1, 2, 3, 4]'),
        "sees not itself": ('"sees": [1, 4]', '"sees": [1]'),
        "nodes for rows": ('"rows": [0, 1, 4, 7]', '"rows": [0, 3, 6]'),
        "pending row lost": ('"rows": [0, 1, 4, 7]', '"rows": [1, 4, 7]'),
        "inner node a leaf": ("[2, 4, 5, 6]", "[1, 2, 4, 5, 6]"),
    },
    "10.2": {
        "parent's row without the shift": ("|= mask[parent + 1]", "|= mask[parent]"),
        "parent alone": (
            "mask[node + 1] |= mask[parent + 1]",
            "mask[node + 1, parent + 1] = True",
        ),
        "sees all before": (
            "mask[node + 1] |= mask[parent + 1]",
            "mask[node + 1, : node + 1] = True",
        ),
        "not itself": (
            "torch.eye(len(parents) + 1",
            "torch.zeros(2 * [len(parents)+1]",
        ),
        "numbers for booleans": ("return mask,", "return mask.float(),"),
        "depth counts rows": ("depths[parent + 1] + 1", "node + 1"),
        "depth of the parent": ("depths[parent + 1] + 1", "depths[parent + 1]"),
    },
    "10.3": {
        "shortest run wins": ("run > len(best)", "run < len(best)"),
        "judged by its own row": ("choices[before + 1]", "choices[node + 1]"),
        "row without the shift": ("choices[before + 1]", "choices[before]"),
        "goes on after a miss": ("break", "continue"),
        "whole path of the best leaf": ("best = path[:run]", "best = path"),
        "next token of the parent": ("choices[last + 1]", "choices[last]"),
        "next token always the root's": ("choices[last + 1]", "choices[0]"),
    },
    "10.4": {
        "p never changes": ("p = residual(p, q)", "pass"),
        "q loses a token": (
            "p = residual(p, q)",
            "p, q = residual(p, q), without(q, int(q.argmax()))",
        ),
        "last part forgotten": ("return law + reached * p", "return law"),
        "last draw from q": ("return law + reached * p", "return law + reached * q"),
        "probability of refusal": (", 1 - reached", ", reached"),
        "one sibling for all": ("range(count)", "range(1)"),
        "reached not multiplied": ("reached = reached *", "reached = 1.0 *"),
    },
}


@pytest.mark.parametrize(
    ("number", "mistake"), [(n, name) for n, names in WRONG.items() for name in names]
)
def test_a_wrong_answer_is_caught(notebook, number, mistake):
    solution = notebook.solutions[number]
    old, new = WRONG[number][mistake]
    assert solution.count(old) == 1, f"the planted mistake's anchor moved: {old!r}"
    with pytest.raises(AssertionError):
        run_check(notebook, number, solution.replace(old, new))

"""The exercises of chapter 0: each folded solution passes its check, wrong ones don't.

The checks are the notebook's own functions. Right answers come from the folded
solutions, wrong ones are planted here.
"""

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "00_start_here.ipynb"
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells
ANSWERS = {"0.1": "answer", "0.2": "reading"}


def solutions() -> dict[str, str]:
    found, number = {}, ""
    for cell in CELLS:
        if heading := re.match(r"### Exercise (\d\.\d)", cell.source):
            number = heading.group(1)
        pattern = r"<summary>Solution</summary>\s+```python\n(.*?)```"
        if solution := re.search(pattern, cell.source, re.DOTALL):
            found[number] = solution.group(1)
    return found


def namespace() -> dict[str, Any]:
    """The checks, and the shuffled labels of exercise 0.1 as the notebook has them."""
    names: dict[str, Any] = {}
    exec("import torch", names)
    for cell in CELLS:
        if cell.cell_type != "code":
            continue
        if cell.source.startswith("letters ="):
            exec(cell.source.split("paused =")[0], names)
        for node in ast.parse(cell.source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
                exec(compile(ast.Module([node], []), "cell", "exec"), names)
    return names


def run_check(number: str, code: str) -> None:
    names = namespace()
    exec(code, names)
    names["check_" + number.replace(".", "_")](names[ANSWERS[number]])


@pytest.mark.parametrize("number", ["0.1", "0.2"])
def test_the_folded_solution_passes(number: str, capsys) -> None:
    run_check(number, solutions()[number])
    assert capsys.readouterr().out == f"{number} correct\n"


@pytest.mark.parametrize("number", ["0.1", "0.2"])
def test_the_untouched_stub_is_not_solved(number: str, capsys) -> None:
    start = f"{ANSWERS[number]} = {{"
    (stub,) = [c.source for c in CELLS if c.source.startswith(start)]
    run_check(number, stub)
    assert capsys.readouterr().out == f"{number} not solved yet\n"


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        ("0.1", '"A": "h", "B": "g"', '"A": "g", "B": "h"'),
        ("0.1", '"E": "m", "F": "l"', '"E": "l", "F": "m"'),
        ("0.1", '"C": "p"', '"C": "q"'),
        ("0.1", '"G": "a"', '"G": "x"'),
        ("0.2", '"emitted": 9', '"emitted": 8'),  # the prefill's token forgotten
        ("0.2", '"target_cache": 28', '"target_cache": 29'),  # pending counted
        ("0.2", '"draft_cache": 25', '"draft_cache": 28'),  # no lag
        ("0.2", "8 / 3", "5 / 3"),  # without the target's own
        ("0.2", "8 / 3", "9 / 3"),  # with the prefill's
        ("0.2", '["bonus", "rep', '["replacement", "rep'),
    ],
)
def test_a_wrong_answer_fails(number: str, right: str, wrong: str) -> None:
    solution = solutions()[number]
    assert solution.count(right) == 1
    with pytest.raises(AssertionError):
        run_check(number, solution.replace(right, wrong))

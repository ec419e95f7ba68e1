"""The exercises of chapter 1: each folded solution passes its check, wrong ones don't.

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

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "01_why_decoding_is_slow.ipynb"
NAMES = {
    "1.1": "answer",
    "1.2": "cached_sampled",
    "1.3": "first_compute_bound_batch",
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
        if heading := re.match(r"### Exercise (\d\.\d)", cell.source):
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


@pytest.mark.parametrize("number", ["1.2", "1.3"])
def test_the_untouched_stub_is_not_solved(notebook, number, capsys):
    run_check(notebook, number, "")
    assert capsys.readouterr().out == f"{number} not solved yet\n"


def test_a_half_filled_trace_is_not_solved(notebook, capsys):
    half = notebook.solutions["1.1"].replace("45", "...")
    run_check(notebook, "1.1", half)
    assert capsys.readouterr().out == "1.1 not solved yet\n"


# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "1.1": {
        "prefill yields no token": ('"passes": 5', '"passes": 6'),
        "the new tokens alone": ('"rows_without": 45', '"rows_without": 35'),
        "prompt forgotten": ('"rows_with": 11', '"rows_with": 5'),
        "the pending token is cached": ('"cached": 11', '"cached": 12'),
        "one guess too few": (
            '"passes_with_guesses": 3',
            '"passes_with_guesses": 4',
        ),
    },
    "1.2": {
        "whole text into the cache again": (
            "torch.tensor([block])",
            "torch.tensor([ids])",
        ),
        "no cache": ("torch.tensor([block]), cache)", "torch.tensor([ids]))"),
        "first row instead of the last": ("logits[0, -1]", "logits[0, 0]"),
        "greedy": (
            "int(sampling.sample(probs, generator))",
            "int(probs.argmax())",
        ),
        "generator starts again at each token": (
            "    for _ in range(num_tokens):",
            "    for _ in range(num_tokens):\n"
            "        generator = torch.Generator().manual_seed(params.seed)",
        ),
        "another seed": ("manual_seed(params.seed)", "manual_seed(0)"),
        "filters forgotten": (
            "sampling.next_token_distribution(logits, params)",
            "logits.softmax(-1)",
        ),
        "one token short": ("range(num_tokens)", "range(num_tokens - 1)"),
        "the prompt is left out": ("return ids", "return ids[-num_tokens:]"),
        "a position is forgotten after each pass": (
            "        logits = output",
            "        cache.rollback(1)\n        logits = output",
        ),
        "the last token is run too": (
            "    return ids",
            "    target.forward(torch.tensor([block]), cache)\n    return ids",
        ),
    },
    "1.3": {
        "context forgotten": ("Pass(rows, batch, context)", "Pass(rows, batch)"),
        "rows forgotten": ("Pass(rows, batch, context)", "Pass(1, batch, context)"),
        "rows and batch mixed up": (
            "Pass(rows, batch, context)",
            "Pass(batch, rows, context)",
        ),
        "the last memory-bound one": ("return batch", "return batch - 1"),
        "the limit instead of None": ("return None", "return 4096"),
        "bfloat16": (
            "Pass(rows, batch, context))",
            "Pass(rows, batch, context), number_bytes=2)",
        ),
        "turned round": ("if not work", "if work"),
    },
}


@pytest.mark.parametrize(
    ("number", "mistake"), [(n, name) for n, names in WRONG.items() for name in names]
)
def test_a_wrong_answer_is_caught(notebook, number, mistake):
    solution = notebook.solutions[number]
    old, new = WRONG[number][mistake]
    assert solution.count(old) == 1, f"the planted mistake's anchor moved: {old!r}"
    # A cache that overflows raises ValueError, which tells the reader as much.
    with pytest.raises((AssertionError, ValueError)):
        run_check(notebook, number, solution.replace(old, new))

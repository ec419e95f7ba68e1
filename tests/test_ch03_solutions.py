"""The exercises of chapter 3: each folded solution passes its check, wrong ones don't.

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

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "03_draft_then_verify.ipynb"
NAMES = {
    "3.1": "answer",
    "3.2": "crop",
    "3.3": "speculate_with_chance",
    "3.4": "best_chain",
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


@pytest.mark.parametrize("number", ["3.2", "3.3", "3.4"])
def test_the_untouched_stub_is_not_solved(notebook, number, capsys):
    run_check(notebook, number, "")
    assert capsys.readouterr().out == f"{number} not solved yet\n"


def test_a_half_filled_trace_is_not_solved(notebook, capsys):
    half = notebook.solutions["3.1"].replace("17", "...")
    run_check(notebook, "3.1", half)
    assert capsys.readouterr().out == "3.1 not solved yet\n"


def test_the_numbers_named_in_the_solution_of_3_4(notebook):
    """0.6, 0.5, 0.4 and free rows: 1.6, 1.9 and 2.02 tokens; 0.6 passes at most."""
    namespace = dict(vars(notebook))
    exec(notebook.solutions["3.4"], namespace)
    best, rows = namespace["best_chain"], [1.0] * 4
    for length, tokens in ((1, 1.6), (2, 1.9), (3, 2.02)):
        assert best([0.6, 0.5, 0.4][:length], 0.0, rows)[1] == pytest.approx(tokens)
    assert best([0.6, 0.5, 0.4], 0.59, rows)[0] == 1
    assert best([0.6, 0.5, 0.4], 0.61, rows) == (0, 1.0)


# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "3.1": {
        "pending token forgotten": ('"rows": 5', '"rows": 4'),
        "own row judges": ('"judges_d1": 0', '"judges_d1": 1'),
        "replacement from its own row": ('"replacement": 2', '"replacement": 3'),
        "pending token not cached": ('"cached": 17', '"cached": 16'),
        "replacement counted as cached": ('"forget": 2', '"forget": 1'),
        "replacement not emitted": ('"emitted": 3', '"emitted": 2'),
    },
    "3.2": {
        "may keep the whole text": ("len(text) - 1)", "len(text))"),
        "forgets all": ("return len(cached) - same", "return len(cached)"),
        "returns what stays": ("return len(cached) - same", "return same"),
        "looks at the length alone": (" and cached[same] == text[same]", ""),
        "one too few": ("len(cached) - same", "max(0, len(cached) - same - 1)"),
    },
    "3.3": {
        "target not rolled back": (
            "cache.rollback(len(drafted) - decision.num_accepted)",
            "pass",
        ),
        "draft not rolled back": (
            "small_cache.rollback(max(0, small_cache.length - len(text)))",
            "pass",
        ),
        "one row late": (
            "output.logits[0, -len(drafted) - 1 :]",
            "output.logits[0, -len(drafted) - 1 :].roll(-1, 0)",
        ),
        "q of another draw": ("torch.stack(q) if q", "torch.stack(q).flip(0) if q"),
        "draws from the favourite only": (
            "int(sampling.sample(q[-1], generator))",
            "int(q[-1].argmax())",
        ),
        "p sharpened": (
            "-len(drafted) - 1 :].softmax(-1)",
            "-len(drafted) - 1 :].mul(1.3).softmax(-1)",
        ),
        "accepts everything": ("[: decision.num_accepted], dec", ", dec"),
        "no token of the target's own": (
            ", decision.next_token]",
            "] or [decision.next_token]",
        ),
        "may write too much": ("min(n, end - len(text) - 1)", "n"),
    },
    "3.4": {
        "chances not multiplied": ("reached *= alpha", "reached = alpha"),
        "target's own token forgotten": (
            "tokens, reached, best = 1.0",
            "tokens, reached, best = 0.0",
        ),
        "drafting counted once": ("n * draft_cost", "draft_cost"),
        "block of n rows": ("row_costs[n])", "row_costs[n - 1])"),
        "stops at the first fall": (
            "            best = n, gain\n",
            "            best = n, gain\n        else:\n            break\n",
        ),
        "always drafts": ("(0, 1.0 / row_costs[0])", "(0, 0.0)"),
    },
}


# By the check, or because a piece of the module refuses what it is given.
CAUGHT = (AssertionError, ValueError)


@pytest.mark.parametrize(
    ("number", "mistake"), [(n, name) for n, names in WRONG.items() for name in names]
)
def test_a_wrong_answer_is_caught(notebook, number, mistake):
    solution = notebook.solutions[number]
    old, new = WRONG[number][mistake]
    assert solution.count(old) == 1, f"the planted mistake's anchor moved: {old!r}"
    with pytest.raises(CAUGHT):
        run_check(notebook, number, solution.replace(old, new))

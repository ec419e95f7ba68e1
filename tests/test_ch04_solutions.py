"""The exercises of chapter 4: each folded solution passes its check, wrong ones don't.

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

from eagle3.bench.environment import read_results

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "04_eagle_features.ipynb"
NAMES = {"4.1": "answer", "4.2": "both_losses", "4.3": "gains"}
LIFTED = (ast.Import, ast.ImportFrom, ast.FunctionDef)


def lifted_definitions() -> dict[str, Any]:
    """The notebook's imports and functions, without running any of its other code."""
    namespace: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        kept = [
            node for node in ast.parse(cell.source).body if isinstance(node, LIFTED)
        ]
        tree = ast.Module(kept, type_ignores=[])
        exec(compile(tree, str(NOTEBOOK), "exec"), namespace)
    return namespace


def folded_solutions() -> dict[str, str]:
    """Exercise number -> the code of its folded solution."""
    texts = [c.source for c in nbformat.read(NOTEBOOK, as_version=4).cells]
    found, number = {}, ""
    for text in texts:
        if heading := re.match(r"### Exercise (\d\.\d)", text):
            number = heading.group(1)
        pattern = r"<summary>Solution</summary>\s+```python\n(.*?)```"
        if solution := re.search(pattern, text, re.DOTALL):
            found[number] = solution.group(1)
    return found


@pytest.fixture(scope="module")
def notebook() -> SimpleNamespace:
    return SimpleNamespace(**lifted_definitions(), solutions=folded_solutions())


def run_check(notebook: SimpleNamespace, number: str, code: str) -> None:
    """Run answer code as a reader would have typed it, then the exercise's check."""
    namespace = dict(vars(notebook))
    exec(code, namespace)
    namespace["check_" + number.replace(".", "_")](namespace[NAMES[number]])


def test_every_exercise_has_hint_solution_and_check(notebook):
    assert sorted(notebook.solutions) == sorted(NAMES)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.count("<summary>Hint</summary>") == len(NAMES)


@pytest.mark.parametrize("number", NAMES)
def test_the_folded_solution_passes(notebook, number, capsys):
    run_check(notebook, number, notebook.solutions[number])
    assert capsys.readouterr().out == f"{number} correct\n"


@pytest.mark.parametrize("number", ["4.2", "4.3"])
def test_the_untouched_stub_is_not_solved(notebook, number, capsys):
    run_check(notebook, number, "")
    assert capsys.readouterr().out == f"{number} not solved yet\n"


def test_a_half_filled_trace_is_not_solved(notebook, capsys):
    run_check(notebook, "4.1", notebook.solutions["4.1"].replace("False", "..."))
    assert capsys.readouterr().out == "4.1 not solved yet\n"


def test_the_solution_of_4_3_takes_the_measured_file(notebook):
    namespace = dict(vars(notebook))
    exec(notebook.solutions["4.3"], namespace)
    curves = read_results("feature_loss", ROOT / "figures" / "results")["curves"]
    result = namespace["gains"](curves)
    for name, points in curves.items():
        first, last = points[0]["n_alpha"], points[-1]["n_alpha"]
        want = (last[0] - first[0], last[1] - first[1], last[1] / last[0])
        assert result[name] == pytest.approx(want)


# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "4.1": {
        "feature of the pending token": ('"first_feature": 4', '"first_feature": 5'),
        "token not moved": ('"first_token": "mat"', '"first_token": "the"'),
        "output is a token": ('"first_output": "mat"', '"first_output": "and"'),
        "estimate taken for a feature": ("False", "True"),
        "second row reads the pending token": (
            '"needs_token": "and"',
            '"needs_token": "mat"',
        ),
    },
    "4.2": {
        "feature not moved": ("feature[:, 1:][counts]", "feature[:, :-1][counts]"),
        "mask not moved": ("counts = mask[:, 1:]", "counts = mask[:, :-1]"),
        "all rows count": ("counts = mask[:, 1:]", "counts = mask[:, 1:] | True"),
        "plain square": ("torch.where(size < 1, size**2 / 2, size - 0.5)", "(size**2)"),
        "plain distance": (
            "torch.where(size < 1, size**2 / 2, size - 0.5)",
            "size",
        ),
        "summed over the feature": (".mean(-1)\n", ".sum(-1)\n"),
        "p and q swapped": (
            "-(p * (guess @ head.T).log_softmax(-1))",
            "-((guess @ head.T).softmax(-1) * p.log())",
        ),
        "best token only": (
            "(aim @ head.T).softmax(-1)",
            "torch.nn.functional.one_hot((aim @ head.T).argmax(-1), len(head))",
        ),
        "divergence instead": (
            "-(p * (guess @ head.T).log_softmax(-1))",
            "(p * (p.log() - (guess @ head.T).log_softmax(-1)))",
        ),
        "sum instead of mean": ("wrong.mean()", "wrong.sum()"),
        "losses swapped": ("far.mean(), wrong.mean()", "wrong.mean(), far.mean()"),
    },
    "4.3": {
        "order of the list": ("sorted(points, key=by_size)", "points"),
        "gain turned round": ("last[0] - first[0]", "first[0] - last[0]"),
        "share of the first point": ("last[1] / last[0]", "first[1] / first[0]"),
        "share turned round": ("last[1] / last[0]", "last[0] / last[1]"),
        "wrong n": ("last[1] - first[1]", "last[2] - first[2]"),
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

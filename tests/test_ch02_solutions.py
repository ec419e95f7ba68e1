"""The exercises of chapter 2: each folded solution passes its check, wrong ones don't.

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

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "02_accept_or_resample.ipynb"
NAMES = {"2.2": "verify", "2.3": "acceptance_by_side", "2.4": "point_mass_rule"}
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
        tree = ast.Module(
            [n for n in kept if "load_target" not in ast.dump(n)], type_ignores=[]
        )
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
    check = namespace["check_" + number.replace(".", "_")]
    if number == "2.1":
        check(namespace["answer_a"], namespace["answer_b"])
    else:
        check(namespace[NAMES[number]])


def test_every_exercise_has_hint_solution_and_check(notebook):
    assert sorted(notebook.solutions) == ["2.1", "2.2", "2.3", "2.4"]
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.count("<summary>Hint</summary>") == 4


@pytest.mark.parametrize("number", ["2.1", "2.2", "2.3", "2.4"])
def test_the_folded_solution_passes(notebook, number, capsys):
    run_check(notebook, number, notebook.solutions[number])
    assert capsys.readouterr().out == f"{number} correct\n"


@pytest.mark.parametrize("number", ["2.2", "2.3", "2.4"])
def test_the_untouched_stub_is_not_solved(notebook, number, capsys):
    run_check(notebook, number, "")
    assert capsys.readouterr().out == f"{number} not solved yet\n"


def test_a_half_filled_trace_is_not_solved(notebook, capsys):
    half = notebook.solutions["2.1"].replace("0.75", "...")
    run_check(notebook, "2.1", half)
    assert capsys.readouterr().out == "2.1 not solved yet\n"


def test_the_shares_named_in_the_solution_of_2_3(notebook):
    namespace = dict(vars(notebook))
    exec(notebook.solutions["2.3"], namespace)
    row = namespace["torch"].tensor
    p, q = row([0.6, 0.2, 0.15, 0.05]), row([0.8, 0.1, 0.1, 0.0])
    answer = namespace["acceptance_by_side"](p.log(), q.log(), 0.7)
    assert float(answer["target_only"]) == pytest.approx(0.85, abs=1e-6)
    assert float(answer["both"]) == pytest.approx(0.75, abs=1e-6)


# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "2.1": {
        "fraction turned round": ('"keep": 0.75', '"keep": 0.8'),
        "over-confidence forgotten": ('"keep": 0.75', '"keep": 1.0'),
        "half of the rejections become x again": (
            '"instead_of_x": 1.0',
            '"instead_of_x": 0.4',
        ),
        "B can be rejected": ('"instead_of_x": None', '"instead_of_x": 1.0'),
        "mean of B": ('None, "mean": 0.8', 'None, "mean": 0.4'),
    },
    "2.2": {
        "resamples from p": ("residual(p[i], q[i])", "p[i]"),
        "resamples from q": ("residual(p[i], q[i])", "q[i]"),
        "residual of the next position": (
            "residual(p[i], q[i])",
            "residual(p[i + 1], q[i])",
        ),
        "accepts where p >= q": (
            "uniform >= acceptance(p[i], q[i], token)",
            "p[i, token] < q[i, token]",
        ),
        "uniform stuck at 0": (
            "float(torch.rand(1, generator=generator, dtype=p.dtype))",
            "0.0",
        ),
        "p and q swapped": ("acceptance(p[i], q[i]", "acceptance(q[i], p[i]"),
        "always the first row of q": ("acceptance(p[i], q[i]", "acceptance(p[i], q[0]"),
        "bonus from the last verified row": ("sample(p[-1]", "sample(p[-2]"),
        "no bonus token": (
            "int(sampling.sample(p[-1], generator))",
            "draft_tokens[-1]",
        ),
        "goes on after a rejection": ("return i, int(replacement)", "continue"),
        "counts the rejected guess": ("return i, int", "return i + 1, int"),
        "only the rejected entry lowered": (
            "residual(p[i], q[i])",
            "(lambda r: r / r.sum())(p[i] - torch.nn.functional.one_hot("
            "torch.tensor(token), 3) * torch.minimum(p[i], q[i]))",
        ),
    },
    "2.3": {
        "unfiltered draft in both": ("minimum(p_top, q_top)", "minimum(p_top, q_all)"),
        "sides swapped": ("minimum(p_all, q_top)", "minimum(p_top, q_all)"),
        "draft_only called lossless": (
            '["both", "target_only"]',
            '["both", "target_only", "draft_only"]',
        ),
        "only both called lossless": ('["both", "target_only"]', '["both"]'),
    },
    "2.4": {
        "not scaled up": ("rest / rest.sum()", "rest"),
        "residual is p": ("rest[x] = 0", "pass"),
        "always accepted": ("return p[x]", "return 1.0"),
        "accepts by the rest": ("return p[x]", "return 1 - p[x]"),
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

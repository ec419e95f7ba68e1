"""The exercises: each folded solution passes its check, planted mistakes don't.

The checks are the notebooks' own functions. Their verdicts are the thing under test:
right answers come from the folded solutions, wrong ones are planted in
tests/exercises, and the stubs as committed must read "not solved yet".
"""

import importlib
from pathlib import Path

import pytest
import torch
from exercises.chapter import NOTEBOOKS, Chapter

from eagle3.bench.environment import read_results

FILES = sorted((Path(__file__).parent / "exercises").glob("ch*[0-9].py"))
CHAPTERS: dict[str, Chapter] = {
    path.stem: importlib.import_module(f"exercises.{path.stem}").CHAPTER
    for path in FILES
}
ALL = [(name, number) for name, c in CHAPTERS.items() for number in c.answers]
HALF = [(name, number) for name, c in CHAPTERS.items() for number in c.half]
MISTAKES = [
    (name, number, mistake)
    for name, c in CHAPTERS.items()
    for number, mistakes in c.wrong.items()
    for mistake in mistakes
]


def test_every_chapter_with_exercises_is_here():
    told = {
        path.stem
        for path in NOTEBOOKS.glob("*.ipynb")
        if "### Exercise " in path.read_text(encoding="utf-8")
    }
    assert {chapter.name for chapter in CHAPTERS.values()} == told


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_exercise_has_hint_solution_check_and_mistakes(name):
    """An open question has a hint and a solution, but nothing to check."""
    chapter = CHAPTERS[name]
    text = "\n".join(cell.source for cell in chapter.cells)
    asked = text.count("### Exercise ")
    assert text.count("<summary>Hint</summary>") == asked
    assert text.count("<summary>Solution</summary>") == asked
    assert text.count("There is no check") == asked - len(chapter.answers)
    assert sorted(chapter.solutions) == sorted(chapter.answers) == sorted(chapter.wrong)


@pytest.mark.parametrize(("name", "number"), ALL)
def test_the_folded_solution_passes(name, number, capsys):
    CHAPTERS[name].check(number, CHAPTERS[name].solutions[number])
    assert capsys.readouterr().out == f"{number} correct\n"


@pytest.mark.parametrize(("name", "number"), ALL)
def test_the_untouched_stub_is_not_solved(name, number, capsys):
    CHAPTERS[name].check(number, CHAPTERS[name].stub(number))
    assert capsys.readouterr().out == f"{number} not solved yet\n"


@pytest.mark.parametrize(("name", "number"), HALF)
def test_a_half_filled_answer_is_not_solved(name, number, capsys):
    chapter = CHAPTERS[name]
    piece = chapter.half[number]
    assert piece in chapter.solutions[number]
    chapter.check(number, chapter.solutions[number].replace(piece, "..."))
    assert capsys.readouterr().out == f"{number} not solved yet\n"


@pytest.mark.parametrize(("name", "number", "mistake"), MISTAKES)
def test_a_wrong_answer_is_caught(name, number, mistake):
    chapter = CHAPTERS[name]
    solution = chapter.solutions[number]
    old, new = chapter.wrong[number][mistake]
    assert solution.count(old) == 1, f"the planted mistake's anchor moved: {old!r}"
    with pytest.raises(chapter.errors):
        chapter.check(number, solution.replace(old, new))


# --------------------------------------------- what the solutions' texts say of numbers


def solved(name: str, number: str) -> dict:
    return CHAPTERS[name].run(CHAPTERS[name].solutions[number])


def test_the_shares_named_in_the_solution_of_2_3():
    row = torch.tensor
    p, q = row([0.6, 0.2, 0.15, 0.05]), row([0.8, 0.1, 0.1, 0.0])
    answer = solved("ch02", "2.3")["acceptance_by_side"](p.log(), q.log(), 0.7)
    assert float(answer["target_only"]) == pytest.approx(0.85, abs=1e-6)
    assert float(answer["both"]) == pytest.approx(0.75, abs=1e-6)


def test_the_numbers_named_in_the_solution_of_3_4():
    """0.6, 0.5, 0.4 and free rows: 1.6, 1.9 and 2.02 tokens; 0.6 passes at most."""
    best, rows = solved("ch03", "3.4")["best_chain"], [1.0] * 4
    for length, tokens in ((1, 1.6), (2, 1.9), (3, 2.02)):
        assert best([0.6, 0.5, 0.4][:length], 0.0, rows)[1] == pytest.approx(tokens)
    assert best([0.6, 0.5, 0.4], 0.59, rows)[0] == 1
    assert best([0.6, 0.5, 0.4], 0.61, rows) == (0, 1.0)


def test_the_solution_of_4_3_takes_the_measured_file():
    folder = NOTEBOOKS.parent / "figures" / "results"
    curves = read_results("feature_loss", folder)["curves"]
    result = solved("ch04", "4.3")["gains"](curves)
    for name, points in curves.items():
        first, last = points[0]["n_alpha"], points[-1]["n_alpha"]
        want = (last[0] - first[0], last[1] - first[1], last[1] / last[0])
        assert result[name] == pytest.approx(want)


def test_the_numbers_named_in_the_solution_of_8_4():
    """Equal to seven squares at n = 7, fewer from n = 8 on; 29 MB of mask."""
    scores = solved("ch08", "8.4")["flex_scores"]
    for n, ratio in ((6, 1.08), (7, 1.0), (8, 0.94)):
        found = scores(128 * n, 7) / (7 * (128 * n) ** 2)
        assert found == pytest.approx(ratio, abs=0.005)
    assert round(2048 * 7 * 2048 / 1e6) == 29


def test_drawing_without_replacement_accepts_more_as_10_4_says():
    names = solved("ch10", "10.4")
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        p, q = torch.rand(2, 5, generator=generator, dtype=torch.float64)
        p, q = p / p.sum(), q / q.sum()
        _, kept = names["with_replacement"](p, q, 3)
        ways = names["drawn"](q, 3), names["honest"]
        without = names["every_outcome"](p, *ways)[0].sum()
        assert kept <= without + 1e-12

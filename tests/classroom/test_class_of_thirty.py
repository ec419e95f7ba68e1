"""Thirty submissions of one assignment, honest, wrong and hostile, graded in one go."""

from planted import a1_lossless
from planted.plant import changed, solutions, write_submission

from eagle3.grading.grade import Plan, grade_folder
from eagle3.grading.worker import Limits

NAME = "a1_lossless"
HEAD = "def law(q, keep, instead):\n"
YES = "class Yes:\n    def __eq__(self, other):\n        return True\n\n\n"
HOSTILE = {
    "exits": f"{HEAD}    import os\n    os._exit(0)",
    "loops": f"{HEAD}    while True:\n        pass",
    "forks": f"{HEAD}    import os\n    while True:\n        os.fork()",
    "equal": f"{YES}{HEAD}    return Yes()",
    "huge": f"{HEAD}    return torch.ones(1 << 40)",
    "writes": f"{HEAD}    open('/x', 'w').write('x')\n    return q",
}
POINTS = {"by_hand": 16, "filtered": 18, "decide": 30, "law": 20, "bias": 16}


def test_a_class_is_graded_and_everybody_gets_what_is_due(tmp_path):
    work, due = tmp_path / "submitted", {}
    for student, answer in HOSTILE.items():
        texts = {**solutions(NAME), "law": answer}
        write_submission(work, f"hostile-{student}", NAME, texts)
        due[f"hostile-{student}"] = 100 - POINTS["law"] - POINTS["bias"]
    every = [
        (question, wrong)
        for question, mistakes in a1_lossless.WRONG.items()
        for wrong in mistakes.values()
        if question in ("by_hand", "filtered", "decide", "bias")
    ]
    points = a1_points()
    for number, (question, wrong) in enumerate(every[:19]):
        write_submission(work, f"w{number:02d}", NAME, changed(NAME, question, wrong))
        lost = sum(points[question, idea] for idea in wrong.loses)
        due[f"w{number:02d}"] = 100 - lost
    for number in range(4):
        write_submission(work, f"right-{number}", NAME, solutions(NAME))
        due[f"right-{number}"] = 100
    write_submission(work, "blank", NAME, {})
    due["blank"] = 0
    assert len(due) == 30
    plan = Plan(jobs=2, seed=8, limits=Limits(cpu_s=10, wall_s=240))
    results = grade_folder(work, tmp_path / "grades.csv", plan)
    assert {r.student: r.score for r in results} == due
    pages = list((tmp_path / "grades").glob(f"*/{NAME}.html"))
    assert len(pages) == 30


def a1_points():
    from planted.plant import COURSE

    return {
        (question.name, idea.name): idea.points
        for question, idea in COURSE.assignment(NAME).ideas()
    }

"""A folder of submissions in; a table and a page for each student out. [Ours]

Each result is written as soon as it is there, with fingerprints of all that it depends
on, so a run that was stopped goes on where it was, and a submission that has not
changed is not graded again.
"""

import csv
import json
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from eagle3.grading.collect import Submission, find_submissions
from eagle3.grading.course import Course
from eagle3.grading.feedback import feedback_page
from eagle3.grading.judge import Mark, grade_question
from eagle3.grading.notebook import (
    digest,
    given_sources,
    own_sources,
    read_cells,
    readable,
)
from eagle3.grading.questions import Question
from eagle3.grading.release import numbers_cell
from eagle3.grading.worker import Limits, Worker

BOOK = Path(__file__).parents[1]
WALLS = "separate file system, no network, no other processes, no rights"
NO_WALLS = (
    "limits on time and memory only: this system gives no walls around student code, "
    "so grade in a container or virtual machine that holds nothing else"
)


@dataclass(frozen=True)
class Plan:
    """How a folder is graded.

    jobs: submissions at a time      variant: seed of the given numbers
    seed: of the hidden inputs; None draws one and keeps it beside the results
    limits: of student code, for one question      course: where the checks are
    quiet: no progress bar
    """

    jobs: int = 2
    variant: int = 0
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    course: Course = field(default_factory=Course)
    quiet: bool = False


@dataclass(frozen=True)
class Result:
    """What a submission got. note: what stopped the grading of all of it, or "" """

    student: str
    assignment: str
    fingerprint: str
    marks: tuple[Mark, ...]
    note: str = ""

    @property
    def score(self) -> int:
        """Points."""
        return sum(mark.points for mark in self.marks)

    @property
    def total(self) -> int:
        """Points that could be had."""
        return sum(mark.of for mark in self.marks)


def grade_folder(folder: Path, out: Path, plan: Plan | None = None) -> list[Result]:
    """Grade all submissions, write the table and the pages.

    folder: of submissions      out: the table, a .csv; pages and details go into a
        folder of the same name without the ending

    Raises ValueError for an empty folder, a name of the table without .csv, and on a
    system without forked processes.
    """
    plan = plan or Plan()
    if not hasattr(os, "fork"):
        raise ValueError(
            "student code runs in forked processes, which this system doesn't have: "
            "grade on Linux, on macOS, or in WSL."
        )
    if out.suffix != ".csv":
        raise ValueError(f"the table is called '{out}'; give it a name in .csv.")
    submissions = find_submissions(folder, plan.course.names)
    details = out.with_suffix("")
    details.mkdir(parents=True, exist_ok=True)
    seed = _seed(details, plan.seed)
    hidden = (plan.course.folder, folder, details, BOOK, BOOK.parent / "tests")
    grader = _Grader(plan, seed, details, hidden)
    results = grader.grade(submissions)
    write_table(results, out)
    return results


def write_table(results: Sequence[Result], out: Path) -> None:
    """One row for each submission: score, total, and points of each question."""
    columns: dict[str, None] = {}
    rows = []
    for result in results:
        points: dict[str, int] = {}
        for mark in result.marks:
            name = f"{result.assignment}.{mark.question}"
            points[name] = points.get(name, 0) + mark.points
            columns[name] = None
        row = {"student": result.student, "assignment": result.assignment}
        row |= {"score": result.score, "max_score": result.total, **points}
        rows.append(row | {"note": result.note})
    header = ["student", "assignment", "score", "max_score", *columns, "note"]
    part = out.with_suffix(".csv.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="")
        writer.writeheader()
        writer.writerows(
            {k: _safe(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in rows
        )
    part.replace(out)


def _safe(text: str) -> str:
    """A spreadsheet must not take a text for a formula, nor for several rows."""
    text = readable(text).replace("\n", " ").replace("\t", " ")
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


def _seed(details: Path, seed: int | None) -> int:
    path = details / "_seed.txt"  # no student is called so, see collect.py
    if seed is None:
        if path.is_file():
            return int(path.read_text(encoding="utf-8"))
        seed = secrets.randbelow(2**31)
    part = path.with_suffix(".part")  # a kill leaves the old seed or the new one
    part.write_text(f"{seed}\n", encoding="utf-8")
    part.replace(path)
    return seed


class _Grader:
    """Workers, one for each thread, and what they share."""

    def __init__(self, plan: Plan, seed: int, details: Path, hidden: tuple[Path, ...]):
        self.plan, self.seed, self.details, self.hidden = plan, seed, details, hidden
        self.local = threading.local()
        self.workers: list[Worker] = []
        self.lock = threading.Lock()
        self.assignments: dict[str, Any] = {}

    def grade(self, submissions: Sequence[Submission]) -> list[Result]:
        for name in {s.assignment for s in submissions}:
            self.assignments[name] = self.plan.course.assignment(name)
        results: dict[int, Result] = {}
        todo = []
        for number, submission in enumerate(submissions):
            old = self.finished(submission)
            if old is None:
                todo.append(number)
            else:
                results[number] = old
        bar = tqdm(
            total=len(submissions),
            initial=len(results),
            desc="grading",
            unit="notebook",
            disable=self.plan.quiet,
        )
        try:
            with bar, ThreadPoolExecutor(self.plan.jobs) as pool:
                waiting = {pool.submit(self.one, submissions[n]): n for n in todo}
                for done in as_completed(waiting):
                    results[waiting[done]] = done.result()
                    bar.update()
        finally:
            for worker in self.workers:
                worker.close()
        return [results[number] for number in range(len(submissions))]

    def worker(self) -> Worker:
        if not hasattr(self.local, "worker"):
            self.local.worker = Worker(self.plan.limits, self.hidden)
            with self.lock:
                if not self.workers and not self.plan.quiet:
                    walls = WALLS if self.local.worker.walls else NO_WALLS
                    print(f"student code runs with {walls}", file=sys.stderr)
                self.workers.append(self.local.worker)
        return self.local.worker

    def place(self, submission: Submission) -> Path:
        return self.details / submission.student / f"{submission.assignment}.json"

    def fingerprint(self, submission: Submission) -> str:
        course, name = self.plan.course, submission.assignment
        files = digest(submission.path, course.checks(name), course.release(name))
        return f"{files}-{self.seed}-{self.plan.variant}"

    def finished(self, submission: Submission) -> Result | None:
        """The result of an earlier run, if nothing has changed since."""
        try:
            data = json.loads(self.place(submission).read_text(encoding="utf-8"))
            if data["fingerprint"] != self.fingerprint(submission):
                return None
            marks = tuple(Mark(**mark) for mark in data.pop("marks"))
            return Result(**data, marks=marks)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def one(self, submission: Submission) -> Result:
        assignment = self.assignments[submission.assignment]
        questions = assignment.questions(self.plan.variant)
        note = fingerprint = ""
        try:
            read_cells(submission.path)
            fingerprint = self.fingerprint(submission)
            marks = self.marks(submission, questions)
        except ValueError as error:
            note = str(error)
        except Exception as error:  # one student's work must not stop the others'
            note = f"the grader itself failed; tell your teacher: {error!r}"[:300]
            fingerprint = ""  # to be graded again
        if note:
            marks = [
                Mark(q.name, idea.name, idea.says, 0, idea.points, note)
                for q in questions
                for idea in q.ideas
            ]
        names = submission.student, submission.assignment
        result = Result(*names, fingerprint, tuple(marks), note)
        self.keep(submission, result, assignment.title)
        return result

    def marks(
        self, submission: Submission, questions: Sequence[Question]
    ) -> list[Mark]:
        release = self.plan.course.release(submission.assignment)
        given = {cell.grade_id for cell in read_cells(release) if cell.is_given}
        values = {question.name for question in questions if question.is_value}
        assignment = self.assignments[submission.assignment]
        numbers = numbers_cell(assignment.numbers(self.plan.variant))
        found = []
        for question in questions:
            # Values of other questions call functions that may do harm.
            left_out = given | values - {question.name}
            answer = question.name if question.is_value else ""
            own = own_sources(submission.path, left_out, answer)
            cells = [*given_sources(release, numbers), *own]
            found += grade_question(self.worker(), question, cells, self.seed)
        return found

    def keep(self, submission: Submission, result: Result, title: str) -> None:
        path = self.place(submission)
        path.parent.mkdir(parents=True, exist_ok=True)
        page = feedback_page(title, result.student, result.marks, result.note)
        path.with_suffix(".html").write_text(readable(page), encoding="utf-8")
        part = path.with_suffix(f".{os.getpid()}.part")
        text = json.dumps(asdict(result), indent=1)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)

"""A bench's runs, on disk as soon as a question is through.

A bench of all methods takes the better part of an hour. Each question's runs become one
line of a file, so a killed bench goes on behind its last whole line. The first line
says what is measured, since runs of two settings or machines don't belong together.
[Ours]
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3.bench.environment import describe_environment
from eagle3.bench.metrics import AcceptanceMetrics
from eagle3.bench.questions import Question
from eagle3.bench.speedup import Run, SpeedupConfig


class RunLog:
    """The runs so far, one list per question, and the file that keeps them.

    path: of the file, made where missing
    config, questions: what is run; they and the machine must be those of the first part

    Raises ValueError for a file of another bench. [Ours]
    """

    def __init__(
        self, path: Path, config: SpeedupConfig, questions: Sequence[Question]
    ) -> None:
        self.path = path
        self.questions: list[list[Run]] = []
        head = _identity(config, questions)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines and lines[0] != head:
            raise ValueError(
                f"'{path}' holds the first part of another bench: run that one to its "
                "end, delete the file, or choose another --name."
            )
        for line in lines[1:]:
            try:
                self.questions.append([_run_from(run) for run in json.loads(line)])
            except ValueError:  # a kill cut it off
                break
        whole = [head, *lines[1 : 1 + len(self.questions)]]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(whole) + "\n", encoding="utf-8")

    def add(self, runs: list[Run]) -> None:
        """Keep the runs of one more question."""
        self.questions.append(runs)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([asdict(run) for run in runs]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Remove the file: the results are written."""
        self.path.unlink()


def _identity(config: SpeedupConfig, questions: Sequence[Question]) -> str:
    machine = describe_environment()
    del machine["date"]  # it may go on tomorrow
    facts = {
        "config": asdict(config),
        "questions": [asdict(question) for question in questions],
        "environment": machine,
    }
    return json.dumps(facts, sort_keys=True)


def _run_from(fields: dict[str, Any]) -> Run:
    counts = fields.pop("acceptance")
    if counts is not None:
        lists = {name: tuple(v) for name, v in counts.items() if isinstance(v, list)}
        counts = AcceptanceMetrics(**counts | lists)
    return Run(**fields, acceptance=counts)

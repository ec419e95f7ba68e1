"""A bench's runs, on disk as soon as a question is through.

A bench of all methods takes the better part of an hour. Each question's runs become one
line of a file, so a killed bench goes on behind its last whole line. [Ours]
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3.bench.line_log import LineLog
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
        asked = [asdict(question) for question in questions]
        self._lines = LineLog(path, {"config": asdict(config), "questions": asked})
        self.questions = [list(map(_run_from, runs)) for runs in self._lines.parts]

    def add(self, runs: list[Run]) -> None:
        """Keep the runs of one more question."""
        self.questions.append(runs)
        self._lines.add([asdict(run) for run in runs])

    def close(self) -> None:
        """Remove the file: the results are written."""
        self._lines.close()


def _run_from(fields: dict[str, Any]) -> Run:
    counts = fields["acceptance"]
    if counts is not None:
        lists = {name: tuple(v) for name, v in counts.items() if isinstance(v, list)}
        counts = AcceptanceMetrics(**counts | lists)
    return Run(**fields | {"acceptance": counts})

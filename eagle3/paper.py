"""The paper's numbers as data: tables, plotted points, and what it says of them.

Each file in figures/paper/ holds one table or figure with its source. `how` says
whether the values are printed or were read off a plot. Nothing here is measured by us,
and nothing is corrected: where the paper contradicts itself, both values stand.
[Paper: EAGLE-3, arXiv:2503.01840]
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

FOLDER = Path(__file__).parents[1] / "figures" / "paper"


def read_paper(name: str, folder: str | Path = FOLDER) -> dict[str, Any]:
    """One table or figure as it is kept, as in read_paper("table1"). [Paper]

    Raises ValueError for a name that there is no file of, with those that there are.
    """
    path = Path(folder) / f"{name}.json"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in Path(folder).glob("*.json")))
        raise ValueError(
            f"there is no {name!r} among the paper's data: choose one of {names}."
        )
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Cell:
    """One cell of Table 1: a speedup and the acceptance length tau beside it. [Paper]

    speedup: tokens per second over those of plain decoding
    tau: tokens per target pass, the target's own included
    """

    temperature: int
    model: str
    method: str
    task: str
    speedup: float
    tau: float

    @property
    def ratio(self) -> float:
        """Speedup over tau: plain steps per cycle, turned over. [Derived]

        A cycle gives tau tokens. If it costs c plain steps, the speedup is tau / c, so
        this is 1 / c.
        """
        return self.speedup / self.tau


@dataclass(frozen=True)
class Row:
    """One row of Table 1 with its printed means. [Paper]

    cells: one for each task, in the table's order
    printed_mean: speedup and tau, as printed in the Mean column
    in_version_3: False for what only the NeurIPS version has
    """

    cells: tuple[Cell, ...]
    printed_mean: tuple[float, float]
    in_version_3: bool

    @property
    def mean(self) -> tuple[float, float]:
        """The means of speedup and tau over the tasks, computed. [Derived]"""
        return (
            fmean(cell.speedup for cell in self.cells),
            fmean(cell.tau for cell in self.cells),
        )

    @property
    def key(self) -> tuple[int, str, str]:
        """Temperature, model and method."""
        first = self.cells[0]
        return first.temperature, first.model, first.method


def table1(folder: str | Path = FOLDER) -> list[Row]:
    """All 26 rows of Table 1, in the paper's order. [Paper]"""
    table = read_paper("table1", folder)
    rows = []
    for row in table["rows"]:
        key = row["temperature"], row["model"], row["method"]
        values = zip(table["tasks"], row["speedup"], row["tau"], strict=True)
        rows.append(
            Row(
                tuple(Cell(*key, *value) for value in values),
                (row["printed_mean"]["speedup"], row["printed_mean"]["tau"]),
                row["versions"] == "both",
            )
        )
    return rows


def cells(rows: Sequence[Row]) -> list[Cell]:
    """The cells of all these rows, one list. [Paper]"""
    return [cell for row in rows for cell in row.cells]


def row_of(rows: Sequence[Row], temperature: int, model: str, method: str) -> Row:
    """The row with this key.

    Raises ValueError where the table has none, as for Medusa at temperature 1. [Paper]
    """
    key = temperature, model, method
    for row in rows:
        if row.key == key:
            return row
    raise ValueError(
        f"Table 1 has no row for temperature {temperature}, {model}, {method}: the "
        "paper doesn't report it."
    )


def gains(rows: Sequence[Row], method: str, over: str) -> dict[tuple, float]:
    """Speedup of one method over another's, cell by cell, where both have a row.

    Returns (temperature, model, task) -> ratio of the two speedups. [Derived]
    """
    found = {}
    base = {
        (c.temperature, c.model, c.task): c for c in cells(rows) if c.method == over
    }
    for cell in cells(rows):
        key = cell.temperature, cell.model, cell.task
        if cell.method == method and key in base:
            found[key] = cell.speedup / base[key].speedup
    return found

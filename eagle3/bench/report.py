"""The results of a bench as tables in the shape of the paper's Table 1. [Ours]"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_tables(summaries: Mapping[str, Mapping[str, Any]]) -> None:
    """Print one table for each temperature, methods down and kinds across. [Ours]

    summaries: temperature -> what `eagle3.bench.speedup.summarise` returns
    """
    for temperature, summary in summaries.items():
        print_table(methods_table(temperature, summary))


def print_table(table: Table) -> None:
    """Print a table in the width of the terminal. [Ours]"""
    console = Console()
    if not console.is_terminal:  # a file or pipe has no width of its own
        console = Console(width=140)
    console.print(table)


def methods_table(temperature: str, summary: Mapping[str, Any]) -> Table:
    """Speedup over vanilla and acceptance length, per kind and in the mean. [Ours]"""
    table = Table(
        title=f"temperature {temperature}: speedup over vanilla, acceptance length"
    )
    kinds = list(
        dict.fromkeys(k for row in summary.values() for k in row["speedup_by_kind"])
    )
    table.add_column("method")
    for kind in [*kinds, "mean"]:
        table.add_column(kind, justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("same tokens")
    for label, row in summary.items():
        cells = [
            _cell(row["speedup_by_kind"][k], row["acceptance_length_by_kind"][k])
            for k in kinds
        ]
        low, high = row["speedup_interval_95"]
        same = "-" if temperature != "0" else "yes" if row["same_tokens"] else "NO"
        mean = _cell(row["speedup"], row["acceptance_length"])
        table.add_row(label, *cells, mean, f"{low:.2f} to {high:.2f}", same)
    return table


def _cell(speedup: float, tau: float) -> str:
    return f"{speedup:.2f}x {tau:.2f}" if tau else f"{speedup:.2f}x    -"

"""The doctor's table, and what the command line does. [Ours]"""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eagle3.doctor.diagnose import diagnose
from eagle3.doctor.environment import environment
from eagle3.doctor.files import load_pair
from eagle3.doctor.finding import Diagnosis, Finding

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}


def examine(folder: Path | None, target_name: str | None) -> Diagnosis:
    """Look at the installation, then at a draft, and print what was found.

    folder: of the draft, None for the shipped one
    target_name: folder or hub id, None for the default target
    Returns the diagnosis of the draft. [Ours]
    """
    console = Console()
    console.print(_table("The installation", environment()))
    pair = load_pair(folder, target_name)
    is_refused = isinstance(pair, Finding)
    diagnosis = Diagnosis((pair,)) if is_refused else diagnose(*pair)
    console.print(_table(f"The draft {folder or '(shipped)'}", diagnosis.findings))
    console.print(Text(conclusion(diagnosis)))
    return diagnosis


def conclusion(diagnosis: Diagnosis) -> str:
    """The diagnosis in one or two sentences. [Ours]"""
    cause = diagnosis.cause
    if cause is None:
        return "The draft is healthy."
    word = "cause" if cause.verdict == "fault" else "suspect"
    return f"Main {word}: {cause.part}. To do: {cause.remedy}"


def _table(title: str, findings: list[Finding] | tuple[Finding, ...]) -> Table:
    table = Table(title=title, title_justify="left", show_lines=True)
    for column in ("part", "verdict", "found", "to do"):
        table.add_column(column)
    for finding in findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        # Text, not markup: a list of numbers in brackets is no tag.
        table.add_row(finding.part, verdict, Text(finding.found), Text(finding.remedy))
    return table

"""The commands `convert` and `inspect`: from a path to a folder or a table. [Ours]"""

from pathlib import Path
from typing import Any

from rich.console import Console

from eagle3.formats.export import write_stored
from eagle3.formats.facts import DraftFacts, describe
from eagle3.formats.stored import Stored, open_stored
from eagle3.formats.table import facts_table
from eagle3.formats.target_sizes import target_sizes
from eagle3.weight_files import CheckpointError


def convert(
    source: str | Path, out: str | Path, format_name: str, target: str | None = None
) -> None:
    """Read a checkpoint of any format and write it in another.

    out: a folder; refused if it is the source's own
    format_name: one of `export.FORMAT_NAMES`
    target: folder or hub id of the target, where something depends on it

    Raises CheckpointError, or another ValueError, when the checkpoint is refused or the
    format can't express it; then nothing is written. [Ours]
    """
    if Path(source).resolve() == Path(out).resolve():
        raise CheckpointError(
            f"'{out}' is the checkpoint itself; name another folder to write to."
        )
    stored = open_stored(source)
    write_stored(stored, out, format_name, _target(stored, format_name, target))


def _target(stored: Stored, format_name: str, source: str | None) -> Any:
    if source is None:
        return None
    drops = format_name == "sglang" or stored.method == "eagle1"
    if drops and stored.own_embedding:  # the two embeddings are compared
        from eagle3.target import load_target  # here: it imports transformers

        return load_target(source)
    return target_sizes(source)


def show(path: str | Path, target: str | None = None) -> DraftFacts:
    """Print what a checkpoint is, and what of it does not fit the target.

    target: folder or hub id of the target; None compares with nothing

    Raises ValueError when the checkpoint is refused. [Ours]
    """
    facts = describe(path, None if target is None else target_sizes(target))
    Console().print(facts_table(facts))
    return facts

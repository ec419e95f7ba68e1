"""A long measurement's parts, on disk as soon as each is through.

The first line says what is measured and where, since parts of two settings or machines
don't belong together. Each part is one more line, so what was killed goes on behind its
last whole line. [Ours]
"""

import json
import os
from pathlib import Path
from typing import Any

from eagle3.bench.environment import describe_environment


class LineLog:
    """The parts so far, and the file that keeps them.

    path: of the file, made where missing
    facts: what is measured; they and the machine must be those of the first part
    parts: of an earlier run, oldest first

    Raises ValueError for a file of another measurement. [Ours]
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.parts: list[Any] = []
        machine = describe_environment()
        del machine["date"]  # it may go on tomorrow
        head = json.dumps(facts | {"environment": machine}, sort_keys=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines and lines[0] != head:
            raise ValueError(
                f"'{path}' holds the first part of another bench: run that one to its "
                "end, delete the file, or choose another --name."
            )
        for line in lines[1:]:
            try:
                self.parts.append(json.loads(line))
            except ValueError:  # a kill cut it off
                break
        whole = [head, *lines[1 : 1 + len(self.parts)]]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(whole) + "\n", encoding="utf-8")

    def add(self, part: Any) -> None:
        """Keep one more part."""
        self.parts.append(part)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(part) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Remove the file: the results are written."""
        self.path.unlink()

"""What a measurement of throughput says: a table, and what must hold of it. [Ours]"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eagle3.bench.environment import results_path, write_results
from eagle3.bench.line_log import LineLog
from eagle3.bench.throughput import VANILLA, ThroughputConfig, measure_throughput
from eagle3.target import Target

MAX_OVERHEAD = 0.03  # of a cycle, outside of the models
BATCH_GAIN = 3  # times the tokens of one slot that eight slots must make


def measure_and_write(
    target: Target, config: ThroughputConfig, out: Path, name: str
) -> Path:
    """Measure, print table and verdicts, write the results; returns their file.

    What was killed goes on when it is called again. Raises ValueError for the first
    part of another measurement, or for a name that is no plain file name. [Ours]
    """
    partial = results_path(name, out).with_suffix(".partial.jsonl")
    log = LineLog(partial, {"config": asdict(config)})
    results = {"config": asdict(config), **measure_throughput(target, config, log)}
    results["verdicts"] = [asdict(verdict) for verdict in verdicts(results)]
    print_tables(results)
    path = write_results(name, results, out, config.seed)
    log.close()
    return path


def print_tables(results: Mapping[str, Any]) -> None:
    """Print throughput by batch size, and the verdicts. [Ours]

    results: of `measure_and_write`
    """
    console = Console()
    if not console.is_terminal:  # a file or pipe has no width of its own
        console = Console(width=140)
    console.print(throughput_table(results))
    for verdict in results["verdicts"]:
        sign = "yes" if verdict["holds"] else "NO "
        console.print(f"{sign}  {verdict['claim']}: {verdict['found']}")


def throughput_table(results: Mapping[str, Any]) -> Table:
    """Tokens per second and speedup over vanilla, methods down, batch sizes across."""
    table = Table(title="tokens per second of all slots, and speedup over vanilla")
    batches = next(iter(results["methods"].values()))["batches"]
    table.add_column("method")
    table.add_column("tokens a cycle", justify="right")
    for batch in ["teaching engine", *batches]:
        table.add_column(str(batch), justify="right")
    for label, row in results["methods"].items():
        alone = results["teaching"].get(label)
        cells = ["-" if alone is None else f"{alone['tokens_per_second']:.1f}"]
        for rate, gain in zip(row["tokens_per_second"], row["speedup"], strict=True):
            cells.append(f"{rate:.1f} {gain:.2f}x")
        table.add_row(label, f"{row['tokens_per_cycle']:.2f}", *cells)
    return table


@dataclass(frozen=True)
class Verdict:
    """One thing that must hold, and whether it does. [Ours]"""

    claim: str
    holds: bool
    found: str


def verdicts(results: Mapping[str, Any]) -> list[Verdict]:
    """What must hold of a measurement: see each claim. [Ours]"""
    found = []
    for label, row in results["methods"].items():
        worst, batches = max(row["overhead"]), row["batches"]
        found.append(
            Verdict(
                f"{label}: overhead below {MAX_OVERHEAD:.0%} of a cycle",
                worst < MAX_OVERHEAD,
                f"{worst:.1%}",
            )
        )
        if label in results["teaching"]:
            alone = results["teaching"][label]["cycle_seconds"]
            ratio = alone / row["cycle_seconds"][0]
            claim = f"{label}: one slot as fast as the teaching engine"
            found.append(Verdict(claim, ratio >= 1, f"{ratio:.3f} times"))
        if {1, 8} <= set(batches):
            rate = dict(zip(batches, row["tokens_per_second"], strict=True))
            claim = f"{label}: 8 slots make {BATCH_GAIN} times the tokens of one"
            gain = rate[8] / rate[1]
            found.append(Verdict(claim, gain >= BATCH_GAIN, f"{gain:.2f} times"))
        if row["method"] != VANILLA:
            found.append(_speedup_verdict(label, row))
    return found


def _speedup_verdict(label: str, row: Mapping[str, Any]) -> Verdict:
    last = pays_up_to(row["batches"], row["predicted"])
    slowest = min(
        (gain for b, gain in zip(row["batches"], row["speedup"], strict=True)
         if b <= last),
        default=1.0,
    )  # fmt: skip
    claim = f"{label}: no slower than vanilla up to the roofline's batch of {last}"
    return Verdict(claim, slowest >= 1, f"{slowest:.2f} times")


def pays_up_to(batches: Sequence[int], speedups: Sequence[float]) -> int:
    """The last batch size before the first at which the speedup is below 1; 0 if none.

    batches: ascending [Ours]
    """
    last = 0
    for batch, speedup in zip(batches, speedups, strict=True):
        if speedup < 1:
            break
        last = batch
    return last

"""What the attention of training-time test costs in each of its forms.

A job is what one sequence of a training step asks of attention: steps 0..S-1, each with
queries of its own over the keys and values of all steps so far, and one backward pass
through all of them. The sizes are the shipped draft's. All forms of a cell take turns
(see `eagle3.bench.cost`), medians are kept, and memory is the allocator's own count
(see `eagle3.bench.memory`). A form that can't run keeps its row, with the reason.
[Ours]
"""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle3.bench.cost import interleaved
from eagle3.bench.environment import (
    describe_environment,
    read_results,
    write_results,
)
from eagle3.bench.memory import allocated_peak, can_see_resident, resident_peak
from eagle3.layers import KeyValue, LayerConfig
from eagle3.training.attention_forms import FORMS

NAME = "ttt_cost"
SLOW = ("flex", "flex, compiled")  # on CPUs, and each new shape is compiled anew
LENGTHS = (128, 256, 512, 1024, 2048)
STEPS = (1, 2, 3, 4, 5, 6, 7)
_SEED = 0

Row = dict[str, Any]


@dataclass(frozen=True)
class TttCostConfig:
    """What is measured.

    num_heads, num_kv_heads, head_dim: H, Hkv and d of the draft's attention
    steps: which numbers of steps are measured      repeats: of each job
    check_at: length and steps where memory is counted in the second way, too
    slow_up_to: the longest sequence on which the forms in SLOW are measured

    [Ours]
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    steps: tuple[int, ...] = STEPS
    repeats: int = 5
    check_at: tuple[int, int] = (1024, STEPS[-1])
    slow_up_to: int = 256

    @classmethod
    def of(cls, draft: LayerConfig) -> "TttCostConfig":
        """The shapes of this draft. [Ours]"""
        return cls(draft.num_heads, draft.num_kv_heads, draft.head_dim)


def attention_job(
    form: str, config: TttCostConfig, length: int, steps: int, training: bool
) -> Callable[[], None]:
    """All attention of one unrolled sequence, ready to run again and again.

    form: name in FORMS   length: T   steps: S
    training: forward and backward; else forward alone, and nothing is kept
    """
    attend, d = FORMS[form], config.head_dim
    generator = torch.Generator().manual_seed(_SEED)

    def leaf(heads: int) -> Tensor:
        values = torch.randn(1, heads, length, d, generator=generator)
        return values.requires_grad_(training)

    queries = [leaf(config.num_heads) for _ in range(steps)]
    narrow = config.num_kv_heads
    kept = [KeyValue(leaf(narrow), leaf(narrow)) for _ in range(steps)]
    leaves = [*queries, *(tensor for kv in kept for tensor in kv)]
    upstream = torch.randn(1, config.num_heads, length, d, generator=generator)

    def job() -> None:
        with torch.set_grad_enabled(training):
            outputs = [attend(q, kept[: s + 1]) for s, q in enumerate(queries)]
        if training:
            torch.autograd.grad(outputs, leaves, [upstream] * steps)

    return job


def reasons(config: TttCostConfig, forms: Iterable[str] = FORMS) -> Row:
    """Why a form can't run here: form -> {"forward": ..., "training": ...}.

    Each is tried on a short sequence; None means that it runs. [Ours]
    """
    return {
        form: {
            kind: _failure(attention_job(form, config, 16, 2, kind == "training"))
            for kind in ("forward", "training")
        }
        for form in forms
    }


def _failure(job: Callable[[], None]) -> str | None:
    try:
        job()
    except Exception as error:  # whatever a kernel or a compiler says is the result
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def measure_cell(
    config: TttCostConfig, length: int, steps: int, failures: Row
) -> list[Row]:
    """One row for each form, all timed in turns.

    failures: of `reasons`
    A row has form, length, steps, and for forward and training None or seconds (the
    median), quartiles and tokens_per_second; peak_bytes belongs to the kind of pass
    that is named in memory_of, training where it runs. [Ours]
    """
    torch.compiler.reset()  # else the compiler gives up after a few shapes
    jobs = {
        (form, kind): attention_job(form, config, length, steps, kind == "training")
        for form, why in failures.items()
        for kind in ("forward", "training")
        if why[kind] is None
    }
    seconds = interleaved(jobs, config.repeats)
    return [
        {
            "form": form,
            "length": length,
            "steps": steps,
            **{kind: _summary(seconds.get((form, kind)), length) for kind in why},
            **_memory({kind: jobs.get((form, kind)) for kind in why}),
        }
        for form, why in failures.items()
    ]


def _summary(seconds: list[float] | None, length: int) -> Row | None:
    if seconds is None:
        return None
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return {
        "seconds": middle,
        "quartiles": [low, high],
        "tokens_per_second": length / middle,
    }


def _memory(jobs: dict[str, Callable[[], None] | None]) -> Row:
    for kind in ("training", "forward"):
        if jobs[kind] is not None:
            return {"memory_of": kind, "peak_bytes": allocated_peak(jobs[kind])}
    return {"memory_of": None, "peak_bytes": None}


def check_memory(config: TttCostConfig, failures: Row) -> Row:
    """Peak bytes in a fresh process, by form, for those that train.

    Empty where the system doesn't tell. [Ours]
    """
    if not can_see_resident():
        return {}
    length, steps = config.check_at
    return {
        form: resident_peak(attention_job, form, config, length, steps, True)
        for form, why in failures.items()
        if why["training"] is None
    }


def measure(
    config: TttCostConfig,
    folder: str | Path,
    lengths: Sequence[int] = LENGTHS,
    say: Callable[[str], None] = print,
) -> Path:
    """Measure what is not measured yet, and save after every cell.

    folder: of the results; rows there are kept if config and machine are the same, so
        a killed run goes on, and more lengths can be added
    say: told of every cell
    Returns the path of ttt_cost.json. [Ours]
    """
    content = _earlier(config, folder)
    if content is None:
        content = {"config": asdict(config), "failures": reasons(config), "rows": []}
    rows, failures = content["rows"], content["failures"]
    for length in sorted(lengths):
        for steps in config.steps:
            if any((r["length"], r["steps"]) == (length, steps) for r in rows):
                continue
            skipped = SLOW if length > config.slow_up_to else ()
            forms = {f: why for f, why in failures.items() if f not in skipped}
            rows += measure_cell(config, length, steps, forms)
            rows.sort(key=lambda row: (row["length"], row["steps"]))
            write_results(NAME, content, folder, seed=_SEED)
            say(f"{length} tokens, {steps} steps")
    if "resident_bytes" not in content and config.check_at[0] in lengths:
        content["resident_bytes"] = check_memory(config, failures)
    return write_results(NAME, content, folder, seed=_SEED)


def _earlier(config: TttCostConfig, folder: str | Path) -> Row | None:
    """The results in the folder, if settings and machine are the same."""
    try:
        found = read_results(NAME, folder)
    except ValueError:
        return None
    there, here = found.pop("environment"), describe_environment(_SEED)
    del there["date"], here["date"]  # it may go on tomorrow
    same = found["config"] == json.loads(json.dumps(asdict(config)))
    return found if same and there == here else None


def common_length(rows: Iterable[Row], steps: int, up_to: int = 1024) -> int:
    """The longest text, up to a limit, that was measured at this number of steps.

    Raises ValueError where there is none. [Ours]
    """
    found = [r["length"] for r in rows if r["steps"] == steps and r["length"] <= up_to]
    if not found:
        raise ValueError(
            f"no text of up to {up_to} tokens was measured at {steps} steps: measure "
            "one with tools/ttt_cost.py."
        )
    return max(found)


def find(rows: Iterable[Row], form: str, length: int, steps: int) -> Row:
    """The row of a form in a cell.

    Raises ValueError where it was not measured. [Ours]
    """
    for row in rows:
        if (row["form"], row["length"], row["steps"]) == (form, length, steps):
            return row
    raise ValueError(
        f"the form {form!r} was not measured at {length} tokens and {steps} steps: "
        "measure it, or name another cell."
    )

"""The checks that need a GPU, in one go: right answers, graphs, time, batches, memory.

`make gpu-check` runs all parts on one GPU, without a network and without any file: the
models have random weights. Right answers are checked on a small target whose draft is
fitted on the spot, so that tokens are accepted; times are taken at the sizes of
Llama-3.1-8B, where shapes are fixed and a cycle's time does not depend on what is
accepted. Each part is guarded and its result written before the next one starts, so a
fault in one costs that one alone. On a CPU the same code runs at small sizes, with
graphs off, as a test. [Ours]
"""

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eagle3.bench.environment import write_results
from eagle3.bench.gpu_parts import (
    check_answers,
    check_graphs,
    compare_memory,
    describe_device,
    sweep_batches,
    time_cycles,
    time_stages,
)
from eagle3.bench.random_models import LLAMA_8B, SMALL, Sizes

NO_GPU = (
    "there is no CUDA device here: run this on a machine with one, after `make clean` "
    "and `make setup TORCH_BACKEND=auto`; all else in this book runs without."
)


@dataclass(frozen=True)
class Plan:
    """What is checked, and how long that may take.

    device: where          sizes: of the target whose cycles are timed
    dtypes: in which answers are checked, float32 first    answers: how many of each
    context: tokens of each prompt of a timed cycle     cycles: timed in each setting
    batches: of the sweep  copy_bytes: of the copy that measures the memory's speed
    budget: seconds after which no further part starts

    [Ours]
    """

    device: torch.device
    sizes: Sizes
    dtypes: tuple[torch.dtype, ...]
    answers: int
    context: int
    cycles: int
    batches: tuple[int, ...]
    copy_bytes: int
    budget: float

    @property
    def graphs(self) -> bool:
        """Whether there are graphs to check."""
        return self.device.type == "cuda"


def gpu_plan() -> Plan:
    """What `make gpu-check` runs. [Ours]"""
    return Plan(
        device=torch.device("cuda", 0),
        sizes=LLAMA_8B,
        dtypes=(torch.float32, torch.bfloat16, torch.float16),
        answers=12,
        context=512,
        cycles=20,
        batches=(1, 2, 4, 8, 16, 32),
        copy_bytes=1 << 32,
        budget=390.0,
    )


def cpu_plan() -> Plan:
    """The same at sizes that a CPU runs in seconds. [Ours]"""
    return Plan(
        device=torch.device("cpu"),
        sizes=SMALL,
        dtypes=(torch.float32, torch.bfloat16),
        answers=5,
        context=12,
        cycles=3,
        batches=(1, 2),
        copy_bytes=1 << 20,
        budget=float("inf"),
    )


PARTS: Mapping[str, Callable[[Plan], Any]] = {
    "device": describe_device,
    "answers": check_answers,
    "graphs": check_graphs,
    "cycles": time_cycles,
    "stages": time_stages,
    "batches": sweep_batches,
    "memory": compare_memory,
}


def run(plan: Plan, out: Path, name: str = "gpu_check") -> dict[str, Any]:
    """Run all parts; each writes `out`/`name`.json anew with what is there so far.

    Returns part -> {"seconds", and "result", or "error" with what went wrong}. [Ours]
    """
    # Comparisons want all bits of float32, where a GPU might leave some out.
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    started, results = time.perf_counter(), {}
    try:
        for part, check in PARTS.items():
            results[part] = _guarded(check, plan, time.perf_counter() - started)
            _tell(part, results[part])
            write_results(name, {"parts": results}, out, seed=0)
    finally:
        torch.set_float32_matmul_precision(before)
    return results


def _guarded(check: Callable[[Plan], Any], plan: Plan, spent: float) -> dict[str, Any]:
    if spent > plan.budget:
        return {"seconds": 0.0, "error": f"not run: {spent:.0f} s were spent before it"}
    started = time.perf_counter()
    try:
        found = {"result": check(plan)}
    except Exception as error:  # whatever a driver raises: the other parts still run
        words = (str(error).splitlines() or [""])[0][:300]
        found = {"error": f"{type(error).__name__}: {words}"}
    gc.collect()
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()
    return {"seconds": time.perf_counter() - started, **found}


def _tell(part: str, found: Mapping[str, Any]) -> None:
    word = found.get("error", "done")
    print(f"{part:<8} {found['seconds']:6.1f} s  {word}", flush=True)


def failures(results: Mapping[str, Any]) -> list[str]:
    """What went wrong, a sentence each; empty if all is well. [Ours]"""
    found = [
        f"{part}: {entry['error']}"
        for part, entry in results.items()
        if "error" in entry
    ]
    answers = results["answers"].get("result", [])
    for row in answers:
        if row["defects"] or not row["accepted"]:
            found.append(
                f"answers in {row['dtype']} with {row['growth']}: {row['defects']} "
                f"defects, {row['accepted']} tokens accepted"
            )
    for row in results["graphs"].get("result", []):
        if row["defects"]:
            found.append(f"graphs with {row['growth']}: {row['defects']} defects")
    return found


def main() -> None:
    """Check this machine's GPU: python -m eagle3.bench.gpu_check [FOLDER].

    Raises SystemExit with a sentence where there is no GPU, or what went wrong.
    """
    if not torch.cuda.is_available():
        raise SystemExit(NO_GPU)
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "figures/results")
    wrong = failures(run(gpu_plan(), out))
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"all checks passed; written: {out / 'gpu_check.json'}")


if __name__ == "__main__":
    main()

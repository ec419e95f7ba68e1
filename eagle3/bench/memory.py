"""How much memory a job takes at its peak, counted in two ways.

The allocator's own count is exact and repeatable: every block that torch asks for and
gives back during the job, those inside its kernels included. What the operating system
says of a fresh process depends on the machine, but it sees everything, so it is there
to check the first. [Ours]
"""

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_STATUS = Path("/proc/self/status")


def allocated_peak(job: Callable[[], object]) -> int:
    """Bytes that torch had allocated for the job on the CPU at the worst moment.

    What was there before the job does not count. [Ours]
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        job()
    events = profiler.profiler.kineto_results.events()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        peak = max(peak, held)
    return peak


def can_see_resident() -> bool:
    """Whether this system tells the largest size of a process, as Linux does. [Ours]"""
    return _STATUS.exists()


def resident_peak(make_job: Callable[..., Callable[[], object]], *settings: Any) -> int:
    """Bytes by which a fresh process grew while it ran the job.

    make_job: a function of a module; called with the settings, it returns the job.
        What it allocates itself does not count, nor what torch needs in any case.
    Raises FileNotFoundError where `can_see_resident` is false, and BrokenProcessPool
    when the process was killed, as by a lack of memory. [Ours]
    """
    fresh = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        work = pool.submit(_growth, torch.get_num_threads(), make_job, *settings)
        return work.result()


def _growth(num_threads: int, make_job: Callable[..., object], *settings) -> int:
    torch.set_num_threads(num_threads)
    _touch_library()
    job = make_job(*settings)
    before = _size("VmRSS")
    job()
    return _size("VmHWM") - before


def _touch_library() -> None:
    """Wake up threads and kernels, which take memory of their own."""
    x = torch.ones(256, 256, requires_grad=True)
    (x @ x).softmax(-1).sum().backward()


def _size(which: str) -> int:
    """Of this process in bytes: "VmRSS" now, "VmHWM" at its largest so far."""
    text = _STATUS.read_text(encoding="utf-8")
    return 1024 * int(re.search(rf"{which}:\s+(\d+) kB", text).group(1))

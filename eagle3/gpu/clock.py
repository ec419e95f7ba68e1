"""Where the time of a cycle goes, step by step.

On a GPU a step returns before its kernels have run, so a step's own time is known only
if somebody waits for the device behind it. A profile does, serving does not. [Ours]
"""

import time
from typing import NamedTuple

import torch


class Lap(NamedTuple):
    """One step of one cycle; start and end are in seconds, on one clock for all."""

    cycle: int
    step: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Clock:
    """Charges the time between laps to steps.

    seconds: sums by step, added to   cycle: its number
    laps: None, or a list that takes every lap; then `device` is waited for at each

    [Ours]
    """

    def __init__(
        self,
        seconds: dict[str, float],
        cycle: int,
        laps: list[Lap] | None,
        device: torch.device,
    ) -> None:
        self.seconds, self.cycle, self.laps = seconds, cycle, laps
        self.waits = laps is not None and device.type == "cuda"
        self.last = time.perf_counter()

    def lap(self, step: str) -> None:
        """A step has ended."""
        if self.waits:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self.last
        if self.laps is not None:
            self.laps.append(Lap(self.cycle, step, self.last, now))
        self.last = now

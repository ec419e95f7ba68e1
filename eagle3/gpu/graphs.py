"""CUDA graphs: record the kernels of a phase once, launch them all with one call.

A cycle is hundreds of small kernels, and Python needs longer to launch them than the
GPU to run them. A graph launches them as one. It repeats the same kernels on the same
memory, so a phase may be recorded only if its shapes are fixed, its inputs and outputs
stay where they are, and it asks nothing of the device. [Ours; Code: PyTorch's
torch.cuda.graph]
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch

WARM_UPS = 2  # libraries choose kernels and take memory at first use


class Phases:
    """Runs phases: recorded once for each key if graphs are on, as they are if not.

    enabled: whether to record
    save: notes all that a phase reads and changes, and returns what puts it back: a
        warm-up runs the phase for nothing

    [Ours]
    """

    def __init__(self, enabled: bool, save: Callable[[], Callable[[], None]]) -> None:
        self.enabled, self.save = enabled, save
        self._recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}
        # One memory pool for all graphs: they never run at once, and what a phase
        # returns is kept here and so not given to a graph that is recorded later.
        self._pool = torch.cuda.graph_pool_handle() if enabled else None

    def run(self, key: Hashable, phase: Callable[[], Any]) -> Any:
        """Run a phase and return what it returned when it was recorded.

        key: names the phase and all that its shapes depend on. A phase that reads
        another's output has that one's key, so it reads the same memory each time.
        Raises RuntimeError where the phase can't be recorded.
        """
        if not self.enabled:
            return phase()
        if key not in self._recorded:
            self._recorded[key] = self._record(key, phase)
        graph, output = self._recorded[key]
        graph.replay()
        return output

    def _record(
        self, key: Hashable, phase: Callable[[], Any]
    ) -> tuple[torch.cuda.CUDAGraph, Any]:
        self._warm_up(phase)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                output = phase()
        except RuntimeError as error:
            raise RuntimeError(
                f"the phase {key} can't be recorded as a CUDA graph "
                f"({str(error).splitlines()[0][:100]}): make the engine with "
                "graphs=False."
            ) from error
        return graph, output

    def _warm_up(self, phase: Callable[[], Any]) -> None:
        put_back = self.save()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                phase()
                put_back()
        torch.cuda.current_stream().wait_stream(side)


def use_graphs(wanted: bool | None, device: torch.device) -> bool:
    """Whether to record graphs: where the device can, unless told otherwise.

    Raises ValueError where they are wanted and can't be had. [Ours]
    """
    if wanted and device.type != "cuda":
        raise ValueError(
            f"CUDA graphs were asked for and the target is on '{device}': put it on a "
            "CUDA device, or leave graphs off; the answers are the same."
        )
    return device.type == "cuda" if wanted is None else wanted

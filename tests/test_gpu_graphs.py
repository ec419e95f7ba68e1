"""Graphs, on a machine that has none: what a recording would do, done by a tape.

A CUDA graph repeats the same kernels on the same memory, with every number that Python
had at hand while it was recorded. The tape does that on a CPU: it writes down each
operation with its tensors and plays them again, with outputs into the same tensors. If
a phase looked at anything that Python holds, or read memory that moves, the answers of
a taped engine would go wrong.
"""

from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch
from helpers import request, toy, trained_draft
from test_gpu_engine import GROWTHS, drafter, mixed_requests, teach, told
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eagle3.gpu import BatchEngine, Slots
from eagle3.gpu.graphs import Phases, use_graphs
from eagle3.gpu.memory import memory_ledger


class Tape(TorchDispatchMode):
    """Writes operations down; `play` repeats them on the same tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Callable, tuple, dict, list[Tensor]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        output = function(*args, **kwargs)
        memory = {storage_of(x) for x in tensors_in((args, kwargs))}
        new = [x if storage_of(x) not in memory else None for x in tensors_in(output)]
        self.steps.append((function, args, kwargs, new))
        return output

    def play(self) -> None:
        for function, args, kwargs, new in self.steps:
            again = tensors_in(function(*args, **kwargs))
            for old, fresh in zip(new, again, strict=True):
                if old is not None:  # else a view, or written in place
                    old.copy_(fresh)


def tensors_in(things: Any) -> list[Tensor]:
    return [x for x in tree_leaves(things) if isinstance(x, Tensor)]


def storage_of(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def saving(*tensors: Tensor) -> Callable[[], Callable[[], None]]:
    """Saves these tensors, as an engine saves its state."""

    def save() -> Callable[[], None]:
        before = [x.clone() for x in tensors]
        return lambda: [x.copy_(y) for x, y in zip(tensors, before, strict=True)]

    return save


class TapedPhases(Phases):
    """Phases that record on a tape. Recording computes, unlike a graph's."""

    def __init__(self, save: Callable[[], Callable[[], None]]) -> None:
        super().__init__(False, save)
        self.tapes: dict[Hashable, tuple[Tape, Any]] = {}
        self.played = 0

    def run(self, key, phase):
        if key not in self.tapes:
            put_back, tape = self.save(), Tape()
            with tape:
                output = phase()
            put_back()
            self.tapes[key] = tape, output
        tape, output = self.tapes[key]
        tape.play()
        self.played += 1
        return output


@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "static", "dynamic"])
def test_recorded_once_and_played_again_the_answers_are_the_same(growth):
    """Greedy and sampled, with requests that come, go and differ in length."""
    engine = BatchEngine(toy(), drafter(growth), Slots(3, 64))
    engine.phases = TapedPhases(engine.phases.save)
    requests = [*mixed_requests(21, 6), *mixed_requests(22, 4, 1.0)]
    for one, answer in zip(requests, engine.run(requests), strict=True):
        assert told(answer) == teach(one, growth)
    phases = 2 if GROWTHS[growth] is None else 3
    assert len(engine.phases.tapes) == 2 * phases  # greedy cycles, and sampled ones
    assert engine.phases.played == engine.num_cycles * phases > 10


def test_the_ledger_counts_what_recorded_passes_keep():
    """Three spans in 384 columns; the outputs of the first stand elsewhere."""
    slots = Slots(1, 300)
    engine = BatchEngine(toy(), drafter("chain 3"), slots)
    engine.phases = TapedPhases(engine.phases.save)
    engine.run([request([7] * count, 5) for count in (20, 180, 290)])
    kept = {span: output for (_, span, _), (_, (_, output)) in of_target(engine.phases)}
    assert sorted(kept) == [128, 256, 384]
    draft = trained_draft().config
    ledger = memory_ledger(toy().config, draft, GROWTHS["chain 3"], slots)
    first = kept[128]
    counted = first.logits.nbytes + first.features.nbytes
    whole = sum(tensor.nbytes for out in kept.values() for tensor in vars(out).values())
    assert ledger.graphs == whole - counted


def of_target(phases: TapedPhases) -> list[tuple[Any, Any]]:
    return [item for item in phases.tapes.items() if item[0][0] == "target"]


def test_a_phase_that_looks_at_python_is_found_out():
    """What the tape is for: a number of this cycle would be repeated in the next."""
    state, cycle = torch.zeros(1), [0]
    phases = TapedPhases(saving(state))
    for _ in range(3):
        cycle[0] += 1
        phases.run("adds", lambda: state.add_(cycle[0]))
    assert float(state) == 3.0  # 1 + 1 + 1, and not 1 + 2 + 3


# Graphs, where there are none


def test_graphs_are_off_where_there_is_no_gpu():
    cpu = torch.device("cpu")
    assert use_graphs(None, cpu) is False
    assert use_graphs(False, torch.device("cuda")) is False
    assert use_graphs(None, torch.device("cuda")) is True
    with pytest.raises(ValueError, match="the target is on 'cpu'"):
        use_graphs(True, cpu)


class FakeCuda:
    """Stands in for torch.cuda: records which calls come in which order."""

    def __init__(self, patch, fails: bool = False) -> None:
        self.calls: list[str] = []
        outer = self

        class Graph:
            def replay(self):
                outer.calls.append("replay")

        class Context:
            def __init__(self, *things, **_options):
                self.things = things

            def __enter__(self):
                if self.things and isinstance(self.things[0], Graph):
                    outer.calls.append("record")
                    if fails:
                        raise RuntimeError("operation not permitted\nmore lines")

            def __exit__(self, *_error):
                return False

        class Stream:
            def wait_stream(self, _other):
                pass

        for name, thing in (
            ("CUDAGraph", Graph),
            ("graph", Context),
            ("Stream", Stream),
            ("stream", Context),
            ("current_stream", Stream),
            ("graph_pool_handle", object),
        ):
            patch.setattr(torch.cuda, name, thing)


def test_a_phase_is_warmed_up_recorded_once_and_then_replayed(monkeypatch):
    """The warm-up changes the state and puts it back; each key has its own graph."""
    fake = FakeCuda(monkeypatch)
    state, seen = torch.zeros(1), []

    def phase():
        seen.append(float(state))
        state.add_(1)
        return f"output {len(seen)}"

    phases = Phases(True, saving(state))
    assert phases.run("a", phase) == "output 3"
    assert seen == [0.0, 0.0, 0.0]  # two warm-ups and the recording
    assert phases.run("a", phase) == "output 3"
    assert len(seen) == 3 and fake.calls == ["record", "replay", "replay"]
    phases.run("b", phase)
    assert fake.calls[-2:] == ["record", "replay"] and len(seen) == 6
    for span in (128, 256):  # other shapes: another graph
        phases.run(("a", span), phase)
    assert fake.calls.count("record") == 4 and len(seen) == 12


def test_a_phase_that_cant_be_recorded_says_so(monkeypatch):
    FakeCuda(monkeypatch, fails=True)
    with pytest.raises(RuntimeError, match=r"target.*not permitted.*graphs=False"):
        Phases(True, saving()).run(("target", 128, None), lambda: None)

"""A cycle asks the device nothing: between its start and its one copy, kernels alone.

On a GPU each question makes the host wait for all that was launched, and a recorded
graph can't hold one. Here, on a CPU, asking is forbidden while a phase runs: the
methods of a tensor that hand a number to Python raise, and so do the operations whose
output's shape depends on data, and those that bring numbers from the host.
"""

from contextlib import contextmanager

import helpers
import pytest
import torch
from helpers import PROMPT, request, toy
from test_gpu_engine import GROWTHS, drafter
from torch.utils._python_dispatch import TorchDispatchMode

from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.gpu import BatchEngine, Slots
from eagle3.sampling import SamplingParams
from eagle3.target import Target

ASKING = (
    *("item", "tolist", "numpy", "cpu", "nonzero", "__array__"),
    *("__bool__", "__int__", "__float__", "__index__", "__complex__"),
)
BRINGING = ("tensor", "as_tensor", "from_numpy", "asarray")
DATA_SHAPED = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select"),
    *("unique", "_unique2", "unique_consecutive", "bincount", "argwhere", "where"),
    *("multinomial", "lift_fresh", "histc"),
}
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index"}


class Asked(AssertionError):
    """A phase asked the device."""


class Watch(TorchDispatchMode):
    """Raises at operations that make a GPU wait for its host or the other way."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        several = name == "where" and len(args) == 3  # the form that chooses
        if name in DATA_SHAPED and not several:
            raise Asked(name)
        if name == "repeat_interleave" and isinstance(args[-1], torch.Tensor):
            raise Asked(name)
        if name in INDEXING and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        ):
            raise Asked(f"{name} with a mask")
        return function(*args, **(kwargs or {}))


@contextmanager
def nothing_asked():
    def refuse(name):
        def asked(*_args, **_kwargs):
            raise Asked(name)

        return asked

    with pytest.MonkeyPatch.context() as patch:
        for name in ASKING:
            patch.setattr(torch.Tensor, name, refuse(name))
        for name in BRINGING:
            patch.setattr(torch, name, refuse(name))
        with Watch():
            yield


def watched(engine: BatchEngine) -> list[str]:
    """Watch an engine's phases; returns the list in which they are counted."""
    seen, run = [], engine.phases.run

    def watched_run(key, phase):
        seen.append(key[0])
        with nothing_asked():
            return run(key, phase)

    engine.phases.run = watched_run
    return seen


SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(1.0, seed=1),
    "filtered": SamplingParams(0.8, top_k=9, top_p=0.9, seed=2),
}


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "static", "dynamic"])
def test_no_phase_asks_the_device(growth, sampling):
    engine = BatchEngine(toy(), drafter(growth), Slots(2, 64))
    seen = watched(engine)
    one = request(PROMPT, 12, sampling=SAMPLINGS[sampling])
    engine.run([one, request((3, 4, 5), 20), one])
    phases = {"target", "accept"}
    if growth != "vanilla":
        phases.add("draft")
    assert set(seen) == phases
    assert len(seen) == len(phases) * engine.num_cycles


def test_nor_does_a_target_that_runs_through_the_librarys_modules():
    target = Target(helpers.library_toy(), lean=False)
    draft = EagleDrafter(target, helpers.trained_draft(), GROWTHS["dynamic"])
    engine = BatchEngine(target, draft, Slots(2, 64))
    assert watched(engine) == []
    engine.run([request(PROMPT, 12), request((3, 4, 5), 20)])


@pytest.mark.parametrize("growth", ["chain 3", "dynamic"])
def test_a_whole_cycle_reads_one_tensor_once(growth, monkeypatch):
    """Outside of the phases, too: the report is read, and nothing else."""
    engine = BatchEngine(toy(), drafter(growth), Slots(2, 64))
    for prompt, seed in ((PROMPT, 1), ((3, 4, 5), 2)):
        engine.submit(request(prompt, 40, sampling=SamplingParams(1.0, seed=seed)))
    engine.step()  # the prompts are in
    read = []
    for name in ASKING:
        real = getattr(torch.Tensor, name)

        def spy(self, *args, name=name, real=real, **others):
            read.append((name, self.data_ptr()))
            return real(self, *args, **others)

        monkeypatch.setattr(torch.Tensor, name, spy)
    for _ in range(4):
        read.clear()
        assert engine.step() == []
        assert read == [("tolist", engine.report.data_ptr())]


def test_the_report_is_small():
    """Two numbers and D + 1 tokens for each slot."""
    engine = BatchEngine(toy(), drafter("dynamic"), Slots(3, 64))
    assert tuple(engine.report.shape) == (3, 2 + 4 + 1)
    vanilla = BatchEngine(toy(), VanillaDrafter(), Slots(3, 64))
    assert tuple(vanilla.report.shape) == (3, 2 + 1)


@pytest.mark.parametrize(
    "question",
    [
        lambda x: bool(x[0] > 0),
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: [0, 1][x[0].long()],
        lambda x: int(x[0]),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.where(x > 0),
        lambda x: torch.tensor([1.0]),
        lambda x: x.masked_select(x > 0),
        lambda x: torch.equal(x, x),
    ],
)
def test_the_watch_notices(question):
    x = torch.ones(3)
    question(x)  # which is otherwise allowed
    with pytest.raises(Asked), nothing_asked():
        question(x)

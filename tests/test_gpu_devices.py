"""Every tensor of a cycle is where it must be: on a device that isn't the host's.

PyTorch's meta device has shapes and no numbers. With models there, the engine runs
"on a device" without one: an operation that asks for a number raises. One that mixes
devices would raise on a GPU; the meta device lets some of them pass, so every operation
is looked at. On a CPU alone neither would show.
"""

import copy

import helpers
import pytest
import torch
from helpers import request, trained_draft
from test_gpu_engine import GROWTHS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.gpu import BatchEngine, Slots
from eagle3.sampling import SamplingParams
from eagle3.target import Target

META = torch.device("meta")


class OneDevice(TorchDispatchMode):
    """Raises at an operation on tensors of two devices; single numbers may mix."""

    COPIES = ("_to_copy", "copy_")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function.overloadpacket.__name__ not in self.COPIES:
            found = [x for x in tree_leaves((args, kwargs)) if torch.is_tensor(x)]
            places = {x.device for x in found if x.dim()}
            if len(places) > 1:
                raise RuntimeError(f"{function} on {places}")
        return function(*args, **kwargs)


def pretend(monkeypatch) -> None:
    """What the host does with a real device: read from it, and draw on it."""

    def tolist(tensor):
        if tensor.dim() == 1:  # of a prompt: finite, and the first token
            return [1, 5]
        rows, columns = tensor.shape
        return [[0, 1, 5, *[0] * (columns - 3)]] * rows  # nothing accepted

    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    for name in ("uniform_", "exponential_"):
        monkeypatch.setattr(torch.Tensor, name, lambda tensor, generator: tensor)
    generator = torch.Generator()
    monkeypatch.setattr(torch, "Generator", lambda *_device: generator)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "static", "dynamic"])
def test_no_operation_mixes_devices(growth, temperature, monkeypatch):
    target = Target(copy.deepcopy(helpers.library_toy()).to(META))
    assert target.device == META and not target.is_lean
    drafter = VanillaDrafter()
    if GROWTHS[growth] is not None:
        drafter = EagleDrafter(target, trained_draft(), GROWTHS[growth])
    engine = BatchEngine(target, drafter, Slots(2, 64))
    engine.report = engine.report.to(META)  # the one thing that comes to the host
    pretend(monkeypatch)
    sampling = SamplingParams(temperature, 9, 0.9, seed=1)
    for prompt in ((5, 6, 7), (1, 2)):
        engine.submit(request(prompt, 4, sampling=sampling))
    answers = []
    with OneDevice():
        while not engine.is_idle:
            answers += engine.step()
    assert [answer.token_ids for answer in answers] == [(5,) * 4] * 2
    assert engine.num_cycles == 3


@pytest.mark.parametrize(
    "mistake",
    [
        lambda there, here: there + here,
        lambda there, here: there.index_copy_(0, here.long(), there),
        lambda there, here: there.gather(0, here.long()),
        lambda there, here: bool(there[0] > 0),
        lambda there, here: there[there > 0],
    ],
)
def test_mixed_devices_and_questions_are_noticed(mistake):
    there, here = torch.ones(2, device=META), torch.ones(2)
    with OneDevice(), pytest.raises((RuntimeError, NotImplementedError)):
        mistake(there, here)

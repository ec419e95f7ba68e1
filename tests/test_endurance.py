"""Nothing grows: 2,000 cycles in one process hold as much memory as the first ones.

Counted are the tensors that Python can still reach, and the bytes behind them. Unlike
the size of the process, that is exact: one tensor more for each request is noticed.
"""

import gc
import random

import helpers
import torch
from helpers import VOCAB, request, toy

from eagle3.drafters import EagleDrafter
from eagle3.engine import generate
from eagle3.gpu import BatchEngine, Slots
from eagle3.growth import chain


def held() -> tuple[int, int]:
    """How many tensors there are, and the bytes of all memory that they share."""
    gc.collect()
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [thing for thing in gc.get_objects() if type(thing) in kinds]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return len(tensors), sum(storage.nbytes() for storage in storages.values())


def is_flat(seen: list[tuple[int, int]]) -> bool:
    """Whether request after request held as much; the first one may fill tables."""
    assert len(seen) > 5
    return len(set(seen[1:])) == 1


def test_a_tensor_more_for_each_request_is_not_flat():
    assert is_flat([(3, 9), *[(88, 700)] * 6])
    assert not is_flat([(3, 9), *((88 + n, 700) for n in range(6))])
    assert not is_flat([(3, 9), *((88, 700 + n) for n in range(6))])


def test_the_count_sees_one_tensor():
    count, size = held()
    kept = torch.zeros(1000)
    assert held() == (count + 1, size + kept.nbytes)


def test_memory_is_flat_over_2_000_cycles():
    dice = random.Random(1)
    eagle = EagleDrafter(toy(), helpers.trained_draft(), chain(2))
    cycles, seen = 0, []
    while cycles < 2000:
        prompt = [dice.randrange(VOCAB) for _ in range(10)]
        result = generate(toy(), eagle, prompt, max_new_tokens=240)
        cycles += result.target_passes
        del result  # its trace is the caller's
        eagle.start(8)  # and a drafter keeps its last request until the next
        seen.append(held())
    assert is_flat(seen)


def test_a_batch_engine_takes_no_more_memory_than_at_first():
    dice = random.Random(2)
    eagle = EagleDrafter(toy(), helpers.trained_draft(), chain(2))
    engine, seen = BatchEngine(toy(), eagle, Slots(4, 128)), []
    for _ in range(8):
        lengths = [dice.randint(1, 40) for _ in range(6)]
        engine.run([request(range(n), 20) for n in lengths])
        seen.append(held())
    assert is_flat(seen)

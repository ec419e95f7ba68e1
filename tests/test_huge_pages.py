"""Large weights in pages of 2 MB: the right value is the tensor itself, copied."""

from itertools import pairwise

import pytest
import torch

from eagle3 import huge_pages
from eagle3.huge_pages import in_huge_pages


@pytest.fixture(autouse=True)
def small_regions(monkeypatch):
    """Regions of 4 MB, so that three tensors don't fit into one."""
    monkeypatch.setattr(huge_pages, "_REGION", 4 << 20)
    monkeypatch.setattr(huge_pages, "_region", torch.empty(0))


def values(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def test_copies_are_equal_contiguous_and_their_own():
    originals = [values(400_001, seed).view(1, -1) for seed in range(5)]
    copies = [in_huge_pages(each) for each in originals]
    for original, copy in zip(originals, copies, strict=True):
        assert torch.equal(original, copy) and copy.is_contiguous()
    spans = sorted((c.data_ptr(), c.data_ptr() + 4 * c.numel()) for c in copies)
    for (_, end), (start, _) in pairwise(spans):
        assert end <= start  # no two share memory
    assert all(start % 64 == 0 for start, _ in spans)  # whole cache lines


def test_a_transposed_tensor_is_laid_out_anew():
    tall = values(600_000).view(600, 1000).T
    copy = in_huge_pages(tall)
    assert torch.equal(copy, tall) and copy.is_contiguous()


def test_a_tensor_larger_than_a_region_gets_one_of_its_own():
    large = values(3 << 20)  # 12 MB
    assert torch.equal(in_huge_pages(large), large)


def test_small_tensors_stay_in_usual_memory():
    in_huge_pages(values(10))
    assert len(huge_pages._region) == 0


def test_without_large_pages_the_copy_is_a_usual_one(monkeypatch):
    monkeypatch.delattr(huge_pages.mmap, "MADV_HUGEPAGE", raising=False)
    large = values(1 << 20)
    assert torch.equal(in_huge_pages(large), large)
    assert len(huge_pages._region) == 0

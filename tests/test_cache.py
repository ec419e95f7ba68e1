"""The key/value cache by itself: what is visible, and what is refused.

Right values: a cache that concatenates, which is the definition.
"""

import pytest
import torch

from eagle3.cache import KVCache

B, H, D = 2, 3, 4


def block(rows, seed, batch=B):
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(batch, H, rows, D, generator=generator)
    return keys, torch.randn(batch, H, rows, D + 1, generator=generator)


def put(cache, rows, seed):
    """Write one block into both layers, count it; what layer 0 and 1 see."""
    seen = []
    for layer in (0, 1):
        keys, values = block(rows, 10 * seed + layer)
        seen.append(cache.write(layer, keys, values))
    cache.advance(rows)
    return seen


def test_it_shows_what_concatenation_would():
    cache, history = KVCache(2, 12), [([], []), ([], [])]
    generator = torch.Generator().manual_seed(0)
    for seed in range(8):
        rows = int(torch.randint(1, 4, (), generator=generator))
        seen = put(cache, rows, seed)
        for layer, (keys, values) in enumerate(seen):
            for part, (found, new) in enumerate(
                zip((keys, values), block(rows, 10 * seed + layer), strict=True)
            ):
                history[layer][part].append(new)
                assert torch.equal(found, torch.cat(history[layer][part], dim=2))
        cache.rollback(rows - 1)  # keep one row of each block
        for parts in history:
            for part in parts:
                part[-1] = part[-1][:, :, :1]
    assert cache.length == 8


def test_a_block_does_not_count_before_advance():
    cache = KVCache(1, 5)
    cache.write(0, *block(2, 1))
    keys, _ = cache.write(0, *block(3, 2))
    assert keys.shape[2] == 3  # the first block was never counted
    assert cache.length == 0


def test_nothing_is_copied_or_allocated_again():
    cache = KVCache(2, 12)
    assert cache.keys == cache.values == [None, None]
    put(cache, 3, 0)
    places = [tensor.data_ptr() for tensor in (*cache.keys, *cache.values)]
    (keys, values), _ = put(cache, 4, 1)
    assert [t.data_ptr() for t in (*cache.keys, *cache.values)] == places
    assert keys.data_ptr() == places[0]
    assert values.data_ptr() == places[2]
    assert cache.keys[0].shape == (B, H, 12, D)
    assert cache.values[0].shape == (B, H, 12, D + 1)


def test_it_takes_dtype_from_the_first_block():
    cache = KVCache(1, 4)
    keys, _ = cache.write(0, *(tensor.bfloat16() for tensor in block(2, 0)))
    assert keys.dtype == torch.bfloat16


def test_select_keeps_rows_in_the_order_asked_for():
    cache = KVCache(2, 6)
    put(cache, 2, 0)
    cache.select(torch.tensor([1, 1, 0]))
    assert cache.length == 2
    for layer in (0, 1):
        keys, values = block(2, layer)
        new_keys, new_values = block(1, 5, batch=3)
        seen_keys, seen_values = cache.write(layer, new_keys, new_values)
        assert torch.equal(seen_keys, torch.cat([keys[[1, 1, 0]], new_keys], 2))
        assert torch.equal(seen_values, torch.cat([values[[1, 1, 0]], new_values], 2))


def test_select_of_an_empty_cache_does_nothing():
    cache = KVCache(2, 6)
    cache.select(torch.tensor([0]))
    assert cache.keys == [None, None]


def test_a_full_cache_is_refused_and_left_as_it_was():
    cache = KVCache(2, 5)
    put(cache, 4, 0)
    before = [tensor.clone() for tensor in (*cache.keys, *cache.values)]
    with pytest.raises(ValueError, match="holds 5 positions and was asked for 6: cre"):
        cache.write(0, *block(2, 9))
    with pytest.raises(ValueError, match="larger max_length"):
        cache.require_room(2)
    cache.require_room(1)
    assert cache.length == 4
    after = (*cache.keys, *cache.values)
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old[:, :, :4], new[:, :, :4])


@pytest.mark.parametrize("batch", [1, 3])
def test_another_batch_size_is_refused(batch):
    cache = KVCache(2, 5)
    put(cache, 2, 0)
    with pytest.raises(ValueError, match=f"batch of 2 and was given {batch}"):
        cache.write(0, *block(1, 9, batch=batch))


@pytest.mark.parametrize("count", [-1, 3])
def test_more_than_there_is_cannot_be_forgotten(count):
    cache = KVCache(2, 5)
    put(cache, 2, 0)
    with pytest.raises(ValueError, match=f"{count} of 2 cached.*roll back 0 to 2"):
        cache.rollback(count)
    assert cache.length == 2
    cache.rollback(0)
    cache.rollback(2)
    assert cache.length == 0


@pytest.mark.parametrize(
    "rows", [[], [0], [0, 1, 2], [2], [0, 3], [1, 2, 4], [0, 1, 2, 3, 4]]
)
def test_keep_closes_up_the_rows_and_forgets_the_others(rows):
    cache = KVCache(2, 12)
    put(cache, 3, 0)
    put(cache, 5, 1)
    cache.keep(3, rows)
    assert cache.length == 3 + len(rows)
    seen = put(cache, 2, 2)
    for layer, found in enumerate(seen):
        for part in (0, 1):
            old, tree, new = (block(n, 10 * s + layer)[part] for n, s in PUT)
            wanted = torch.cat([old, tree[:, :, rows], new], dim=2)
            assert torch.equal(found[part], wanted)


PUT = ((3, 0), (5, 1), (2, 2))  # rows and seed of each block above


@pytest.mark.parametrize(
    ("start", "rows"),
    [(3, [5]), (3, [1, 1]), (3, [2, 1]), (3, [-1]), (9, []), (-1, [2]), (0, [8])],
)
def test_rows_that_are_not_ascending_cached_ones_cannot_be_kept(start, rows):
    cache = KVCache(2, 12)
    put(cache, 3, 0)
    put(cache, 5, 1)
    before = [tensor.clone() for tensor in (*cache.keys, *cache.values)]
    with pytest.raises(ValueError, match=r"can't be kept of 8 cached .*: name ascend"):
        cache.keep(start, rows)
    assert cache.length == 8
    for old, new in zip(before, (*cache.keys, *cache.values), strict=True):
        assert torch.equal(old[:, :, :8], new[:, :, :8])

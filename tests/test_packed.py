"""Packed linear layers. Right values: the stock `nn.Linear` with the same weights."""

import gc
import weakref

import pytest
import torch
from torch import nn

from eagle3 import packed
from eagle3.packed import PackedLinear, linear_from, pack_linear_layers

needs_mkl = pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="this PyTorch has no MKL"
)

SIZES = [(1, 1), (1, 576), (3, 5), (37, 53), (100, 7), (64, 64), (192, 577), (48, 1536)]


def linear(in_features, out_features, bias=True, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(in_features, out_features, bias=bias).requires_grad_(False)


def rows(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(found, right):
    torch.testing.assert_close(found, right, atol=1e-4, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("out_features", "in_features"), SIZES)
def test_it_equals_the_stock_layer_for_1_to_16_rows(out_features, in_features, bias):
    stock = linear(in_features, out_features, bias)
    layer = PackedLinear(stock)
    for count in range(1, 17):
        x = rows(count, in_features, seed=count)
        close(layer(x), stock(x))


@pytest.mark.parametrize(
    "x",
    [rows(37), rows(2, 3, 37), rows(300, 37), rows(0, 37)],
    ids=["one vector", "batch", "many rows", "no rows"],
)
def test_any_leading_shape_will_do(x):
    stock = linear(37, 53)
    found = PackedLinear(stock)(x)
    assert found.shape == (*x.shape[:-1], 53)
    close(found, stock(x))


def test_strips_side_by_side_are_the_outputs():
    stock, x = linear(37, 53, bias=False), rows(2, 4, 37)
    strips = PackedLinear(stock, strip=8).strips(x)
    assert strips.shape == (7, 2 * 4, 8)  # 53 outputs and 3 of zeros
    right = torch.nn.functional.pad(stock(x), (0, 3)).flatten(0, 1)
    for number, strip in enumerate(strips):
        close(strip, right[..., 8 * number : 8 * number + 8])


@pytest.mark.parametrize(
    "x",
    [
        rows(5, 74)[:, ::2],
        rows(37, 5).T,
        rows(2, 9, 37)[:, 2:4],
        rows(1, 37).expand(4, -1),
    ],
    ids=["every other", "transposed", "slice", "expanded"],
)
def test_the_input_need_not_be_contiguous(x):
    stock = linear(37, 53)
    close(PackedLinear(stock)(x), stock(x))


def network(dtype=torch.float32):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = linear(6, 10, seed=2), linear(10, 6, False, seed=3)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))

    return nn.Sequential(linear(4, 6), Block(), nn.Identity(), Block()).to(dtype)


@needs_mkl
def test_every_linear_layer_of_a_module_is_replaced():
    module, x = network(), rows(3, 4)
    right = module(x)
    assert pack_linear_layers(module) == 5
    kinds = [type(part) for part in module.modules()]
    assert kinds.count(PackedLinear) == 5
    assert nn.Linear not in kinds
    close(module(x), right)
    assert pack_linear_layers(module) == 0  # a second time there is nothing to do


def test_other_dtypes_and_subclasses_stay():
    class Special(nn.Linear):
        pass

    module = nn.Sequential(network(torch.bfloat16), Special(6, 6), nn.Bilinear(2, 2, 2))
    before = [type(part) for part in module.modules()]
    assert pack_linear_layers(module) == 0
    assert [type(part) for part in module.modules()] == before


@needs_mkl
def test_the_first_weight_is_freed_layer_by_layer(monkeypatch):
    """Never are more than one layer's weights held twice."""
    module = network()
    weights = [
        weakref.ref(part.weight)
        for part in module.modules()
        if isinstance(part, nn.Linear)
    ]
    alive = []

    class Counting(PackedLinear):
        def __init__(self, linear):
            super().__init__(linear)
            alive.append(sum(weight() is not None for weight in weights))

    monkeypatch.setattr(packed, "PackedLinear", Counting)
    pack_linear_layers(module)
    gc.collect()
    # Each packing finds at most its own weight and those to come.
    assert all(
        found <= right for found, right in zip(alive, (5, 4, 3, 2, 1), strict=True)
    )
    assert [weight() for weight in weights] == [None] * 5


# ---- where packing is not to be had


def without_mkl(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)


def test_without_mkl_the_module_stays_and_a_note_is_given(monkeypatch):
    without_mkl(monkeypatch)
    module, x = network(), rows(3, 4)
    right, parts = module(x), list(module.modules())
    with pytest.warns(UserWarning, match="no MKL"):
        assert pack_linear_layers(module) == 0
    assert list(module.modules()) == parts
    assert torch.equal(module(x), right)


def test_no_note_where_there_is_nothing_to_pack(monkeypatch, recwarn):
    without_mkl(monkeypatch)
    assert pack_linear_layers(network(torch.bfloat16)) == 0
    assert not recwarn.list


# ---- what it refuses or leaves alone


def test_a_gradient_is_refused_rather_than_lost():
    layer = PackedLinear(linear(4, 3))
    x = rows(2, 4).requires_grad_()
    with pytest.raises(RuntimeError, match="no gradient: train the unpacked module"):
        layer(x)
    with torch.no_grad():
        assert layer(x).shape == (2, 3)


def test_packing_draws_no_random_number():
    before = torch.get_rng_state()
    PackedLinear(linear_from(rows(3, 4)))
    assert torch.equal(torch.get_rng_state(), before)


def test_linear_from_is_a_frozen_layer_around_the_weight():
    weight, x = rows(3, 4), rows(2, 4, seed=2)
    layer = linear_from(weight)
    assert (layer.in_features, layer.out_features) == (4, 3)
    assert layer.weight.data_ptr() == weight.data_ptr()
    assert not layer.weight.requires_grad
    close(layer(x), x @ weight.T)
